"""Reads files with answers in several formats: their rows, and each answer of a row.

The docstring of a class describes its format, and says where that is specified. ``--columns`` names
columns that have other names: those of the problem, ``answers``, and what a file says of an answer
(``ATTEMPT_FIELDS``).

Not covered: conversations of several turns; tests of programming problems; judgements and
selections in words.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from heavydistill.config.sets import FormatName
from heavydistill.curate.imports.attempts import ImportedAttempt, attempt_of, attempts_of
from heavydistill.curate.imports.base import Format
from heavydistill.curate.imports.datasets import (
    GenSelect,
    MathArena,
    NemotronMath,
    PaCoRe,
    ParallelThink,
)
from heavydistill.curate.imports.outputs import Batch, HeavySkill, Inspect, NeMo
from heavydistill.errors import ProblemsError
from heavydistill.problems.columns import ALIASES, FIELDS
from heavydistill.problems.tables import TableRow, choices, rows_of

LISTS = (
    *("answers", "responses", "generations", "trajectories"),
    *("solutions", "samples", "completions", "outputs"),
)
SOLUTIONS = ("solution", "worked_solution", "rationale", "answer")
LICENCE = "license"
"""Column with the licence of a row."""
_BESIDE = {
    "model": ("model", "models", "model_name"),
    "prompt_tokens": ("prompt_tokens",),
    "completion_tokens": ("completion_tokens",),
    "finish_reason": ("finish_reasons", "finish_reason"),
    "cost": ("cost", "costs", "cost_usd"),
    "label": ("labels", "is_correct", "correctness", "correct"),
}


class Answers(Format):
    """Any file: ``--columns answers=COLUMN`` names a list, or a single answer per row.

    ``--columns answers='PART*'`` names one column per answer. The default is a list under one of
    the names in ``LISTS``. With one column per answer, its name is the author, and null is no
    answer.
    """

    def __init__(
        self, columns: Mapping[str, str], files: Sequence[Path], kept: Sequence[str]
    ) -> None:
        super().__init__(columns, files, kept)
        first = next(rows_of(files[0], files[0].name), TableRow("", 0, {})).values
        self.answers = self.answers or _list_of_answers(first)
        self._is_one = "*" not in self.answers
        self.required = {**self._usual_beside(first), **self.required}
        # A pattern does not take the columns of other fields.
        usual = itertools.chain.from_iterable((*ALIASES.values(), *_BESIDE.values()))
        self._of_others = {*columns.values(), *FIELDS, *usual, *kept, LICENCE} - {self.answers}

    def lacks(self, values: Mapping[str, object]) -> list[str]:
        answers = [self.answers or "answers"] if not self._names(values) else []
        return answers + [name for name in self.required.values() if name not in values]

    def problem(self, row: TableRow) -> dict[str, object] | None:
        of_answers = {*self._names(row.values), *self.beside.values()}
        return {name: value for name, value in row.values.items() if name not in of_answers}

    def attempts(self, row: TableRow) -> list[ImportedAttempt]:
        names = self._names(row.values)
        if not names:
            raise ProblemsError(
                f"{row.where}: there is no column {self.answers!r} with answers",
                choices(self.answers, row.values, "Columns of this row"),
            )
        beside = self._beside(row)
        if not self._is_one:
            names = [name for name in names if row.values[name] is not None]
            beside = {"model": [self._model(name) for name in names], **beside}
            return attempts_of([row.values[name] for name in names], row.where, beside)
        answers = row.values[self.answers]
        if isinstance(answers, list):
            return attempts_of(answers, row.where, beside)
        return [attempt_of(answers, row.where, beside)]

    def _names(self, values: Mapping[str, object]) -> list[str]:
        """Return the columns of a row that hold its answers."""
        if self._is_one:
            return [self.answers] if self.answers in values else []
        matching = (name for name in values if fnmatchcase(name, self.answers))
        return [name for name in matching if name not in self._of_others]

    def _usual_beside(self, values: Mapping[str, object]) -> dict[str, str]:
        """Return the first column of each field in ``_BESIDE`` that fits the answer column."""
        is_list = isinstance(values.get(self.answers), list)
        fitting = {
            field: [
                name
                for name in names
                if values.get(name) is not None
                and (isinstance(values[name], list) == is_list or field == "model")
            ]
            for field, names in _BESIDE.items()
        }
        return {field: names[0] for field, names in fitting.items() if names and self._is_one}

    def _model(self, name: str) -> str:
        """Return the author named by an answer's column; empty if the name is only a number."""
        start, _, end = self.answers.partition("*")
        number = name.removeprefix(start).removesuffix(end).strip("_- ")
        return "" if number.isdecimal() else name


class Solutions(Answers):
    """Any file with a worked solution per problem, in one of ``SOLUTIONS`` or in the answer column.

    Without a reference, the final answer of the solution is the reference.
    """

    fewest = 1

    def __init__(
        self, columns: Mapping[str, str], files: Sequence[Path], kept: Sequence[str]
    ) -> None:
        first = next(rows_of(files[0], files[0].name), TableRow("", 0, {})).values
        usual = next((name for name in SOLUTIONS if name in first), SOLUTIONS[0])
        super().__init__({"answers": usual, **columns}, files, kept)
        self._reference = columns.get("reference", "reference")

    def problem(self, row: TableRow) -> dict[str, object] | None:
        values = super().problem(row) or {}
        if values.keys().isdisjoint((self._reference, *ALIASES["reference"])):
            values[self._reference] = row.values.get(self.answers)
        return values


FORMATS: dict[FormatName, type[Format]] = {
    "heavyskill": HeavySkill,
    "pacore": PaCoRe,
    "nemo": NeMo,
    "batch": Batch,
    "inspect": Inspect,
    "matharena": MathArena,
    "parallel-think": ParallelThink,
    "genselect": GenSelect,
    "nemotron-math": NemotronMath,
    "answers": Answers,
    "solutions": Solutions,
}


def _list_of_answers(values: Mapping[str, object]) -> str:
    """Return the column named in ``LISTS`` that has a list in this row; empty if there is none."""
    lists = [name for name in LISTS if isinstance(values.get(name), list)]
    if len(lists) > 1:
        raise ProblemsError(
            f"The columns {' and '.join(lists)} could each be the answers",
            "Name one: --columns answers=COLUMN.",
        )
    return lists[0] if lists else ""
