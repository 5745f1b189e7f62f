"""Deliberation beside its controls, paired by problem: is it the coordination that helps?

A control is a run on the same problems with the same models, sampling and verifiers, in which one
thing differs (see ``NAMES``). What one answer of it costs is in written tokens, the pool that it
reads included: a heavy answer is K trajectories and one deliberation.

How much the order of the attempts matters is measured between runs whose caches differ in it alone:
the chance that two deliberations of different orders differ in being right, beside the chance that
two of one order do, which is what sampling does by itself. Both are unbiased for the D that there
are. Attempts that read the same make the same cache in several orders, whose deliberations are the
same ones: they differ as those of one order do.

Not covered: votes that spend the same tokens, which come from the pool alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import heavydistill
from heavydistill.errors import ConfigError
from heavydistill.metrics.intervals import Interval, bootstrap_difference, bootstrap_mean
from heavydistill.schema import Generation, Trace
from heavydistill.versioned import read_versioned

FORMAT = "heavydistill-controls/1"
CONTROLS = "controls.json"
ALONE, CHAIN, CHOOSE = "alone", "chain", "choose"
NAMES = {
    ALONE: "the deliberator, without attempts",
    CHAIN: "one long chain of the thinker",
    CHOOSE: "the best attempt, as the deliberator names it",
}
_ORDER = "order-"
_PAIR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """One way to answer.

    Attributes:
        accuracy: Chance that one answer is right.
        tokens: Mean tokens that are written for one answer, with the pool if it reads one; of the
            problems where all of them are known. None if there is no such problem.
        unknown_tokens: Problems that are not in that mean.
        samples: Answers, all problems.
        cut_off: Of those, the ones at the most tokens.
        without_answer: Of those, the ones that failed or gave no answer; of a chooser, named no
            attempt.
    """

    accuracy: Interval
    tokens: float | None
    unknown_tokens: int
    samples: int
    cut_off: int
    without_answer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A way that deliberation is held against.

    Attributes:
        name: Of ``NAMES``.
        answering: What it achieved.
        heavy_minus: HM@D minus its accuracy, paired by problem.
    """

    name: str
    answering: Answering
    heavy_minus: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What the order of the attempts does.

    Attributes:
        problems: Those with deliberations in every order, at least two if any has two.
        means: HM@D in each order, the evaluated run's first.
        between: Chance that two deliberations of different orders differ in being right.
        within: Likewise of one order; None with one deliberation a cache.
        flips: ``between - within``, paired by problem: what is due to the order. None likewise.
    """

    problems: int
    means: list[Interval]
    between: Interval
    within: Interval | None
    flips: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Controlled:
    """An evaluated run beside its controls.

    Attributes:
        problems: In each of them.
        heavy: The evaluated run's deliberations.
        controls: In the order of ``NAMES``.
        orders: None if there is one alone.
    """

    format: str = FORMAT
    heavydistill: str
    problems: int
    heavy: Answering
    controls: list[Control]
    orders: Orders | None


def order_name(places: int) -> str:
    """The name of the run whose attempts are moved round by so many places."""
    return f"{_ORDER}{places}"


def hold_against(evaluated: Iterable[Trace], controls: Mapping[str, Iterable[Trace]]) -> Controlled:
    """Compare a run with its controls.

    Args:
        evaluated: All of its traces, with deliberations.
        controls: The traces of each control by its name, on the same problems.

    Raises:
        ConfigError: The problems of a control are others.
    """
    heavy = _Answers.of_deliberations(evaluated)
    of_pool = (ALONE, CHAIN)
    others = {
        name: _Answers.of_pool(traces) if name in of_pool else _Answers.of_deliberations(traces)
        for name, traces in controls.items()
    }
    for name, answers in others.items():
        if set(answers.right) != set(heavy.right):
            raise ConfigError(
                f"The run {name} is not over the problems of the evaluated one",
                "Remove the folder of the evaluation and give the same command again.",
            )
    orders = [heavy, *(each for name, each in others.items() if name.startswith(_ORDER))]
    return Controlled(
        heavydistill=heavydistill.__version__,
        problems=len(heavy.right),
        heavy=heavy.answering,
        controls=[
            Control(
                name=name,
                answering=others[name].answering,
                heavy_minus=bootstrap_difference(heavy.means, others[name].means_of(heavy.right)),
            )
            for name in NAMES
            if name in others
        ],
        orders=_orders(orders),
    )


def read_controlled(path: Path) -> Controlled:
    """What ``write_versioned`` wrote.

    Raises:
        ConfigError: There is no such file, or it is of another version.
    """
    fix = "Give the file that `heavydistill evaluate --controls` wrote, or evaluate again."
    return read_versioned(path, Controlled, FORMAT, what="controls", missing=fix, other=fix)


class _Answers:
    """Whether the answers of each problem are right, what they took, and the cache they are on."""

    def __init__(self) -> None:
        self.right: dict[str, list[bool]] = {}
        self.caches: dict[str, str] = {}
        self._tokens: list[float] = []
        self._samples = self._cut_off = self._without = 0

    @classmethod
    def of_pool(cls, traces: Iterable[Trace]) -> _Answers:
        answers = cls()
        for trace in traces:
            answers._add(trace, trace.pool, [])
        return answers

    @classmethod
    def of_deliberations(cls, traces: Iterable[Trace]) -> _Answers:
        answers = cls()
        for trace in traces:
            last = max((one.round for one in trace.deliberations), default=0)
            given = [one for one in trace.deliberations if one.round == last]
            earlier = [one for one in trace.deliberations if one.round < last]
            answers._add(trace, given, [*trace.pool, *earlier])
            answers.caches[trace.problem.id] = given[0].cache if given else ""
        return answers

    def _add(self, trace: Trace, given: Sequence[Generation], read: Sequence[Generation]) -> None:
        self.right[trace.problem.id] = [one.is_correct for one in given]
        self._samples += len(given)
        self._cut_off += sum(one.unusable_because == "truncated" for one in given)
        self._without += sum(one.unusable_because in ("error", "empty") for one in given)
        known = all(one.completion_tokens >= 0 for one in (*given, *read))
        if given and known:
            spent = sum(one.completion_tokens for one in read)
            self._tokens.append(spent + fmean(one.completion_tokens for one in given))

    @property
    def means(self) -> list[float]:
        return self.means_of(self.right)

    def means_of(self, problems: Iterable[str]) -> list[float]:
        """The share that is right, of these problems in this order; 0 where nothing was given."""
        return [_share(self.right[problem]) for problem in problems]

    @property
    def answering(self) -> Answering:
        return Answering(
            accuracy=bootstrap_mean(self.means),
            tokens=fmean(self._tokens) if self._tokens else None,
            unknown_tokens=len(self.right) - len(self._tokens),
            samples=self._samples,
            cut_off=self._cut_off,
            without_answer=self._without,
        )


def _share(right: Sequence[bool]) -> float:
    return fmean(right) if right else 0.0


def _orders(orders: Sequence[_Answers]) -> Orders | None:
    """None if there is one order alone, or nothing was answered in all of them."""
    fewest = {name: min(len(each.right[name]) for each in orders) for name in orders[0].right}
    needed = min(_PAIR, max(fewest.values()))
    problems = [name for name, count in fewest.items() if count >= max(1, needed)]
    if len(orders) < _PAIR or not problems:
        return None
    shares = [each.means_of(problems) for each in orders]
    pairs = list(itertools.combinations(orders, _PAIR))
    between = [fmean(_differ(name, *pair) for pair in pairs) for name in problems]
    within = [fmean(_differ_within(each.right[name]) for each in orders) for name in problems]
    is_known = needed == _PAIR
    return Orders(
        problems=len(problems),
        means=[bootstrap_mean(share) for share in shares],
        between=bootstrap_mean(between),
        within=bootstrap_mean(within) if is_known else None,
        flips=bootstrap_difference(between, within) if is_known else None,
    )


def _differ(problem: str, one: _Answers, other: _Answers) -> float:
    """Chance that two samples of different orders differ."""
    if one.caches[problem] == other.caches[problem]:
        return _differ_within(one.right[problem])
    p, q = _share(one.right[problem]), _share(other.right[problem])
    return p * (1 - q) + q * (1 - p)


def _differ_within(right: Sequence[bool]) -> float:
    """Chance that two samples of one order differ; 0 if there is one alone."""
    n, c = len(right), sum(right)
    return 2 * c * (n - c) / (n * max(1, n - 1))
