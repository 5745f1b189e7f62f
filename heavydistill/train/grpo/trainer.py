"""TRL's ``GRPOTrainer`` with little padding, exact ratios and a resumable prompt order.

TRL pads the rows of a generation batch to its longest prompt and completion, shuffles them and cuts
the result into micro-batches. Here rows that are neighbours in length are dealt to different
optimizer steps, because they are often responses to one problem, and a step should learn from many.
The micro-batches of a step have rows of similar length, the steps are shuffled instead of the rows,
and columns that are padding in all rows are removed before a forward pass. Up to rounding, loss and
gradients of a generation equal those of the padded rows.

Old and reference log-probabilities are computed on exactly the micro-batches of the loss, because
rounding depends on the shapes of a pass: in bfloat16, log-probabilities of the same row in another
micro-batch differ by more than GSPO's clipping range. Thus a ratio is exactly 1 until the weights
change.

If the model itself generates, finished rows leave the batch; if this is not possible, a message
says why. The order of the prompts depends on the seed and the epoch, so that a resumed training
uses the same prompts; in TRL the order depends on how many epochs the process has run.

With vLLM, the log-probabilities of every generation are compared with vLLM's own (``vllm``), and a
training whose weights vLLM does not have ends. Quantized bases, and FSDP with an adapter, are
refused earlier.

Not covered: images; models with absolute positions, whose results depend on padding before a prompt
in TRL too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from accelerate.utils import is_peft_model, set_seed
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Sampler
from transformers import GenerationConfig
from transformers.generation import GenerateDecoderOnlyOutput
from transformers.integrations import is_deepspeed_zero3_enabled
from trl.trainer.utils import RepeatSampler

from heavydistill.models.local.decoding import can_drop_rows, write
from heavydistill.train.grpo import vllm
from heavydistill.train.held_out import HeldOutEvaluation

Batch = dict[str, torch.Tensor]


class RlTrainer(HeldOutEvaluation):
    """TRL's trainer for GRPO and its variants, evaluated on held-out rows.

    Subclasses may compute their own advantages; one of their samples has ``_size`` rows.
    """

    _buffered_inputs: list[dict[str, object]] | None
    _rewards: torch.Tensor
    _size = 1

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self.use_vllm:
            engine = self.vllm_generation
            if is_peft_model(self.model):
                engine._iter_named_params = partial(vllm.merged_weights, engine)
            # An engine in this process samples with its generators, and has set them to a seed of
            # its own. Checkpoints contain their state.
            set_seed(self._sampling_seed)
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

    def _generate_single_turn(
        self, *arguments: object
    ) -> tuple[list[list[int]], list[list[float]] | None]:
        """Generate as TRL does, but ignore the model's ``generation_config.json``.

        Penalties and suppressed tokens would change the distribution on which the ratios are based.
        """
        own = self.model.generation_config
        self.model.generation_config = GenerationConfig()
        try:
            ids, logprobs = super()._generate_single_turn(*arguments)
            return ids, logprobs
        finally:
            self.model.generation_config = own

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

    def end(self) -> None:
        """End the training; an engine in this process is shut down before."""
        if self.use_vllm:
            vllm.shut_down(self.vllm_generation)
        super().end()

    def _own_advantages(self, rewards: torch.Tensor) -> torch.Tensor | None:
        """Return the advantages of the samples of all processes; None to use TRL's.

        Rewards and advantages have the shape (samples,), group after group.
        """
        return None

    def _get_train_sampler(self, dataset: object = None) -> Sampler[int]:
        sampler: RepeatSampler = super()._get_train_sampler(dataset)
        return _OfEpoch(sampler, lambda: int(self.state.epoch or 0))

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

    def _prepare_inputs(self, generation_batch: list[dict[str, object]]) -> dict[str, object]:
        """Prepare a generation batch as TRL does, with micro-batches of rows of similar length."""
        if not self.model.training:
            prepared: dict[str, object] = super()._prepare_inputs(generation_batch)
            return prepared
        micro_batches = self.args.steps_per_generation
        if self._step % (micro_batches * self.num_iterations) == 0 or self._buffered_inputs is None:
            made = self._generate_and_score_completions(generation_batch)
            lengths = torch.cat([made["prompt_mask"], made["completion_mask"]], dim=1).sum(dim=1)
            cut = dealt(lengths, len(lengths) // micro_batches, self._steps_of_generation)
            of_step = torch.arange(len(cut)).view(self._steps_of_generation, -1)
            self._buffered_inputs = [
                {
                    # Scalars belong to the whole generation batch.
                    name: value[cut[number]] if torch.is_tensor(value) and value.dim() else value
                    for name, value in made.items()
                }
                for number in of_step[torch.randperm(self._steps_of_generation)].flatten().tolist()
            ]
        at: int = self._step % micro_batches
        return self._buffered_inputs[at]

    def _micro_batches(self, lengths: torch.Tensor, size: int) -> list[torch.Tensor]:
        """Return the row indices of each micro-batch of at most ``size`` rows (``dealt``).

        All processes get the same number, because DDP and DeepSpeed run their passes together.
        Called with the rows of one micro-batch, this returns the same micro-batch in the same
        order.
        """
        return dealt(lengths, size, self._steps_of_generation)

    @property
    def _steps_of_generation(self) -> int:
        """Number of optimizer steps that learn from a generation, or of its smallest parts that
        are whole micro-batches of each step."""
        micro_batches = int(self.args.steps_per_generation)
        return micro_batches // math.gcd(micro_batches, self.args.gradient_accumulation_steps)

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


def dealt(lengths: torch.Tensor, size: int, steps: int) -> list[torch.Tensor]:
    """Return the indices of the samples in micro-batches of at most ``size``, step after step.

    Samples are sorted by length and dealt to ``steps`` in turn; the micro-batches of a step are
    consecutive samples of its own. A number of micro-batches that ``steps`` does not divide, such
    as 1, is not dealt.
    """
    order = lengths.argsort(stable=True)
    if math.ceil(len(order) / size) % steps:
        steps = 1
    return [rows for step in range(steps) for rows in order[step::steps].split(size)]


def _generate(
    generate: Callable[..., GenerateDecoderOnlyOutput],
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
