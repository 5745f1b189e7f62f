"""Imports answers that were sampled elsewhere, as a run folder without caches and deliberations.

    traces/        as in a run, without caches and deliberations; the verdicts are ours
    summary.json   as in a run
    import.json    replaces a run's configuration: what was read, left out and assumed, and how
                   the files' labels and our verdicts agree

Rows with the same text, reference, options, verifier and arguments are one problem. Its answers are
one pool, in the order of files and lines. Answers are kept in a temporary file in ``TMPDIR``, so
that memory holds the answers of only a few problems. A row that cannot be used is refused, or left
out and counted by reason:

    unreadable      the question or the answers do not match the format
    contradictory   an earlier row has the same question with another reference or verifier
    too_few         the problem has fewer than two answers in all files, or no worked solution
    unfit           its answers cannot be judged; see ``problems.loading``
    over_limit      ``problems.limit`` problems were read before

The folder gets its final name when it is complete. The same files and options give the same bytes.

Not covered: a judge for undecided verdicts.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import pickle
import tempfile
import typing
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import heavydistill
from heavydistill.config.run import Problems
from heavydistill.config.sets import FormatName, ImportConfig
from heavydistill.config.yaml import as_section
from heavydistill.curate.imports.attempts import ATTEMPT_FIELDS, ImportedAttempt
from heavydistill.curate.imports.formats import FORMATS, LICENCE
from heavydistill.curate.imports.outputs import by_seed
from heavydistill.errors import ConfigError, ProblemsError
from heavydistill.heavy import voting
from heavydistill.metrics.mixing import Mixing, mixing_of
from heavydistill.metrics.problem_figures import RunTally
from heavydistill.metrics.summary import Summary, summary_of
from heavydistill.problems.columns import DEFAULT_VERIFIER, FIELDS, columns_of
from heavydistill.problems.loading import OnChecked, fit_problems, refusal
from heavydistill.problems.options import orders_kept
from heavydistill.problems.tables import Table, TableRow, choices
from heavydistill.schema import (
    OK,
    TOO_FEW_USABLE,
    UNKNOWN_MODEL,
    Label,
    Problem,
    Trace,
    Trajectory,
    Verdict,
    content_id,
)
from heavydistill.store.atomic import new_folder, refuse_taken
from heavydistill.store.traces import TRACES_FOLDER, read_traces, write_traces, writing
from heavydistill.verifiers import registry
from heavydistill.verifiers.markers import CommonMarker, shared_marker
from heavydistill.verifiers.pool import TimedVerdict, VerdictPool

RECORD = "import.json"
SOLUTIONS_FORMAT: FormatName = "solutions"
LABELS: tuple[Label, ...] = typing.get_args(Label)
_PROBLEMS_AT_ONCE = 64  # Number of problems judged at the same time
_FIRST = 5
_SAME = tuple(name for name in FIELDS if name not in ("id", "domain"))

Show = Callable[[str, int, int], None]
"""Called with (name of the step, number done, number in all)."""


@dataclass(frozen=True, slots=True)
class ImportedPool:
    """A problem and its answers."""

    problem: Problem
    attempts: list[ImportedAttempt]  # Answers by index, without verdicts

    @property
    def trajectories(self) -> list[Trajectory]:
        return [attempt.trajectory for attempt in self.attempts]


@dataclass(slots=True)
class SkippedRows:
    """Rows that were left out for the same reason."""

    rows: int = 0
    first: list[str] = field(default_factory=list)  # Errors of the first few rows, with locations

    def add(self, what: str, rows: int = 1) -> None:
        self.rows += rows
        if len(self.first) < _FIRST:
            self.first.append(what)


@dataclass(slots=True)
class _Group:
    """The rows of one problem."""

    file: Path  # File of the first row
    row: TableRow  # First row, without its answers
    places: list[int]  # Offsets of each row's answers in the temporary file
    answers: int  # Total number of answers


@dataclass(frozen=True, slots=True)
class ImportResult:
    """Result of an import."""

    folder: Path
    summary: Summary  # Statistics over all problems
    labels: dict[str, Counter[Label]]
    """Counts of our verdicts, by the files' label: ``right``, ``wrong`` or ``unlabelled``."""
    record: dict[str, Any]  # Content of ``import.json``
    marker: CommonMarker | None  # Likely answer marker, if many answers have no final answer
    reference_marker: str = ""  # Marker of the references that nobody configured
    mixing: Mixing | None = None  # Comparison of the models in the pools; None for one model


def import_pools(
    config: ImportConfig | Mapping[str, object], show: Show = lambda what, done, total: None
) -> ImportResult:
    """Read the files, judge the answers and write a run folder.

    ``show`` is called after each reference and each problem. Raises UserError for errors that the
    user can fix, and RunError if the disk is full or fails; nothing is written in these cases.
    """
    config = as_section(ImportConfig, config)
    folder = Path(config.out).expanduser()
    refuse_taken(folder)
    pools = ImportedPools(config, functools.partial(show, "checking references"))
    if unable := registry.unavailable({each.verifier for each in pools.problems}, config.verify):
        raise ConfigError(unable[0], "Without it every verdict would be undecided.")
    tally = _Tally(pools.format.fewest)
    with new_folder(folder) as new:
        with VerdictPool(config.verify) as judges:
            traces = _traces(pools, judges, tally, show)
            write_traces(traces, new / TRACES_FOLDER)
        run_tally = RunTally(read_traces(new))
        summary, mixing = summary_of(run_tally), mixing_of(run_tally)
        if not tally.without_cost:
            summary.usage["thinking"].cost_usd = tally.cost_usd
        record = _record(config, pools, tally)
        numbers = {
            **dataclasses.asdict(summary),
            "rejects": 0,
            "missing": 0,
            "option_orders_kept": orders_kept(pools.problems),
            "left_out": sum(each.rows for each in pools.left_out.values()),
            "licences": sorted(pools.licences),
            **({"mixing": dataclasses.asdict(mixing)} if mixing else {}),
        }
        for name, content in (("summary.json", numbers), (RECORD, record)):
            text = json.dumps(content, indent=2, ensure_ascii=False)
            (new / name).write_text(text, encoding="utf-8")
        marker = None
        if summary.trajectories.has_many_unanswered:
            given = config.problems.verifier_args
            marker = shared_marker(read_traces(new), given, config.verify)
    return ImportResult(folder, summary, tally.labels, record, marker, pools.marker, mixing)


class ImportedPools:
    """The problems of an import, and the rows that were left out; iterating yields the pools.

    Raises UserError as ``problems.load`` does, or if the files have another format; raises RunError
    if the disk of ``TMPDIR`` is full or fails.
    """

    def __init__(
        self, config: ImportConfig, on_checked: OnChecked = lambda done, total: None
    ) -> None:
        registry.load_own(config.verify.own)
        self._config = config
        self.files = _files(config)  # in the order of their answers in the pools
        columns = config.problems.columns
        self._verifier = registry.get(config.problems.verifier or DEFAULT_VERIFIER)
        known = (*FIELDS, "answers", *ATTEMPT_FIELDS)
        if unknown := next((field for field in columns if field not in known), None):
            raise ProblemsError(
                f"problems.columns.{unknown}: there is no such field",
                choices(unknown, known, "Fields"),
            )
        self.format = FORMATS[config.format](columns, self.files, self._verifier.argument_columns)
        # Formats with fixed columns return values under our field names.
        self._mapped = {} if self.format.own else {f: columns[f] for f in FIELDS if f in columns}
        self.rows = [0] * len(self.files)  # Number of rows of each file
        self.without_answers = 0  # Rows with only the reference of another row
        self.left_out: dict[str, SkippedRows] = {}  # Rows by reason
        self.licences: Counter[str] = Counter()  # Rows with answers, by their licence
        self._faults: list[ProblemsError] = []
        self._waiting = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self._waiting.close)
        with writing(Path(tempfile.gettempdir())):
            rows = self._read()
            self._waiting.flush()
        checked = self._checked(self._grouped(rows), on_checked)
        self.problems = [problem for problem, _ in checked]
        self._groups = [group for _, group in checked]
        self.joined = sum(len(group.places) - 1 for group in self._groups)

    def __iter__(self) -> Iterator[ImportedPool]:
        for problem, group in zip(self.problems, self._groups, strict=True):
            attempts: list[ImportedAttempt] = []
            for place in group.places:
                self._waiting.seek(place)
                attempts += pickle.load(self._waiting)
            yield ImportedPool(
                problem, [self._named(problem, *each) for each in enumerate(attempts)]
            )

    def _named(self, problem: Problem, index: int, attempt: ImportedAttempt) -> ImportedAttempt:
        said = attempt.trajectory
        model = said.model or self._config.model or UNKNOWN_MODEL
        content = (model, index, -1, said.reasoning, said.answer_text, said.finish_reason)
        identity = content_id("t", problem.id, *content)
        trajectory = dataclasses.replace(said, id=identity, index=index, model=model)
        return dataclasses.replace(attempt, trajectory=trajectory)

    def _read(self) -> list[_Group]:
        """Return one group for each readable row."""
        pools = []
        for place, file in enumerate(self.files):
            for row in self.format.rows(file):
                self.rows[place] += 1
                if self.rows[place] == 1 and (lacks := self.format.lacks(row.values)):
                    raise _other_format(self._config.format, lacks, row)
                try:
                    values = self.format.problem(row)
                    if values is None:
                        self.without_answers += 1
                        continue
                    attempts = self.format.attempts(row)
                except ProblemsError as fault:
                    self._leave_out("unreadable", 1, fault.what, fault.fix)
                    continue
                named = row.values.get(LICENCE)
                if licence := named if isinstance(named, str) and named else self._config.licence:
                    self.licences["-".join(licence.lower().split())] += 1
                row = dataclasses.replace(row, values=values)
                pools.append(_Group(file, row, [self._waiting.tell()], len(attempts)))
                pickle.dump(attempts, self._waiting)
            if not self.rows[place]:
                raise ProblemsError(f"{file.name} holds no rows", "Give files with answers.")
        if not pools:
            raise self._refusal("No row of the files has answers")
        return [group for group in pools if self._is_complete(group)]

    def _is_complete(self, group: _Group) -> bool:
        """Add what rows without answers say of a problem; False if that leaves its row out."""
        try:
            group.row = self.format.complete(group.row)
        except ProblemsError as fault:
            self._leave_out("unreadable", 1, fault.what, fault.fix)
            return False
        return True

    def _grouped(self, rows: list[_Group]) -> list[_Group]:
        """Return one group for each problem that has enough answers."""
        columns = columns_of(_table(rows), self._mapped)
        has_reference = any(
            r.row.values.get(columns.get("reference", "")) is not None for r in rows
        )
        if not has_reference and "verifier" not in columns and self._verifier.needs_reference:
            raise ProblemsError(
                "No row has a reference answer",
                "Name its column with --columns reference=COLUMN; for heavyskill give the file of "
                "targets together with the results.",
            )
        self.columns = {field: self.format.own.get(field, columns[field]) for field in columns}
        groups: dict[str, _Group] = {}
        questions: dict[str, tuple[str, str]] = {}
        for each in rows:
            question = _key(each.row, columns, ("text", "messages", "options"))
            key = _key(each.row, columns, _SAME, self._verifier.argument_columns)
            known, where = questions.setdefault(question, (key, each.row.where))
            if known != key:
                what = f"{each.row.where}: {where} has the same question with another reference, "
                what += "verifier or arguments"
                self._leave_out("contradictory", 1, what, "Keep the row that is right.")
            elif key in groups:
                groups[key].places += each.places
                groups[key].answers += each.answers
            else:
                groups[key] = each
        return self._wide(groups.values())

    def _wide(self, groups: Collection[_Group]) -> list[_Group]:
        """Return the groups with enough answers."""
        fewest = self.format.fewest
        fix = (
            f"A pool needs {fewest}; give all files together if each has one answer per problem, "
            f"or --from {SOLUTIONS_FORMAT} if they are worked solutions to learn from."
        )
        for group in groups:
            if group.answers < fewest:
                what = f"{group.row.where}: the problem has {group.answers or 'no'} answer"
                self._leave_out("too_few", len(group.places), what, fix)
        wide = [group for group in groups if group.answers >= fewest]
        if self._faults and (self._config.problems.unfit == "refuse" or not wide):
            raise self._refusal("No problem has enough answers")
        return wide

    def _checked(self, groups: list[_Group], on_checked: OnChecked) -> list[tuple[Problem, _Group]]:
        """Return the problems whose answers can be judged, up to the limit."""
        if "id" not in self.columns:
            for group in groups:
                group.row.values["id"] = f"{group.file.stem}:{group.row.number}"
        choice = self._config.problems
        config = Problems(
            source="import",
            columns=self._mapped,
            verifier=choice.verifier,
            verifier_args=choice.verifier_args,
            keep_option_order=True,
            unfit=choice.unfit,
        )
        loaded = fit_problems(
            [(_table(groups), config)], config, self._config.verify, on_checked=on_checked
        )
        for number, what in loaded.unfit.items():
            self._leave_out("unfit", len(groups[number - 1].places), what)
        self.marker = loaded.marker
        fit = [group for i, group in enumerate(groups, 1) if i not in loaded.unfit]
        for group in fit[choice.limit :] if choice.limit else []:
            self._leave_out("over_limit", len(group.places), group.row.where)
        checked = []
        for problem, group in zip(loaded.problems, fit, strict=True):
            source = f"{group.file.name}:{group.row.number}"
            checked.append((dataclasses.replace(problem, source=source), group))
        return checked[: choice.limit]

    def _leave_out(self, reason: str, rows: int, what: str, fix: str = "") -> None:
        """Count rows as left out; with a ``fix``, also store an error for a later refusal."""
        if fix:
            self._faults.append(ProblemsError(what, fix))
        self.left_out.setdefault(reason, SkippedRows()).add(what, rows)

    def _refusal(self, otherwise: str) -> ProblemsError:
        if not self._faults:
            return ProblemsError(otherwise, "Give the files that hold them.")
        return refusal(self._faults, sum(self.rows))


def _files(config: ImportConfig) -> list[Path]:
    files = [Path(name).expanduser() for name in config.files]
    names = [file.name for file in files]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ProblemsError(
            f"Two of the files are named {twice}, and problems refer to their file by its name",
            "Give each file once, or rename one if they are different files.",
        )
    return by_seed(files) if config.format == "nemo" else files


def _other_format(name: str, lacks: Sequence[str], row: TableRow) -> ProblemsError:
    return ProblemsError(
        f"{row.where} does not have the format {name}: it has no column {', '.join(lacks)}",
        "Give the right --from, or name the columns: --columns "
        "text=COLUMN,reference=COLUMN,answers=COLUMN. "
        + choices(lacks[0], row.values, "Columns there"),
    )


def _table(groups: Sequence[_Group]) -> Table:
    rows = [dataclasses.replace(group.row, number=i) for i, group in enumerate(groups, 1)]
    return Table("", "", rows)


def _key(
    row: TableRow, columns: Mapping[str, str], fields: Sequence[str], more: Sequence[str] = ()
) -> str:
    """Return a key that is equal for rows with equal values in these fields and columns."""
    names = [*(columns.get(name, "") for name in fields), *more]
    return json.dumps([row.values.get(name) for name in names], default=str, sort_keys=True)


# --- Judging.


class _Tally:
    """Counts of the answers and their verdicts."""

    def __init__(self, fewest: int) -> None:
        self._fewest = fewest  # Minimum usable answers of a problem
        self.labels = {name: Counter[Label]() for name in ("right", "wrong", "unlabelled")}
        self.models: Counter[str] = Counter()
        self.verifiers: set[str] = set()
        self.refused = SkippedRows()  # Answers without the verdict correct
        self.assumed = self.unclear = 0
        self.cost_usd, self.without_cost = 0.0, 0  # Known costs, and answers without one

    def trace(self, pool: ImportedPool, judged: Sequence[TimedVerdict]) -> Trace:
        """Count a judged pool and return its trace."""
        trajectories = []
        for attempt, timed in zip(pool.attempts, judged, strict=True):
            label = {None: "unlabelled", True: "right", False: "wrong"}[attempt.label]
            self.labels[label][timed.verdict.label] += 1
            self.models[attempt.trajectory.model] += 1
            self.verifiers.add(timed.verdict.verifier)
            self.assumed += attempt.is_assumed
            self.unclear += attempt.is_label_unclear
            self.cost_usd += max(attempt.cost_usd, 0)
            self.without_cost += attempt.cost_usd < 0
            trajectories.append(dataclasses.replace(attempt.trajectory, verdict=timed.verdict))
            if not timed.verdict.is_correct:
                self.refused.add(f"{pool.problem.source}: {_why(pool.problem, timed.verdict)}")
        usable = sum(each.unusable_because is None for each in trajectories)
        return Trace(
            problem=pool.problem,
            pool=trajectories,
            stratum=voting.stratum(trajectories),
            status=OK if usable >= self._fewest else TOO_FEW_USABLE,
        )


def _why(problem: Problem, verdict: Verdict) -> str:
    read = repr(verdict.extracted[:80]) if verdict.extracted else "no final answer"
    return f"{verdict.label} ({verdict.reason}): {read}, reference {problem.reference[-80:]!r}"


def _traces(
    pools: ImportedPools, judges: VerdictPool, tally: _Tally, show: Show
) -> Iterator[Trace]:
    """Yield the traces in the order of the pools; several pools are judged at the same time."""
    coming, done = iter(pools), itertools.count(1)
    while ahead := list(itertools.islice(coming, _PROBLEMS_AT_ONCE)):
        verdicts = [
            [judges.submit_generation(pool.problem, each) for each in pool.trajectories]
            for pool in ahead
        ]
        for pool, waiting in zip(ahead, verdicts, strict=True):
            trace = tally.trace(pool, [future.result() for future in waiting])
            show("judging", next(done), len(pools.problems))
            yield trace


def _record(config: ImportConfig, pools: ImportedPools, tally: _Tally) -> dict[str, object]:
    verify = config.verify.model_dump()
    verify["own"] = [Path(file).name for file in config.verify.own]
    # Neither the sandbox's address nor the number of workers affects a verdict.
    del verify["workers"], verify["sandbox"]["url"]
    names_and_rows = zip(pools.files, pools.rows, strict=True)
    return {
        "heavydistill": heavydistill.__version__,
        "format": config.format,
        "files": [{"name": file.name, "rows": rows} for file, rows in names_and_rows],
        "columns": {**pools.columns, "answers": pools.format.answers, **pools.format.beside},
        "rows": sum(pools.rows),
        "rows_without_answers": pools.without_answers,
        "rows_joined": pools.joined,
        "left_out": {
            reason: dataclasses.asdict(each) for reason, each in sorted(pools.left_out.items())
        },
        "problems": len(pools.problems),
        "answers": tally.models.total(),
        "not_correct": dataclasses.asdict(tally.refused),
        "finish_reasons_assumed": tally.assumed,
        "labels_unclear": tally.unclear,
        "cost_usd": round(tally.cost_usd, 6),
        "costs_unknown": tally.without_cost,
        **pools.format.notes,
        "models": dict(sorted(tally.models.items())),
        "licences": dict(sorted(pools.licences.items())),
        "verifiers": sorted(tally.verifiers),
        "labels": {
            name: {label: counts[label] for label in LABELS}
            for name, counts in tally.labels.items()
        },
        "options": {
            "model": config.model,
            "problems": config.problems.model_dump(),
            "verify": verify,
        },
    }
