"""TRL's ``DistillationTrainer``, sampling and evaluated as GRPO is (``rollouts.trainer``).

The loss is TRL's generalized Jensen-Shannon divergence over the whole vocabulary, at each token
that the student sampled, as a mean over the learnt tokens of a step in all processes. TRL computes
it in tiles from hidden states, so that no logits of a whole row are in memory. With beta 0 it is
the forward KL, with 1 the reverse one. The logits of both are divided by the temperature.

Responses that were cut off are left out of the loss, unless they are chosen to be learnt. TRL would
learn them, and rows that repeat themselves up to the limit would have most of the tokens. So is a
response with an id that the tokenizer does not have, which a padded output layer can give and a
teacher with a smaller one could not read.

With the wording ``none``, the student samples behind prompts without instructions, and the teacher
scores the same responses behind the prompts of the sets.

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
from torch.nn.utils.rnn import pad_sequence
from trl import DistillationTrainer

from heavydistill.store.training_record import LEARNT
from heavydistill.train.rollouts.data import OF_TEACHER
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
        self._of_teacher: tuple[Any, ...] = (None,)
        """The teacher, and ids and mask that it reads if they are not the student's."""
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
        output |= self._prompts_of_teacher(inputs)
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

    def _prompts_of_teacher(self, inputs: list[dict[str, Any]]) -> Batch:
        """Return ids and mask of the prompts that the teacher reads, padded on the left; empty if
        they are the student's."""
        if OF_TEACHER not in inputs[0]:
            return {}
        prompts = self._prompt_ids([{"prompt": row[OF_TEACHER]} for row in inputs])
        device = self.accelerator.device
        rows = [torch.tensor(each, device=device) for each in prompts]
        masks = [torch.ones_like(each) for each in rows]
        padding = {"ids": self._tokenizer.pad_token_id, "mask": 0}
        return {
            f"{OF_TEACHER}_{name}": pad_sequence(each, True, padding[name], "left")
            for name, each in (("ids", rows), ("mask", masks))
        }

    def _get_last_hidden_state(
        self, model: Any, ids: torch.Tensor, mask: torch.Tensor, *arguments: Any, **options: Any
    ) -> torch.Tensor:
        """Return TRL's hidden states, of the teacher behind its own prompts if it has any."""
        if model is self._of_teacher[0] and len(self._of_teacher) > 1:
            _, ids, mask = self._of_teacher
        states: torch.Tensor = super()._get_last_hidden_state(
            model, ids, mask, *arguments, **options
        )
        return states

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
        inputs = trimmed(inputs)
        self._of_teacher = (models[1], *_read_by_teacher(inputs))
        with _cut_heads(models, self._cut_to):
            loss: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = super()._compute_loss(
                unwrapped_student, inputs, num_items_in_batch
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


def _read_by_teacher(inputs: Batch) -> list[torch.Tensor]:
    """Return ids and mask of a micro-batch behind the teacher's prompts; empty without these."""
    if f"{OF_TEACHER}_ids" not in inputs:
        return []
    is_read = inputs[f"{OF_TEACHER}_mask"].any(dim=0)
    return [
        torch.cat([inputs[f"{OF_TEACHER}_{name}"][:, is_read], inputs[f"completion_{name}"]], dim=1)
        for name in ("ids", "mask")
    ]


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
