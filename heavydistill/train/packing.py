"""Rows in sequences of ``max_length`` tokens, so that little is padded.

Best fit decreasing, by TRL: rows stay whole. Rows of different roles are never in one sequence.
What is packed is counted again, and nothing may be missing.

Rows of a sequence must not see each other. Attention keeps them apart; of linear attention,
convolutions and state spaces it depends on the kernels that are installed, and transformers falls
back without an error to code that lets rows run into each other. ``check_isolation`` measures it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from heavydistill.chat.guard import NOT_LEARNT
from heavydistill.errors import ConfigError, RunError
from heavydistill.train.sft_config import ROLES

if TYPE_CHECKING:
    from datasets import Dataset

_FED = ["input_ids", "labels"]
_PROBED = 32
"""Tokens of a row of the probe: more than a convolution spans."""
# How much the logits of a token may change with the row before its own, relative to their norm.
# Attention changes nothing at all, the experts of a mixture only the last digit; the least that
# was found of a row that is seen is 1e-3 in float32, and 5e-3 in bfloat16.
_MOST_IN_FLOAT32, _MOST_IN_HALF = 1e-5, 4e-3


def of_role(parts: Sequence[Dataset], role: str) -> Dataset:
    """The rows of a role, of all sources."""
    from datasets import concatenate_datasets

    chosen = [
        part.select([i for i, own in enumerate(part["role"]) if own == role]) for part in parts
    ]
    return concatenate_datasets(chosen).select_columns(_FED)


def pack(parts: Sequence[Dataset], max_length: int) -> Dataset:
    """Sequences of rows of one role each.

    Args:
        parts: Rows of all roles, none longer than ``max_length``.
        max_length: Tokens of a sequence, at most.

    Returns:
        Columns ``input_ids``, ``labels`` and ``seq_lengths``, the tokens of each row.

    Raises:
        RunError: Tokens are missing afterwards.
    """
    from datasets import concatenate_datasets

    of_roles = [rows for rows in (of_role(parts, role) for role in ROLES) if len(rows)]
    return concatenate_datasets([pack_one(rows, max_length) for rows in of_roles])


def pack_one(rows: Dataset, max_length: int) -> Dataset:
    """As ``pack``, for rows that may all be in one sequence."""
    from trl import pack_dataset

    packed = pack_dataset(rows, max_length, "bfd", {"desc": "Packing"})
    before, after = sum_of(rows), sum_of(packed)
    if before != after:
        raise RunError(
            f"Packing lost tokens: {before} before (all, learnt), {after} after",
            "Train with --packing false, and report it with the versions of trl and datasets.",
        )
    return packed


def sum_of(rows: Dataset) -> tuple[int, int]:
    """(tokens, those of them that are learnt)."""
    import pyarrow.compute as pc

    tokens = learnt = 0
    for batch in rows.with_format("arrow").iter(1000):
        labels = pc.list_flatten(batch["labels"])
        tokens += len(labels)
        learnt += pc.sum(pc.not_equal(labels, NOT_LEARNT)).as_py() or 0
    return tokens, learnt


def check_isolation(
    model: Any,
    collate: Callable[[list[dict[str, list[int]]]], dict[str, Any]],
    vocabulary: int,
    *,
    is_mixed: bool = False,
) -> None:
    """Check that the logits of a packed row do not depend on the row before it.

    The same row is read behind two different ones, which leaves all shapes, and so all rounding,
    as they are. Under ZeRO and FSDP all processes have to call this.

    Args:
        model: The model as it is trained, with whatever an engine has wrapped around it.
        collate: Makes a batch of packed rows (``input_ids``, ``labels``, ``seq_lengths``), where
            the model computes.
        vocabulary: Number of tokens that the model knows.
        is_mixed: Whether it computes in half precision beside weights in float32.

    Raises:
        ConfigError: They depend on it.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    first, second, last = torch.randint(vocabulary, (3, _PROBED), generator=generator).tolist()

    def behind(other: list[int]) -> torch.Tensor:
        ids = [*other, *last]
        batch = collate([{"input_ids": ids, "labels": ids, "seq_lengths": [_PROBED, _PROBED]}])
        del batch["labels"]
        logits: torch.Tensor = model(**batch, use_cache=False).logits
        return logits[0, _PROBED : 2 * _PROBED]

    was_training = model.training
    model.eval()  # dropout would differ
    try:
        with torch.no_grad():
            one, other = behind(first), behind(second)
    finally:
        model.train(was_training)
    is_half = is_mixed or one.dtype in (torch.bfloat16, torch.float16)
    one, other = one.float(), other.float()
    change = float(((one - other).norm(dim=-1) / one.norm(dim=-1)).max())
    if change > (_MOST_IN_HALF if is_half else _MOST_IN_FLOAT32):
        raise ConfigError(
            "packing: rows of one sequence see each other in this model: the logits of a row "
            f"change by up to {change:.2%} with the row before it. Layers of linear attention, "
            "convolutions or state spaces do that where their kernels are not installed",
            "Give --packing false, or install the kernels on a machine with a GPU: "
            "pip install flash-linear-attention causal-conv1d",
        )
