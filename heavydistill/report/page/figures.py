"""All figures of a run that its page shows, from one reading of its traces.

Figures come from the rows, so that a run in progress has them too. What rows do not tell is
taken from the run's ``summary.json`` where there is one: prices, and problems without a row.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from heavydistill.errors import ConfigError
from heavydistill.metrics.counts import Usage
from heavydistill.metrics.summary import Summary, summarize
from heavydistill.metrics.tally import prompts_of, verifiers_of
from heavydistill.report.page.entries import name_of
from heavydistill.report.page.sources import Source
from heavydistill.report.text import counted
from heavydistill.schema import Generation, Trace

LENGTHS = tuple(
    f"{stage}, {right}"
    for stage in ("trajectories", "deliberations")
    for right in ("right", "not right")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What is known of a run.

    Attributes:
        summary: Metrics, labels and failures; its ``usage`` is that of the run's own summary where
            there is one.
        is_own_usage: Whether there is; what rows tell includes what another run paid for pools
            that this one reads.
        lengths: Tokens written and how many responses have so many, by ``LENGTHS``.
        models: Who wrote trajectories, then who wrote deliberations.
        verifiers: Names and versions behind the verdicts.
        prompts: Names and hashes of the wordings.
        problems: Digest of ids, texts, references, verifiers and their arguments in any order:
            runs over the same problems have the same.
        missing: Problems without a row.
        left_out: Rows of the source that are no problems of the run.
    """

    summary: Summary
    is_own_usage: bool
    lengths: dict[str, Counter[int]]
    models: tuple[list[str], list[str]]
    verifiers: list[str]
    prompts: list[str]
    problems: str
    missing: int
    left_out: int


@dataclass(slots=True)
class _Notes:
    """What is noted of the traces as they pass."""

    lengths: dict[str, Counter[int]] = field(
        default_factory=lambda: {name: Counter() for name in LENGTHS}
    )
    thinkers: set[str] = field(default_factory=set)
    deliberators: set[str] = field(default_factory=set)
    verifiers: set[str] = field(default_factory=set)
    prompts: set[str] = field(default_factory=set)
    problems: int = 0
    judged: int = 0

    def of(self, traces: Iterable[Trace]) -> Iterator[Trace]:
        for trace in traces:
            self._add(trace)
            yield trace

    def _add(self, trace: Trace) -> None:
        for stage, generations in (
            ("trajectories", trace.pool),
            ("deliberations", trace.deliberations),
        ):
            for one in generations:
                self._add_generation(stage, one)
        self.thinkers |= {name_of(one.model) for one in trace.pool}
        self.deliberators |= {name_of(one.model) for one in trace.deliberations}
        self.prompts |= prompts_of(trace)
        self.verifiers |= verifiers_of(trace)
        problem = trace.problem
        asked = (problem.id, problem.text, problem.reference)
        told = "\x1f".join((*asked, problem.verifier, problem.verifier_args))
        # A sum does not depend on the order, in which runs differ.
        self.problems += int.from_bytes(hashlib.sha256(told.encode()).digest())

    def _add_generation(self, stage: str, one: Generation) -> None:
        if one.verdict:
            self.judged += 1
        if one.completion_tokens > 0:
            right = "right" if one.is_correct else "not right"
            self.lengths[f"{stage}, {right}"][one.completion_tokens] += 1


def figures(source: Source, traces: Iterable[Trace]) -> Figures:
    """The figures of a run, whose traces are read once and not kept.

    Args:
        source: The run.
        traces: All of it.

    Raises:
        ConfigError: It is whole and has no verdicts.
        RunError: It has no traces.
    """
    notes = _Notes()
    summary = summarize(notes.of(traces))
    if not (notes.judged or source.unfinished):  # what is unfinished may get some yet
        raise _nothing_judged(source.name, summary)
    usage = _own_usage(source.recorded)
    return Figures(
        summary=summary if usage is None else dataclasses.replace(summary, usage=usage),
        is_own_usage=usage is not None,
        lengths=notes.lengths,
        models=(sorted(notes.thinkers), sorted(notes.deliberators)),
        verifiers=sorted(notes.verifiers),
        prompts=sorted(notes.prompts),
        problems=f"{notes.problems % (1 << 256):064x}",
        missing=source.recorded.get("missing", 0),
        left_out=source.recorded.get("left_out", 0),
    )


def _nothing_judged(name: str, summary: Summary) -> ConfigError:
    problems = counted(summary.problems, "problem")
    stages = (summary.trajectories, summary.deliberations)
    if any(stage.unjudged for stage in stages):
        return ConfigError(
            f"{name} has no verdicts: no response of its {problems} was judged",
            "Have them judged: `heavydistill generate --pools RUN` judges what has no verdict.",
        )
    failures = sum((Counter(stage.failures) for stage in stages), Counter[str]())
    listed = ", ".join(f"{count:,} {kind}" for kind, count in failures.most_common())
    return ConfigError(
        f"{name} has nothing to report: its {problems} got no response"
        + (f" (failed requests: {listed})" if listed else ""),
        "Give its command again, which asks anew for what failed.",
    )


def _own_usage(recorded: dict[str, Any]) -> dict[str, Usage] | None:
    """That of the run's own summary, which knows prices and what was paid elsewhere."""
    try:
        return TypeAdapter(dict[str, Usage]).validate_python(recorded["usage"])
    except (KeyError, ValidationError):
        return None
