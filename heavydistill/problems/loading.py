"""From ``problems.source`` of the configuration to a checked list of problems.

Every reference is checked by its verifier before anything is asked of a model; a check that hangs,
breaks or takes all memory makes a row unfit as well (see ``verifiers.pool``). A source with unfit
rows is refused with a list of them, or they are left out (``problems.unfit``).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from heavydistill.config.run import Problems, Verifying
from heavydistill.errors import ProblemsError
from heavydistill.problems.columns import to_problems
from heavydistill.problems.procedural import gym_problems, micro_problems
from heavydistill.problems.tables import Table, read_hub, read_jsonl, read_parquet, within
from heavydistill.schema import Problem
from heavydistill.verifiers import registry
from heavydistill.verifiers.pool import VerdictPool

_SEPARATED = {".csv": "", ".tsv": r', sep="\t"'}  # to be told to pandas, which reads them
MOST_LISTED = 10

OnChecked = Callable[[int, int], None]
"""Called with (references checked, all of them)."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The problems of a source, in their order."""

    problems: list[Problem]  # those that can be judged
    unfit: dict[int, str] = field(default_factory=dict)
    """Rows that were left out: number to what is wrong, and where."""
    outside: int = 0  # rows beyond ``problems.within``


def load(config: Problems, verify: Verifying | None = None) -> list[Problem]:
    """As ``load_fit``: the problems alone."""
    return load_fit(config, verify).problems


def load_fit(
    config: Problems,
    verify: Verifying | None = None,
    known_unfit: Collection[int] | None = None,
    on_checked: OnChecked | None = None,
) -> Loaded:
    """The problems of a source, at most ``config.limit``, and which rows are none.

    A file or Hub dataset is checked to its end before it is cut to the limit.

    Args:
        config: ``source`` is one of

            - ``micro``: ``size`` problems in all, of the families that the bundled models know;
            - a ``.jsonl`` or ``.parquet`` file;
            - ``hub:ORG/NAME``, with ``split``;
            - ``gym:FAMILY,...``: ``size`` problems of each family of reasoning-gym, with
              ``seed`` and the settings in ``gym``.
        verify: How references are checked; null is the default.
        known_unfit: Numbers of rows that an earlier check found unfit; see ``fit_problems``.
        on_checked: Called after each reference of a file or dataset.

    Raises:
        ConfigError: A file with a verifier of one's own cannot be used.
        ProblemsError: The source cannot be read, a row cannot be used, or a key has no effect
            on this source.
    """
    source = config.source
    is_gym = source.startswith("gym:")
    if config.gym and not is_gym:
        raise ProblemsError(
            f"problems.gym has no effect on the source {source}", "Take it out, or name gym:FAMILY."
        )
    if not is_gym and source != "micro":
        verify = verify or Verifying()
        registry.load_own(verify.own)
        table = _table(config)
        chosen = within(table, config.within)
        loaded = fit_problems(chosen, config, verify, known_unfit, on_checked)
        outside = len(table.rows) - len(chosen.rows)
        return Loaded(loaded.problems[: config.limit], loaded.unfit, outside)
    for key in ("columns", "shape", "within", "verifier", "verifier_args", "keep_option_order"):
        if getattr(config, key):
            raise ProblemsError(
                f"problems.{key} has no effect on the source {source}", "Take it out."
            )
    if is_gym:
        families = source.removeprefix("gym:").split(",")
        return Loaded(gym_problems([family.strip() for family in families], config))
    return Loaded(micro_problems(config))


def _table(config: Problems) -> Table:
    source = config.source
    if source.startswith("hub:"):
        return read_hub(source.removeprefix("hub:"), config.subset, config.split)
    suffix = Path(source).suffix
    if suffix == ".jsonl":
        return read_jsonl(Path(source))
    if suffix == ".parquet":
        return read_parquet(Path(source))
    if suffix in _SEPARATED:
        given, made = json.dumps(source), Path(source).with_suffix(".jsonl")
        code = f"import pandas as p; p.read_csv({given}{_SEPARATED[suffix]})"
        code += f'.to_json({json.dumps(str(made))}, orient="records", lines=True)'
        raise ProblemsError(
            f"{source}: {suffix[1:].upper()} is not read",
            f"Convert it with `python -c {shlex.quote(code)}`, and give {made}; --set "
            "problems.columns.text=COLUMN names the column of the texts, if it is not text.",
        )
    raise ProblemsError(
        f"{source!r} is no problem source",
        "Give micro, a .jsonl or .parquet file, hub:ORG/NAME or gym:FAMILY.",
    )


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
