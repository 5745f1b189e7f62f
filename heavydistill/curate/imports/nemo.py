"""The files of NeMo-Skills: ``output-rs0.jsonl``, ``output-rs1.jsonl`` and so on, one a seed.

    {"problem": ..., "expected_answer": ..., "generation": ..., "symbolic_correct": ..., ...}

Each file holds one answer to each problem, and the files are joined by the text of the problem,
in the order of their numbers. Where the thinking was taken out of ``generation``, the whole text is
read from ``_full_generation``; where ``_generation_finished_thinking`` is false, all of it is
thinking.

Not covered: their judgements in words; files of comparisons (GenSelect).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from heavydistill.curate.imports.attempts import Attempt, attempt_of
from heavydistill.curate.imports.files import PoolFile
from heavydistill.curate.imports.layout import of_problem, renamed
from heavydistill.problems.tables import Row

# The other columns may be those of the problem, whatever their names.
_OF_ANSWER = (
    "reasoning_content",
    "finish_reason",
    "symbolic_correct",
    "is_correct",
    "num_input_tokens",
    "num_generated_tokens",
    "generation_time",
)
_SEED = re.compile(r"rs(\d+)")


class NeMo:
    """See the module and ``layout.Format``."""

    takes: ClassVar[frozenset[str]] = frozenset({"answers"})
    one_a_file: ClassVar[bool] = True

    def __init__(
        self, wanted: Mapping[str, str], files: Sequence[PoolFile], kept: Sequence[str]
    ) -> None:
        self.own: Mapping[str, str] = of_problem(
            wanted, text="problem", reference="expected_answer"
        )
        self._kept = kept
        self.answers = wanted.get("answers", "generation")
        self.notes: Counter[str] = Counter()

    def lacks(self, values: Mapping[str, Any]) -> list[str]:
        return [column for column in (self.own["text"], self.answers) if column not in values]

    def problem(self, row: Row) -> dict[str, Any]:
        return renamed(row.values, self.own, self._kept)

    def attempts(self, row: Row) -> list[Attempt]:
        answer = {key: row.values[key] for key in _OF_ANSWER if key in row.values}
        answer[self.answers] = row.values.get(self.answers)
        whole = row.values.get(f"_full_{self.answers}")
        if isinstance(whole, str):
            answer[self.answers] = whole
        if row.values.get(f"_{self.answers}_finished_thinking") is False:
            answer["reasoning_content"], answer[self.answers] = answer[self.answers], ""
        return [attempt_of(answer, row.where, text_key=self.answers)]


def in_order(files: Sequence[PoolFile]) -> list[PoolFile]:
    """The files by their numbers; those without one after the others, as they were given."""

    def number(file: PoolFile) -> tuple[bool, int]:
        found = _SEED.findall(file.name)
        return not found, int(found[-1]) if found else 0

    return sorted(files, key=number)
