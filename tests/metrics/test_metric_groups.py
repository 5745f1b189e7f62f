"""Metrics of kinds, families and strata: those of the same problems alone."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from heavydistill.metrics.row import Row, family_of
from heavydistill.metrics.summary import NAMES, breakdown, grouped, summarize
from heavydistill.schema import Problem, Trace

MakeTrace = Callable[..., Trace]


def of_kind(trace: Trace, verifier: str, args: Any = None) -> Trace:
    changed = {"verifier": verifier, "verifier_args": json.dumps(args or {})}
    return dataclasses.replace(trace, problem=dataclasses.replace(trace.problem, **changed))


@pytest.fixture
def traces(make_trace: MakeTrace) -> list[Trace]:
    return [
        of_kind(
            make_trace(["7", "7", "8"], ["7", "8"], stratum="majority-right"),
            "procedural",
            {"family": "leg_counting"},
        ),
        of_kind(
            make_trace(["7", "8", "8"], ["7", "7"], stratum="minority-right"),
            "procedural",
            {"family": "chain_sum"},
        ),
        of_kind(make_trace(["7", "7", "7"], ["7", "7"], stratum="all-right"), "math"),
        of_kind(make_trace(["8", "8", "9"], stratum="all-wrong"), "math"),
    ]


def test_a_group_is_measured_as_a_run_of_its_problems(traces: list[Trace]) -> None:
    summary = summarize(traces)
    alone = summarize(traces[:2])
    procedural = summary.by_verifier["procedural"]
    assert procedural.problems == 2
    assert [getattr(procedural, name) for name in NAMES] == [getattr(alone, name) for name in NAMES]
    # One that was not deliberated counts in its group as it does in the run.
    maths = summary.by_verifier["math"]
    assert maths.heavy_mean_at_d and maths.heavy_mean_at_d.mean == 0.5


def test_groups_are_named_in_order_and_count_every_problem_once(traces: list[Trace]) -> None:
    summary = summarize(traces)
    assert list(summary.by_verifier) == ["math", "procedural"]
    assert list(summary.by_family) == ["chain_sum", "leg_counting"]
    assert list(summary.by_stratum) == [
        "all-right",
        "majority-right",
        "minority-right",
        "all-wrong",
    ]
    assert sum(of.problems for of in summary.by_stratum.values()) == summary.problems
    assert sum(of.problems for of in summary.by_family.values()) == 2


def test_without_deliberations_a_group_has_no_metrics_of_them(make_trace: MakeTrace) -> None:
    (group,) = breakdown([Row.of(make_trace(["7", "8"]))], 0, 2, 0, "verifier").values()
    assert group.heavy_mean_at_d is None and group.heavy_minus_vote is None
    assert group.mean_at_k.mean == 0.5
    assert grouped([], "stratum") == {}


@pytest.mark.parametrize(
    ("args", "family"),
    [
        ('{"family": "gcd", "seed": 3}', "gcd"),
        ("{}", ""),
        ('{"family": 3}', ""),
        ('["family"]', ""),
        ("no json", ""),
    ],
)
def test_the_family_is_what_the_verifier_is_told(args: str, family: str) -> None:
    problem = Problem(id="p", text="", reference="", verifier="procedural", verifier_args=args)
    assert family_of(problem) == family
