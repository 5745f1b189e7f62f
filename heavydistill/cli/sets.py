"""Subcommands for training sets: build, refilter, export; and import, which makes a run."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer
from rich.console import Console

from heavydistill import plugins
from heavydistill.cli.flags import BuildFile, DryRun, Flag, Full, flags_of, with_flags
from heavydistill.cli.progress import (
    Bar,
    ending_early,
    print_volume,
    same_command,
    show_deliberations,
)
from heavydistill.config.sets import BuildConfig, ImportConfig, RefilterConfig, load_build_config
from heavydistill.config.shipped import shipped, shipped_file
from heavydistill.config.yaml import load
from heavydistill.errors import ConfigError
from heavydistill.report.grid import Grid, Line, counted, listed, part
from heavydistill.report.terminal import going_on, print_command, print_grid, print_lines, say
from heavydistill.schema import TOO_FEW_USABLE, Label, Stratum

if TYPE_CHECKING:
    from heavydistill.curate.imports.import_pools import ImportResult
    from heavydistill.curate.refilter import RefilterOutcome, RefilterPlan

# Largest number of parameters for each configuration of SFT on a GPU, and on a CPU.
_CONFIGS = ((5e8, "135m"), (2.5e9, "1.7b"), (1.2e10, "4b-lora"), (math.inf, "32b-qlora"))
_UNKNOWN, _MOST_ON_CPU = 4e9, 1e9
_BUILD_FLAGS = (
    *flags_of("preset also student out redeliberate.teacher"),
    *flags_of("redeliberate.endpoint.base_url=endpoint redeliberate.budget"),
    *flags_of("redeliberate.endpoint.tokenizer", "Model"),
    *flags_of("chat_template system prompts=prompt sets.written_by=cache-from", "Sets"),
    *flags_of("against plugins=plugin seed", "Sets"),
)
_REFILTER_FLAGS = (
    Flag("checkpoint", needed=True),
    Flag("out", needed=True),
    *flags_of("d seed endpoint.base_url=endpoint budget"),
    *flags_of("endpoint.tokenizer student", "Model"),
    *flags_of("endpoint.price_in endpoint.price_out endpoint.fresh journal", "Cost"),
)
_IMPORT_FLAGS = (
    Flag("format", name="from", needed=True),
    Flag("out", needed=True),
    *flags_of("problems.columns problems.verifier problems.verifier_args model"),
    *flags_of("licence=license problems.limit"),
)


@with_flags(BuildConfig, _BUILD_FLAGS, "retention=0.3")
def build(
    keys: dict[str, object],
    runs: Annotated[
        list[str] | None, typer.Argument(help="Folders of runs, unless --config names them.")
    ] = None,
    *,
    redeliberate: Annotated[
        bool,
        typer.Option(
            "--redeliberate",
            help="Sample new deliberations for sets that have none to learn from; implied by "
            "--teacher, --endpoint and --budget.",
        ),
    ] = False,
    config: BuildFile = None,
    dry_run: DryRun = False,
    full: Full = False,
) -> None:
    """Build training sets for both roles, and prompts for RL, from runs.

    The unit is a candidate set: a problem with some of its attempts. A preset chooses the strata
    and the number of sets from each. Everything left out is kept with a label and counted.
    """
    if not runs and not config:
        raise ConfigError("No run is given", "Write `heavydistill build RUN`, or --config FILE.")
    asks = redeliberate or any(key.startswith("redeliberate.") for key in keys)
    file = shipped_file("build", config) if config else None
    resolved = load_build_config(file, keys | ({"runs": runs} if runs else {}), asks)
    from heavydistill.curate.build import EmptyError, build_sets
    from heavydistill.curate.redeliberation import journal_of
    from heavydistill.hub.dataset_card import write_card
    from heavydistill.report.sets import print_manifest

    console, out = Console(), Path(resolved.out)
    journal = None
    if resolved.redeliberate and not dry_run:
        journal = journal_of(resolved.redeliberate, out)
    try:
        with ending_early(console, out, journal), Bar(console) as bar:
            manifest = build_sets(
                resolved,
                bar.show,
                lambda run, volume: print_volume(volume, run, console),
                write_card,
                dry_run,
            )
    except EmptyError as empty:
        print_manifest(empty.manifest, console, full=full)
        raise
    print_manifest(manifest, console, full=full)
    if dry_run:
        say("Nothing was written, and no request was sent.", console)
        print_command("Next", same_command(), console)
        return
    show = ["heavydistill", "show", resolved.out]
    print_command("All tables", show, console)
    show += ["--tokens"]
    if resolved.student and Path(resolved.student).is_dir():  # the sets store only the model's name
        show += ["--student", resolved.student]
    print_command("A row as the student sees it", show, console)
    if train := _training(resolved.out, resolved.student or manifest.student.name, manifest.rows):
        print_command("Next", train, console)


def _training(sets: str, student: str, rows: dict[str, dict[str, int]]) -> list[str]:
    """Return the command to train on sets: the deliberator if it has rows; empty without rows."""
    roles = [role for role in ("deliberator", "thinker") if rows[f"sft_{role}"]["train"]]
    if not roles:
        return []
    command = ["heavydistill", "sft", *_config_for(student)]
    command += ["--role", roles[0], "--dataset_name", sets]
    if not rows[f"sft_{roles[0]}"]["validation"]:
        command += ["--eval_strategy", "no", "--load_best_model_at_end", "false"]
    return command


def _config_for(student: str) -> list[str]:
    """Return the flags of a training that fits the student and this machine."""
    from heavydistill.config.yaml import read_yaml
    from heavydistill.models.hub_files import parameters_in
    from heavydistill.train.script import may_have_gpu

    has_gpu = may_have_gpu()
    files = {name: read_yaml(file) for name, file in shipped("configs/sft").items()}
    made_for = [name for name, tree in files.items() if tree["model_name_or_path"] == student]
    fitting = [name for name in made_for if files[name].get("use_cpu", False) != has_gpu]
    if made_for:
        return ["--config", (fitting or made_for)[-1]]
    flags = ["--model_name_or_path", student]
    weights = parameters_in(Path(student)) or _UNKNOWN
    if not has_gpu and weights > _MOST_ON_CPU:
        return [*flags, "--use_cpu", "true", "--bf16", "false"]
    of_size = next(name for most, name in _CONFIGS if weights <= most)
    return ["--config", of_size if has_gpu else "135m-cpu", *flags]


@with_flags(RefilterConfig, _REFILTER_FLAGS, "sampling.max_tokens=2048")
def refilter(
    keys: dict[str, object],
    sets: Annotated[Path, typer.Argument(help="Folder of sets, from build or refilter.")],
    *,
    dry_run: DryRun = False,
) -> None:
    """Keep the RL prompts that a checkpoint gets right sometimes, but not always.

    The checkpoint deliberates on every cache that can be an RL prompt, also on those that were
    always or never right before. The new folder has the problems, the caches with their new success
    rate, and the new prompts. After Ctrl-C or a kill the same command goes on, and no response is
    lost.
    """
    from heavydistill.curate import refilter
    from heavydistill.hub.dataset_card import write_card
    from heavydistill.models.contact import ServerProbe

    console = Console()
    config = load(RefilterConfig, overrides=keys | {"sets": str(sets)})
    plan = refilter.check(config, None if dry_run else ServerProbe())
    for warning in plan.warnings:
        say(f"Warning: {warning}", console, "yellow")
    print_volume(plan.volume, plan.run, console)
    if dry_run:
        print_command("Next", same_command(), console)
        return
    journal = Path(plan.run.config.journal or "")
    with (
        ending_early(console, Path(config.out), journal),
        Bar(console) as bar,
        going_on("deliberating", is_shown=not console.is_terminal),
    ):
        on_tally = functools.partial(show_deliberations, bar, total=plan.volume.caches)
        outcome = refilter.refilter(plan, on_tally, write_card)
    _print_refiltered(plan, outcome, console)


def _print_refiltered(plan: RefilterPlan, outcome: RefilterOutcome, console: Console) -> None:
    from heavydistill.curate.refilter import ASKED_ABOUT

    strata = [name for name in get_args(Stratum) if any(of == name for of, _ in outcome.after)]
    lines = []
    for stratum in (*strata, None):
        before = outcome.before[stratum] if stratum else outcome.before.total()
        after = [outcome.labelled(label, stratum) for label in ASKED_ABOUT]
        lines.append(Line(stratum or "all", [f"{count:,}" for count in (before, *after)]))
    names = [(label or "after").replace("_", " ") for label in ASKED_ABOUT]
    print_grid(Grid(["RL prompts", "before", *names], lines), console)
    asked, tally = outcome.tally.summary(plan.run), outcome.tally
    counts = {
        f"deliberations by {asked.model}": asked.deliberations,
        "failed": tally.failed,
        "cut off": tally.cut_off,
        "undecided": outcome.undecided,
        "unanswered": outcome.unanswered,
        "already billed": tally.from_journal,
        "tokens in": asked.prompt_tokens,
        "tokens out": asked.completion_tokens,
    }
    cost = f", {asked.cost_usd:,.2f} USD" if asked.cost_usd else ""
    say(f"Asked: {listed(counts)}{cost}", console)
    say(f"RL prompts: {listed(dict(sorted(outcome.rows.items())))}, in {plan.config.out}", console)
    train = ["heavydistill", "grpo", "--config", "1gpu/deliberator", "--model_name_or_path"]
    train += [plan.config.checkpoint, "--dataset_name", plan.config.out]
    print_command("Next", train, console)


def export(
    source: Annotated[
        Path,
        typer.Argument(help="Folder of sets, from `heavydistill build`; for gguf, of a model."),
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="Trainer: trl, unsloth, verl, openrlhf, nemo-rl, llamafactory, ms-swift, axolotl, "
            "tinker, or a plug-in's; or gguf.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", help="Folder for the export, which must be new or empty.")
    ],
    plugin: Annotated[
        list[str] | None, typer.Option(help="Python files with exporters of yours.")
    ] = None,
    quant: Annotated[
        str | None,
        typer.Option(help="Weights of a GGUF file: bf16 (default), f16, f32, q8_0, q5_1 or q4_0."),
    ] = None,
) -> None:
    """Export training sets for another trainer, or a model as GGUF.

    The folder of a trainer holds the rows, a configuration for each set, the reward for RL, and a
    README.md with the commands to train with. With `--to gguf`, it holds a trained or merged model
    as one file for llama.cpp, with its chat template, and a Modelfile for Ollama.
    """
    if to == "gguf":
        if plugin:
            raise ConfigError("--plugin is for trainers, not for gguf", "Leave it out.")
        _export_gguf(source, out, quant or "bf16")
        return
    if quant:
        raise ConfigError(f"--quant is for --to gguf, not for {to}", "Leave it out.")
    _export_sets(source, to, out, plugin)


def _export_sets(sets: Path, to: str, out: Path, plugin: list[str] | None) -> None:
    from heavydistill.curate.exports.export import export as write

    plugins.load(plugin or ())
    written = write(sets, to, out)
    console = Console()
    lines = [
        Line(name, [f"{counts.get(split, 0):,}" for split in ("train", "validation")])
        for name, counts in written.rows.items()
    ]
    print_grid(Grid(["Set", "train", "validation"], lines), console)
    for name, why in written.absent.items():
        say(f"Left out: {name}, because {why}.", console)
    say(f"How to train with them: {out}/README.md", console)


def _export_gguf(model: Path, out: Path, quant: str) -> None:
    from heavydistill.train.gguf import export_gguf

    written = export_gguf(model, out, quant)
    console = Console()
    size = f"{written.path.stat().st_size / 1e6:,.1f} MB"
    say(f"{written.path}: {size}, {quant}, {written.architecture}", console)
    if written.unquantized:
        whole = f"{counted(written.unquantized, 'weight')} in f16: the rows do not fit {quant}"
        say(f"Not quantized: {whole}", console)
    if written.has_modelfile:
        create = ["ollama", "create", written.path.stem.lower(), "-f", f"{out}/Modelfile"]
        print_command("For Ollama", create, console)
    else:
        why = "its chat template is not ChatML, and Ollama takes no other from a file"
        say(f"No Modelfile: {why}. llama.cpp and LM Studio read the template.", console)
    serve = ["llama-server", "-m", str(written.path), "-c", str(written.context), "--jinja"]
    print_command("Next", serve, console)


@with_flags(ImportConfig, _IMPORT_FLAGS, "problems.unfit=leave_out")
def import_(
    keys: dict[str, object],
    files: Annotated[
        list[Path], typer.Argument(help="Files with answers: JSON lines, JSON or parquet.")
    ],
    full: Full = False,
) -> None:
    """Import answers from other tools as the pools of a run, to deliberate on.

    Every answer is judged by our verifiers; labels in the files are only compared with the
    verdicts. With --from solutions, each problem has one worked solution, and `build` makes rows of
    the thinker of those that the verifier accepts.
    """
    from heavydistill.curate.imports.import_pools import SOLUTIONS_FORMAT, import_pools
    from heavydistill.report.comparison import print_mixing
    from heavydistill.report.faults import unjudged_lines
    from heavydistill.report.summary import marker_found, marker_value, print_summary

    console = Console()
    with Bar(console) as bar:
        imported = import_pools(keys | {"files": list(map(str, files))}, bar.show)
    folder = str(imported.folder)
    sets = ["--out", f"sets/{imported.folder.name}"]
    if imported.record["format"] == SOLUTIONS_FORMAT:
        print_lines((*_solutions(imported), *_notes(imported)), console)
        if imported.record["not_correct"]["rows"] == imported.record["answers"]:
            raise typer.Exit(1)
        build = ["heavydistill", "build", folder, "--student", "MODEL", *sets]
        print_command("Next", build, console)
        return
    print_summary(imported.summary, console, full=full)
    print_mixing(imported.mixing, console, full=full)
    print_lines(_notes(imported), console)
    if disagreeing := _labels(imported.labels):
        print_grid(disagreeing, console)
    if marker := imported.marker:
        say(marker_found(marker), console)
        again = same_command("--out", f"{folder}-marker", "--verifier-args", marker_value(marker))
        print_command("To judge by this marker", again, console)
    print_lines(unjudged_lines(imported.summary, imported.folder), console)
    if imported.summary.is_unread:
        raise typer.Exit(1)
    asks = ["heavydistill", "build", folder, "--redeliberate", "--teacher", "MODEL"]
    asks += ["--student", "Qwen/Qwen3-4B", *sets]
    print_command("Training sets", asks, console)
    deliberate = ["heavydistill", "generate", "--pools", folder, "--deliberator", "MODEL"]
    print_command("Deliberations", deliberate, console)
    print_command("Next", ["heavydistill", "report", folder], console)


def _solutions(imported: ImportResult) -> Iterator[str]:
    """Yield how many worked solutions the verifier accepts, and the first that it does not."""
    answers, refused = imported.record["answers"], imported.record["not_correct"]
    yield f"Solutions that the verifier accepts: {part(answers - refused['rows'], answers)}"
    yield from (f"  {what}" for what in refused["first"])
    if refused["rows"]:
        yield (
            "Only accepted ones are learnt. A solution ends with its final answer in \\boxed{}, or "
            "behind a marker that --verifier-args '{marker: \"Answer:\"}' names."
        )
    if imported.reference_marker:
        yield (
            f"Our prompts ask for \\boxed{{}}, and the solutions end with "
            f"{imported.reference_marker}: give `build` a prompt that asks for it, --prompt "
            "thinker=FILE."
        )


def _labels(counts: Mapping[str, Counter[Label]]) -> Grid | None:
    """Return our verdicts by the files' labels; None if no decided verdict contradicts a label."""
    if not counts["right"]["incorrect"] + counts["wrong"]["correct"]:
        return None
    verdicts: tuple[Label, ...] = ("correct", "incorrect", "undecided")
    lines = [
        Line(f"labelled {name}", [f"{counts[name][verdict]:,}" for verdict in verdicts])
        for name in ("right", "wrong")
    ]
    return Grid(["Answers, by our verdict", *verdicts], lines)


def _notes(imported: ImportResult) -> Iterator[str]:
    """Yield the counts of the files' rows, and anything unusual about them."""
    from heavydistill.curate.imports.datasets import REPEATED
    from heavydistill.curate.imports.outputs import SUMMARIES
    from heavydistill.report.summary import marker_noted

    record, labels = imported.record, imported.labels
    yield (
        f"Rows: {record['rows']:,} read, {record['problems']:,} problems with "
        f"{record['answers']:,} answers, {record['rows_joined']:,} joined to an earlier row."
    )
    if imported.reference_marker:
        yield marker_noted(imported.reference_marker)
    if labelled := labels["right"].total() + labels["wrong"].total():
        agreeing = part(labels["right"]["correct"] + labels["wrong"]["incorrect"], labelled)
        yield f"Labels of the files that agree with our verdicts: {agreeing}; ours are kept."
    if record["licences"]:
        yield f"Answers by licence, for the cards: {listed(record['licences'])}."
    for reason, left_out in record["left_out"].items():
        yield f"Left out, {reason}: {left_out['rows']:,} row(s)"
        yield from (f"  {what}" for what in left_out["first"])
    notes = {
        "summaries are left out, because their attempts are not in the file": record.get(SUMMARIES),
        "solutions are not repeated, because an earlier row shows them": record.get(REPEATED),
        "answers have no finish reason: with a text they count as finished": record[
            "finish_reasons_assumed"
        ],
        "labels are neither true nor false, 1 nor 0: they are ignored": record["labels_unclear"],
        "problem(s) have fewer than two usable answers": imported.summary.statuses.get(
            TOO_FEW_USABLE
        ),
    }
    yield from (f"{count:,} {what}." for what, count in notes.items() if count)
