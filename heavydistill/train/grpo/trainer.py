"""TRL's ``GRPOTrainer`` without most of its padding, with exact ratios and a resumable order.

TRL pads the rows of a generation to its longest prompt and completion, shuffles them and cuts the
result into micro-batches. Here a micro-batch has rows of similar length, the micro-batches are
shuffled instead of the rows, and no forward pass has a column that is padding in all its rows. Loss
and gradients are those of the padded rows up to rounding.

Old log-probabilities and those of a reference model are computed on exactly the micro-batches of
the loss, because rounding depends on the shapes of a pass: in bfloat16, log-probabilities of the
same row in another micro-batch differ by more than GSPO's clipping range. This way a ratio is
exactly 1 until the weights change.

If the model itself generates, rows that have ended leave the batch, or a message says why not. The
order of the prompts depends on the seed and the epoch, so that a resumed training asks the same
prompts; TRL's order depends on the epochs of the process.

TRL gives vLLM an adapter by merging it into the base and subtracting it again, which in bfloat16
does not restore the base that the saved adapter is loaded on. Here PEFT merges into a copy in
float32, which is cast once to the dtype of the base (``merged_weights``); the base is never
written. Quantized bases and FSDP with an adapter are refused before.

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
from trl.trainer.utils import RepeatSampler

from heavydistill.models.local.decoding import can_drop_rows, write
from heavydistill.train.grpo.held_out import HeldOutEvaluation


class RlTrainer(HeldOutEvaluation):
    """TRL's trainer for GRPO and its variants, evaluated on held-out rows.

    Subclasses may have advantages of their own; their samples have ``_size`` rows.
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
            or is_deepspeed_zero3_enabled()  # whose processes must call the model equally often
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
        """Generate as TRL does, without the model's own ``generation_config.json``.

        Penalties and suppressed tokens would change the distribution that the ratios assume.
        """
        own = self.model.generation_config
        self.model.generation_config = GenerationConfig()
        try:
            return super()._generate_single_turn(*arguments)
        finally:
            self.model.generation_config = own

    def _calculate_rewards(self, *arguments: Any) -> torch.Tensor:
        # Shape (samples of all processes, 1): there is one reward function. NaN: no reward.
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
        logged = self._logs["advantages"]  # the last ones are TRL's of this batch
        for _ in range(min(len(values), len(logged))):
            logged.pop()
        logged.extend(values)
        return output

    def _own_advantages(self, rewards: torch.Tensor) -> torch.Tensor | None:
        """The advantages of the samples of all processes; None for TRL's own.

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
        """Compute what TRL does, by micro-batches without padding.

        Ids and mask are (rows, prompt + completion); the mask is all 0 for a completion that is
        left out. ``logits_to_keep`` is the number of columns of the completion, ``batch_size`` the
        number of rows of a micro-batch (default: all).

        Returns:
            Log-probabilities and entropies, (rows, completion), 0 where the mask is 0, and the mean
            of the auxiliary losses; the last two if ``options`` request them.
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
        """Prepare as TRL does, with micro-batches of similar lengths (see the module)."""
        if not self.model.training:
            return super()._prepare_inputs(generation_batch)
        micro_batches = self.args.steps_per_generation
        if self._step % (micro_batches * self.num_iterations) == 0 or self._buffered_inputs is None:
            made = self._generate_and_score_completions(generation_batch)
            lengths = torch.cat([made["prompt_mask"], made["completion_mask"]], dim=1).sum(dim=1)
            cut = by_length(lengths, len(lengths) // micro_batches)
            self._buffered_inputs = [
                {
                    # Single numbers are of the whole generation.
                    name: value[cut[number]] if torch.is_tensor(value) and value.dim() else value
                    for name, value in made.items()
                }
                for number in torch.randperm(len(cut)).tolist()
            ]
        return self._buffered_inputs[self._step % micro_batches]

    def _micro_batches(self, lengths: torch.Tensor, size: int) -> list[torch.Tensor]:
        """The rows of each micro-batch of at most ``size`` rows, by their lengths (rows,).

        All processes have equally many: DDP and DeepSpeed run their passes together. Of the rows of
        one micro-batch this makes the same micro-batch, with the rows in the same order.
        """
        return by_length(lengths, size)

    def _passes(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """The rows of a micro-batch that share a forward pass: all."""
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
        # One at least, even if it is not learnt: TRL reads 0 columns as all.
        kept = max(1, completion)
        shown = slice(before - prompt, before + kept)
        logps, entropies, loss = super()._get_per_token_logps_and_entropies(
            model, ids[:, shown], mask[:, shown], kept, **options
        )
        missing = (0, columns - kept)
        return pad(logps, missing), None if entropies is None else pad(entropies, missing), loss


def by_length(lengths: torch.Tensor, size: int) -> list[torch.Tensor]:
    """The numbers of samples, sorted by length, in parts of at most ``size``."""
    return list(lengths.argsort(stable=True).split(size))


def _generate(
    generate: Callable[..., Any],
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    generation_config: GenerationConfig,
) -> torch.Tensor:
    """Token ids as ``generate`` returns them, (rows, prompt + longest completion)."""
    written = write(generate, input_ids, attention_mask, generation_config)
    rows = [torch.tensor(row, device=input_ids.device) for row in written]
    completions = pad_sequence(rows, True, generation_config.pad_token_id)
    return torch.cat([input_ids, completions], dim=1)


class _OfEpoch(Sampler[int]):
    """A sampler whose order depends on the epoch alone, not on earlier ones."""

    def __init__(self, sampler: RepeatSampler, epoch: Callable[[], int]) -> None:
        self._sampler, self._epoch = sampler, epoch

    def __iter__(self) -> Iterator[int]:
        if self._sampler.shuffle:
            self._sampler.generator.manual_seed(self._sampler.seed + self._epoch())
        return iter(self._sampler)

    def __len__(self) -> int:
        return len(self._sampler)


def merged_weights(vllm: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Every weight under the name that vLLM knows, in the shape and dtype of the base.

    In place of ``VLLMGeneration._iter_named_params`` of ``vllm``. Under ZeRO-3 every process has to
    iterate, because a weight is gathered from all of them.
    """
    model = vllm.model
    layers = _layers(model)
    for name, weight in model.named_parameters():
        # PEFT's wrappers go; of a module that is trained as a whole, the trained copy stays.
        name = name.removeprefix("base_model.model.").replace(".base_layer", "")
        if model.prefix in name or "original_module" in name:
            continue
        name = vllm._fix_param_name_to_vllm(name, extra_prefixes=["modules_to_save.default."])
        own = layers.get(weight, [])
        # Each once, and in an order that all processes have.
        needed = dict.fromkeys([weight, *(one for layer in own for one in layer.parameters())])
        with torch.no_grad(), vllm._dist.gather_params(list(needed)):
            yield name, _merged(weight, own) if own else weight.data


def _layers(model: Any) -> dict[torch.nn.Parameter, list[Any]]:
    """The layers of the adapter, by the weight of the base that each of them changes."""
    from peft.tuners.lora.layer import LoraLayer, ParamWrapper

    found: dict[torch.nn.Parameter, list[Any]] = {}
    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            name = layer.parameter_name if isinstance(layer, ParamWrapper) else "weight"
            found.setdefault(getattr(layer.get_base_layer(), name), []).append(layer)
    return found


def _merged(weight: torch.nn.Parameter, layers: list[Any]) -> torch.Tensor:
    """A weight of the base with these layers of the adapter, in the dtype of the base."""
    base = weight.data
    weight.data = base.clone().float()
    try:
        for layer in layers:
            layer.merge()
        return weight.data.to(base.dtype)
    finally:
        for layer in layers:
            if layer.merged:
                layer.unmerge()  # so that it counts as not merged; the copy is dropped
        weight.data = base
