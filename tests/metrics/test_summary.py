"""The summary of a run: means, differences, labels, rates, groups and places."""

import dataclasses
import json
from collections.abc import Callable

import messages
import pytest
from generations import altered, problem

from heavydistill.metrics.estimators import agreement_by_place
from heavydistill.metrics.intervals import bootstrap_difference, bootstrap_mean, wilson
from heavydistill.metrics.problem_figures import family_of
from heavydistill.metrics.summary import NAMES, STRATA, Usage, summarize
from heavydistill.schema import Trace

MakeTrace = Callable[..., Trace]


@pytest.fixture
def run(make_trace: MakeTrace) -> list[Trace]:
    """Six problems, K=4, D=2, one round; every outcome once and one trace that ended early."""
    return [
        make_trace(["7", "7", "7", "8"], ["7", "7"], stratum="majority-right", outcome="kept"),
        make_trace(["7", "8", "8", "9"], ["7", "8"], stratum="minority-right", outcome="rescued"),
        make_trace(["8", "8", "9", None], ["7", "9"], stratum="all-wrong", outcome="emergent"),
        make_trace(
            ["7", "7", "8", "9"], ["8", "9"], stratum="majority-right", outcome="overturned"
        ),
        make_trace(["8", "8", "8", "8"], ["8", "8"], stratum="all-wrong", outcome="lost"),
        make_trace(["7", None, None, None], stratum="minority-right", status="too_few_usable"),
    ]


def test_the_figures_of_a_run_by_hand(run):
    summary = summarize(run)
    assert (summary.problems, summary.k, summary.d, summary.rounds) == (6, 4, 2, 1)
    assert summary.mean_at_k.mean == pytest.approx((0.75 + 0.25 + 0 + 0.5 + 0 + 0.25) / 6)
    assert summary.pass_at_k.mean == pytest.approx(4 / 6)
    assert summary.vote_at_k.mean == pytest.approx(3 / 6)
    heavy, votes = [1, 0.5, 0.5, 0, 0, 0], [1, 0, 0, 1, 0, 1]
    assert summary.heavy_mean_at_d == bootstrap_mean(heavy)
    assert summary.heavy_pass_at_d.mean == pytest.approx(3 / 6)
    assert summary.heavy_minus_vote == bootstrap_difference(heavy, votes)
    assert summary.heavy_minus_mean.mean == pytest.approx((0.25 + 0.25 + 0.5 - 0.5 + 0 - 0.25) / 6)
    rates = {name: getattr(summary, name) for name in ("rescue", "regress", "emergent")}
    counts = {name: (rate.count, rate.of) for name, rate in rates.items()}
    assert counts == {"rescue": (2, 3), "regress": (1, 2), "emergent": (1, 2)}
    assert all(rate.share == rate.count / rate.of for rate in rates.values())
    assert summary.vote_copy_rate == bootstrap_mean([1, 0.5, 0, 0, 1])
    strata = {name: count for name, count in summary.strata.items() if count}
    assert strata == {"majority-right": 2, "minority-right": 2, "all-wrong": 2}
    assert list(summary.strata) == [*STRATA, "none"]
    assert summary.outcomes["kept"] == summary.outcomes["none"] == 1
    assert summary.outcomes_by_stratum["all-wrong"]["emergent"] == 1
    assert summary.outcomes_by_stratum["minority-right"]["none"] == 1
    assert summary.statuses == {"ok": 5, "too_few_usable": 1}
    tree = json.loads(json.dumps(dataclasses.asdict(summary)))
    assert tree["heavy_minus_vote"].keys() == {"mean", "low", "high"}
    assert tree["rescue"].pop("interval")["mean"] == pytest.approx(2 / 3)
    assert tree["rescue"] == {"count": 2, "of": 3, "share": pytest.approx(2 / 3)}


def test_rounds_are_told_apart_and_the_last_one_counts(make_trace):
    traces = [
        make_trace(["8", "7"], ["8", "8"], ["7", "7"]),
        make_trace(["8", "7"], ["7", "8"], ["7", "8"]),
        make_trace(["8", "7"], ["7", "7"]),
        make_trace(["7", "7", "7", "8"], ["7", "7"], ["8", "7", "8"]),
    ]
    summary = summarize(traces)
    assert summary.rounds == 2
    assert (summary.k, summary.d) == (2, 2), "the most common sizes"
    assert [r.round for r in summary.per_round] == [1, 2]
    means = [r.heavy_mean.mean for r in summary.per_round]
    assert means == pytest.approx([(0.5 + 1 + 1) / 4, (1 + 0.5 + 1 / 3) / 4])
    # Two of three of which one is right, in 2 of 3 ways.
    passes = [r.heavy_pass.mean for r in summary.per_round]
    assert passes == pytest.approx([3 / 4, (1 + 1 + 2 / 3) / 4])
    assert summary.heavy_mean_at_d == summary.per_round[1].heavy_mean


def test_a_run_without_deliberations_has_no_heavy_metrics(make_trace):
    summary = summarize([make_trace(["7", "8"]), make_trace(["8", "8"])])
    (group,) = summary.by_verifier.values()
    assert (summary.d, summary.rounds, summary.per_round) == (0, 0, [])
    for each in (summary, group):
        assert each.heavy_mean_at_d is None and each.heavy_minus_vote is None
        assert each.mean_at_k.mean == 0.25
    assert summary.vote_copy_rate is None and summary.by_stratum == {}


def test_unknown_tokens_are_counted_and_never_summed(make_trace):
    trace = make_trace(["7", "8", "8"], ["7"])
    unknown = dataclasses.replace(trace.pool[0], prompt_tokens=-1, completion_tokens=-1)
    half = dataclasses.replace(trace.pool[1], prompt_tokens=-1)
    read = dataclasses.replace(trace.pool[2], cached_tokens=8)
    usage = summarize([dataclasses.replace(trace, pool=[unknown, half, read])]).usage
    assert usage["thinking"] == Usage(
        requests=3,
        prompt=10,
        cached=8,
        completion=10,
        unknown_prompt=2,
        unknown_cached=2,
        unknown_completion=1,
    )
    assert (usage["deliberating"].prompt, usage["deliberating"].completion) == (10, 5)


def test_thinking_copies_and_what_counted_caches_are_counted(make_trace, with_cache):
    def saying(*texts: str) -> Trace:
        trace = with_cache(make_trace(["7"] * len(texts), ["7"]), [])
        said = zip(trace.pool, texts, strict=True)
        pool = [dataclasses.replace(one, reasoning="", answer_text=text) for one, text in said]
        return dataclasses.replace(trace, pool=pool)

    long = "so it is seven, " * 20
    summary = summarize([saying(long, long), saying("7", "7"), saying(long, f"{long}.")])
    assert (summary.thoughts, summary.same_texts, summary.readers) == (0, 1, {"m": 3})
    thinking = saying("7", "8")
    pool = [dataclasses.replace(thinking.pool[0], reasoning="well"), thinking.pool[1]]
    assert summarize([dataclasses.replace(thinking, pool=pool)]).thoughts == 1


def test_no_traces_is_a_clear_error():
    with messages.raises("no_traces"):
        summarize([])


@pytest.fixture
def kinds(make_trace: MakeTrace) -> list[Trace]:
    traces = []
    for pool, answers, stratum, verifier, args in (
        ("778", "78", "majority-right", "procedural", {"family": "leg_counting"}),
        ("788", "77", "minority-right", "procedural", {"family": "chain_sum"}),
        ("777", "77", "all-right", "math", {}),
        ("889", "", "all-wrong", "math", {}),
    ):
        trace = make_trace(list(pool), list(answers), stratum=stratum)
        kind = {"verifier": verifier, "verifier_args": json.dumps(args)}
        traces.append(altered(trace, asked=kind))
    return traces


def test_a_group_is_measured_as_a_run_of_its_problems(kinds):
    summary = summarize(kinds)
    alone = summarize(kinds[:2])
    procedural = summary.by_verifier["procedural"]
    assert procedural.problems == 2
    assert [getattr(procedural, name) for name in NAMES] == [getattr(alone, name) for name in NAMES]
    # One that was not deliberated counts in its group as it does in the run.
    maths = summary.by_verifier["math"]
    assert maths.heavy_mean_at_d and maths.heavy_mean_at_d.mean == 0.5


@pytest.mark.parametrize("args", ["{}", '{"family": 3}', '["family"]', "no json"])
def test_arguments_without_a_family_are_of_none(args):
    assert family_of(dataclasses.replace(problem(), verifier_args=args)) == ""


def test_a_share_has_the_interval_of_the_problems_for_which_it_could_hold(make_trace):
    outcomes = ["kept"] * 6 + ["overturned"] * 2 + ["lost", "rescued"]
    summary = summarize([make_trace(["7"], ["7"], outcome=outcome) for outcome in outcomes])
    regress, emergent = summary.regress, summary.emergent
    assert (regress.count, regress.of, regress.share) == (2, 8, 0.25)
    assert regress.interval == wilson(2, 8)
    assert (emergent.of, emergent.share, emergent.interval) == (0, None, None)


def test_places_agree_by_answer(make_trace, with_cache):
    trace = make_trace(["7", "8", None, "7"], ["7", "8", "8", None])
    trace = with_cache(trace, ["t_1", "t_0", "t_2", "t_3"])
    assert agreement_by_place(trace, 1) == (0.5, 0.25, 0.0, 0.25)
    agreed = with_cache(make_trace(["7", "7"], ["7"]), ["t_1", "t_0"])
    assert agreement_by_place(agreed, 1) == ()  # no place can be preferred
    assert agreement_by_place(with_cache(make_trace(["7", "8"]), ["t_0", "t_1"]), 1) == ()
    # A later round reads deliberations too.
    later = with_cache(make_trace(["7", "8"], ["9"], ["9", "7"]), ["d1_0", "t_0", "t_1"], round=2)
    assert agreement_by_place(later, 2) == (0.5, 0.5, 0.0)


def test_places_are_paired_with_the_mean_of_their_cache(make_trace, with_cache):
    traces = [
        with_cache(make_trace(["7", "8"], ["7"]), ["t_0", "t_1"]),
        with_cache(make_trace(["7", "8", "9"], ["9"]), ["t_0", "t_1", "t_2"]),
    ]
    first, second, third = summarize(traces).places
    assert [place.problems for place in (first, second, third)] == [2, 2, 1]
    assert first.agrees.mean == 0.5
    assert first.over_expected.mean == pytest.approx((1 - 1 / 2 + 0 - 1 / 3) / 2)
    assert third.over_expected.mean == pytest.approx(1 - 1 / 3)
