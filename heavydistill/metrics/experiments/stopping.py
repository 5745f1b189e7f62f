"""Early stopping: what is lost and saved if deliberation is left out where attempts agree.

The rule samples k attempts at once. If all have the same answer, that is the answer; otherwise the
others of the K are sampled too, and a deliberation of the last round is the answer. No other rule
can be replayed on recorded pools, because the recorded deliberations read all K.

Each value of a problem is its expectation over all orders in which the attempts may arrive; it is
counted, not sampled. With m attempts of an answer, the first k all have it in C(m, k) of C(K, k)
cases. The largest of k values is the i-th smallest of n in C(i - 1, k - 1) of C(n, k) cases.

The loss is the share of right answers that are lost against the better of vote and deliberation of
all K. One half of the problems chooses k, and the loss on the other half decides.

A gate before the rule gives one attempt to questions of at most so many characters: the rule with
k = 1, whose one attempt always agrees with itself if it has an answer. The other questions are
answered by the rule, or by a deliberation if none was confirmed. The same halves choose the number
of characters, the largest of the deciles of the first half, and decide on the loss of it all.

Not covered: deliberations on fewer attempts, which need requests; seconds under another load than
the run's; problems with another number of attempts.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from heavydistill.config.models import Sampling
from heavydistill.config.versioned import read_versioned
from heavydistill.errors import ConfigError
from heavydistill.metrics.estimators import deliberations_of, share_right, votes_at
from heavydistill.metrics.intervals import Interval, bootstrap_mean, upper_bound
from heavydistill.metrics.problem_figures import most_common
from heavydistill.schema import Generation, Problem, Trace, Trajectory

ADAPTIVE = "adaptive.json"
FORMAT = "heavydistill-adaptive/2"
MAX_LOSS = 0.005
"""Share of right answers that a rule may lose, by the bound of its loss."""
_FEWEST = 2  # attempts that can agree
_DECILES = np.linspace(0.1, 1.0, 10)
_Z = NormalDist().inv_cdf(0.95)

Expense = Literal["completion", "usd", "seconds"]
"""What an answer takes: tokens written, US dollars, or seconds."""
EXPENSES: tuple[Expense, ...] = get_args(Expense)
AnswerRule = Literal["vote", "stop", "heavy", "gate"]
Usd = Callable[[Generation], float]
"""Cost of one sample in US dollars; NaN if its price is unknown."""
_Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StoppingRow:
    """What can be expected of each way to answer one problem."""

    problem: str  # id of the problem
    k: int  # number of attempts
    characters: int  # length of the question
    answers: _Values
    """Votes of 1 to K attempts, rules that stop at 1 to K, and the deliberation; for each whether
    it is right, whether it does not deliberate, and ``EXPENSES``, which are NaN if unknown."""

    @classmethod
    def of(cls, trace: Trace, usd: Usd) -> StoppingRow:
        pool, k = trace.pool, len(trace.pool)
        one, seconds = mean_expenses(pool, usd), seconds_of(pool)
        votes = [
            (value, 1.0, *(n * one), largest(seconds, n))
            for n, value in enumerate(votes_at(pool), 1)
        ]
        right, spent, deliberating_s = _deliberation(trace, usd)
        whole = right, 0.0, *(k * one + spent), largest(seconds, k) + deliberating_s
        stops = [_stopping(pool, n, np.array(whole), deliberating_s, usd) for n in range(1, k + 1)]
        length = characters_of(trace.problem)
        return cls(trace.problem.id, k, length, np.array([*votes, *stops, whole]))


def characters_of(problem: Problem) -> int:
    """The length of a question by which a gate decides, with the turns before it."""
    return len(problem.transcript)


def largest(values: Sequence[float], k: int, floor: float = 0.0) -> float:
    """Mean, over all subsets of k values, of the largest one, or of ``floor`` if that is larger.

    NaN if k is above 0 and a value is.
    """
    if k == 0:
        return floor
    cases = (
        math.comb(below, k - 1) * max(value, floor) for below, value in enumerate(sorted(values))
    )
    return math.fsum(cases) / math.comb(len(values), k)


def _deliberation(trace: Trace, usd: Usd) -> tuple[float, _Values, float]:
    """(share right, expenses, seconds) of one deliberation of the last round and all earlier ones.

    The attempts are not included; without deliberations, all is 0.
    """
    last = max((each.round for each in trace.deliberations), default=0)
    final = deliberations_of(trace, last)
    spent, seconds = mean_expenses(final, usd), fmean(seconds_of(final) or [0.0])
    for number in range(1, last):
        earlier = deliberations_of(trace, number)
        spent = spent + len(earlier) * mean_expenses(earlier, usd)
        seconds += largest(seconds_of(earlier), len(earlier))
    return share_right(final), spent, seconds


def _stopping(
    pool: Sequence[Trajectory], k: int, whole: _Values, deliberating_s: float, usd: Usd
) -> _Values:
    """The rule that stops if the first k attempts agree, and otherwise answers as ``whole``."""
    n, goes_on = len(pool), 1.0
    answer: _Values = np.zeros(len(whole))
    seconds = largest(seconds_of(pool), k) + largest(seconds_of(pool), n - k)
    votes = [each for each in pool if each.unusable_because is None]
    for text, m in Counter(each.extracted for each in votes).items():
        if text is None or m < k:
            continue
        chance = math.comb(m, k) / math.comb(n, k)
        same = [each for each in votes if each.extracted == text]
        others = [each for each in pool if each.extracted != text or each.unusable_because]
        first = share_right(same), 1.0, *(k * mean_expenses(same, usd)), 0.0
        answer = answer + chance * np.array(first)
        goes_on -= chance
        # The others, and those of the same answer that are not among the first, are not sampled.
        seconds -= chance * largest(seconds_of(same), m - k, max(seconds_of(others), default=0.0))
    answer = answer + goes_on * whole
    answer[-1] = seconds + goes_on * deliberating_s
    return answer


def mean_expenses(samples: Sequence[Generation], usd: Usd) -> _Values:
    """Mean tokens written and dollars of a sample; 0 without samples."""
    rows = [(_known(each.completion_tokens), usd(each)) for each in samples]
    return np.mean(rows, axis=0) if rows else np.zeros(2)


def seconds_of(samples: Sequence[Generation]) -> list[float]:
    """Seconds that each sample took; NaN if unknown."""
    return [_known(each.latency_s) for each in samples]


def _known(value: float) -> float:
    return value if value >= 0 else math.nan


@dataclass(frozen=True, slots=True)
class Loss:
    """Right answers lost against the better of vote and deliberation, as a share of problems."""

    mean: float  # below 0 if right answers are gained
    at_most: float  # one-sided 95 % bound


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFigures:
    """One way to answer: right answers, expenses and the loss on each half of the problems."""

    rule: AnswerRule
    k: int  # attempts of a vote, attempts that have to agree, all attempts, or characters of a gate
    right: Interval
    stopped: float  # share of problems without a deliberation
    per_right: dict[Expense, float | None]
    """Expenses per right answer, over the problems where they are known; None if they never are."""
    saved: dict[Expense, float | None]
    """Share of the expenses of the better of vote and deliberation that is saved, on the half that
    confirms."""
    chosen: Loss  # on the half on which a rule is chosen
    confirmed: Loss  # on the other half


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingReport:
    """What early stopping loses and saves on a run, and when a service may stop."""

    format: str = FORMAT
    measured: dict[str, list[str]]
    """Models in the traces by role (``thinker``, ``deliberator``), names and hashes of ``prompts``,
    names and versions of ``verifiers``, numbers of ``rounds``, and sampling by role
    (``thinker_sampling``, ``deliberator_sampling``), without that of models that are not found."""
    k: int  # number of attempts: the most common one
    stop_at: int | None
    """Number of attempts that have to agree; None if no rule was confirmed that saves tokens."""
    choosing: int  # number of problems that choose a rule
    confirming: int  # number of problems that confirm it
    other_sizes: int  # problems left out because they have another number of attempts
    baseline: AnswerRule  # ``vote`` or ``heavy``, the better one on all problems
    rules: list[RuleFigures]
    chosen: RuleFigures | None  # the chosen rule; None if the loss of each may be too large
    needs: int | None
    """Problems of a half that would confirm a rule, estimated; None if one was confirmed, or if
    more problems would not help."""
    gate_at: int | None
    """Maximum number of characters of a question that gets one attempt; None if no gate was
    confirmed that saves tokens."""
    gate: RuleFigures  # the chosen gate; if the loss of each may be too large, that of the smallest


def stopping_report(rows: Sequence[StoppingRow], measured: dict[str, list[str]]) -> StoppingReport:
    """Measure all rules, choose one on half of the problems, and test it on the other half.

    Raises ConfigError if there are fewer than two attempts, or two problems with as many.
    """
    k = most_common(row.k for row in rows)
    used = [row for row in rows if row.k == k]
    half = len(used) // 2
    if k < _FEWEST or not half:
        raise ConfigError(
            f"The run has {len(used)} problem(s) with {k} attempt(s), so no two can agree",
            "Give a run with --k 2 or more and several problems.",
        )
    used.sort(key=lambda row: hashlib.sha256(row.problem.encode()).digest())
    table = np.array([row.answers for row in used])  # problems, ways, values
    ways: list[tuple[AnswerRule, int, int]] = [("vote", n, n - 1) for n in range(1, k + 1)]
    ways += [("stop", n, k + n - 1) for n in range(_FEWEST, k + 1)]
    ways += [("heavy", k, 2 * k)]
    best = max(2 * k, k - 1, key=lambda way: table[:, way, 0].mean())

    def figures(rule: AnswerRule, n: int, values: _Values) -> RuleFigures:
        return _figures(rule, n, half, values, table[:, best])

    rules = [figures(rule, n, table[:, way]) for rule, n, way in ways]
    stops = rules[k:-1]  # the first one stops wherever another one does
    chosen = next(filter(_may_be_chosen, stops), None)
    stop_at = chosen.k if chosen and _is_confirmed(chosen) else None
    lengths = np.array([row.characters for row in used])
    others = table[:, k + stop_at - 1 if stop_at else 2 * k]
    gates = [
        figures("gate", int(most), np.where((lengths <= most)[:, None], table[:, k], others))
        for most in np.unique(np.quantile(lengths[:half], _DECILES, method="lower"))[::-1]
    ]
    gate = next(filter(_may_be_chosen, gates), None)
    return StoppingReport(
        measured=measured,
        k=k,
        stop_at=stop_at,
        choosing=half,
        confirming=len(used) - half,
        other_sizes=len(rows) - len(used),
        baseline="heavy" if best == 2 * k else "vote",
        rules=rules,
        chosen=chosen,
        needs=None
        if chosen and chosen.confirmed.at_most <= MAX_LOSS
        else _needed(table[:, [best], 0] - table[:, k + 1 : -1, 0], half),
        gate_at=gate.k if gate and _is_confirmed(gate) else None,
        gate=gate or min(gates, key=lambda each: each.chosen.at_most),
    )


def _may_be_chosen(rule: RuleFigures) -> bool:
    return rule.chosen.at_most <= MAX_LOSS


def _is_confirmed(rule: RuleFigures) -> bool:
    """Whether a chosen rule loses little on the other half too, and saves tokens, if known."""
    return rule.confirmed.at_most <= MAX_LOSS and (rule.saved["completion"] or 0) >= 0


def sampling_of(role: str, sampling: Sampling) -> tuple[str, set[str]]:
    """The entry of ``StoppingReport.measured`` for the sampling of a role: (name, values)."""
    values = {f"{name} {value}" for name, value in sampling.model_dump().items()}
    return f"{role}_sampling", values


def read_stopping(path: Path) -> StoppingReport:
    """Read ``adaptive.json``; raises ConfigError if it is missing or of another version."""
    fix = "Write it again with `heavydistill evaluate --adaptive RUN`."
    what = "measured rule to stop"
    return read_versioned(path, StoppingReport, FORMAT, what=what, missing=fix, other=fix)


def _figures(rule: AnswerRule, k: int, half: int, values: _Values, best: _Values) -> RuleFigures:
    """Figures of a rule from its values per problem; the first ``half`` problems choose."""
    per_right, saved = dict[Expense, float | None](), dict[Expense, float | None]()
    for column, expense in enumerate(EXPENSES, 2):
        known = ~np.isnan(values[:, column] + best[:, column])
        right = values[known, 0].sum()
        per_right[expense] = float(values[known, column].sum() / right) if right else None
        known[:half] = False
        whole = best[known, column].sum()
        saved[expense] = 1.0 - float(values[known, column].sum() / whole) if whole else None
    lost = (best[:, 0] - values[:, 0]).tolist()
    chosen, confirmed = (
        Loss(fmean(some), upper_bound(some, worst=1.0)) for some in (lost[:half], lost[half:])
    )
    return RuleFigures(
        rule=rule,
        k=k,
        right=bootstrap_mean(values[:, 0].tolist()),
        stopped=float(values[:, 1].mean()),
        per_right=per_right,
        saved=saved,
        chosen=chosen,
        confirmed=confirmed,
    )


def _needed(lost: _Values, half: int) -> int | None:
    """Problems for which the bound of one of these losses would be small enough, by its spread."""
    means, spreads = lost.mean(axis=0), lost.std(axis=0)
    room = np.where(means < MAX_LOSS, MAX_LOSS - means, np.nan)
    sizes = np.ceil((_Z * spreads / room) ** 2)
    return min((int(size) for size in sizes if size > half), default=None)
