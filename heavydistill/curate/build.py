"""Builds a folder of training sets from runs; ``build_sets`` is the entry point.

The traces are read twice. The first pass makes notes on each trace (``build_state``). Then
``selection`` decides what is used, and the second pass writes the selected rows (``set_writer``).
With redeliberation, new deliberations are requested between the two passes; the second pass then
reads their texts from the journal.

The folder gets its final name only when it is complete and the guard has found no fault.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from heavydistill.chat.guard import demand_whole, guard
from heavydistill.config.prompts import TRAINED_ROLES
from heavydistill.config.sets import BuildConfig
from heavydistill.curate import selection
from heavydistill.curate.build_state import BuildState, OnProgress, SourceRun, open_sources
from heavydistill.curate.candidates import UNMEASURED
from heavydistill.curate.mixture import NOT_ADMITTED, OVER_BOUND
from heavydistill.curate.redeliberation import Redeliberation, RequestEstimate, resolve
from heavydistill.curate.set_writer import SetWriter, quantiles
from heavydistill.errors import ConfigError, MissingModelError
from heavydistill.models.contact import ServerProbe
from heavydistill.models.resolve import ResolvedRun
from heavydistill.run.pools import run_behind
from heavydistill.schema import Stratum
from heavydistill.store.atomic import new_folder, refuse_taken
from heavydistill.store.redact import key_variable_of, name_alone, portable_config
from heavydistill.store.sets.folder import (
    CHAT_TEMPLATE,
    FURTHER,
    TRAINED,
    VIEWS,
    Attention,
    Fraction,
    Manifest,
    RedeliberationSummary,
    RunUsed,
    Strata,
    StudentUsed,
    WordingUsed,
    count_rows,
    file_of,
    splits_of,
    write_manifest,
)
from heavydistill.store.sets.set_rows import LABELS, SPLITS
from heavydistill.store.traces import rows_in

_GUARDED_ROWS = 256

OnVolume = Callable[[ResolvedRun, RequestEstimate], None]


def build_sets(
    config: BuildConfig,
    on_progress: OnProgress = lambda what, done, total: None,
    on_volume: OnVolume = lambda run, volume: None,
    on_written: Callable[[Path], object] = lambda folder: None,
    dry_run: bool = False,
) -> Manifest:
    """Build training sets of both roles, and prompts for RL, from one or more runs.

    ``on_progress`` is called after each trace of a pass, ``on_volume`` before requests are sent to
    a model, and ``on_written`` with the temporary folder once it has the manifest. A dry run does
    everything except sending requests, and writes nothing.

    Raises:
        EmptyError: No row is left; the error's manifest has the counts of every filter.
        UserError: The user has to fix something; nothing was written.
        KeyboardInterrupt, StoppedError: Interrupted while requesting deliberations. The responses
            are in the journal, and running the same command again continues from there.
    """
    config.load_plugins()
    contact = None if dry_run else ServerProbe()
    sources = open_sources(config.runs)
    _require_pools(config, sources)
    # Servers are contacted before anything large is loaded.
    runs = {
        source.name: resolve(config, source.config, contact)
        for source in sources
        if config.redeliberate
    }
    config = config.model_copy(update={"student": _student_for(config, sources)})
    out = Path(config.out)
    refuse_taken(out)
    with contextlib.ExitStack() as held:
        if dry_run:
            folder = Path(held.enter_context(TemporaryDirectory(prefix="heavydistill-")))
        else:
            folder = held.enter_context(new_folder(out))
        build = BuildState(config, sources)
        build.read(on_progress)
        _require_problems(build)
        selection.mark_wanted(build)
        redeliberated, answers = [], None
        if config.redeliberate:
            redeliberation = Redeliberation(build, runs, contact)
            for _, run, volume in redeliberation.volumes:
                on_volume(run, volume)
            if not dry_run:
                rows = held.enter_context(TemporaryDirectory(prefix="heavydistill-"))
                redeliberated = redeliberation.ask(Path(rows), on_progress)
                answers = redeliberation.answers
        selection.select(build)
        writer = SetWriter(build, folder, answers)
        done, total = 0, len(build.all_notes)
        for source in sources:
            for trace, note in build.traces_of(source):
                writer.write(source, trace, note)
                done += 1
                on_progress("Writing rows", done, total)
        writer.finish()
        template = build.student.chat_template
        if template is not None:
            (folder / CHAT_TEMPLATE).write_text(template, encoding="utf-8")
        manifest = _manifest(build, writer, _guarded(build, folder), redeliberated)
        if not any(sum(splits.values()) for splits in manifest.rows.values()):
            raise EmptyError(manifest, all(source.has_solutions for source in sources))
        write_manifest(manifest, folder)
        on_written(folder)
        return manifest


OTHER_PROBLEMS = "Give other problems, or --against FILE to compare with your own file instead."


def _require_problems(build: BuildState) -> None:
    """Raise an error if every problem is in a benchmark, before anything is requested."""
    problems = build.problems.values()
    if problems and all(problem.label == "contaminated" for problem in problems):
        counts = Counter(problem.detail.partition(":")[0] for problem in problems)
        all_of = f"All {len(problems):,} problems occur" if len(problems) > 1 else "The problem is"
        raise ConfigError(f"{all_of} in {' and '.join(counts)}", OTHER_PROBLEMS)


class EmptyError(ConfigError):
    """The filters left no row of the runs; ``manifest`` has the counts of every filter.

    ``are_solutions`` says that all pools are worked solutions, which no mixture chooses from.
    """

    def __init__(self, manifest: Manifest, are_solutions: bool = False) -> None:
        ways = ["choose another --preset", "give more runs"]
        if not manifest.build["redeliberate"]:
            ways.append("ask for deliberations with --redeliberate")
        if are_solutions:
            ways = ["correct the solutions: `heavydistill import` names the first refused ones"]
        fix = f"{' or '.join(ways).capitalize()}."
        for label in ("false_claims", "leaks_attempts"):
            if manifest.deliberations.get(label):
                fix += f" `--set filters.{label}=keep` uses deliberations labelled {label} too."
        why = "the table shows how many each filter left out"
        views = {"deliberations": manifest.deliberations, "trajectories": manifest.trajectories}
        view, counts = next(((view, each) for view, each in views.items() if each), ("", {}))
        if left_out := {label: count for label, count in counts.items() if label != "used"}:
            label = max(left_out, key=left_out.__getitem__)
            of = f"{left_out[label]:,} of {sum(counts.values()):,} {view}"
            why = f"most are left out as {label}, {of}: {dict(LABELS).get(label, 'a plug-in')}"
            if label == "contaminated":
                fix = OTHER_PROBLEMS
        super().__init__(f"No training row is left; {why}", fix)
        self.manifest = manifest


def _require_pools(config: BuildConfig, sources: Sequence[SourceRun]) -> None:
    """Raise an error if all widths exceed the largest pool; not checked for imports."""
    largest = [source.config.think.k for source in sources if source.config]
    least = min(config.sets.widths or [0])
    if len(largest) == len(sources) and least > max(largest):
        raise ConfigError(
            f"sets.widths begins at {least}, but the pools of the runs have at most "
            f"{max(largest)} trajectories",
            f"Give widths of {max(largest)} or less, or runs with a larger K.",
        )


def _student_for(config: BuildConfig, sources: Sequence[SourceRun]) -> str:
    """Return the configured student; if all runs used the bundled models, the bundled student."""
    if config.student is not None:
        return config.student
    if other := next((source for source in sources if not source.is_toy), None):
        raise MissingModelError(
            f"No student is named, and the run {other.name} used models that are not bundled",
            "Give --student MODEL, the model that you will train (a folder or Hub id): its "
            "tokenizer counts the tokens, and the rows are made for its chat template.",
            "--student MODEL",
        )
    return "micro-student"


def _guarded(build: BuildState, folder: Path) -> dict[str, int]:
    """Check a sample of each set but ``rl`` with the guard; return the number of rows checked.

    Raises ConfigError if a row has a fault.
    """
    seen = {}
    for name in _trained(build.config):
        if name == "rl":
            continue
        rows: list[dict[str, Any]] = []
        for split in splits_of(folder, name):
            file = file_of(folder, name, split)
            step = -(-count_rows(file) // _GUARDED_ROWS)
            rows += itertools.islice(rows_in(file), 0, None, step)
        demand_whole(guard(build.student.chat, rows, build.max_tokens), len(rows), name)
        seen[name] = len(rows)
    return seen


def _trained(config: BuildConfig) -> list[str]:
    """Return the names of the training sets of a build."""
    return [
        *TRAINED,
        *(name for word, names in FURTHER.items() if word in config.also for name in names),
    ]


def _manifest(
    build: BuildState,
    written: SetWriter,
    guarded: dict[str, int],
    asked: list[RedeliberationSummary],
) -> Manifest:
    used = [note for note in build.sets if not note.sft_label or not note.rl_label]
    own = sum(build.own_names.issuperset(note.thinkers) for note in used)
    trained = _trained(build.config)
    rows = {name: {split: written.counts[name][split] for split in SPLITS} for name in trained}
    by_label = {name: _by_label(written.counts[name]) for name in VIEWS}
    return Manifest(
        heavydistill=version("heavydistill"),
        build=_content(build.config),
        student=StudentUsed(
            name=name_alone(build.student.name),
            form=build.student.form,
            template_sha256=build.student.template_sha256,
            opens_thinking=build.student.chat.opens_thinking,
            mended=list(build.student.mended),
            max_tokens=build.max_tokens,
        ),
        runs=[
            RunUsed(
                name=source.name,
                traces=source.size,
                config=_run_behind(build, source),
                summary=source.summary,
            )
            for source in build.sources
        ],
        rows=rows,
        problems=by_label["problems"],
        trajectories=by_label["trajectories"],
        deliberations=by_label["deliberations"],
        strata=_strata(build),
        undeliberated=build.undeliberated - written.unfit,
        unfit=written.unfit,
        unmeasured=sum(
            note.rl_label == UNMEASURED and (note.wanted or note.cache is not None)
            for note in build.sets
        ),
        attention=Attention(**{name: build.attention[name] for name in Attention.model_fields}),
        pairs=written.contrast.pairs,
        student_written=Fraction(part=own, whole=len(used)),
        retention=Fraction(part=written.plain, whole=sum(rows["sft_deliberator"].values())),
        recut=written.recut,
        models={role: sorted(written.behind[role]) for role in ("thinker", "deliberator")},
        sources=sorted(filter(None, written.behind["sources"])),
        prompts=sorted(written.behind["prompts"]),
        wordings=_wordings(build, written),
        verifiers=sorted(written.behind["verifiers"]),
        tokens={name: quantiles(written.lengths[name]) for name in trained},
        benchmarks=build.screen.used,
        guarded=guarded,
        asked=asked,
    )


def _wordings(build: BuildState, written: SetWriter) -> dict[str, WordingUsed]:
    return {
        level: WordingUsed(
            prompts=sorted(
                version
                for version in written.behind["prompts" if level == "full" else level]
                if version.startswith("deliberator.")
            ),
            rows={name: counts[level] for name, counts in written.worded.items()},
        )
        for level in build.config.wordings or ()
    }


def _strata(build: BuildState) -> dict[str, Strata]:
    """Return, for each stratum, the number of sets in all and the number left after each step."""
    mixed = Counter((candidate.stratum, label) for candidate, label in build.mixture.items())
    strata: dict[str, Strata] = {}
    for stratum in get_args(Stratum):
        notes = [
            note
            for note in build.sets
            if note.stratum == stratum and not build.problems[note.of.problem].label
        ]
        strata[stratum] = Strata(
            sets=len({note.of for note in notes}),
            with_deliberation=sum(candidate.stratum == stratum for candidate in build.mixture),
            not_admitted=mixed[stratum, NOT_ADMITTED],
            over_bound=mixed[stratum, OVER_BOUND],
            false_claims=sum(
                known.label == "false_claims" for note in notes for known in note.deliberations
            ),
            sft=len({note.of for note in notes if not note.sft_label}),
            rl=len({note.of for note in notes if not note.rl_label}),
        )
    return strata


def _run_behind(build: BuildState, source: SourceRun) -> dict[str, object]:
    """Return the configuration of a run, with the texts of the prompts in the sets' rows."""
    if not source.config:
        return {}
    tree = portable_config(source.config)
    if source.config.pools:  # which has no problems of its own
        behind = run_behind(source.config)
        tree["problems"] = portable_config(behind)["problems"] if behind else {}
    texts = build.prompts_of(source).model_dump(include={*TRAINED_ROLES}, exclude_none=True)
    return tree | ({"prompts": texts} if texts else {})


def _content(config: BuildConfig) -> dict[str, object]:
    """Return the configuration of a build for the manifest, without folders and addresses."""
    tree = config.model_dump(mode="json", exclude={"out", "runs", "verify", "plugins"})
    tree["student"] = name_alone(tree["student"])
    tree["chat_template"] = tree["chat_template"] and Path(tree["chat_template"]).name
    tree["against"] = tree["against"] and [Path(file).name for file in tree["against"]]
    if not config.filters.more:  # so that other builds are recorded as before
        del tree["filters"]["more"]
    if not config.system:
        del tree["system"]
    if not config.wordings:
        del tree["wordings"]
    if not config.also:
        del tree["also"]
    if not any(tree["prompts"].values()):
        del tree["prompts"]
    if asked := tree["redeliberate"]:
        del asked["journal"]
        asked["endpoint"] = key_variable_of(asked["endpoint"])
    return tree


def _by_label(counts: Counter[str]) -> dict[str, int]:
    """Return the counts by label: ``used`` first, then by descending count."""
    return dict(sorted(counts.items(), key=lambda pair: (pair[0] != "used", -pair[1], pair[0])))
