"""How the trajectories of a run used their tools: turns with calls, seconds, errors, ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from heavydistill.heavy.executed_cells import cells_of
from heavydistill.schema import Trace, Trajectory


@dataclass(slots=True)
class ToolUse:
    """Counts over the trajectories of a run."""

    trajectories: int = 0  # trajectories with at least one call
    of: int = 0  # all trajectories whose request did not fail
    rounds: int = 0  # turns with calls
    seconds: float = 0.0  # seconds of all tools
    errors: dict[str, int] = field(default_factory=dict)  # results with an error, by kind
    stopped: dict[str, int] = field(default_factory=dict)
    """Trajectories with calls by what ended them; see ``schema.Stopped``."""
    answered: int = 0  # trajectories with calls and a final answer
    printed: int = 0
    """Those whose final answer stands in an output, and not in what the model wrote before its last
    turn: it was computed, and not derived."""

    def counted(self, traces: Iterable[Trace]) -> Iterator[Trace]:
        """Yield the traces, each counted."""
        for trace in traces:
            self.add(trace.pool)
            yield trace

    def add(self, pool: Sequence[Trajectory]) -> None:
        """Count the trajectories of a problem."""
        for one in pool:
            self.of += one.finish_reason != "error"
            results = [turn for turn in one.turns if turn.role == "tool"]
            if not results:
                continue
            self.trajectories += 1
            self.rounds += sum(bool(turn.calls) for turn in one.turns)
            self.seconds += sum(turn.seconds for turn in results)
            self.errors = _plus(self.errors, [turn.error for turn in results if turn.error])
            self.stopped = _plus(self.stopped, [one.stopped] if one.stopped else [])
            if answer := one.extracted:
                self.answered += 1
                is_output = any(answer in cell.output for cell in cells_of(one))
                self.printed += is_output and answer not in one.reasoning


def _plus(counts: dict[str, int], more: Sequence[str]) -> dict[str, int]:
    return dict((Counter(counts) + Counter(more)).most_common())
