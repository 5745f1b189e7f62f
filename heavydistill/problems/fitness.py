"""Which rows of a source are problems that can be judged, and what becomes of a source with others.

Every reference is checked by its verifier before anything is asked of a model; a check that hangs,
breaks or takes all memory makes a row unfit as well (see ``verifiers.pool``). Such a source is
refused with a list of these rows, or they are left out (``problems.unfit``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from heavydistill.config.run import Problems, Verifying
from heavydistill.errors import ProblemsError
from heavydistill.problems.columns import to_problems
from heavydistill.problems.tables import Table
from heavydistill.schema import Problem
from heavydistill.verifiers.pool import VerdictPool

MOST_LISTED = 10

OnChecked = Callable[[int, int], None]
"""Called with (references checked, all of them)."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The problems of a source, in their order.

    Attributes:
        problems: Those that can be judged.
        unfit: Of each row that was left out, its number, and what is wrong with it and where.
        outside: Rows that do not lie within what was asked for.
    """

    problems: list[Problem]
    unfit: dict[int, str] = field(default_factory=dict)
    outside: int = 0


def fit_problems(
    table: Table,
    config: Problems,
    verify: Verifying,
    known_unfit: Collection[int] | None = None,
    on_checked: OnChecked | None = None,
) -> Loaded:
    """The problems of a table.

    Args:
        table: The rows.
        config: What stands where in them, and what to do with unfit ones.
        verify: How references are checked.
        known_unfit: Numbers of the rows that an earlier check found unfit; no other reference is
            checked then. None checks all.
        on_checked: Called after each reference.

    Raises:
        ProblemsError: There are unfit rows and they are not to be left out, or there are no others;
            or the table has a fault as a whole.
        ConfigError: A file with a verifier of one's own cannot be used.
    """
    if known_unfit is not None:
        table = Table(
            table.origin,
            table.stem,
            [row for row in table.rows if row.number not in known_unfit],
        )
    found = to_problems(table, config)
    if known_unfit is None:
        found = _checked(table, found, verify, on_checked)
    rows = list(zip(table.rows, found, strict=True))
    faults = {row.number: fault for row, fault in rows if isinstance(fault, ProblemsError)}
    problems = [problem for problem in found if isinstance(problem, Problem)]
    if faults and (config.unfit == "refuse" or known_unfit is not None or not problems):
        raise refusal(list(faults.values()), len(rows))
    return Loaded(problems, {number: fault.what for number, fault in faults.items()})


def _checked(
    table: Table,
    found: list[Problem | ProblemsError],
    verify: Verifying,
    on_checked: OnChecked | None,
) -> list[Problem | ProblemsError]:
    """What was found, with a fault in the place of each problem that its verifier cannot judge."""
    problems = [problem for problem in found if isinstance(problem, Problem)]
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        if on_checked:
            on_checked(done, len(problems))

    with VerdictPool(verify) as pool:
        says = iter(pool.check_references(problems, count))
    checked: list[Problem | ProblemsError] = []
    for row, each in zip(table.rows, found, strict=True):
        fault = next(says) if isinstance(each, Problem) else None
        if isinstance(each, Problem) and fault:
            judge = f"The verifier {each.verifier} could not judge any answer to this problem."
            checked.append(ProblemsError(f"{row.where}: {fault}", judge))
        else:
            checked.append(each)
    return checked


def refusal(faults: list[ProblemsError], rows: int) -> ProblemsError:
    """The error that refuses a source of so many rows because of these."""
    fixes = {fault.fix for fault in faults}
    fix = fixes.pop() if len(fixes) == 1 else "Mend them."
    if len(faults) < rows:
        fix += " To go on without such rows, set problems.unfit=leave_out."
    if len(faults) == 1:
        return ProblemsError(faults[0].what, fix)
    listed = "".join(f"\n  {fault.what}" for fault in faults[:MOST_LISTED])
    more = len(faults) - MOST_LISTED
    rest = f"\n  and {more:,} more" if more > 0 else ""
    return ProblemsError(f"{len(faults):,} of {rows:,} rows cannot be used:{listed}{rest}", fix)
