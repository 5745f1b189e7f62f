"""The result files of the authors' HeavySkill: a JSON document of one query or of a list of them.

    {"query": ..., "trajectories": [...], "summaries": [...], "final_answer": ..., ...}

The reference is ``target``, in the row itself or in a file of targets, ``{"query", "target"}``,
that is given beside the results. Summaries are counted and left out: what they had read is not in
the file, neither the wording nor the order and the cut of the trajectories.

Not covered: the records of the authors' research script, which have other columns; import them
as ``answers``.
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

SUMMARIES = "summaries_left_out"


class HeavySkill:
    """See the module and ``layout.Format``."""

    takes: ClassVar[frozenset[str]] = frozenset({"answers", "answer_text"})
    one_a_file: ClassVar[bool] = False

    def __init__(
        self, wanted: Mapping[str, str], files: Sequence[PoolFile], kept: Sequence[str]
    ) -> None:
        self.own: Mapping[str, str] = of_problem(wanted, text="query", reference="target")
        self._query, self._target = self.own["text"], self.own["reference"]
        self._kept = kept
        self.answers = wanted.get("answers", "trajectories")
        self._text_key = wanted.get("answer_text")
        self.notes: Counter[str] = Counter()
        self._targets = self._targets_in(files)

    def lacks(self, values: Mapping[str, Any]) -> list[str]:
        answers = self._target if self._is_of_targets(values) else self.answers
        return [column for column in (self._query, answers) if column not in values]

    def problem(self, row: Row) -> dict[str, Any] | None:
        if self._is_of_targets(row.values):
            return None
        values = renamed(row.values, self.own, self._kept)
        target = self._targets.get(str(row.values.get(self._query)))
        if values.get("reference") is None and target is not None:
            values["reference"] = target
        summaries = row.values.get("summaries")
        self.notes[SUMMARIES] += len(summaries) if isinstance(summaries, list) else 0
        return values

    def attempts(self, row: Row) -> list[Attempt]:
        return attempts_of(row.values.get(self.answers), row.where, text_key=self._text_key)

    def _is_of_targets(self, values: Mapping[str, Any]) -> bool:
        return self.answers not in values and self._target in values

    def _targets_in(self, files: Sequence[PoolFile]) -> dict[str, Any]:
        """The target of each query of which a row without trajectories tells it."""
        found: dict[str, Any] = {}
        for row in (row for file in files for row in file.rows()):
            if self._is_of_targets(row.values):
                query, target = str(row.values.get(self._query)), row.values[self._target]
                if found.setdefault(query, target) != target:
                    raise ProblemsError(
                        f"{row.where}: the query has another target earlier: {found[query]!r}",
                        "Keep the one that is right.",
                    )
        return found
