"""Subcommands that share results: ``publish`` on the Hub, and ``skill`` for agents' clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from heavydistill.cli.flags import Flag, flags_of, with_flags
from heavydistill.cli.progress import same_command
from heavydistill.cli.verbs import Group, Verb
from heavydistill.config.run import RunConfig, load_config
from heavydistill.hub.options import PublishOptions
from heavydistill.report.terminal import print_command, say

_FLAGS = (
    Flag("repo_id", name="to", needed=True),
    *flags_of("private revision"),
    *flags_of("licence=license profiles=profile allow_unknown=allow-unknown-terms", "Terms"),
    *flags_of("allow_restricted=allow-restricted-terms", "Terms"),
    *flags_of("allow_key_shapes"),
)


@with_flags(PublishOptions, _FLAGS)
def publish(
    keys: dict[str, object],
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Folder of sets, from `heavydistill build`, of a run, or of a trained model.",
        ),
    ],
    *,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Write what would be sent into DIR.dry-run, list what the commit would delete on "
            "the Hub, and send nothing.",
        ),
    ] = False,
) -> None:
    """Publish training sets, the traces of a run, or a trained model on the Hub, with a card.

    The upload is one commit: if it fails, the repository is unchanged, and the same command can be
    repeated. The token comes from HF_TOKEN or `hf auth login`, the address from HF_ENDPOINT. The
    card is written anew each time, except for what you write under Notes at its end.
    """
    from heavydistill.errors import HeavydistillError
    from heavydistill.hub.publish import copy, deletions, pack, send

    options = PublishOptions(**keys)
    parcel = pack(folder, options)
    width, console = max(map(len, parcel.sizes)), Console()
    for name, size in parcel.sizes.items():
        say(f"{name:<{width}}  {size:>15,} bytes", console)
    say(f"{len(parcel.sizes)} files, {sum(parcel.sizes.values()):,} bytes", console)
    if parcel.kept_back:
        say(f"Not sent from {folder}: {', '.join(parcel.kept_back)}", console)
    if dry_run:
        written = copy(parcel, folder)
        try:
            gone = ", ".join(deletions(parcel, options)) or "nothing"
        except HeavydistillError as error:
            gone = f"unknown. {error}"
        say(f"Files that the commit would delete on the Hub: {gone}", console)
        say(f"Nothing was sent. What would be sent is in {written}", console)
        print_command("Next", same_command(), console)
        return
    done = send(parcel, options)
    for name in done.deleted:
        say(f"Deleted from the Hub, because only an earlier publication had it: {name}", console)
    outcome = "Published" if done.is_new else "Nothing differs, nothing was sent"
    say(f"{outcome}: {done.url} ({'private' if done.is_private else 'public'})", console)
    say(f"Commit {done.commit}", console)


skill = typer.Typer(
    name="skill",
    cls=Group,
    help="Export the protocol as a skill for agents' clients, or check a skill.",
    add_completion=False,
    rich_markup_mode=None,
)
_PROMPT = with_flags(RunConfig, flags_of("prompts=prompt"))


@skill.command(cls=Verb)
@_PROMPT
def export(
    keys: dict[str, object],
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Folder of skills, e.g. .agents/skills; it gets the subfolder heavy-thinking.",
        ),
    ],
    domain: Annotated[
        str,
        typer.Option(
            help="Domains of the wordings, with commas between: general, stem, code, brief, or one "
            "with prompts of yours; the first is the default of the skill."
        ),
    ] = "general,stem,code",
    language: Annotated[
        str,
        typer.Option(
            help="Languages of the wordings, with commas between: en, zh (brief has en alone); the "
            "first is the default of the skill."
        ),
    ] = "en,zh",
    evals: Annotated[
        Path | None, typer.Option(help="Finished run whose verified problems become evals.")
    ] = None,
) -> None:
    """Export the protocol as a skill.

    The skill is instructions only, in the format of the Agent Skills specification, with the
    wordings that runs and trainings use. The same command gives the same bytes.
    """
    from heavydistill.skill.export import export_skill

    written = export_skill(
        folder, _listed(domain), _listed(language), evals, load_config(overrides=keys).prompts
    )
    console = Console()
    sizes = [path.stat().st_size for path in written.rglob("*") if path.is_file()]
    say(f"Skill: {written} ({len(sizes)} files, {sum(sizes):,} bytes)", console)
    print_command("Next", ["heavydistill", "skill", "check", written], console)


@skill.command(cls=Verb)
@_PROMPT
def check(
    keys: dict[str, object],
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of one skill, which has a SKILL.md.")
    ],
) -> None:
    """Check the folder of a skill.

    The check covers the specification, what instructions must not hold, hashes, and whether
    the wordings are those of the installed version. A refused skill ends with exit code 2; each
    reason has its file, line and fix. Otherwise the level is printed, and what the next one needs.
    """
    from heavydistill.errors import ConfigError
    from heavydistill.skill.check import check_skill

    console = Console()
    report = check_skill(folder, load_config(overrides=keys).prompts)
    for refusal in report.refusals:
        say(str(refusal), console)
    if report.refusals:
        reasons = f"{len(report.refusals):,} reason(s) above"
        raise ConfigError(f"{folder} is refused, for the {reasons}", "Do not load it as it is.")
    say(f"{report.name}: {report.files} files, no reason to refuse it", console)
    say(f"Level: {report.level}", console)
    for lacks in report.missing:
        say(f"  The next level needs {lacks}", console)


def _listed(names: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in names.split(",")))
