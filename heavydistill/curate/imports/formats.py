"""Reads files with answers in several formats: their rows, and each answer of a row.

    heavyskill  results of the HeavySkill authors' code: ``{"query", "trajectories", "summaries",
                ...}``, with the reference in ``target``, in the row or in a file ``{"query",
                "target"}``. Summaries are ignored, because the file lacks their prompts.
    pacore      ``{"conversation", "responses", "ground_truth"}``. The conversation is the problem:
                optional system messages and one question of the user. The reference may be the
                ``answer`` of an object.
    nemo        ``output-rs0.jsonl``, ``output-rs1.jsonl``, ... of NeMo-Skills, each with one answer
                per problem: ``{"problem", "expected_answer", "generation"}``. If the thinking was
                removed, ``_full_generation`` is read; if ``_generation_finished_thinking`` is
                false, all of the text is thinking.
    answers     any file: ``--columns answers=COLUMN`` names a list, or a single answer per row;
                ``--columns answers='PART*'`` one column per answer. The default is a list under
                one of the names in ``LISTS``. With one column per answer, its name is the author,
                and null is no answer.
    solutions   any file with a worked solution per problem, in the column that ``--columns
                answers=COLUMN`` names, or in one of ``SOLUTIONS``. Without a reference, the final
                answer of the solution is the reference.

An answer is a text, or an object with the text under one of its keys. Thinking between ``<think>``
and ``</think>`` is split off. Values missing from a file stay unknown: tokens, seconds and seed are
-1. A missing finish reason is assumed: ``stop`` for an answer with text, ``length`` for thinking
that was never closed, ``error`` for an empty answer.

Not covered: conversations of several turns; tests of programming problems; NeMo-Skills' comparisons
and judgements in words.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar

from heavydistill.config.sets import FormatName
from heavydistill.errors import ProblemsError
from heavydistill.models.thinking import split_reasoning
from heavydistill.problems.columns import ALIASES, FIELDS
from heavydistill.problems.tables import TableRow, choices, rows_of
from heavydistill.schema import Failure, FinishReason, Trajectory

SUMMARIES = "summaries_left_out"
LISTS = (
    *("answers", "responses", "generations", "trajectories"),
    *("solutions", "samples", "completions", "outputs"),
)
SOLUTIONS = ("solution", "worked_solution", "rationale", "answer")
_LABELS = ("labels", "is_correct", "correctness", "correct")
_FINISH_REASONS = ("finish_reasons", "finish_reason")
_NEMO_SEED = re.compile(r"rs(\d+)")
# Any other column of NeMo-Skills may belong to the problem.
_NEMO_ANSWER = (
    *("reasoning_content", "finish_reason", "symbolic_correct", "is_correct"),
    *("num_input_tokens", "num_generated_tokens", "generation_time"),
)


class Format:
    """A format with fixed column names, set up for the files of one import.

    ``columns`` is the user's ``problems.columns``; ``kept`` lists the columns that the verifier
    reads its arguments from. Raises ProblemsError if a file cannot be read, or the columns cannot
    be identified.
    """

    usual: ClassVar[tuple[str, ...]] = ()  # Columns of text, reference and answers
    fewest: ClassVar[int] = (
        2  # Minimum answers of a problem, and usable answers, as ``think.min_k``
    )

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
        self.notes: Counter[str] = Counter()  # Further counts for the record of the import
        self.targets: dict[str, object] = {}
        """References from rows without answers, by problem text."""
        self._kept = kept

    def lacks(self, values: Mapping[str, object]) -> list[str]:
        """Return the columns that this format requires and this row does not have."""
        return [column for column in (self.own["text"], self.answers) if column not in values]

    def problem(self, row: TableRow) -> dict[str, object] | None:
        """Return the values of the problem; None for a row without answers."""
        values = {name: row.values[name] for name in self._kept if name in row.values}
        return values | {field: row.values.get(column) for field, column in self.own.items()}

    def attempts(self, row: TableRow) -> list[ImportedAttempt]:
        """Return the answers of a row. Raises ProblemsError if they cannot be read."""
        return attempts_of(row.values.get(self.answers), row.where)


class HeavySkill(Format):
    usual = ("query", "target", "trajectories")

    def lacks(self, values: Mapping[str, object]) -> list[str]:
        answers = self.own["reference"] if self._is_target(values) else self.answers
        return [column for column in (self.own["text"], answers) if column not in values]

    def problem(self, row: TableRow) -> dict[str, Any] | None:
        values = super().problem(row) or {}
        if self._is_target(row.values):
            query, target = str(values["text"]), values["reference"]
            if self.targets.setdefault(query, target) != target:
                raise ProblemsError(
                    f"{row.where}: an earlier row has another target for this query: "
                    f"{self.targets[query]!r}",
                    "Keep the row that is right.",
                )
            return None
        summaries = row.values.get("summaries")
        self.notes[SUMMARIES] += len(summaries) if isinstance(summaries, list) else 0
        return values

    def _is_target(self, values: Mapping[str, object]) -> bool:
        return self.answers not in values and self.own["reference"] in values


class PaCoRe(Format):
    usual = ("conversation", "ground_truth", "responses")

    def problem(self, row: TableRow) -> dict[str, Any] | None:
        values = super().problem(row) or {}
        values["text"] = _question(values.get("text"), row.where)
        reference = values.get("reference")
        if isinstance(reference, Mapping) and "answer" in reference:
            values["reference"] = reference["answer"]
        return values


def _question(conversation: object, where: str) -> object:
    """Return the text of a conversation; a value that is not a list is returned unchanged."""
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
            f"{where}: the conversation is not a single question: its roles are {roles}",
            "Keep rows with one message of the user, after optional system messages.",
        )
    return "\n\n".join(text for text in texts if text)


class NeMo(Format):
    usual = ("problem", "expected_answer", "generation")

    def attempts(self, row: TableRow) -> list[ImportedAttempt]:
        answer = {key: row.values[key] for key in _NEMO_ANSWER if key in row.values}
        answer["generation"] = row.values.get(self.answers)
        whole = row.values.get(f"_full_{self.answers}")
        if isinstance(whole, str):
            answer["generation"] = whole
        if row.values.get(f"_{self.answers}_finished_thinking") is False:
            answer["reasoning_content"], answer["generation"] = answer["generation"], ""
        return [attempt_of(answer, row.where)]


def by_seed(files: Sequence[Path]) -> list[Path]:
    """Sort NeMo-Skills files by number; files without a number come last, in given order."""

    def number(file: Path) -> tuple[bool, int]:
        seeds = _NEMO_SEED.findall(file.name)
        return not seeds, int(seeds[-1]) if seeds else 0

    return sorted(files, key=number)


class Answers(Format):
    def __init__(
        self, columns: Mapping[str, str], files: Sequence[Path], kept: Sequence[str]
    ) -> None:
        super().__init__(columns, files, kept)
        first = next(rows_of(files[0], files[0].name), TableRow("", 0, {})).values
        self.answers = self.answers or _list_of_answers(first)
        self._is_one = "*" not in self.answers
        # A pattern does not take the columns of other fields.
        usual = itertools.chain.from_iterable(ALIASES.values())
        self._of_others = {*columns.values(), *FIELDS, *usual} - {self.answers}
        self._labels, self._ends = (
            self._beside(usual, first) for usual in (_LABELS, _FINISH_REASONS)
        )

    def lacks(self, values: Mapping[str, object]) -> list[str]:
        answers = [self.answers or "answers"] if not self._names(values) else []
        beside = [name for name in (self._labels, self._ends) if name and name not in values]
        return answers + beside

    def problem(self, row: TableRow) -> dict[str, object] | None:
        of_answers = {*self._names(row.values), self._labels, self._ends}
        return {name: value for name, value in row.values.items() if name not in of_answers}

    def attempts(self, row: TableRow) -> list[ImportedAttempt]:
        names = self._names(row.values)
        if not names:
            raise ProblemsError(
                f"{row.where}: there is no column {self.answers!r} with answers",
                choices(self.answers, row.values, "Columns of this row"),
            )
        if not self._is_one:
            return [
                attempt_of(row.values[name], row.where, model=self._model(name))
                for name in names
                if row.values[name] is not None
            ]
        labels, ends = row.values.get(self._labels), row.values.get(self._ends)
        answers = row.values[self.answers]
        if isinstance(answers, list):
            return attempts_of(answers, row.where, labels=labels, ends=ends)
        return [attempt_of(answers, row.where, label=labels, finish_reason=ends)]

    def _names(self, values: Mapping[str, object]) -> list[str]:
        """Return the columns of a row that hold its answers."""
        if self._is_one:
            return [self.answers] if self.answers in values else []
        matching = (name for name in values if fnmatchcase(name, self.answers))
        return [name for name in matching if name not in self._of_others]

    def _beside(self, usual: Sequence[str], values: Mapping[str, object]) -> str:
        """Return the first column of ``usual`` that fits the answer column; empty if none does."""
        is_list = isinstance(values.get(self.answers), list)
        columns = (name for name in usual if values.get(name) is not None and self._is_one)
        return next((name for name in columns if isinstance(values[name], list) == is_list), "")

    def _model(self, name: str) -> str:
        """Return the author named by an answer's column; empty if the name is only a number."""
        start, _, end = self.answers.partition("*")
        number = name.removeprefix(start).removesuffix(end).strip("_- ")
        return "" if number.isdecimal() else name


class Solutions(Answers):
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


# --- One answer.

UNKNOWN_MODEL = "unknown"
THINK_TAGS = ("<think>", "</think>")
TEXT_KEYS = (
    *("answer_text", "generation", "response", "solution", "completion"),
    *("content", "output", "text", "answer"),
)
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
_LABEL_KEYS = ("is_correct", "symbolic_correct", "correct")
_COMPLETION_KEYS = ("completion_tokens", "num_generated_tokens")
_PROMPT_KEYS = ("prompt_tokens", "num_input_tokens")
_SECONDS_KEYS = ("latency_s", "generation_time")
_STOPPED = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence"})
_CUT_OFF = frozenset({"length", "max_tokens", "max_length"})
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class ImportedAttempt:
    """One answer of a file."""

    trajectory: Trajectory
    """The answer without id, index and verdict. Unknown counts and seconds are -1; an unknown
    model is empty."""
    label: bool | None  # Whether the file labels it correct; None if unclear
    is_label_unclear: bool  # Whether the file's label is neither true nor false, 1 nor 0
    is_assumed: bool  # Whether the finish reason is assumed, not from the file


def attempt_of(
    value: Any, where: str, *, model: str = "", label: object = None, finish_reason: object = None
) -> ImportedAttempt:
    """Read one answer: a text, an object, or null for an empty answer.

    ``model``, ``label`` and ``finish_reason`` are defaults for values that an object does not have.
    Raises ProblemsError for other values, and for objects without exactly one of ``TEXT_KEYS``.
    """
    known: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
    text = value[_text_key(value, where)] if isinstance(value, Mapping) else value
    reasoning = next((known[key] for key in _REASONING_KEYS if known.get(key)), "")
    for part in (text, reasoning):
        if part is not None and not isinstance(part, str):
            raise ProblemsError(
                f"{where}: an answer is of type {type(part).__name__}, not a text",
                "Write it as a string.",
            )
    inline, answer = split_reasoning(text or "", THINK_TAGS)
    reasoning = "\n\n".join(filter(None, (reasoning.strip(), inline)))
    ended = known.get("finish_reason", finish_reason)
    finish, error, failure = _ending(ended, reasoning, answer)
    if _HALF_CHARACTER.search(reasoning + answer):
        reasoning = answer = ""
        finish, error, failure = "error", "The text holds half a character.", "malformed"
    given = _first(known, _LABEL_KEYS, label)
    is_clear = isinstance(given, int | float) and given in (0, 1)
    named = known.get("model")
    if isinstance(named, str) and not _HALF_CHARACTER.search(named):
        model = named or model
    trajectory = Trajectory(
        id="",
        index=0,
        model=model,
        seed=-1,
        reasoning=reasoning,
        answer_text=answer,
        finish_reason=finish,
        error=error,
        failure=failure,
        verdict=None,
        prompt_tokens=int(_number(_first(known, _PROMPT_KEYS))),
        completion_tokens=int(_number(_first(known, _COMPLETION_KEYS))),
        latency_s=float(_number(_first(known, _SECONDS_KEYS))),
        request_id="",
    )
    return ImportedAttempt(
        trajectory,
        bool(given) if is_clear else None,
        is_label_unclear=given is not None and not is_clear,
        is_assumed=not ended,
    )


def attempts_of(
    values: object, where: str, *, labels: object = None, ends: object = None
) -> list[ImportedAttempt]:
    """Read a list of answers; ``labels`` and ``ends`` are optional lists of the same length.

    Raises ProblemsError if a value is not a list, or the lengths differ.
    """
    if not isinstance(values, list):
        raise ProblemsError(
            f"{where}: the answers are of type {type(values).__name__}, not a list",
            "Write a list of texts, or leave the row out.",
        )
    beside: list[Sequence[object]] = []
    for name, column in (("labels", labels), ("finish reasons", ends)):
        if column is not None and (not isinstance(column, list) or len(column) != len(values)):
            raise ProblemsError(
                f"{where}: there are {len(values)} answers, but not as many {name}",
                f"Write one for each answer, or rename the column of the {name}.",
            )
        beside.append([None] * len(values) if column is None else column)
    return [
        attempt_of(value, where, label=label, finish_reason=end)
        for value, label, end in zip(values, *beside, strict=True)
    ]


def _text_key(value: Mapping[str, object], where: str) -> str:
    """Return the only key of an object that is in ``TEXT_KEYS``."""
    keys = [key for key in TEXT_KEYS if key in value]
    if len(keys) == 1:
        return keys[0]
    what = f"an answer has the keys {' and '.join(keys)}, and each could be its text"
    raise ProblemsError(
        f"{where}: {what if keys else 'an answer has no known key for its text'}",
        f"Rename the key of the text to {TEXT_KEYS[0]}, and other keys to names that are not among "
        f"{', '.join(TEXT_KEYS)}. " + choices("text", map(str, value), "Keys there"),
    )


def _ending(
    ended: object, reasoning: str, answer: str
) -> tuple[FinishReason, str | None, Failure | None]:
    """Return (finish reason, error, failure) of an answer; ``ended`` is the file's value."""
    if ended:
        name = str(ended).lower()
        if name in _STOPPED:
            return "stop", None, None
        if name in _CUT_OFF:
            return "length", None, None
        return "error", f"It ended with {str(ended)[:80]!r}.", "unknown_end"
    if answer:
        return "stop", None, None
    if reasoning:
        return "length", None, None
    return "error", "The file holds no text and no finish reason.", "unknown_end"


def _first(known: Mapping[str, object], keys: Sequence[str], otherwise: object = None) -> object:
    return next((known[key] for key in keys if known.get(key) is not None), otherwise)


def _number(value: object) -> float:
    """Return a count or a time; -1 for anything that is not a number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return -1
    return value if math.isfinite(value) and value >= 0 else -1
