"""Two runs held against each other: values by hand, pairs by problem, and what is refused."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

import messages
import pytest
from generations import altered, ballot
from hypothesis import given, settings
from hypothesis import strategies as st

from heavydistill.config.versioned import write_versioned
from heavydistill.errors import ConfigError
from heavydistill.heavy.judge_votes import Vote
from heavydistill.metrics.comparison import (
    Change,
    Comparison,
    ConfigDifference,
    Model,
    RunMetrics,
    Side,
    compare_sides,
    read_comparison,
    refuse_other_verdicts,
    refuse_other_ways,
)
from heavydistill.metrics.intervals import Interval
from heavydistill.metrics.problem_figures import RunTally
from heavydistill.metrics.summary import summarize, summary_of
from heavydistill.schema import Claim, Trace

MakeTrace = Callable[..., Trace]
HEAVY = ("heavy_mean_at_d", "heavy_pass_at_d", "heavy_minus_vote")
METRICS = ("mean_at_k", "vote_at_k", "pass_at_k", "heavy_mean_at_d", "heavy_pass_at_d")
ANSWERS = st.lists(st.sampled_from(["7", "8", None, "?"]), min_size=4, max_size=4)
PROBLEMS = st.lists(st.tuples(ANSWERS, ANSWERS, ANSWERS, ANSWERS), min_size=1, max_size=6)


def numbered(traces: Sequence[Trace]) -> list[Trace]:
    """With an id of its own for the problem of each."""
    return [altered(trace, asked={"id": f"p{number}"}) for number, trace in enumerate(traces)]


def side(traces: Sequence[Trace], name: str = "base", **changed: Any) -> Side:
    config = {"think": {"k": 4}, "deliberate": {"d": 2, "rounds": 1}, "seed": 0} | changed
    model, tally = Model(name, "abc"), RunTally(traces)
    run = RunMetrics(
        name="before" if name == "base" else "after",
        heavydistill="0.1.0",
        thinker=model,
        deliberator=model,
        summary=summary_of(tally),
    )
    return Side(run, config, tally)


def test_values_by_hand(make_trace):
    before = numbered([make_trace(["7", "8", "8", "8"], ["8", "8"]), make_trace(["7"] * 4)])
    after = numbered([make_trace(["7", "7", "8", None], ["7", "8"]), make_trace(["7"] * 4, ["7"])])
    told = compare_sides(side(after, "trained"), side(before), {"torch": "1"})
    for metric, means in {
        "mean_at_k": (0.625, 0.75, 0.125),
        "vote_at_k": (0.5, 1.0, 0.5),
        "pass_at_k": (1.0, 1.0, 0.0),
        # A problem that was not deliberated is worth nothing to the deliberator.
        "heavy_mean_at_d": (0.0, 0.75, 0.75),
        "heavy_pass_at_d": (0.0, 1.0, 1.0),
        "heavy_minus_vote": (-0.5, -0.25, 0.25),
    }.items():
        change = getattr(told, metric)
        assert (change.before.mean, change.after.mean, change.difference.mean) == means, metric
    assert told.mean_at_k.difference == Interval(0.125, 0.0, 0.25)
    after_it = told.after.summary
    assert (told.problems, after_it.k, after_it.d, after_it.rounds) == (2, 4, 2, 1)
    assert told.before and told.before.deliberator and told.before.deliberator.name == "base"
    assert after_it.deliberations.total == 3 and told.after.summary.verifiers == ["exact@1"]
    assert told.names[0] == "M@4" and told.names[-1] == "HM@2 - V@4"


def test_on_frozen_pools_both_deliberators_meet_the_vote_of_the_run_before(make_trace):
    pools = [["7", "8", "8", "8"], ["7"] * 4, ["8"] * 4]
    before = numbered([make_trace(pools[0], ["8", "8"]), *map(make_trace, pools[1:])])
    after = numbered([make_trace(["7"] * 4, ["7", "7"])] * 3)
    # A step failed on the last problem: without deliberations of either.
    frozen = numbered([make_trace(pools[0], ["7", "8"]), make_trace(pools[1], ["7", "7"])])
    told = compare_sides(side(after, "x"), side(before), {}, side(frozen, "x"))
    assert told.frozen and told.frozen.problems == 3
    over, right = told.frozen.heavy_minus_vote, told.frozen.heavy_mean_at_d
    assert over and right and right.before and right.difference and over.before
    assert (right.before.mean, right.after.mean) == (0, pytest.approx(0.5))
    assert over.before.mean == pytest.approx(-1 / 3) and over.after.mean == pytest.approx(1 / 6)
    assert told.frozen.vote_at_k.before == told.frozen.vote_at_k.after == told.vote_at_k.before
    assert told.heavy_minus_vote and told.heavy_minus_vote.after.mean == 0
    assert compare_sides(side(after, "x"), side(before), {}).frozen is None


def test_metrics_of_a_run_alone_are_those_of_its_summary(make_trace):
    traces = numbered([make_trace(["7", "8"], ["7", "7"], ["7"]), make_trace(["8", "8"], ["7"])])
    summary, told = summarize(traces), compare_sides(side(traces), None, {})
    for metric in (*METRICS, "heavy_minus_vote"):
        change = getattr(told, metric)
        assert change.after == getattr(summary, metric)
        assert change.before is None and change.difference is None
    assert told.before is None and told.vote_pairs is None and told.deliberation_pairs is None


def test_claims_are_compared_over_the_problems_that_both_runs_deliberated(make_trace, with_cache):
    def claiming(*said: Literal["right", "wrong"]) -> Trace:
        trace = with_cache(make_trace(["7", "8"], ["7"]), ["t_0", "t_1"])
        claims = [Claim(attempt=n, says=says, quote="") for n, says in enumerate(said, 1)]
        return altered(trace, "deliberations", claims=claims)

    before = numbered([claiming("right", "right"), claiming("wrong")])
    after = numbered([claiming("right", "wrong"), make_trace(["7", "8"])])
    told = compare_sides(side(after, "trained"), side(before), {})
    alone = Interval(1.0, 1.0, 1.0)
    assert told.claim_coverage == Change(alone, alone, Interval(0.0, 0.0, 0.0))
    half, nothing = Interval(0.5, 0.5, 0.5), Interval(0.0, 0.0, 0.0)
    assert told.claim_balanced_accuracy == Change(half, alone, half)
    assert told.self_contradiction_share == Change(alone, nothing, Interval(-1.0, -1.0, -1.0))
    assert told.before and told.before.summary.claim_coverage.mean == 0.75, "over both problems"
    assert compare_sides(side(after, "trained"), None, {}).claim_coverage == Change(
        None, alone, None
    )
    silent = numbered([claiming(), make_trace(["7", "8"])])
    told = compare_sides(side(after, "trained"), side(silent), {})
    assert told.claim_coverage == Change(nothing, alone, alone)
    assert told.self_contradiction_share == Change(None, nothing, None), "nothing to subtract from"


@settings(max_examples=15, deadline=None)
@given(problems=PROBLEMS, data=st.data())
def test_the_order_of_rows_does_not_matter_and_a_run_equals_itself(make_trace, problems, data):
    before = numbered([make_trace(pool, given[:2]) for pool, given, _, _ in problems])
    after = numbered([make_trace(pool, given[:2]) for _, _, pool, given in problems])
    told = compare_sides(side(after), side(before), {})
    shuffled = data.draw(st.permutations(after)), data.draw(st.permutations(before))
    again = compare_sides(side(shuffled[0]), side(shuffled[1]), {})
    for metric in (*METRICS, "heavy_minus_vote"):
        assert getattr(again, metric) == getattr(told, metric)
        same = getattr(compare_sides(side(before), side(shuffled[1]), {}), metric)
        assert same.difference == Interval(0.0, 0.0, 0.0)
        assert same.before == same.after


def test_other_problems_are_refused_by_their_names(make_trace):
    traces = numbered([make_trace(["7"] * 4) for _ in range(7)])
    with messages.raises("problems_differ", problems="p2, p3, p4 and 3 more"):
        compare_sides(side(traces[:2], "trained"), side(traces[1:]), {})
    for changed in ({"reference": "8"}, {"verifier": "math"}, {"verifier_args": '{"marker": "#"}'}):
        others = [altered(traces[0], asked=changed), *traces[1:]]
        with messages.raises("problems_differ", problems="p0"):
            compare_sides(side(others), side(traces), {})


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"think": {"k": 8}}, "think.k (4 before, 8 after)"),
        ({"deliberate": {"d": 4, "rounds": 1}}, "deliberate.d (2 before, 4 after)"),
        ({"domain": "brief"}, "domain (None before, 'brief' after)"),
    ],
)
def test_runs_that_must_be_asked_alike_are_refused_otherwise(make_trace, changed, told):
    traces = numbered([make_trace(["7"] * 4)])
    before, after = side(traces), side(traces, **changed)
    with messages.raises("asked_differently", keys=told):
        refuse_other_ways(before, after)
    (listed,) = compare_sides(after, before, {}).asked_differently
    assert told == f"{listed.key} ({listed.before!r} before, {listed.after!r} after)"
    refuse_other_ways(before, before)
    assert compare_sides(before, before, {}).asked_differently == []


@pytest.fixture
def comparison(make_trace: MakeTrace) -> Comparison:
    traces = numbered([make_trace(["7", "8", "?", None], ["7", "8"])])
    return compare_sides(side(traces, "trained"), side(traces), {"torch": "1"})


def test_a_file_gives_back_what_was_written(comparison, tmp_path):
    file = tmp_path / "evaluation.json"
    told = dataclasses.replace(comparison.after, left_out=3)
    comparison = dataclasses.replace(comparison, after=told)
    write_versioned(comparison, file)
    assert read_comparison(file) == comparison
    tree = dataclasses.asdict(comparison)
    del tree["after"]["left_out"]  # as earlier versions wrote it
    file.write_text(json.dumps(tree))
    assert read_comparison(file).after.left_out is None


def test_imported_pools_have_no_configuration_and_no_metrics_of_deliberation(make_trace):
    pools = numbered([make_trace(["7", "8"]), make_trace(["8", "8"])])
    traces = numbered([make_trace(["7", "8"], ["7"]), make_trace(["7", "8"], ["7"])])
    imported = Side(side(pools).run, {}, RunTally(pools))
    told = compare_sides(side(traces, "trained"), imported, {})
    assert told.asked_differently == [ConfigDifference("configuration", "imported", "generated")]
    assert [getattr(told, name) for name in HEAVY] == [None] * 3
    assert told.deliberation_pairs is None and told.vote_pairs
    assert [name for name, _, _ in told.metrics] == ["M@2", "V@2", "P@2"]
    assert told.mean_at_k.difference and told.mean_at_k.difference.mean == 0.25


def test_one_answer_a_problem_is_counted_as_mcnemar_does(make_trace):
    """A tied vote is not right; the deliberation that counts is the first of the last round."""
    old = [(["7", "7"], ["8", "7"]), (["7", "8"], ["7"]), (["7", "7"], ["7"]), (["8", "8"], [])]
    new = [(["7", "7"], ["7", "8"]), (["7", "7"], ["8"]), (["8", "8"], ["7"]), (["8", "8"], [])]
    before, after = (
        side(numbered([make_trace(pool, given) for pool, given in run]), name)
        for run, name in ((old, "base"), (new, "trained"))
    )
    told = compare_sides(after, before, {})
    counts = [dataclasses.astuple(pairs) for pairs in (told.vote_pairs, told.deliberation_pairs)]
    assert counts == [(1, 1, 1, 1, 1.0), (1, 1, 1, 1, 1.0)]


def test_any_deliberation_is_of_the_smaller_d(make_trace):
    """Else the run that was given more would be better for that alone."""
    pool = ["7", "8"]
    few = numbered([make_trace(pool, ["7", "8"]), make_trace(pool, ["8", "8"])])
    many = numbered(
        [make_trace(pool, ["8", "8"], ["7", "8", "8", "8"]), make_trace(pool, ["8"], ["7"] * 4)]
    )
    told = compare_sides(side(many, "trained"), side(few), {})
    assert told.heavy_pass_at_d.before.mean == 0.5
    # Two of four of which one is right, in 3 of 6 ways; two of four that are all right.
    assert told.heavy_pass_at_d.after.mean == (0.5 + 1) / 2
    assert told.names[3:5] == ["HM@2/4", "HP@2"]
    turned = compare_sides(side(few), side(many, "trained"), {})
    assert turned.heavy_pass_at_d.before.mean == 0.75
    assert told.by_verifier["exact"].heavy_pass_at_d == told.heavy_pass_at_d


@pytest.mark.parametrize(
    ("before", "after", "unpaired", "pairs"),
    [
        ([["7", "8"], ["7", "7"]], [["7"] * 4, ["8"] * 4], 2, None),
        # A pool of more than K leaves its problem out.
        ([["7", "7"], ["7", "7", "8"], ["8", "8"], []], None, 1, (1, 2)),
    ],
)
def test_votes_of_other_sizes_are_not_paired(make_trace, before, after, unpaired, pairs):
    first = numbered([make_trace(pool, ["7"]) for pool in before])
    second = numbered([make_trace(pool, ["7"]) for pool in after or before])
    told = compare_sides(side(second, "trained"), side(first), {})
    assert told.unpaired_votes == unpaired
    votes = told.vote_pairs
    assert (votes and (votes.both, votes.neither)) == pairs
    assert told.deliberation_pairs and told.deliberation_pairs.problems == len(before)


def judged_by(traces: Sequence[Trace], **changed: Any) -> list[Trace]:
    """With changed verdicts, or without any."""
    none = {} if changed else {"verdict": None}
    return [altered(trace, "pool", "deliberations", judged=changed, **none) for trace in traces]


def test_no_verdicts_and_those_of_other_versions_are_refused(make_trace):
    traces = numbered([make_trace(["7", "8"], ["7"])])
    before, after = side(traces), side(judged_by(traces, verifier="exact@2"), "new")
    refuse_other_verdicts(before, before)
    with pytest.raises(ConfigError) as caught:
        refuse_other_verdicts(before, after)
    assert "exact@1 (before), exact@2 (after)" in str(caught.value)
    assert "heavydistill replay" in str(caught.value)
    with messages.raises("no_verdicts", run="after"):
        refuse_other_verdicts(before, side(judged_by(traces), "new"))


def test_another_judge_is_refused_where_rules_left_something_open(make_trace):
    evidence = json.dumps(dataclasses.asdict(ballot(Vote(said="correct"))))
    open_, decided = numbered([make_trace(["7", "?"])]), numbered([make_trace(["7", "8"])])
    judged = side(judged_by(decided, verifier="judge:critic@abc after exact@1", evidence=evidence))
    refuse_other_verdicts(judged, judged)
    refuse_other_verdicts(judged, side(decided, "new"))
    with pytest.raises(ConfigError, match=r"critic@abc \(before\), nobody \(after\)"):
        refuse_other_verdicts(judged, side(open_, "new"))
    # A judge is never asked about what was cut off.
    cut_off = judged_by(decided, label="undecided", reason="truncated")
    refuse_other_verdicts(judged, side(cut_off, "new"))
