"""What the formats of imports have in common, and how they read conversations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from heavydistill.curate.imports.attempts import ATTEMPT_FIELDS, ImportedAttempt, attempts_of
from heavydistill.errors import ProblemsError
from heavydistill.problems.columns import FIELDS
from heavydistill.problems.tables import TableRow, rows_of


class Format:
    """A format with fixed column names, set up for the files of one import.

    ``columns`` is the user's ``problems.columns``; ``kept`` lists the columns that the verifier
    reads its arguments from. Raises ProblemsError if a file cannot be read, or the columns cannot
    be identified.
    """

    usual: ClassVar[tuple[str, ...]] = ()  # Columns of text, reference and answers
    usual_beside: ClassVar[Mapping[str, str]] = {}  # Columns of ``ATTEMPT_FIELDS``, if present
    fewest: ClassVar[int] = 2  # Minimum answers of a problem, also usable ones (``think.min_k``)

    def __init__(
        self, columns: Mapping[str, str], files: Sequence[Path], kept: Sequence[str]
    ) -> None:
        *usual, answers = self.usual or ("",)
        own = dict(zip(("text", "reference"), usual, strict=False))
        mapped = {field: columns[field] for field in FIELDS if field in columns}
        self.own: Mapping[str, str] = own and own | mapped
        """Maps our fields to columns; empty if ``problem`` returns the file's column names."""
        self.answers = columns.get("answers", answers)
        """Column with the answers, or the pattern of their columns."""
        self.required = {name: columns[name] for name in ATTEMPT_FIELDS if name in columns}
        """Columns of ``ATTEMPT_FIELDS`` that each file must have."""
        self.notes: Counter[str] = Counter()  # Further counts for the record of the import
        self._columns, self._kept = columns, kept
        self._known: dict[str, Any] = {}  # Content of rows without answers, by text or id

    @property
    def beside(self) -> Mapping[str, str]:
        """Maps ``ATTEMPT_FIELDS`` to columns."""
        return {**self.usual_beside, **self.required}

    def rows(self, file: Path) -> Iterator[TableRow]:
        """Yield the rows of a file. Raises ProblemsError as ``rows_of``."""
        return rows_of(file, file.name)

    def lacks(self, values: Mapping[str, object]) -> list[str]:
        """Return the columns that this format requires and this row does not have."""
        needed = (self.own["text"], self.answers, *self.required.values())
        return [column for column in needed if column not in values]

    def problem(self, row: TableRow) -> dict[str, Any] | None:
        """Return the values of the problem; None for a row without answers."""
        values = {name: row.values[name] for name in self._kept if name in row.values}
        return values | {field: row.values.get(column) for field, column in self.own.items()}

    def attempts(self, row: TableRow) -> list[ImportedAttempt]:
        """Return the answers of a row. Raises ProblemsError if they cannot be read."""
        return attempts_of(row.values.get(self.answers), row.where, self._beside(row))

    def complete(self, row: TableRow) -> TableRow:
        """Add to a problem what rows without answers say of it, when all files are read.

        Raises ProblemsError if none of them is about it, and one must be.
        """
        return row

    def _beside(self, row: TableRow) -> dict[str, object]:
        return {field: row.values.get(column) for field, column in self.beside.items()}


def question(conversation: object, where: str) -> object:
    """Return the text of a conversation; a value that is not a list is returned unchanged."""
    if not isinstance(conversation, list):
        return conversation
    messages = [message for message in conversation if isinstance(message, Mapping)]
    roles = [message.get("role") for message in messages]
    texts = [text_of(message.get("content")) for message in messages]
    if (
        len(messages) != len(conversation)
        or [role for role in roles if role != "system"] != ["user"]
        or roles[-1] != "user"
        or not all(isinstance(text, str) for text in texts)
    ):
        raise ProblemsError(
            f"{where}: the conversation is not a single question: its roles are {roles}",
            "Keep rows with one message of the user, after optional system messages.",
        )
    return "\n\n".join(text for text in texts if text)


def only_turn(messages: object, where: str) -> object:
    """Return the message of the model in a conversation; None if there is none.

    Raises ProblemsError if there are several, or messages of tools.
    """
    roles = [at(each, "role") for each in messages] if isinstance(messages, list) else []
    said = [place for place, role in enumerate(roles) if role not in ("system", "user")]
    if len(said) > 1:
        raise ProblemsError(
            f"{where}: the answer has several turns: the roles are {roles}",
            "Keep answers of one message.",
        )
    return at(messages, said[0]) if said else None


def text_of(content: object) -> Any:
    """Return the text of a message whose content may be a list of parts."""
    if not isinstance(content, list):
        return content
    return "\n\n".join(text for part in content if isinstance(text := at(part, "text"), str))


def at(value: object, *path: str | int) -> Any:
    """Return what is at a path of keys and positions; None if there is nothing."""
    for step in path:
        if isinstance(value, Mapping) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value
