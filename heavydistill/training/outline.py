"""What would be trained, or is about to be, in a few lines for the terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from heavydistill.training.launching import AUTO, FALLBACK

if TYPE_CHECKING:
    from heavydistill.training import course
    from heavydistill.training.sft import Prepared

_LONG = 8192
"""Tokens of a sequence above which sdpa costs much more time and memory than FlashAttention."""


def outline(prepared: Prepared) -> list[tuple[str, str]]:
    """(what, how much) of a training."""
    record, sft = prepared.record, prepared.asked.trl
    launch = record.launch
    batch = sft.per_device_train_batch_size * sft.gradient_accumulation_steps * launch.processes
    # As the Trainer counts: what is left of an epoch after its last full step is a step as well.
    per_epoch = math.ceil(
        math.ceil(record.sequences / (sft.per_device_train_batch_size * launch.processes))
        / sft.gradient_accumulation_steps
    )
    steps = sft.max_steps if sft.max_steps > 0 else math.ceil(per_epoch * sft.num_train_epochs)
    full = record.tokens / (record.sequences * record.max_length)
    kind = "packs" if sft.packing else "rows"
    lines = [
        (f"{one.name}, {one.role}", _rows(one.rows, one.left_out, record.max_length))
        for one in record.sets
    ]
    return [
        *lines,
        (
            kind,
            f"{record.sequences:,} of up to {record.max_length:,} tokens"
            + (f", {full:.1%} full" if sft.packing else ""),
        ),
        (
            "tokens an epoch",
            f"{record.tokens:,}, of which {record.learnt_tokens:,} are learnt "
            f"({record.learnt_tokens / record.tokens:.0%})",
        ),
        ("steps", f"{steps:,} of {batch} {kind}, {steps / per_epoch:.2g} epochs"),
        *of_any(prepared),
    ]


def of_any(prepared: course.Prepared) -> list[tuple[str, str]]:
    """(what, how much) of what every training has: model, launch, start."""
    record, launch = prepared.record, prepared.record.launch
    lines = [
        ("model", f"{record.base.name}, {record.method}"),
        (
            "launch",
            f"{launch.processes} process{'es' * (launch.processes > 1)}, {launch.engine}, "
            f"{launch.device}, attention: {launch.attention}",
        ),
    ]
    fell_back = prepared.asked.model.attn_implementation == AUTO and launch.attention == FALLBACK
    if fell_back and record.max_length > _LONG:
        lines.append(
            (
                "warning",
                f"no FlashAttention fits this machine, and {FALLBACK} needs time and memory of the "
                f"square of {record.max_length:,} tokens; on a GPU install the extra kernels with "
                'access to the Hub (pip install "heavydistill[kernels]"), or shorten the sequences',
            )
        )
    if prepared.start:
        lines.append(("goes on from", prepared.start.name))
    return lines


def _rows(rows: dict[str, int], left_out: dict[str, int], max_length: int) -> str:
    told = f"{rows['train']:,} rows, {rows['validation']:,} for validation"
    lost = sum(left_out.values())
    return told + (f"; {lost:,} left out, longer than {max_length:,} tokens" if lost else "")
