"""A build: runs in, a folder of sets out.

The traces are read twice. The first pass remembers what was found out about each (``notes``); then
what is used is chosen among all of them (``choosing``); the second pass writes the rows of what was
chosen (``writing``). Where deliberations are asked for, that is a pass of its own in between, and
the second one takes their texts from the journal.

The folder appears under its name when all of it is there and the guard has found nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from heavydistill.chat.student import Student
from heavydistill.config.sets import BuildConfig
from heavydistill.curate import choosing
from heavydistill.curate.choosing import ProblemNote
from heavydistill.curate.filters.screening import Screen
from heavydistill.curate.notes import NoteTaker, SetNote, TraceNote
from heavydistill.curate.presets import PRESETS, Mixture, Preset
from heavydistill.curate.prompts import Prompter
from heavydistill.curate.sources import Source, open_sources
from heavydistill.errors import MissingModelError
from heavydistill.schema import Trace

OnProgress = Callable[[str, int, int], None]


@dataclass(slots=True)
class Build:
    """A build between its two passes.

    Attributes:
        config: Of it.
        preset: The mixture.
        student: For whom it is.
        prompter: Makes the prompts.
        sources: The runs.
        screen: What problems were compared with.
        taker: What was found out over all traces.
        problems: By their ids in the sets.
        notes: Of each trace of a run, in order, by the run's name.
        mixture: Of the sets that rows of the deliberator are made of.
        undeliberated: Sets that the mixture would take beside them.
    """

    config: BuildConfig
    preset: Preset
    student: Student
    prompter: Prompter
    sources: list[Source]
    screen: Screen
    taker: NoteTaker
    problems: dict[str, ProblemNote]
    notes: dict[str, list[TraceNote]]
    mixture: Mixture
    undeliberated: int = 0

    @property
    def all_notes(self) -> list[TraceNote]:
        """Of all traces, in the order of the runs."""
        return [note for source in self.sources for note in self.notes[source.name]]

    def traces_of(self, source: Source) -> Iterator[tuple[Trace, TraceNote]]:
        """The traces of a run with what was found out about them."""
        return zip(source.traces(), self.notes[source.name], strict=True)


def look(config: BuildConfig, on_progress: OnProgress) -> Build:
    """The first pass.

    Args:
        config: The build's; a student that it leaves open is filled in.
        on_progress: Called with (what is done, traces done, traces in all).

    Raises:
        UserError: Something that the user can mend; nothing was written.
    """
    preset = _preset(config)
    sources = open_sources(config.runs)
    name = _student_for(config, sources)
    config = config.model_copy(update={"student": name})
    student = Student(name, (config.chat_template and Path(config.chat_template)) or None)
    build = Build(
        config=config,
        preset=preset,
        student=student,
        prompter=Prompter(config, preset, student),
        sources=sources,
        screen=Screen(config.against),
        taker=NoteTaker(config, preset, student),
        problems={},
        notes={source.name: [] for source in sources},
        mixture=Mixture(kept=[]),
    )
    total, done = sum(source.traces_there for source in sources), 0
    for source in sources:
        for trace in source.traces():
            note = build.taker.look(trace)
            build.notes[source.name].append(note)
            _meet(build, source, trace, note.problem)
            done += 1
            on_progress("Reading traces", done, total)
    build.taker.demand_attempts()
    choosing.split_problems(build.problems, config.validation, config.seed)
    notes = build.all_notes
    choosing.settle_sets(notes, build.problems, config.sets.per_problem)
    for one in choosing.wanted(notes, build.problems, preset, config.seed):
        one.wanted = True
    return build


def choose(build: Build) -> None:
    """Decide what is used; changes the notes."""
    notes, problems, seed = build.all_notes, build.problems, build.config.seed
    choosing.settle_deliberations(notes, build.config.filters)
    choosing.settle_trajectories(notes, problems, build.config)
    build.undeliberated = len({one.of for one in pending(build)})
    build.mixture = choosing.choose_for_sft(notes, problems, build.preset, seed)
    choosing.choose_for_rl(notes, problems, build.preset, seed)


def pending(build: Build) -> list[SetNote]:
    """The sets of the mixture that have no deliberation to learn from."""
    return [one for note in build.all_notes for one in note.sets if one.wanted and not one.usable]


def _student_for(config: BuildConfig, sources: Sequence[Source]) -> str:
    """The student that is named, or the bundled one for runs of the bundled models alone.

    Raises:
        MissingModelError: There is another run, and no student is named.
    """
    if config.student is not None:
        return config.student
    if other := next((source for source in sources if not source.is_toy), None):
        raise MissingModelError(
            f"No student is named, and {other.name} is not a run of the bundled micro models alone",
            "Give --student MODEL, the model that you will train (a folder or Hub id): its "
            "tokenizer counts, and the rows are made for its chat template.",
            "--student MODEL",
        )
    return "micro-student"


def _preset(config: BuildConfig) -> Preset:
    preset = PRESETS[config.preset]
    widths = config.sets.widths
    return replace(preset, widths=tuple(sorted(set(widths)))) if widths else preset


def _meet(build: Build, source: Source, trace: Trace, key: str) -> None:
    """Note a problem, and look where else it stands when it is seen for the first time."""
    note = build.problems.get(key)
    if note is None:
        domain = source.domain_of(trace.problem, build.student.domain)
        label, detail = build.screen.look(key, trace.problem)
        note = build.problems[key] = ProblemNote(domain, label, detail)
    note.runs.append(f"{source.name}/{trace.problem.id}")
