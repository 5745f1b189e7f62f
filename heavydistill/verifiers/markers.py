r"""Which marker the answers of a run share that hold no ``\boxed{}``.

A marker stands before the value in the last line of an answer (``A:``, ``####``, ``The answer
is``, ``答案：``). It is found in the answers themselves: most of the unanswered ones share it, and
their verifier reads answers behind it. The verdicts of the run stay as they are; what is found is a
proposal for the next one.

Only problems that have the arguments of the configuration count, for only those can be changed
there, and only the verifiers ``math`` and ``exact``, which know a marker.

Not covered: answers whose value is not in their last line.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heavydistill.config.run import Verifying
from heavydistill.metrics.counts import unanswered_because
from heavydistill.schema import Problem, Trace, Verdict
from heavydistill.verifiers.extraction import candidate_markers, final_answer
from heavydistill.verifiers.normal import normal_form
from heavydistill.verifiers.pool import VerdictPool

MOST_READ = 1_000
MOST_JUDGED = 200
_MOST_CANDIDATES = 6
# A tenth of right answers shows a marker where references are no numbers.
_ENOUGH_RIGHT = 0.1
_VERIFIERS = ("math", "exact")


@dataclass(frozen=True, slots=True)
class Shared:
    """A marker that most unanswered answers share."""

    marker: str
    count: int
    """Answers that have it in their last line."""
    of: int
    """Unanswered ones that were read."""
    judged: int
    """Answers that were judged by it."""
    answers: int
    """Judged ones in which it gives an answer."""
    right: int
    """Judged ones that are right."""


def shared_marker(
    traces: Iterable[Trace], arguments: Mapping[str, Any], config: Verifying
) -> Shared | None:
    """The marker that most unanswered answers share and that gives answers; None without one.

    Args:
        traces: Judged; read until ``MOST_READ`` unanswered answers are found.
        arguments: Arguments of verifiers in the configuration.
        config: How answers are judged.
    """
    unanswered = list(itertools.islice(_unanswered(traces, arguments), MOST_READ))
    having: dict[str, list[tuple[Problem, str]]] = {}
    for problem, text in unanswered:
        for marker in candidate_markers(text):
            having.setdefault(marker, []).append((problem, text))
    common = [marker for marker, pairs in having.items() if 2 * len(pairs) > len(unanswered)]
    common.sort(key=lambda marker: (-len(having[marker]), -len(marker), marker))
    fit: list[Shared] = []
    with VerdictPool(config) as pool:
        for marker in common[:_MOST_CANDIDATES]:
            tried = _tried(marker, having[marker], len(unanswered), pool)
            if 2 * tried.answers > tried.judged or tried.right >= _ENOUGH_RIGHT * tried.judged > 0:
                fit.append(tried)
    # The first of equal ones, which is the most frequent and then the longest.
    return max(fit, key=lambda shared: (shared.right, shared.answers), default=None)


def _unanswered(
    traces: Iterable[Trace], arguments: Mapping[str, Any]
) -> Iterator[tuple[Problem, str]]:
    for trace in traces:
        problem = trace.problem
        if problem.verifier in _VERIFIERS and json.loads(problem.verifier_args) == arguments:
            for generation in (*trace.pool, *trace.deliberations):
                if unanswered_because(generation) == "no_answer":
                    yield problem, generation.answer_text


def _tried(
    marker: str, having: Sequence[tuple[Problem, str]], of: int, pool: VerdictPool
) -> Shared:
    verifier_args = json.dumps({"marker": marker}, ensure_ascii=False)
    # Spread over all of them, for the first ones may be of one kind.
    step = max(1, len(having) // MOST_JUDGED)
    pairs = [
        (dataclasses.replace(problem, verifier_args=verifier_args), text)
        for problem, text in having[::step][:MOST_JUDGED]
    ]
    verdicts = [judged.verdict for judged in pool.judge_all(pairs)]
    answers = sum(
        _is_answer(problem.reference, marker, verdict)
        for (problem, _), verdict in zip(pairs, verdicts, strict=True)
    )
    right = sum(verdict.is_correct for verdict in verdicts)
    return Shared(marker, len(having), of, len(pairs), answers, right)


def _is_answer(reference: str, marker: str, verdict: Verdict) -> bool:
    """Whether it is right, or a number where a number is asked for: words could be any words."""
    if verdict.is_correct or verdict.extracted is None:
        return verdict.is_correct
    wanted = normal_form(final_answer(reference, marker) or reference)
    return wanted.value is not None and normal_form(verdict.extracted).value is not None
