"""Turns rows into problems: which column is which field.

A field is read from the column that ``problems.columns`` names, else from the column of its own
name. For the text, the reference and the options, the names in ``ALIASES`` are taken too if
exactly one of them is there. ``solution`` is none of them: it is mostly a worked solution and no
final answer.

The reference may be absent where the verifier needs none. What ``verifier_args`` does not name is
taken from the columns that the verifier reads its arguments from (``argument_columns``). A row
that names no domain has that of its verifier.

Numbers in the id and reference columns become text. Rows of a source without ids are named
``STEM:NUMBER`` after the file and the line. A row with options is judged by ``choice``, whatever
``problems.verifier`` says of the others.
"""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any, get_args

from heavydistill.config.run import Domain, Problems
from heavydistill.errors import ProblemsError
from heavydistill.problems.options import lettered
from heavydistill.problems.shapes import shaped
from heavydistill.problems.tables import Table, TableRow, choices
from heavydistill.schema import Problem
from heavydistill.verifiers import registry
from heavydistill.verifiers.base import Verifier

FIELDS = ("id", "text", "reference", "options", "verifier", "verifier_args", "domain")
ALIASES = {
    "text": ("question", "problem", "prompt"),
    "reference": ("answer", "final_answer", "ground_truth", "answerKey"),
    "options": ("choices",),
}
# Whether the reference is needed depends on the verifier of the row.
OPTIONAL = FIELDS[2:]
DEFAULT_VERIFIER = "math"
OPTIONS_VERIFIER = "choice"


def to_problems(table: Table, config: Problems) -> list[Problem | ProblemsError]:
    """For each row in its order its problem, or what is wrong with it; no reference is checked.

    Raises:
        ProblemsError: A column is not there, or two problems have one id.
    """
    rows = [_shaped(row, config) for row in table.rows]
    there = [row for row in rows if isinstance(row, TableRow)]
    columns = columns_of(replace(table, rows=there), config.columns) if there else {}
    found: list[Problem | ProblemsError] = []
    first_use: dict[str, str] = {}
    for row in rows:
        if isinstance(row, ProblemsError):
            found.append(row)
            continue
        try:
            problem = _problem(row, columns, table, config)
        except ProblemsError as error:
            found.append(error)
            continue
        if problem.id in first_use:
            raise ProblemsError(
                f"{row.where}: id {problem.id!r} is also that of {first_use[problem.id]}",
                "Give every problem an id of its own.",
            )
        first_use[problem.id] = row.where
        found.append(problem)
    return found


def _shaped(row: TableRow, config: Problems) -> TableRow | ProblemsError:
    try:
        return shaped(row, config.shape) if config.shape else row
    except ProblemsError as error:
        return error


def columns_of(table: Table, mapped: dict[str, str]) -> dict[str, str]:
    """Our field to the source's column, for the fields that the source has.

    Args:
        table: The rows.
        mapped: Field to column, where the user named it.

    Raises:
        ProblemsError: A column is not there, or several could be the field.
    """
    there = list(dict.fromkeys(column for row in table.rows for column in row.values))
    where = table.rows[0].where
    for field, column in mapped.items():
        if field not in FIELDS:
            raise ProblemsError(
                f"problems.columns.{field}: there is no such field",
                choices(field, FIELDS, "Fields"),
            )
        if column not in there:
            raise ProblemsError(
                f"{where}: there is no column {column!r} (problems.columns.{field})",
                choices(column, there, "Columns there"),
            )
    found = {field: mapped.get(field) or _own_column(field, there, where) for field in FIELDS}
    return {field: column for field, column in found.items() if column is not None}


def _own_column(field: str, there: list[str], where: str) -> str | None:
    """The column of a field that is not mapped."""
    if field in there or field not in ALIASES:
        return field if field in there else None
    aliases = [alias for alias in ALIASES[field] if alias in there]
    if len(aliases) == 1:
        return aliases[0]
    if aliases:
        raise ProblemsError(
            f"{where}: the columns {' and '.join(aliases)} could each be the {field}",
            f"Set problems.columns.{field} to the one that is meant.",
        )
    if field in OPTIONAL:
        return None
    raise ProblemsError(
        f"{where}: there is no column for the {field}",
        f"Set problems.columns.{field}. {choices(field, there, 'Columns there')}",
    )


def _problem(row: TableRow, columns: dict[str, str], table: Table, config: Problems) -> Problem:
    verifier = _verifier(row, columns, config)
    problem = Problem(
        id=_id(row, columns, table.stem),
        text=_required(row, columns["text"], "the text", numbers=False),
        reference=_reference(row, columns, verifier),
        verifier=verifier.name,
        verifier_args=_all_args(row, columns, verifier, config),
        domain=_domain(row, columns.get("domain")) or verifier.domain,
        source=f"{table.origin}:{row.number}",
    )
    return _with_options(problem, row, columns, config)


def _verifier(row: TableRow, columns: dict[str, str], config: Problems) -> Verifier:
    name = _optional(row, columns.get("verifier"))
    if _options(row, columns) is None:
        name = name or config.verifier or DEFAULT_VERIFIER
    elif name not in ("", OPTIONS_VERIFIER):
        raise ProblemsError(
            f"{row.where}: the row has options and names the verifier {name!r}",
            f"Options are judged by {OPTIONS_VERIFIER}: take the verifier out, or the options "
            f"(column {columns['options']!r}).",
        )
    else:
        name = OPTIONS_VERIFIER
    try:
        return registry.get(name)
    except ProblemsError as error:
        raise ProblemsError(f"{row.where}: {error.what}", error.fix) from error


def _options(row: TableRow, columns: dict[str, str]) -> Any:
    return row.values.get(columns.get("options", ""))


def _reference(row: TableRow, columns: dict[str, str], verifier: Verifier) -> str:
    """The right answer; empty where there is none and the verifier needs none."""
    column = columns.get("reference")
    if not verifier.needs_reference:
        return _text(row, column, row.values.get(column), numbers=True) if column else ""
    if column is None:
        raise ProblemsError(
            f"{row.where}: there is no column for the reference",
            "Set problems.columns.reference. "
            + choices("reference", list(row.values), "Columns there"),
        )
    return _required(row, column, "the reference answer")


def _with_options(
    problem: Problem, row: TableRow, columns: dict[str, str], config: Problems
) -> Problem:
    """The problem with its options shown; as it is if the row has none."""
    options = _options(row, columns)
    if options is None:
        return problem
    if _verifier_args(row, columns.get("verifier_args")):
        raise ProblemsError(
            f"{row.where}: the row has options and verifier_args",
            "The options are the arguments: leave verifier_args out.",
        )
    reference = row.values[columns["reference"]]
    keep = config.keep_option_order
    shown = lettered(problem.text, options, reference, problem.id, config.seed, keep)
    if isinstance(shown, str):
        raise ProblemsError(f"{row.where}: {shown}", "Correct the row or leave it out.")
    return replace(
        problem,
        text=shown.text,
        reference=shown.reference,
        verifier_args=shown.verifier_args,
    )


def _id(row: TableRow, columns: dict[str, str], stem: str) -> str:
    if "id" not in columns:
        return f"{stem}:{row.number}"
    return _required(row, columns["id"], "the id")


def _required(row: TableRow, column: str, what: str, *, numbers: bool = True) -> str:
    if column not in row.values:
        raise ProblemsError(
            f"{row.where}: there is no column {column!r}, so {what} is missing",
            choices(column, row.values, "Columns of this row"),
        )
    text = _text(row, column, row.values[column], numbers=numbers)
    if not text.strip():
        raise ProblemsError(
            f"{row.where}: {what} is empty (column {column!r})", "Fill it in or leave the row out."
        )
    return text


def _optional(row: TableRow, column: str | None) -> str:
    if column is None:
        return ""
    return _text(row, column, row.values.get(column), numbers=False)


def _text(row: TableRow, column: str, value: Any, *, numbers: bool) -> str:
    """The value as text; null is empty."""
    if value is None:
        return ""
    if numbers and isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise ProblemsError(
            f"{row.where}: column {column!r} holds {type(value).__name__}, not text",
            "Write it as a string.",
        )
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ProblemsError(
            f"{row.where}: column {column!r} holds half a character (a lone surrogate)",
            "Save the text as valid Unicode.",
        )
    return value


def _all_args(row: TableRow, columns: dict[str, str], verifier: Verifier, config: Problems) -> str:
    """The arguments of the row or else of the run, and what the verifier's own columns add."""
    args = _verifier_args(row, columns.get("verifier_args"))
    own = json.loads(args) if args else dict(config.verifier_args)
    for column in verifier.argument_columns:
        if row.values.get(column) is not None:
            own.setdefault(column, row.values[column])
    try:
        return json.dumps(own, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise ProblemsError(
            f"{row.where}: the arguments of {verifier.name} cannot be written as JSON: {error}",
            f"Correct the columns {', '.join(verifier.argument_columns)}.",
        ) from error


def _verifier_args(row: TableRow, column: str | None) -> str:
    """A JSON object as text, from an object or from its text; empty if there is none."""
    value = row.values.get(column) if column else None
    if value is None or value == "":
        return ""
    try:
        args = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        args = None
    if not isinstance(args, dict):
        raise ProblemsError(
            f"{row.where}: verifier_args is not a JSON object: {value!r}",
            'Write an object, e.g. {"marker": "####"}, or leave it out.',
        )
    return json.dumps(args, ensure_ascii=False)


def _domain(row: TableRow, column: str | None) -> str:
    domain = _optional(row, column)
    if domain and domain not in get_args(Domain):
        raise ProblemsError(
            f"{row.where}: unknown domain {domain!r} (column {column!r})",
            f"{choices(domain, get_args(Domain), 'Domains')} If the column means something else, "
            "rename it.",
        )
    return domain
