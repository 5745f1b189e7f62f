"""HM, V and the thinker's pass@1 while a GRPO training runs, under names of their own in its logs.

    eval_hm            share of deliberations on held-out caches that are right
    eval_v             value of the vote of the attempts that they read; the same every time
    eval_hm_minus_v    HM - V
    eval_pass_at_1     share of a thinker's attempts at held-out problems that are right
    eval_pass_at_d     share of these problems of whose attempts one is right
    eval_undecided     share of all responses that could not be decided; they are not right
    eval_unanswered    share of all responses without a final answer; they are not right
    eval_cut_off       share of all responses that were cut off

All of them are sampled as in training, ``num_generations_eval`` times for each row, by the same
code, with a server or without. Without one, random numbers are the same at every evaluation, so a
curve shows the model and not the draw; those of the training are not touched.

TRL's own loop would do it otherwise: it logs what it measures on several sets under the same names,
takes the mean of batches of different sizes, lets several processes see some rows twice, runs the
model once more for a loss that nobody looks at, and in the joint mode it would make caches anew.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple, Protocol

from heavydistill.train.grpo.held_out import Row

DELIBERATOR, THINKER = "deliberator", "thinker"


class Judgement(NamedTuple):
    """What is said of a response.

    Attributes:
        right: None if it could not be decided.
        is_unanswered: Whether the response holds no final answer.
    """

    right: bool | None
    is_unanswered: bool = False


class Judge(Protocol):
    """Whether responses are right."""

    def __call__(
        self, rows: Sequence[Mapping[str, Any]], completion_ids: Sequence[Sequence[int]]
    ) -> Sequence[Judgement]:
        """Judge one response to each row.

        Args:
            rows: With the columns of a problem.
            completion_ids: Tokens, with the one that ends them unless they were cut off.

        Returns:
            One for each.
        """


class Response(NamedTuple):
    """One response to a held-out row."""

    row: int
    right: bool | None
    is_whole: bool
    is_unanswered: bool = False


def figures(
    deliberator: Sequence[Row], thinker: Sequence[Row], responses: Mapping[str, list[Response]]
) -> dict[str, float]:
    """The metrics of an evaluation, without ``eval_``.

    Args:
        deliberator: Held-out caches; those of the votes are not there if it is empty.
        thinker: Held-out problems; likewise.
        responses: Of each role, as many to each row.
    """
    found: dict[str, float] = {}
    if deliberator:
        hm = fmean(bool(one.right) for one in responses[DELIBERATOR])
        v = fmean(row["vote"] for row in deliberator)
        found |= {"hm": hm, "v": v, "hm_minus_v": hm - v}
    if thinker:
        of_thinker = responses[THINKER]
        solved = {one.row for one in of_thinker if one.right}
        found["pass_at_1"] = fmean(bool(one.right) for one in of_thinker)
        found["pass_at_d"] = len(solved) / len(thinker)
    everything = [one for of_role in responses.values() for one in of_role]
    found["undecided"] = fmean(one.right is None for one in everything)
    found["unanswered"] = fmean(one.is_unanswered for one in everything)
    found["cut_off"] = fmean(not one.is_whole for one in everything)
    return found


class Measuring:
    """Evaluates on held-out rows; before a GRPO trainer.

        class RlTrainer(Measuring, ..., GRPOTrainer): ...

    Its ``eval_dataset`` is a mapping of ``deliberator`` and ``thinker``, or one of them, to rows as
    of ``held_out.HeldOut``. It may be evaluated while it trains, or after.

    Args:
        judge: Needed for an evaluation.
        most_tokens: Of a response of each role; ``max_completion_length`` where it says nothing.
        options: As of the trainer.
    """

    def __init__(
        self,
        *,
        judge: Judge | None = None,
        most_tokens: Mapping[str, int] | None = None,
        **options: Any,
    ) -> None:
        self._judge, self._most_tokens = judge, most_tokens or {}
        super().__init__(**options)

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Measure, log, and tell the callbacks.

        Args:
            eval_dataset: In place of that of the trainer.
            ignore_keys: Not used.
            metric_key_prefix: What names begin with.
        """
        trainer: Any = self
        rows = {
            role: list(of_role)
            for role, of_role in (eval_dataset or trainer.eval_dataset).items()
            if len(of_role)
        }
        started = time.perf_counter()
        was_training = trainer.model.training
        trainer.model.eval()
        try:
            with self._same_draw():
                responses = {role: self._responses(role, rows[role]) for role in sorted(rows)}
            found = figures(rows.get(DELIBERATOR, []), rows.get(THINKER, []), responses)
            found["runtime"] = time.perf_counter() - started
            metrics = {f"{metric_key_prefix}_{name}": value for name, value in found.items()}
            trainer.log(metrics)  # in this mode TRL adds nothing of the training to them
        finally:
            trainer.model.train(was_training)
        trainer.control = trainer.callback_handler.on_evaluate(
            trainer.args, trainer.state, trainer.control, metrics
        )
        return metrics

    def _responses(self, role: str, rows: list[Row]) -> list[Response]:
        """Those of all processes."""
        from accelerate.utils import gather_object

        trainer: Any = self
        assert self._judge, "there is nobody to judge"
        ids = trainer._tokenize_prompts([row["prompt"] for row in rows])[0]
        # Prompts of like length are asked together, for they are padded to the longest one.
        order = sorted(range(len(rows)), key=lambda row: (-len(ids[row]), row))
        asked = [row for row in order for _ in range(trainer.num_generations_eval)]
        state = trainer.accelerator
        # As many for each process, or one would wait for the others; what is more is dropped.
        missing = -len(asked) % state.num_processes
        mine = [*asked, *asked[:1] * missing][state.process_index :: state.num_processes]
        size = trainer.args.per_device_eval_batch_size
        written: list[list[int]] = []
        with self._at_most(self._most_tokens.get(role, trainer.max_completion_length)):
            for start in range(0, len(mine), size):
                prompts = [ids[row] for row in mine[start : start + size]]
                written += trainer._generate_single_turn(prompts, None, {}, 1)[0]
        ends = {*trainer.eos_token_ids, trainer._tokenizer.pad_token_id}
        judged = self._judge([rows[row] for row in mine], written)
        own = [
            Response(row, one.right, answer[-1] in ends, one.is_unanswered)
            for row, one, answer in zip(mine, judged, written, strict=True)
        ]
        if missing and state.process_index >= state.num_processes - missing:
            own = own[:-1]
        return [Response(*one) for one in gather_object(own)]

    @contextlib.contextmanager
    def _same_draw(self) -> Iterator[None]:
        """Random numbers that are the same each time, in this process."""
        import torch

        trainer: Any = self
        device = trainer.accelerator.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(trainer.args.seed + trainer.accelerator.process_index)
            yield

    @contextlib.contextmanager
    def _at_most(self, tokens: int) -> Iterator[None]:
        """Responses of so many tokens at most, whoever samples them."""
        trainer: Any = self
        before = trainer.max_completion_length
        try:
            self._set_most(tokens)
            yield
        finally:
            self._set_most(before)

    def _set_most(self, tokens: int) -> None:
        trainer: Any = self
        if trainer.use_vllm:
            trainer.vllm_generation.max_completion_length = tokens
        else:
            trainer.generation_config.max_new_tokens = tokens
            trainer.generation_kwargs["max_new_tokens"] = tokens
