"""Formats of files that tools write: samplers, evaluation harnesses, batch services."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from heavydistill.curate.imports.attempts import ImportedAttempt, attempt_of, attempts_of
from heavydistill.curate.imports.base import Format, at, only_turn, question, text_of
from heavydistill.curate.imports.inspect_logs import rows_of_log
from heavydistill.errors import ProblemsError
from heavydistill.problems.tables import TableRow

SUMMARIES = "summaries_left_out"
_COPY = re.compile(r"[-_:/.#]\d+$")  # number of an answer behind the id of its problem
_NEMO_SEED = re.compile(r"rs(\d+)")
# Any other column of NeMo-Skills may belong to the problem.
_NEMO_ANSWER = (
    *("reasoning_content", "finish_reason", "symbolic_correct", "is_correct"),
    *("num_input_tokens", "num_generated_tokens", "generation_time"),
)


class HeavySkill(Format):
    """Results of the HeavySkill authors' code: ``{"query", "trajectories", "summaries", ...}``.

    The reference is ``target``, in the row or in a file ``{"query", "target"}``. Summaries are
    ignored, because the file lacks their prompts.
    """

    usual = ("query", "target", "trajectories")

    def lacks(self, values: Mapping[str, object]) -> list[str]:
        if self._is_target(values):
            return [self.own["text"]] if self.own["text"] not in values else []
        return super().lacks(values)

    def problem(self, row: TableRow) -> dict[str, Any] | None:
        values = super().problem(row) or {}
        if self._is_target(row.values):
            query, target = str(values["text"]), values["reference"]
            if self._known.setdefault(query, target) != target:
                raise ProblemsError(
                    f"{row.where}: an earlier row has another target for this query: "
                    f"{self._known[query]!r}",
                    "Keep the row that is right.",
                )
            return None
        summaries = row.values.get("summaries")
        self.notes[SUMMARIES] += len(summaries) if isinstance(summaries, list) else 0
        return values

    def complete(self, row: TableRow) -> TableRow:
        if row.values["reference"] is None:
            row.values["reference"] = self._known.get(str(row.values["text"]))
        return row

    def _is_target(self, values: Mapping[str, object]) -> bool:
        return self.answers not in values and self.own["reference"] in values


class NeMo(Format):
    """``output-rs0.jsonl``, ``output-rs1.jsonl``, ... of NeMo-Skills, with one answer per problem.

    Rows ``{"problem", "expected_answer", "generation"}``. If the thinking was removed,
    ``_full_generation`` is read; if ``_generation_finished_thinking`` is false, all of the text is
    thinking. Source: ``nemo_skills/inference/generate.py``.
    """

    usual = ("problem", "expected_answer", "generation")

    def attempts(self, row: TableRow) -> list[ImportedAttempt]:
        answer = {key: row.values[key] for key in _NEMO_ANSWER if key in row.values}
        answer["generation"] = row.values.get(self.answers)
        whole = row.values.get(f"_full_{self.answers}")
        if isinstance(whole, str):
            answer["generation"] = whole
        if row.values.get(f"_{self.answers}_finished_thinking") is False:
            answer["reasoning_content"], answer["generation"] = answer["generation"], ""
        return [attempt_of(answer, row.where, self._beside(row))]


def by_seed(files: Sequence[Path]) -> list[Path]:
    """Sort NeMo-Skills files by number; files without a number come last, in given order."""

    def number(file: Path) -> tuple[bool, int]:
        seeds = _NEMO_SEED.findall(file.name)
        return not seeds, int(seeds[-1]) if seeds else 0

    return sorted(files, key=number)


class Batch(Format):
    """Results of ``vllm run-batch`` or of OpenAI's batches, and a file with their problems.

    A result is ``{"custom_id", "response": {"status_code", "body"}, "error"}`` with a chat
    completion as body. A problem has ``id``, text and reference. The ``custom_id`` is the id, or
    the id and a number: ``a1-0``, ``a1-1``, .... Source: ``vllm/entrypoints/openai/run_batch.py``.
    """

    def lacks(self, values: Mapping[str, object]) -> list[str]:
        needed = ("custom_id", *self.required.values()) if "response" in values else (self._id,)
        return [column for column in needed if column not in values]

    def problem(self, row: TableRow) -> dict[str, Any] | None:
        if "response" in row.values:
            return {"custom_id": row.values.get("custom_id")}
        first = self._known.setdefault(str(row.values.get(self._id)), row)
        if first is not row:
            raise ProblemsError(
                f"{row.where}: {first.where} has the same id", "Give every problem a different id."
            )
        return None

    def attempts(self, row: TableRow) -> list[ImportedAttempt]:
        response = row.values.get("response")
        body = at(response, "body")
        given, usage = at(body, "choices") or [], at(body, "usage")
        beside = {"model": at(body, "model"), "prompt_tokens": at(usage, "prompt_tokens")}
        if not given:
            code = at(row.values, "error", "code") or at(body, "error", "code")
            status = at(response, "status_code")
            if status == 200 and not code:
                raise ProblemsError(
                    f"{row.where}: the body of the response is no completion", "Leave the row out."
                )
            ended = {"finish_reason": code or f"status {status}"}
            return [attempt_of(None, row.where, beside | ended)]
        if len(given) == 1:  # the usage is that of all choices
            beside["completion_tokens"] = at(usage, "completion_tokens")
        ends = {"finish_reason": [at(choice, "finish_reason") for choice in given]}
        messages = [at(choice, "message") or at(choice, "text") for choice in given]
        return attempts_of(messages, row.where, {**beside, **ends, **self._beside(row)})

    def complete(self, row: TableRow) -> TableRow:
        name = str(row.values["custom_id"])
        found = self._known.get(name) or self._known.get(_COPY.sub("", name))
        if found is None:
            raise ProblemsError(
                f"{row.where}: no problem has the id {name}",
                "Give a file with the id, text and reference of each problem together with the "
                "results; --columns id=COLUMN names its ids.",
            )
        return dataclasses.replace(row, values=dict(found.values))

    @property
    def _id(self) -> str:
        return self._columns.get("id", "id")


class Inspect(Format):
    """Logs of inspect_ai, ``.eval`` or ``.json``: each epoch of a sample is an answer.

    Samples in which the model had several turns cannot be read. Source: ``EvalSample`` in
    ``src/inspect_ai/log/_log.py`` of UKGovernmentBEIS/inspect_ai.
    """

    usual = ("input", "target", "output")

    def rows(self, file: Path) -> Iterator[TableRow]:
        return rows_of_log(file)

    def problem(self, row: TableRow) -> dict[str, Any] | None:
        values = super().problem(row) or {}
        targets = values["reference"]
        if isinstance(targets, list):
            if len(targets) != 1:
                raise ProblemsError(
                    f"{row.where}: the sample has {len(targets)} targets", "Keep samples with one."
                )
            values["reference"] = targets[0]
        values["text"] = question(values["text"], row.where)
        options = {"options": choices} if (choices := row.values.get("choices")) else {}
        return values | options

    def attempts(self, row: TableRow) -> list[ImportedAttempt]:
        only_turn(row.values.get("messages"), row.where)
        output = row.values.get(self.answers)
        choice, usage = at(output, "choices", 0), at(output, "usage")
        content = at(choice, "message", "content")
        parts = content if isinstance(content, list) else []
        thinking = [text for part in parts if isinstance(text := at(part, "reasoning"), str)]
        prompt = [at(usage, f"input_tokens{kind}") for kind in ("", "_cache_read", "_cache_write")]
        answer = {
            "content": text_of(content),
            "reasoning": "\n\n".join(thinking) or at(choice, "message", "reasoning"),
            "model": at(output, "model") or row.values.get("model"),
            "prompt_tokens": sum(n for n in prompt if isinstance(n, int)) if usage else None,
            "completion_tokens": at(usage, "output_tokens"),
            "finish_reason": at(choice, "stop_reason"),
            "cost": at(usage, "total_cost"),
            "latency_s": at(output, "time"),
            "is_correct": _score(row.values.get("scores")),
        }
        return [attempt_of(answer, row.where, self._beside(row))]


def _score(scores: object) -> object:
    """Return the score of a sample as a label; a text if the scorers differ."""
    values = [at(score, "value") for score in scores.values()] if isinstance(scores, dict) else []
    if any(value != values[0] for value in values):
        return str(values)
    grades = {"C": True, "I": False, "N": False}
    return next(
        (grades.get(each, each) if isinstance(each, str) else each for each in values), None
    )
