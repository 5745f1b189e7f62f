"""What the page knows of a trace: a short entry for the list, and all of it for a chunk.

The entry is what the list shows and the filters need, so that no chunk is unpacked for them. The
whole is the row of the trace with four things worked out that the page shows: the blocks of each
cache in place of its prompt, whose responses give a deliberation's answer, which attempts it names,
and which responses are unanswered.

Not covered: deliberations that use an attempt without naming it or giving its answer; see
``heavy.naming``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from heavydistill.heavy.cache import blocks_of
from heavydistill.heavy.mentions import named
from heavydistill.metrics.counts import unanswered_because
from heavydistill.metrics.row import family_of
from heavydistill.schema import FAILED, Cache, Deliberation, Generation, Trace, to_row

SAID = ("correct", "incorrect", "unanswered", "undecided", "unjudged", "failed", "truncated")
"""What can be said of a response: ``unanswered`` stands in place of its verdict, ``failed`` and
``truncated`` come beside it."""
_SNIPPET = 160  # characters


def entry(trace: Trace) -> dict[str, Any]:
    """What the list and the filters need; counts are in the order of ``SAID``."""
    return {
        "id": trace.problem.id,
        "text": " ".join(trace.problem.text[: 2 * _SNIPPET].split())[:_SNIPPET],
        "stratum": trace.stratum,
        "outcome": trace.outcome,
        "status": "failed" if trace.status.startswith(FAILED) else trace.status,
        "verifier": trace.problem.verifier,
        "family": family_of(trace.problem),
        "pool": _counts(trace.pool),
        "deliberations": _counts(trace.deliberations),
        "k": len(trace.pool),
        "d": len(trace.deliberations),
    }


def whole(trace: Trace) -> dict[str, Any]:
    """All of a trace, with what is worked out."""
    caches = {cache.id: cache for cache in trace.caches}
    answers = {one.id: one.extracted for one in (*trace.pool, *trace.deliberations)}
    row = to_row(trace)
    responses = (*trace.pool, *trace.deliberations)
    for one, told in zip(responses, (*row["pool"], *row["deliberations"]), strict=True):
        told["model"] = name_of(one.model)
        told["unanswered"] = unanswered_because(one) is not None
    for cache, told in zip(trace.caches, row["caches"], strict=True):
        told["blocks"] = blocks_of(cache)
        told["reader"] = name_of(cache.reader)
        if told["blocks"]:
            del told["prompt"]
    for one, told in zip(trace.deliberations, row["deliberations"], strict=True):
        told["uses"] = _uses(one, caches.get(one.cache), answers, trace.problem.text)
    return row


def name_of(model: str) -> str:
    """A model without the folder that it lies in on some machine."""
    path = PurePosixPath(model)
    return path.name if path.is_absolute() else model


def _counts(generations: Sequence[Generation]) -> list[int]:
    counts: Counter[str] = Counter()
    for one in generations:
        if one.finish_reason == "error":
            counts["failed"] += 1
        elif one.verdict is None:
            counts["unjudged"] += 1
        if one.verdict:
            counts["unanswered" if unanswered_because(one) else one.verdict.label] += 1
        counts["truncated"] += one.finish_reason == "length"
    return [counts[said] for said in SAID]


def _uses(
    deliberation: Deliberation,
    cache: Cache | None,
    answers: dict[str, str | None],
    problem: str,
) -> dict[str, Any]:
    """Ids of the generations in the cache that it agrees with, and of those that it names."""
    shown = [item.generation for item in cache.items] if cache else []
    said = named(f"{deliberation.reasoning}\n\n{deliberation.answer_text}", problem)
    answer = deliberation.extracted
    return {
        "same": [one for one in shown if answer is not None and answers.get(one) == answer],
        "named": [one for number, one in enumerate(shown, 1) if number in said.numbers],
        "several": said.several,
    }
