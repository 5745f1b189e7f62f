"""TRL's ``GRPOTrainer`` without most of its padding, and with what all our trainers do.

TRL pads the rows of a generation to its longest prompt and completion, shuffles them and cuts the
result into micro-batches. Here a micro-batch holds rows of similar length, the micro-batches are
shuffled instead of the rows, and no forward pass has a column that is padding in all of its rows.
Loss and gradients are those of the padded rows up to rounding.

Old log-probabilities and those of a reference model are computed on exactly the micro-batches of
the loss, because rounding depends on the shapes of a pass: in bfloat16, the same weights over the
same row in another micro-batch differ by more than GSPO's clipping range. This way a ratio is
exactly 1 until the weights change.

Where the model itself generates, rows that have ended leave the batch, unless a setting counts from
the beginning; that is printed. The order of the prompts depends on the seed and the epoch, so that
a resumed training asks what it would have asked; TRL's depends on the epochs of the process.

Not covered: images; models with absolute positions, for which padding before a prompt is not
neutral in TRL either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from accelerate.utils import is_peft_model
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Sampler
from transformers import GenerationConfig
from transformers.integrations import is_deepspeed_zero3_enabled
from trl import GRPOTrainer
from trl.trainer.utils import RepeatSampler

from heavydistill.models.local.decoding import may_let_rows_go, write
from heavydistill.train.grpo.held_out import HeldOutEvaluation
from heavydistill.train.grpo.passk import PassAtK
from heavydistill.train.grpo.vllm_sync import merged_weights
from heavydistill.train.trainer import RolesMixin

OF_TRL = (
    "_calculate_rewards",
    "_compute_loss",
    "_generate_and_score_completions",
    "_generate_single_turn",
    "_get_per_token_logps_and_entropies",
    "_get_train_sampler",
    "_log_completion_extra",
    "_log_metric",
    "_prepare_inputs",
)
"""What the trainers of this package replace or call of TRL's though it is private, as it is in
``train.TRL``."""
# Of a model's own settings, those that mean the same in every stretch, or that TRL sets.
_OF_EVERY_CALL = {
    *("bos_token_id", "eos_token_id", "pad_token_id", "transformers_version"),
    *("do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty"),
    *("max_length", "max_new_tokens", "use_cache"),
}


class RlTrainer(HeldOutEvaluation, RolesMixin, GRPOTrainer):
    """TRL's trainer for GRPO, GSPO and their like, measured on held-out rows."""

    _buffered_inputs: list[dict[str, Any]] | None

    def __init__(self, **options: Any) -> None:
        super().__init__(muon=False, **options)
        if self.use_vllm:
            if is_peft_model(self.model):
                vllm = self.vllm_generation
                vllm._iter_named_params = partial(merged_weights, vllm)  # see ``vllm_sync``
            return
        if self.args.use_transformers_continuous_batching:
            return
        if kept := self._what_keeps_rows():
            self.accelerator.print(
                "Responses that have ended are generated on until the longest of their batch has "
                f"ended too, because of {kept}."
            )
        else:
            self.model.generate = partial(_generate, self.model.generate)

    def _what_keeps_rows(self) -> str:
        """Why rows that have ended may not leave their batch; empty if they may."""
        own = self.model.generation_config
        told = own.to_diff_dict().items()
        set_there = {name for name, value in told if value and not name.startswith("_")}
        counting = sorted(set_there - _OF_EVERY_CALL)
        reasons = {
            "cache_implementation": self.args.cache_implementation,
            # Its processes must all call the model as often.
            "weights that are spread over processes": is_deepspeed_zero3_enabled(),
            "what the model remembers": not may_let_rows_go(self.model.config),
            "use_cache in its generation_config.json": own.use_cache is False,
            f"{', '.join(counting)} in its generation_config.json": counting,
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    def _log_advantages(self, values: list[float]) -> None:
        """Put the advantages of a batch, of all processes, in the place of TRL's in its table."""
        logged = self._logs["advantages"]
        for _ in range(min(len(values), len(logged))):
            logged.pop()
        logged.extend(values)

    def _get_train_sampler(self, dataset: Any = None) -> Sampler[int]:
        sampler: RepeatSampler = super()._get_train_sampler(dataset)
        return _OfEpoch(sampler, lambda: int(self.state.epoch or 0))

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **options: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """TRL's, micro-batch after micro-batch, each without its padding.

        Ids and mask are (rows, prompt + completion), the mask all 0 in a completion that is masked
        as a whole. ``logits_to_keep`` are the columns of the completion, ``batch_size`` the rows of
        a micro-batch (default: all).

        Returns:
            Log-probabilities and entropies, (rows, completion), 0 where the mask is, and the mean
            of the auxiliary losses; the last two if ``options`` ask for them.
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

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """TRL's, but for which samples share a micro-batch: see the top of this module."""
        if not self.model.training:
            return super()._prepare_inputs(generation_batch)
        micro_batches = self.args.steps_per_generation
        if self._step % (micro_batches * self.num_iterations) == 0 or self._buffered_inputs is None:
            made = self._generate_and_score_completions(generation_batch)
            lengths = torch.cat([made["prompt_mask"], made["completion_mask"]], dim=1).sum(dim=1)
            cut = by_length(lengths, len(lengths) // micro_batches)
            self._buffered_inputs = [
                {name: _rows_of(value, cut[number]) for name, value in made.items()}
                for number in torch.randperm(len(cut)).tolist()
            ]
        return self._buffered_inputs[self._step % micro_batches]

    def _micro_batches(self, lengths: torch.Tensor, size: int) -> list[torch.Tensor]:
        """Which rows of these lengths (rows,) are a micro-batch of at most ``size`` rows.

        As many in all processes: under DDP and DeepSpeed they run their passes together. Given the
        rows of one micro-batch, this is that micro-batch with its rows in the same order.
        """
        return by_length(lengths, size)

    def _passes(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """Which rows of a micro-batch share a forward pass: all of them."""
        return [rows]

    def _trimmed(
        self,
        model: Any,
        ids: torch.Tensor,
        mask: torch.Tensor,
        columns: int,
        options: dict[str, Any],
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        before = ids.size(1) - columns
        is_used = mask.any(dim=0)
        of_prompt, of_completion = is_used[:before].sum(), is_used[before:].sum()
        prompt, completion = torch.stack([of_prompt, of_completion]).tolist()
        # One at least, though nothing of it is learnt: to TRL no columns are all of them.
        kept = self._rounded(max(1, completion), columns)
        shown = slice(before - self._rounded(prompt, before), before + kept)
        logps, entropies, loss = super()._get_per_token_logps_and_entropies(
            model, ids[:, shown], mask[:, shown], kept, **options
        )
        missing = (0, columns - kept)
        return pad(logps, missing), None if entropies is None else pad(entropies, missing), loss

    def _rounded(self, width: int, most: int) -> int:
        multiple = self.pad_to_multiple_of or 1
        return min(most, -(-width // multiple) * multiple)


def by_length(lengths: torch.Tensor, size: int) -> list[torch.Tensor]:
    """Cut samples of these lengths, sorted, into parts of at most ``size``: their numbers."""
    return list(lengths.argsort(stable=True).split(size))


def _rows_of(value: Any, rows: torch.Tensor) -> Any:
    """Some rows of what a generation is made of; a number of all of it as it is."""
    return value[rows] if isinstance(value, torch.Tensor) and value.dim() else value


def _generate(
    generate: Callable[..., Any],
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    generation_config: GenerationConfig,
) -> torch.Tensor:
    """What ``generate`` returns, (rows, prompt + longest completion)."""
    written = write(generate, input_ids, attention_mask, generation_config)
    rows = [torch.tensor(row, device=input_ids.device) for row in written]
    completions = pad_sequence(rows, True, generation_config.pad_token_id)
    return torch.cat([input_ids, completions], dim=1)


class _OfEpoch(Sampler[int]):
    """The order of a sampler in an epoch, whatever epochs were before."""

    def __init__(self, sampler: RepeatSampler, epoch: Callable[[], int]) -> None:
        self._sampler, self._epoch = sampler, epoch

    def __iter__(self) -> Iterator[int]:
        if self._sampler.shuffle:
            self._sampler.generator.manual_seed(self._sampler.seed + self._epoch())
        return iter(self._sampler)

    def __len__(self) -> int:
        return len(self._sampler)


class ThinkerTrainer(PassAtK, RlTrainer):
    """Trains a thinker for a pool of k attempts; see ``passk``."""
