"""``heavydistill publish``: uploads sets as a dataset, or a trained model, to the Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from heavydistill.cli.flags import Flag, with_flags
from heavydistill.cli.progress import same_command
from heavydistill.hub.options import PublishOptions
from heavydistill.report.terminal import print_command, say

_TERMS = "Terms"
_FLAGS = (
    Flag("repo_id", name="to", needed=True),
    Flag("private"),
    Flag("revision"),
    Flag("licence", _TERMS, "license"),
    Flag("profiles", _TERMS, "profile"),
    Flag("allow_unknown", _TERMS, "allow-unknown-terms"),
    Flag("allow_restricted", _TERMS, "allow-restricted-terms"),
)


@with_flags(PublishOptions, _FLAGS)
def publish(
    keys: dict[str, Any],
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Folder of sets, from `heavydistill build`, or of a trained model."
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
    """Publish training sets or a trained model on the Hub, with a card.

    The upload is one commit: if it fails, the repository is unchanged, and the same command can be
    repeated. The token comes from HF_TOKEN or `hf auth login`, the address from HF_ENDPOINT. The
    card is written anew each time, except for what you write under Notes at its end.
    """
    from heavydistill.errors import HeavydistillError
    from heavydistill.hub.publish import copy, deletions, pack
    from heavydistill.hub.publish import publish as send

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
    said = "Published" if done.is_new else "Nothing differs, nothing was sent"
    say(f"{said}: {done.url} ({'private' if done.is_private else 'public'})", console)
    say(f"Commit {done.commit}", console)
