"""Figures of the service for Prometheus, at ``GET /metrics``; they begin anew with the process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heavydistill.serve.episode import Emit
    from heavydistill.serve.tallies import Part

_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)
FAILED, ABANDONED = "failed", "abandoned"
"""Values of ``path`` beside those of an answer: there is none, or the client went."""


class ServiceMetrics:
    """Counts requests and their calls.

    Args:
        in_progress: Number of requests in progress.

    Raises:
        ImportError: prometheus-client is not installed.
    """

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
        Gauge(
            "heavydistill_requests_in_progress",
            "Requests in progress.",
            registry=self._registry,
        ).set_function(in_progress)

    def ended(self, model: str, path: str, members: Sequence[Mapping[str, Any]] = ()) -> None:
        """Count a request; ``members`` are its calls as in ``ServedAnswer.heavy``."""
        self._requests.labels(model, path).inc()
        for each in members:
            if each["failure"]:
                self._failures.labels(each["role"], each["failure"]).inc()
            for kind in ("prompt", "completion"):
                self._tokens.labels(each["role"], kind).inc(each[f"{kind}_tokens"] or 0)

    def asked_again(self, model: str) -> None:
        """Count an answer of a model after which the same conversation was asked again."""
        self._asked_again.labels(model).inc()

    def auto(self, stopped_at: int) -> None:
        """Count an answer with k ``auto``; ``stopped_at`` is 0 if the attempts did not agree."""
        self._auto.labels(str(stopped_at)).inc()

    def deliberated(self, deliberations: int, spoke: Mapping[Part, int]) -> None:
        """Count deliberations that were answers; arguments as of ``Leaks.note``."""
        self._deliberations.inc(deliberations)
        for part, count in spoke.items():
            self._leaks.labels(part).inc(count)

    def timed(self, model: str, emit: Emit) -> Emit:
        """``emit`` for a stream that begins now; observes the time until its first content."""
        begun, waiting = time.monotonic(), [self._first_content.labels(model)]

        def pass_on(choice: int, reasoning: str, content: str) -> None:
            if content and waiting:
                waiting.pop().observe(time.monotonic() - begun)
            emit(choice, reasoning, content)

        return pass_on

    @property
    def page(self) -> tuple[bytes, str]:
        """The figures as text, and its content type."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return generate_latest(self._registry), CONTENT_TYPE_LATEST
