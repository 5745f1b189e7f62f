"""Loads and checks the problems of ``problems.source``.

The verifier checks every reference before any request is sent to a model. A check that hangs, fails
or runs out of memory makes its row unfit too (see ``verifiers.pool``). A source with unfit rows is
refused with a list of them, or the rows are left out (``problems.unfit``).
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from heavydistill.config.run import Problems, Verifying
from heavydistill.errors import ProblemsError
from heavydistill.problems.benchmarks import benchmark
from heavydistill.problems.columns import to_problems
from heavydistill.problems.procedural import gym_problems, micro_problems
from heavydistill.problems.rewriting import Rewrite, rewrite_of
from heavydistill.problems.tables import Table, read
from heavydistill.schema import Problem
from heavydistill.text.extraction import HASHES, WITH_MARKER, common_label, ends_with_hashes
from heavydistill.verifiers import registry
from heavydistill.verifiers.pool import VerdictPool

MOST_LISTED = 10
_MOST_PLACES = 3
_FIRST_CHECKED = 32  # references, spread over all, that are checked before the others
_PLACE = re.compile(r"(.+?[: ]\d+): (.*)", re.DOTALL)  # of a row (``TableRow.where``), then a fault

OnChecked = Callable[[int, int], None]
"""Callback with (number of checked references, number of all references)."""


@dataclass(frozen=True, slots=True)
class LoadedProblems:
    """The problems of a source, in order, and the rows that were left out."""

    problems: list[Problem]  # problems that can be judged
    unfit: dict[int, str] = field(default_factory=dict)
    """Rows that were left out, by number, with the fault and its place."""
    outside: int = 0  # Number of rows outside the bounds of ``problems.within``
    rejected: int = 0  # Number of problems that ``problems.rewrite`` left out
    marker: str = ""  # Marker of the references that nobody configured; see ``_marked``


def load(config: Problems, verify: Verifying | None = None) -> list[Problem]:
    """Load problems as ``load_fit`` does, and return only the problems."""
    return load_fit(config, verify).problems


def load_fit(
    config: Problems,
    verify: Verifying | None = None,
    known_unfit: Collection[int] | None = None,
    on_checked: OnChecked | None = None,
) -> LoadedProblems:
    """Load the problems of a source, at most ``config.limit``, and list the rows left out.

    With a limit, only so many rows of a file or Hub dataset are read and checked. All of them are
    if rows may be left out (``problems.within``, ``problems.unfit``), as it is not known before how
    many rows the limit needs.

    Args:
        config: ``source`` is one of

            - ``micro``: ``size`` problems in total, of the families that the bundled models know;
            - a ``.jsonl`` or ``.parquet`` file, or ``hub:ORG/NAME``, with ``split``;
            - ``NAME:ARGS``, a plug-in that gives rows as a file does;
            - ``benchmark:NAME,...``: shipped benchmarks in turn, each read as its file says;
            - ``gym:FAMILY,...``: ``size`` problems of each family of reasoning-gym, with
              ``seed``, the settings in ``gym`` and one of ``templates``.

            ``rewrite`` changes problems or leaves them out, except those of ``micro``.
        verify: How references are checked; None uses the default settings.
        known_unfit: Numbers of rows that an earlier check found unfit; see ``fit_problems``.
        on_checked: Called after each reference of a file or dataset.

    Raises:
        ConfigError: The file of a user's verifier cannot be used.
        ProblemsError: The source or a row cannot be used, or a key has no effect on the source.
    """
    _require_effect(config)
    source, verify = config.source, verify or Verifying()
    registry.load_own(verify.own)
    rewrite = rewrite_of(config)
    if source.startswith("gym:"):
        families = [family.strip() for family in source.removeprefix("gym:").split(",")]
        made, rejected = gym_problems(families, config, rewrite)
        if rewrite and known_unfit is None:
            _require_references(made, verify, on_checked)
        return LoadedProblems(made, rejected=rejected)
    if source == "micro":
        return LoadedProblems(micro_problems(config))
    if config.verifier:
        registry.get(config.verifier)  # an unknown verifier is not a fault of the rows
    for key, value in config.verifier_args.items():
        if value is None and ":" in key:
            raise ProblemsError(
                f"problems.verifier_args: {key} has no space after the colon",
                f"Write {{{key.replace(':', ': ', 1)}}}.",
            )
    if source.startswith("benchmark:"):
        parts = list(_benchmarks(source.removeprefix("benchmark:").split(",")))
    else:
        is_first = config.unfit == "refuse" and not config.within and not rewrite
        most = config.limit if is_first else None
        parts = [(read(source, config.subset, config.split, most, config.within), config)]
    loaded = fit_problems(parts, config, verify, known_unfit, on_checked, rewrite)
    outside = sum(table.outside for table, _ in parts)
    return replace(loaded, problems=loaded.problems[: config.limit], outside=outside)


def _benchmarks(names: list[str]) -> Iterator[Part]:
    for name in names:
        config = benchmark(name).problems
        table = read(config.source, config.subset, config.split, bounds=config.within)
        yield replace(table, stem=name), config


@dataclass(frozen=True, slots=True)
class Checked:
    """What a file or dataset has today."""

    rows: int  # rows that were read, without those outside ``problems.within``
    outside: int  # rows outside ``problems.within``
    columns: tuple[str, ...]  # columns of the first row
    refused: tuple[str, ...]  # for each row that cannot be judged: its place and why


def check(config: Problems) -> Checked:
    """Read a file or dataset and check each of its references.

    Raises ProblemsError if it cannot be loaded, or no row can be judged.
    """
    config = config.model_copy(update={"unfit": "leave_out"})
    table = read(config.source, config.subset, config.split, bounds=config.within)
    unfit = fit_problems([(table, config)], config, Verifying()).unfit
    columns = tuple(table.rows[0].values)
    return Checked(len(table.rows), table.outside, columns, tuple(unfit.values()))


def _require_effect(config: Problems) -> None:
    """Raise ProblemsError if a key is set that has no effect on the source."""
    source = config.source
    is_gym, idle = source.startswith("gym:"), list[str]()
    is_benchmark = source.startswith("benchmark:")
    if is_benchmark:
        idle += ["subset"]
    if is_gym or is_benchmark or source == "micro":
        idle += ["columns", "shape", "within", "verifier", "verifier_args", "keep_option_order"]
    if source == "micro":
        idle += ["rewrite"]
    fixes = dict.fromkeys(idle, "Leave it out.")
    if not is_gym:
        fixes |= dict.fromkeys(("gym", "templates"), "Leave it out, or give gym:FAMILY.")
    for key, fix in fixes.items():
        if getattr(config, key):
            raise ProblemsError(f"problems.{key} has no effect on the source {source}", fix)


Part = tuple[Table, Problems]
"""Rows, and the configuration by which they are read."""


def fit_problems(
    parts: Sequence[Part],
    config: Problems,
    verify: Verifying,
    known_unfit: Collection[int] | None = None,
    on_checked: OnChecked | None = None,
    rewrite: Rewrite | None = None,
) -> LoadedProblems:
    """Check the rows of tables and return their problems, which ``rewrite`` changes or leaves out.

    If there are several tables, their problems take turns, so that a limit takes as many of each,
    and ids begin with the stems of the tables. ``config`` says whether unfit rows are refused.
    ``known_unfit`` are the numbers of the rows that an earlier check found unfit; if given, no
    reference is checked again. Raises as ``load_fit``, and ProblemsError if no row is left.
    """
    problems, faults, where = dict[int, Problem](), dict[int, ProblemsError](), dict[int, str]()
    marker, flags, rejected = "", "", 0
    for place, (table, own) in enumerate(parts, 1):
        made, wrong = to_problems(table, own)
        made, marker = _marked(made)  # of all rows, so that it does not depend on the check
        read = len(made)
        if rewrite:
            made = _rewritten(made, table, config, rewrite)
        rejected += read - len(made)
        if len(parts) > 1:
            made = {number: _named_by(table.stem, each) for number, each in made.items()}
        turn = functools.partial(_turn, place, len(parts))
        problems |= {turn(number): each for number, each in made.items()}
        faults |= {turn(number): fault for number, fault in wrong.items()}
        where |= {turn(row.number): row.where for row in table.rows}
    if known_unfit is not None:
        problems = {number: problems[number] for number in problems.keys() - known_unfit}
        faults = {number: faults[number] for number in faults.keys() - known_unfit}
    else:
        checked = _check_references(problems, verify, on_checked)
        unread, flags = _faults_of(checked, problems, where)
        if len(checked) < len(problems):
            raise refusal(list(unread.values()), len(checked), flags, " checked first")
        faults |= unread
        problems = {number: problems[number] for number in problems.keys() - unread}
    unfit = {number: faults[number] for number in sorted(faults)}
    if unfit and (config.unfit == "refuse" or known_unfit is not None or not problems):
        raise refusal(list(unfit.values()), len(where), flags)
    left_out = {number: fault.what for number, fault in unfit.items()}
    return LoadedProblems(
        [problems[number] for number in sorted(problems)],
        left_out,
        marker=marker,
        rejected=rejected,
    )


def _turn(place: int, parts: int, number: int) -> int:
    """The number of a row of one of several tables, which take turns."""
    return (number - 1) * parts + place


def _named_by(stem: str, problem: Problem) -> Problem:
    """The problem, with an id that begins with ``STEM:``."""
    own = problem.id.removeprefix(f"{stem}:")
    return replace(problem, id=f"{stem}:{own}")


def _marked(problems: dict[int, Problem]) -> tuple[dict[int, Problem], str]:
    """Set the marker of GSM8K if every reference without a configured one ends with it.

    Returns the problems, and the marker; empty if it was not set.
    """
    unmarked = {
        number: problem
        for number, problem in problems.items()
        if problem.verifier in WITH_MARKER and problem.verifier_args == "{}"
    }
    if not unmarked or not all(ends_with_hashes(each.reference) for each in unmarked.values()):
        return problems, ""
    args = json.dumps({"marker": HASHES})
    marked = {number: replace(each, verifier_args=args) for number, each in unmarked.items()}
    return problems | marked, HASHES


def _faults_of(
    checked: Mapping[int, str | None], problems: Mapping[int, Problem], where: Mapping[int, str]
) -> tuple[dict[int, ProblemsError], str]:
    """(faults of the references by row number, flags that would make them readable, or empty)."""
    wrong = {number: what for number, what in checked.items() if what}
    faults, flags = {}, ""
    if label := common_label(problems[number].reference for number in wrong):
        marking = f"{{marker: {json.dumps(label, ensure_ascii=False)}}}"
        flags = f"--verifier-args {shlex.quote(marking)}"
    for number, what in wrong.items():
        fix = f"The verifier {problems[number].verifier} could not judge any answer to it."
        fix = f"Add {flags}." if flags else fix
        faults[number] = ProblemsError(f"{where[number]}: {what}", fix)
    return faults, flags


def _rewritten(
    problems: Mapping[int, Problem], table: Table, config: Problems, rewrite: Rewrite
) -> dict[int, Problem]:
    """Return the problems that ``rewrite`` does not leave out, by number of their row.

    Raises ProblemsError if it leaves out all.
    """
    facts = {row.number: row.values for row in table.rows}
    made = {number: rewrite(each, facts[number]) for number, each in problems.items()}
    kept = {number: each for number, each in made.items() if each}
    if problems and not kept:
        what = f"problems.rewrite: {config.rewrite} left out all {len(problems):,} problems"
        raise ProblemsError(what, "Let the plug-in pass some of them.")
    return kept


def _check_references(
    problems: dict[int, Problem], verify: Verifying, on_checked: OnChecked | None
) -> dict[int, str | None]:
    """Why each problem's reference cannot be used, by number; None if it can.

    Only a sample is checked if the same marker, which is not set, is missing to all of it.
    """
    done = itertools.count(1)

    def count() -> None:
        if on_checked:
            on_checked(next(done), len(problems))

    sample = list(problems)[:: len(problems) // _FIRST_CHECKED or 1]
    others = [number for number in problems if number not in set(sample)]
    faults: dict[int, str | None] = {}
    with VerdictPool(verify) as pool:
        for numbers in (sample, others):
            checked = pool.check_references([problems[number] for number in numbers], count)
            faults |= dict(zip(numbers, checked, strict=True))
            if all(checked) and common_label(problems[number].reference for number in numbers):
                break
    return faults


def _require_references(
    problems: list[Problem], verify: Verifying, on_checked: OnChecked | None
) -> None:
    """Raise ProblemsError if a verifier cannot judge by the reference of a rewritten problem."""
    checked = _check_references(dict(enumerate(problems)), verify, on_checked)
    faults = [f"{problems[number].id}: {what}" for number, what in checked.items() if what]
    if faults:
        raise ProblemsError(
            f"{len(faults):,} of {len(checked):,} problems cannot be judged; {faults[0]}",
            "Correct the plug-in of problems.rewrite.",
        )


def refusal(
    faults: list[ProblemsError], rows: int, flags: str = "", which: str = ""
) -> ProblemsError:
    """The error for a source of ``rows`` rows, of which some have these faults.

    A fault that several rows have is printed once, with the places. ``flags`` are those of
    ``UserError``, and ``which`` says which rows these are, if they are not all.
    """
    fixes = {fault.fix for fault in faults}
    fix = fixes.pop() if len(fixes) == 1 else "Correct them."
    if len(faults) < rows:
        fix += " To leave such rows out, add --set problems.unfit=leave_out."
    if len(faults) == 1:
        return ProblemsError(faults[0].what, fix, flags)
    places: dict[str, list[str]] = {}
    for fault in faults:
        match = _PLACE.fullmatch(fault.what)
        places.setdefault(match[2] if match else fault.what, []).append(match[1] if match else "")
    shown = itertools.islice(places.items(), MOST_LISTED)
    lines = [": ".join(filter(None, [_few(there), what])) for what, there in shown]
    lines += [f"and {more:,} more"] if (more := len(places) - MOST_LISTED) > 0 else []
    listed = "".join(f"\n  {line}" for line in lines)
    return ProblemsError(
        f"{len(faults):,} of {rows:,} rows{which} cannot be used", f"{fix}{listed}", flags
    )


def _few(places: list[str]) -> str:
    """The first places of rows, and how many more there are."""
    more = len(places) - _MOST_PLACES
    return ", ".join(places[:_MOST_PLACES]) + (f" and {more:,} more" if more > 0 else "")
