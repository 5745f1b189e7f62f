"""The joint objective is what it says: TRL's numbers are those of plain loops over episodes."""

import dataclasses
import random
from itertools import chain
from pathlib import Path
from typing import Any

import brute_force
import pytest
import tiny_rollouts
import torch
from generations import trajectory
from hypothesis import given, settings
from hypothesis import strategies as st
from students import PAD
from tiny_rollouts import END, Replayed, made_up, random_model

from heavydistill.train.grpo.episodes import EpisodeRow, PolicyCompletion, Rollout
from heavydistill.train.grpo.joint import JointTrainer, episode_advantages
from heavydistill.train.grpo.trainer import RlTrainer
from heavydistill.verifiers.pool import VerdictPool

GROUP = 4
GSPO, WIDE = (3e-4, 4e-4), (0.04, 0.06)
REWARDS = [1.0, 0.0, 0.0, 1.0, 0.2, 1.0, None, 0.0, 1.0, 1.0, 1.0, 1.0]


def trainer(
    folder: Path, played: list[Rollout], rewards: list[float | None], **changes: Any
) -> JointTrainer:
    """One whose generation is these episodes, in two micro-batches."""
    rows = len(played) * (size := len(played[0].rows))
    usual = {
        "num_generations": GROUP * size,
        "per_device_train_batch_size": rows // 2,
        "gradient_accumulation_steps": 1,
        "steps_per_generation": 2,
        "epsilon": GSPO[0],
        "epsilon_high": GSPO[1],
        "mask_truncated_completions": True,
    }
    k = len(played[0].pool)
    own = {"episodes": Replayed(k, played), "verdicts": VerdictPool()}
    rewards = [reward for reward in rewards for _ in range(size - k)]
    number = len(played) // GROUP
    made = tiny_rollouts.trainer(JointTrainer, folder, rewards, number, own, **{**usual, **changes})
    made.current_gradient_accumulation_steps = 1
    made.model.train()
    return made


def inputs(made: JointTrainer) -> list[dict[str, Any]]:
    """Of a generation, as TRL's sampler gives them."""
    return next(iter(made.get_train_dataloader()))


def relative_error(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize(
    ("k", "d", "masks_truncated", "bounds"),
    [
        (1, 1, True, GSPO),
        (2, 2, False, WIDE),
        (3, 1, True, WIDE),
        (4, 1, False, GSPO),
        (4, 1, True, WIDE),
        (4, 3, True, WIDE),
    ],
)
def test_loss_and_gradients_are_those_of_plain_loops(tmp_path, k, d, masks_truncated, bounds):
    least, most = bounds
    played = made_up(len(REWARDS), k, seed=k, d=d)
    if masks_truncated:  # one of which nothing is left
        rows = [
            dataclasses.replace(row, completion=dataclasses.replace(row.completion, is_whole=False))
            for row in played[0].rows
        ]
        for row in rows:
            row.completion.ids[-1] = 100
        played[0] = dataclasses.replace(played[0], rows=rows)
    made = trainer(
        tmp_path,
        played,
        REWARDS,
        mask_truncated_completions=masks_truncated,
        epsilon=least,
        epsilon_high=most,
    )
    batch = made._generate_and_score_completions(inputs(made))
    old = brute_force.moved(made.model, played, far=5 * least if bounds == GSPO else 2.5 * least)
    loss = made.compute_loss(made.model, batch)
    loss.backward()
    trainer_options = brute_force.gradient(made.model)

    made.model.zero_grad()
    model, of_each = brute_force.plain(made.model), brute_force.advantages(REWARDS, GROUP)
    expected = brute_force.joint_loss(model, old, played, of_each, least, most, masks_truncated)
    expected.backward()
    ratios = [brute_force.ratio(model, old, one, masks_truncated).item() for one in played]
    low = [r < 1 - least and a < 0 for r, a in zip(ratios, of_each, strict=True)]
    high = [r > 1 + most and a > 0 for r, a in zip(ratios, of_each, strict=True)]
    is_free = [a != 0 and not any(one) for a, *one in zip(of_each, low, high, strict=True)]
    assert any(low) and any(high) and sum(is_free) >= 2, ratios
    # Relative to its terms: where all ratios are near 1, they leave nearly nothing.
    scale = sum(map(abs, of_each)) / len(of_each)
    assert abs(loss.item() - expected.item()) <= 1e-5 * scale
    assert relative_error(trainer_options, brute_force.gradient(made.model)) <= 1e-5


def test_rows_of_an_episode_stay_together(tmp_path):
    k = 3
    played = made_up(len(REWARDS), k, truncated=0)
    made = trainer(tmp_path, played, REWARDS)
    batches = []
    for step in range(2):
        made._step = step
        batch = made._prepare_inputs(inputs(made))
        assert len(batch["completion_ids"]) == len(REWARDS) // 2
        batch = {name: made._apart(batch[name]) for name in ("prompt_ids", "completion_ids")}
        batches.append([asked_in(batch, number) for number in range(len(REWARDS) // 2 * (k + 1))])
    of_batches = [
        [number for number, episode in enumerate(played) if asked_of(episode) <= set(batch)]
        for batch in batches
    ]
    assert sorted(chain(*batches)) == sorted(row for one in played for row in asked_of(one))
    whole = list(chain(*of_batches))
    assert sorted(whole) == list(range(len(REWARDS))) != whole  # shuffled


def asked_of(episode: Rollout) -> set[tuple[int, ...]]:
    return {(*row.prompt_ids, *row.completion.ids) for row in episode.rows}


def asked_in(batch: dict[str, torch.Tensor], number: int) -> tuple[int, ...]:
    """A row's tokens without its padding."""
    ids = [*batch["prompt_ids"][number].tolist(), *batch["completion_ids"][number].tolist()]
    return tuple(id for id in ids if id != PAD)


def test_a_reward_sees_deliberations_and_all_their_rows_have_it(tmp_path):
    k, played = 2, made_up(8, 2, truncated=0)
    made = trainer(tmp_path, played, [1.0, 0.0] * 4)
    seen: list[dict[str, Any]] = []

    def reward(completions: list[Any], completion_ids: Any, problem: Any, **more: Any) -> Any:
        more["log_extra"]("verdict", [f"v{number}" for number in range(len(problem))])
        seen.append({"completions": completions, "ids": completion_ids, "problem": problem})
        return [1.0, 0.0] * 4

    made.reward_funcs = [reward]
    batch = made._generate_and_score_completions(inputs(made))
    assert seen[0]["ids"] == [episode.rows[-1].completion.ids for episode in played]
    assert seen[0]["problem"] == ["p0"] * 4 + ["p1"] * 4
    assert batch["advantages"].tolist() == pytest.approx([0.86588, -0.86588] * 4, rel=1e-4)
    assert list(made._logs["advantages"]) == pytest.approx(
        [one for one in batch["advantages"].tolist() for _ in range(k + 1)]
    )
    assert list(made._logs["extra"]["verdict"]) == [f"v{n}" for n in range(8) for _ in range(k + 1)]


def test_the_reward_of_an_episode_is_the_mean_of_its_deliberations(tmp_path):
    k, d, played = 2, 2, made_up(4, 2, truncated=0, d=2)
    played[3] = dataclasses.replace(played[3], failed="too_long")
    made = trainer(tmp_path, played, [0.0] * 4)
    rewards = [1.0, 0.0, None, 1.0, None, None, 1.0, 1.0]

    def reward(completion_ids: Any, failed: Any, **more: Any) -> Any:
        assert completion_ids == [row.completion.ids for one in played for row in one.rows[k:]]
        assert failed == [False] * 6 + [True] * 2
        more["log_extra"]("verdict", [f"v{number}" for number in range(8)])
        return rewards

    made.reward_funcs = [reward]
    batch = made._generate_and_score_completions(inputs(made))
    # Means 0.5 and 1; neither the third episode nor the failed one has a reward.
    expected = brute_force.advantages([0.5, 1.0, None, None], GROUP)
    assert batch["advantages"].tolist() == pytest.approx(expected, rel=1e-4)
    of_rows = [f"v{n}" for at in range(0, 8, d) for n in (*[at] * k, at, at + 1)]
    assert list(made._logs["extra"]["verdict"]) == of_rows


def test_nothing_is_learnt_of_an_episode_that_failed(tmp_path):
    played = made_up(4, 2, truncated=0)
    rows = [dataclasses.replace(row, is_learnt=False) for row in played[1].rows]
    played[1] = dataclasses.replace(played[1], rows=rows, failed="too_few_usable")
    made = trainer(tmp_path, played, [1.0, 1.0, 0.0, 0.0])
    batch = made._generate_and_score_completions(inputs(made))
    deviation = 3**-0.5  # of one right episode and two wrong ones
    expected = [2 / 3 / deviation, 0.0, -1 / 3 / deviation, -1 / 3 / deviation]
    assert batch["advantages"].tolist() == pytest.approx(expected, rel=1e-3)
    learnt = made._apart(batch["completion_mask"] * batch["tool_mask"]).sum(dim=1)
    lengths = [
        len(row.completion.ids) * row.is_learnt for episode in played for row in episode.rows
    ]
    assert learnt.tolist() == lengths
    assert lengths[3:6] == [0, 0, 0]
    made.log({})
    logged = made.state.log_history[-1]
    assert logged["episodes/too_few_usable"] == 0.25
    assert logged["rewards/reward/mean"] == pytest.approx(1 / 3)


def test_thinkers_and_deliberations_are_not_padded_to_each_other(tmp_path):
    k, played = 3, made_up(4, 3, truncated=0)
    made = trainer(tmp_path, played, [1.0, 0.0] * 2)
    seen = tiny_rollouts.widths(made.model)
    batch = made._generate_and_score_completions(inputs(made))
    assert [shape[0] for shape in seen] == 2 * [2 * k, 2]  # two micro-batches of two episodes
    seen.clear()
    made.compute_loss(made.model, batch)
    assert [shape[0] for shape in seen] == [4 * k, 4]
    assert seen[-1][1] == max(len(e.rows[-1].prompt_ids) for e in played) + max(
        len(e.rows[-1].completion.ids) for e in played
    )


FLOATS = st.floats(-1, 1, width=32)


@settings(deadline=None)
@given(
    groups=st.lists(
        st.lists(st.one_of(st.none(), FLOATS), min_size=3, max_size=3), min_size=1, max_size=4
    ),
    scale=st.sampled_from(["group", "batch", "none"]),
    shift=FLOATS,
)
def test_advantages_compare_the_episodes_of_a_problem(groups, scale, shift):
    rewards = [torch.nan if one is None else one for group in groups for one in group]
    table = torch.tensor(rewards, dtype=torch.float64)
    found = episode_advantages(table, 3, scale)
    flat = [one for group in groups for one in group]
    if scale != "batch" or sum(one is not None for one in flat) > 1:
        expected = brute_force.advantages(flat, 3, scale)
        assert found.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert found.view(-1, 3).sum(dim=1).tolist() == pytest.approx([0.0] * len(groups), abs=1e-9)
    assert not found[table.isnan()].any()
    shifted = episode_advantages(table + shift, 3, scale)
    assert shifted.tolist() == pytest.approx(found.tolist(), rel=1e-6, abs=1e-6)
    for number, group in enumerate(groups):
        if len({one for one in group if one is not None}) <= 1:
            assert found[3 * number : 3 * number + 3].abs().max() < 1e-6


K, EPISODES, PARTS, ITERATIONS = 3, 8, 4, 2
WIDE_MODEL = {"hidden_size": 192, "intermediate_size": 384, "head_dim": 48}


class Watching:
    """Notes the log-ratios of all tokens of each micro-batch."""

    log_ratios: list[torch.Tensor]

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        self._old = inputs["old_per_token_logps"]
        return super()._compute_loss(model, inputs)  # type: ignore[misc]

    def _get_per_token_logps_and_entropies(self, *given: Any, **options: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*given, **options)
        if torch.is_grad_enabled():
            self.log_ratios.append((found[0].detach() - self._old).float())
        return found


class WatchedEpisodes(Watching, JointTrainer):
    """The ratios of episodes."""


class WatchedRows(Watching, RlTrainer):
    """The ratios of rows."""


def replayed(prompts: list[Any], _: Any) -> dict[str, Any]:
    """The rows of the episodes, each by itself."""
    rows = [row for episode in uneven() for row in episode.rows][: len(prompts)]
    return {
        "prompt_ids": [row.prompt_ids for row in rows],
        "completion_ids": [row.completion.ids for row in rows],
        "logprobs": None,
        "env_mask": [[1] * len(row.completion.ids) for row in rows],
    }


def uneven() -> list[Rollout]:
    """Episodes whose rows are of 4 to 200 tokens; some are cut off."""
    rng = random.Random(7)

    def row(longest: int) -> EpisodeRow:
        prompt = rng.choices(range(100, 600), k=rng.randint(2, longest))
        ids = rng.choices(range(100, 600), k=rng.randint(2, longest))
        is_whole = rng.random() < 0.8
        return EpisodeRow(
            [{"role": "user", "content": "?"}],
            prompt,
            PolicyCompletion([*ids, END] if is_whole else ids, is_whole),
        )

    cache = made_up(1, 1)[0].cache
    lengths = [100 if number % 3 else 12 for number in range(EPISODES)]
    return [
        Rollout([row(longest) for _ in range(K + 1)], [trajectory("5")] * K, cache, None)
        for longest in lengths
    ]


@pytest.mark.parametrize("of_episodes", [False, True])
@pytest.mark.parametrize("mixed", [False, True])
def test_the_ratios_of_unchanged_weights_are_exactly_1(tmp_path, of_episodes, mixed):
    rows = EPISODES * (K + 1)
    kind = WatchedEpisodes if of_episodes else WatchedRows
    own = {"episodes": Replayed(K, uneven()), "verdicts": VerdictPool()}
    trainer = tiny_rollouts.trainer(
        kind,
        tmp_path,
        [1.0, 0.0] * (EPISODES // 2 if of_episodes else rows // 2),
        EPISODES // 2,
        {
            "model": random_model(
                "Qwen3Config", torch.float32 if mixed else torch.bfloat16, **WIDE_MODEL
            ),
            **(own if of_episodes else {"rollout_func": replayed}),
        },
        bf16=mixed,
        num_generations=2 * (K + 1),
        per_device_train_batch_size=rows // PARTS,
        steps_per_generation=PARTS,
        gradient_accumulation_steps=1,
        num_iterations=ITERATIONS,
        max_steps=PARTS * ITERATIONS,
        gradient_checkpointing=not mixed,
        max_completion_length=128,
        optim="sgd",
        learning_rate=0.0,
        epsilon=3e-4,
        epsilon_high=4e-4,
        mask_truncated_completions=True,
        beta=0.0,
    )
    trainer.log_ratios = []
    trainer.train()
    assert len(trainer.log_ratios) == PARTS * ITERATIONS
    assert all(torch.equal(one, torch.zeros_like(one)) for one in trainer.log_ratios)
    clipped = [log["clip_ratio/region_mean"] for log in trainer.state.log_history[:-1]]
    assert clipped == [0.0] * len(clipped) and clipped
