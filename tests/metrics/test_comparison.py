"""Two runs held against each other: values by hand, pairs by problem, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heavydistill.errors import ConfigError
from heavydistill.metrics.comparison import (
    Comparison,
    Model,
    Side,
    compare,
    read_comparison,
    write_comparison,
)
from heavydistill.metrics.intervals import Interval
from heavydistill.metrics.summary import summarize
from heavydistill.schema import Trace

MakeTrace = Callable[..., Trace]
METRICS = ("mean_at_k", "vote_at_k", "pass_at_k", "heavy_mean_at_d", "heavy_pass_at_d")
ANSWERS = st.lists(st.sampled_from(["7", "8", None, "?"]), min_size=4, max_size=4)
PROBLEMS = st.lists(st.tuples(ANSWERS, ANSWERS, ANSWERS, ANSWERS), min_size=1, max_size=6)


def numbered(traces: Sequence[Trace]) -> list[Trace]:
    """With an id of its own for the problem of each."""
    return [
        dataclasses.replace(trace, problem=dataclasses.replace(trace.problem, id=f"p{number}"))
        for number, trace in enumerate(traces)
    ]


def side(traces: Sequence[Trace], name: str = "base", **changed: Any) -> Side:
    config = {"think": {"k": 4}, "deliberate": {"d": 2, "rounds": 1}, "seed": 0} | changed
    model = Model(name, "abc")
    return Side(
        thinker=model, deliberator=model, config=config, summary=summarize(traces), traces=traces
    )


def test_values_by_hand(make_trace: MakeTrace) -> None:
    before = numbered([make_trace(["7", "8", "8", "8"], ["8", "8"]), make_trace(["7"] * 4)])
    after = numbered([make_trace(["7", "7", "8", None], ["7", "8"]), make_trace(["7"] * 4, ["7"])])
    told = compare(side(after, "trained"), side(before), {"torch": "1"})

    def means(metric: str) -> tuple[float, float, float]:
        change = getattr(told, metric)
        assert change.before and change.difference
        return change.before.mean, change.after.mean, change.difference.mean

    assert means("mean_at_k") == (0.625, 0.75, 0.125)
    assert means("vote_at_k") == (0.5, 1.0, 0.5)
    assert means("pass_at_k") == (1.0, 1.0, 0.0)
    # A problem that was not deliberated is worth nothing to the deliberator.
    assert means("heavy_mean_at_d") == (0.0, 0.75, 0.75)
    assert means("heavy_pass_at_d") == (0.0, 1.0, 1.0)
    assert means("heavy_minus_vote") == (-0.5, -0.25, 0.25)
    assert told.mean_at_k.difference == Interval(0.125, 0.0, 0.25)
    assert (told.problems, told.k, told.d, told.rounds) == (2, 4, 2, 1)
    assert told.before and told.before.deliberator.name == "base"
    assert told.after.deliberations.total == 3 and told.after.verifiers == ["exact@1"]


def test_metrics_are_those_of_the_summary(make_trace: MakeTrace) -> None:
    traces = numbered([make_trace(["7", "8"], ["7", "7"]), make_trace(["8", "8"], ["7", "8"])])
    summary, told = summarize(traces), compare(side(traces), None, {})
    for metric in (*METRICS, "heavy_minus_vote"):
        assert getattr(told, metric).after == getattr(summary, metric)


def test_the_last_round_counts(make_trace: MakeTrace) -> None:
    traces = numbered([make_trace(["8"] * 4, ["8", "8"], ["7", "7"])])
    told = compare(side(traces, deliberate={"d": 2, "rounds": 2}), None, {})
    assert told.heavy_mean_at_d.after.mean == 1.0


def test_a_run_alone_has_no_difference(make_trace: MakeTrace) -> None:
    told = compare(side(numbered([make_trace(["7"] * 4, ["7", "8"])])), None, {})
    assert told.before is None
    assert told.heavy_mean_at_d.before is None and told.heavy_mean_at_d.difference is None
    assert told.heavy_mean_at_d.after.mean == 0.5


@settings(max_examples=15, deadline=None)
@given(problems=PROBLEMS, data=st.data())
def test_the_order_of_rows_does_not_matter_and_a_run_equals_itself(
    make_trace: MakeTrace, problems: list[Any], data: st.DataObject
) -> None:
    before = numbered([make_trace(pool, given[:2]) for pool, given, _, _ in problems])
    after = numbered([make_trace(pool, given[:2]) for _, _, pool, given in problems])
    told = compare(side(after), side(before), {})
    shuffled = data.draw(st.permutations(after)), data.draw(st.permutations(before))
    again = compare(side(shuffled[0]), side(shuffled[1]), {})
    for metric in (*METRICS, "heavy_minus_vote"):
        assert getattr(again, metric) == getattr(told, metric)
        same = getattr(compare(side(before), side(shuffled[1]), {}), metric)
        assert same.difference == Interval(0.0, 0.0, 0.0)
        assert same.before == same.after


def test_other_problems_are_refused_by_their_names(make_trace: MakeTrace) -> None:
    traces = numbered([make_trace(["7"] * 4) for _ in range(7)])
    with pytest.raises(ConfigError) as caught:
        compare(side(traces[:2]), side(traces[1:]), {})
    assert "p2, p3, p4 and 2 more missing after; p0 missing before" in str(caught.value)
    other = dataclasses.replace(traces[0].problem, reference="8")
    changed = [dataclasses.replace(traces[0], problem=other), *traces[1:]]
    with pytest.raises(ConfigError, match="p0 with another text or reference"):
        compare(side(changed), side(traces), {})


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"think": {"k": 8}}, "think.k (4 before, 8 after)"),
        ({"deliberate": {"d": 4, "rounds": 1}}, "deliberate.d (2 before, 4 after)"),
        ({"domain": "brief"}, "domain (None before, 'brief' after)"),
    ],
)
def test_runs_that_were_asked_otherwise_are_refused(
    make_trace: MakeTrace, changed: dict[str, Any], told: str
) -> None:
    traces = numbered([make_trace(["7"] * 4)])
    with pytest.raises(ConfigError, match="not asked alike") as caught:
        compare(side(traces, **changed), side(traces), {})
    assert told in str(caught.value)


@pytest.fixture
def comparison(make_trace: MakeTrace) -> Comparison:
    traces = numbered([make_trace(["7", "8", "?", None], ["7", "8"])])
    return compare(side(traces, "trained"), side(traces), {"torch": "1"})


def test_a_file_gives_back_what_was_written(comparison: Comparison, tmp_path: Path) -> None:
    file = tmp_path / "evaluation.json"
    write_comparison(comparison, file)
    assert read_comparison(file) == comparison
    alone = dataclasses.replace(comparison, before=None)
    write_comparison(alone, file)
    assert read_comparison(file) == alone


def test_a_file_that_is_none_or_of_another_version_is_refused(
    comparison: Comparison, tmp_path: Path
) -> None:
    file = tmp_path / "evaluation.json"
    with pytest.raises(ConfigError, match="cannot be read"):
        read_comparison(file)
    write_comparison(dataclasses.replace(comparison, format="heavydistill-evaluation/0"), file)
    with pytest.raises(ConfigError, match="heavydistill-evaluation/0"):
        read_comparison(file)
    tree = dataclasses.asdict(comparison)
    tree["mean_at_k"]["after"]["low"] = "much"
    file.write_text(json.dumps(tree))
    with pytest.raises(ConfigError, match=r"mean_at_k\.after\.low"):
        read_comparison(file)
