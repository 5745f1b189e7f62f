"""Requests to a model, and responses.

Every request gets a response. If the request failed, the response has the ``finish_reason``
``error``, and ``error`` says why. K samples are K requests that differ in their seed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from heavydistill.config.models import Sampling
from heavydistill.heavy.pruning import defuse
from heavydistill.models.thinking import Listen
from heavydistill.schema import Failure, FinishReason, ToolCall, Turn, turns_as_json

THINK = "think"  # stage of the thinker's requests; see also ``deliberate_stage``
JUDGE = "judge"  # stage of the judge's requests
TOOL = "tool"  # stage of results of tools, and the name of what made them
DEPTH_HEADER = "X-Heavy-Depth"
"""Header of the requests that a service sends, so that a service refuses those of another one."""
_OF_RESPONSE = (
    *("reasoning", "answer_text", "finish_reason", "error", "failure", "prompt_tokens"),
    *("completion_tokens", "latency_s", "request_id", "cached_tokens"),
    *("served_model", "host", "system_fingerprint", "unknown_finish_reason"),
)

Message = dict[str, Any]
"""A message in OpenAI's format: ``role`` (``schema.Role``) and ``content``; an assistant's may have
``reasoning_content`` and ``tool_calls``, and a tool's has ``tool_call_id``."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a model for one sample."""

    messages: list[Message]  # Conversation, which ends with the turn to answer
    sampling: Sampling
    seed: int  # Seed of this sample; see ``sample_seed``
    index: int = 0  # Index of the sample among the samples of the same messages, from 0
    stage: str = ""  # ``THINK``, a ``deliberate_stage``, ``JUDGE`` or empty; for records only
    key: str = ""  # Key in the journal (``store.journal.key``); empty without a journal
    more: dict[str, Any] = field(default_factory=dict)
    """Further parameters: those of a service, ``tools``, or texts at which to ``stop``, the only
    one that a model in this process knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One sample, or the reason why the request failed."""

    reasoning: str = ""  # thinking, without its tags; empty if there was none
    answer_text: str = ""  # text after the thinking; empty if the model did not finish thinking
    calls: tuple[ToolCall, ...] = ()  # calls after the text; none unless ``more`` had tools
    finish_reason: FinishReason  # ``stop``, ``length`` (cut off by ``max_tokens``) or ``error``
    error: str | None = None
    """Reason why there is no usable text; set if and only if ``finish_reason`` is ``error``."""
    failure: Failure | None = None
    """Kind of failure; set if and only if ``finish_reason`` is ``error``."""
    prompt_tokens: int = -1  # prompt tokens, as the server counts them; -1 if unknown
    completion_tokens: int = -1  # completion tokens, thinking included; -1 if unknown
    latency_s: float = 0.0  # seconds from the start of its processing to the last token
    request_id: str = ""
    """The server's request id; empty for a model in this process. Several samples of one request
    share the id and the token counts: the first sample gets the prompt tokens, and the completion
    tokens are divided in proportion to the text lengths."""
    cached_tokens: int = -1  # prompt tokens from the server's prefix cache; -1 if unknown
    served_model: str = ""  # model that the reply names; empty if it names none, as the next two
    host: str = ""  # host that a router passed the request to (``provider`` in the reply)
    system_fingerprint: str = ""  # the server's name of its configuration
    unknown_finish_reason: str = ""
    """The server's finish reason, if it is not known; see ``schema.Generation``."""
    from_journal: bool = False  # whether it was read from a journal, i.e. already billed
    is_seeded: bool = True
    """Whether the seed of this sample was sent. A request sends only the seed of its first sample,
    and none if the server refuses seeds."""


def deliberate_stage(round: int) -> str:
    """Name of the stage of a deliberation round; rounds count from 1."""
    return f"deliberate_{round}"


INTERRUPTED = Response(
    finish_reason="error", failure="interrupted", error="The run was interrupted before this."
)

Sample = tuple[Request, Response]

# Called with requests and their responses, from any thread, before the responses are used. One call
# may have those of several ``generate``, if their callbacks are equal. An exception aborts each
# ``generate`` that has a response among them.
Keep = Callable[[list[Sample]], None]


def discard(samples: list[Sample]) -> None:
    """A ``Keep`` callback that does nothing."""


class Engine(Protocol):
    """Answers requests, with a model in this process or at an endpoint."""

    @property
    def revision(self) -> str:
        """Version of the model behind its name; empty if unknown."""

    @property
    def is_drained(self) -> bool:
        """Whether new requests fail with ``interrupted``."""

    def generate(self, requests: list[Request], keep: Keep) -> list[Response]:
        """Answer all requests, in order. The failure of a single request raises no exception."""

    def drain(self) -> None:
        """Start no new requests: they fail with ``interrupted``.

        Requests that a server is answering are awaited, because they are billed. A model in this
        process stops, and its unfinished requests fail with ``interrupted`` too.
        """

    def close(self) -> None:
        """Release all resources."""


class LiveEngine(Protocol):
    """Answers single requests of a service, in the event loop of ``http.transport``."""

    async def answer(self, request: Request, listen: Listen | None = None) -> Response:
        """Answer a request, and pass its text on while it is written.

        Every failure is a response, and the next request is tried all the same. No text is passed
        on twice, so a response that broke off after its first text is a failure. If the task is
        cancelled, the model stops writing.
        """

    def close(self) -> None:
        """Release all resources."""


def user_turn(prompt: str) -> list[Message]:
    """The messages of a conversation with a single user turn."""
    return [{"role": "user", "content": prompt}]


def conversation(
    prompt: str, history: Sequence[Turn] = (), system: str | None = None
) -> list[Message]:
    """The messages of a system prompt, a conversation so far, and a prompt as the turn to answer.

    The turns are unchanged but for control tokens, as a problem's text is in its prompt.
    """
    before = [replace(turn, text=defuse(turn.text, ())[0]).message for turn in history]
    return after_system(system, [*before, *user_turn(prompt)])


def after_system(system: str | None, messages: list[Message]) -> list[Message]:
    """The messages after a system prompt, if there is one; it is empty for ``none``."""
    content = "" if system == "none" else system
    return [{"role": "system", "content": content}, *messages] if system else messages


def texts_of(messages: Sequence[Message]) -> list[str]:
    """What a model reads of each message: the content, and its fields beside the role as JSON."""
    beside = ("role", "content")
    texts = []
    for message in messages:
        more = {name: value for name, value in message.items() if name not in beside}
        texts.append(message["content"] + (json.dumps(more, ensure_ascii=False) if more else ""))
    return texts


def plain_question(request: Request) -> Request:
    """A copy of the request with a test question that any model answers."""
    return replace(request, messages=user_turn("What is 1 + 1?"))


def samples(
    messages: list[Message],
    count: int,
    sampling: Sampling,
    *,
    run_seed: int,
    model: str,
    stage: str = "",
) -> list[Request]:
    """Create requests for ``count`` samples of a conversation; ``model`` is the profile's name."""
    seeds = [sample_seed(run_seed, model, messages, index) for index in range(count)]
    return [Request(messages, sampling, seed, i, stage) for i, seed in enumerate(seeds)]


def sample_seed(run_seed: int, *parts: object) -> int:
    """A 31-bit seed for one sample, from the run's seed and the parts that identify the sample.

    Equal parts give equal seeds in every process, so a run with K=16 includes the samples of K=8.
    """
    text = "\x1f".join(map(str, (run_seed, *parts)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1


def fields_of(model: str, request: Request, response: Response) -> dict[str, object]:
    """The fields of a generation, except its id and verdict."""
    turn = Turn(
        role="assistant",
        text=response.answer_text,
        thinking=response.reasoning,
        calls=[*response.calls],
        seconds=response.latency_s,
    )
    return {
        "index": request.index,
        "model": model,
        "seed": request.seed if response.is_seeded else -1,
        **{name: getattr(response, name) for name in _OF_RESPONSE},
        "turns_json": turns_as_json([turn]) if response.calls else "",
    }
