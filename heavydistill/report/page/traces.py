"""Traces in the page: a short entry of each for the list, and all of it in a compressed chunk.

The entry is what the list shows and the filters need, so that no chunk is unpacked for them. The
whole is the row of the trace with four things worked out that the page shows: the blocks of each
cache in place of its prompt, whose responses give a deliberation's answer, which attempts it names,
and which responses are unanswered.

A chunk is a JSON list of traces, deflated (RFC 1951, without a header) and in base64, in a script
element of a type that no browser executes. It is closed when its JSON has reached ``_ENOUGH``
characters, so that unpacking one is quick, however many trajectories a trace has.

Not covered: deliberations that use an attempt without naming it or giving its answer; see
``heavy.mentions``.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import IO, Any

from heavydistill.heavy.cache import blocks_of
from heavydistill.heavy.mentions import named
from heavydistill.metrics.counts import unanswered_because
from heavydistill.metrics.rows import family_of
from heavydistill.schema import FAILED, Cache, Deliberation, Generation, Trace, to_row

SAID = ("correct", "incorrect", "unanswered", "undecided", "unjudged", "failed", "truncated")
"""What can be said of a response: ``unanswered`` stands in place of its verdict, ``failed`` and
``truncated`` come beside it."""
_SNIPPET = 160  # characters
_ENOUGH = 400_000
_TYPE = "application/octet-stream"


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
    responses = (*trace.pool, *trace.deliberations)
    answers = {response.id: response.extracted for response in responses}
    row = to_row(trace)
    for response, shown in zip(responses, (*row["pool"], *row["deliberations"]), strict=True):
        shown["model"] = name_of(response.model)
        shown["unanswered"] = unanswered_because(response) is not None
    for cache, shown in zip(trace.caches, row["caches"], strict=True):
        shown["blocks"] = blocks_of(cache)
        shown["reader"] = name_of(cache.reader)
        if shown["blocks"]:
            del shown["prompt"]
    for answer, shown in zip(trace.deliberations, row["deliberations"], strict=True):
        shown["uses"] = _uses(answer, caches.get(answer.cache), answers, trace.problem.text)
    return row


def name_of(model: str) -> str:
    """A model without the folder that it lies in on some machine."""
    path = PurePosixPath(model)
    return path.name if path.is_absolute() else model


def _counts(generations: Sequence[Generation]) -> list[int]:
    counts: Counter[str] = Counter()
    for generation in generations:
        verdict = generation.verdict
        if generation.finish_reason == "error":
            counts["failed"] += 1
        elif verdict is None:
            counts["unjudged"] += 1
        if verdict:
            counts["unanswered" if unanswered_because(generation) else verdict.label] += 1
        counts["truncated"] += generation.finish_reason == "length"
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
        "same": [id for id in shown if answer is not None and answers.get(id) == answer],
        "named": [id for number, id in enumerate(shown, 1) if number in said.numbers],
        "several": said.several,
    }


class Chunks:
    """Writes the chunks of one run.

    Args:
        file: Binary file that they are written to.
        run: Number of the run, which is part of the ids of its elements.
    """

    def __init__(self, file: IO[bytes], run: int) -> None:
        self._file = file
        self._run = run
        self._rows: list[str] = []
        self._characters = 0
        self.count = 0  # chunks begun

    def add(self, row: dict[str, Any]) -> tuple[int, int]:
        """Add a trace; returns its chunk and its place in it."""
        text = json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        if not self._rows:
            self.count += 1
        place = self.count - 1, len(self._rows)
        self._rows.append(text)
        self._characters += len(text)
        if self._characters >= _ENOUGH:
            self.close()
        return place

    def close(self) -> None:
        """Write the traces that were added since the last chunk."""
        if not self._rows:
            return
        packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        packed = packer.compress(f"[{','.join(self._rows)}]".encode()) + packer.flush()
        name = f"chunk-{self._run}-{self.count - 1}"
        self._file.write(f'<script type="{_TYPE}" id="{name}">'.encode())
        self._file.write(base64.b64encode(packed))
        self._file.write(b"</script>\n")
        self._rows, self._characters = [], 0


def json_element(name: str, value: Any) -> str:
    """A script element with JSON that a browser keeps and does not run.

    ``<`` is escaped, so no text in it can end the element or open a comment.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>\n'
