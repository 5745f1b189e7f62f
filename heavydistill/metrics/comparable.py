"""Two runs that are to be compared, and whether they may be.

They must be over the same problems. Runs of different times must have been judged alike, by the
same versions of verifiers and the same judge: else nobody could tell a difference of answers from
one of verdicts. And where all but the models is to be the same, they must have been asked alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from heavydistill.errors import ConfigError
from heavydistill.metrics.row import Row
from heavydistill.metrics.summary import Summary
from heavydistill.metrics.tally import Tally

_JUDGE_AGAIN = (
    "Judge them anew with this version: `heavydistill replay RUN --out FOLDER` asks nobody (an "
    "imported pool is imported again)."
)
_MOST_LISTED = 3
_POOLS = "pools_sha256"
# What says nothing of a run that took its problems and trajectories from another one.
_NOT_OF_POOLS = ("problems.", "think.sampling.", _POOLS)


@dataclass(frozen=True, slots=True)
class Model:
    """Who was asked: the name of a profile or folder, or an id on the Hub.

    Attributes:
        name: That.
        revision: Tells its weights from others of that name; of a served model that cannot be.
    """

    name: str
    revision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A run that is to be compared.

    Attributes:
        name: What it is called: before or after, A or B.
        heavydistill: Version that made it; empty if that is not known.
        thinker: None if it took its pools from another run.
        deliberator: Who deliberated; None if nobody did.
        config: How it was asked: its configuration without models, folders and addresses.
        summary: Of it.
        tally: Of all that the summary is over.
        left_out: Rows of its source that cannot be judged; None if the run does not tell.
    """

    name: str
    heavydistill: str
    thinker: Model | None
    deliberator: Model | None
    config: dict[str, Any]
    summary: Summary
    tally: Tally
    left_out: int | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A key of the configuration that is not the same in both runs; null where it is not there."""

    key: str
    before: Any
    after: Any


def asked_differently(before: Side, after: Side) -> list[Asked]:
    """The keys of their configurations that are not the same; imported pools have none at all.

    Where one of the two took the pools of another run, what it did not ask is not compared.
    """
    if not (before.config and after.config):
        made = ["generated" if side.config else "imported" for side in (before, after)]
        return [Asked("configuration", *made)] if made[0] != made[1] else []
    then, now = dict(_leaves(before.config)), dict(_leaves(after.config))
    one_took_pools = bool(then.get(_POOLS)) != bool(now.get(_POOLS))
    passed_over = _NOT_OF_POOLS if one_took_pools else ()
    return [
        Asked(key, then.get(key), now.get(key))
        for key in {**then, **now}
        if then.get(key) != now.get(key) and not key.startswith(passed_over)
    ]


def _leaves(tree: dict[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of each value that is no mapping."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{at}{key}.")
        else:
            yield f"{at}{key}", value


def refuse_other_ways(before: Side, after: Side) -> None:
    """Refuse runs that were not asked alike.

    Raises:
        ConfigError: That.
    """
    asked = asked_differently(before, after)
    if not asked:
        return
    told = [f"{one.key} ({one.before!r} before, {one.after!r} after)" for one in asked]
    raise ConfigError(
        f"The runs were not asked alike: {_listed(told)}",
        "Compare runs of one configuration that differ in their models alone.",
    )


def refuse_other_problems(before: Side, after: Side) -> None:
    """Refuse runs that are not over the same problems.

    Raises:
        ConfigError: That.
    """
    then, now = ({row.problem: row for row in side.tally.rows} for side in (before, after))
    lonely = {
        after.name: [problem for problem in then if problem not in now],
        before.name: [problem for problem in now if problem not in then],
    }
    told = [f"{_listed(names)} missing {where}" for where, names in lonely.items() if names]
    changed = [p for p in then if p in now and _question(then[p]) != _question(now[p])]
    told += (
        [f"{_listed(changed)} with another text, reference, verifier or arguments of it"]
        if changed
        else []
    )
    if told:
        raise ConfigError(
            f"The runs are not over the same problems: {'; '.join(told)}",
            "Compare runs on the same problems.",
        )


def refuse_other_verdicts(before: Side, after: Side) -> None:
    """Refuse runs without verdicts, or with those of other versions of a verifier or judges.

    Raises:
        ConfigError: That.
    """
    sides = (before, after)
    for side in sides:
        if not side.tally.verifiers:
            raise ConfigError(
                f"The run {side.name} has no verdicts: none of its samples was judged", _JUDGE_AGAIN
            )
    versions: dict[str, set[str]] = {}
    for rule in sorted(before.tally.rules | after.tally.rules):
        versions.setdefault(rule.partition("@")[0], set()).add(rule)
    if mixed := [rule for rules in versions.values() if len(rules) > 1 for rule in sorted(rules)]:
        told = [
            f"{rule} ({' and '.join(side.name for side in sides if rule in side.tally.rules)})"
            for rule in mixed
        ]
        raise ConfigError(
            f"The runs were judged by different versions of a verifier: {', '.join(told)}",
            _JUDGE_AGAIN,
        )
    judges = [set(side.summary.judging.judges) for side in sides]
    # A judge changes nothing in a run in which rules leave nothing open to it.
    needs_none = [
        not names and not side.tally.left_open for names, side in zip(judges, sides, strict=True)
    ]
    if judges[0] != judges[1] and not any(needs_none):
        told = [
            f"{', '.join(sorted(names)) or 'nobody'} ({side.name})"
            for names, side in zip(judges, sides, strict=True)
        ]
        raise ConfigError(
            f"What rules left undecided was judged by different judges: {', '.join(told)}",
            "Compare runs with the same judge, or without one.",
        )


def _question(row: Row) -> tuple[str, ...]:
    return row.text, row.reference, row.verifier, row.verifier_args


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_LISTED
    return ", ".join(names[:_MOST_LISTED]) + (f" and {more:,} more" if more > 0 else "")
