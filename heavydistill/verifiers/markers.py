r"""Finds a marker that most answers without ``\boxed{}`` in a run have in common.

A marker precedes the value in the last line of an answer (``A:``, ``####``, ``The answer is``,
``答案：``). A marker is proposed if it occurs in most responses in which no answer was found, and
if the verifier finds answers after it. The verdicts of the run do not change; the marker is a
proposal for the next run.

Only problems whose verifier arguments come from the configuration are considered, because only
these can be changed there. Only the verifiers ``math`` and ``exact`` support markers.

Not covered: answers whose value is not in their last line.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from heavydistill.config.run import Verifying
from heavydistill.metrics.counts import unanswered_because
from heavydistill.schema import Problem, Trace, Verdict
from heavydistill.text.extraction import WITH_MARKER, candidate_markers, final_answer
from heavydistill.verifiers.normal import normal_form
from heavydistill.verifiers.pool import VerdictPool

MOST_READ = 1_000
MOST_JUDGED = 200
_MOST_CANDIDATES = 6
# If references are not numbers, a tenth of correct answers is enough to confirm a marker.
_ENOUGH_RIGHT = 0.1


@dataclass(frozen=True, slots=True)
class CommonMarker:
    """A marker in most of the responses in which no answer was found."""

    marker: str
    count: int  # Number of responses with the marker in their last line
    of: int  # Number of responses that were read and in which no answer had been found
    judged: int  # Number of responses that were judged with the marker
    answers: int  # Number of judged responses in which a final answer was found
    right: int  # Number of judged responses that are correct


def shared_marker(
    traces: Iterable[Trace], arguments: Mapping[str, object], config: Verifying
) -> CommonMarker | None:
    """Find a marker that most responses without a found answer share, and that yields answers.

    Returns None if there is none.

    Args:
        traces: Judged traces; read until ``MOST_READ`` responses without an answer are found.
        arguments: Verifier arguments in the configuration.
        config: Settings of the verifiers.
    """
    unanswered = list(itertools.islice(_unanswered(traces, arguments), MOST_READ))
    having: dict[str, list[tuple[Problem, str]]] = {}
    for problem, text in unanswered:
        for marker in candidate_markers(text):
            having.setdefault(marker, []).append((problem, text))
    common = [marker for marker, pairs in having.items() if 2 * len(pairs) > len(unanswered)]
    common.sort(key=lambda marker: (-len(having[marker]), -len(marker), marker))
    fit: list[CommonMarker] = []
    with VerdictPool(config) as pool:
        for marker in common[:_MOST_CANDIDATES]:
            tried = _tried(marker, having[marker], len(unanswered), pool)
            if 2 * tried.answers > tried.judged or tried.right >= _ENOUGH_RIGHT * tried.judged > 0:
                fit.append(tried)
    # If several markers fit equally well, the first is used: the most frequent, then the longest.
    return max(fit, key=lambda shared: (shared.right, shared.answers), default=None)


def _unanswered(
    traces: Iterable[Trace], arguments: Mapping[str, object]
) -> Iterator[tuple[Problem, str]]:
    for trace in traces:
        problem = trace.problem
        if problem.verifier in WITH_MARKER and json.loads(problem.verifier_args) == arguments:
            for generation in (*trace.pool, *trace.deliberations):
                if unanswered_because(generation) == "no_answer":
                    yield problem, generation.answer_text


def _tried(
    marker: str, having: Sequence[tuple[Problem, str]], of: int, pool: VerdictPool
) -> CommonMarker:
    verifier_args = json.dumps({"marker": marker}, ensure_ascii=False)
    # Sampled evenly, because the first responses may all be of one kind.
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
    return CommonMarker(marker, len(having), of, len(pairs), answers, right)


def _is_answer(reference: str, marker: str, verdict: Verdict) -> bool:
    """Whether the verdict is correct, or both the found answer and the reference are numbers."""
    if verdict.is_correct or verdict.extracted is None:
        return verdict.is_correct
    wanted = normal_form(final_answer(reference, marker) or reference)
    return wanted.value is not None and normal_form(verdict.extracted).value is not None
