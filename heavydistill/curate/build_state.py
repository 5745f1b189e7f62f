"""The state of a build: its runs, and the notes on every trace that the first pass makes.

A run is identified by the name of its folder. A run made by `heavydistill import` has no
configuration, so its wording and language come from the student's profile. The notes contain no
texts, so the memory of a build does not grow with text length.

A run's cache is used unchanged if it fits the student's context and has no text that the student
would read as a control token. Otherwise its attempts are cut again in the same order. Deliberations
on them stay valid, because they refer to attempts by number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from heavydistill.chat.student import Student
from heavydistill.config.files import json_of, text_in
from heavydistill.config.prompts import NO_PROMPTS, OwnPrompts, Wording
from heavydistill.config.run import CacheChoice, RunConfig, load_config
from heavydistill.config.sets import BuildConfig
from heavydistill.curate.candidates import (
    CandidateSet,
    Success,
    draw_sets,
    generator,
    set_of,
    success_of,
)
from heavydistill.curate.filters.contamination import ContaminationFilter
from heavydistill.curate.filters.labels import (
    ResponseSignals,
    fingerprint,
    look_at_deliberation,
    look_at_trajectory,
    spoken,
    uses_attempts,
)
from heavydistill.curate.imports.import_pools import RECORD, SOLUTIONS_FORMAT
from heavydistill.curate.mixture import preset_of
from heavydistill.errors import BudgetError, ConfigError
from heavydistill.heavy import prompts
from heavydistill.heavy.cache import recut
from heavydistill.heavy.episode import Episode, Rules
from heavydistill.heavy.pruning import defuse
from heavydistill.models.resolve import PAPER_BUDGET_TOKENS
from heavydistill.models.thinking import COMMON_TAGS
from heavydistill.models.tokenizer import TEMPLATE_TOKENS
from heavydistill.problems.procedural import MICRO_MODELS
from heavydistill.schema import Cache, Deliberation, Generation, Problem, Stratum, Trace, content_id
from heavydistill.store.atomic import Workplace
from heavydistill.store.redact import name_alone, portable_trace
from heavydistill.store.sets.set_rows import Split
from heavydistill.store.traces import TRACES_FOLDER, count_rows, read_traces
from heavydistill.text.checked_claims import attempts_by_cache

NOT_COUNTED = -1
NO_REFERENCE = "no_reference"  # label for RL: no program can repeat the verdict of a user
WITH_TOOLS = "with_tools"  # label of a problem

OnProgress = Callable[[str, int, int], None]
"""Called with (name of the pass, number of traces done, number of traces in all)."""


@dataclass(frozen=True, slots=True)
class SourceRun:
    """A run that a build reads."""

    name: str  # Name of its folder
    folder: Path
    config: RunConfig | None  # None for an imported pool
    summary: dict[str, Any]  # Content of its ``summary.json``; empty if it has none
    size: int = 0  # Number of traces
    has_solutions: bool = False  # Whether its pools are worked solutions, not a model's attempts

    def traces(self) -> Iterator[Trace]:
        """Yield the run's traces, one row group in memory; model paths are replaced by names."""
        return map(portable_trace, read_traces(self.folder))

    @property
    def prompts(self) -> OwnPrompts:
        """Return the user's prompts in the run's configuration."""
        return self.config.prompts if self.config else NO_PROMPTS

    @property
    def is_toy(self) -> bool:
        """Return whether the run's configuration names only the bundled micro models."""
        config = self.config
        return bool(config and not config.pools and MICRO_MODELS.issuperset(config.model_names))


def open_sources(folders: Sequence[str]) -> list[SourceRun]:
    """Open the runs in these folders, in the given order.

    Raises ConfigError if a folder has no finished run, a run of another schema version, or a run
    that is still being written, or if two runs have the same name.
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
    config = folder / "config.yaml"
    return SourceRun(
        name=folder.name,
        folder=folder,
        config=load_config(config) if config.is_file() else None,
        summary=_json_in(folder / "summary.json"),
        size=count_rows(folder / TRACES_FOLDER),
        has_solutions=_json_in(folder / RECORD).get("format") == SOLUTIONS_FORMAT,
    )


def _json_in(file: Path) -> dict[str, Any]:
    """Return the content of a file of a run; empty if the run has none."""
    try:
        return json_of(text_in(file)) if file.is_file() else {}
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{file} cannot be read as JSON: {error}", "Generate or import the run again."
        ) from error


@dataclass(slots=True)
class ProblemNote:
    """What a build notes about a problem."""

    domain: str  # Domain; determines the wording of its prompts
    label: str = ""  # ``with_tools``, ``contaminated``, ``near_duplicate``, or empty
    detail: str = ""  # If it has a label: the benchmark or the other problem where it was found
    runs: list[str] = field(default_factory=list)  # Runs that contain the problem, as ``RUN/ID``
    split: Split | None = None  # Split of its rows; None if the problem has a label


@dataclass(slots=True)
class GenerationNote:
    """What a build notes about an attempt or a deliberation."""

    id: str
    label: str  # Reason for excluding it from training; empty if it is used
    tokens: int  # Number of tokens by the student's tokenizer; ``NOT_COUNTED`` if filtered
    answer_tokens: int  # Number of tokens of the answer text only
    fingerprint: str  # Equal for texts that differ only in typography
    model: str  # Model that wrote it
    right: bool | None = None  # Only for deliberations, as the next field
    signs: ResponseSignals | None = None


@dataclass(slots=True)
class SetNote:
    """What a build notes about a candidate set and its deliberations."""

    of: CandidateSet
    cache: str | None  # Id of the run's cache; None if the build drew the set
    thinkers: tuple[str, ...]  # Models that wrote its attempts, sorted
    deliberations: list[GenerationNote] = field(default_factory=list)
    wanted: bool = False
    """Whether the mixture selects the set, or would select it if it had a usable deliberation."""
    asked: bool = False  # Whether the build requests deliberations on it
    sft_label: str = ""  # Reason for having no deliberator row; empty if it has one
    rl_label: str = ""  # Reason for not being an RL prompt; empty if it is one

    @property
    def stratum(self) -> Stratum:
        return self.of.stratum

    @property
    def usable(self) -> list[GenerationNote]:
        """Return the deliberations without a label, which are used for training."""
        return [note for note in self.deliberations if not note.label]

    @property
    def success(self) -> Success:
        """Return the success rate of the set's deliberations."""
        return success_of(note.right for note in self.deliberations)


@dataclass(slots=True)
class TraceNote:
    """What a build notes about a trace: its attempts and its candidate sets."""

    problem: str  # Id of the problem in the sets
    trajectories: list[GenerationNote]  # Notes on the attempts of its pool, in order
    sets: list[SetNote]  # Sets of the run, then sets drawn by the build


@dataclass(frozen=True, slots=True)
class SetOfTrace:
    """A candidate set with its texts, while its trace is in memory."""

    source: SourceRun
    problem: Problem  # The problem, with its id in the sets
    note: SetNote
    cache: Cache  # Cache of the run, or of a drawn set
    shown: list[Generation]  # Full texts of the generations in the cache, in its order


class BuildState:
    """The runs of a build, and the notes that it keeps between its two passes.

    ``config`` must name a student. Raises UserError if a configured file or model cannot be used.
    """

    def __init__(self, config: BuildConfig, sources: Sequence[SourceRun]) -> None:
        template = Path(config.chat_template) if config.chat_template else None
        self.config, self.sources = config, sources
        self.preset = preset_of(config)
        self.student = Student(str(config.student), template, has_system=config.system is None)
        self.own_names = frozenset(map(name_alone, self.student.aliases))
        """Names of the student in the traces; they identify its own attempts."""
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
        """Maximum number of tokens of a drawn cache, and of an RL prompt."""
        self.screen = ContaminationFilter(config.against)
        self.problems: dict[str, ProblemNote] = {}
        """Notes by problem id in the sets; the same problem has the same id in every run."""
        self.notes: dict[str, list[TraceNote]] = {source.name: [] for source in sources}
        """Notes on the traces of each run, in order, by name of the run."""
        self.mixture: dict[CandidateSet, str] = {}
        """Label by the mixture for each set that has a usable deliberation."""
        self.undeliberated = 0  # Sets selected by the mixture but without a usable deliberation
        self.attention: Counter[str] = Counter()
        """Counts of the texts examined, and of those that refer to the attempts."""

    @property
    def all_notes(self) -> list[TraceNote]:
        """Return the notes on all traces, in the order of the runs."""
        return [note for source in self.sources for note in self.notes[source.name]]

    @property
    def sets(self) -> list[SetNote]:
        """Return the notes on all sets, in the order of the traces."""
        return [note for trace in self.all_notes for note in trace.sets]

    def pending(self) -> list[SetNote]:
        """Return the sets selected by the mixture that have no usable deliberation."""
        return [note for note in self.sets if note.wanted and not note.usable]

    def traces_of(self, source: SourceRun) -> Iterator[tuple[Trace, TraceNote]]:
        """Yield the traces of a run with their notes; problems have the ids used in the sets."""
        for trace, note in zip(source.traces(), self.notes[source.name], strict=True):
            yield replace(trace, problem=replace(trace.problem, id=note.problem)), note

    def with_cache(self, source: SourceRun, trace: Trace, note: SetNote) -> SetOfTrace | None:
        """Return a set with its cache; None if the final answers alone exceed the token budget."""
        if note.cache:
            cache = next(cache for cache in trace.caches if cache.id == note.cache)
        else:
            try:
                cache = Episode(
                    trace.problem,
                    Rules(
                        cache=CacheChoice(
                            pruning=self.config.cache.pruning,
                            budget_tokens=max(1, self.budget_tokens),  # which holds nothing either
                        ),
                        seed=generator(self.config.seed, *note.of.members).getrandbits(31),
                    ),
                    deliberator=self.wording("deliberator", source, trace.problem),
                    reader=self.student.reader,
                    pool=[attempt for attempt in trace.pool if attempt.id in note.of.members],
                ).new_cache()
            except BudgetError:
                return None
        shown = attempts_by_cache(replace(trace, caches=[cache]))[cache.id]
        return SetOfTrace(source, trace.problem, note, cache, shown)

    def readable(self, of_trace: SetOfTrace, most_tokens: int) -> Cache | None:
        """Return the cache of a set: the same object if the student can read it, else a new one.

        Under another wording than the full one it is new, and shows no more of the attempts.
        ``most_tokens`` limits the prompt including the chat template; the preset may set a lower
        limit. Returns None if even the final answers do not fit.
        """
        cache = of_trace.cache
        most_tokens = min(most_tokens, self.preset.most_tokens or self.max_tokens)
        # The tags are of the wording, since every cache has those of its texts broken.
        plain = re.sub("|".join(COMMON_TAGS), "", cache.prompt)
        _, control_tokens = defuse(plain, self.student.reader.control_tokens)
        problem, reader = of_trace.problem, self.student.reader
        tokens = self.student.prompt_tokens(cache.prompt, problem.history)
        level = self.level_of(of_trace.note)
        if tokens <= most_tokens and not control_tokens and level == "full":
            return cache
        # ``recut`` counts the turns before the problem again.
        around = tokens - reader.count(cache.prompt) - reader.count(problem.history_json)
        budget = most_tokens - around
        own = self.config.prompts, of_trace.source.prompts
        prompt = prompts.of_version(cache.prompt_version, *own)
        if level != "full":
            budget = min(budget, max(cache.budget_tokens, tokens - around))
            prompt = None
        try:
            return recut(
                problem,
                cache,
                of_trace.shown,
                budget_tokens=budget,
                prompt=prompt or self._at_level(level, of_trace.source, problem),
                reader=reader,
            )
        except BudgetError:
            return None

    def level_of(self, note: SetNote) -> Wording:
        """Return the wording of a set's cache, drawn by a hash of the set.

        Held-out problems keep the full one, so that evaluations of all trainings compare.
        """
        shares = self.config.wordings
        if not shares or self.problems[note.of.problem].split == "validation":
            return "full"
        levels = sorted(shares)
        rng = generator(self.config.seed, "wording", note.of.problem, note.of.texts)
        return rng.choices(levels, [shares[level] for level in levels])[0]

    def _at_level(self, level: Wording, source: SourceRun, problem: Problem) -> prompts.Prompt:
        domain, own = self._domain_of(source, problem), self.prompts_of(source)
        return prompts.at_level(level, domain, self.language_of(source), own)

    def language_of(self, source: SourceRun) -> str:
        """Return the language of the prompts of a run."""
        return source.config.language if source.config else "en"

    def wording(self, role: prompts.Role, source: SourceRun, problem: Problem) -> prompts.Prompt:
        domain, own = self._domain_of(source, problem), self.prompts_of(source)
        return prompts.load(role, domain, self.language_of(source), own)

    def prompts_of(self, source: SourceRun) -> OwnPrompts:
        """Return the user's prompts for the rows of a run: those of the build, or of the run."""
        return self.config.prompts.over(source.prompts)

    def _domain_of(self, source: SourceRun, problem: Problem) -> str:
        given = source.config and source.config.domain
        return problem.domain or given or self.student.domain

    def read(self, on_progress: OnProgress) -> None:
        """Run the first pass: make notes on all traces.

        Raises ConfigError if ``--cache-from`` excludes the authors of all attempts, or if the
        configuration names ``filters.false_claims`` or ``also`` and a run has no verdicts on its
            attempts.
        """
        total, done = sum(source.size for source in self.sources), 0
        writers: set[str] = set()
        for source in self.sources:
            is_judged = False
            for trace in source.traces():
                self.notes[source.name].append(self._look(source, trace))
                writers.update(attempt.model for attempt in trace.pool)
                is_judged = is_judged or any(each.right is not None for each in trace.pool)
                done += 1
                on_progress("Reading traces", done, total)
            if not is_judged:
                self._require_no_claims(source)
        if writers and not any(map(self._may_stand, writers)):
            written_by = self.config.sets.written_by
            raise ConfigError(
                f"--cache-from {written_by} finds no attempts: all are by "
                f"{', '.join(sorted(writers))}, and the student is known as "
                f"{', '.join(sorted(self.own_names))}",
                "Give the model that wrote them as --student, or leave out --cache-from."
                if written_by == "student"
                else "Give runs of another model, or leave out --cache-from.",
            )

    def _require_no_claims(self, source: SourceRun) -> None:
        """Raise an error if a run without verdicts was to have its claims checked, or pairs."""
        filters, key, fix = self.config.filters, "", ""
        if filters.false_claims == "leave_out" and "false_claims" in filters.model_fields_set:
            key, fix = "filters.false_claims", "set filters.false_claims to keep"
        if self.config.also:
            key, fix = "also", "leave out also"
        if key:
            raise ConfigError(
                f"{key}: the run {source.name} has no attempt with the verdict correct or "
                "incorrect, so no claim about its attempts can be checked",
                "Judge the run again with `heavydistill replay RUN --out FOLDER`, which sends no "
                f"request, or {fix}.",
            )

    def look_at_deliberation(
        self, problem: Problem, shown: Sequence[Generation], deliberation: Deliberation
    ) -> GenerationNote:
        """Return the notes on a deliberation on a set."""
        label, signs = look_at_deliberation(problem, shown, deliberation, self.config.filters)
        if deliberation.is_correct and deliberation.unusable_because is None:
            self.attention["deliberations"] += 1
            self.attention["using"] += signs.uses_attempts
            self.attention["false_claims"] += signs.false_claims > 0
            self.attention["leaks_attempts"] += signs.leaks_attempts
            is_without = not deliberation.reasoning.strip()
            self.attention["leaks_without_thinking"] += signs.leaks_attempts and is_without
        return self._note(deliberation, label, right=deliberation.right, signs=signs)

    def _look(self, source: SourceRun, trace: Trace) -> TraceNote:
        """Return the notes on a trace; the first trace of a problem also screens the problem."""
        problem = trace.problem
        _refuse_tools(source, trace)
        parts = (problem.text, problem.reference, problem.verifier, problem.verifier_args)
        key = content_id("p", *parts, *filter(None, [problem.history_json]))
        if key not in self.problems:
            domain = self._domain_of(source, problem)
            is_plain = problem.is_text_alone
            found = self.screen.look(key, problem) if is_plain else (WITH_TOOLS, "")
            self.problems[key] = ProblemNote(domain, *found)
            for level in self.config.wordings or ():
                self._at_level(level, source, problem)  # refused before anything is asked
        self.problems[key].runs.append(f"{source.name}/{problem.id}")
        note = TraceNote(key, [], [])
        for attempt in trace.pool:
            is_solution = source.has_solutions
            label = look_at_trajectory(problem, attempt, self.config.filters, is_solution)
            if attempt.is_correct and attempt.unusable_because is None:
                self.attention["blind"] += 1
                widest = self.preset.widths[-1]
                signs = uses_attempts(spoken(attempt), widest, problem.transcript)
                self.attention["blind_using"] += signs
            note.trajectories.append(self._note(attempt, label))
        if not problem.is_text_alone:  # no prompt of a set holds such turns
            return note
        attempts = attempts_by_cache(trace)
        unfit = NO_REFERENCE if problem.is_served else ""
        for cache in trace.caches:
            shown = attempts[cache.id]
            own = SetNote(set_of(key, shown), cache.id, _writers(shown), rl_label=unfit)
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
            SetNote(of, None, _writers(t for t in pool if t.id in of.members), rl_label=unfit)
            for of in drawn
        ]
        return note

    def _note(self, generation: Generation, label: str, **more: Any) -> GenerationNote:
        tokens = answer = NOT_COUNTED
        if not label:
            answer = self.student.reader.count(generation.answer_text)
            thinking = generation.reasoning and self.student.reader.count(generation.reasoning)
            tokens = answer + (thinking or 0)
        same, model = fingerprint(generation), generation.model
        return GenerationNote(generation.id, label, tokens, answer, same, model, **more)

    def _may_stand(self, model: str) -> bool:
        """Return whether ``--cache-from`` allows attempts of a model."""
        written_by = self.config.sets.written_by
        return written_by == "any" or (written_by == "student") == (model in self.own_names)


def _refuse_tools(source: SourceRun, trace: Trace) -> None:
    """Raise ConfigError if rows of a trace would lose turns, or learn what a tool returned.

    Those of a service, whose conversations nobody chose, are labelled instead.
    """
    if trace.problem.is_served:
        return
    if not trace.problem.is_text_alone:
        raise ConfigError(
            f"The run {source.name}: a turn before the text of problem {trace.problem.id} has tool "
            "calls, a tool's result or thinking, and the prompts of sets hold text alone",
            "Build sets from runs on problems whose messages have only roles and contents.",
        )
    for generation in (*trace.pool, *trace.deliberations):
        if generation.turns_json:
            raise ConfigError(
                f"The run {source.name}: generation {generation.id} of problem {trace.problem.id} "
                "has several turns, and the rows of sets hold one",
                "Build sets from runs whose models answer in one turn, i.e. without tools.",
            )


def _writers(shown: Iterable[Generation]) -> tuple[str, ...]:
    return tuple(sorted({generation.model for generation in shown}))
