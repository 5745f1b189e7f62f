"""Compares deliberation with its controls, paired by problem.

A control is a run on the same problems with the same models, sampling and verifiers, in which only
the coordination differs (see ``NAMES``). Controls may use different numbers of tokens, so the cost
of one answer is given for each: tokens written, and tokens written and read, including the
trajectories in its cache, as ``problem_figures`` counts them. A control that reads the trajectories
of the evaluated run lacks the problems on which a step of that run failed; they count as wrong in
both.

The influence of the order of attempts is measured with runs whose caches differ only in the order.
It is the probability that of two deliberations, one with each order, exactly one is right, minus
the same probability for two deliberations with the same order, which is due to sampling alone. Both
estimates are unbiased for any D. If two orders give the same cache, they share its deliberations.

Not covered: votes with the same number of tokens, which need no further run (see ``curve``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import heavydistill
from heavydistill.config.versioned import read_versioned
from heavydistill.errors import ConfigError
from heavydistill.metrics.counts import GenerationTally
from heavydistill.metrics.estimators import deliberations_of
from heavydistill.metrics.intervals import Interval, bootstrap_difference, bootstrap_mean
from heavydistill.metrics.problem_figures import (
    COSTS,
    Cost,
    Round,
    mean_tokens,
    prompts_of,
    verifiers_of,
)
from heavydistill.schema import FAILED, Generation, Trace

FORMAT = "heavydistill-controls/2"
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
    """Accuracy, tokens and unusable answers of one method of answering."""

    accuracy: Interval  # probability that one answer is right
    tokens: float | None
    """Mean number of tokens written for one answer, including those of its cache, over the problems
    where all counts are known; None if there is no such problem."""
    unknown_tokens: int  # number of answered problems that are not in this mean
    all_tokens: float | None  # like ``tokens``, but including the tokens that were read
    unknown_all_tokens: int  # number of answered problems that are not in this mean
    unasked: int  # problems without any answer: too few attempts, or a step failed
    samples: int  # number of answers to all problems
    cut_off: int  # answers cut off at the token limit
    without_answer: int  # answers that failed, are empty, or (chooser) name no attempt
    unanswered: int | None = None  # without a final answer; None in older files


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A method of answering with which deliberation is compared."""

    name: str  # key in ``NAMES``
    answering: Answering
    heavy_minus: Interval  # HM@D minus the control's accuracy, paired by problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """Influence of the order of the attempts."""

    problems: int  # problems with deliberations in every order, at least two if any problem has two
    means: list[Interval]  # HM@D of each order; the order of the evaluated run is first
    between: Interval  # probability that of two with different orders one is right
    within: Interval | None  # the same for equal orders; None if D is 1
    flips: Interval | None  # ``between - within``, paired by problem: the influence of the order


@dataclass(frozen=True, slots=True, kw_only=True)
class Controlled:
    """An evaluated run with its control runs."""

    format: str = FORMAT
    heavydistill: str
    prompts: list[str]
    verifiers: list[str]
    problems: int
    heavy: Answering  # the evaluated run's deliberations
    controls: list[Control]  # in the order of `NAMES`
    orders: Orders | None  # None if there is only one order


def order_name(places: int) -> str:
    """Name of the run whose attempts are rotated by ``places`` positions."""
    return f"{_ORDER}{places}"


def hold_against(
    evaluated: Iterable[Trace], rounds: int, controls: Mapping[str, Iterable[Trace]]
) -> Controlled:
    """Compare a run with its controls.

    Args:
        evaluated: All traces of the evaluated run, with deliberations.
        rounds: Number of deliberation rounds of that run; the last round is used. Controls have at
        most
            one round.
        controls: Traces of each control by its name, on the same problems.

    Raises:
        ConfigError: A control has problems that the run does not have.
    """
    heavy = _Answers(evaluated, rounds)
    others = {
        name: _Answers(traces, 0 if name in (ALONE, CHAIN) else 1)
        for name, traces in controls.items()
    }
    for name, answers in others.items():
        if not heavy.right.keys() - heavy.failed <= answers.right.keys() <= heavy.right.keys():
            raise ConfigError(
                f"The run {name} does not have the same problems as the evaluated run",
                "Remove the folder of the evaluation and give the same command again.",
            )
        # A missing problem counts as a problem without an answer.
        answers.right |= {problem: [] for problem in heavy.right.keys() - answers.right.keys()}
    orders = [heavy, *(each for name, each in others.items() if name.startswith(_ORDER))]
    everyone = (heavy, *others.values())
    return Controlled(
        heavydistill=heavydistill.__version__,
        prompts=sorted(set().union(*(each.prompts for each in everyone))),
        verifiers=sorted(set().union(*(each.verifiers for each in everyone))),
        problems=len(heavy.right),
        heavy=heavy.answering,
        controls=[
            Control(
                name=name,
                answering=others[name].answering,
                heavy_minus=bootstrap_difference(
                    heavy.means_of(heavy.right), others[name].means_of(heavy.right)
                ),
            )
            for name in NAMES
            if name in others
        ],
        orders=_orders(orders),
    )


def read_controlled(path: Path) -> Controlled:
    """Read controls; raises ConfigError if the file is missing or of another version."""
    fix = "Give the file that `heavydistill evaluate --controls` wrote, or evaluate again."
    return read_versioned(path, Controlled, FORMAT, what="controls", missing=fix, other=fix)


class _Answers:
    """Answers of a run by problem: whether they are right, their tokens, and their cache.

    Args:
        traces: All traces of a run.
        round: Round whose deliberations are the answers; 0 uses the trajectories as answers.
    """

    def __init__(self, traces: Iterable[Trace], round: int) -> None:
        self.right: dict[str, list[bool]] = {}  # by problem: whether each answer is right
        self.caches: dict[str, str] = {}  # id of the cache by problem
        self.failed: set[str] = set()  # problems on which a step failed
        self.prompts: set[str] = set()
        self.verifiers: set[str] = set()
        self._tokens: dict[Cost, list[float]] = {cost: [] for cost in COSTS}
        self._tally = GenerationTally()
        for trace in traces:
            problem, deliberations = trace.problem.id, deliberations_of(trace, round)
            given: Sequence[Generation] = deliberations if round else trace.pool
            self.right[problem] = [sample.is_correct for sample in given]
            self.caches[problem] = deliberations[0].cache if deliberations else ""
            self.failed |= {problem} if trace.status.startswith(FAILED) else set()
            self.prompts |= prompts_of(trace)
            self.verifiers |= verifiers_of(trace)
            self._tally.add(given)
            for cost in COSTS:
                of_one = Round.of(trace, round).tokens[cost] if round else mean_tokens(given, cost)
                if given and not math.isnan(of_one):
                    self._tokens[cost].append(of_one)

    def means_of(self, problems: Iterable[str]) -> list[float]:
        """Share of right answers for each problem; 0 if a problem has no answers."""
        return [_share(self.right[problem]) for problem in problems]

    @property
    def answering(self) -> Answering:
        written, with_read = (self._tokens[cost] for cost in COSTS)
        answered = sum(map(bool, self.right.values()))
        counts = self._tally.counts
        return Answering(
            accuracy=bootstrap_mean(self.means_of(self.right)),
            tokens=fmean(written) if written else None,
            unknown_tokens=answered - len(written),
            all_tokens=fmean(with_read) if with_read else None,
            unknown_all_tokens=answered - len(with_read),
            unasked=len(self.right) - answered,
            samples=counts.total,
            cut_off=counts.truncated,
            without_answer=counts.failed + counts.empty,
            unanswered=(counts.unanswered or 0) - counts.empty,
        )


def _share(right: Sequence[bool]) -> float:
    return fmean(right) if right else 0.0


def _orders(orders: Sequence[_Answers]) -> Orders | None:
    """The influence of the order; None with one order, or if no problem has answers in all."""
    fewest = {name: min(len(each.right[name]) for each in orders) for name in orders[0].right}
    needed = min(_PAIR, max(fewest.values()))
    problems = [name for name, count in fewest.items() if count >= max(1, needed)]
    if len(orders) < _PAIR or not problems:
        return None
    shares = [each.means_of(problems) for each in orders]
    pairs = list(itertools.combinations(orders, _PAIR))
    between = [fmean(_differ_between(name, *pair) for pair in pairs) for name in problems]
    within = [fmean(_differ_within(each.right[name]) for each in orders) for name in problems]
    is_known = needed == _PAIR
    return Orders(
        problems=len(problems),
        means=[bootstrap_mean(share) for share in shares],
        between=bootstrap_mean(between),
        within=bootstrap_mean(within) if is_known else None,
        flips=bootstrap_difference(between, within) if is_known else None,
    )


def _differ_between(problem: str, one: _Answers, other: _Answers) -> float:
    """Probability that exactly one of two samples, one from each order, is right."""
    if one.caches[problem] == other.caches[problem]:
        return _differ_within(one.right[problem])
    p, q = _share(one.right[problem]), _share(other.right[problem])
    return p * (1 - q) + q * (1 - p)


def _differ_within(right: Sequence[bool]) -> float:
    """Probability that exactly one of two samples of one order is right; 0 for a single sample."""
    n, c = len(right), sum(right)
    return 2 * c * (n - c) / (n * max(1, n - 1))
