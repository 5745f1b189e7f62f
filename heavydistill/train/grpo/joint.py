"""Joint training: K attempts and the D deliberations on them are one sample with one reward.

The objective, for episodes e of K + D rows whose trained tokens are t:

    ratio_e     = exp(mean over all t of log p(t) - log p_old(t))
    advantage_e = (reward_e - mean) / standard deviation, over the episodes of its problem
    loss        = mean over e of -min(ratio_e * advantage_e, clip(ratio_e) * advantage_e)

This is GSPO (arXiv 2507.18071) with an episode in place of a response: all tokens of an episode
share one ratio, one length and one advantage. The reward is the mean over the deliberations that
have one; an episode that failed (``episodes``) has none and does not contribute to the loss.

TRL samples and scores rows. Then the rows of an episode are joined to one row, all prompts before
all completions, so that TRL treats the episode as one response in micro-batches, loss, clipping,
metrics, reference model and correction of a server's log-probabilities. Only the forward pass
splits it into thinkers and deliberations, because these differ in length.

``dr_grpo`` divides by one ``max_completion_length`` for a whole episode. The auxiliary loss of a
mixture-of-experts model is the mean over both passes.

Not covered: episodes larger than a micro-batch. Gradient checkpointing reduces their memory.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from trl import GRPOConfig

from heavydistill.train.grpo.episodes import Episodes, PolicyCompletion, Rollout, figures
from heavydistill.train.grpo.trainer import RlTrainer
from heavydistill.train.rollouts.trainer import Batch, dealt
from heavydistill.verifiers.pool import VerdictPool

_T = TypeVar("_T")
_Row = dict[str, Any]


class JointTrainer(RlTrainer):
    """Generates episodes and trains on them, ``num_generations / (K + D)`` for each problem.

    The dataset has the columns of ``Episodes.rollout``; reward functions get the rows of the
    deliberations alone. Batches in ``args`` are whole episodes (``options``). For GSPO,
    ``importance_sampling_level`` is ``sequence`` and ``loss_type`` is ``grpo``.
    """

    def __init__(
        self, *, episodes: Episodes, verdicts: VerdictPool, args: GRPOConfig, **options: object
    ) -> None:
        self._episodes, self._verdicts = episodes, verdicts
        self._size = episodes.size
        super().__init__(args=args, **options)
        self.rollout_func = self._rolled_out
        self._inputs: list[_Row] = []
        self._played: list[Rollout] = []
        self._is_joined = False

    def _generate_and_score_completions(self, inputs: list[_Row]) -> Batch:
        # Copies of the rows, in which the prompt that was sampled from replaces the given prompt.
        self._inputs = [{**row, "prompt": list(row["prompt"])} for row in inputs]
        made: Batch = super()._generate_and_score_completions(self._inputs)
        return {name: self._joined(value) for name, value in made.items()}

    def _rolled_out(self, prompts: list[object], _: object) -> dict[str, object]:
        """Return the completions of episodes; TRL calls this instead of generating."""
        problems = self._inputs[:: self._size]
        # Checkpoints contain the state of this generator.
        seeds = torch.randint(2**31, (len(problems),)).tolist()
        self._played = self._episodes.rollout(problems, seeds, self._sample, self._verdicts)
        for name, value in figures(self._played).items():
            self._log_metric(name, value)
        rows = [row for episode in self._played for row in episode.rows]
        for given, row in zip(self._inputs, rows, strict=True):
            given["prompt"][:] = row.prompt
        return {
            "prompt_ids": [row.prompt_ids for row in rows],
            "completion_ids": [row.completion.ids for row in rows],
            "logprobs": [row.completion.logprobs for row in rows] if self.use_vllm else None,
            "env_mask": [[int(row.is_learnt)] * len(row.completion.ids) for row in rows],
        }

    def _sample(self, prompts: list[list[int]], most: int) -> list[PolicyCompletion]:
        with self._at_most(most):
            written, logprobs = self._generate_single_turn(prompts, None, {}, 1)
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        return [
            PolicyCompletion(ids, ids[-1] in ends, logprobs[number] if logprobs else None)
            for number, ids in enumerate(written)
        ]

    def _calculate_rewards(
        self, inputs: list[_Row], prompts: list[Any], completions: list[Any], ids: list[list[int]]
    ) -> torch.Tensor:
        """Return the mean reward of the deliberations of each row's episode, shape (rows, 1), of
        all processes."""
        k, d = self._episodes.k, self._episodes.d
        last = [at for at in range(len(inputs)) if at % self._size >= k]
        failed = [episode.failed is not None for episode in self._played for _ in range(d)]
        for at, has_failed in zip(last, failed, strict=True):
            inputs[at]["failed"] = has_failed  # for the counts that the reward function logs
        rewards = super()._calculate_rewards(
            *([values[at] for at in last] for values in (inputs, prompts, completions, ids))
        )
        is_failed = self.accelerator.gather(torch.tensor(failed, device=rewards.device))
        rewards[is_failed] = torch.nan
        self._rewards = rewards.view(-1, d).nanmean(dim=1, keepdim=True)
        return self._rewards.repeat_interleave(self._size, dim=0)

    def _log_completion_extra(self, column: str, values: list[object]) -> None:
        k, d = self._episodes.k, self._episodes.d
        of_rows: list[object] = []
        for at in range(0, len(values), d):  # an attempt has the value of the first deliberation
            of_rows += [values[at]] * k + values[at : at + d]
        super()._log_completion_extra(column, of_rows)

    def _own_advantages(self, rewards: torch.Tensor) -> torch.Tensor:
        return episode_advantages(rewards, self.num_generations // self._size, self.scale_rewards)

    def _joined(self, value: _T) -> _T | torch.Tensor:
        """Reshape (rows, columns) to (episodes, (K + D) * columns); other values are unchanged."""
        if not isinstance(value, torch.Tensor) or value.dim() < 2:
            return value
        return value.reshape(-1, self._size * value.size(1))

    def _apart(self, value: torch.Tensor) -> torch.Tensor:
        return value.reshape(-1, value.size(1) // self._size)

    def _compute_loss(self, model: torch.nn.Module, inputs: Batch) -> torch.Tensor:
        self._is_joined = True
        try:
            loss: torch.Tensor = super()._compute_loss(model, inputs)
        finally:
            self._is_joined = False
        return loss

    def _get_per_token_logps_and_entropies(
        self,
        model: torch.nn.Module,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **options: object,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        if not self._is_joined:
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, batch_size, **options
            )
        before = input_ids.size(1) - logits_to_keep
        ids, mask = (
            torch.cat([self._apart(both[:, :before]), self._apart(both[:, before:])], dim=1)
            for both in (input_ids, attention_mask)
        )
        logps, entropies, loss = super()._get_per_token_logps_and_entropies(
            model, ids, mask, logits_to_keep // self._size, batch_size, **options
        )
        return self._joined(logps), self._joined(entropies), loss

    def _micro_batches(self, lengths: torch.Tensor, size: int) -> list[torch.Tensor]:
        """Return micro-batches of whole episodes, with rows in the order of their episodes."""
        of_episodes = lengths.view(-1, self._size).sum(dim=1)
        within = torch.arange(self._size, device=lengths.device)
        return [
            (episodes[:, None] * self._size + within).flatten()
            for episodes in dealt(of_episodes, size // self._size, self._steps_of_generation)
        ]

    def _passes(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """Split rows into two forward passes: thinkers and deliberations."""
        is_last = rows % self._size >= self._episodes.k
        return [rows[~is_last], rows[is_last]]


def episode_advantages(rewards: torch.Tensor, group: int, scale: str) -> torch.Tensor:
    """Return the advantage of each episode.

    Args:
        rewards: (episodes,), group after group; NaN for an episode without a reward.
        group: Number of episodes in a group.
        scale: Standard deviation to divide by: of each ``group``, of the ``batch``, or ``none``.

    Returns:
        (episodes,); 0 for an episode without a reward, which is left out of all means.
    """
    grouped = rewards.view(-1, group)
    advantages = grouped - grouped.nanmean(dim=1, keepdim=True)
    if scale != "none":
        others = grouped if scale == "group" else rewards.view(1, -1)
        squares = (others - others.nanmean(dim=1, keepdim=True)).square()
        count = (~others.isnan()).sum(dim=1, keepdim=True)
        variance = squares.nansum(dim=1, keepdim=True) / (count - 1).clamp(min=1)
        advantages = advantages / (variance.sqrt() + 1e-4)  # TRL's epsilon against division by 0
    return advantages.view(-1).nan_to_num(0.0)
