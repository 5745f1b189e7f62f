"""TRL's ``GRPOTrainer`` with little padding, exact ratios and a resumable prompt order.

TRL pads the rows of a generation batch to its longest prompt and completion, shuffles them and cuts
the result into micro-batches. Here a micro-batch has rows of similar length, the micro-batches are
shuffled instead of the rows, and columns that are padding in all rows are removed before a forward
pass. Up to rounding, loss and gradients equal those of the padded rows.

Old and reference log-probabilities are computed on exactly the micro-batches of the loss, because
rounding depends on the shapes of a pass: in bfloat16, log-probabilities of the same row in another
micro-batch differ by more than GSPO's clipping range. Thus a ratio is exactly 1 until the weights
change.

If the model itself generates, finished rows leave the batch; if this is not possible, a message
says why. The order of the prompts depends on the seed and the epoch, so that a resumed training
uses the same prompts; in TRL the order depends on how many epochs the process has run.

To sync an adapter with vLLM, TRL merges it into the base and subtracts it again, which in bfloat16
does not restore the base. Here PEFT merges into a float32 copy, which is cast once to the dtype of
the base (``merged_weights``); the base is never written. Quantized bases, and FSDP with an adapter,
are refused earlier.

Not covered: images; models with absolute positions, whose results depend on padding before a prompt
in TRL too.
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
from trl.trainer.utils import RepeatSampler

from heavydistill.models.local.decoding import can_drop_rows, write
from heavydistill.train.grpo.held_out import HeldOutEvaluation


class RlTrainer(HeldOutEvaluation):
    """TRL's trainer for GRPO and its variants, evaluated on held-out rows.

    Subclasses may compute their own advantages; one of their samples has ``_size`` rows.
    """

    _buffered_inputs: list[dict[str, Any]] | None
    _rewards: torch.Tensor
    _size = 1

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self.use_vllm:
            if is_peft_model(self.model):
                vllm = self.vllm_generation
                vllm._iter_named_params = partial(merged_weights, vllm)
            return
        if self.args.use_transformers_continuous_batching:
            return
        keeps_rows = (
            self.args.cache_implementation
            or is_deepspeed_zero3_enabled()  # its processes must call the model equally often
            or not can_drop_rows(self.model.config)
        )
        if keeps_rows:
            self.accelerator.print(
                "Responses that have ended stay in their batch until its longest one ends: the "
                "model, its cache or ZeRO-3 needs it."
            )
        else:
            self.model.generate = partial(_generate, self.model.generate)

    def _generate_single_turn(self, *arguments: Any) -> Any:
        """Generate as TRL does, but ignore the model's ``generation_config.json``.

        Penalties and suppressed tokens would change the distribution on which the ratios are based.
        """
        own = self.model.generation_config
        self.model.generation_config = GenerationConfig()
        try:
            return super()._generate_single_turn(*arguments)
        finally:
            self.model.generation_config = own

    def _calculate_rewards(self, *arguments: Any) -> torch.Tensor:
        # Shape (samples of all processes, 1), because there is one reward function. NaN: no reward.
        self._rewards = super()._calculate_rewards(*arguments)
        return self._rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
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

    def _own_advantages(self, rewards: torch.Tensor) -> torch.Tensor | None:
        """Return the advantages of the samples of all processes; None to use TRL's.

        Rewards and advantages have the shape (samples,), group after group.
        """
        return None

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

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """Prepare a generation batch as TRL does, with micro-batches of rows of similar length."""
        if not self.model.training:
            return super()._prepare_inputs(generation_batch)
        micro_batches = self.args.steps_per_generation
        if self._step % (micro_batches * self.num_iterations) == 0 or self._buffered_inputs is None:
            made = self._generate_and_score_completions(generation_batch)
            lengths = torch.cat([made["prompt_mask"], made["completion_mask"]], dim=1).sum(dim=1)
            cut = by_length(lengths, len(lengths) // micro_batches)
            self._buffered_inputs = [
                {
                    # Scalars belong to the whole generation batch.
                    name: value[cut[number]] if torch.is_tensor(value) and value.dim() else value
                    for name, value in made.items()
                }
                for number in torch.randperm(len(cut)).tolist()
            ]
        return self._buffered_inputs[self._step % micro_batches]

    def _micro_batches(self, lengths: torch.Tensor, size: int) -> list[torch.Tensor]:
        """Return the row indices of each micro-batch of at most ``size`` rows, grouped by
        ``lengths``.

        All processes get the same number, because DDP and DeepSpeed run their passes together.
        Called with the rows of one micro-batch, this returns the same micro-batch in the same
        order.
        """
        return by_length(lengths, size)

    def _passes(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """Return the groups of rows that share a forward pass: one group with all rows."""
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
        # At least one column, even if it is not trained on: TRL reads 0 columns as all.
        kept = max(1, completion)
        shown = slice(before - prompt, before + kept)
        logps, entropies, loss = super()._get_per_token_logps_and_entropies(
            model, ids[:, shown], mask[:, shown], kept, **options
        )
        missing = (0, columns - kept)
        return pad(logps, missing), None if entropies is None else pad(entropies, missing), loss


def by_length(lengths: torch.Tensor, size: int) -> list[torch.Tensor]:
    """Return the indices of the samples, sorted by length, in chunks of at most ``size``."""
    return list(lengths.argsort(stable=True).split(size))


def _generate(
    generate: Callable[..., Any],
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    generation_config: GenerationConfig,
) -> torch.Tensor:
    """Return token ids in the format of ``generate``, shape (rows, prompt + longest completion)."""
    written = write(generate, input_ids, attention_mask, generation_config)
    rows = [torch.tensor(row, device=input_ids.device) for row in written]
    completions = pad_sequence(rows, True, generation_config.pad_token_id)
    return torch.cat([input_ids, completions], dim=1)


class _OfEpoch(Sampler[int]):
    """A sampler whose order depends only on the seed and the epoch."""

    def __init__(self, sampler: RepeatSampler, epoch: Callable[[], int]) -> None:
        self._sampler, self._epoch = sampler, epoch

    def __iter__(self) -> Iterator[int]:
        if self._sampler.shuffle:
            self._sampler.generator.manual_seed(self._sampler.seed + self._epoch())
        return iter(self._sampler)

    def __len__(self) -> int:
        return len(self._sampler)


def merged_weights(vllm: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each weight under vLLM's name for it, in the shape and dtype of the base.

    Replaces ``VLLMGeneration._iter_named_params`` of ``vllm``. Under ZeRO-3 every process has to
    iterate, because a weight is gathered from all of them.
    """
    model = vllm.model
    layers = _layers(model)
    for name, weight in model.named_parameters():
        # Remove PEFT's wrapper names; for a fully trained module, keep the trained copy.
        name = name.removeprefix("base_model.model.").replace(".base_layer", "")
        if model.prefix in name or "original_module" in name:
            continue
        name = vllm._fix_param_name_to_vllm(name, extra_prefixes=["modules_to_save.default."])
        own = layers.get(weight, [])
        # Each parameter once, in the same order in all processes.
        needed = dict.fromkeys([weight, *(one for layer in own for one in layer.parameters())])
        with torch.no_grad(), vllm._dist.gather_params(list(needed)):
            yield name, _merged(weight, own) if own else weight.data


def _layers(model: Any) -> dict[torch.nn.Parameter, list[Any]]:
    """Return the adapter layers that modify each weight of the base."""
    from peft.tuners.lora.layer import LoraLayer, ParamWrapper

    found: dict[torch.nn.Parameter, list[Any]] = {}
    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            name = layer.parameter_name if isinstance(layer, ParamWrapper) else "weight"
            found.setdefault(getattr(layer.get_base_layer(), name), []).append(layer)
    return found


def _merged(weight: torch.nn.Parameter, layers: list[Any]) -> torch.Tensor:
    """Return a base weight with the given adapter layers merged in, in the dtype of the base."""
    base = weight.data
    weight.data = base.clone().float()
    try:
        for layer in layers:
            layer.merge()
        return weight.data.to(base.dtype)
    finally:
        for layer in layers:
            if layer.merged:
                layer.unmerge()  # marks the layer as not merged; the copy is dropped
        weight.data = base
