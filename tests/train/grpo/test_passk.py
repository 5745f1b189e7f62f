"""The pass@k advantage against its definition, and in a trainer."""

import itertools
import math
from statistics import fmean
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trl import GRPOTrainer

from heavydistill.train.grpo.passk import TOO_FEW, ThinkerTrainer, advantages

GROUPS = st.lists(st.sampled_from([0.0, 1.0, 0.05, 0.5]), min_size=2, max_size=7)


def by_enumeration(rewards: list[float], k: int) -> list[float]:
    """The definition, word for word."""
    size = len(rewards)
    sets = list(itertools.combinations(range(size), k))
    best = [max(rewards[i] for i in chosen) for chosen in sets]
    return [
        k
        * (size - 1)
        / (size - k)
        * (fmean(b for b, chosen in zip(best, sets, strict=True) if i in chosen) - fmean(best))
        for i in range(size)
    ]


@given(GROUPS, st.data())
def test_the_advantage_is_that_of_all_sets_one_by_one(rewards, data):
    k = data.draw(st.integers(1, len(rewards) - 1))
    assert advantages(rewards, k) == pytest.approx(by_enumeration(rewards, k), abs=1e-12)


@pytest.mark.parametrize(("size", "k"), [(2, 1), (4, 1), (4, 2), (4, 3), (6, 2), (6, 4), (8, 7)])
@pytest.mark.parametrize("chance", [0.1, 0.5, 0.8])
def test_its_expectation_is_the_gradient_of_pass_at_k(size, k, chance):
    """Answers are right with a chance; the gradient is by the logit of that chance."""
    expected = 0.0
    for group in itertools.product([0.0, 1.0], repeat=size):
        weight = math.prod(chance if right else 1 - chance for right in group)
        scores = [right - chance for right in group]  # of log p by the logit
        found = advantages(list(group), k)
        expected += weight * fmean(a * s for a, s in zip(found, scores, strict=True))
    of_pass_at_k = k * (1 - chance) ** (k - 1) * chance * (1 - chance)
    assert expected == pytest.approx((size - 1) / size * of_pass_at_k, rel=1e-9)


@given(GROUPS, st.integers(0, 3), st.data())
def test_answers_without_a_reward_change_nothing(rewards, undecided, data):
    k = data.draw(st.integers(1, len(rewards) - 1))
    order = data.draw(st.permutations([*rewards, *[math.nan] * undecided]))
    found = advantages(order, k)
    alone = advantages([one for one in order if not math.isnan(one)], k)
    assert [a for a, one in zip(found, order, strict=True) if not math.isnan(one)] == alone
    assert all(a == 0 for a, one in zip(found, order, strict=True) if math.isnan(one))


def test_a_group_with_no_more_answers_than_a_set_has_none():
    assert advantages([1.0, 0.0, math.nan, math.nan], 2) == [0.0] * 4
    assert advantages([], 2) == []


def test_a_process_gets_its_own_part_and_the_log_says_all(monkeypatch):
    """Two processes, of which this is the second."""
    nan = math.nan
    rewards = torch.tensor([1.1, 0.0, 0.0, 0.0, nan, 1.0, nan, 0.0])
    trainer = object.__new__(ThinkerTrainer)
    trainer._k, trainer.num_generations, trainer._rewards = 2, 4, rewards
    trainer.use_vllm = False
    trainer.accelerator = SimpleNamespace(process_index=1)
    trainer._logs = {"advantages": [9.0] * 2 + [7.0] * 8}
    trainer._metrics = {"train": {TOO_FEW: []}}
    monkeypatch.setattr(
        GRPOTrainer,
        "_generate_and_score_completions",
        lambda self, inputs: {"advantages": torch.full((4,), 7.0)},
    )
    output = trainer._generate_and_score_completions([{}] * 4)
    first = advantages([1.1, 0.0, 0.0, 0.0], 2)
    assert output["advantages"].tolist() == [0.0] * 4  # two are left, of which one set is made
    assert trainer._logs["advantages"] == pytest.approx([9.0, 9.0, *first, 0, 0, 0, 0], abs=1e-6)
    assert trainer._metrics["train"][TOO_FEW] == [0.5]
    trainer._k = 1
    output = trainer._generate_and_score_completions([{}] * 4)
    assert output["advantages"].tolist() == [7.0] * 4
