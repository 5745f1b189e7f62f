"""Compares deliberation with its controls, paired by problem.

A control is a run on the same problems with the same models, sampling and verifiers, in which only
the coordination or the attempts in the caches differ (see ``NAMES``). Controls may use different
numbers of tokens, so the cost of one answer is given for each: tokens written, and tokens written
and read, including the trajectories in its cache, as ``problem_figures`` counts them. A control
that reads the trajectories of the evaluated run lacks the problems on which a step of that run
failed; they count as wrong in both. ``PARTIAL`` controls are possible on some problems only; both
sides of their differences have these problems. ``PLANTED`` is several runs, each with another
number of attempts that share the wrong step (``planted_names``). ``WORDING`` too, each with other
instructions (``metrics.experiments.wordings``).

``alone`` is the better of two runs: the thinker's prompt, and the deliberator's without attempts.
It is chosen by its mean, which favours ``alone``.

With ``SKILL``, a single attempt of the evaluated run is compared with both, and the answers that
show the protocol are counted: those with at least three final answers, attempts included. Thinking
that the server does not return is not seen.

``AttemptValueEffect`` says what the attempts' values add: deliberation with them, minus
``garbled``. A ``Transplant`` says what one kind of attempt adds, over the problems where it could
be exchanged. A ``PlantedStep`` says how many deliberations end with the answer that a wrong step
leads to, and how many are right, where some of the attempts shown have the step and all others are
right.

The influence of the order of attempts is measured with runs whose caches differ only in the order.
It is the probability that of two deliberations, one with each order, exactly one is right, minus
the same probability for two deliberations with the same order, which is due to sampling alone. Both
estimates are unbiased for any D. If two orders give the same cache, they share its deliberations.

Not covered: votes with the same number of tokens, which need no further run (see ``curve``).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import heavydistill
from heavydistill.config.versioned import read_versioned
from heavydistill.errors import ConfigError
from heavydistill.heavy.voting import vote_value
from heavydistill.metrics.claims import ClaimFigures
from heavydistill.metrics.counts import GenerationTally
from heavydistill.metrics.estimators import deliberations_of
from heavydistill.metrics.experiments.wordings import WordingLoss, WordingValues, wording_loss
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

FORMAT = "heavydistill-controls/3"
CONTROLS = "controls.json"
ALONE, CHAIN, CHOOSE, SKILL = "alone", "chain", "choose", "skill"
GARBLED, FOREIGN, TRANSPLANT = "garbled", "foreign", "transplant"
EMPTY, ANSWERS, STEPS, PLANTED = "empty", "answers", "steps", "planted"
WORDING = "wording"
OUTPUTS = "outputs"
NAMES = {
    ALONE: "no attempts",
    CHAIN: "one long chain of the thinker",
    CHOOSE: "the deliberator names an attempt",
    GARBLED: "the attempts have other values",
    FOREIGN: "attempts at another problem",
    TRANSPLANT: "right attempts are taken out or put in",
    EMPTY: "the attempts have no text",
    ANSWERS: "the attempts' final boxes alone",
    STEPS: "the attempts without final boxes",
    OUTPUTS: "the attempts' code printed other values",
    PLANTED: "right attempts, some with the same wrong step",
    SKILL: "one model does the whole protocol in one context",
    WORDING: "the same attempts with other instructions or none",
}
ATTEMPT = "attempt"
PARTIAL = (GARBLED, FOREIGN, TRANSPLANT, EMPTY, ANSWERS, STEPS, OUTPUTS, PLANTED)
FALLS, RISES = "falls", "rises"
"""Transplants that took right attempts out, and that put one in."""
WORDINGS = ("thinker", "deliberator")
"""Prompts of ``ALONE``; the run ``alone-thinker`` has the first one."""
_ORDER = "order-"
_PAIR = 2
_SEVERAL = 3  # final answers that show the skill's protocol: two attempts and a deliberation
_FINAL_ANSWER = re.compile(r"\\boxed\s*\{|^```\w", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodMetrics:
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
    unanswered: int  # without a final answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A method of answering with which deliberation is compared."""

    name: str  # key in ``NAMES``, or ``ATTEMPT``
    wording: str = ""  # prompt of ``ALONE``, see ``WORDINGS``
    problems: int  # problems on which the control is possible
    answering: MethodMetrics
    heavy_minus: Interval  # HM@D minus the control's accuracy, paired by problem


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptValueEffect:
    """What the values in the attempts are worth, on the problems of ``GARBLED``."""

    problems: int
    heavy_minus_vote: Interval  # HM@D - V@K
    garbled_minus_vote: Interval  # the same without the attempts' values
    heavy_minus_garbled: Interval  # what the values add
    garbled_minus_alone: Interval | None  # below 0: it breaks; None without ``ALONE``

    @property
    def is_shown(self) -> bool:
        """Whether the run shows that the deliberator uses the attempts."""
        return self.heavy_minus_garbled.low > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transplant:
    """Share of right deliberations before and after an exchange of attempts."""

    problems: int
    before: Interval
    after: Interval
    change: Interval  # ``after - before``, paired by problem


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedStep:
    """Deliberations on right attempts, of which some share one wrong step."""

    shared: int  # attempts with the wrong step
    shown: int  # attempts in a cache
    problems: int
    right: Interval  # share of right deliberations
    follows: Interval  # share of deliberations with the answer of the wrong step


@dataclass(frozen=True, slots=True, kw_only=True)
class WordingMetrics:
    """Deliberations under one wording, compared with those of the evaluated run."""

    wording: str  # full (that of the evaluated run), short, none or foreign
    answering: MethodMetrics
    compared: WordingLoss


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """Influence of the order of the attempts."""

    problems: int  # problems with deliberations in every order, at least two if any problem has two
    means: list[Interval]  # HM@D of each order; the order of the evaluated run is first
    between: Interval  # probability that of two with different orders one is right
    within: Interval | None  # the same for equal orders; None if D is 1
    flips: Interval | None  # ``between - within``, paired by problem: the influence of the order


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlReport:
    """An evaluated run with its control runs."""

    format: str = FORMAT
    heavydistill: str
    prompts: list[str]
    verifiers: list[str]
    problems: int
    heavy: MethodMetrics  # the evaluated run's deliberations
    controls: list[Control]  # in the order of ``NAMES``, without ``TRANSPLANT``
    unreported: list[Control]  # ``ALONE`` with the other prompt, whose accuracy is lower
    worth: AttemptValueEffect | None  # None without ``GARBLED``
    falls: Transplant | None  # right attempts out; None if not run or possible on no problem
    rises: Transplant | None  # a right attempt in; None likewise
    orders: Orders | None  # None if there is only one order
    attempt: Control | None = None  # a single attempt of the thinker; None without ``SKILL``
    skill_minus_attempt: Interval | None = None  # paired by problem; None without ``SKILL``
    skill_followed: int | None = None  # answers that show the protocol; None without ``SKILL``
    not_asked: dict[str, str] = field(default_factory=dict)
    """Controls that were not asked because no context holds their prompt or they are not possible
    on the attempts, each with the reason."""
    planted: list[PlantedStep] = field(default_factory=list)  # in the order of ``shared``
    wordings: list[WordingMetrics] = field(default_factory=list)
    """The wording of the evaluated run, then the others; empty without ``WORDING``."""


def alone_name(wording: str) -> str:
    """Name of the run that answers alone with the prompt ``wording``."""
    return f"{ALONE}-{wording}"


def kind_of(run: str) -> str:
    """Key in ``NAMES`` of a control run; that of ``ALONE`` is not covered."""
    first = run.partition("-")[0]
    return first if first in (PLANTED, WORDING) else run


def planted_names(shown: int) -> list[str]:
    """Names of the runs of ``PLANTED`` with so many attempts in a cache, e.g. 2, 5, 7, 8 of 8."""
    shared = {shown // 4, 5 * shown // 8, shown - 1, shown} - {0}
    return [f"{PLANTED}-{number}" for number in sorted(shared)]


def wording_name(wording: str) -> str:
    """Name of the run of ``WORDING`` with these instructions."""
    return f"{WORDING}-{wording}"


def order_name(places: int) -> str:
    """Name of the run whose attempts are rotated by ``places`` positions."""
    return f"{_ORDER}{places}"


def compare_with_controls(
    evaluated: Iterable[Trace],
    rounds: int,
    controls: Mapping[str, Iterable[Trace]],
    not_asked: Mapping[str, str] | None = None,
) -> ControlReport:
    """Compare a run with its controls.

    Args:
        evaluated: All traces of the evaluated run, with deliberations.
        rounds: Number of deliberation rounds of that run and of ``PARTIAL`` controls; the last
            round is used. Other controls have at most one round.
        controls: Traces of each control run by its name, on the same problems.
        not_asked: The reason for each control that was not asked.

    Raises:
        ConfigError: A control has problems that the run does not have.
    """
    heavy, attempt, others, alone = _read(evaluated, rounds, controls)
    missing, skill = not_asked or {}, others.get(SKILL)
    orders = [heavy, *(each for name, each in others.items() if name.startswith(_ORDER))]
    differences = _differences(heavy, others, alone)
    everyone = (heavy, *others.values())
    return ControlReport(
        heavydistill=heavydistill.__version__,
        prompts=sorted(set().union(*(each.prompts for each in everyone))),
        verifiers=sorted(set().union(*(each.verifiers for each in everyone))),
        problems=len(heavy.right),
        heavy=heavy.answering,
        controls=[
            _control(name, alone[0] if name == ALONE else name, others, differences[name])
            for name in NAMES
            if name in differences
        ],
        unreported=[_control(ALONE, each, others, heavy.minus(others[each])) for each in alone[1:]],
        worth=_worth(heavy, others, alone) if GARBLED in others else None,
        falls=_transplant(heavy, others, differences.get(FALLS)),
        rises=_transplant(heavy, others, differences.get(RISES)),
        orders=_orders(orders),
        attempt=_control(ATTEMPT, ATTEMPT, {ATTEMPT: attempt}, heavy.minus(attempt))
        if SKILL in {*others, *missing}
        else None,
        skill_minus_attempt=bootstrap_mean([*skill.minus(attempt).values()]) if skill else None,
        skill_followed=skill.several if skill else None,
        not_asked=dict(missing),
        planted=[
            _planted(int(name.removeprefix(f"{PLANTED}-")), answers)
            for name, answers in others.items()
            if kind_of(name) == PLANTED
        ],
        wordings=_wordings(heavy, others),
    )


def minus_controls(
    evaluated: Iterable[Trace], rounds: int, controls: Mapping[str, Iterable[Trace]]
) -> dict[str, dict[str, float]]:
    """HM@D minus the accuracy of each control, by control and problem.

    The keys ``FALLS`` and ``RISES`` have HM@D after a transplant minus HM@D. Arguments and errors
    are those of ``compare_with_controls``.
    """
    heavy, _, others, alone = _read(evaluated, rounds, controls)
    return _differences(heavy, others, alone)


def read_controlled(path: Path) -> ControlReport:
    """Read controls; raises ConfigError if the file is missing or of another version."""
    fix = "Give the file that `heavydistill evaluate --controls` wrote, or evaluate again."
    return read_versioned(path, ControlReport, FORMAT, what="controls", missing=fix, other=fix)


class _Answers:
    """Answers of a run by problem: whether they are right, their tokens, and their cache.

    Args:
        round: Round whose deliberations are the answers; 0 uses the trajectories as answers.
        traces: All traces of a run, or those before the ones that are added.
    """

    def __init__(self, round: int, traces: Iterable[Trace] = ()) -> None:
        self.right: dict[str, list[bool]] = {}  # by problem: whether each answer is right
        self.caches: dict[str, str] = {}  # id of the cache by problem
        self.votes: dict[str, float] = {}  # value of the vote by problem
        self.shows_right: set[str] = set()  # problems with a right attempt in a cache
        self.follows: dict[str, float] = {}  # by problem: share with the answer of a wrong attempt
        self.claims: dict[str, ClaimFigures | None] = {}  # by problem, of a round
        self.width = 0  # most attempts in a cache
        self.failed: set[str] = set()  # problems on which a step failed
        self.prompts: set[str] = set()
        self.verifiers: set[str] = set()
        self.several = 0  # answers with at least ``_SEVERAL`` final answers
        self._tokens: dict[Cost, list[float]] = {cost: [] for cost in COSTS}
        self._tally = GenerationTally()
        self._round = round
        for trace in traces:
            self.add(trace)

    def add(self, trace: Trace) -> None:
        round = self._round
        problem, deliberations = trace.problem.id, deliberations_of(trace, round)
        given: Sequence[Generation] = deliberations if round else trace.pool
        self.right[problem] = [sample.is_correct for sample in given]
        self.caches[problem] = deliberations[0].cache if deliberations else ""
        self.votes[problem] = vote_value(trace.pool)
        self.claims[problem] = ClaimFigures.of(trace, round) if round else None
        shown = {item.generation for cache in trace.caches for item in cache.items}
        if any(attempt.is_correct and attempt.id in shown for attempt in trace.pool):
            self.shows_right.add(problem)
        wrong = {one.extracted for one in trace.pool if one.id in shown and not one.is_correct}
        follow = [each.extracted is not None and each.extracted in wrong for each in given]
        self.follows[problem] = _share(follow)
        self.width = max([self.width, *(len(cache.items) for cache in trace.caches)])
        self.failed |= {problem} if trace.status.startswith(FAILED) else set()
        self.prompts |= prompts_of(trace)
        self.verifiers |= verifiers_of(trace)
        self.several += sum(
            len(_FINAL_ANSWER.findall(f"{each.reasoning}\n{each.answer_text}")) >= _SEVERAL
            for each in given
        )
        self._tally.add(given)
        of_round = Round.of(trace, round).tokens if round else {}
        for cost in COSTS:
            of_one = of_round[cost] if round else mean_tokens(given, cost)
            if given and not math.isnan(of_one):
                self._tokens[cost].append(of_one)

    def means_of(self, problems: Iterable[str]) -> list[float]:
        """Share of right answers for each problem; 0 if a problem has no answers."""
        return [_share(self.right[problem]) for problem in problems]

    def minus(self, other: _Answers) -> dict[str, float]:
        """Accuracy minus that of ``other``, for each problem of both."""
        problems = [problem for problem in other.right if problem in self.right]
        pairs = zip(self.means_of(problems), other.means_of(problems), strict=True)
        return {name: own - others for name, (own, others) in zip(problems, pairs, strict=True)}

    def values_of(self, problems: Sequence[str]) -> list[WordingValues]:
        """What ``metrics.experiments.wordings`` compares."""
        means = self.means_of(problems)
        return [
            WordingValues(right, self.claims.get(problem))
            for problem, right in zip(problems, means, strict=True)
        ]

    @property
    def answering(self) -> MethodMetrics:
        written, with_read = (self._tokens[cost] for cost in COSTS)
        answered = sum(map(bool, self.right.values()))
        counts = self._tally.counts
        return MethodMetrics(
            accuracy=bootstrap_mean(self.means_of(self.right)),
            tokens=fmean(written) if written else None,
            unknown_tokens=answered - len(written),
            all_tokens=fmean(with_read) if with_read else None,
            unknown_all_tokens=answered - len(with_read),
            unasked=len(self.right) - answered,
            samples=counts.total,
            cut_off=counts.truncated,
            without_answer=counts.failed + counts.empty,
            unanswered=counts.unanswered - counts.empty,
        )


def _read(
    evaluated: Iterable[Trace], rounds: int, controls: Mapping[str, Iterable[Trace]]
) -> tuple[_Answers, _Answers, dict[str, _Answers], list[str]]:
    """Return (run, its attempts, control runs by name, runs of ``ALONE``, the better one first)."""
    heavy, attempt = _Answers(rounds), _Answers(0)
    for trace in evaluated:
        heavy.add(trace)
        attempt.add(trace)
    depth = {CHAIN: 0, **dict.fromkeys((*PARTIAL, WORDING), rounds)}
    others = {
        name: _Answers(depth.get(kind_of(name), 1), traces) for name, traces in controls.items()
    }
    for name, answers in others.items():
        needed = set() if kind_of(name) in PARTIAL else heavy.right.keys() - heavy.failed
        if not needed <= answers.right.keys() <= heavy.right.keys():
            raise ConfigError(
                f"The run {name} does not have the same problems as the evaluated run",
                "Remove the folder of the evaluation and give the same command again.",
            )
        if kind_of(name) not in PARTIAL:
            # A missing problem counts as a problem without an answer.
            answers.right |= {problem: [] for problem in heavy.right.keys() - answers.right.keys()}
    alone = [name for name in map(alone_name, WORDINGS) if name in others]
    alone.sort(key=lambda name: -fmean(others[name].means_of(heavy.right)))
    return heavy, attempt, others, alone


def _differences(
    heavy: _Answers, others: Mapping[str, _Answers], alone: Sequence[str]
) -> dict[str, dict[str, float]]:
    differences: dict[str, dict[str, float]] = {}
    for name in NAMES:
        run = alone[0] if name == ALONE and alone else name
        if run in others and name != TRANSPLANT:
            differences[name] = heavy.minus(others[run])
    if TRANSPLANT in others:
        for problem, lost in heavy.minus(others[TRANSPLANT]).items():
            differences.setdefault(FALLS if problem in heavy.shows_right else RISES, {})[
                problem
            ] = -lost
    return differences


def _control(
    name: str, run: str, others: Mapping[str, _Answers], minus: Mapping[str, float]
) -> Control:
    return Control(
        name=name,
        wording=run.removeprefix(name).removeprefix("-"),
        problems=len(minus),
        answering=others[run].answering,
        heavy_minus=bootstrap_mean([*minus.values()]),
    )


def _worth(
    heavy: _Answers, others: Mapping[str, _Answers], alone: Sequence[str]
) -> AttemptValueEffect:
    garbled = others[GARBLED]
    problems = list(garbled.right)
    votes = [heavy.votes[problem] for problem in problems]
    broken = garbled.minus(others[alone[0]]) if alone else {}
    return AttemptValueEffect(
        problems=len(problems),
        heavy_minus_vote=bootstrap_difference(heavy.means_of(problems), votes),
        garbled_minus_vote=bootstrap_difference(garbled.means_of(problems), votes),
        heavy_minus_garbled=bootstrap_mean([*heavy.minus(garbled).values()]),
        garbled_minus_alone=bootstrap_mean([*broken.values()]) if broken else None,
    )


def _transplant(
    heavy: _Answers, others: Mapping[str, _Answers], change: Mapping[str, float] | None
) -> Transplant | None:
    if not change:
        return None
    return Transplant(
        problems=len(change),
        before=bootstrap_mean(heavy.means_of(change)),
        after=bootstrap_mean(others[TRANSPLANT].means_of(change)),
        change=bootstrap_mean([*change.values()]),
    )


def _planted(shared: int, answers: _Answers) -> PlantedStep:
    return PlantedStep(
        shared=shared,
        shown=answers.width,
        problems=len(answers.right),
        right=bootstrap_mean(answers.means_of(answers.right)),
        follows=bootstrap_mean([*answers.follows.values()]),
    )


def _wordings(heavy: _Answers, others: Mapping[str, _Answers]) -> list[WordingMetrics]:
    asked = {
        name.partition("-")[2]: each for name, each in others.items() if kind_of(name) == WORDING
    }
    problems = list(heavy.right)
    votes = [heavy.votes[problem] for problem in problems]
    full = heavy.values_of(problems)
    return [
        WordingMetrics(
            wording=wording,
            answering=each.answering,
            compared=wording_loss(votes, full, each.values_of(problems)),
        )
        for wording, each in {"full": heavy, **asked}.items()
        if asked
    ]


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
