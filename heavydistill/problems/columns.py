"""Turns rows into problems: which column is which field.

A field is read from the column that ``problems.columns`` names, else from the column of its own
name. For the text, the reference and the options, the names in ``ALIASES`` are taken too if
exactly one of them is there. ``solution`` is none of them: it is mostly a worked solution and no
final answer. ``problems.shape`` first puts rows of a public benchmark into columns that can be
mapped, and leaves columns that it does not speak of as they are.

The reference may be absent where the verifier needs none. What ``verifier_args`` does not name is
taken from the columns that the verifier reads its arguments from (``argument_columns``). A row
that names no domain has that of its verifier. A row with options is judged by ``choice``, whatever
``problems.verifier`` says of the others.

Numbers in the id and reference columns become text. Rows of a source without ids are named
``STEM:NUMBER`` after the file and the line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, get_args

from heavydistill.config.run import Domain, Problems, Shape
from heavydistill.errors import ProblemsError
from heavydistill.problems.options import UnfitOptions, lettered
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


def to_problems(
    table: Table, config: Problems
) -> tuple[dict[int, Problem], dict[int, ProblemsError]]:
    """(Problems, what is wrong with the other rows), by number; no reference is checked.

    Raises ProblemsError where a column is not there, or two problems have one id.
    """
    shape = _SHAPES[config.shape] if config.shape else lambda row: {}
    problems: dict[int, Problem] = {}
    faults: dict[int, ProblemsError] = {}
    rows: list[TableRow] = []
    for row in table.rows:
        try:
            rows.append(replace(row, values=row.values | shape(row)))
        except ProblemsError as error:
            faults[row.number] = error
    columns = columns_of(replace(table, rows=rows), config.columns) if rows else {}
    first_use: dict[str, str] = {}
    for row in rows:
        try:
            problem = _ProblemRow(row, columns, config).problem(table)
        except ProblemsError as error:
            faults[row.number] = error
            continue
        where = first_use.setdefault(problem.id, row.where)
        if where != row.where:
            raise ProblemsError(
                f"{row.where}: id {problem.id!r} is also that of {where}",
                "Give every problem an id of its own.",
            )
        problems[row.number] = problem
    return problems, faults


def columns_of(table: Table, mapped: dict[str, str]) -> dict[str, str]:
    """Our field to the source's column, for the fields that the source has or the user mapped.

    Raises ProblemsError where a column is not there, or several could be the field.
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
    if field in there:
        return field
    aliases = [alias for alias in ALIASES.get(field, ()) if alias in there]
    if len(aliases) > 1:
        raise ProblemsError(
            f"{where}: the columns {' and '.join(aliases)} could each be the {field}",
            f"Set problems.columns.{field} to the one that is meant.",
        )
    if aliases or field in OPTIONAL or field not in ALIASES:
        return aliases[0] if aliases else None
    raise ProblemsError(
        f"{where}: there is no column for the {field}",
        f"Set problems.columns.{field}. {choices(field, there, 'Columns there')}",
    )


@dataclass(frozen=True, slots=True)
class _ProblemRow:
    """One row and which of its columns is which field."""

    row: TableRow
    columns: dict[str, str]
    config: Problems

    def problem(self, table: Table) -> Problem:
        row, verifier = self.row, self._verifier()
        has_id = "id" in self.columns
        problem = Problem(
            id=self._required("id", "the id") if has_id else f"{table.stem}:{row.number}",
            text=self._required("text", "the text", numbers=False),
            reference=self._reference(verifier),
            verifier=verifier.name,
            verifier_args=self._all_args(verifier),
            domain=self._domain() or verifier.domain,
            source=f"{table.origin}:{row.number}",
        )
        return problem if self._value("options") is None else self._with_options(problem)

    def _value(self, field: str) -> Any:
        return self.row.values.get(self.columns.get(field, ""))

    def _text(self, field: str, *, numbers: bool = False) -> str:
        """The value as text; null is empty."""
        value = self._value(field)
        if value is None:
            return ""
        return _as_text(self.row, self.columns[field], value, numbers=numbers)

    def _required(self, field: str, what: str, *, numbers: bool = True) -> str:
        column = self.columns[field]
        _refuse_missing(self.row, column, f", so {what} is missing")
        text = self._text(field, numbers=numbers)
        if not text.strip():
            raise self._fault(
                f"{what} is empty (column {column!r})", "Fill it in or leave the row out."
            )
        return text

    def _fault(self, what: str, fix: str) -> ProblemsError:
        return ProblemsError(f"{self.row.where}: {what}", fix)

    def _verifier(self) -> Verifier:
        name = self._text("verifier")
        if self._value("options") is None:
            name = name or self.config.verifier or DEFAULT_VERIFIER
        elif name not in ("", OPTIONS_VERIFIER):
            raise self._fault(
                f"the row has options and names the verifier {name!r}",
                f"Options are judged by {OPTIONS_VERIFIER}: take the verifier out, or the options "
                f"(column {self.columns['options']!r}).",
            )
        else:
            name = OPTIONS_VERIFIER
        try:
            return registry.get(name)
        except ProblemsError as error:
            raise self._fault(error.what, error.fix) from error

    def _reference(self, verifier: Verifier) -> str:
        """The right answer; empty where there is none and the verifier needs none."""
        if not verifier.needs_reference:
            return self._text("reference", numbers=True)
        if "reference" not in self.columns:
            listed = choices("reference", self.row.values, "Columns there")
            raise self._fault(
                "there is no column for the reference", f"Set problems.columns.reference. {listed}"
            )
        return self._required("reference", "the reference answer")

    def _all_args(self, verifier: Verifier) -> str:
        """The arguments of the row or else of the run, and those of the verifier's own columns."""
        args = self._args()
        args = dict(self.config.verifier_args) if args is None else args
        for column in verifier.argument_columns:
            if self.row.values.get(column) is not None:
                args.setdefault(column, self.row.values[column])
        try:
            return json.dumps(args, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise self._fault(
                f"the arguments of {verifier.name} cannot be written as JSON: {error}",
                f"Correct the columns {', '.join(verifier.argument_columns)}.",
            ) from error

    def _args(self) -> dict[str, Any] | None:
        """The JSON object of the row, which may be its text; None if there is none."""
        value = self._value("verifier_args")
        if value is None or value == "":
            return None
        try:
            args = json.loads(value) if isinstance(value, str) else value
        except ValueError:
            args = None
        if not isinstance(args, dict):
            raise self._fault(
                f"verifier_args is not a JSON object: {value!r}",
                'Write an object, e.g. {"marker": "####"}, or leave it out.',
            )
        return dict(args)

    def _domain(self) -> str:
        domain = self._text("domain")
        if domain and domain not in get_args(Domain):
            listed = choices(domain, get_args(Domain), "Domains")
            raise self._fault(
                f"unknown domain {domain!r} (column {self.columns['domain']!r})",
                f"{listed} If the column means something else, rename it.",
            )
        return domain

    def _with_options(self, problem: Problem) -> Problem:
        if self._args() is not None:
            raise self._fault(
                "the row has options and verifier_args",
                "The options are the arguments: leave verifier_args out.",
            )
        options, reference = self._value("options"), self._value("reference")
        keep, seed = self.config.keep_option_order, self.config.seed
        try:
            made = lettered(problem.text, options, reference, problem.id, seed, keep)
        except UnfitOptions as error:
            raise self._fault(str(error), "Correct the row or leave it out.") from error
        return replace(problem, **made._asdict())


def _refuse_missing(row: TableRow, column: str, why: str) -> None:
    if column not in row.values:
        raise ProblemsError(
            f"{row.where}: there is no column {column!r}{why}",
            choices(column, row.values, "Columns of this row"),
        )


def _as_text(row: TableRow, column: str, value: Any, *, numbers: bool) -> str:
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


# --- Rows of public benchmarks whose columns are not our fields one by one.
_WRONG = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


def _texts(row: TableRow, shape: Shape, *columns: str) -> list[str]:
    for column in columns:
        _refuse_missing(row, column, f", which rows of the shape {shape} have")
    return [_as_text(row, column, row.values[column], numbers=True) for column in columns]


def _gpqa(row: TableRow) -> dict[str, Any]:
    """Options of the right answer and three wrong ones, each in a column of its own.

    The right one is put in a place that is drawn from the question: options that must keep the
    order of the dataset would else all be led by the right one.
    """
    question, right, *options = _texts(row, "gpqa", "Question", "Correct Answer", *_WRONG)
    place = hashlib.sha256(question.encode("utf-8", "replace")).digest()[0] % (len(_WRONG) + 1)
    options.insert(place, right)
    return {"text": question, "options": options, "reference": place}


def _livecodebench(row: TableRow) -> dict[str, Any]:
    """The starter code belongs to the text; the function's name is in the JSON of ``metadata``."""
    columns = ("question_content", "starter_code", "metadata")
    question, starter, metadata = _texts(row, "livecodebench", *columns)
    try:
        name = json.loads(metadata or "{}").get("func_name")
    except (ValueError, AttributeError, RecursionError) as error:
        raise ProblemsError(
            f"{row.where}: metadata is not the JSON text of an object", "Correct the row."
        ) from error
    if not starter.strip():
        asks = "Write a program that reads standard input and writes standard output."
        return {"text": f"{question.rstrip()}\n\n{asks}"}
    asks = f"The program completes this code:\n\n```python\n{starter.strip()}\n```"
    in_class = "Solution." if "class Solution" in starter else ""
    return {
        "text": f"{question.rstrip()}\n\n{asks}",
        "entry_point": name and f"{in_class}{name}",
    }


_SHAPES: dict[Shape, Callable[[TableRow], dict[str, Any]]] = {
    "gpqa": _gpqa,
    "livecodebench": _livecodebench,
}
