"""How the trajectories of a run used their tools: turns with calls, seconds, errors, ends."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from heavydistill.schema import Trace, Trajectory, Turn


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
    """Those whose final answer an output has before the model wrote it in words or in code: it was
    computed, and not derived. An output in another form, as 0.5 for 1/2, is not found."""

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
                self.printed += _is_printed(one.turns, answer)


def _is_printed(turns: Sequence[Turn], answer: str) -> bool:
    """Whether an output has the answer before the model does."""
    whole = re.compile(rf"(?<![\w.]){re.escape(answer)}(?!\.?\w)")
    for turn in turns:
        words = (turn.thinking, turn.text, *(call.arguments for call in turn.calls))
        if any(map(whole.search, words)):
            return turn.role == "tool"
    return False


def _plus(counts: dict[str, int], more: Sequence[str]) -> dict[str, int]:
    return dict((Counter(counts) + Counter(more)).most_common())
