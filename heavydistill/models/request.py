"""What goes to a model and what comes back.

A response always comes back: a request that failed is a ``Response`` whose ``finish_reason`` is
``error`` and whose ``error`` says why. K samples are K requests that differ in their seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from heavydistill.config.models import Sampling
from heavydistill.schema import Deliberation, Failure, FinishReason, Trajectory, content_id

THINK = "think"  # the stage of the first requests; ``deliberate_stage`` has the later rounds
JUDGE = "judge"  # the stage of all requests to a judge, whatever it judges
# What a generation is, without what differs when it is asked for again.
_CONTENT = ("model", "index", "seed", "reasoning", "answer_text", "finish_reason")
_OF_RESPONSE = (
    *("reasoning", "answer_text", "finish_reason", "error", "failure", "prompt_tokens"),
    *("completion_tokens", "latency_s", "request_id", "cached_tokens"),
)


@dataclass(frozen=True, slots=True)
class Request:
    """One sample that is wanted."""

    messages: list[dict[str, str]]  # The conversation so far: ``role`` and ``content`` of each turn
    sampling: Sampling  # How to sample
    seed: int  # Makes this sample repeatable; see ``sample_seed``
    index: int = 0  # Which of the samples of these messages it is, from 0
    stage: str = ""  # ``THINK``, a ``deliberate_stage``, ``JUDGE`` or empty; for the record alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One sample, or the reason why there is none."""

    reasoning: str = ""  # thinking, without its tags; empty if there was none
    answer_text: str = ""  # text after the thinking; empty if the model never got there
    finish_reason: FinishReason  # ``stop``, ``length`` (cut off by ``max_tokens``) or ``error``
    error: str | None = None
    """Reason why there is no usable text; set if and only if ``finish_reason`` is ``error``."""
    failure: Failure | None = None
    """Kind of failure; set if and only if ``finish_reason`` is ``error``."""
    prompt_tokens: int = -1  # prompt tokens, as the server counts them; -1 if unknown
    completion_tokens: int = -1  # completion tokens, thinking included; -1 if unknown
    latency_s: float = 0.0  # seconds from the start of the work on it to its last token
    request_id: str = ""
    """The server's id of the request; empty for a model in this process. Samples that one
    request brought share it, and its counts of tokens: the prompt is with the first of them,
    and the completion is divided by the lengths of their texts."""
    cached_tokens: int = -1  # prompt tokens from the server's prefix cache; -1 if unknown
    from_journal: bool = False  # whether it was read from a journal, already billed
    is_seeded: bool = True
    """Whether its own seed was sent. Of the samples of one request only the first has that, and
    none where the server refuses seeds."""


def deliberate_stage(round: int) -> str:
    """The stage of a round, counted from 1."""
    return f"deliberate_{round}"


INTERRUPTED = Response(
    finish_reason="error", failure="interrupted", error="The run was interrupted before this."
)

# Called with a request and its response as soon as that is there, and before it is used. It may
# be called by any thread; what it raises ends the ``generate`` that it serves.
Keep = Callable[[Request, Response], None]


def forget(request: Request, response: Response) -> None:
    """Keeps nothing."""


class Engine(Protocol):
    """Whatever answers requests: a model in this process, an endpoint."""

    @property
    def revision(self) -> str:
        """Tells models of one name apart; empty if that cannot be known."""

    @property
    def is_drained(self) -> bool:
        """Whether what is asked from here on fails with ``interrupted``."""

    def generate(self, requests: list[Request], keep: Keep) -> list[Response]:
        """Answer all requests, in their order. Never raises for what one request met."""

    def drain(self) -> None:
        """Begin nothing new: what is asked from here on fails with ``interrupted``.

        Requests that a server is answering are awaited. A model in this process costs nothing, so
        it stops writing: what has not ended fails with ``interrupted`` too.
        """

    def close(self) -> None:
        """Give back what it holds."""


def user_turn(prompt: str) -> list[dict[str, str]]:
    """The messages of a single prompt."""
    return [{"role": "user", "content": prompt}]


def plain_question(request: Request) -> Request:
    """The same request with a prompt that any model answers."""
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
    """The requests for so many samples of one conversation, by the name of its profile."""
    return [
        Request(messages, sampling, sample_seed(run_seed, model, messages, index), index, stage)
        for index in range(count)
    ]


def sample_seed(run_seed: int, *parts: object) -> int:
    """A seed of 31 bits for one sample, from the run's seed and what the sample is.

    The same parts give the same seed in every process, so K=16 repeats the samples of K=8.
    """
    text = "\x1f".join(map(str, (run_seed, *parts)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1


def fields_of(model: str, request: Request, response: Response) -> dict[str, Any]:
    """The fields of a generation but its id and verdict."""
    return {
        "index": request.index,
        "model": model,
        "seed": request.seed if response.is_seeded else -1,
        **{name: getattr(response, name) for name in _OF_RESPONSE},
    }


def trajectory(problem: str, fields: dict[str, Any]) -> Trajectory:
    """The trajectory of these fields, not judged; ``problem`` is the id of its problem."""
    return Trajectory(id=content_id("t", problem, *_content(fields)), verdict=None, **fields)


def deliberation(problem: str, cache: str, round: int, fields: dict[str, Any]) -> Deliberation:
    """The deliberation of these fields, not judged, by the ids of its problem and its cache."""
    return Deliberation(
        id=content_id("d", problem, cache, *_content(fields)),
        cache=cache,
        round=round,
        verdict=None,
        **fields,
    )


def _content(fields: dict[str, Any]) -> list[Any]:
    return [fields[name] for name in _CONTENT]
