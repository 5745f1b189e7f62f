"""Rows in sequences of ``max_length`` tokens, so that little is padded.

Best fit decreasing, by TRL: rows stay whole and do not attend to each other. Rows of different
roles are never in one sequence. What is packed is counted again, and nothing may be missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from heavydistill.chat.guard import NOT_LEARNT
from heavydistill.errors import RunError
from heavydistill.training.arguments import ROLES

if TYPE_CHECKING:
    from datasets import Dataset

_FED = ["input_ids", "labels"]


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
