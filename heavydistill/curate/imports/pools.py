"""Files of answers become problems, each with its pool of trajectories without verdicts.

The files are read twice: once for the problems, which are joined, checked and kept, and once for
the answers, of which no more are in memory than one problem has.

Rows of one problem, those that agree in text, reference, options, verifier and its arguments, are
one pool, in the order of files and lines. A row that cannot be used is refused, or left out and
counted by reason:

    unreadable      the question or the answers are not what the format says
    contradictory   an earlier row has the same question and another reference or verifier
    too_few         the problem has fewer than two answers in all files
    unfit           it cannot be judged; see ``problems.loading``
    over_limit      the first ``problems.limit`` problems are there
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from heavydistill.config.run import Problems
from heavydistill.config.sets import FormatName, ImportConfig
from heavydistill.curate.imports.files import PoolFile
from heavydistill.curate.imports.formats import (
    ANSWER_FIELDS,
    UNKNOWN_MODEL,
    Answers,
    Format,
    HeavySkill,
    NeMo,
    PaCoRe,
    by_seed,
)
from heavydistill.errors import ProblemsError
from heavydistill.problems.columns import DEFAULT_VERIFIER, FIELDS, columns_of
from heavydistill.problems.loading import OnChecked, fit_problems, refusal
from heavydistill.problems.tables import Table, TableRow, choices
from heavydistill.schema import Problem, Trajectory
from heavydistill.verifiers import registry

FORMATS: dict[FormatName, type[Format]] = {
    "heavyskill": HeavySkill,
    "pacore": PaCoRe,
    "nemo": NeMo,
    "answers": Answers,
}
FEWEST_ANSWERS = 2
_FIRST = 5
_SAME = tuple(name for name in FIELDS if name not in ("id", "domain"))


@dataclass(frozen=True, slots=True)
class ImportedPool:
    """A problem and the answers to it."""

    problem: Problem
    trajectories: list[Trajectory]  # by index, without verdicts
    labels: list[
        bool | None
    ]  # of each, whether its file calls it right; None where it does not say
    assumed: int  # finish reasons that the files do not give
    unclear: int  # labels that are neither true nor false


@dataclass(slots=True)
class SkippedRows:
    """Rows that were left out for one reason."""

    rows: int = 0
    first: list[str] = field(default_factory=list)  # what is wrong with the first few, and where

    def add(self, rows: int, what: str) -> None:
        self.rows += rows
        if len(self.first) < _FIRST:
            self.first.append(what)


@dataclass(slots=True)
class _Group:
    """The rows of one problem."""

    first: TableRow  # the earliest
    values: dict[str, Any]  # its values
    places: list[tuple[int, int]]  # file and number of each
    answers: int  # how many there are in all


class ImportedPools:
    """The problems of an import, and what was left out; iterating gives each with its pool.

    Attributes:
        files: Files in the order in which their answers stand in the pools.
        rows: Number of rows read of each file.
        without_answers: Rows that hold the reference of another row.
        format: Format of all files.
        columns: Field to column, as they were found.
        problems: Checked problems, in the order of their first rows.
        joined: Rows that were joined to an earlier row of the same problem.
        left_out: Rows by reason.

    Raises:
        UserError: As ``problems.load``; or the files are of another format.
    """

    def __init__(self, config: ImportConfig, on_checked: OnChecked | None = None) -> None:
        registry.load_own(config.verify.own)
        self._config = config
        self.files = _opened(config)
        columns = config.problems.columns
        self._verifier = registry.get(config.problems.verifier or DEFAULT_VERIFIER)
        kind = FORMATS[config.format]
        _check_fields(columns, kind, config.format)
        self.format = kind(columns, self.files, self._verifier.argument_columns)
        self.left_out: dict[str, SkippedRows] = {}
        self._faults: list[ProblemsError] = []
        groups = self._wide_enough(self._grouped(self._read()))
        checked = self._checked(groups, on_checked)
        self.problems = [problem for problem, _ in checked]
        self._groups = [group for _, group in checked]
        self.joined = sum(len(group.places) - 1 for group in self._groups)

    def __iter__(self) -> Iterator[ImportedPool]:
        for problem, group in zip(self.problems, self._groups, strict=True):
            attempts = [
                attempt
                for file, number in group.places
                for attempt in self.format.attempts(self.files[file].row(number))
            ]
            model = self._config.model or UNKNOWN_MODEL
            yield ImportedPool(
                problem,
                [each.trajectory(problem.id, i, model) for i, each in enumerate(attempts)],
                [each.label for each in attempts],
                sum(each.is_assumed for each in attempts),
                sum(each.is_label_unclear for each in attempts),
            )

    @property
    def lacking(self) -> list[int]:
        """Of each file, how many of the problems have no answer in it."""
        has = Counter(file for group in self._groups for file, _ in set(group.places))
        return [len(self._groups) - has[file] for file in range(len(self.files))]

    def _read(self) -> list[_Group]:
        """Each row that can be read as a group of its own."""
        found, self.rows, self.without_answers = [], [], 0
        for place, file in enumerate(self.files):
            self.rows.append(0)
            for row in file.rows():
                self.rows[-1] += 1
                if self.rows[-1] == 1 and self.format.lacks(row.values):
                    _refuse_format(self._config.format, self.format.lacks(row.values), file, row)
                try:
                    values = self.format.problem(row)
                    count = len(self.format.attempts(row)) if values is not None else 0
                except ProblemsError as fault:
                    self._leave_out("unreadable", fault)
                    continue
                if values is None:
                    self.without_answers += 1
                else:
                    first = TableRow(row.where, row.number, {})
                    found.append(_Group(first, values, [(place, row.number)], count))
            if not self.rows[-1]:
                raise ProblemsError(f"{file.name} holds no rows", "Give files with answers.")
        if not found:
            raise self._refusal("No row of the files has answers")
        return found

    def _grouped(self, rows: list[_Group]) -> list[_Group]:
        columns = self._config.problems.columns
        # A format of its own gives values under the names of our fields already.
        self._mapped = {} if self.format.own else {f: columns[f] for f in FIELDS if f in columns}
        found = self._found(rows)
        self.columns = {field: self.format.own.get(field, found[field]) for field in found}
        groups: dict[str, _Group] = {}
        questions: dict[str, tuple[str, str]] = {}
        for row in rows:
            question = _key(row.values, found, ("text", "options"))
            key = _key(row.values, found, _SAME, self._verifier.argument_columns)
            known, where = questions.setdefault(question, (key, row.first.where))
            if known != key:
                fault = ProblemsError(
                    f"{row.first.where}: the question is that of {where}, and the reference, the "
                    "verifier or its arguments are not",
                    "Keep the one that is right.",
                )
                self._leave_out("contradictory", fault)
            elif key in groups:
                groups[key].places += row.places
                groups[key].answers += row.answers
            else:
                groups[key] = row
        return list(groups.values())

    def _found(self, rows: list[_Group]) -> dict[str, str]:
        """Field to column, in the values of the groups."""
        try:
            found = columns_of(_table(rows), self._mapped)
        except ProblemsError as error:
            like = _alike(self._config.format, self.files[0])
            raise ProblemsError(error.what, f"{like} {error.fix}".strip()) from error
        is_there = any(row.values.get(found.get("reference", "")) is not None for row in rows)
        if is_there or "verifier" in found or not self._verifier.needs_reference:
            return found
        targets = "Give the file of targets beside the results, or name the column: "
        raise ProblemsError(
            "No row has a reference answer",
            (targets if self._config.format == "heavyskill" else "Name its column: ")
            + "--columns reference=COLUMN.",
        )

    def _wide_enough(self, groups: list[_Group]) -> list[_Group]:
        wide = []
        for group in groups:
            if group.answers >= FEWEST_ANSWERS:
                wide.append(group)
                continue
            count = "1 answer" if group.answers else "no answer"
            fault = ProblemsError(
                f"{group.first.where}: the problem has {count}",
                f"A pool needs {FEWEST_ANSWERS}; files that hold one answer a problem are given "
                "together.",
            )
            self._leave_out("too_few", fault, len(group.places))
        if self._faults and (self._config.problems.unfit == "refuse" or not wide):
            raise self._refusal("No problem has enough answers")
        return wide

    def _checked(
        self, groups: list[_Group], on_checked: OnChecked | None
    ) -> list[tuple[Problem, _Group]]:
        """The problems that can be judged, up to the limit."""
        if "id" not in self.columns:
            for group in groups:
                stem = self.files[group.places[0][0]].stem
                group.values["id"] = f"{stem}:{group.first.number}"
        choice = self._config.problems
        config = Problems(
            source="import",
            columns=self._mapped,
            verifier=choice.verifier,
            verifier_args=choice.verifier_args,
            keep_option_order=True,
            unfit=choice.unfit,
        )
        loaded = fit_problems(_table(groups), config, self._config.verify, on_checked=on_checked)
        for number, what in loaded.unfit.items():
            self._note("unfit", len(groups[number - 1].places), what)
        fit = [group for i, group in enumerate(groups, 1) if i not in loaded.unfit]
        for group in fit[choice.limit :] if choice.limit else []:
            self._note("over_limit", len(group.places), group.first.where)
        return [
            (replace(problem, source=self._source(group)), group)
            for problem, group in zip(loaded.problems, fit, strict=True)
        ][: choice.limit]

    def _source(self, group: _Group) -> str:
        file, number = group.places[0]
        return f"{self.files[file].name}:{number}"

    def _leave_out(self, reason: str, fault: ProblemsError, rows: int = 1) -> None:
        self._faults.append(fault)
        self._note(reason, rows, fault.what)

    def _note(self, reason: str, rows: int, what: str) -> None:
        self.left_out.setdefault(reason, SkippedRows()).add(rows, what)

    def _refusal(self, otherwise: str) -> ProblemsError:
        if not self._faults:
            return ProblemsError(otherwise, "Give the files that hold them.")
        return refusal(self._faults, sum(self.rows))


def _opened(config: ImportConfig) -> list[PoolFile]:
    files = [PoolFile(Path(name).expanduser()) for name in config.files]
    names = [file.name for file in files]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ProblemsError(
            f"Two of the files are named {twice}, and problems tell their file by that name",
            "Give each file once, and rename one if they are different files.",
        )
    return by_seed(files) if config.format == "nemo" else files


def _check_fields(columns: Mapping[str, str], kind: type[Format], name: str) -> None:
    known = (*FIELDS, *ANSWER_FIELDS)
    for each in columns:
        if each not in known:
            raise ProblemsError(
                f"problems.columns.{each}: there is no such field", choices(each, known, "Fields")
            )
        if each in ANSWER_FIELDS and each not in kind.takes:
            raise ProblemsError(
                f"problems.columns.{each} has no effect on files of {name}", "Take it out."
            )


def _refuse_format(
    name: FormatName, lacks: Sequence[str], file: PoolFile, row: TableRow
) -> NoReturn:
    fix = _alike(name, file) or (
        "Name what stands where: --columns text=COLUMN,reference=COLUMN,answers=COLUMN. "
        + choices(lacks[0], row.values, "Columns there")
    )
    missing = ", ".join(lacks)
    raise ProblemsError(f"{row.where} is no row of {name}: it has no column {missing}", fix)


def _alike(name: FormatName, file: PoolFile) -> str:
    """What to give if the file looks like another format; empty if it looks like none."""
    row = next(file.rows())
    for other, kind in FORMATS.items():
        try:
            if other != name and not kind({}, [file], ()).lacks(row.values):
                return f"It looks like {other}: give --from {other}."
        except ProblemsError:
            continue
    return ""


def _table(groups: Sequence[_Group]) -> Table:
    rows = [TableRow(group.first.where, i, group.values) for i, group in enumerate(groups, 1)]
    return Table("", "", rows)


def _key(
    values: Mapping[str, Any],
    columns: Mapping[str, str],
    fields: Sequence[str],
    more: Sequence[str] = (),
) -> str:
    """The same for rows that agree in these fields and columns."""
    names = [*(columns.get(name, "") for name in fields), *more]
    return json.dumps([values.get(name) for name in names], default=str, sort_keys=True)
