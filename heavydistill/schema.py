"""The rows of heavydistill, typed, with stable Arrow types.

A run writes one ``Trace`` per problem: the problem, its pool of trajectories, the caches that
were built from the pool, the deliberations on them, every verdict, and the labels. The Arrow
schema is derived from the dataclasses below by ``arrow_schema`` and nothing else, so that two
runs always concatenate; a change of it raises ``SCHEMA_VERSION``.

Numbers that are not known are -1 (counts) rather than null, texts that do not exist are "" and
a field that may be null says so. Ids are content hashes: ``t_`` trajectory, ``c_`` cache,
``d_`` deliberation.

Not covered: where the rows live on disk (``store.traces``).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import types
import typing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = "4"

# ``Trace.status``; a failed row has the step and the error after the prefix.
OK, TOO_FEW_USABLE, FAILED = "ok", "too_few_usable", "failed: "

Label = Literal["correct", "incorrect", "undecided"]
FinishReason = Literal["stop", "length", "error"]
# What became of a request without a response: the model or its provider refused (``refused``,
# ``filtered``), the prompt does not fit the context (``too_long``) or leaves no room for the
# response that was asked for (``context_overflow``), the server was too busy (``overloaded``),
# did not answer in time (``timeout``), was not there (``unreachable``), broke (``server``) or
# broke off in the middle of a response (``cut_off``), did not take the request (``rejected``),
# sent what is no completion (``malformed``), ended a response for a reason that nobody knows
# (``unknown_end``, whose text is kept) or sent none of the thinking that its model is known for
# (``no_reasoning``), the account has no money left (``no_credit``), a replay found nothing
# (``not_in_journal``), or it was never asked, because the run was stopped (``interrupted``).
Failure = Literal[
    "refused",
    "filtered",
    "too_long",
    "context_overflow",
    "overloaded",
    "timeout",
    "unreachable",
    "server",
    "cut_off",
    "rejected",
    "malformed",
    "unknown_end",
    "no_reasoning",
    "no_credit",
    "not_in_journal",
    "interrupted",
]
Stratum = Literal["all-right", "majority-right", "tie", "minority-right", "all-wrong"]
Outcome = Literal["kept", "rescued", "emergent", "overturned", "lost"]
# Why a trajectory is not in a cache: it failed, was cut off, has no answer text, or there
# were more usable ones than the cache holds.
LeftOutReason = Literal["error", "truncated", "empty", "not_selected"]

_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A question with a reference answer and the name of its verifier."""

    id: str  # identifier, unique in a run
    text: str  # text that a model reads
    reference: str  # reference answer; never shown to a model
    verifier: str  # name of the verifier
    verifier_args: str = "{}"  # arguments of the verifier, as a JSON object; ``{}`` for none
    domain: str = ""
    """Wording of the prompts: ``general``, ``stem``, ``code`` or ``brief``; empty leaves the choice
    to the run's configuration. A row that names none has its verifier's."""
    source: str = ""  # origin, e.g. a file and line, a Hub id or a procedural family


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Judgement of a verifier on one response."""

    label: Label  # ``undecided`` is neither right nor wrong; it is counted and shown separately
    reason: str  # short code, e.g. ``equal``, ``different``, ``no_answer``, ``truncated``
    extracted: str | None  # final answer in normal form; null if none was found
    verifier: str
    """Name and version, ``name@version``; where a judge was asked, ``judge:MODEL@HASH after
    name@version`` with the hash of its wording."""
    score: float | None = None
    """The share of tests passed or instructions followed, 0 to 1; null where the verifier knows no
    parts."""
    evidence: str = ""
    """JSON object with what the verdict rests on, e.g. the outcome of each test or a judge's votes;
    empty where the reason says it all."""

    @property
    def is_correct(self) -> bool:
        return self.label == "correct"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One sample of a model: the columns that trajectories and deliberations share."""

    id: str  # content hash
    index: int  # position among the samples of the same request, from 0
    model: str  # model that wrote it
    seed: int  # seed of this sample; -1 if none was sent
    reasoning: str  # thinking; may be empty
    answer_text: str  # text after the thinking
    finish_reason: FinishReason  # ``stop``, ``length`` (cut off) or ``error``
    error: str | None
    """Reason why there is no usable text; null unless ``finish_reason`` is ``error``."""
    verdict: Verdict | None  # verdict on the answer; null before it is judged
    prompt_tokens: int  # prompt tokens, as the server counts them; -1 if unknown
    completion_tokens: int  # completion tokens, thinking included; -1 if unknown
    latency_s: float  # seconds that the request took
    request_id: str  # the server's id of the request, or empty; samples of one request share it
    failure: Failure | None = None  # kind of failure; null unless ``finish_reason`` is ``error``
    cached_tokens: int = -1
    """Prompt tokens that came from the server's prefix cache; -1 if unknown."""

    @property
    def unusable_because(self) -> LeftOutReason | None:
        """Why this must not enter a cache; None if it may."""
        if self.finish_reason == "error":
            return "error"
        if self.finish_reason == "length":
            return "truncated"
        return None if self.answer_text.strip() else "empty"

    @property
    def is_correct(self) -> bool:
        return self.verdict is not None and self.verdict.is_correct

    @property
    def extracted(self) -> str | None:
        """The final answer that the verifier found; None if there is none or it was not judged."""
        return self.verdict.extracted if self.verdict else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory(Generation):
    """One independent attempt of the thinker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliberation(Generation):
    """One answer of the deliberator to one cache."""

    cache: str  # id of the cache
    round: int  # round of the cache, from 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheItem:
    """One attempt as it stands in a cache, with the provenance of its cut."""

    generation: str  # id of the trajectory, or of the deliberation of an earlier round
    mode: str  # pruning mode that made the text
    tokens_before: int  # tokens of the uncut text, in the reader's tokenizer
    tokens_after: int  # tokens of the text in the cache
    sha256: str  # hash of the text in the cache
    defused: int  # number of control tokens that were made harmless


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A generation of the pool that is not in a cache, and why."""

    generation: str  # id of the trajectory or deliberation
    reason: LeftOutReason  # failed, cut off, without answer text, or not selected


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """The serialized memory cache: what a deliberator read."""

    id: str  # content hash of the prompt
    round: int  # round of deliberation, from 1
    seed: int  # seed of selection and shuffle
    selection: str  # name of the selection strategy
    prompt_version: str  # name and hash of the wording
    reader: str  # counter of the tokens: a tokenizer, the model's server, or an estimate
    budget_tokens: int  # maximum number of tokens of ``prompt``
    prompt_tokens: int  # tokens of ``prompt`` as text
    defused: int  # number of control tokens of the problem's text that were made harmless
    items: list[CacheItem]  # attempts in the order in which the prompt shows them
    left_out: list[LeftOut]  # generations that the prompt does not show
    prompt: str  # whole user message


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Everything about one problem: a row of a traces dataset."""

    problem: Problem
    pool: list[Trajectory]  # all trajectories, by index
    caches: list[Cache] = field(default_factory=list)  # caches, one per round
    deliberations: list[Deliberation] = field(default_factory=list)
    """All deliberations, by round and index."""
    stratum: Stratum | None = None
    """Stratum of the pool: how many are right, and what the vote says."""
    outcome: Outcome | None = None
    """Last round compared with the vote; null if there was no deliberation."""
    status: str = OK  # ``ok``, ``too_few_usable``, or ``failed:`` with the step and the error
    thinker_prompt_version: str = ""  # name and hash of the thinker's wording
    schema_version: str = SCHEMA_VERSION  # version of these columns


def content_id(prefix: str, *parts: object) -> str:
    """``prefix_`` and 16 hex digits of the SHA-256 of the parts as JSON."""
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    return f"{prefix}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def to_row(value: Any) -> dict[str, Any]:
    """A row (nested dicts and lists) of a schema dataclass."""
    return dataclasses.asdict(value)


def from_row(kind: type[_Row], row: dict[str, Any]) -> _Row:
    """The dataclass of a row that ``to_row`` made or that was read from parquet."""
    hints = _hints(typing.cast(type, kind))
    return kind(
        **{
            f.name: _from_value(hints[f.name], row[f.name])
            for f in dataclasses.fields(kind)  # type: ignore[arg-type]
        }
    )


def arrow_schema(kind: type) -> pa.Schema:
    """The Arrow schema of a schema dataclass."""
    import pyarrow as pa

    hints = _hints(kind)
    return pa.schema(
        [pa.field(f.name, _arrow_type(hints[f.name])) for f in dataclasses.fields(kind)]
    )


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    """The types of the fields; a run asks for them millions of times."""
    return typing.get_type_hints(kind)


def _from_value(hint: Any, value: Any) -> Any:
    hint = _not_null(hint)
    if value is None:
        return None
    if dataclasses.is_dataclass(hint):
        return from_row(typing.cast(type, hint), value)
    if typing.get_origin(hint) is list:
        (item,) = typing.get_args(hint)
        return [_from_value(item, element) for element in value]
    return value


def _arrow_type(hint: Any) -> pa.DataType:
    import pyarrow as pa

    hint = _not_null(hint)
    if dataclasses.is_dataclass(hint):
        return pa.struct(list(arrow_schema(typing.cast(type, hint))))
    if typing.get_origin(hint) is list:
        return pa.list_(_arrow_type(typing.get_args(hint)[0]))
    if typing.get_origin(hint) is Literal:
        return pa.string()
    return {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}[hint]


def _not_null(hint: Any) -> Any:
    """The type T of ``T | None``; any other type as it is."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (hint,) = [part for part in typing.get_args(hint) if part is not type(None)]
    return hint
