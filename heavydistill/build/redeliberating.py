"""Deliberations that the build asks for, on sets of the mixture that have none to learn from.

They are asked for in a pass of their own, before anything is chosen, and only what was found out
about them is remembered. When rows are written their texts come from the journal.
"""

from __future__ import annotations

from heavydistill.build.asking import resolve
from heavydistill.build.builder import Build, OnProgress, pending
from heavydistill.build.notes import SetNote
from heavydistill.schema import Generation, Problem
from heavydistill.sets.manifest import Asked


class Redeliberation:
    """Asks for the deliberations of a build, and finds them again.

    Args:
        build: After its first pass. The sets that are asked about are marked in its notes.

    Raises:
        UserError: Somebody cannot be asked.
    """

    def __init__(self, build: Build) -> None:
        self._build = build
        self._askings = {s.name: resolve(build.config, s.config) for s in build.sources}
        self._there = pending(build)
        for one in self._there:
            one.asked = True
        self.asked: list[Asked] = []

    def ask(self, on_progress: OnProgress) -> None:
        """Ask, and note what is found out."""
        total, done = len(self._there), 0
        for source in self._build.sources:
            waiting: list[tuple[SetNote, Problem, list[Generation]]] = []
            with self._deliberator(source, replay=False) as deliberator:
                pairs = self._pairs(source, waiting)
                for (problem, _), answers in deliberator.ask(pairs):
                    one, _, shown = waiting.pop(0)
                    one.deliberations += [
                        self._build.taker.deliberation(problem, shown, answer) for answer in answers
                    ]
                    done += 1
                    on_progress("Asking for deliberations", done, total)
                self.asked.append(deliberator.asked)
