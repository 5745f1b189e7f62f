"""Reduces each trace of a run to numbers for its problem; traces are read once and not kept.

Every metric of ``summary`` and ``comparison`` is a mean over these rows. The size of a row does not
depend on the length of texts, so runs of any size fit into memory.

Tokens are those recorded in the trace, including those of failed samples. The tokens of a prompt
that the server read once for several samples are divided among them. A cache costs all trajectories
of the problem, unless it uses a random subset of the usable ones: then it costs only that subset
and a proportional share of the unusable ones. Not covered: tokens of a judge.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from heavydistill.config.models import NEVER_JUDGED
from heavydistill.heavy.judge_votes import rule_of
from heavydistill.heavy.voting import vote_value
from heavydistill.metrics.claims import ClaimFigures
from heavydistill.metrics.counts import GenerationTally, Judging, Usage, no_usage
from heavydistill.metrics.estimators import (
    agreement_by_place,
    deliberations_of,
    passes_at,
    share_right,
    vote_copy_rate,
    votes_at,
)
from heavydistill.metrics.steps import StepFigures
from heavydistill.schema import Generation, Outcome, Problem, Stratum, Trace

Cost = Literal["completion", "all"]
"""Kind of token count: tokens written (``completion``), or written and read (``all``)."""
COSTS: tuple[Cost, ...] = get_args(Cost)

Tokens = dict[Cost, float]
"""Tokens by kind of count; NaN if a sample's count is unknown."""

_NO_CHANCE = 200  # Minimum length of samples that are not equal by chance


@dataclass(frozen=True, slots=True)
class Round:
    """Accuracy and tokens of one deliberation round of one problem."""

    mean: float  # HM@D
    passes: tuple[float, ...]  # HP@d for d = 1 to D
    copies: float | None  # see `estimators.vote_copy_rate`
    d: int  # number of deliberations
    first_right: bool  # whether the first deliberation is right
    places: tuple[float, ...]  # see `estimators.agreement_by_place`
    claims: ClaimFigures | None
    steps: StepFigures
    used: int  # trajectories that had to be sampled for a deliberation of this round
    tokens: Tokens  # tokens of these, all earlier rounds, and one deliberation of this round
    more: Tokens  # tokens of one more deliberation of this round; 0 if it has none
    votes: tuple[float, ...]  # value of the vote of d deliberations, for d = 1 to D

    @classmethod
    def of(cls, trace: Trace, round: int) -> Round:
        deliberations = deliberations_of(trace, round)
        earlier = [d for d in trace.deliberations if d.round < round]
        share = share_used(trace, round)
        more = {cost: mean_tokens(deliberations, cost) for cost in COSTS}
        tokens = {
            cost: share * tokens_of(trace.pool, cost) + tokens_of(earlier, cost) + last
            for cost, last in more.items()
        }
        return cls(
            mean=share_right(deliberations),
            passes=passes_at(deliberations),
            copies=vote_copy_rate(trace, round),
            d=len(deliberations),
            first_right=any(sample.index == 0 and sample.is_correct for sample in deliberations),
            places=agreement_by_place(trace, round),
            claims=ClaimFigures.of(trace, round),
            steps=StepFigures.of(trace, round),
            used=int(share * len(trace.pool) + 0.5),
            tokens=tokens,
            more=more,
            votes=votes_at(deliberations),
        )

    def pass_at(self, d: int) -> float:
        """HP@d; if there are fewer than d deliberations, HP of all of them."""
        return self.passes[min(d, self.d) - 1] if self.d else 0.0

    def vote_at(self, d: int) -> float:
        """Expected accuracy of the vote of d deliberations, or of all if there are fewer than d."""
        return self.votes[min(d, self.d) - 1] if self.d else 0.0

    def tokens_at(self, d: int, cost: Cost) -> float:
        """Tokens of ``vote_at``: its deliberations, the used trajectories and earlier rounds."""
        return self.tokens[cost] + max(0, min(d, self.d) - 1) * self.more[cost]


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """Accuracy of a pool, or of the trajectories of one model in it."""

    k: int  # number of trajectories
    mean: float  # M@K
    votes: tuple[float, ...]  # V@k for k = 1 to K
    passes: tuple[float, ...]  # P@k for k = 1 to K

    @classmethod
    def by_model(cls, pool: Sequence[Generation]) -> dict[str, PoolFigures]:
        """Figures of the trajectories of each model."""
        models: dict[str, list[Generation]] = {}
        for sample in pool:
            models.setdefault(sample.model, []).append(sample)
        return {
            model: cls(len(own), share_right(own), votes_at(own), passes_at(own))
            for model, own in models.items()
        }

    def pass_at(self, k: int) -> float:
        """P@k; there must be k trajectories."""
        return self.passes[k - 1]

    def vote_at(self, k: int) -> float:
        """V@k; there must be k trajectories."""
        return self.votes[k - 1]


@dataclass(frozen=True, slots=True)
class ProblemFigures:
    """Accuracy and tokens of the trajectories and deliberations of one problem."""

    problem: str  # id of the problem
    question: tuple[str, ...]  # text, reference, verifier and its arguments
    verifier: str
    family: str  # group of the problem by its source; see ``family_of``
    stratum: Stratum | None
    outcome: Outcome | None  # outcome: the last round compared with the vote
    k: int  # number of trajectories
    mean: float  # M@K
    vote: float  # V@K
    votes: tuple[float, ...]  # V@k for k = 1 to K
    passes: tuple[float, ...]  # P@k for k = 1 to K
    tokens: Tokens  # tokens of all trajectories
    rounds: tuple[Round, ...]
    without: Round  # used for rounds that the problem does not have

    @classmethod
    def of(cls, trace: Trace) -> ProblemFigures:
        problem = trace.problem
        last = max((d.round for d in trace.deliberations), default=0)
        return cls(
            problem=problem.id,
            question=(
                *(problem.transcript, problem.reference),
                *(problem.verifier, problem.verifier_args),
            ),
            verifier=problem.verifier,
            family=family_of(problem),
            stratum=trace.stratum,
            outcome=trace.outcome,
            k=len(trace.pool),
            mean=share_right(trace.pool),
            vote=vote_value(trace.pool),
            votes=votes_at(trace.pool),
            passes=passes_at(trace.pool),
            tokens={cost: tokens_of(trace.pool, cost) for cost in COSTS},
            rounds=tuple(Round.of(trace, round) for round in range(1, last + 1)),
            without=Round.of(trace, last + 1),
        )

    def round(self, number: int) -> Round:
        """A round; rounds count from 1."""
        return self.rounds[number - 1] if 0 < number <= len(self.rounds) else self.without

    def pass_at(self, k: int) -> float:
        """P@k; if there are fewer than k trajectories, P of all of them."""
        return self.passes[min(k, self.k) - 1] if self.k else 0.0

    def vote_at(self, k: int) -> float:
        """V@k; if there are fewer than k trajectories, V of all of them."""
        return self.votes[k - 1] if self.k > k else self.vote


def most_common(sizes: Iterable[int]) -> int:
    """The most common size other than 0, the largest if tied; 0 if all sizes are 0."""
    counts = Counter(size for size in sizes if size)
    return max(counts, key=lambda size: (counts[size], size), default=0)


def family_of(problem: Problem) -> str:
    """Family of a procedural problem, with its template; origin of other problems."""
    family = problem.arguments.get("family")
    if not isinstance(family, str):
        return problem.origin
    return f"{family}:{problem.template}" if problem.template else family


def tokens_of(samples: Sequence[Generation], cost: Cost) -> float:
    """Number of tokens of all samples; NaN if any count is unknown."""
    counts = [sample.completion_tokens for sample in samples]
    if cost == "all":
        counts += [sample.prompt_tokens for sample in samples]
    return math.nan if any(count < 0 for count in counts) else float(sum(counts))


def mean_tokens(samples: Sequence[Generation], cost: Cost) -> float:
    """Mean number of tokens per sample; 0 if there are no samples."""
    return tokens_of(samples, cost) / max(1, len(samples))


def share_used(trace: Trace, round: int) -> float:
    """Share of the trajectories that had to be sampled for the caches up to this round."""
    caches = [cache for cache in trace.caches if cache.round <= round]
    usable = {sample.id for sample in trace.pool if sample.unusable_because is None}
    shown = {item.generation for cache in caches for item in cache.items}
    if caches and not shown:
        return 0.0
    if not caches or not usable or any(cache.selection != "random" for cache in caches):
        return 1.0
    return len(usable & shown) / len(usable)


def on_same_pools(
    own: Iterable[ProblemFigures], others: Iterable[ProblemFigures]
) -> dict[str, ProblemFigures]:
    """Figures by problem of a run that read the pools of the run with the figures ``own``.

    It lacks the problems on which a step of that run failed: these have no deliberations.
    """
    found = {row.problem: row for row in others}
    return {
        row.problem: found.get(row.problem) or dataclasses.replace(row, rounds=()) for row in own
    }


def _is_one_text(pool: Sequence[Generation]) -> bool:
    """Whether all trajectories have the same text, which is too long to be equal by chance."""
    texts = [f"{t.reasoning}\n{t.answer_text}" for t in pool if t.error is None]
    return len(texts) > 1 and len(set(texts)) == 1 and len(texts[0]) >= _NO_CHANCE


class RunTally:
    """Figures of each problem of a run, and counts over all its traces.

    Args:
        traces: All traces of the run, in any order.
        voted: See ``summary.summarize``.
    """

    def __init__(self, traces: Iterable[Trace], voted: Collection[str] | None = None) -> None:
        self.rows: list[ProblemFigures] = []  # one per problem, in the order of the traces
        self.prompts: set[str] = set()  # names and hashes of the prompt templates
        self.verifiers: set[str] = set()  # names and versions of verifiers, with those of a judge
        self.by_model: list[dict[str, PoolFigures]] = []  # of each pool, in the order of ``rows``
        self.usage_by_model: dict[str, Usage] = {}  # of trajectories, paid by this run or not
        self.deliberators: set[str] = set()  # names of the models, as in the traces
        self.thoughts = 0  # trajectories with thinking
        self.same_texts = 0  # problems whose trajectories are all the same long text
        self.readers: Counter[str] = Counter()  # number of caches by token counter
        self.judging = Judging()
        judges, statuses = no_usage(), Counter[str]()
        trajectories, deliberations = GenerationTally(), GenerationTally()
        for trace in traces:
            self.rows.append(ProblemFigures.of(trace))
            self.prompts |= prompts_of(trace)
            self.verifiers |= verifiers_of(trace)
            self._add_models(trace.pool)
            self.deliberators |= {deliberation.model for deliberation in trace.deliberations}
            self.thoughts += sum(bool(trajectory.reasoning) for trajectory in trace.pool)
            self.same_texts += _is_one_text(trace.pool)
            self.readers.update(cache.reader for cache in trace.caches)
            trajectories.add(trace.pool)
            deliberations.add(trace.deliberations)
            for sample in (*trace.pool, *trace.deliberations):
                votes = self.judging.add(sample.verdict)
                for vote in () if sample.id in (voted or ()) else votes:
                    judges.add(vote)
            statuses[trace.status] += 1
        self.rounds = max((len(row.rounds) for row in self.rows), default=0)
        self.trajectories = trajectories.counts
        self.deliberations = deliberations.counts  # counts of all rounds
        self.statuses = dict(statuses.most_common())  # number of traces by status
        self.usage: dict[str, Usage] = {  # by stage; see ``summary.Summary``
            "thinking": no_usage() if voted is not None else trajectories.usage,
            "deliberating": deliberations.usage,
        }
        if judges.requests:
            self.usage["judging"] = judges

    def _add_models(self, pool: Sequence[Generation]) -> None:
        self.by_model.append(PoolFigures.by_model(pool))
        for trajectory in pool:
            self.usage_by_model.setdefault(trajectory.model, no_usage()).add(trajectory)

    @property
    def thinkers(self) -> set[str]:
        """Names of the models of trajectories, as in the traces."""
        return set(self.usage_by_model)

    @property
    def rules(self) -> set[str]:
        """Names and versions of the verifiers, without judges."""
        return {rule_of(verifier) for verifier in self.verifiers}

    @property
    def left_open(self) -> int:
        """Number of undecided verdicts that could be sent to a judge."""
        return sum(
            count
            for counts in (self.trajectories, self.deliberations)
            for reason, count in counts.undecided_because.items()
            if reason.partition(":")[0] not in NEVER_JUDGED
        )


def prompts_of(trace: Trace) -> set[str]:
    """Names and hashes of the prompt templates of a trace."""
    versions = {trace.thinker_prompt_version, *(cache.prompt_version for cache in trace.caches)}
    return versions - {""}


def verifiers_of(trace: Trace) -> set[str]:
    """Names and versions of the verifiers and judges behind a trace's verdicts."""
    samples = (*trace.pool, *trace.deliberations)
    return {sample.verdict.verifier for sample in samples if sample.verdict}
