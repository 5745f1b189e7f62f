"""``heavydistill import``: answers that others sampled become the folder of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from heavydistill.config.run import parse_assignment
from heavydistill.errors import ConfigError
from heavydistill.schema import TOO_FEW_USABLE

if TYPE_CHECKING:
    from rich.console import Console

    from heavydistill.curate.imports.import_pools import Imported

_PANEL = "What stands where, and how it is judged"


def import_(
    files: Annotated[
        list[Path], typer.Argument(help="Files of one format: JSON lines, JSON or parquet.")
    ],
    format: Annotated[
        str,
        typer.Option(
            "--from",
            help="heavyskill (results of the authors' code, and targets), pacore, nemo "
            "(output-rs*.jsonl) or answers (any columns).",
        ),
    ],
    out: Annotated[str, typer.Option(help="Folder of the run; must not be there or be empty.")],
    columns: Annotated[
        str | None,
        typer.Option(
            help="Field to column, e.g. text=question,reference=gold,answers=reply_*; fields: id, "
            "text, reference, options, verifier, verifier_args, domain, answers, answer_text, "
            "labels, finish_reasons.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    verifier: Annotated[
        str | None,
        typer.Option(
            help="Verifier of rows that name none. [default: math]", rich_help_panel=_PANEL
        ),
    ] = None,
    verifier_args: Annotated[
        str | None,
        typer.Option(
            help="Its arguments as YAML, e.g. '{marker: \"####\"}'.", rich_help_panel=_PANEL
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Who wrote the answers, where the files do not say.", show_default=False),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Take the first so many problems.")] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Any other key: problems.unfit=leave_out, verify.workers=8; may be repeated.",
        ),
    ] = None,
) -> None:
    """Take over pools of answers, so that a run starts at the cache.

    Every answer is judged again by our verifiers; labels in the files are only compared.
    """
    from rich.console import Console

    from heavydistill.cli.bar import Bar
    from heavydistill.config.sets import load_import_config
    from heavydistill.curate.imports.import_pools import import_pools
    from heavydistill.report.table import print_summary

    console = Console()
    chosen: dict[str, Any] = dict(map(parse_assignment, assignments or []))
    chosen |= {"files": list(map(str, files)), "format": format, "out": out}
    chosen |= {f"problems.columns.{field}": column for field, column in _pairs(columns)}
    if verifier_args is not None:
        chosen["problems.verifier_args"] = _mapping(verifier_args)
    for key, value in (
        ("problems.verifier", verifier),
        ("problems.limit", limit),
        ("model", model),
    ):
        if value is not None:
            chosen[key] = value
    config = load_import_config(chosen)
    with Bar(console) as bar:
        imported = import_pools(config, bar.show)
    print_summary(imported.summary, console)
    _print_labels(imported, console)
    for line in _notes(imported):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _pairs(columns: str | None) -> list[tuple[str, str]]:
    """``field=column,...`` as pairs."""
    pairs = []
    for pair in columns.split(",") if columns else []:
        field, found, column = pair.partition("=")
        if not (field.strip() and found and column.strip()):
            raise ConfigError(
                f"--columns {columns!r} is not of the form field=column,...",
                "Write e.g. --columns text=question,reference=gold,answers=replies.",
            )
        pairs.append((field.strip(), column.strip()))
    return pairs


def _mapping(text: str) -> dict[str, Any]:
    fix = """Write a mapping, e.g. --verifier-args '{marker: "####"}'."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--verifier-args {text!r} is not YAML", fix) from error
    if not isinstance(value, dict):
        raise ConfigError(f"--verifier-args {text!r} is no mapping", fix)
    return value


def _print_labels(imported: Imported, console: Console) -> None:
    from heavydistill.curate.imports.import_pools import LABELS
    from heavydistill.report.text import print_table, table

    agreement = imported.agreement
    if not agreement.labelled:
        return
    shown = table(console, "Labels of the files", *(f"ours {label}" for label in LABELS))
    for name in ("right", "wrong", "unlabelled"):
        counts = getattr(agreement, name)
        if counts:
            shown.add_row(name, *(f"{counts[label]:,}" for label in LABELS))
    print_table(shown, console)
    share = agreement.agreeing / agreement.labelled
    console.print(
        f"Both say the same of {agreement.agreeing:,} of {agreement.labelled:,} labelled answers "
        f"({100 * share:.1f}%); the verdicts of the traces are ours.",
        highlight=False,
        soft_wrap=True,
    )


def _notes(imported: Imported) -> list[str]:
    """What a user should know of what was read, and how to go on."""
    from heavydistill.curate.imports.formats import SUMMARIES
    from heavydistill.report.samples import marker_found, marker_value

    record, folder = imported.record, imported.folder
    lines = [
        f"Rows: {record['rows']:,} read, {record['problems']:,} problems with "
        f"{record['answers']:,} answers, {record['rows_joined']:,} joined to an earlier row."
    ]
    for reason, of in record["left_out"].items():
        lines += [f"Left out, {reason}: {of['rows']:,} row(s)"]
        lines += [f"  {what}" for what in of["first"]]
    lacking = [f"{file['name']} {file['lacks']:,}" for file in record["files"] if file.get("lacks")]
    if lacking:
        lines += [f"Problems without an answer in a file: {', '.join(lacking)}"]
    if summaries := record.get(SUMMARIES):
        lines += [f"{summaries:,} summaries are left out: what they had read is not in the file."]
    if assumed := record["finish_reasons_assumed"]:
        lines += [f"No finish reason for {assumed:,} answers: those with a text count as finished."]
    if unclear := record["labels_unclear"]:
        lines += [f"{unclear:,} labels are neither true nor false, 1 nor 0: they count as none."]
    if few := imported.summary.statuses.get(TOO_FEW_USABLE):
        lines += [f"{few:,} problem(s) have fewer than two usable answers."]
    if marker := imported.marker:
        lines += [
            marker_found(marker),
            "Import again into another folder with this marker: "
            f"--verifier-args {marker_value(marker)}",
        ]
    return [
        *lines,
        f"Traces: {folder}",
        f"Deliberate on them: heavydistill generate --pools {folder} --deliberator MODEL",
        f"Training sets: heavydistill build {folder} --redeliberate --teacher MODEL "
        "--student STUDENT --out SETS",
    ]
