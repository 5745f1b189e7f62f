"""What every format offers: how a row of it is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from heavydistill.curate.imports.attempts import Attempt
from heavydistill.curate.imports.files import PoolFile
from heavydistill.problems.columns import FIELDS
from heavydistill.problems.tables import Row

ANSWER_FIELDS = ("answers", "answer_text", "labels", "finish_reasons")
"""The fields of ``problems.columns`` beside those of a problem."""


class Format(Protocol):
    """One format, set up for the files of one import."""

    takes: ClassVar[frozenset[str]]
    """Those of ``ANSWER_FIELDS`` that have a meaning in it."""
    one_a_file: ClassVar[bool]
    """Whether each file holds one answer to each problem."""
    answers: str
    """Where the answers are, for the record."""
    own: Mapping[str, str]
    """Field to column, where ``problem`` gives values under the names of our fields."""
    notes: Counter[str]
    """What was counted on the way."""

    def __init__(
        self, wanted: Mapping[str, str], files: Sequence[PoolFile], kept: Sequence[str]
    ) -> None:
        """Set it up.

        Args:
            wanted: ``problems.columns``.
            files: All of them, in order.
            kept: Columns from which the verifier takes its arguments.

        Raises:
            ProblemsError: The files contradict each other, or nothing tells what stands where.
        """

    def lacks(self, values: Mapping[str, Any]) -> list[str]:
        """The columns by which a row of this format is known and that this one has not."""

    def problem(self, row: Row) -> dict[str, Any] | None:
        """The values that belong to the problem; None for a row without answers.

        Raises:
            ProblemsError: They cannot be read.
        """

    def attempts(self, row: Row) -> list[Attempt]:
        """The answers of a row.

        Raises:
            ProblemsError: They cannot be read.
        """


def of_problem(wanted: Mapping[str, str], **own: str) -> dict[str, str]:
    """Field to column for the fields of a problem: the format's own, and what the user mapped."""
    return {**own, **{field: wanted[field] for field in FIELDS if field in wanted}}


def renamed(
    values: Mapping[str, Any], columns: Mapping[str, str], kept: Sequence[str]
) -> dict[str, Any]:
    """The values of a problem under the names of our fields.

    Args:
        values: Of the row.
        columns: Field to column.
        kept: Columns that go along under their own names.
    """
    found = {field: values.get(column) for field, column in columns.items()}
    return {**{name: values[name] for name in kept if name in values}, **found}
