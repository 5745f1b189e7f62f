"""TRL's ``DistillationTrainer``, sampling and evaluated as GRPO is (``rollouts.trainer``).

The loss is TRL's generalized Jensen-Shannon divergence over the whole vocabulary, at each token
that the student sampled, as a mean over the learnt tokens of a step in all processes. TRL computes
it in tiles from hidden states, so that no logits of a whole row are in memory. With beta 0 it is
the forward KL, with 1 the reverse one. The logits of both are divided by the temperature.

Responses that were cut off are left out of the loss, unless they are chosen to be learnt. TRL would
learn them, and rows that repeat themselves up to the limit would have most of the tokens. So is a
response with an id that the tokenizer does not have, which a padded output layer can give and a
teacher with a smaller one could not read.

Not covered: a check of the weights that vLLM samples from, as in GRPO, because TRL does not ask
vLLM for log-probabilities here.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from trl import DistillationTrainer

from heavydistill.store.training_record import LEARNT
from heavydistill.train.rollouts.trainer import Batch, SamplingTrainer


class DistillTrainer(SamplingTrainer, DistillationTrainer):
    """TRL's trainer for on-policy distillation, evaluated on held-out rows.

    Args:
        cut_to: Number of rows of both output layers that are compared, the tokenizer's length;
            None to compare all, if they have equally many.
        options: Arguments of TRL's trainer and of ``HeldOutEvaluation``. ``args`` are a
            ``DistillConfig``.
    """

    def __init__(self, *, cut_to: int | None = None, **options: Any) -> None:
        self._cut_to = cut_to
        super().__init__(**options)
        self._words = len(self._tokenizer)
        self.num_generations_eval = self.args.num_generations_eval

    def _generate_and_score_completions(self, inputs: list[dict[str, object]]) -> Batch:
        output: Batch = super()._generate_and_score_completions(inputs)
        mask = output["completion_mask"]
        learnt = mask
        if self.args.mask_truncated_completions:
            ends = mask.new_tensor([*self.eos_token_ids, self._tokenizer.pad_token_id])
            last = output["completion_ids"].gather(1, mask.sum(dim=1, keepdim=True) - 1)
            learnt = mask * torch.isin(last, ends)
        is_word = output["completion_ids"] < self._words
        output["completion_ids"] = output["completion_ids"].where(
            is_word, self._tokenizer.pad_token_id
        )
        learnt = learnt * is_word.all(dim=1, keepdim=True)
        output["tool_mask"] = learnt  # TRL's loss is over the tokens in both masks
        output["num_items_in_batch"] = self.accelerator.gather(learnt.sum()).sum()
        tokens = output["num_items_in_batch"].item()
        self._metrics["train"][LEARNT].append(tokens or math.nan)
        return output

    def compute_loss(self, *arguments: object, **options: object) -> torch.Tensor:
        """Return TRL's loss, and log no entropy of a micro-batch without a learnt token."""
        loss: torch.Tensor = super().compute_loss(*arguments, **options)
        # TRL logs 0 there: the mean would fall as more responses are cut off, to the guard's alarm.
        entropies = self._metrics["train" if self.model.training else "eval"]["entropy"]
        entropies[-1] = entropies[-1] or math.nan
        return loss

    def _compute_loss(
        self, unwrapped_student: torch.nn.Module, inputs: Batch, num_items_in_batch: object
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        models = (unwrapped_student, self.accelerator.unwrap_model(self.teacher_model))
        with _cut_heads(models, self._cut_to):
            loss: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = super()._compute_loss(
                unwrapped_student, trimmed(inputs), num_items_in_batch
            )
        return loss


def trimmed(inputs: Batch) -> Batch:
    """Return a micro-batch without the columns that no row needs: padding, and unlearnt ends."""
    is_read, is_learnt = inputs["prompt_mask"].any(dim=0), inputs["tool_mask"].any(dim=0)
    prompt, completion = torch.stack([is_read.sum(), is_learnt.sum()]).tolist()
    completion = max(1, completion)  # of a micro-batch without a learnt row, TRL needs one column
    columns = {"prompt": slice(-prompt, None), "completion": slice(completion)}
    columns["tool"] = columns["completion"]
    return {
        name: value[:, columns[part]] if (part := name.partition("_")[0]) in columns else value
        for name, value in inputs.items()
    }


@contextlib.contextmanager
def _cut_heads(models: tuple[Any, Any], rows: int | None) -> Iterator[None]:
    """Let the output layers of both models end after ``rows`` rows; None leaves them whole."""
    if rows is None:
        yield
        return
    for model in models:
        # TRL reads the weights of what this method returns, inside the pass that gathers them.
        model.get_output_embeddings = lambda whole=model.get_output_embeddings: _first(
            whole(), rows
        )
    try:
        yield
    finally:
        for model in models:
            del model.get_output_embeddings


def _first(layer: torch.nn.Linear, rows: int) -> SimpleNamespace:
    bias = None if layer.bias is None else layer.bias[:rows]
    return SimpleNamespace(weight=layer.weight[:rows], bias=bias)
