"""How GRPO and distillation sample here: TRL's trainers with little padding, resumable.

TRL pads the rows of a generation batch to its longest prompt and completion, shuffles them and cuts
the result into micro-batches. Here rows that are neighbours in length are dealt to different
optimizer steps, because they are often responses to one problem, and a step should learn from many.
The micro-batches of a step have rows of similar length, and the steps are shuffled instead of the
rows. Columns that are padding in all rows of a micro-batch are removed before a forward pass, by
the trainers.

If the model itself generates, finished rows leave the batch; if this is not possible, a message
says why. The order of the prompts depends on the seed and the epoch, so that a resumed training
uses the same prompts; in TRL the order depends on how many epochs the process has run.

With vLLM, an adapter is merged into copies of the weights that vLLM gets (``vllm``). Quantized
bases, and FSDP with an adapter, are refused earlier.

Not covered: images; models with absolute positions, whose results depend on padding before a prompt
in TRL too.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from accelerate.utils import is_peft_model, set_seed
from datasets import Dataset
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Sampler
from transformers import GenerationConfig, TrainerControl
from transformers.generation import GenerateDecoderOnlyOutput
from transformers.integrations import is_deepspeed_zero3_enabled
from trl.trainer.utils import RepeatSampler

from heavydistill.models.local.decoding import can_drop_rows, write
from heavydistill.train.held_out import HeldOutEvaluation, Row
from heavydistill.train.rollouts import vllm

Batch = dict[str, torch.Tensor]


class SamplingTrainer(HeldOutEvaluation):
    """Mixin for TRL's ``GRPOTrainer`` and ``DistillationTrainer``, evaluated on held-out rows.

    ``eval_dataset`` maps roles to rows as in ``HeldOut``. A role without an entry in
    ``most_tokens`` has ``max_completion_length``.
    """

    _buffered_inputs: list[dict[str, object]] | None
    control: TrainerControl
    num_iterations = 1  # Number of times that a generation is learnt from; GRPO's may be more

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
        if getattr(self.args, "use_transformers_continuous_batching", False):
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

    def evaluate(
        self,
        eval_dataset: Mapping[str, Dataset] | None = None,
        ignore_keys: object = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Evaluate, log and call the callbacks, as the Trainer does; ``ignore_keys`` is ignored."""
        metrics = self._measured(eval_dataset or self.eval_dataset, metric_key_prefix)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def _generate_single_turn(self, *arguments: object) -> Any:
        """Generate as TRL does, from the model's own distribution."""
        with self._plain_generation():
            return super()._generate_single_turn(*arguments)

    def _prompt_ids(self, rows: Sequence[Row]) -> list[list[int]]:
        ids: list[list[int]] = self._tokenize_prompts([row["prompt"] for row in rows])[0]
        return ids

    def _sampled(self, role: str, prompts: list[list[int]]) -> list[list[int]]:
        with self._at_most(self._most_tokens.get(role, self.max_completion_length)):
            made = self._generate_single_turn(prompts, None, {}, 1)
        # GRPO's trainer also returns log-probabilities, that of distillation the ids alone.
        ids: list[list[int]] = made[0] if isinstance(made, tuple) else made
        return ids

    @contextlib.contextmanager
    def _at_most(self, tokens: int) -> Iterator[None]:
        """Limit responses to ``tokens`` tokens, with and without vLLM."""
        try:
            self._set_most(tokens)
            yield
        finally:
            self._set_most(self.max_completion_length)

    def _set_most(self, tokens: int) -> None:
        if self.use_vllm:
            self.vllm_generation.max_completion_length = tokens
        else:
            self.generation_config.max_new_tokens = tokens
            self.generation_kwargs["max_new_tokens"] = tokens

    @property
    def _sampling_seed(self) -> int:
        """Seed of this process; vLLM's processes that share a model need the same one."""
        shared = self.args.vllm_tensor_parallel_size if self.use_vllm else 1
        return int(self.args.seed + self.accelerator.process_index // shared)

    def end(self) -> None:
        """End the training; an engine in this process is shut down before."""
        if self.use_vllm:
            vllm.shut_down(self.vllm_generation)
        super().end()

    def _get_train_sampler(self, dataset: object = None) -> Sampler[int]:
        sampler: RepeatSampler = super()._get_train_sampler(dataset)
        return _OfEpoch(sampler, lambda: int(self.state.epoch or 0))

    def _prepare_inputs(self, generation_batch: list[dict[str, object]]) -> dict[str, object]:
        """Prepare a generation batch as TRL does, with micro-batches of rows of similar length."""
        if not self.model.training:
            prepared: dict[str, object] = super()._prepare_inputs(generation_batch)
            return prepared
        micro_batches = self._micro_batches_of_generation
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

    @property
    def _micro_batches_of_generation(self) -> int:
        """Number of micro-batches in a generation; a distillation generates for each step."""
        args = self.args
        return int(getattr(args, "steps_per_generation", None) or args.gradient_accumulation_steps)

    @property
    def _steps_of_generation(self) -> int:
        """Number of optimizer steps that learn from a generation, or of its smallest parts that
        are whole micro-batches of each step."""
        micro_batches = self._micro_batches_of_generation
        return micro_batches // math.gcd(micro_batches, self.args.gradient_accumulation_steps)


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
