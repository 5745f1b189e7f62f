"""Rows of PaCoRe: ``{"conversation": [...], "responses": [...], "ground_truth": ...}``.

The conversation is the problem: system messages, if any, and one question of the user; texts are
joined with a blank line. The reference is ``ground_truth``, or its ``answer`` where it is an
object.

Not covered: conversations of several turns, and the tests of programming problems; such rows are
unfit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from heavydistill.curate.imports.attempts import Attempt, attempts_of
from heavydistill.curate.imports.files import PoolFile
from heavydistill.curate.imports.layout import of_problem, renamed
from heavydistill.errors import ProblemsError
from heavydistill.problems.tables import Row


class PaCoRe:
    """See the module and ``layout.Format``."""

    takes: ClassVar[frozenset[str]] = frozenset({"answers", "answer_text"})
    one_a_file: ClassVar[bool] = False

    def __init__(
        self, wanted: Mapping[str, str], files: Sequence[PoolFile], kept: Sequence[str]
    ) -> None:
        self.own: Mapping[str, str] = of_problem(
            wanted, text="conversation", reference="ground_truth"
        )
        self._kept = kept
        self.answers = wanted.get("answers", "responses")
        self._text_key = wanted.get("answer_text")
        self.notes: Counter[str] = Counter()

    def lacks(self, values: Mapping[str, Any]) -> list[str]:
        return [column for column in (self.own["text"], self.answers) if column not in values]

    def problem(self, row: Row) -> dict[str, Any]:
        values = renamed(row.values, self.own, self._kept)
        values["text"] = _question(values.get("text"), row.where)
        reference = values.get("reference")
        if isinstance(reference, Mapping) and "answer" in reference:
            values["reference"] = reference["answer"]
        return values

    def attempts(self, row: Row) -> list[Attempt]:
        return attempts_of(row.values.get(self.answers), row.where, text_key=self._text_key)


def _question(conversation: Any, where: str) -> Any:
    """The text of the conversation; what is no list of messages as it is."""
    if not isinstance(conversation, list):
        return conversation
    messages = [message for message in conversation if isinstance(message, Mapping)]
    roles = [message.get("role") for message in messages]
    texts = [message.get("content") for message in messages]
    if (
        len(messages) != len(conversation)
        or [role for role in roles if role != "system"] != ["user"]
        or roles[-1] != "user"
        or not all(isinstance(text, str) for text in texts)
    ):
        raise ProblemsError(
            f"{where}: the conversation is not one question: its roles are {roles}",
            "Keep rows with one message of the user, and system messages before it.",
        )
    return "\n\n".join(text for text in texts if text)
