"""The first pass over the traces: what must be known of all before any row is written.

Texts are not kept, only what was found out about them, so that the memory of a build does not
grow with their length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from heavydistill.chat.student import Student
from heavydistill.config.sets import BuildConfig
from heavydistill.curate.candidates import CandidateSet, draw_sets, set_of
from heavydistill.curate.filters.attention import blind
from heavydistill.curate.filters.labels import fingerprint, look_at_deliberation, look_at_trajectory
from heavydistill.curate.presets import Preset
from heavydistill.curate.redeliberation.success import Success, is_right, success_of
from heavydistill.curate.sources import key_of
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

NOT_COUNTED = -1


@dataclass(slots=True)
class GenerationNote:
    """What was found out about an attempt or a deliberation.

    Attributes:
        id: Its id.
        label: Why it is not learnt from, or empty.
        tokens: In the student's tokenizer, if it passed the filters; else ``NOT_COUNTED``.
        answer_tokens: Of the answer text alone, likewise.
        fingerprint: The same for texts that say the same.
    """

    id: str
    label: str
    tokens: int
    answer_tokens: int
    fingerprint: str


@dataclass(slots=True)
class DeliberationNote(GenerationNote):
    """A deliberation.

    Attributes:
        right: As of ``success.is_right``.
        model: Who wrote it.
        uses_attempts: Whether it works with the attempts.
        copied: The share that is one attempt's.
    """

    right: bool | None
    model: str
    uses_attempts: bool
    copied: float


@dataclass(slots=True)
class SetNote:
    """A candidate set.

    Attributes:
        of: The set.
        cache: Its id, if the run made a cache of it; None if it was drawn.
        thinkers: Who wrote its attempts, sorted.
        deliberations: On it.
        wanted: Whether the mixture takes it, or would if it had a deliberation to learn from.
        asked: Whether the build itself asks for deliberations on it.
        sft_label: Why it gives no row of the deliberator, or empty.
        rl_label: Why it gives no prompt of RL, or empty.
    """

    of: CandidateSet
    cache: str | None
    thinkers: tuple[str, ...]
    deliberations: list[DeliberationNote] = field(default_factory=list)
    wanted: bool = False
    asked: bool = False
    sft_label: str = ""
    rl_label: str = ""

    @property
    def stratum(self) -> Stratum:
        return self.of.stratum

    @property
    def usable(self) -> list[DeliberationNote]:
        """The deliberations that are learnt from."""
        return [note for note in self.deliberations if not note.label]

    @property
    def success(self) -> Success:
        """Of its deliberations."""
        return success_of(note.right for note in self.deliberations)


@dataclass(slots=True)
class TraceNote:
    """A trace.

    Attributes:
        problem: Id of the problem.
        trajectories: Of its pool, in order.
        sets: Those of the run, then those that were drawn.
    """

    problem: str
    trajectories: list[GenerationNote]
    sets: list[SetNote]


@dataclass(slots=True)
class AttentionCount:
    """How many texts show the signs of work with the attempts, and how many were looked at."""

    deliberations: int = 0
    using: int = 0
    blind: int = 0
    blind_using: int = 0


class NoteTaker:
    """Looks at traces, one after the other.

    Args:
        config: Of the build.
        preset: Its mixture.
        student: Whose tokens are counted.

    Attributes:
        attention: Over all traces so far.
        writers: Of all attempts so far.
    """

    def __init__(self, config: BuildConfig, preset: Preset, student: Student) -> None:
        self._config, self._preset, self._student = config, preset, student
        self._own_names = own_names(student)
        self.attention = AttentionCount()
        self.writers: set[str] = set()

    def look(self, trace: Trace) -> TraceNote:
        """What is to be known of a trace."""
        key = key_of(trace.problem)
        note = TraceNote(key, [self._attempt(trace.problem, t) for t in trace.pool], [])
        self.writers.update(t.model for t in trace.pool)
        by_id: dict[str, Generation] = {t.id: t for t in trace.pool}
        by_id.update((d.id, d) for d in trace.deliberations)
        taken = set()
        for cache in trace.caches:
            shown = [by_id[item.generation] for item in cache.items]
            note.sets.append(self._own_set(key, trace, cache, shown))
            taken.add(note.sets[-1].of.texts)
        pool = [t for t in trace.pool if t.unusable_because is None and self._may_stand(t.model)]
        if len(pool) < self._preset.fewest_attempts:
            for own in note.sets:
                own.sft_label = own.rl_label = own.sft_label or "few_attempts"
        else:
            drawn = draw_sets(
                key,
                pool,
                widths=self._preset.widths,
                most=self._config.sets.per_problem - len(note.sets),
                seed=self._config.seed,
                taken=taken,
            )
            note.sets += [
                SetNote(one, None, _writers(map(by_id.get, one.members))) for one in drawn
            ]
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
        """See to it that somebody wrote attempts that may stand in a set.

        Raises:
            ConfigError: Nobody whose attempts are wanted wrote any.
        """
        if self.writers and not any(map(self._may_stand, self.writers)):
            wanted, writers = self._config.sets.written_by, ", ".join(sorted(self.writers))
            own = ", ".join(sorted(self._own_names))
            raise ConfigError(
                f"Only attempts of the {wanted} are wanted (--cache-from), and there are none: all "
                f"are by {writers}, and the student is known as {own}",
                "Give --student the model that wrote them, or leave out --cache-from."
                if wanted == "student"
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
        wanted = self._config.sets.written_by
        return wanted == "any" or (wanted == "student") == (model in self._own_names)


def own_names(student: Student) -> frozenset[str]:
    """The names under which a student's own attempts are known in the traces of a source."""
    return frozenset(map(name_alone, student.aliases))


def _writers(shown: Iterable[Generation | None]) -> tuple[str, ...]:
    return tuple(sorted({generation.model for generation in shown if generation}))
