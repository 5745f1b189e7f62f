"""TRL's ``GRPOTrainer`` with little padding, exact ratios and a resumable prompt order.

Sampling, micro-batches and prompt order are those of ``rollouts.trainer``. Up to rounding, loss and
gradients of a generation equal those of TRL's padded and shuffled rows.

Old and reference log-probabilities are computed on exactly the micro-batches of the loss, because
rounding depends on the shapes of a pass: in bfloat16, log-probabilities of the same row in another
micro-batch differ by more than GSPO's clipping range. Thus a ratio is exactly 1 until the weights
change.

With vLLM, the log-probabilities of every generation are compared with vLLM's own (``vllm``), and a
training whose weights vLLM does not have ends.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad
from trl import GRPOTrainer

from heavydistill.train.rollouts import vllm
from heavydistill.train.rollouts.trainer import Batch, SamplingTrainer, dealt


class RlTrainer(SamplingTrainer, GRPOTrainer):
    """TRL's trainer for GRPO and its variants, evaluated on held-out rows.

    Subclasses may compute their own advantages; one of their samples has ``_size`` rows.
    """

    _rewards: torch.Tensor
    _size = 1

    def _calculate_rewards(self, *arguments: Any) -> torch.Tensor:
        # Shape (samples of all processes, 1), because there is one reward function. NaN: no reward.
        self._rewards = super()._calculate_rewards(*arguments)
        return self._rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, object]]) -> Batch:
        output: Batch = super()._generate_and_score_completions(inputs)
        if self.use_vllm:
            self._check_weights_of_vllm(output)
        advantages = self._own_advantages(self._rewards.flatten())
        if advantages is None:
            return output
        mine = len(inputs) // self._size
        first = self.accelerator.process_index * mine
        output["advantages"] = advantages[first : first + mine]
        values = advantages.repeat_interleave(self._size).tolist()
        logged = self._logs["advantages"]  # the last entries are TRL's values for this batch
        for _ in range(min(len(values), len(logged))):
            logged.pop()
        logged.extend(values)
        return output

    def _check_weights_of_vllm(self, output: Batch) -> None:
        """Raise an error unless vLLM sampled a generation from the trained weights."""
        mask = output["completion_mask"] * output.get("tool_mask", 1)
        sampled, computed = output["sampling_per_token_logps"], output.get("old_per_token_logps")
        if computed is None:
            parts = (("prompt_ids", "completion_ids"), ("prompt_mask", "completion_mask"))
            ids, seen = (torch.cat([output[name] for name in names], dim=1) for names in parts)
            size = self.args.per_device_train_batch_size
            with torch.no_grad():
                computed, _, _ = self._get_per_token_logps_and_entropies(
                    self.model, ids, seen, mask.size(1), size
                )
        # vLLM reports NaN where it has no log-probability.
        differences = (computed - sampled).abs()[mask.bool() & ~sampled.isnan()]
        sums = differences.new_tensor([differences.sum(), differences.numel()])
        total, tokens = self.accelerator.reduce(sums, "sum").tolist()
        types = {self.model.dtype, vllm.engine_dtype(self.vllm_generation)}
        is_float32 = types == {torch.float32} and self.accelerator.mixed_precision == "no"
        step = self.state.global_step
        vllm.check_gap(total / max(tokens, 1), step, is_float32, self.temperature)

    def _own_advantages(self, rewards: torch.Tensor) -> torch.Tensor | None:
        """Return the advantages of the samples of all processes; None to use TRL's.

        Rewards and advantages have the shape (samples,), group after group.
        """
        return None

    def _get_per_token_logps_and_entropies(
        self,
        model: torch.nn.Module,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **options: object,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Compute TRL's per-token values, by micro-batches without padding.

        Ids and mask are (rows, prompt + completion); the mask is all 0 for a completion that is
        left out. ``logits_to_keep`` is the number of columns of the completion, ``batch_size`` the
        number of rows of a micro-batch (default: all).

        Returns:
            Log-probabilities and entropies, (rows, completion), 0 where the mask is 0, and the mean
            of the auxiliary losses; the last two only if ``options`` request them.
        """
        lengths = attention_mask.sum(dim=1)
        passes = [
            rows
            for batch in self._micro_batches(lengths, batch_size or len(input_ids))
            for rows in self._passes(batch)
        ]
        done = [
            self._trimmed(model, input_ids[rows], attention_mask[rows], logits_to_keep, options)
            for rows in passes
        ]
        order = torch.cat(passes).argsort()
        logps, entropies, losses = zip(*done, strict=True)
        return (
            torch.cat(logps)[order],
            torch.cat(entropies)[order] if entropies[0] is not None else None,
            torch.stack(losses).mean() if losses[0] is not None else None,
        )

    def _micro_batches(self, lengths: torch.Tensor, size: int) -> list[torch.Tensor]:
        """Return the row indices of each micro-batch of at most ``size`` rows (``dealt``).

        All processes get the same number, because DDP and DeepSpeed run their passes together.
        Called with the rows of one micro-batch, this returns the same micro-batch in the same
        order.
        """
        return dealt(lengths, size, self._steps_of_generation)

    def _passes(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """Return the groups of rows that share a forward pass: one group with all rows."""
        return [rows]

    def _trimmed(
        self,
        model: torch.nn.Module,
        ids: torch.Tensor,
        mask: torch.Tensor,
        columns: int,
        options: dict[str, object],
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        before = ids.size(1) - columns
        is_used = mask.any(dim=0)
        of_prompt, of_completion = is_used[:before].sum(), is_used[before:].sum()
        prompt, completion = torch.stack([of_prompt, of_completion]).tolist()
        # At least one column, even if it is not trained on: TRL reads 0 columns as all.
        kept = max(1, completion)
        shown = slice(before - prompt, before + kept)
        logps, entropies, loss = super()._get_per_token_logps_and_entropies(
            model, ids[:, shown], mask[:, shown], kept, **options
        )
        missing = (0, columns - kept)
        return pad(logps, missing), None if entropies is None else pad(entropies, missing), loss
