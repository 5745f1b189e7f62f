"""TRL's ``SFTTrainer``, which also samples deliberations on held-out caches.

An evaluation has the losses of TRL, and then one response to each held-out row (``held_out``), with
temperature 1 from the whole distribution. The model in training writes them itself, each process
its share of the rows, and adapters, quantized bases and half precision compute as they train.

Not covered: weights spread over processes, which would all have to call the model equally often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import GenerationConfig
from trl import SFTTrainer
from trl.models.utils import unwrap_model_for_generation

from heavydistill.chat.template import Chat
from heavydistill.models.local.decoding import can_drop_rows, padded, write
from heavydistill.train.held_out import HeldOutEvaluation, Row
from heavydistill.train.sft.data import check_isolation
from heavydistill.train.trainer import MuonAdamW

# Tokens that may be sampled at once for each token of a training pass, which takes 2.8 to 5.3 times
# the memory of keys and values (computed for the models of configs/sft).
_FOR_EACH_TRAINED = 2
_ALWAYS = 2**30  # bytes of keys and values that there is room for in any case


class RolesTrainer(HeldOutEvaluation, SFTTrainer):
    """TRL's trainer for SFT, which refuses packing if the model mixes packed rows.

    Args:
        muon: Whether Muon replaces the optimizer set by the arguments.
        chat: Chat template of the model; its stops end a sampled response.
        held_out: Held-out rows by role; none are sampled if it is empty.
        max_length: Maximum number of tokens of a training sequence.
        options: Arguments of TRL's trainer and of ``HeldOutEvaluation``.
    """

    _is_probed = False

    def __init__(
        self,
        *,
        muon: bool,
        chat: Chat,
        held_out: Mapping[str, Sequence[Row]],
        max_length: int,
        **options: Any,
    ) -> None:
        self._muon, self._chat = muon, chat
        self._held_out, self._max_length = held_out, max_length
        self.optimizer: torch.optim.Optimizer | None
        super().__init__(**options)

    def create_optimizer(self, *arguments: object) -> torch.optim.Optimizer:
        """Create the optimizer set by the arguments, or Muon."""
        if self._muon and self.optimizer is None:
            self.optimizer = MuonAdamW(
                self.model.named_parameters(),
                lr=self.args.learning_rate,
                weight_decay=self.args.weight_decay,
                betas=(self.args.adam_beta1, self.args.adam_beta2),
                eps=self.args.adam_epsilon,
            )
            return self.optimizer
        made: torch.optim.Optimizer = super().create_optimizer(*arguments)
        return made

    def evaluate(
        self,
        eval_dataset: object = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Return TRL's losses of each role, and the metrics of the held-out rows."""
        metrics: dict[str, float] = super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)
        # The Trainer calls this method again for each role, with a longer prefix.
        if self._held_out and metric_key_prefix == "eval":
            metrics |= self._measured(self._held_out, metric_key_prefix)
        return metrics

    def _prompt_ids(self, rows: Sequence[Row]) -> list[list[int]]:
        return [self._chat.ids(self._chat.render(row["prompt"], opens=True)) for row in rows]

    def _rows_at_once(self, prompts: Sequence[list[int]]) -> int:
        """Number of rows whose keys and values fit the memory of a training pass."""
        longest = max(map(len, prompts)) + max(self._most_tokens.values())
        trained = int(self.args.per_device_train_batch_size) * self._max_length
        model = self.model.config.get_text_config()
        most_bytes = 2 * model.num_hidden_layers * model.hidden_size * self.model.dtype.itemsize
        small: int = _ALWAYS // (most_bytes * longest)
        return max(1, _FOR_EACH_TRAINED * trained // longest, small)

    def _sampled(self, role: str, prompts: list[list[int]]) -> list[list[int]]:
        device, stops = self.accelerator.device, sorted(self._chat.stops)
        config = GenerationConfig(
            do_sample=True,
            top_k=0,
            max_new_tokens=self._most_tokens[role],
            eos_token_id=stops,
            pad_token_id=self.processing_class.pad_token_id,
        )
        ids, mask = padded(prompts, self.processing_class.pad_token_id, device)
        unwrapped = unwrap_model_for_generation(
            self.model_wrapped,
            self.accelerator,
            gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
        )
        with self._plain_generation(), unwrapped as model, torch.no_grad():
            can_drop = can_drop_rows(model.config)
            written = write(model.generate, ids, mask, config, in_stretches=can_drop)
        return [_up_to_end(each, stops) for each in written]

    def _run_epoch(self, *, model: torch.nn.Module, **options: object) -> None:
        if self.args.packing and not self._is_probed:
            check_isolation(
                model,
                # With offloading, weights are not on the device of the computation.
                lambda rows: self._prepare_inputs(self.data_collator(rows)),
                self.model.config.get_text_config().vocab_size,
                is_mixed=self.args.bf16 or self.args.fp16,
            )
            self._is_probed = True
        super()._run_epoch(model=model, **options)


def _up_to_end(ids: list[int], stops: Sequence[int]) -> list[int]:
    ends = (at for at, token in enumerate(ids, start=1) if token in stops)
    return ids[: next(ends, len(ids))]
