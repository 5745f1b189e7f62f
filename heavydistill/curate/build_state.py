"""The state of a build: its runs, and its notes of every trace, which the first pass takes.

A run is identified by the name of its folder. One that `heavydistill import` wrote has no
configuration, so that its wording and language come from the student's profile. The notes hold no
texts, so that the memory of a build does not grow with their length.

A run's own cache is used unchanged if the student can read it: it fits, and holds no text that the
student would take for a control token. Otherwise its attempts are cut again in the same order, and
the deliberations on them stay valid, because they refer to attempts by number.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from heavydistill.chat.student import Student
from heavydistill.config.run import RunConfig, load_config
from heavydistill.config.sets import BuildConfig
from heavydistill.curate.candidates import (
    CandidateSet,
    Success,
    draw_sets,
    generator,
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
from heavydistill.curate.mixture import preset_of
from heavydistill.errors import BudgetError, ConfigError
from heavydistill.heavy import prompts
from heavydistill.heavy.cache import build_cache, recut
from heavydistill.heavy.pruning import defuse
from heavydistill.models.resolve import PAPER_BUDGET_TOKENS
from heavydistill.models.tokenizer import TEMPLATE_TOKENS
from heavydistill.schema import Cache, Deliberation, Generation, Problem, Stratum, Trace, content_id
from heavydistill.store.atomic import Workplace
from heavydistill.store.portable import name_alone
from heavydistill.store.sets.set_rows import Split
from heavydistill.store.traces import TRACES_FOLDER, count_rows, read_traces

NOT_COUNTED = -1

OnProgress = Callable[[str, int, int], None]
"""Called with (name of the pass, traces done, traces in all)."""
_MICRO_MODELS = frozenset({"micro", "micro-student"})


@dataclass(frozen=True, slots=True)
class SourceRun:
    """A run from which a build reads."""

    name: str  # Name of its folder
    folder: Path
    config: RunConfig | None  # None for an imported pool
    summary: dict[str, Any]  # Content of its ``summary.json``; empty if it has none
    size: int = 0  # Number of traces

    def traces(self) -> Iterator[Trace]:
        """Traces of the run, one row group in memory at a time; paths of models become names."""
        for trace in read_traces(self.folder):
            yield replace(
                trace,
                pool=[replace(t, model=name_alone(t.model)) for t in trace.pool],
                deliberations=[replace(d, model=name_alone(d.model)) for d in trace.deliberations],
                caches=[replace(cache, reader=name_alone(cache.reader)) for cache in trace.caches],
            )

    @property
    def is_toy(self) -> bool:
        """Whether only the bundled micro models wrote it, by its configuration."""
        return bool(
            self.config and not self.config.pools and _MICRO_MODELS.issuperset(self.config.roles)
        )


def open_sources(folders: Sequence[str]) -> list[SourceRun]:
    """The runs of these folders, in their order.

    Raises ConfigError where a folder holds no finished run, one of another schema version or one
    that is still written to, or where two runs have one name.
    """
    sources = [_open(Path(folder).resolve()) for folder in folders]
    names = [source.name for source in sources]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(
            f"Two of the runs are named {twice}, and rows refer to their run by its name",
            "Give each run once, or rename one of the folders if they are different runs.",
        )
    return sources


def _open(folder: Path) -> SourceRun:
    if Workplace(folder).is_claimed:
        raise ConfigError(
            f"{folder} is still being written by a run",
            "Wait for its end, or interrupt it: finished problems are kept.",
        )
    read_traces(folder)
    config, file = folder / "config.yaml", folder / "summary.json"
    try:
        summary = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except ValueError as error:
        raise ConfigError(f"{file} is not JSON: {error}", "Generate the run again.") from error
    return SourceRun(
        name=folder.name,
        folder=folder,
        config=load_config(config) if config.is_file() else None,
        summary=summary,
        size=count_rows(folder / TRACES_FOLDER),
    )


@dataclass(slots=True)
class ProblemNote:
    """Notes of a problem of the build."""

    domain: str  # Wording of its prompts
    label: str = ""  # ``contaminated``, ``near_duplicate``, or empty
    detail: str = ""  # Benchmark or other problem in which it was found, if it has a label
    runs: list[str] = field(default_factory=list)  # Runs that have it, as ``RUN/ID``
    split: Split | None = None  # Split of its rows; None if it has a label


@dataclass(slots=True)
class GenerationNote:
    """Notes of an attempt or a deliberation."""

    id: str
    label: str  # Reason why it is not learnt from, or empty
    tokens: int  # Tokens by the student's tokenizer; ``NOT_COUNTED`` if a filter came first
    answer_tokens: int  # The same for the answer text only
    fingerprint: str  # Equal for texts that differ only in typography
    model: str  # Its author
    right: bool | None = None  # Deliberations only, like the next two; see ``is_right``
    uses_attempts: bool = False  # Whether it works with the attempts
    copied: float = 0.0  # Largest share of its answer that one attempt holds


@dataclass(slots=True)
class SetNote:
    """Notes of a candidate set."""

    of: CandidateSet
    cache: str | None  # Id of the run's cache of it; None if the set was drawn
    thinkers: tuple[str, ...]  # Authors of its attempts, sorted
    deliberations: list[GenerationNote] = field(default_factory=list)
    wanted: bool = False
    """Whether the mixture takes it, or would take it with a deliberation to learn from."""
    asked: bool = False  # Whether the build itself asks for deliberations on it
    sft_label: str = ""  # Reason why it gives no row of the deliberator, or empty
    rl_label: str = ""  # Reason why it gives no prompt of RL, or empty

    @property
    def stratum(self) -> Stratum:
        return self.of.stratum

    @property
    def usable(self) -> list[GenerationNote]:
        """The deliberations without a label, which are learnt from."""
        return [note for note in self.deliberations if not note.label]

    @property
    def success(self) -> Success:
        """How often its deliberations are right."""
        return success_of(note.right for note in self.deliberations)


@dataclass(slots=True)
class TraceNote:
    """Notes of a trace."""

    problem: str  # Id of the problem in the sets
    trajectories: list[GenerationNote]  # Notes of its pool, in order
    sets: list[SetNote]  # Sets of the run, then drawn ones


@dataclass(frozen=True, slots=True)
class SetOfTrace:
    """A candidate set while its trace is in memory."""

    source: SourceRun
    problem: Problem  # With its id in the sets
    note: SetNote
    cache: Cache  # Cache of the run, or a drawn one
    shown: list[Generation]  # Generations that the cache shows, uncut


class BuildState:
    """The runs of a build and the notes that it keeps between its two passes.

    ``config`` must name a student. Raises UserError if a file or model that it names cannot be
    used.
    """

    def __init__(self, config: BuildConfig, sources: Sequence[SourceRun]) -> None:
        template = Path(config.chat_template) if config.chat_template else None
        self.config, self.sources = config, sources
        self.preset = preset_of(config)
        self.student = Student(str(config.student), template)
        self.own_names = frozenset(map(name_alone, self.student.aliases))
        """Names of the student in the traces, by which its own attempts are found."""
        context, most = self.student.context, config.max_tokens
        if most and most > context:
            raise ConfigError(
                f"max_tokens {most} exceeds the context of {self.student.name}, {context} tokens",
                f"Set max_tokens to {context} or less.",
            )
        self.max_tokens = most or context  # Maximum number of tokens of a row
        response = min(self.student.response_tokens, self.max_tokens // 2)
        room = self.max_tokens - response - TEMPLATE_TOKENS
        paper = config.cache.budget_tokens or PAPER_BUDGET_TOKENS
        self.budget_tokens = min(room, paper, self.preset.most_tokens or room)
        """Maximum number of tokens of a drawn cache, and of a prompt of RL."""
        self.screen = Screen(config.against)
        self.problems: dict[str, ProblemNote] = {}
        """Notes by id in the sets, which is the same for the same problem in every run."""
        self.notes: dict[str, list[TraceNote]] = {source.name: [] for source in sources}
        """Notes of the traces of each run, in order, by the run's name."""
        self.mixture: dict[CandidateSet, str] = {}
        """Label that the mixture gives each set with a deliberation to learn from."""
        self.undeliberated = 0  # Sets that the mixture would take if they had a deliberation
        self.attention: Counter[str] = Counter()
        """Numbers of texts that were examined, and of those that show work with the attempts."""

    @property
    def all_notes(self) -> list[TraceNote]:
        """The notes of all traces, in the order of the runs."""
        return [note for source in self.sources for note in self.notes[source.name]]

    @property
    def sets(self) -> list[SetNote]:
        """The notes of all sets, in the order of the traces."""
        return [note for trace in self.all_notes for note in trace.sets]

    def pending(self) -> list[SetNote]:
        """The sets of the mixture that have no deliberation to learn from."""
        return [note for note in self.sets if note.wanted and not note.usable]

    def traces_of(self, source: SourceRun) -> Iterator[tuple[Trace, TraceNote]]:
        """The traces of a run with their notes; the problem has its id in the sets."""
        for trace, note in zip(source.traces(), self.notes[source.name], strict=True):
            yield replace(trace, problem=replace(trace.problem, id=note.problem)), note

    def with_cache(self, source: SourceRun, trace: Trace, note: SetNote) -> SetOfTrace | None:
        """A set with its cache; None if the final answers alone exceed the student's budget."""
        if note.cache:
            cache = next(cache for cache in trace.caches if cache.id == note.cache)
        else:
            try:
                cache = build_cache(
                    trace.problem,
                    [attempt for attempt in trace.pool if attempt.id in note.of.members],
                    round=1,
                    seed=generator(self.config.seed, *note.of.members).getrandbits(31),
                    selection="random",
                    width=None,
                    pruning=self.config.cache.pruning,
                    budget_tokens=self.budget_tokens,
                    prompt=self.wording("deliberator", source, trace.problem),
                    reader=self.student.reader,
                )
            except BudgetError:
                return None
        by_id = generations_of(trace)
        shown = [by_id[member] for member in note.of.members]
        return SetOfTrace(source, trace.problem, note, cache, shown)

    def readable(self, of_trace: SetOfTrace, most_tokens: int) -> Cache | None:
        """The cache of a set in a form that the student can read; the same object if it fits.

        ``most_tokens`` is the maximum for the prompt with the chat template around it; the preset
        may set a smaller one. Returns None if not even the final answers fit.
        """
        cache = of_trace.cache
        most_tokens = min(most_tokens, self.preset.most_tokens or self.max_tokens)
        _, control_tokens = defuse(cache.prompt, self.student.reader.control_tokens)
        tokens = self.student.prompt_tokens(cache.prompt)
        if tokens <= most_tokens and not control_tokens:
            return cache
        around = tokens - self.student.reader.count(cache.prompt)
        try:
            return recut(
                of_trace.problem,
                cache,
                of_trace.shown,
                budget_tokens=most_tokens - around,
                prompt=prompts.of_version(cache.prompt_version)
                or self.wording("deliberator", of_trace.source, of_trace.problem),
                reader=self.student.reader,
            )
        except BudgetError:
            return None

    def wording(self, role: prompts.Role, source: SourceRun, problem: Problem) -> prompts.Prompt:
        """The wording of a role for a problem of a run."""
        language = source.config.language if source.config else "en"
        return prompts.load(role, self._domain_of(source, problem), language)

    def _domain_of(self, source: SourceRun, problem: Problem) -> str:
        given = source.config and source.config.domain
        return problem.domain or given or self.student.domain

    def read(self, on_progress: OnProgress) -> None:
        """Take notes of all traces: the first pass.

        Raises ConfigError if ``--cache-from`` excludes the authors of all attempts.
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
                f"--cache-from {written_by} finds no attempts: all are by "
                f"{', '.join(sorted(writers))}, and the student is known as "
                f"{', '.join(sorted(self.own_names))}",
                "Give --student the model that wrote them, or leave out --cache-from."
                if written_by == "student"
                else "Give runs of another model, or leave out --cache-from.",
            )

    def look_at_deliberation(
        self, problem: Problem, shown: Sequence[Generation], deliberation: Deliberation
    ) -> GenerationNote:
        """Notes of a deliberation on a set."""
        label, uses, share = look_at_deliberation(problem, shown, deliberation, self.config.filters)
        right = is_right(deliberation)
        if right and deliberation.unusable_because is None:
            self.attention["deliberations"] += 1
            self.attention["using"] += uses
        return self._note(deliberation, label, right=right, uses_attempts=uses, copied=share)

    def _look(self, source: SourceRun, trace: Trace) -> TraceNote:
        """Notes of a trace; screens its problem when it appears for the first time."""
        problem = trace.problem
        key = content_id(
            "p", problem.text, problem.reference, problem.verifier, problem.verifier_args
        )
        if key not in self.problems:
            domain = self._domain_of(source, problem)
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
            note.trajectories.append(self._note(attempt, label))
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

    def _note(self, generation: Generation, label: str, **signs: Any) -> GenerationNote:
        tokens = answer = NOT_COUNTED
        if not label:
            answer = self.student.reader.count(generation.answer_text)
            thinking = generation.reasoning and self.student.reader.count(generation.reasoning)
            tokens = answer + (thinking or 0)
        same, model = fingerprint(generation), generation.model
        return GenerationNote(generation.id, label, tokens, answer, same, model, **signs)

    def _may_stand(self, model: str) -> bool:
        """Whether ``--cache-from`` admits the attempts of a model."""
        written_by = self.config.sets.written_by
        return written_by == "any" or (written_by == "student") == (model in self.own_names)


def generations_of(trace: Trace) -> Mapping[str, Generation]:
    """All generations of the trace that a cache may show, by id."""
    return {each.id: each for each in (*trace.pool, *trace.deliberations)}


def _writers(shown: Iterable[Generation]) -> tuple[str, ...]:
    return tuple(sorted({generation.model for generation in shown}))
