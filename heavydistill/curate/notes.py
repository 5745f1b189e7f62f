"""The first pass over the traces: what must be known of all before any row is written.

Texts are not kept, only what was found out about them, so that the memory of a build does not grow
with their length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

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
from heavydistill.curate.filters.contamination import Screen
from heavydistill.curate.filters.labels import (
    fingerprint,
    look_at_deliberation,
    look_at_trajectory,
    spoken,
    uses_attempts,
)
from heavydistill.curate.mixture import Mixture, preset_of
from heavydistill.curate.prompts import Prompter
from heavydistill.curate.sources import SourceRun
from heavydistill.errors import ConfigError
from heavydistill.schema import Cache, Deliberation, Generation, Problem, Stratum, Trace, content_id
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


class Build:
    """A build: what it reads, and what is known of it between its two passes.

    Args:
        config: The build, with its student.
        sources: The runs.

    Raises:
        UserError: A file or model that it names cannot be used.
    """

    def __init__(self, config: BuildConfig, sources: Sequence[SourceRun]) -> None:
        template = Path(config.chat_template) if config.chat_template else None
        self.config, self.sources = config, sources
        self.preset = preset_of(config)
        self.student = Student(str(config.student), template)
        self.own_names = frozenset(map(name_alone, self.student.aliases))
        """Names under which the student's own attempts are known in the traces."""
        self.prompter = Prompter(config, self.preset, self.student)
        self.screen = Screen(config.against)  # What problems were compared with
        self.problems: dict[str, ProblemNote] = {}
        """By their ids in the sets, which are the same for the same problem in every run."""
        self.notes: dict[str, list[TraceNote]] = {source.name: [] for source in sources}
        """Of each trace of a run, in order, by the run's name."""
        self.mixture = Mixture(kept=[])  # Of the sets that rows of the deliberator are made of
        self.undeliberated = 0  # Sets that the mixture would take beside them
        self.attention: Counter[str] = Counter()
        """How many texts show the signs of work with the attempts, and how many were looked at."""

    @property
    def all_notes(self) -> list[TraceNote]:
        """The notes of all traces, in the order of the runs."""
        return [note for source in self.sources for note in self.notes[source.name]]

    @property
    def sets(self) -> list[SetNote]:
        """The notes of all sets, in that order."""
        return [note for trace in self.all_notes for note in trace.sets]

    def pending(self) -> list[SetNote]:
        """The sets of the mixture that have no deliberation to learn from."""
        return [note for note in self.sets if note.wanted and not note.usable]

    def traces_of(self, source: SourceRun) -> Iterator[tuple[Trace, TraceNote]]:
        """The traces of a run, with the problem's id in the sets, and what is known of them."""
        for trace, note in zip(source.traces(), self.notes[source.name], strict=True):
            yield replace(trace, problem=replace(trace.problem, id=note.problem)), note

    def cache_of(self, source: SourceRun, trace: Trace, note: SetNote) -> Cache | None:
        """The cache of a set: the run's, or a drawn one; None if the student cannot hold it."""
        if note.cache:
            return next(cache for cache in trace.caches if cache.id == note.cache)
        return self.prompter.drawn(source, trace.problem, note.of, trace.pool)

    def read(self, on_progress: OnProgress) -> None:
        """The first pass: take notes of all traces.

        Raises:
            ConfigError: No attempt is by an author whose attempts may stand in a set.
        """
        total, done = sum(source.size for source in self.sources), 0
        writers: set[str] = set()
        for source in self.sources:
            for trace in source.traces():
                self.notes[source.name].append(self._look(source, trace))
                writers.update(attempt.model for attempt in trace.pool)
                done += 1
                on_progress("Reading traces", done, total)
        if writers and not any(map(self._may_stand, writers)):
            written_by = self.config.sets.written_by
            raise ConfigError(
                f"Only attempts of the {written_by} are wanted (--cache-from), and there are none: "
                f"all are by {', '.join(sorted(writers))}, and the student is known as "
                f"{', '.join(sorted(self.own_names))}",
                "Give --student the model that wrote them, or leave out --cache-from."
                if written_by == "student"
                else "Give runs of another model, or leave out --cache-from.",
            )

    def look_at_deliberation(
        self, problem: Problem, shown: Sequence[Generation], deliberation: Deliberation
    ) -> DeliberationNote:
        """What is to be known of a deliberation on a set."""
        looked = look_at_deliberation(problem, shown, deliberation, self.config.filters)
        right = is_right(deliberation)
        if right and deliberation.unusable_because is None:
            self.attention["deliberations"] += 1
            self.attention["using"] += looked.uses_attempts
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

    def _look(self, source: SourceRun, trace: Trace) -> TraceNote:
        """What is to be known of a trace; its problem is screened when it is first seen."""
        problem = trace.problem
        key = content_id(
            "p", problem.text, problem.reference, problem.verifier, problem.verifier_args
        )
        if key not in self.problems:
            domain = source.domain_of(problem, self.student.domain)
            self.problems[key] = ProblemNote(domain, *self.screen.look(key, problem))
        self.problems[key].runs.append(f"{source.name}/{problem.id}")
        note = TraceNote(key, [], [])
        for attempt in trace.pool:
            label = look_at_trajectory(problem, attempt)
            if attempt.is_correct and attempt.unusable_because is None:
                self.attention["blind"] += 1
                widest = self.preset.widths[-1]
                signs = uses_attempts(spoken(attempt), widest, problem.text)
                self.attention["blind_using"] += signs
            tokens = self._tokens(attempt, label)
            note.trajectories.append(
                GenerationNote(attempt.id, label, *tokens, fingerprint(attempt))
            )
        by_id = generations_of(trace)
        for cache in trace.caches:
            shown = [by_id[item.generation] for item in cache.items]
            own = SetNote(set_of(key, shown), cache.id, _writers(shown))
            own.deliberations = [
                self.look_at_deliberation(problem, shown, deliberation)
                for deliberation in trace.deliberations
                if deliberation.cache == cache.id
            ]
            if not all(map(self._may_stand, own.thinkers)):
                own.sft_label = own.rl_label = "other_writer"
            note.sets.append(own)
        pool = [t for t in trace.pool if t.unusable_because is None and self._may_stand(t.model)]
        if len(pool) < self.preset.fewest_attempts:
            for own in note.sets:
                own.sft_label = own.rl_label = own.sft_label or "few_attempts"
            return note
        drawn = draw_sets(
            key,
            pool,
            widths=self.preset.widths,
            most=self.config.sets.per_problem - len(note.sets),
            seed=self.config.seed,
            shown_already={own.of.texts for own in note.sets},
        )
        note.sets += [
            SetNote(each, None, _writers(by_id[member] for member in each.members))
            for each in drawn
        ]
        return note

    def _tokens(self, generation: Generation, label: str) -> tuple[int, int]:
        if label:
            return NOT_COUNTED, NOT_COUNTED
        answer = self.student.reader.count(generation.answer_text)
        thinking = generation.reasoning and self.student.reader.count(generation.reasoning)
        return answer + (thinking or 0), answer

    def _may_stand(self, model: str) -> bool:
        """Whether the attempts of a model may stand in a set."""
        written_by = self.config.sets.written_by
        return written_by == "any" or (written_by == "student") == (model in self.own_names)


def generations_of(trace: Trace) -> Mapping[str, Generation]:
    """What a cache of the trace may show, by id."""
    return {each.id: each for each in (*trace.pool, *trace.deliberations)}


def _writers(shown: Iterable[Generation]) -> tuple[str, ...]:
    return tuple(sorted({generation.model for generation in shown}))
