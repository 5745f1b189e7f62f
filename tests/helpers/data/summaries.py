"""A summary with invented figures, for tests of what shows it."""

import dataclasses
from typing import Any

from heavydistill.metrics.comparison import Change, Changes, Comparison, Model, RunMetrics
from heavydistill.metrics.counts import GenerationCounts, Usage
from heavydistill.metrics.curve import Curve, MatchedVote, Point, Way
from heavydistill.metrics.intervals import Interval, Pairs
from heavydistill.metrics.problem_figures import COSTS, Cost
from heavydistill.metrics.summary import CachePlace, Metrics, Rate, RoundMetrics, Summary

OUTCOMES = {"kept": 90, "rescued": 20, "emergent": 0, "overturned": 5, "lost": 75, "none": 10}


def group(problems: int) -> Metrics:
    """The metrics of so many problems."""
    return Metrics(
        problems=problems,
        mean_at_k=Interval(0.4, 0.38, 0.42),
        vote_at_k=Interval(0.5, 0.47, 0.53),
        pass_at_k=Interval(0.7, 0.67, 0.73),
        heavy_mean_at_d=Interval(0.6, 0.57, 0.63),
        heavy_pass_at_d=Interval(0.65, 0.62, 0.68),
        heavy_minus_vote=Interval(0.1, 0.04, 0.15),
    )


def _tokens(mean: float) -> dict[Cost, Interval]:
    return {cost: Interval(mean * n, mean * n, mean * n) for n, cost in enumerate(COSTS, 1)}


def _point(way: Way, k: int, accuracy: float, tokens: float, *on_the_front: Cost) -> Point:
    return Point(
        way=way,
        k=k,
        rounds=int(way == "deliberation"),
        accuracy=Interval(accuracy, accuracy - 0.04, accuracy + 0.05),
        tokens=_tokens(tokens),
        pareto={cost: cost in on_the_front for cost in COSTS},
    )


CURVE = Curve(
    k=8,
    problems=1190,
    smaller_pools=10,
    unknown_tokens={"completion": 0, "all": 3},
    points=[
        _point("vote", 1, 0.42, 1000, "completion", "all"),
        _point("pass", 1, 0.42, 1000),
        _point("deliberation", 4, 0.53, 6000, "completion"),
        dataclasses.replace(_point("heavy_vote", 4, 0.55, 7000, "completion"), rounds=1, d=2),
    ],
    matched={
        "completion": MatchedVote(
            problems=1190,
            tokens=6000,
            votes=6.0,
            needs=6,
            vote=Interval(0.47, 0.4, 0.54),
            heavy_minus_vote=Interval(0.06, 0.01, 0.11),
        ),
        "all": MatchedVote(
            problems=1187, tokens=12000, votes=8.4, needs=9, vote=None, heavy_minus_vote=None
        ),
    },
)


def summary(**changed: Any) -> Summary:
    """Of 1,200 problems, K=8, D=4, with these fields changed."""
    heavy_mean, heavy_pass = Interval(0.5312, 0.4711, 0.591), Interval(0.6, 0.531, 0.669)
    nothing = dict.fromkeys(OUTCOMES, 0)
    fields: dict[str, Any] = dict(
        problems=1200,
        k=8,
        d=4,
        rounds=1,
        mean_at_k=Interval(0.4256, 0.3811, 0.4702),
        pass_at_k=Interval(0.725, 0.66, 0.785),
        vote_at_k=Interval(0.4751, 0.405, 0.545),
        heavy_mean_at_d=heavy_mean,
        heavy_pass_at_d=heavy_pass,
        heavy_minus_vote=Interval(0.0561, 0.0123, 0.0999),
        heavy_minus_mean=Interval(0.1056, 0.07, 0.14),
        per_round=[RoundMetrics(1, heavy_mean, heavy_pass)],
        rescue=Rate(20, 95, 20 / 95, Interval(20 / 95, 0.13, 0.3)),
        regress=Rate(5, 95, 5 / 95, Interval(5 / 95, 0.01, 0.1)),
        emergent=Rate(0, 0, None, None),
        vote_copy_rate=Interval(0.625, 0.6, 0.65),
        places=[
            CachePlace(
                place=1,
                problems=700,
                agrees=Interval(0.3, 0.25, 0.35),
                over_expected=Interval(0.05, 0.02, 0.08),
            )
        ],
        claim_coverage=Interval(0.971, 0.96, 0.98),
        claim_balanced_accuracy=Interval(0.683, 0.65, 0.71),
        self_contradiction_share=Interval(0.125, 0.1, 0.15),
        by_verifier={"math": group(1200)},
        by_family={"chain_sum": group(300), "leg_counting": group(200)},
        by_stratum={"majority-right": group(1200)},
        curve=CURVE,
        strata={"majority-right": 1200, "all-wrong": 0, "none": 0},
        outcomes=OUTCOMES,
        outcomes_by_stratum={"majority-right": OUTCOMES, "all-wrong": nothing, "none": nothing},
        trajectories=GenerationCounts(
            9600,
            11,
            {"overloaded": 8, "timeout": 3},
            22,
            33,
            44,
            55,
            {"needs_units": 40, "timeout": 4},
            120,
            {"no_answer": 87, "empty": 33},
            decided=9_300,
        ),
        deliberations=GenerationCounts(4800, 0, {}, 66, 0, 0, 0, {}, 0, decided=4_734),
        usage={
            "thinking": Usage(9_600, 123_456, 0, 12_345_678, 0, 9_600, 0, 12.345),
            "deliberating": Usage(4_800, 7_000, 6_000, 8_000, 3, 5, 2),
        },
        statuses={"ok": 1190, "too_few_usable": 10},
        prompts=["thinker.brief.en@1"],
        verifiers=["math@2"],
    )
    return Summary(**{**fields, **changed})


SAMPLING = {"temperature": 1.0, "top_p": 0.95, "top_k": 10, "min_p": 0.0, "max_tokens": 448}


def comparison(**changed: Any) -> Comparison:
    """Of a base and what was trained from it, over 1,000 problems, with these fields changed."""
    same = Interval(0.54, 0.52, 0.56)
    no_change = Change(same, same, Interval(0, 0, 0))
    metrics: dict[str, Any] = dict.fromkeys(
        ("vote_at_k", "pass_at_k", "heavy_pass_at_d"), no_change
    )
    metrics |= {
        "mean_at_k": dataclasses.replace(no_change, difference=Interval(-0.03, -0.05, -0.01)),
        "heavy_mean_at_d": Change(
            Interval(0.536, 0.512, 0.56), Interval(0.75, 0.7, 0.8), Interval(0.214, 0.19, 0.24)
        ),
        "heavy_minus_vote": Change(
            Interval(-0.08, -0.1, -0.07), Interval(0.2, 0.17, 0.22), Interval(0.28, 0.25, 0.3)
        ),
    }
    config = {
        "problems": {"source": "hub:org/problems"},
        "domain": "brief",
        "language": "en",
        "think": {"sampling": SAMPLING | {"max_tokens": 192}},
        "deliberate": {"sampling": SAMPLING},
    }
    fields: dict[str, Any] = dict(
        heavydistill="0.1.0",
        versions={},
        config=config,
        asked_differently=[],
        before=_measured("before", "base", 17),
        after=_measured("after", "trained", 3),
        problems=1000,
        **metrics,
        claim_balanced_accuracy=Change(
            Interval(0.55, 0.5, 0.6), Interval(0.95, 0.9, 0.97), Interval(0.4, 0.37, 0.43)
        ),
        by_verifier={"procedural": Changes(problems=1000, **metrics)},
        by_family={
            "chain_sum": Changes(problems=400, **metrics),
            "leg_counting": Changes(problems=600, **metrics),
        },
        vote_pairs=Pairs(both=500, only_before=40, only_after=60, neither=400, p_value=0.0569),
        deliberation_pairs=Pairs(
            both=500, only_before=36, only_after=250, neither=214, p_value=1e-20
        ),
    )
    return Comparison(**fields | changed)


def _measured(name: str, model: str, truncated: int) -> RunMetrics:
    trajectories = GenerationCounts(
        8000, 0, {}, truncated, 0, 0, 0, {}, 10 * truncated, decided=8000
    )
    deliberations = GenerationCounts(4000, 0, {}, 0, 0, 0, 0, {}, decided=4000)
    counts = {"trajectories": trajectories, "deliberations": deliberations}
    measured = summary(problems=1000, statuses={"ok": 1000}, **counts)
    told = Model(model, "abc")
    return RunMetrics(
        name=name, heavydistill="0.1.0", thinker=told, deliberator=told, summary=measured
    )
