"""Plain files with several answers a problem, in whatever columns they are.

    --columns answers=COLUMN     a list of answers, or a single one a row: rows of the same problem
                                 are joined
    --columns answers='PART*'    one answer in each of these columns

An answer is a text or an object (see ``attempts``). Where ``answers`` is not named, it is the list
in a column of a usual name (``LISTS``), else all columns that hold objects with a text, if there
are two or more, else ``answer_1``, ``answer_2`` and so on, by the first row. Null in a column of
its own is no answer, and in a list an empty one. A column of its own says who wrote the answer by
its name, unless it is only numbered.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from heavydistill.curate.imports.attempts import TEXT_KEYS, Attempt, attempt_of, attempts_of
from heavydistill.curate.imports.files import PoolFile
from heavydistill.curate.imports.layout import ANSWER_FIELDS
from heavydistill.errors import ProblemsError
from heavydistill.problems.faults import choices
from heavydistill.problems.tables import Row

LISTS = (
    "answers",
    "responses",
    "generations",
    "trajectories",
    "solutions",
    "samples",
    "completions",
    "outputs",
)
_LABELS = ("labels", "is_correct", "correctness", "correct")
_ENDS = ("finish_reasons", "finish_reason")
_NUMBERED = re.compile(
    r"(answer|response|generation|trajectory|solution|sample|completion|output)_?\d+"
)


class Answers:
    """See the module and ``layout.Format``."""

    takes: ClassVar[frozenset[str]] = frozenset(ANSWER_FIELDS)
    one_a_file: ClassVar[bool] = False

    def __init__(
        self, wanted: Mapping[str, str], files: Sequence[PoolFile], kept: Sequence[str]
    ) -> None:
        row = next(files[0].rows(), None)
        first = row.values if row else {}
        named = wanted.get("answers")
        self._is_guessed = not named
        self._patterns = [named] if named else guess(first)
        self._is_one = len(self._patterns) == 1 and "*" not in self._patterns[0]
        self.answers = ", ".join(self._patterns)
        for field in ("labels", "finish_reasons"):
            if field in wanted and self._patterns and not self._is_one:
                raise ProblemsError(
                    f"problems.columns.{field} has no effect on answers in columns of their own",
                    "Take it out, and write objects that say it, or a list of answers.",
                )
        self._text_key = wanted.get("answer_text")
        is_list = self._is_one and isinstance(first.get(self.answers), list)
        self._labels = wanted.get("labels") or self._beside(_LABELS, first, is_list)
        self._ends = wanted.get("finish_reasons") or self._beside(_ENDS, first, is_list)
        self.own: Mapping[str, str] = {}
        self.notes: Counter[str] = Counter()

    def lacks(self, values: Mapping[str, Any]) -> list[str]:
        wanted = [self.answers or "answers"] if not self._names(values) else []
        beside = [name for name in (self._labels, self._ends) if name and name not in values]
        return wanted + beside

    def problem(self, row: Row) -> dict[str, Any]:
        more = set(guess(row.values)) - set(self._patterns) if self._is_guessed else ()
        if more:
            raise ProblemsError(
                f"{row.where}: answers are also in {', '.join(sorted(more))}, and in the first row "
                f"in {self.answers} alone",
                "Name all of them: --columns answers=COLUMN or answers='PART*'.",
            )
        not_its = {*self._names(row.values), self._labels, self._ends}
        return {name: value for name, value in row.values.items() if name not in not_its}

    def attempts(self, row: Row) -> list[Attempt]:
        names = self._names(row.values)
        if not names:
            raise ProblemsError(
                f"{row.where}: there is no column {self.answers!r}, so the answers are missing",
                choices(self.answers, row.values, "Columns of this row"),
            )
        if not self._is_one:
            return [
                self._attempt(row, name, model=self._model(name))
                for name in names
                if row.values[name] is not None
            ]
        labels, ends = row.values.get(self._labels), row.values.get(self._ends)
        answers = row.values[self.answers]
        if isinstance(answers, list):
            key = self._text_key
            return attempts_of(answers, row.where, text_key=key, labels=labels, ends=ends)
        return [self._attempt(row, self.answers, label=labels, finish_reason=ends)]

    def _attempt(self, row: Row, name: str, **known: Any) -> Attempt:
        return attempt_of(row.values[name], row.where, text_key=self._text_key, **known)

    def _names(self, values: Mapping[str, Any]) -> list[str]:
        """The columns of this row that hold its answers."""
        if self._is_one:
            return [self.answers] if self.answers in values else []
        if self._is_guessed:
            return [name for name in values if name in self._patterns]
        return [name for name in values if fnmatchcase(name, self._patterns[0])]

    def _beside(self, usual: Sequence[str], values: Mapping[str, Any], is_list: bool) -> str:
        """The column of a usual name beside the answers; empty if there is none."""
        found = (name for name in usual if values.get(name) is not None and self._is_one)
        return next((name for name in found if isinstance(values[name], list) == is_list), "")

    def _model(self, name: str) -> str:
        """Who wrote the answer in a column of its own; empty if it is only numbered."""
        start, is_open, end = self._patterns[0].partition("*")
        left = name[len(start) : len(name) - len(end)] if is_open else name
        return "" if left.strip("_- ").isdecimal() or _NUMBERED.fullmatch(name) else name


def guess(values: Mapping[str, Any]) -> list[str]:
    """The columns of the answers in a row; none if that cannot be told.

    Raises:
        ProblemsError: Several lists could be it.
    """
    lists = [name for name in LISTS if isinstance(values.get(name), list)]
    if len(lists) > 1:
        raise ProblemsError(
            f"The columns {' and '.join(lists)} could each be the answers",
            "Name one: --columns answers=COLUMN.",
        )
    objects = [name for name, value in values.items() if _holds_text(value)]
    numbered = [name for name in values if _NUMBERED.fullmatch(name)]
    several = (columns for columns in (objects, numbered) if len(columns) > 1)
    return lists or next(several, [])


def _holds_text(value: Any) -> bool:
    return isinstance(value, Mapping) and any(isinstance(value.get(k), str) for k in TEXT_KEYS)
