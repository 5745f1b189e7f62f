"""A build: runs in, a folder of training sets out. ``build_sets`` is its doorway.

The traces are read twice. The first pass remembers what was found out about each (``notes``); then
what is used is selected among all of them (``selection``); the second pass writes the rows of what
was selected (``rows``). Deliberations that are asked for take a pass of their own in between, and
the second one reads their texts from the journal.

The folder appears under its name when all of it is there and the guard has found nothing.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from heavydistill.chat.guard import guard
from heavydistill.chat.student import Student
from heavydistill.config.sets import BuildConfig
from heavydistill.curate import selection
from heavydistill.curate.filters.contamination import Screen
from heavydistill.curate.manifest import manifest_of
from heavydistill.curate.mixture import Mixture, preset_of
from heavydistill.curate.notes import Build, NoteTaker, OnProgress, ProblemNote
from heavydistill.curate.prompts import Prompter
from heavydistill.curate.redeliberation.deliberator import ResolvedDeliberator, Volume
from heavydistill.curate.redeliberation.sets import Redeliberation, meet_servers
from heavydistill.curate.rows import SetWriter
from heavydistill.curate.sources import SourceRun, open_sources
from heavydistill.errors import ConfigError, MissingModelError
from heavydistill.models.contact import Contact
from heavydistill.schema import Trace
from heavydistill.store.atomic import new_folder, refuse_taken
from heavydistill.store.sets.folder import (
    CHAT_TEMPLATE,
    Manifest,
    count_rows,
    file_of,
    rows_of,
    splits_of,
    write_manifest,
)

_GUARDED_ROWS = 256

OnVolume = Callable[[ResolvedDeliberator, Volume], None]


def build_sets(
    config: BuildConfig,
    on_progress: OnProgress = lambda what, done, total: None,
    on_volume: OnVolume = lambda deliberator, volume: None,
    on_written: Callable[[Path], object] = lambda folder: None,
    dry_run: bool = False,
) -> Manifest:
    """Build training sets of both roles, and prompts for RL, from one or more runs.

    Args:
        config: The build; a student that it leaves open is filled in.
        on_progress: Called after each trace of a pass.
        on_volume: Called before a model is asked, with who is asked and how much.
        on_written: Called with the folder, whatever its name is, when the manifest is in it.
        dry_run: Do all of it but for asking a model, and keep nothing.

    Returns:
        What was built, from what, and what was left out for which reason.

    Raises:
        EmptyError: Nothing is left; the manifest that it holds says what took what.
        UserError: Anything else that the user can fix; nothing was written.
        KeyboardInterrupt, StoppedError: While deliberations were asked for. What was answered is
            in the journal, and the same command goes on from there.
    """
    contact = None if dry_run else Contact()
    if contact and config.redeliberate:
        meet_servers(config, contact)
    with _folder(Path(config.out), dry_run) as folder, contextlib.ExitStack() as held:
        build = read_traces(config, on_progress)
        asked, answers = [], None
        if config.redeliberate:
            redeliberation = Redeliberation(build, contact)
            for deliberator, volume in redeliberation.volumes.values():
                on_volume(deliberator, volume)
            if not dry_run:
                rows = held.enter_context(TemporaryDirectory(prefix="heavydistill-"))
                asked, answers = redeliberation.ask(Path(rows), on_progress), redeliberation.answers
        select(build)
        writer = SetWriter(build, folder, answers)
        _write_rows(build, writer, on_progress)
        template = build.student.chat_template
        if template is not None:
            (folder / CHAT_TEMPLATE).write_text(template, encoding="utf-8")
        manifest = manifest_of(build, writer, _guarded(build, folder), asked)
        if not any(sum(splits.values()) for splits in manifest.rows.values()):
            raise EmptyError(manifest)
        write_manifest(manifest, folder)
        on_written(folder)
        return manifest


class EmptyError(ConfigError):
    """Nothing is left of the runs; ``manifest`` says what took what."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(
            "Nothing is left to learn from: the tables say what took what",
            "Choose another --preset, give more runs, or ask for deliberations with "
            "--redeliberate.",
        )
        self.manifest = manifest


def read_traces(config: BuildConfig, on_progress: OnProgress) -> Build:
    """The first pass.

    Raises:
        UserError: Something that the user can fix; nothing was written.
    """
    preset = preset_of(config)
    sources = open_sources(config.runs)
    config = config.model_copy(update={"student": _student_for(config, sources)})
    template = config.chat_template and Path(config.chat_template)
    student = Student(str(config.student), template or None)
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
            _note_problem(build, source, trace, note.problem)
            done += 1
            on_progress("Reading traces", done, total)
    build.taker.demand_attempts()
    selection.split_problems(build.problems, config.validation, config.seed)
    notes = build.all_notes
    selection.label_sets(notes, build.problems, config.sets.per_problem)
    selection.mark_wanted(notes, build.problems, preset, config.seed)
    return build


def select(build: Build) -> None:
    """Decide what is used; changes the notes."""
    notes, problems, seed = build.all_notes, build.problems, build.config.seed
    selection.label_deliberations(notes, build.config.filters)
    selection.label_trajectories(notes, problems, build.config)
    build.undeliberated = len({note.of for note in build.pending()})
    build.mixture = selection.select_for_sft(notes, problems, build.preset, seed)
    selection.select_for_rl(notes, problems, build.preset, seed)


def _student_for(config: BuildConfig, sources: Sequence[SourceRun]) -> str:
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


def _note_problem(build: Build, source: SourceRun, trace: Trace, key: str) -> None:
    """Note where a problem stands, and screen it when it is seen for the first time."""
    note = build.problems.get(key)
    if note is None:
        domain = source.domain_of(trace.problem, build.student.domain)
        label, detail = build.screen.look(key, trace.problem)
        note = build.problems[key] = ProblemNote(domain, label, detail)
    note.runs.append(f"{source.name}/{trace.problem.id}")


@contextlib.contextmanager
def _folder(out: Path, dry_run: bool) -> Iterator[Path]:
    """A folder that gets the name ``out`` when this ends well, and is gone when it does not."""
    if dry_run:
        refuse_taken(out)
        with TemporaryDirectory(prefix="heavydistill-") as temporary:
            yield Path(temporary)
        return
    with new_folder(out) as folder:
        yield folder


def _write_rows(build: Build, writer: SetWriter, on_progress: OnProgress) -> None:
    done, total = 0, len(build.all_notes)
    for source in build.sources:
        for trace, note in build.traces_of(source):
            writer.write(source, trace, note)
            done += 1
            on_progress("Writing rows", done, total)
    writer.finish()


def _guarded(build: Build, folder: Path) -> dict[str, int]:
    """Let the guard look at rows from all over each set; how many it saw.

    Raises:
        ConfigError: A row would not be learnt as it stands.
    """
    seen = {}
    for name in ("sft_deliberator", "sft_thinker"):
        rows = [row for split in splits_of(folder, name) for row in _sample(folder, name, split)]
        report = guard(build.student.chat, rows, build.prompter.max_tokens)
        report.demand_whole(name)
        seen[name] = report.rows
    return seen


def _sample(folder: Path, name: str, split: str) -> list[dict[str, Any]]:
    """Up to ``_GUARDED_ROWS`` rows of a split, evenly spaced."""
    file = file_of(folder, name, split)
    step = -(-count_rows(file) // _GUARDED_ROWS)
    return list(itertools.islice(rows_of(file), 0, None, step))
