"""The first pass over the traces: what must be known of all before any row is written.

Texts are not kept, only what was found out about them, so that the memory of a build does not
grow with their length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from heavydistill.chat.student import Student
from heavydistill.config.sets import BuildConfig
from heavydistill.curate.candidates import (
    CandidateSet,
    Success,
    draw_sets,
    is_right,
    set_of,
    success_of,
)
from heavydistill.curate.filters.attention import blind
from heavydistill.curate.filters.contamination import Screen
from heavydistill.curate.filters.labels import fingerprint, look_at_deliberation, look_at_trajectory
from heavydistill.curate.mixture import Mixture, Preset
from heavydistill.curate.prompts import Prompter, in_sets
from heavydistill.curate.sources import SourceRun, key_of
from heavydistill.errors import ConfigError
from heavydistill.schema import (
    Cache,
    Deliberation,
    Generation,
    Problem,
    Stratum,
    Trace,
    Trajectory,
)
from heavydistill.store.redact import name_alone
from heavydistill.store.sets.rows import Split

NOT_COUNTED = -1

OnProgress = Callable[[str, int, int], None]
"""Called with (what is done, traces done, traces in all)."""


@dataclass(slots=True)
class ProblemNote:
    """What is known of a problem of the build."""

    domain: str  # wording of its prompts
    label: str = ""  # ``contaminated``, ``near_duplicate``, or empty
    detail: str = ""  # where it stands, if it has a label
    runs: list[str] = field(default_factory=list)  # where it is, as ``RUN/ID``
    split: Split | None = None  # where its rows go; None if it has a label


@dataclass(slots=True)
class GenerationNote:
    """What is known of an attempt or a deliberation."""

    id: str
    label: str  # why it is not learnt from, or empty
    tokens: int  # in the student's tokenizer, if it passed the filters; else ``NOT_COUNTED``
    answer_tokens: int  # likewise, of the answer text alone
    fingerprint: str  # the same for texts that say the same


@dataclass(slots=True)
class DeliberationNote(GenerationNote):
    """What is known of a deliberation."""

    right: bool | None  # see ``candidates.is_right``
    model: str  # its author
    uses_attempts: bool  # whether it works with the attempts
    copied: float  # the share of it that is one attempt's


@dataclass(slots=True)
class SetNote:
    """What is known of a candidate set."""

    of: CandidateSet
    cache: str | None  # id of the run's cache of it; None if it was drawn
    thinkers: tuple[str, ...]  # authors of its attempts, sorted
    deliberations: list[DeliberationNote] = field(default_factory=list)
    wanted: bool = False
    """Whether the mixture takes it, or would if it had a deliberation to learn from."""
    asked: bool = False  # whether the build itself asks for deliberations on it
    sft_label: str = ""  # why it gives no row of the deliberator, or empty
    rl_label: str = ""  # why it gives no prompt of RL, or empty

    @property
    def stratum(self) -> Stratum:
        return self.of.stratum

    @property
    def usable(self) -> list[DeliberationNote]:
        """The deliberations that are learnt from."""
        return [note for note in self.deliberations if not note.label]

    @property
    def success(self) -> Success:
        """How often its deliberations are right."""
        return success_of(note.right for note in self.deliberations)


@dataclass(slots=True)
class TraceNote:
    """What is known of a trace."""

    problem: str  # id of the problem in the sets
    trajectories: list[GenerationNote]  # of its pool, in order
    sets: list[SetNote]  # those of the run, then those that were drawn


@dataclass(slots=True)
class AttentionCount:
    """How many texts show the signs of work with the attempts, and how many were looked at."""

    deliberations: int = 0
    using: int = 0
    blind: int = 0
    blind_using: int = 0


@dataclass(slots=True)
class Build:
    """A build between its two passes."""

    config: BuildConfig
    preset: Preset
    student: Student
    prompter: Prompter
    sources: list[SourceRun]  # the runs
    screen: Screen  # what problems were compared with
    taker: NoteTaker
    problems: dict[str, ProblemNote]  # by their ids in the sets
    notes: dict[str, list[TraceNote]]  # of each trace of a run, in order, by the run's name
    mixture: Mixture  # of the sets that rows of the deliberator are made of
    undeliberated: int = 0  # sets that the mixture would take beside them

    @property
    def all_notes(self) -> list[TraceNote]:
        """The notes of all traces, in the order of the runs."""
        return [note for source in self.sources for note in self.notes[source.name]]

    def pending(self) -> list[SetNote]:
        """The sets of the mixture that have no deliberation to learn from."""
        sets = (note for trace in self.all_notes for note in trace.sets)
        return [note for note in sets if note.wanted and not note.usable]

    def traces_of(self, source: SourceRun) -> Iterator[tuple[Trace, TraceNote]]:
        """The traces of a run with what is known of them."""
        return zip(source.traces(), self.notes[source.name], strict=True)

    def cache_of(self, source: SourceRun, trace: Trace, note: SetNote, key: str) -> Cache | None:
        """The cache of a set: the run's, or a drawn one; None if the student cannot hold it."""
        if note.cache:
            return next(cache for cache in trace.caches if cache.id == note.cache)
        return self.prompter.drawn(source, in_sets(trace.problem, key), note.of, trace.pool)


class NoteTaker:
    """Looks at traces, one after the other.

    Args:
        config: The build's.
        preset: Its mixture.
        student: Whose tokens are counted.
    """

    def __init__(self, config: BuildConfig, preset: Preset, student: Student) -> None:
        self._config, self._preset, self._student = config, preset, student
        self._own_names = own_names(student)
        self.attention = AttentionCount()
        """Over all traces so far."""
        self.writers: set[str] = set()
        """Authors of all attempts so far."""

    def look(self, trace: Trace) -> TraceNote:
        """What is to be known of a trace."""
        key = key_of(trace.problem)
        note = TraceNote(key, [self._attempt(trace.problem, t) for t in trace.pool], [])
        self.writers.update(t.model for t in trace.pool)
        by_id = generations_of(trace)
        shown_already = set()
        for cache in trace.caches:
            shown = [by_id[item.generation] for item in cache.items]
            note.sets.append(self._own_set(key, trace, cache, shown))
            shown_already.add(note.sets[-1].of.texts)
        pool = [t for t in trace.pool if t.unusable_because is None and self._may_stand(t.model)]
        if len(pool) < self._preset.fewest_attempts:
            for own in note.sets:
                own.sft_label = own.rl_label = own.sft_label or "few_attempts"
            return note
        drawn = draw_sets(
            key,
            pool,
            widths=self._preset.widths,
            most=self._config.sets.per_problem - len(note.sets),
            seed=self._config.seed,
            shown_already=shown_already,
        )
        note.sets += [SetNote(each, None, _writers(map(by_id.get, each.members))) for each in drawn]
        return note

    def deliberation(
        self, problem: Problem, shown: Sequence[Generation], deliberation: Deliberation
    ) -> DeliberationNote:
        """What is to be known of a deliberation on a set."""
        looked = look_at_deliberation(problem, shown, deliberation, self._config.filters)
        right = is_right(deliberation)
        if right and deliberation.unusable_because is None:
            self.attention.deliberations += 1
            self.attention.using += looked.uses_attempts
        tokens, answer_tokens = self._tokens(deliberation, looked.label)
        return DeliberationNote(
            id=deliberation.id,
            label=looked.label,
            tokens=tokens,
            answer_tokens=answer_tokens,
            fingerprint=fingerprint(deliberation),
            right=right,
            model=deliberation.model,
            uses_attempts=looked.uses_attempts,
            copied=looked.copied,
        )

    def demand_attempts(self) -> None:
        """Check that there are attempts that may stand in a set.

        Raises:
            ConfigError: No attempt is by an author whose attempts may.
        """
        if self.writers and not any(map(self._may_stand, self.writers)):
            written_by, writers = self._config.sets.written_by, ", ".join(sorted(self.writers))
            own = ", ".join(sorted(self._own_names))
            raise ConfigError(
                f"Only attempts of the {written_by} are wanted (--cache-from), and there are none: "
                f"all are by {writers}, and the student is known as {own}",
                "Give --student the model that wrote them, or leave out --cache-from."
                if written_by == "student"
                else "Give runs of another model, or leave out --cache-from.",
            )

    def _own_set(
        self, key: str, trace: Trace, cache: Cache, shown: Sequence[Generation]
    ) -> SetNote:
        note = SetNote(set_of(key, shown), cache.id, _writers(shown))
        note.deliberations = [
            self.deliberation(trace.problem, shown, deliberation)
            for deliberation in trace.deliberations
            if deliberation.cache == cache.id
        ]
        if not all(map(self._may_stand, note.thinkers)):
            note.sft_label = note.rl_label = "other_writer"
        return note

    def _attempt(self, problem: Problem, trajectory: Trajectory) -> GenerationNote:
        label = look_at_trajectory(problem, trajectory)
        if trajectory.is_correct and trajectory.unusable_because is None:
            self.attention.blind += 1
            self.attention.blind_using += blind(trajectory, self._preset.widths[-1], problem.text)
        tokens, answer_tokens = self._tokens(trajectory, label)
        return GenerationNote(trajectory.id, label, tokens, answer_tokens, fingerprint(trajectory))

    def _tokens(self, generation: Generation, label: str) -> tuple[int, int]:
        if label:
            return NOT_COUNTED, NOT_COUNTED
        answer = self._student.reader.count(generation.answer_text)
        thinking = generation.reasoning and self._student.reader.count(generation.reasoning)
        return answer + (thinking or 0), answer

    def _may_stand(self, model: str) -> bool:
        """Whether the attempts of a model may stand in a set."""
        written_by = self._config.sets.written_by
        return written_by == "any" or (written_by == "student") == (model in self._own_names)


def generations_of(trace: Trace) -> Mapping[str, Generation]:
    """What a cache of the trace may show, by id."""
    return {each.id: each for each in (*trace.pool, *trace.deliberations)}


def own_names(student: Student) -> frozenset[str]:
    """The names under which a student's own attempts are known in the traces of a source."""
    return frozenset(map(name_alone, student.aliases))


def _writers(shown: Iterable[Generation | None]) -> tuple[str, ...]:
    return tuple(sorted({generation.model for generation in shown if generation}))
