"""The trainer of a distillation whose teacher is behind a server.

The server scores a generation before it is learnt from, all learnt responses at once. What is
learnt at each of their tokens depends on ``beta``:

    1   the reverse KL, estimated by the sampled token x alone: its value is log q(x) - log p(x), of
        student q and teacher p, which may be negative; its gradient is that of log q(x) times this
        value. Their means over the student's samples are the reverse KL and its gradient.
    0   the forward KL of the teacher's ``top_k`` likeliest tokens, whose probabilities are scaled
        to a sum of 1, against the student's distribution over all tokens.

The loss is the mean over the learnt tokens of a step in all processes, as with a teacher on this
machine. Logits are computed for parts of the tokens at a time, and again in the backward pass.

If the server does not score a response, all processes stop with the same error, and a checkpoint of
the last step is saved, from which the training continues as if it had not stopped.

Not covered: the temperature, which is 1; ZeRO-3 and FSDP on GPUs, which were not tried.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from torch.nn.functional import kl_div
from torch.utils.checkpoint import checkpoint

from heavydistill.errors import StoppedError
from heavydistill.models.http.scoring import PromptScorer, Scored
from heavydistill.models.request import Response
from heavydistill.train.checkpoints import WHOLE
from heavydistill.train.distill.trainer import DistillTrainer, trimmed
from heavydistill.train.rollouts.data import OF_TEACHER
from heavydistill.train.rollouts.trainer import Batch

_LOGITS = 2**26  # numbers that are in memory at once
_SCALES = ("logit_scale", "output_multiplier", "lm_head_multiplier")


class ServedDistillTrainer(DistillTrainer):
    """TRL's trainer for on-policy distillation, with the loss of a served teacher.

    Args:
        scorer: Asks the server of the teacher.
        teacher: Name and address of the teacher, for a message.
        top_k: Number of the teacher's likeliest tokens to learn from; 0 for the sampled ones.
        options: Those of ``DistillTrainer`` but for the teacher.
    """

    def __init__(self, *, scorer: PromptScorer, teacher: str, top_k: int, **options: Any) -> None:
        self._scorer, self._teacher, self._top_k = scorer, teacher, top_k
        self._before: Callable[[], None] = _as_it_is
        super().__init__(teacher_model=None, **options)

    def train(self, *arguments: Any, **options: Any) -> Any:
        """Train as the Trainer does; if the server fails, save a checkpoint and raise."""
        try:
            return super().train(*arguments, **options)
        except StoppedError:
            step, folder = self.state.global_step, Path(self.args.output_dir)
            if step and not (folder / f"checkpoint-{step}" / WHOLE).exists():
                self._before()
                self._save_checkpoint(self.model, None)
                self.callback_handler.on_save(self.args, self.state, self.control)
            raise

    def _generate_and_score_completions(self, inputs: list[dict[str, object]]) -> Batch:
        set_back, seen = _random_state(), self.state.num_input_tokens_seen

        def before() -> None:
            set_back()
            self.state.num_input_tokens_seen = seen  # TRL counts each generation as it is made

        self._before = before
        output: Batch = super()._generate_and_score_completions(inputs)
        ids, logps = self._scores(output)
        output |= {"completion_teacher_ids": ids, "completion_teacher_logps": logps}
        self._before = _as_it_is
        return output

    def _scores(self, output: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids and the teacher's log-probabilities, (rows, completion, k); -inf: unknown.

        Raises:
            StoppedError: The server did not score a response of this or another process.
        """
        read = OF_TEACHER if f"{OF_TEACHER}_ids" in output else "prompt"
        sequences = {}
        for row, learnt in enumerate(output["tool_mask"].any(dim=1).tolist()):
            if learnt:
                prompt, completion = (
                    output[f"{part}_ids"][row][output[f"{part}_mask"][row].bool()].tolist()
                    for part in (read, "completion")
                )
                sequences[row] = Scored([*prompt, *completion], len(prompt))
        found = self._scorer.scores([*sequences.values()], self._top_k)
        errors = [str(each.error) for each in found if isinstance(each, Response)]
        if everyones := gather_object(errors):
            done = self.state.global_step
            resume = " with --resume_from_checkpoint true: it continues after the last step"
            raise StoppedError(
                f"{self._teacher} did not score {len(everyones):,} responses at step {done + 1}: "
                f"{everyones[0]}",
                f"When the server answers again, repeat the command{resume * (done > 0)}.",
            )
        shape = (*output["completion_ids"].shape, self._top_k or 1)
        ids = output["completion_ids"].new_zeros(shape)
        logps = torch.full(shape, -torch.inf, device=ids.device)
        for row, scores in zip(sequences, found, strict=True):
            assert not isinstance(scores, Response)
            best = scores.top if self._top_k else [[each] for each in scores.tokens]
            pairs = torch.tensor(best, dtype=torch.float64, device=ids.device)
            ids[row, : len(best)] = pairs[..., 0].long()
            logps[row, : len(best)] = pairs[..., 1].float()
        is_known = ids < self._words  # a padded output layer has more rows than there are tokens
        return ids * is_known, logps.masked_fill(~is_known, -torch.inf)

    def _compute_loss(
        self, unwrapped_student: torch.nn.Module, inputs: Batch, num_items_in_batch: Any
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        inputs = trimmed(inputs)
        ids, mask = (
            torch.cat([inputs[f"prompt_{part}"], inputs[f"completion_{part}"]], dim=1)
            for part in ("ids", "mask")
        )
        learnt = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
        hidden = self._get_last_hidden_state(unwrapped_student, ids, mask, learnt.size(1))
        teachers = (inputs["completion_teacher_ids"], inputs["completion_teacher_logps"])
        size = max(1, _LOGITS // self._words)
        parts = [each[learnt].split(size) for each in (hidden, *teachers)]
        sums = [
            checkpoint(self._divergence, unwrapped_student, *part, use_reentrant=False)
            for part in zip(*parts, strict=True)
        ]
        loss, entropy = torch.stack(sums).sum(dim=0)
        tokens = learnt.sum()
        over = tokens.clamp(min=1) if num_items_in_batch is None else num_items_in_batch
        return loss / over, entropy.detach(), tokens

    def _divergence(
        self, student: Any, hidden: torch.Tensor, ids: torch.Tensor, logps: torch.Tensor
    ) -> torch.Tensor:
        """Return the sums of the divergence and of the student's entropy over some tokens, (2,).

        ``hidden`` is (tokens, width), ``ids`` and the teacher's ``logps`` are (tokens, k).
        """
        logits = _logits(student, hidden)[:, : self._words].float()
        all_logps = logits.log_softmax(dim=-1)
        own = all_logps.gather(-1, ids)
        with torch.no_grad():
            entropy = -(all_logps.exp() * all_logps).sum()
        if self._top_k:
            return torch.stack([kl_div(own, logps.softmax(dim=-1), reduction="sum"), entropy])
        gap = (own - logps).detach()
        return torch.stack([(gap + gap * (own - own.detach())).sum(), entropy])


def _as_it_is() -> None:
    """Set nothing back: the training stopped after a generation was learnt, e.g. at a judge."""


def _logits(model: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Return the logits of hidden states, scaled and capped as the model's family does."""
    config = model.config.get_text_config()
    logits: torch.Tensor = model.get_output_embeddings()(hidden)
    for name in _SCALES:
        if (scale := getattr(config, name, None)) is not None:
            logits = logits * scale
            break
    else:
        if divisor := getattr(config, "logits_scaling", None):
            is_factor = config.model_type == "hyperclovax"
            logits = logits * divisor if is_factor else logits / divisor
    if cap := getattr(config, "final_logit_softcapping", None):
        logits = cap * torch.tanh(logits / cap)
    return logits


def _random_state() -> Callable[[], None]:
    """Return a function that sets all random generators back to their present state."""
    python, numpy, of_torch = random.getstate(), np.random.get_state(), torch.get_rng_state()
    of_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []

    def set_back() -> None:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(of_torch)
        torch.cuda.set_rng_state_all(of_gpus)

    return set_back
