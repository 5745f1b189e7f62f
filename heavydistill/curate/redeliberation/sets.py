"""Deliberations that a build asks for, on sets of the mixture that have none to learn from.

They are asked for in a pass of their own, before anything is selected; their rows stay on disk
until the rows of the sets are written.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from heavydistill.config.sets import BuildConfig
from heavydistill.curate.notes import Build, OnProgress, SetNote, generations_of
from heavydistill.curate.prompts import in_sets
from heavydistill.curate.redeliberation.deliberator import (
    Deliberations,
    DeliberationTally,
    ResolvedDeliberator,
    Volume,
    deliberate,
    resolve,
    volume_of,
)
from heavydistill.curate.sources import SourceRun, open_sources
from heavydistill.models.contact import Contact
from heavydistill.schema import Cache, Deliberation, Generation, Problem
from heavydistill.store.sets.folder import RedeliberationSummary


def meet_servers(config: BuildConfig, contact: Contact) -> None:
    """Ask the servers of a build which models they serve, before anything large is loaded.

    Args:
        config: With ``redeliberate``.
        contact: Remembers the replies for ``Redeliberation``.

    Raises:
        UserError: A server cannot be asked, or anything else that ``resolve`` finds; nothing was
            written.
    """
    for source in open_sources(config.runs):
        # An imported pool without a teacher is refused only where one of its sets is asked about.
        if source.config or (config.redeliberate and config.redeliberate.teacher):
            resolve(config, source.config, contact)


class Redeliberation:
    """What a build asks for. The sets that are asked about are marked in its notes.

    Args:
        build: After its first pass.
        contact: Asks the servers how much context they take; None sends nothing.

    Raises:
        ConfigError: No model is named for a run, or a prompt and a response do not fit.
        TeacherError: A model is not known, or cannot run here.
    """

    def __init__(self, build: Build, contact: Contact | None = None) -> None:
        self._build = build
        asked_about = set()
        for note in build.pending():
            # Two runs that share a pool have the same sets.
            note.asked = note.of not in asked_about
            asked_about.add(note.of)
        self.volumes: dict[str, tuple[ResolvedDeliberator, Volume]] = {}
        """Who is asked, and how much, by the name of each run with sets to ask about."""
        self._written: dict[str, Deliberations] = {}
        for source in build.sources:
            if next(self._sets(source), None):
                deliberator = resolve(build.config, source.config, contact)
                volume = volume_of(deliberator, (cache for _, _, cache, _ in self._sets(source)))
                self.volumes[source.name] = deliberator, volume

    def ask(self, folder: Path, on_progress: OnProgress) -> list[RedeliberationSummary]:
        """Ask, and note what is found out about the answers; ``answers`` gives them afterwards.

        Args:
            folder: Existing folder for the rows, which must outlive this.
            on_progress: Called after each cache.

        Raises:
            UserError, StoppedError, KeyboardInterrupt: As ``deliberate``.
        """
        total = sum(volume.caches for _, volume in self.volumes.values())
        asked, before = [], 0
        for source in self._build.sources:
            if source.name not in self.volumes:
                continue
            deliberator, volume = self.volumes[source.name]
            place = folder / source.name
            place.mkdir()
            written, tally = deliberate(
                deliberator,
                volume,
                self._build.config.verify,
                partial(self._pairs, source),
                place,
                partial(_show, on_progress, before, total),
            )
            self._written[source.name] = written
            for note, problem, cache, shown in self._sets(source):
                for deliberation in written.on(problem.id, cache.id):
                    seen = self._build.taker.deliberation(problem, shown, deliberation)
                    note.deliberations.append(seen)
            before += tally.caches
            asked.append(tally.asked(deliberator))
        return asked

    def answers(self, run: str, problem: Problem, cache: Cache) -> list[Deliberation]:
        """The deliberations on a cache of a run."""
        return self._written[run].on(problem.id, cache.id)

    def _pairs(self, source: SourceRun) -> Iterator[tuple[Problem, Cache]]:
        return ((problem, cache) for _, problem, cache, _ in self._sets(source))

    def _sets(
        self, source: SourceRun
    ) -> Iterator[tuple[SetNote, Problem, Cache, list[Generation]]]:
        """(Note, problem, cache, attempts that it shows) of each set of a run to ask about."""
        for trace, of_trace in self._build.traces_of(source):
            if not any(note.asked for note in of_trace.sets):
                continue
            problem, by_id = in_sets(trace.problem, of_trace.problem), generations_of(trace)
            for note in of_trace.sets:
                if not note.asked:
                    continue
                cache = self._build.cache_of(source, trace, note, of_trace.problem)
                if cache is None:
                    note.asked = False  # the student's context does not hold it
                    continue
                yield note, problem, cache, [by_id[member] for member in note.of.members]


def _show(on_progress: OnProgress, before: int, total: int, tally: DeliberationTally) -> None:
    on_progress("Asking for deliberations", before + tally.caches, total)
