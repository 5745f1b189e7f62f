"""Converts rows to problems by mapping columns to fields.

A field is read from the column that ``problems.columns`` names, otherwise from the column with the
field's name; ``text`` and a column like it must not hold different texts. Text, reference and
options may also be in a column listed in ``ALIASES``, if the source has exactly one of these.
Without any of them, or where ``problems.columns`` says so, the text is the last turn of the
conversation in ``messages`` (see ``problems.messages``).
``solution`` is not an alias, because it usually holds a worked solution. ``problems.shape`` first
converts the columns of a public benchmark to such columns; all other columns stay unchanged.

The reference may be absent if the verifier needs none. Arguments missing from ``verifier_args`` are
read from the verifier's ``argument_columns``. A row without a domain gets its verifier's domain. A
row with options is judged by ``choice``, whatever ``problems.verifier`` says.

Numbers in the id and reference columns become text. Rows without ids get the id ``STEM:NUMBER``,
from file name and line.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import reprlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

from heavydistill.config.files import json_of
from heavydistill.config.run import Problems, Shape
from heavydistill.errors import ProblemsError
from heavydistill.problems.messages import read_messages
from heavydistill.problems.options import lettered
from heavydistill.problems.tables import Table, TableRow, choices
from heavydistill.schema import Problem
from heavydistill.verifiers import registry
from heavydistill.verifiers.base import Verifier

FIELDS = ("id", "text", "messages", "reference", "options", "verifier", "verifier_args", "domain")
ALIASES = {
    "text": ("question", "problem", "prompt"),
    "reference": ("answer", "final_answer", "ground_truth", "answerKey"),
    "options": ("choices",),
}
DEFAULT_VERIFIER = "math"
OPTIONS_VERIFIER = "choice"


def to_problems(
    table: Table, config: Problems
) -> tuple[dict[int, Problem], dict[int, ProblemsError]]:
    """Returns (problems, faults of all other rows), by row number; references are not checked.

    Raises ProblemsError if a column is missing, or two problems have the same id.
    """
    shape = _SHAPES[config.shape] if config.shape else lambda values: {}
    problems: dict[int, Problem] = {}
    faults: dict[int, ProblemsError] = {}
    rows: list[TableRow] = []
    for row in table.rows:
        with _noting(faults, row):
            rows.append(replace(row, values=row.values | shape(row.values)))
    columns = columns_of(replace(table, rows=rows), config.columns) if rows else {}
    first_use: dict[str, str] = {}
    for row in rows:
        with _noting(faults, row):
            problems[row.number] = _problem(row, columns, table, config)
    where = {row.number: row.where for row in rows}
    for number, problem in problems.items():
        if (first := first_use.setdefault(problem.id, where[number])) != where[number]:
            raise ProblemsError(
                f"{where[number]}: id {problem.id!r} is also that of {first}",
                "Give every problem a different id.",
            )
    return problems, faults


@contextlib.contextmanager
def _noting(faults: dict[int, ProblemsError], row: TableRow) -> Iterator[None]:
    """Collect a ProblemsError raised in the block in ``faults``, with the row's place."""
    try:
        yield
    except ProblemsError as error:
        faults[row.number] = ProblemsError(f"{row.where}: {error.what}", error.fix)


def columns_of(table: Table, mapped: dict[str, str]) -> dict[str, str]:
    """Map each field to its column, for all fields that the source has or the user mapped.

    Raises ProblemsError if a column is missing, or if several columns match a field.
    """
    present = list(dict.fromkeys(column for row in table.rows for column in row.values))
    where = table.rows[0].where
    for field, column in mapped.items():
        if field not in FIELDS:
            raise ProblemsError(
                f"problems.columns.{field}: there is no such field",
                choices(field, FIELDS, "Fields"),
            )
        if column not in present:
            raise ProblemsError(
                f"{where}: there is no column {column!r} (problems.columns.{field})",
                choices(column, present, "Columns there"),
            )
    if {"text", "messages"} <= mapped.keys():
        raise ProblemsError(
            "problems.columns maps both text and messages", "Map the one that holds the problems."
        )
    has_text = "text" in mapped or not {"text", *ALIASES["text"]}.isdisjoint(present)
    is_conversation = "messages" in mapped or (not has_text and "messages" in present)
    if "text" in present and "text" not in mapped and not is_conversation:
        _refuse_two_texts(table)
    other = "text" if is_conversation else "messages"
    fields = [field for field in FIELDS if field != other]
    columns = {field: mapped.get(field) or _own_column(field, present, where) for field in fields}
    return {field: column for field, column in columns.items() if column is not None}


def _refuse_two_texts(table: Table) -> None:
    """Raise ProblemsError if a row has different texts in ``text`` and in a column like it."""
    for row in table.rows:
        texts = {name: row.values.get(name) for name in ("text", *ALIASES["text"])}
        given = [name for name, text in texts.items() if text is not None]
        if len({str(texts[name]) for name in given}) > 1:
            raise ProblemsError(
                f"{row.where}: the columns {' and '.join(given)} could each be the text",
                "Add --set problems.columns.text=COLUMN with the right column.",
            )


def _own_column(field: str, there: list[str], where: str) -> str | None:
    """The column of a field that the user did not map; None if there is none."""
    if field in there:
        return field
    aliases = [alias for alias in ALIASES.get(field, ()) if alias in there]
    if len(aliases) > 1:
        raise ProblemsError(
            f"{where}: the columns {' and '.join(aliases)} could each be the {field}",
            f"Add --set problems.columns.{field}=COLUMN with the right column.",
        )
    if aliases or field != "text":  # whether a row needs a reference depends on its verifier
        return aliases[0] if aliases else None
    raise ProblemsError(f"{where}: there is no column for the {field}", _mapping(field, there))


def _mapping(field: str, there: Iterable[str]) -> str:
    """The fix to show if no column was found for a field."""
    listed = choices(field, there, "Columns there")
    return f"Add --set problems.columns.{field}=COLUMN. {listed}"


# --- A single row; errors do not contain the row's place, which ``_noting`` adds.


def _problem(row: TableRow, columns: dict[str, str], table: Table, config: Problems) -> Problem:
    values = row.values
    given = {field: values.get(column) for field, column in columns.items()}
    verifier = registry.get(_verifier(values, columns, config))
    named = _required(values, columns["id"], "the id") if "id" in columns else ""
    if verifier.needs_reference and "reference" not in columns:
        fix = _mapping("reference", values)
        raise ProblemsError("there is no column for the reference", fix)
    args = _args(given.get("verifier_args"))
    if "messages" in columns:
        text, history = read_messages(given["messages"], columns["messages"])
    else:
        text, history = _required(values, columns["text"], "the text", numbers=False), ""
    problem = Problem(
        id=named or f"{table.stem}:{row.number}",
        text=text,
        history_json=history,
        reference=_required(values, columns["reference"], "the reference answer")
        if verifier.needs_reference
        else _text(values, columns.get("reference"), numbers=True),
        verifier=verifier.name,
        verifier_args=_all_args(values, verifier, config.verifier_args if args is None else args),
        domain=_text(values, columns.get("domain")) or verifier.domain,
        source=f"{table.origin}:{row.number}",
    )
    options, keep = given.get("options"), config.keep_option_order
    if options is None:
        return problem
    if args is not None:
        raise ProblemsError(
            "the row has options and verifier_args",
            "Leave verifier_args out: the verifier's arguments are made from the options.",
        )
    made = lettered(problem.text, options, given["reference"], problem.id, config.seed, keep)
    return replace(problem, **made._asdict())


def _verifier(values: dict[str, object], columns: dict[str, str], config: Problems) -> str:
    """Determine the name of the verifier of a row."""
    name = _text(values, columns.get("verifier"))
    if values.get(columns.get("options", "")) is None:
        return name or config.verifier or DEFAULT_VERIFIER
    if name not in ("", OPTIONS_VERIFIER):
        raise ProblemsError(
            f"the row has options and names the verifier {name!r}",
            f"Options are judged by {OPTIONS_VERIFIER}: take the verifier out, or the options "
            f"(column {columns['options']!r}).",
        )
    return OPTIONS_VERIFIER


def _text(values: dict[str, Any], column: str | None, *, numbers: bool = False) -> str:
    """The text in a column; empty if the value is null or there is no column."""
    value = values.get(column or "")
    if value is None:
        return ""
    if numbers and isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise ProblemsError(
            f"column {column!r} holds {type(value).__name__}, not text", "Write it as a string."
        )
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ProblemsError(
            f"column {column!r} holds half a character (a lone surrogate)",
            "Save the text as valid Unicode.",
        )
    return value


def _texts(values: dict[str, object], *columns: str, numbers: bool = True) -> list[str]:
    """The texts in columns that must not be empty."""
    for column in columns:
        if column not in values:
            raise ProblemsError(
                f"there is no column {column!r}", choices(column, values, "Columns of this row")
            )
    return [_text(values, column, numbers=numbers) for column in columns]


def _required(values: dict[str, object], column: str, what: str, *, numbers: bool = True) -> str:
    """The text in a column that must not be empty; ``what`` names it in the error."""
    (text,) = _texts(values, column, numbers=numbers)
    if not text.strip():
        raise ProblemsError(
            f"{what} is empty (column {column!r})", "Fill it in or leave the row out."
        )
    return text


def _all_args(values: dict[str, object], verifier: Verifier, args: dict[str, object]) -> str:
    """The verifier arguments as JSON: ``args``, completed from the verifier's columns."""
    columns = verifier.argument_columns
    own = {name: values[name] for name in columns if values.get(name) is not None}
    try:
        more = {name: value for name, value in own.items() if name not in args}
        return json.dumps({**args, **more}, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ProblemsError(
            f"the arguments of {verifier.name} cannot be written as JSON: {error}",
            f"Correct the columns {', '.join(columns)}.",
        ) from error


def _args(value: object) -> dict[str, object] | None:
    """Read a JSON object, given as an object or as text; None if there is none."""
    if value is None or value == "":
        return None
    try:
        args = json_of(value) if isinstance(value, str) else value
    except ValueError:
        args = None
    if not isinstance(args, dict):
        raise ProblemsError(
            f"verifier_args is not a JSON object: {reprlib.repr(value)}",
            'Write an object, e.g. {"marker": "####"}, or leave it out.',
        )
    return args


# --- Rows of public benchmarks whose columns do not match the fields.
_WRONG = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


def _gpqa(values: dict[str, Any]) -> dict[str, object]:
    """Build options from the columns with the right answer and three wrong ones.

    The right answer gets a random position, determined by the question. Otherwise it would be first
    in all questions whose options must keep the order of the dataset.
    """
    question, right, *options = _texts(values, "Question", "Correct Answer", *_WRONG)
    place = hashlib.sha256(question.encode("utf-8", "replace")).digest()[0] % (len(_WRONG) + 1)
    options.insert(place, right)
    return {"text": question, "options": options, "reference": place}


def _livecodebench(values: dict[str, object]) -> dict[str, object]:
    """Append the starter code to the text, and read the function's name from ``metadata``.

    The tests are judged as by the benchmark's own grader.
    """
    columns = ("question_content", "starter_code", "metadata")
    question, starter, metadata = _texts(values, *columns)
    try:
        name = json.loads(metadata or "{}").get("func_name")
    except (ValueError, AttributeError, RecursionError) as error:
        raise ProblemsError(
            "metadata is not the JSON text of an object", "Correct the row."
        ) from error
    if not starter.strip():
        asks = "Write a program that reads standard input and writes standard output."
        return {"text": f"{question.rstrip()}\n\n{asks}", "judged_like": "livecodebench"}
    asks = f"The program completes this code:\n\n```python\n{starter.strip()}\n```"
    in_class = "Solution." if "class Solution" in starter else ""
    return {
        "text": f"{question.rstrip()}\n\n{asks}",
        "entry_point": name and f"{in_class}{name}",
        "judged_like": "livecodebench",
    }


_SHAPES: dict[Shape, Callable[[dict[str, object]], dict[str, object]]] = {
    "gpqa": _gpqa,
    "livecodebench": _livecodebench,
}
