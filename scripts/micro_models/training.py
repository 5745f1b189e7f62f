"""Trains the micro models from random weights, with next-token loss on the assistant's turn.

A step has one batch of each stream of rows, so that the lengths of the rows do not affect the
balance of the roles. Weights are float32, and layers are computed in bfloat16, on a CPU or a GPU.
The same seed, number of threads and machine give the same weights.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from micro_models.rows import MicroRow

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

_IGNORED = -100
_BATCHES_SORTED_TOGETHER = 16
_REPORTED_STEPS = 100


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a micro model."""

    hidden: int
    layers: int
    heads: int
    feed_forward: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """Hyperparameters of one stage of training."""

    steps: int  # Optimizer steps
    learning_rate: float
    """Peak learning rate of the matrices; all other weights use half of it. Warm-up is linear;
    decay is a cosine to a twentieth of the peak."""

    def share_of_peak(self, step: int) -> float:
        """The learning rate at a step (from 0) as a share of its peak."""
        warm_up = max(1, self.steps // 20)
        if step < warm_up:
            return (step + 1) / warm_up
        progress = (step - warm_up) / max(1, self.steps - warm_up)
        return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress))


@dataclass(frozen=True, slots=True)
class Stream:
    """Endless rows of one kind, and their part in each step."""

    name: str
    rows: Iterator[MicroRow]
    batch: int  # Number of rows per step
    weight: float  # Share of the loss; the shares of a training add up to 1


def new_model(size: Size, tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    """Create a Llama with random weights for this tokenizer; vLLM accepts its heads of size 32."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=-(-len(tokenizer) // 64) * 64,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads,
        intermediate_size=size.feed_forward,
        max_position_embeddings=tokenizer.model_max_length,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def train(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    streams: Sequence[Stream],
    schedule: Schedule,
    report: Callable[[str], None],
) -> None:
    """Train a model in place on endless rows; ``report`` is called with progress lines."""
    import torch

    from heavydistill.train.trainer import MuonAdamW

    peak, weights = schedule.learning_rate, model.named_parameters()
    optimizer = MuonAdamW(weights, peak, weight_decay=0.05, betas=(0.9, 0.95), eps=1e-8)
    of_step = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule.share_of_peak)
    batches = [_batches(stream.rows, stream.batch) for stream in streams]
    model.train()
    started, tokens, losses = time.perf_counter(), 0, [0.0] * len(streams)
    for step in range(1, schedule.steps + 1):
        for place, stream in enumerate(streams):
            ids, labels = batch(tokenizer, next(batches[place]))
            tokens += ids.numel()
            # Rows are padded on the right, so the causal mask is enough to hide the padding.
            inputs, targets = ids.to(model.device), labels[:, 1:].to(model.device)
            supervised = targets != _IGNORED
            with torch.autocast(model.device.type, torch.bfloat16):
                hidden = model.model(input_ids=inputs, use_cache=False).last_hidden_state
                logits = model.lm_head(hidden[:, :-1][supervised])
            loss = torch.nn.functional.cross_entropy(logits.float(), targets[supervised])
            (loss * stream.weight).backward()
            losses[place] += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        of_step.step()
        if step % _REPORTED_STEPS == 0 or step == schedule.steps:
            seen = step % _REPORTED_STEPS or _REPORTED_STEPS
            seconds = time.perf_counter() - started
            of_streams = "  ".join(
                f"{stream.name} loss {loss / seen:.4f}"
                for stream, loss in zip(streams, losses, strict=True)
            )
            report(
                f"step {step}/{schedule.steps}  {of_streams}  {tokens / 1e6:.1f} M tokens  "
                f"{tokens / seconds / 1e3:.1f} k tokens/s  {seconds / 60:.1f} min"
            )
            losses = [0.0] * len(streams)
    model.eval()


def _batches(rows: Iterator[MicroRow], size: int) -> Iterator[list[MicroRow]]:
    """Yield batches of rows of similar length, which reduces padding, in random order."""
    rng = random.Random(size)
    while True:
        window = list(itertools.islice(rows, size * _BATCHES_SORTED_TOGETHER))
        window.sort(key=lambda row: len(row.prompt) + len(row.reasoning))
        cut = [window[i : i + size] for i in range(0, len(window), size)]
        rng.shuffle(cut)
        yield from cut


def batch(
    tokenizer: PreTrainedTokenizerFast, rows: list[MicroRow]
) -> tuple[torch.Tensor, torch.Tensor]:
    """(input ids, labels), padded on the right; only the assistant's tokens have labels."""
    import torch

    encoded = [_encode(tokenizer, row) for row in rows]
    width = max(len(prompt) + len(completion) for prompt, completion in encoded)
    ids = torch.full((len(rows), width), tokenizer.pad_token_id)
    labels = torch.full((len(rows), width), _IGNORED)
    for i, (prompt, completion) in enumerate(encoded):
        end = len(prompt) + len(completion)
        ids[i, :end] = torch.tensor(prompt + completion)
        labels[i, len(prompt) : end] = torch.tensor(completion)
    return ids, labels


def _encode(tokenizer: PreTrainedTokenizerFast, row: MicroRow) -> tuple[list[int], list[int]]:
    user = {"role": "user", "content": row.prompt}
    turn = {"role": "assistant", "reasoning_content": row.reasoning, "content": row.answer_text}
    prompt = tokenizer.apply_chat_template([user], tokenize=False, add_generation_prompt=True)
    whole = tokenizer.apply_chat_template([user, turn], tokenize=False)
    completion = whole.removeprefix(prompt).rstrip("\n")
    encoded = tokenizer([prompt, completion], add_special_tokens=False)["input_ids"]
    return encoded[0], encoded[1]
