"""What one problem counts for: all that is kept of its trace when a run is measured.

Every figure of ``summary`` and ``comparison`` is a mean over such rows, so both read a trace once.

Tokens are those that the trace records, failed samples included. A prompt that the server read once
for several samples is spread over them. The pool is what the trajectories of a cache cost, unless
the cache took some of the usable ones at random: that many can be had for a part of the pool, with
the unusable ones that come along.

Not covered: tokens of a judge, which measure and do not answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from heavydistill.metrics import estimators
from heavydistill.metrics.estimators import passes_at, votes_at
from heavydistill.schema import Deliberation, Generation, Outcome, Problem, Stratum, Trace

Cost = Literal["completion", "all"]
"""What is counted: the tokens that were written, or those that were read as well."""
COSTS: tuple[Cost, ...] = get_args(Cost)

Tokens = dict[Cost, float | None]
"""Tokens by what is counted; None where a sample's count is unknown."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one round of one problem counts for."""

    mean: float  # HM@D
    any_right: float  # HP@D
    passes: tuple[float, ...]  # HP@d for d = 1 to D
    copies: float | None  # see `estimators.vote_copy_rate`
    d: int  # number of deliberations
    first_right: bool  # whether the first deliberation is right
    places: tuple[float, ...]  # see `estimators.agreement_by_place`
    used: int  # trajectories that had to be sampled for one deliberation of this round
    tokens: Tokens  # of these, of all deliberations of earlier rounds, and of one of this round
    more: Tokens  # tokens of one more deliberation of this round; 0 if there are none
    votes: tuple[float, ...]  # the vote of d deliberations for d = 1 to D

    @classmethod
    def of(cls, trace: Trace, round: int) -> Round:
        deliberations = estimators.deliberations_of(trace, round)
        share = _share_used(trace, round)
        return cls(
            mean=estimators.heavy_mean_at_d(trace, round),
            any_right=estimators.heavy_pass_at_d(trace, round),
            passes=passes_at(deliberations),
            copies=estimators.vote_copy_rate(trace, round),
            d=len(deliberations),
            first_right=any(sample.index == 0 and sample.is_correct for sample in deliberations),
            places=estimators.agreement_by_place(trace, round),
            used=int(share * len(trace.pool) + 0.5),
            tokens={cost: _spent(trace, round, deliberations, share, cost) for cost in COSTS},
            more={cost: _of_one(deliberations, cost) for cost in COSTS},
            votes=votes_at(deliberations),
        )

    def pass_at(self, d: int) -> float:
        """HP@d; with fewer deliberations, HP of all that there are."""
        return self.passes[d - 1] if self.d > d else self.any_right

    def vote_at(self, d: int) -> float:
        """The vote of d deliberations; with fewer, of all that there are."""
        return self.votes[min(d, self.d) - 1] if self.d else 0.0

    def tokens_at(self, d: int, cost: Cost) -> float | None:
        """Tokens of the deliberations that ``vote_at`` counts."""
        first, more = self.tokens[cost], self.more[cost]
        return None if first is None or more is None else first + max(0, min(d, self.d) - 1) * more


@dataclass(frozen=True, slots=True)
class ProblemFigures:
    """What one problem counts for."""

    problem: str  # id of the problem
    text: str
    reference: str
    verifier: str
    verifier_args: str
    family: str  # family of a procedural problem; else empty
    stratum: Stratum | None
    outcome: Outcome | None  # outcome of the last round against the vote
    k: int  # number of trajectories
    mean: float  # M@K
    vote: float  # V@K
    any_right: float  # P@K
    votes: tuple[float, ...]  # V@k for k = 1 to K
    passes: tuple[float, ...]  # P@k for k = 1 to K
    tokens: Tokens  # of the pool
    rounds: tuple[Round, ...]
    without: Round  # what a round counts for that the problem does not have

    @classmethod
    def of(cls, trace: Trace) -> ProblemFigures:
        problem = trace.problem
        last = max((d.round for d in trace.deliberations), default=0)
        return cls(
            problem=problem.id,
            text=problem.text,
            reference=problem.reference,
            verifier=problem.verifier,
            verifier_args=problem.verifier_args,
            family=family_of(problem),
            stratum=trace.stratum,
            outcome=trace.outcome,
            k=len(trace.pool),
            mean=estimators.mean_at_k(trace),
            vote=estimators.vote_at_k(trace),
            any_right=estimators.pass_at_k(trace),
            votes=votes_at(trace.pool),
            passes=passes_at(trace.pool),
            tokens={cost: tokens_of(trace.pool, cost) for cost in COSTS},
            rounds=tuple(Round.of(trace, round) for round in range(1, last + 1)),
            without=Round.of(trace, last + 1),
        )

    def round(self, number: int) -> Round:
        """A round, counted from 1."""
        return self.rounds[number - 1] if 0 < number <= len(self.rounds) else self.without


def family_of(problem: Problem) -> str:
    """The family of a procedural problem, from the arguments of its verifier; else empty."""
    try:
        args = json.loads(problem.verifier_args)
    except ValueError:
        return ""
    family = args.get("family") if isinstance(args, dict) else None
    return family if isinstance(family, str) else ""


def _spent(
    trace: Trace, round: int, deliberations: Sequence[Deliberation], share: float, cost: Cost
) -> float | None:
    pool = tokens_of(trace.pool, cost)
    earlier = tokens_of([d for d in trace.deliberations if d.round < round], cost)
    last = _of_one(deliberations, cost)
    if pool is None or earlier is None or last is None:
        return None
    return share * pool + earlier + last


def _of_one(deliberations: Sequence[Deliberation], cost: Cost) -> float | None:
    """Mean tokens of one of them; 0 if there are none."""
    these = tokens_of(deliberations, cost)
    return None if these is None else these / max(1, len(deliberations))


def tokens_of(generations: Sequence[Generation], cost: Cost) -> float | None:
    """Tokens of all generations; None if any count is unknown."""
    counts = [sample.completion_tokens for sample in generations]
    if cost == "all":
        counts += [sample.prompt_tokens for sample in generations]
    return None if any(count < 0 for count in counts) else float(sum(counts))


def _share_used(trace: Trace, round: int) -> float:
    """Share of the pool that had to be sampled for the caches of the rounds up to this one."""
    caches = [cache for cache in trace.caches if cache.round <= round]
    usable = {sample.id for sample in trace.pool if sample.unusable_because is None}
    if not caches or not usable or any(cache.selection != "random" for cache in caches):
        return 1.0
    shown = {item.generation for cache in caches for item in cache.items}
    return len(usable & shown) / len(usable)
