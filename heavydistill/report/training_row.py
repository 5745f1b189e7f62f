"""Prints one row of a folder of sets, field by field or as tokens with the trained ones marked.

Tokens with a loss are coloured, and the others dim. Without colour, the part with a loss is between
``[[`` and ``]]``.

Not covered: tables over all rows, which the build prints and the manifest stores.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from heavydistill.chat.guard import Inspection, sides_of
from heavydistill.chat.student import Student, student_of_sets
from heavydistill.errors import ConfigError
from heavydistill.report.terminal import folded, plain
from heavydistill.store.sets import folder as folders
from heavydistill.store.sets.folder import read_manifest

_LEARNT, _NOT_LEARNT, _STOP = "green", "dim", "bold reverse green"
_LONG = 60  # characters from which a field is printed on separate lines
_KEPT_LINES = 12


def print_row(
    folder: Path, name: str | None, problem: str | None, console: Console, full: bool = False
) -> None:
    """Print one row of a set, field by field.

    Args:
        folder: Folder of the sets.
        name: Name of the set; None for the first training set with rows.
        problem: Id of the problem; None for the first row.
        console: Console to print to.
        full: Whether to print long texts in full.

    Raises:
        ConfigError: There is no such folder, set or row.
    """
    read_manifest(folder)  # raises an error with a fix if the folder has no sets
    row = _first_row(folder, name, problem, console)
    for field, value in row.items():
        _print_field(field, value, console, full)


def print_tokens(
    folder: Path,
    name: str | None,
    problem: str | None,
    console: Console,
    full: bool = False,
    student_name: str | None = None,
) -> None:
    """Print one row as the student reads it, and mark the tokens that have a loss.

    The other arguments are those of ``print_row``; the set must be a training set.

    Args:
        student_name: Folder, Hub id or profile of the student; None for the one in the manifest.

    Raises:
        ConfigError: As in ``print_row``; or the set is not used for training, the student of the
            manifest cannot be found, or its template does not accept the row.
        TeacherError: There is no student with the given name.
    """
    if name in folders.VIEWS:
        raise ConfigError(
            f"--tokens: the set {name} is not used for training",
            f"Give --set with one of {', '.join(folders.TRAINED)}.",
        )
    manifest = read_manifest(folder)
    template = folder / folders.CHAT_TEMPLATE
    student = student_of_sets(template, manifest.student.name, student_name)
    row = _first_row(folder, name, problem, console)
    if student.template_sha256 != manifest.student.template_sha256:
        console.print(
            plain(
                f"The chat template of {student.name} differs from the one that the rows were made "
                "for; the rows are rendered with the present one.",
                style="yellow",
            )
        )
    for side in sides_of(row):
        _print_side(side, student, manifest, console, full)


def _print_side(
    row: Any, student: Student, manifest: folders.Manifest, console: Console, full: bool
) -> None:
    """Print the tokens of a row, or of one completion of a pair, and its faults."""
    chat = student.chat
    if "completion" in row:
        inspection = Inspection(chat, row, manifest.student.max_tokens)
        faults = inspection.faults()
        unlearnt, learnt = inspection.tokens.prompt, inspection.tokens.completion
    else:  # an RL row: the student writes the answers itself
        faults, learnt = [], []
        unlearnt = chat.ids(chat.render(row["prompt"], opens=True))
    count = len(unlearnt) + len(learnt)
    console.print(
        plain(
            f"student: {student.name}   thinking: {student.form}\n"
            f"tokens: {len(unlearnt):,} read + {len(learnt):,} learnt = {count:,} of at most "
            f"{manifest.student.max_tokens:,}"
        )
    )
    for note in manifest.student.mended:  # the stored template already has these changes
        console.print(plain(f"template changed: {note}", style="dim"))
    console.print()
    _print_texts(student, unlearnt, learnt, console, full)
    for fault in faults:
        console.print(plain(f"guard: {fault.code}: {fault.detail}", style="red"))
    if learnt and not faults:
        console.print(Text("guard: the whole completion is learnt, and nothing else"))


def _print_texts(
    student: Student, unlearnt: list[int], learnt: list[int], console: Console, full: bool
) -> None:
    """Print the text of the tokens, with those that have a loss marked."""
    lines = _lines(plain(student.chat.decode(unlearnt), style=_NOT_LEARNT), console, full)
    if learnt:
        parts = list(_parts(student, learnt))
        if console.color_system is None or console.no_color:
            parts = [Text("[["), *parts, Text("]]")]
        first, *others = _lines(Text().join(parts), console, full)
        lines = [*lines[:-1], Text().join((lines[-1], first)), *others]
    console.print(Text("\n").join(lines))


def _parts(student: Student, learnt: list[int]) -> Iterator[Text]:
    """Yield the text with a loss, with the tokens that end a response highlighted."""
    start = 0
    for at, token in enumerate(learnt):
        if token in student.chat.stops:
            yield plain(student.chat.decode(learnt[start:at]), style=_LEARNT)
            yield plain(student.chat.decode([token]), style=_STOP)
            start = at + 1
    yield plain(student.chat.decode(learnt[start:]), style=_LEARNT)


def _first_row(
    folder: Path, name: str | None, problem: str | None, console: Console
) -> dict[str, Any]:
    """Return the first row that matches, and print its set, split and ids."""
    if name is not None and name not in folders.SETS:
        raise ConfigError(f"There is no set {name!r}", f"Give one of {', '.join(folders.SETS)}.")
    ids: dict[str, None] = {}
    for set_name in [name] if name else folders.TRAINED:
        for split in folders.splits_of(folder, set_name):
            for row in folders.read_rows(folder, set_name, split):
                id = row["id"] if set_name == "problems" else row["problem"]
                if problem in (None, id):
                    ids_of_row = [id, row.get("generation") or row.get("cache")]
                    title = f"{set_name}, {split}: {', '.join(map(str, filter(None, ids_of_row)))}"
                    console.print(Text("== ", style="bold") + plain(title, style="bold"))
                    return row
                ids[id] = None
    where = f"{folder}: {name or ', '.join(folders.TRAINED)}"
    if not ids:
        raise ConfigError(f"{where} has no rows", "Give another set with --set.")
    raise ConfigError(
        f"{where} has no row of problem {problem!r}",
        f"It has rows of {len(ids):,} problems, for example {', '.join(list(ids)[:3])}.",
    )


def _print_field(field: str, value: object, console: Console, full: bool) -> None:
    if field == "completion":
        return  # its two parts follow
    if field in ("prompt", "chosen", "rejected") and isinstance(value, list):
        turns = (turn.get(key) for turn in value for key in ("reasoning_content", "content"))
        value = "\n\n".join(filter(None, turns))
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    label = Text(f"{field}: ", style="dim")
    if "\n" in text or len(text) > _LONG:
        console.print(label)
        console.print(Text("\n").join(_lines(plain(text), console, full)))
    else:
        console.print(label + plain(text))


def _lines(text: Text, console: Console, full: bool) -> list[Text]:
    """Wrap a text; unless ``full``, keep only the first and last lines of a long text."""
    lines = list(text.wrap(console, console.width))
    return lines if full else folded(lines, _KEPT_LINES, _KEPT_LINES)
