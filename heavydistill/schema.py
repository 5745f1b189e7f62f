"""Dataclasses of the rows that runs write, with stable Arrow types.

A run writes one ``Trace`` per problem: the problem, its pool of trajectories, the caches that were
built from the pool, the deliberations on them, every verdict, and the labels. The function
``arrow_schema`` derives the Arrow schema from the dataclasses below, so the rows of two runs can
always be concatenated. ``SCHEMA_VERSION`` must be increased with every change of the schema.

Unknown counts are -1 and missing texts are ""; only fields whose description says so may be null.
Ids are content hashes with a prefix: ``t_`` trajectory, ``c_`` cache, ``d_`` deliberation.

A conversation of several turns is stored as JSON text, because nested columns would enlarge the
rows without any (measured: by 6 to 9 % instead of 1 %).

Not covered: files (``store.traces``).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import html
import json
import types
import typing
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from heavydistill.errors import ConfigError, printable

if TYPE_CHECKING:
    import pyarrow as pa
    from pydantic import TypeAdapter

SCHEMA_VERSION = "6"
READABLE_VERSIONS = ("4", "5", SCHEMA_VERSION)
"""Versions that this one reads; a field that an older row lacks has its default."""

# Limits of what is shown of a trace: answers and responses of a role, and characters of a response
# and of a line.
_MOST_ANSWERS, _MOST_RESPONSES, _MOST_CHARACTERS, _WIDTH = 5, 32, 4_000, 80

# Values of ``Trace.status``; for a failed row, the step and the error follow the prefix, and for a
# row that ended early, the number of its trajectories.
OK, TOO_FEW_USABLE, FAILED, STOPPED = "ok", "too_few_usable", "failed: ", "stopped_at: "

UNKNOWN_MODEL = "unknown"
"""``Generation.model`` of an imported response without a model's name."""

SERVED = "serve"
"""First part of ``Problem.source`` of a request to a service, before the model that was asked and
the id of the conversation."""

Role = Literal["system", "user", "assistant", "tool"]
Label = Literal["correct", "incorrect", "undecided"]
FinishReason = Literal["stop", "length", "error"]
# Why a request has no response: the model or its provider refused it (``refused``, ``filtered``),
# the prompt exceeds the context (``too_long``) or leaves no room for the requested response
# (``context_overflow``), the server was too busy (``overloaded``), did not answer in time
# (``timeout``), could not be reached (``unreachable``), had an internal error (``server``) or ended
# in the middle of a response (``cut_off``), rejected the request (``rejected``), sent something
# other than a completion (``malformed``), ended a response for an unknown reason without a final
# answer (``unknown_end``; the text is kept), sent the final answer as part of the thinking
# (``answer_in_thinking``; the text is kept), read less than the prompt (``prompt_cut``), or sent no
# thinking although the model is known to think (``no_reasoning``);
# the account has no credit (``no_credit``), a replay found no record (``not_in_journal``), or the
# request was never sent because the run was stopped (``interrupted``).
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
    "answer_in_thinking",
    "prompt_cut",
    "no_reasoning",
    "no_credit",
    "not_in_journal",
    "interrupted",
]
# What ended the turns of a model with tools: its answer, or the limit of turns with calls, of
# tokens, or of the time of its tools. The result of a call that a limit ended has it as error.
Stopped = Literal["answer", "rounds", "tokens", "time"]
Stratum = Literal["all-right", "majority-right", "tie", "minority-right", "all-wrong"]
Outcome = Literal["kept", "rescued", "emergent", "overturned", "lost"]
# Why a trajectory is not in a cache: it failed, was cut off, has no answer text, or was not
# selected, because there were more usable trajectories than the cache holds.
LeftOutReason = Literal["error", "truncated", "empty", "not_selected"]

_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call of a tool by a model."""

    id: str  # id that the turn with its result names
    name: str  # name of the tool
    arguments: str  # arguments, as the JSON text that the model wrote

    @property
    def message(self) -> dict[str, object]:
        """This call as a part of a message in OpenAI's format."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message of a conversation; the result of a tool is a turn of its own."""

    role: Role  # who wrote it
    text: str  # text; of a tool, its result
    thinking: str = ""  # thinking before the text, if a model wrote the turn
    calls: list[ToolCall] = field(default_factory=list)  # calls after the text
    result_of: str = ""  # id of the call whose result the text is; set if the role is ``tool``
    seconds: float = 0.0  # seconds that the model or the tool took
    error: str | None = None  # why the model or the tool failed; null if it did not

    @property
    def message(self) -> dict[str, object]:
        """This turn as a message in OpenAI's format."""
        more = {
            "reasoning_content": self.thinking,
            "tool_calls": [call.message for call in self.calls],
            "tool_call_id": self.result_of,
        }
        given = {name: value for name, value in more.items() if value}
        return {"role": self.role, "content": self.text, **given}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A question with a reference answer and the name of its verifier."""

    id: str  # identifier, unique in a run
    text: str  # text that a model reads
    reference: str  # reference answer; never shown to a model
    verifier: str  # name of the verifier
    verifier_args: str = "{}"  # arguments of the verifier, as a JSON object; ``{}`` for none
    domain: str = ""
    """Domain of the prompts: ``general``, ``stem``, ``code``, ``brief`` or the user's; if empty,
    the run's configuration decides. A row without a domain gets its verifier's."""
    source: str = ""
    """Origin, e.g. a file and line, a Hub id, or ``gym:FAMILY:SEED:INDEX:TEMPLATE`` of a procedural
    problem, without the last part if its family has no templates."""
    history_json: str = ""
    """Turns before ``text``, which is then the last turn of a conversation, as a JSON list; empty
    if there are none. ConfigError if it holds anything else."""

    def __post_init__(self) -> None:
        _turns(self.history_json)

    @property
    def history(self) -> list[Turn]:
        """The turns of the conversation before ``text``."""
        return _turns(self.history_json)

    @property
    def is_text_alone(self) -> bool:
        """Whether the turns before ``text`` have neither thinking nor a part of tools."""
        return not any(turn.role == "tool" or turn.calls or turn.thinking for turn in self.history)

    @property
    def transcript(self) -> str:
        """The text; after a history, all texts of the conversation with their roles."""
        if not (history := self.history):
            return self.text
        turns = [*history, Turn(role="user", text=self.text)]
        return "\n\n".join(f"[{turn.role}]\n{turn.text}" for turn in turns)

    @property
    def origin(self) -> str:
        """The source without the row: a file, ``hub:ORG/NAME``, ``gym:FAMILY``, ``micro``, or
        ``serve:MODEL``."""
        kind, _, rest = self.source.partition(":")
        if kind == "micro":
            return kind
        if kind in ("gym", SERVED):
            return f"{kind}:{rest.partition(':')[0]}"
        place = self.source.rpartition(":")[0] or self.source
        return "/".join(place.split("/")[:2]) if kind == "hub" else place

    @property
    def template(self) -> str:
        """Template of a procedural problem, the end of its source; empty if its family has none."""
        kind, *parts = self.source.split(":")
        return parts[3] if kind == "gym" and len(parts) > 3 else ""

    @property
    def is_served(self) -> bool:
        """Whether it is a request to a service, whose right answer no verifier knows."""
        return self.source.startswith(f"{SERVED}:")

    @property
    def arguments(self) -> dict[str, object]:
        """Arguments of the verifier; empty if they are no JSON object."""
        try:
            arguments = json.loads(self.verifier_args)
        except (ValueError, RecursionError):
            return {}
        return arguments if isinstance(arguments, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A verifier's verdict on one response."""

    label: Label  # ``undecided`` is neither right nor wrong; it is counted and shown separately
    reason: str  # short code, e.g. ``equal``, ``different``, ``no_answer``, ``truncated``
    extracted: str | None  # final answer in normal form; null if none was found
    verifier: str
    """Name and version, ``name@version``; if a judge was asked, ``judge:MODEL@HASH after
    name@version`` with the hash of its prompt wording; if a user of a service did, ``feedback after
    name@version``."""
    score: float | None = None
    """Share of tests passed or instructions followed, 0 to 1; null if the verifier does not divide
    the check into parts."""
    evidence: str = ""
    """JSON object with the facts behind the verdict, e.g. the outcome of each test or a judge's
    votes; empty if the reason says enough."""

    @property
    def is_correct(self) -> bool:
        return self.label == "correct"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One sample of a model: the fields that trajectories and deliberations share."""

    id: str  # content hash
    index: int  # index among the samples of the same request, from 0
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
    served_model: str = ""  # model that the reply names; empty if it names none, as the next two
    host: str = ""  # host that a router passed the request to (``provider`` in the reply)
    system_fingerprint: str = ""  # the server's name of its configuration
    unknown_finish_reason: str = ""
    """The server's finish reason, if it is not known: a text with a final answer then counts as
    ``stop``. Empty otherwise."""
    turns_json: str = ""
    """All turns as a JSON list, if there are several; ``reasoning`` and ``answer_text`` then hold
    the model's words in them. Empty if these are the only turn. ConfigError if it holds anything
    else."""

    def __post_init__(self) -> None:
        if turns := _turns(self.turns_json):
            for name, text in words_of(turns).items():
                object.__setattr__(self, name, text)

    @property
    def turns(self) -> list[Turn]:
        """All turns, at least one."""
        only = Turn(
            role="assistant",
            text=self.answer_text,
            thinking=self.reasoning,
            seconds=self.latency_s,
            error=self.error,
        )
        return _turns(self.turns_json) or [only]

    @property
    def stopped(self) -> Stopped | None:
        """What ended the turns: an answer, or a limit; None if the request failed."""
        if self.finish_reason == "error":
            return None
        limits: dict[str | None, Stopped] = {"rounds": "rounds", "time": "time"}
        cut_off: Stopped = "tokens" if self.finish_reason == "length" else "answer"
        return limits.get(self.turns[-1].error, cut_off)

    @property
    def unusable_because(self) -> LeftOutReason | None:
        """Why this generation must not be in a cache; None if it may."""
        if self.finish_reason == "error":
            return "error"
        if self.finish_reason == "length":
            return "truncated"
        return None if self.answer_text.strip() else "empty"

    @property
    def is_correct(self) -> bool:
        return self.verdict is not None and self.verdict.is_correct

    @property
    def right(self) -> bool | None:
        """Whether the answer is right; None if it is undecided or was not judged."""
        is_decided = self.verdict is not None and self.verdict.label != "undecided"
        return self.is_correct if is_decided else None

    @property
    def extracted(self) -> str | None:
        """The final answer that the verifier found; None if there is none or no verdict."""
        return self.verdict.extracted if self.verdict else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory(Generation):
    """One attempt of the thinker, independent of all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a deliberation says of one attempt: that it is right, or that it is wrong."""

    attempt: int  # position of the attempt in the cache, from 1
    says: Literal["right", "wrong"]  # what it says of the attempt
    quote: str  # the sentence that says it


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliberation(Generation):
    """One answer of the deliberator, written after reading one cache."""

    cache: str  # id of the cache
    round: int  # round of the cache, from 1
    claims: list[Claim] | None = None
    """What it says of attempts in the cache, at most one claim on each; null if it was not read for
    claims, as in traces of version 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheItem:
    """One attempt in a cache, with a record of how it was cut."""

    generation: str  # id of the trajectory, or of the deliberation of an earlier round
    mode: str  # pruning mode of the text, and whether outputs or code of its cells were cut
    tokens_before: int  # tokens of the uncut text, in the reader's tokenizer
    tokens_after: int  # tokens of the text in the cache
    sha256: str  # hash of the text in the cache
    defused: int  # number of control tokens that were made harmless


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A generation that is not in the cache, and why."""

    generation: str  # id of the trajectory or deliberation
    reason: LeftOutReason  # failed, cut off, without answer text, or not selected


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """A cache: the prompt with serialized attempts that a deliberator reads."""

    id: str  # content hash of the prompt
    round: int  # round of deliberation, from 1
    seed: int  # seed of selection and shuffle
    selection: str  # name of the selection strategy
    prompt_version: str  # name and hash of the prompt wording
    reader: str  # what counted the tokens: a tokenizer, the model's server, or an estimate
    budget_tokens: int  # maximum number of tokens of ``prompt``
    prompt_tokens: int  # number of tokens of ``prompt``, without the chat template
    defused: int  # number of control tokens in the problem's text that were made harmless
    items: list[CacheItem]  # attempts in prompt order
    left_out: list[LeftOut]  # generations that are not in the prompt
    prompt: str  # the whole user message


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """All data on one problem: one row of a traces dataset."""

    problem: Problem
    pool: list[Trajectory]  # all trajectories, in order of their index
    caches: list[Cache] = field(default_factory=list)  # caches, one per round
    deliberations: list[Deliberation] = field(default_factory=list)
    """All deliberations, in order of round and index."""
    stratum: Stratum | None = None
    """Stratum of the pool: how many trajectories are right, and whether the vote is right."""
    outcome: Outcome | None = None
    """Outcome: the last round compared with the vote; null if there was no deliberation."""
    status: str = OK
    """Status: ``ok``, ``too_few_usable``, ``stopped_at:`` with the number of trajectories that were
    enough because they agree, or ``failed:`` with the step and the error."""
    thinker_prompt_version: str = ""  # name and hash of the thinker's prompt wording
    schema_version: str = SCHEMA_VERSION  # version of these columns

    @property
    def responses(self) -> dict[str, Sequence[Generation]]:
        """All trajectories and all deliberations, by the role that wrote them."""
        return {"thinker": self.pool, "deliberator": self.deliberations}

    def __repr__(self) -> str:
        """Text of at most 20 short lines: the problem, and how often each answer was given."""
        parts = filter(None, [self.status, self.stratum, self.outcome])
        lines = [
            f"Trace of {_short(self.problem.id)}: {_short(', '.join(parts))}",
            f"  problem: {_short(self.problem.text)}",
            f"  reference: {_short(self.problem.reference)} ({_short(self.problem.verifier)})",
        ]
        for role, responses in self.responses.items():
            answers = Counter(map(_judged, responses)).most_common()
            lines.append(f"  {role}: {len(responses):,} responses")
            lines += [f"    {count:,} x {answer}" for answer, count in answers[:_MOST_ANSWERS]]
            if (more := len(answers) - _MOST_ANSWERS) > 0:
                lines.append(f"    and {more:,} other answers")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """HTML for notebooks: the text, and responses that unfold, escaped and cut.

        Notebooks do not render formulas inside ``code`` and ``pre``.
        """
        parts = [f"<pre>{html.escape(repr(self))}</pre>"]
        for role, responses in self.responses.items():
            for each in responses[:_MOST_RESPONSES]:
                title = html.escape(f"{role} {each.index + 1}: {_judged(each)}")
                text = html.escape(
                    _cut(f"{each.reasoning}\n\n{each.answer_text}", _MOST_CHARACTERS)
                )
                parts.append(
                    f"<details><summary><code>{title}</code></summary><pre>{text}</pre></details>"
                )
        return "\n".join(parts)


def _judged(response: Generation) -> str:
    """The verdict on a response and its answer, on one line."""
    verdict = response.verdict
    if verdict is None:
        return f"not judged ({response.finish_reason})"
    answer = "no answer" if verdict.extracted is None else _short(verdict.extracted)
    return f"{verdict.label}: {answer} ({_short(verdict.reason)})"


def _short(text: str) -> str:
    return _cut(" ".join(text[: 10 * _WIDTH].split()), _WIDTH)


def _cut(text: str, most: int) -> str:
    """The beginning of a text, without characters that a terminal or a page would obey."""
    return printable(text if len(text) <= most else f"{text[:most]} ...")


def content_id(prefix: str, *parts: object) -> str:
    """Id of the form ``prefix_`` and 16 hex digits of the SHA-256 of the parts as JSON."""
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    return f"{prefix}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def words_of(turns: Sequence[Turn]) -> dict[str, str]:
    """The ``reasoning`` and ``answer_text`` of a generation with these turns."""
    own = [turn for turn in turns if turn.role == "assistant"]
    words = [text for turn in own for text in (turn.thinking, turn.text)]
    is_answered = turns[-1].role == "assistant" and not turns[-1].calls
    answer_text = words.pop() if is_answered else ""
    return {"reasoning": "\n\n".join(filter(None, words)), "answer_text": answer_text}


def turns_as_json(turns: Sequence[Turn]) -> str:
    """Return turns as they are stored in a row; empty if there are none."""
    return json.dumps(list(map(to_row, turns)), ensure_ascii=False) if turns else ""


def _turns(stored: str) -> list[Turn]:
    """Read turns from a row; an empty text holds none."""
    try:
        return _stored_turns().validate_json(stored, strict=True) if stored else []
    except ValueError:
        raise ConfigError(
            "a conversation is damaged: its JSON text holds no turns",
            "Take the row out, or make its folder again.",
        ) from None


@functools.cache
def _stored_turns() -> TypeAdapter[list[Turn]]:
    from pydantic import TypeAdapter  # slow to import, and few rows need it

    return TypeAdapter(list[Turn])


def to_row(value: Any) -> dict[str, Any]:
    """Convert an instance of a schema dataclass to a row of nested dicts and lists."""
    return dataclasses.asdict(value)


def from_row(kind: type[_Row], row: dict[str, object]) -> _Row:
    """Convert a row from ``to_row`` or from parquet to its dataclass.

    A field that the row lacks has its default.
    """
    hints = _hints(typing.cast(type, kind))
    return kind(
        **{
            f.name: _from_value(hints[f.name], row[f.name])
            for f in dataclasses.fields(kind)  # type: ignore[arg-type]
            if f.name in row
        }
    )


def arrow_schema(kind: type) -> pa.Schema:
    """Derive the Arrow schema of a schema dataclass."""
    import pyarrow as pa

    hints = _hints(kind)
    return pa.schema(
        [pa.field(f.name, _arrow_type(hints[f.name])) for f in dataclasses.fields(kind)]
    )


@functools.cache
def _hints(kind: type) -> dict[str, object]:
    """Type hints of the fields; cached, because a run needs them millions of times."""
    return typing.get_type_hints(kind)


def _from_value(hint: object, value: Any) -> object:
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


def _not_null(hint: object) -> object:
    """The type T if ``hint`` is ``T | None``; otherwise ``hint`` unchanged."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (hint,) = [part for part in typing.get_args(hint) if part is not type(None)]
    return hint
