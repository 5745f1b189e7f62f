"""Loads and checks the problems of ``problems.source``.

The verifier checks every reference before any request is sent to a model. A check that hangs, fails
or runs out of memory makes its row unfit too (see ``verifiers.pool``). A source with unfit rows is
refused with a list of them, or the rows are left out (``problems.unfit``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from heavydistill.config.run import Problems, Verifying
from heavydistill.errors import ProblemsError
from heavydistill.problems.columns import to_problems
from heavydistill.problems.procedural import gym_problems, micro_problems
from heavydistill.problems.tables import Table, read, within
from heavydistill.schema import Problem
from heavydistill.verifiers import registry
from heavydistill.verifiers.pool import VerdictPool

MOST_LISTED = 10

OnChecked = Callable[[int, int], None]
"""Callback with (number of checked references, number of all references)."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The problems of a source, in order, and the rows that were left out."""

    problems: list[Problem]  # problems that can be judged
    unfit: dict[int, str] = field(default_factory=dict)
    """Rows that were left out, by number, with the fault and its place."""
    outside: int = 0  # Number of rows outside the bounds of ``problems.within``


def load(config: Problems, verify: Verifying | None = None) -> list[Problem]:
    """Load problems as ``load_fit`` does, and return only the problems."""
    return load_fit(config, verify).problems


def load_fit(
    config: Problems,
    verify: Verifying | None = None,
    known_unfit: Collection[int] | None = None,
    on_checked: OnChecked | None = None,
) -> Loaded:
    """Load the problems of a source, at most ``config.limit``, and list the rows left out.

    A file or Hub dataset is checked completely before the limit is applied.

    Args:
        config: ``source`` is one of

            - ``micro``: ``size`` problems in total, of the families that the bundled models know;
            - a ``.jsonl`` or ``.parquet`` file, or ``hub:ORG/NAME``, with ``split``;
            - ``gym:FAMILY,...``: ``size`` problems of each family of reasoning-gym, with
              ``seed`` and the settings in ``gym``.
        verify: How references are checked; None uses the default settings.
        known_unfit: Numbers of rows that an earlier check found unfit; see ``fit_problems``.
        on_checked: Called after each reference of a file or dataset.

    Raises:
        ConfigError: The file of a user's verifier cannot be used.
        ProblemsError: The source or a row cannot be used, or a key has no effect on the source.
    """
    source = config.source
    is_gym = source.startswith("gym:")
    idle = [] if is_gym else ["gym"]
    if is_gym or source == "micro":
        idle += ["columns", "shape", "within", "verifier", "verifier_args", "keep_option_order"]
    for key in idle:
        if getattr(config, key):
            fix = "Leave it out, or give gym:FAMILY." if key == "gym" else "Leave it out."
            raise ProblemsError(f"problems.{key} has no effect on the source {source}", fix)
    if is_gym:
        families = source.removeprefix("gym:").split(",")
        return Loaded(gym_problems([family.strip() for family in families], config))
    if source == "micro":
        return Loaded(micro_problems(config))
    verify = verify or Verifying()
    registry.load_own(verify.own)
    if config.verifier:
        registry.get(config.verifier)  # an unknown verifier is not a fault of the rows
    for key, value in config.verifier_args.items():
        if value is None and ":" in key:
            raise ProblemsError(
                f"problems.verifier_args: {key} has no space after the colon",
                f"Write {{{key.replace(':', ': ', 1)}}}.",
            )
    table = read(source, config.subset, config.split)
    chosen = within(table, config.within)
    loaded = fit_problems(chosen, config, verify, known_unfit, on_checked)
    outside = len(table.rows) - len(chosen.rows)
    return Loaded(loaded.problems[: config.limit], loaded.unfit, outside)


def fit_problems(
    table: Table,
    config: Problems,
    verify: Verifying,
    known_unfit: Collection[int] | None = None,
    on_checked: OnChecked | None = None,
) -> Loaded:
    """Check the rows of a table and return its problems.

    ``known_unfit`` are the numbers of the rows that an earlier check found unfit; if given, no
    reference is checked again. Raises as ``load_fit``, and ProblemsError if no row is left.
    """
    if known_unfit is not None:
        rows = [row for row in table.rows if row.number not in known_unfit]
        table = replace(table, rows=rows)
    problems, faults = to_problems(table, config)
    if known_unfit is None:
        where = {row.number: row.where for row in table.rows}
        checked = _check_references(list(problems.values()), verify, on_checked)
        for (number, problem), what in zip([*problems.items()], checked, strict=True):
            if what:
                judge = f"The verifier {problem.verifier} could not judge any answer to it."
                faults[number] = ProblemsError(f"{where[number]}: {what}", judge)
                del problems[number]
    unfit = {number: faults[number] for number in sorted(faults)}
    if unfit and (config.unfit == "refuse" or known_unfit is not None or not problems):
        raise refusal(list(unfit.values()), len(table.rows))
    return Loaded([*problems.values()], {number: fault.what for number, fault in unfit.items()})


def _check_references(
    problems: list[Problem], verify: Verifying, on_checked: OnChecked | None
) -> list[str | None]:
    """Why each problem's reference cannot be used; None if it can."""
    done = itertools.count(1)

    def count() -> None:
        if on_checked:
            on_checked(next(done), len(problems))

    with VerdictPool(verify) as pool:
        return pool.check_references(problems, count)


def refusal(faults: list[ProblemsError], rows: int) -> ProblemsError:
    """The error for a source of ``rows`` rows, of which some have these faults."""
    fixes = {fault.fix for fault in faults}
    fix = fixes.pop() if len(fixes) == 1 else "Correct them."
    if len(faults) < rows:
        fix += " To leave such rows out, add --set problems.unfit=leave_out."
    if len(faults) == 1:
        return ProblemsError(faults[0].what, fix)
    lines = [fault.what for fault in faults[:MOST_LISTED]]
    lines += [f"and {more:,} more"] if (more := len(faults) - MOST_LISTED) > 0 else []
    listed = "".join(f"\n  {line}" for line in lines)
    return ProblemsError(f"{len(faults):,} of {rows:,} rows cannot be used", f"{fix}{listed}")
