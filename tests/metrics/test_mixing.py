import dataclasses
from itertools import combinations

import pytest

from heavydistill.heavy.voting import vote_value
from heavydistill.metrics.mixing import mixing_of
from heavydistill.metrics.problem_figures import RunTally
from heavydistill.schema import Trace


@pytest.fixture
def mixed(make_trace):
    """Builds a trace whose attempts are of models a, b, ..., by their answers; "7" is right."""

    def make(**answers: list[str]) -> Trace:
        models = [model for model, each in answers.items() for _ in each]
        trace = make_trace([answer for each in answers.values() for answer in each])
        pairs = zip(trace.pool, models, strict=True)
        return dataclasses.replace(
            trace, pool=[dataclasses.replace(one, model=model) for one, model in pairs]
        )

    return make


def expected(pool, k: int) -> tuple[float, float]:
    """V@k and P@k by going through all choices of k attempts."""
    chosen = list(combinations(pool, k))
    votes = sum(vote_value(list(each)) for each in chosen)
    return votes / len(chosen), sum(any(x.is_correct for x in each) for each in chosen) / len(
        chosen
    )


def test_mixing_is_compared_with_each_model_at_the_same_number_of_attempts(mixed):
    traces = [
        mixed(a=["7", "7", "1", "7"], b=["1", "2", "1"]),
        mixed(a=["1", "1", "1", "2"], b=["7", "7", "2"]),
        mixed(a=["7", "1", "7", "1"], b=["7", "7", "1"]),
        mixed(a=["7", "1", "7", "1"], b=["7"]),  # too few of b
    ]
    found = mixing_of(RunTally(traces))
    assert (found.k, found.problems, found.left_out, found.unnamed) == (3, 3, 1, 0)
    pools = [trace.pool for trace in traces[:3]]
    of = {name: [[x for x in pool if x.model == name] for pool in pools] for name in "ab"}
    votes, passes = {}, {}
    for name, each in ({"": pools} | of).items():
        figures = [expected(pool, 3) for pool in each]
        votes[name], passes[name] = (sum(values) / 3 for values in zip(*figures, strict=True))
    for each in found.models:
        assert each.vote_at_k.mean == pytest.approx(votes[each.name])
        assert each.pass_at_k.mean == pytest.approx(passes[each.name])
    assert found.vote_at_k.mean == pytest.approx(votes[""])
    assert found.vote_gain.mean == pytest.approx(votes[""] - max(votes["a"], votes["b"]))
    assert found.pass_gain.mean == pytest.approx(passes[""] - max(passes["a"], passes["b"]))
    assert found.vote_gain.low <= found.vote_gain.mean <= found.vote_gain.high
    a, b = found.models
    assert (a.mean_at_k.mean, b.mean_at_k.mean) == (7 / 16, pytest.approx((0 + 2 / 3 * 2 + 1) / 4))
    assert (a.only, b.only) == (1, 1)
    assert (a.usage.requests, b.usage.requests) == (16, 10)


def test_a_gain_needs_attempts_of_each_model_on_one_problem(mixed):
    apart = mixing_of(RunTally([mixed(a=["7", "7", "1"]), mixed(b=["7", "1", "1"])]))
    assert (apart.k, apart.problems, apart.vote_gain, apart.pass_gain) == (0, 0, None, None)
    assert [each.vote_at_k for each in apart.models] == [None, None]
    pairs = mixing_of(RunTally([mixed(a=["7", "1"], b=["1", "1"])]))
    assert pairs.k == 2 and pairs.vote_gain is None and pairs.pass_gain.mean == 0.5 - 1


def test_pools_of_one_model_or_without_names_are_not_compared(mixed):
    assert mixing_of(RunTally([mixed(a=["7", "1"])])) is None
    found = mixing_of(RunTally([mixed(a=["7", "1"], unknown=["7", "1"])]))
    assert (found.unnamed, found.models, found.pass_gain) == (2, [], None)
