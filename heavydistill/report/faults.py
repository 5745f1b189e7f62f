"""What kept answers of a run from being judged: an example, or the fault, with the fix.

Not covered: the counts of undecided and unanswered samples (``summary``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from heavydistill.metrics.counts import unanswered_because
from heavydistill.metrics.summary import Summary
from heavydistill.schema import Verdict
from heavydistill.store.traces import read_traces
from heavydistill.verifiers.base import raised_in

_MOST_OF_AN_ANSWER = 300  # characters of an answer that is shown
_MOST_FAULTS = 3  # faults that are shown, the most common first
_AGAIN = "then repeat the command with another --out: no request is sent again."
# Reasons that are the fault of a verifier or a machine, by what is before a colon: what happened
# to the verifier, and the fix.
_FAULTS = {
    "verifier_error": ("raised {raised}", f"Correct it, {_AGAIN}"),
    "worker_died": ("ended its process", f"Find out why it does, {_AGAIN}"),
    "timeout": ("took too long", f"Raise verify.timeout_s, or let the machine do less, {_AGAIN}"),
    "memory": ("needed too much memory", f"Raise verify.memory_mb, {_AGAIN}"),
    "no_sandbox": ("had no sandbox", f"Check that bubblewrap works on this machine, {_AGAIN}"),
}


def unjudged_lines(summary: Summary, folder: Path) -> Iterator[str]:
    """Yield lines on why the answers of a run have no verdict.

    A sentence for each fault of a verifier or a machine; and if no answer of the run could be
    read, the end of the first one.
    """
    reasons = {reason for each in summary.samples.values() for reason in each.undecided_because}
    if any(_kind(reason) in _FAULTS for reason in reasons):
        yield from _faults(folder, sum(each.finished for each in summary.samples.values()))
    if not summary.is_unread:
        return
    for trace in read_traces(folder):
        for generation in (*trace.pool, *trace.deliberations):
            if reason := unanswered_because(generation):
                text = generation.answer_text.strip()
                cut = "... " * (len(text) > _MOST_OF_AN_ANSWER)
                yield f"For example, to problem {trace.problem.id} ({reason}):"
                yield f"{cut}{text[-_MOST_OF_AN_ANSWER:]}"
                yield f"The reference: {trace.problem.reference[-_MOST_OF_AN_ANSWER:]}"
                return


def _faults(folder: Path, answers: int) -> Iterator[str]:
    counts: Counter[tuple[str, str, str]] = Counter()
    for trace in read_traces(folder):
        for generation in (*trace.pool, *trace.deliberations):
            if (verdict := generation.verdict) and _kind(verdict.reason) in _FAULTS:
                counts[verdict.verifier, _what(verdict), _FAULTS[_kind(verdict.reason)][1]] += 1
    for (verifier, what, fix), count in counts.most_common(_MOST_FAULTS):
        on = f"all {answers:,}" if count == answers else f"{count:,} of {answers:,}"
        yield f"{verifier} {what} on {on} answers. {fix}"


def _what(verdict: Verdict) -> str:
    kind, _, error = verdict.reason.partition(":")
    is_told = kind == "verifier_error" and '"error"' in verdict.evidence
    return _FAULTS[kind][0].format(raised=raised_in(verdict.evidence) if is_told else error)


def _kind(reason: str) -> str:
    return reason.partition(":")[0]
