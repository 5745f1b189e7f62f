"""Formats of public datasets with several answers per problem."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from heavydistill.curate.imports.attempts import ImportedAttempt, attempt_of, attempts_of
from heavydistill.curate.imports.base import Format, at, only_turn, question
from heavydistill.errors import ProblemsError
from heavydistill.problems.tables import TableRow

REPEATED = "solutions_repeated"
# The prompt of GenSelect, with the problem and the solutions.
_SELECTION = re.compile(
    r"YOUR TASK\s+Problem: (.*?)\s+Solutions:\n(.*)\s+Evaluation Process:", re.DOTALL
)
_SOLUTION = re.compile(r"^Solution (\d+):\s", re.MULTILINE)


class PaCoRe(Format):
    """Rows ``{"conversation", "responses", "ground_truth"}`` of PaCoRe's training data.

    The conversation is the problem: optional system messages and one question of the user. The
    reference may be the ``answer`` of an object.
    """

    usual = ("conversation", "ground_truth", "responses")

    def problem(self, row: TableRow) -> dict[str, Any] | None:
        values = super().problem(row) or {}
        values["text"] = question(values.get("text"), row.where)
        reference = values.get("reference")
        if isinstance(reference, Mapping) and "answer" in reference:
            values["reference"] = reference["answer"]
        return values


class MathArena(Format):
    """Outputs of MathArena, one answer per row: ``{"problem", "gold_answer", "answer", ...}``.

    Source: ``scripts/curation/upload_outputs.py`` of eth-sri/matharena.
    """

    usual = ("problem", "gold_answer", "answer")
    usual_beside: ClassVar = {
        "model": "model_name",
        "prompt_tokens": "input_tokens",
        "completion_tokens": "output_tokens",
        "cost": "cost",
        "label": "correct",
    }

    def attempts(self, row: TableRow) -> list[ImportedAttempt]:
        return [attempt_of(row.values.get(self.answers), row.where, self._beside(row))]


class NemotronMath(Format):
    """Nemotron-Math: ``{"problem", "expected_answer", "messages"}``, with one answer per row.

    Answers that used tools cannot be read. Source: the cards of nvidia/Nemotron-Math-v2 and
    nvidia/Nemotron-SFT-Math-v4.
    """

    usual = ("problem", "expected_answer", "messages")

    def attempts(self, row: TableRow) -> list[ImportedAttempt]:
        message = only_turn(row.values.get(self.answers), row.where)
        return [attempt_of(message, row.where, self._beside(row))]


class ParallelThink(Format):
    """open_parallel_think: ``{"queries": [{"question", "answer"}], "trajectories", "statistic"}``.

    ``corrects`` and ``models`` of the statistic are labels and authors. Source: the README of
    epfl-nlp/open_parallel_think.
    """

    usual = ("queries", "queries", "trajectories")

    def problem(self, row: TableRow) -> dict[str, Any] | None:
        queries = row.values.get("queries")
        if not isinstance(queries, list) or len(queries) != 1:
            raise ProblemsError(
                f"{row.where}: queries is not a list of one question", "Keep rows with one."
            )
        asked = {"text": at(queries, 0, "question"), "reference": at(queries, 0, "answer")}
        return (super().problem(row) or {}) | asked

    def _beside(self, row: TableRow) -> dict[str, object]:
        labels, models = (at(row.values, "statistic", name) for name in ("corrects", "models"))
        return {"label": labels, "model": models, **super()._beside(row)}


class GenSelect(Format):
    """Inputs of GenSelect: the solutions of a problem as ``solution_list``, or in one text.

    The text is in the column ``solutions``, or in a prompt in ``problem``, as in OpenMathReasoning.
    Solutions in an earlier text about the same problem are not repeated. Source:
    ``parallel_thinking.py``, ``openmath/genselect.yaml`` and ``recipes/openmathreasoning`` of
    NVIDIA-NeMo/Skills.
    """

    usual = ("problem", "expected_answer", "solution_list")

    def __init__(
        self, columns: Mapping[str, str], files: Sequence[Path], kept: Sequence[str]
    ) -> None:
        super().__init__(columns, files, kept)
        self._seen: set[int] = set()  # Hashes of problems with one of their solutions

    def lacks(self, values: Mapping[str, object]) -> list[str]:
        has_answers = self.answers in values or self._shown(values)[1]
        needed = (*[self.answers] * (not has_answers), *self.required.values())
        return [column for column in needed if column not in values]

    def problem(self, row: TableRow) -> dict[str, Any] | None:
        return (super().problem(row) or {}) | {"text": self._shown(row.values)[0]}

    def attempts(self, row: TableRow) -> list[ImportedAttempt]:
        if row.values.get(self.answers) is not None:
            return super().attempts(row)
        problem, solutions = self._shown(row.values)
        if len(solutions) != row.values.get("num_solutions", len(solutions)):
            raise ProblemsError(
                f"{row.where}: num_solutions is {row.values['num_solutions']}, but the text has "
                f"{len(solutions)}",
                "Leave the row out.",
            )
        labels = [row.values.get(f"label_{place}") for place in range(len(solutions))]
        is_right = [label and label == "Correct" for label in labels]
        attempts = attempts_of(solutions, row.where, {"label": is_right, **self._beside(row)})
        hashes = [hash((problem, solution)) for solution in solutions]
        fresh = [one for one, of in zip(attempts, hashes, strict=True) if of not in self._seen]
        self._seen.update(hashes)
        self.notes[REPEATED] += len(attempts) - len(fresh)
        return fresh

    def _shown(self, values: Mapping[str, object]) -> tuple[object, list[str]]:
        """Return the problem, and the solutions in a text about it."""
        problem, text = values.get(self.own["text"]), values.get("solutions")
        if isinstance(problem, str) and (prompt := _SELECTION.search(problem)):
            problem, text = prompt.groups()
        if not isinstance(text, str):
            return problem, []
        titles: list[re.Match[str]] = []
        for title in _SOLUTION.finditer(text):
            if int(title[1]) == len(titles):  # else it is part of a solution
                titles.append(title)
        ends = [*(title.start() for title in titles[1:]), len(text)]
        return problem, [text[t.end() : end].strip() for t, end in zip(titles, ends, strict=False)]
