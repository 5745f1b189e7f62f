"""Counts what a service does, for ``GET /metrics`` and for the lines at its end.

Two figures show whether deliberation helps. People repeat a request whose answer did not help them,
so the share of answers that were asked again, by the model that answered, shows whether
deliberation saves retries. Equal conversations of different people count too, and so does one that
follows the other after weeks. A client sees the answer, not the attempts, so a deliberation whose
answer speaks of them is a leak; in the thinking they are meant to be spoken of, so that is counted
apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from heavydistill.schema import Generation, Problem
from heavydistill.text.mentions import speaks_of_attempts

if TYPE_CHECKING:
    from heavydistill.serve.episode import Emit, ServedAnswer
    from heavydistill.serve.request import Asked

Part = Literal["answer", "thinking"]
"""Part of a deliberation that speaks of attempts."""
FAILED, ABANDONED = "failed", "abandoned"
"""Values of ``path`` beside those of an answer: there is none, or the client went."""
_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)
_MOST = 100_000  # conversations that are remembered


class Retries:
    """Counts of answers, each by the model that was asked."""

    def __init__(self) -> None:
        self.answered: Counter[str] = Counter()  # answers
        self.asked_again: Counter[str] = Counter()  # of these, the conversation was asked again
        self._last: dict[str, str] = {}  # the model that answered a conversation last

    def note(self, model: str, conversation: str) -> str | None:
        """Count an answer to a conversation, given by its id.

        Returns the model that answered the same conversation before; None if none is remembered.
        """
        before = self._last.pop(conversation, None)
        if before:
            self.asked_again[before] += 1
        self._last[conversation] = model
        self.answered[model] += 1
        if len(self._last) > _MOST:
            del self._last[next(iter(self._last))]
        return before


class Figures:
    """Counts since the start of a service; ``retries`` also has those that its record holds.

    Args:
        in_progress: Number of requests in progress.
    """

    def __init__(self, in_progress: Callable[[], int]) -> None:
        self.retries = Retries()
        self._in_progress = in_progress
        self._deliberations = 0  # that were answers
        self._spoke: Counter[Part] = Counter()  # of these, by the part that speaks of attempts
        self._stops: Counter[int] = Counter()  # answers with k ``auto`` by ``stopped_at``, or 0
        self._exported: _Exported | None = None

    def export(self) -> None:
        """Count for ``page`` too from now on, if prometheus-client is installed."""
        with contextlib.suppress(ImportError):
            self._exported = _Exported(self._in_progress)

    @property
    def page(self) -> tuple[bytes, str] | None:
        """The figures as text for Prometheus, and its content type; None without ``export``."""
        return self._exported.page if self._exported else None

    def timed(self, model: str, emit: Emit) -> Emit:
        """``emit`` for a stream that begins now, with the time until its first content observed."""
        return self._exported.timed(model, emit) if self._exported else emit

    def ended(self, model: str, path: str, members: Sequence[Mapping[str, Any]]) -> None:
        """Count a request; ``members`` are its calls as in ``ServedAnswer.heavy``."""
        if self._exported:
            self._exported.ended(model, path, members)

    async def answered(
        self, asked: Asked, answer: ServedAnswer, deliberations: Sequence[Generation]
    ) -> None:
        """Count an answer, of which these deliberations are choices."""
        again = None if asked.because else self.retries.note(asked.model, asked.problem.id)
        stopped_at = answer.heavy["stopped_at"] or 0 if asked.stopping else None
        if stopped_at is not None:
            self._stops[stopped_at] += 1
        spoke: Counter[Part] = Counter()
        if deliberations:  # in a thread, because thinking may be long
            spoke = await asyncio.to_thread(_leaks_in, asked.problem, deliberations)
        self._deliberations += len(deliberations)
        self._spoke.update(spoke)
        if self._exported:
            self._exported.answered(again, stopped_at, len(deliberations), spoke)

    def lines(self) -> Iterator[str]:
        """Yield sentences on the answers so far."""
        for model, answered in self.retries.answered.items():
            again = self.retries.asked_again[model]
            yield f"{model}: {answered:,} answered, {again:,} asked again"
        if self._deliberations:
            yield (
                f"Of {self._deliberations:,} deliberations, {self._spoke['answer']:,} speak of "
                f"attempts in their answer, {self._spoke['thinking']:,} in their thinking"
            )
        if self._stops:
            ends = [f"{n:,} after {k} attempt(s)" for k, n in sorted(self._stops.items()) if k]
            stopped = f"stopped early: {', '.join(ends) or 'none'}"
            yield f"k auto: {self._stops.total():,} answered, {stopped}"


class _Exported:
    """The figures for Prometheus. Raises ImportError if prometheus-client is not installed."""

    def __init__(self, in_progress: Callable[[], int]) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
        from prometheus_client import disable_created_metrics as without_times_of_creation

        without_times_of_creation()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"heavydistill_{name}", text, labels, registry=self._registry)

        self._requests = counter(
            "requests", "Requests by the model that was asked, and how they ended.", "model", "path"
        )
        self._failures = counter(
            "failed_calls", "Calls to the models that failed, by kind.", "role", "failure"
        )
        self._tokens = counter(
            "tokens", "Tokens of all calls, as their servers count them.", "role", "kind"
        )
        self._asked_again = counter(
            "asked_again", "Answers after which the same conversation was asked again.", "model"
        )
        self._auto = counter(
            "auto_answers", "Answers with k auto by the attempts they stopped at.", "stopped_at"
        )
        self._deliberations = counter("deliberations", "Deliberations that were answers.")
        self._leaks = counter(
            "leaks", "Deliberations that speak of attempts, in their answer or thinking.", "part"
        )
        self._first_content = Histogram(
            "heavydistill_first_content_seconds",
            "Seconds from a streamed request to the first content of its answer.",
            ["model"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        name = "heavydistill_requests_in_progress"
        Gauge(name, "Requests in progress.", registry=self._registry).set_function(in_progress)

    def ended(self, model: str, path: str, members: Sequence[Mapping[str, Any]]) -> None:
        self._requests.labels(model, path).inc()
        for each in members:
            if each["failure"]:
                self._failures.labels(each["role"], each["failure"]).inc()
            for kind in ("prompt", "completion"):
                self._tokens.labels(each["role"], kind).inc(each[f"{kind}_tokens"] or 0)

    def answered(
        self,
        again: str | None,
        stopped_at: int | None,
        deliberations: int,
        spoke: Mapping[Part, int],
    ) -> None:
        if again:
            self._asked_again.labels(again).inc()
        if stopped_at is not None:
            self._auto.labels(str(stopped_at)).inc()
        self._deliberations.inc(deliberations)
        for part, count in spoke.items():
            self._leaks.labels(part).inc(count)

    def timed(self, model: str, emit: Emit) -> Emit:
        begun, waiting = time.monotonic(), [self._first_content.labels(model)]

        def pass_on(choice: int, reasoning: str, content: str) -> None:
            if content and waiting:
                waiting.pop().observe(time.monotonic() - begun)
            emit(choice, reasoning, content)

        return pass_on

    @property
    def page(self) -> tuple[bytes, str]:
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return generate_latest(self._registry), CONTENT_TYPE_LATEST


def _leaks_in(problem: Problem, deliberations: Sequence[Generation]) -> Counter[Part]:
    """How many deliberations speak of attempts, in each part of their texts."""
    asked = problem.transcript
    return Counter(
        {
            "answer": sum(speaks_of_attempts(each.answer_text, asked) for each in deliberations),
            "thinking": sum(speaks_of_attempts(each.reasoning, asked) for each in deliberations),
        }
    )
