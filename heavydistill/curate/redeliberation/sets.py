"""Deliberations that a build asks for, on sets of the mixture that have none to learn from.

They are asked for in a pass of their own, before anything is chosen, and only what was found out
about them is remembered. When rows are written, their texts come from the journal.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import replace

from heavydistill.config.sets import BuildConfig
from heavydistill.curate.notes import Build, OnProgress, SetNote, generations_of
from heavydistill.curate.prompts import in_sets
from heavydistill.curate.redeliberation.asking import Asking, Volume, resolve, volume_of
from heavydistill.curate.redeliberation.deliberator import Deliberator
from heavydistill.curate.rows import Answers
from heavydistill.curate.sources import Source, open_sources
from heavydistill.models.contact import Contact
from heavydistill.schema import Cache, Deliberation, Generation, Problem, Verdict
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
    """What a build asks for.

    Args:
        build: After its first pass. The sets that are asked about are marked in its notes.
        contact: Asks the servers how much context they take; None sends nothing.

    Attributes:
        volumes: Who is asked, and how much, by the name of each run that has something to ask
            about.

    Raises:
        ConfigError: Nobody is named for a run, or a prompt and a response do not fit.
        TeacherError: Somebody is not known, or cannot run here.
    """

    def __init__(self, build: Build, contact: Contact | None = None) -> None:
        self._build = build
        self._verdicts: dict[str, Verdict | None] = {}
        asked_about = set()
        for one in build.pending():
            # Two runs that share a pool have the same sets.
            one.asked = one.of not in asked_about
            asked_about.add(one.of)
        self.volumes: dict[str, tuple[Asking, Volume]] = {}
        for source in build.sources:
            if next(self._sets(source), None):
                asking = resolve(build.config, source.config, contact)
                volume = volume_of(asking, (cache for _, _, cache, _ in self._sets(source)))
                self.volumes[source.name] = asking, volume

    def ask(self, on_progress: OnProgress) -> list[RedeliberationSummary]:
        """Ask, and note what is found out about the answers.

        Args:
            on_progress: Called after each set.

        Raises:
            UserError, StoppedError: As of ``Deliberator``; what was answered is kept.
        """
        done, total = 0, sum(volume.caches for _, volume in self.volumes.values())
        asked = []
        for source in self._build.sources:
            if source.name not in self.volumes:
                continue
            ours, theirs = itertools.tee(self._sets(source))
            pairs = ((problem, cache) for _, problem, cache, _ in theirs)
            with self._deliberator(source.name) as deliberator:
                for (one, problem, _, shown), (_, answers) in zip(
                    ours, deliberator.ask(pairs), strict=True
                ):
                    for answer in answers:
                        self._verdicts[answer.id] = answer.verdict
                        note = self._build.taker.deliberation(problem, shown, answer)
                        one.deliberations.append(note)
                    done += 1
                    on_progress("Asking for deliberations", done, total)
                asked.append(deliberator.asked)
        return asked

    @contextlib.contextmanager
    def again(self) -> Iterator[Answers]:
        """Gives the same answers once more, from the journal; nobody is asked."""
        with contextlib.ExitStack() as held:
            replaying = {
                name: held.enter_context(self._deliberator(name, replay=True))
                for name in self.volumes
            }

            def answers(run: str, problem: Problem, cache: Cache) -> list[Deliberation]:
                ((_, found),) = replaying[run].ask([(problem, cache)])
                # A verifier that ran into a limit once may not do so again.
                return [replace(one, verdict=self._verdicts[one.id]) for one in found]

            yield answers

    def _deliberator(self, run: str, replay: bool = False) -> Deliberator:
        asking, volume = self.volumes[run]
        return Deliberator(asking, self._build.config.verify, replay, volume.longest)

    def _sets(self, source: Source) -> Iterator[tuple[SetNote, Problem, Cache, list[Generation]]]:
        """(note, problem, cache, attempts that it shows) of each set of a run to ask about."""
        for trace, note in self._build.traces_of(source):
            if not any(one.asked for one in note.sets):
                continue
            problem = in_sets(trace.problem, note.problem)
            by_id = generations_of(trace)
            for one in note.sets:
                if not one.asked:
                    continue
                cache = self._build.cache_of(source, trace, one, note.problem)
                if cache is None:
                    one.asked = False  # the student's context does not hold it
                    continue
                yield one, problem, cache, [by_id[member] for member in one.of.members]
