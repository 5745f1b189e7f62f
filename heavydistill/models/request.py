"""Requests to a model and its responses.

Every request has a response: one that failed has the ``finish_reason`` ``error``, and ``error``
says why. K samples are K requests that differ in their seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from heavydistill.config.models import Sampling
from heavydistill.schema import Deliberation, Failure, FinishReason, Trajectory, content_id

THINK = "think"  # stage of the thinker's requests; see also ``deliberate_stage``
JUDGE = "judge"  # stage of the judge's requests
# The fields that identify a generation; others may differ when the request is repeated.
_CONTENT = ("model", "index", "seed", "reasoning", "answer_text", "finish_reason")
_OF_RESPONSE = (
    *("reasoning", "answer_text", "finish_reason", "error", "failure", "prompt_tokens"),
    *("completion_tokens", "latency_s", "request_id", "cached_tokens"),
)


@dataclass(frozen=True, slots=True)
class Request:
    """A request for one sample."""

    messages: list[dict[str, str]]  # Conversation: ``role`` and ``content`` of each turn
    sampling: Sampling
    seed: int  # Seed of this sample; see ``sample_seed``
    index: int = 0  # Number of the sample among those of the same messages, from 0
    stage: str = ""  # ``THINK``, a ``deliberate_stage``, ``JUDGE`` or empty; only recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One sample, or the reason why there is none."""

    reasoning: str = ""  # thinking, without its tags; empty if there was none
    answer_text: str = ""  # text after the thinking; empty if the model did not finish thinking
    finish_reason: FinishReason  # ``stop``, ``length`` (cut off by ``max_tokens``) or ``error``
    error: str | None = None
    """Reason why there is no usable text; set if and only if ``finish_reason`` is ``error``."""
    failure: Failure | None = None
    """Kind of failure; set if and only if ``finish_reason`` is ``error``."""
    prompt_tokens: int = -1  # prompt tokens, as the server counts them; -1 if unknown
    completion_tokens: int = -1  # completion tokens, thinking included; -1 if unknown
    latency_s: float = 0.0  # seconds from the start of the work on it to its last token
    request_id: str = ""
    """The server's id of the request; empty for a model in this process. Several samples of one
    request share it and the token counts: the first sample has the prompt tokens, and the
    completion tokens are divided by the lengths of the texts."""
    cached_tokens: int = -1  # prompt tokens from the server's prefix cache; -1 if unknown
    from_journal: bool = False  # whether it was read from a journal, already billed
    is_seeded: bool = True
    """Whether the seed of this sample was sent: only the first sample of a request has its seed
    sent, and none if the server refuses seeds."""


def deliberate_stage(round: int) -> str:
    """The stage of a round of deliberation, from 1."""
    return f"deliberate_{round}"


INTERRUPTED = Response(
    finish_reason="error", failure="interrupted", error="The run was interrupted before this."
)

# Called with a request and its response before the response is used, by any thread. An exception in
# it ends the ``generate`` that called it.
Keep = Callable[[Request, Response], None]


def forget(request: Request, response: Response) -> None:
    """A ``Keep`` that does nothing."""


class Engine(Protocol):
    """Answers requests: a model in this process, or an endpoint."""

    @property
    def revision(self) -> str:
        """Version of the model behind the name; empty if unknown."""

    @property
    def is_drained(self) -> bool:
        """Whether new requests fail with ``interrupted``."""

    def generate(self, requests: list[Request], keep: Keep) -> list[Response]:
        """Answer all requests, in their order. The failure of a single request is not raised."""

    def drain(self) -> None:
        """Start nothing new: later requests fail with ``interrupted``.

        Requests that a server is answering are awaited. A model in this process is free, so it
        stops: its unfinished requests fail with ``interrupted`` too.
        """

    def close(self) -> None:
        """Release all resources."""


def user_turn(prompt: str) -> list[dict[str, str]]:
    """Messages with a single prompt."""
    return [{"role": "user", "content": prompt}]


def plain_question(request: Request) -> Request:
    """The request with a prompt that any model answers."""
    return replace(request, messages=user_turn("What is 1 + 1?"))


def samples(
    messages: list[dict[str, str]],
    count: int,
    sampling: Sampling,
    *,
    run_seed: int,
    model: str,
    stage: str = "",
) -> list[Request]:
    """Requests for ``count`` samples of one conversation; ``model`` is the profile's name."""
    return [
        Request(messages, sampling, sample_seed(run_seed, model, messages, index), index, stage)
        for index in range(count)
    ]


def sample_seed(run_seed: int, *parts: object) -> int:
    """A 31-bit seed for one sample, from the run's seed and the parts that identify the sample.

    Equal parts give equal seeds in every process, so K=16 repeats the samples of K=8.
    """
    text = "\x1f".join(map(str, (run_seed, *parts)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1


def fields_of(model: str, request: Request, response: Response) -> dict[str, Any]:
    """The fields of a generation except its id and verdict."""
    return {
        "index": request.index,
        "model": model,
        "seed": request.seed if response.is_seeded else -1,
        **{name: getattr(response, name) for name in _OF_RESPONSE},
    }


def trajectory(problem: str, fields: dict[str, Any]) -> Trajectory:
    """A trajectory with these fields, not judged; ``problem`` is the id of its problem."""
    return Trajectory(id=content_id("t", problem, *_content(fields)), verdict=None, **fields)


def deliberation(problem: str, cache: str, round: int, fields: dict[str, Any]) -> Deliberation:
    """A deliberation with these fields, not judged; ``problem`` and ``cache`` are ids."""
    return Deliberation(
        id=content_id("d", problem, cache, *_content(fields)),
        cache=cache,
        round=round,
        verdict=None,
        **fields,
    )


def _content(fields: dict[str, Any]) -> list[Any]:
    return [fields[name] for name in _CONTENT]
