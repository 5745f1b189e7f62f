"""Tokenizes the rows of sets: each row is checked by the guard, then packed.

A training does not start if a row would lose its thinking, its answer or its end token, has no
prompt, or has another number of tokens than in the build. A row longer than ``max_length`` is
refused, or left out and counted, but never cut. The ``datasets`` cache stores the tokens under a
hash of file, tokenizer and template, for other processes and later starts.

Packing is TRL's best-fit decreasing: rows stay whole, a sequence has rows of one role, and tokens
are counted again afterwards. Attention keeps the rows of a sequence apart. Linear attention,
convolutions and state spaces do so only with the right kernels; without them, transformers silently
falls back to code that mixes rows. ``check_isolation`` tests for this.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from heavydistill.chat.guard import Fault, Inspection, demand_whole
from heavydistill.errors import ConfigError, RunError
from heavydistill.train.datasets import ROLES, SetsFolder, SetSource, shares

if TYPE_CHECKING:
    import torch
    from datasets import Dataset

    from heavydistill.chat.template import Chat
    from heavydistill.train.base_model import BaseCheckpoint
    from heavydistill.train.sft.options import SftOptions

NOT_LEARNT = -100
"""Label of a token without a loss, in PyTorch and TRL."""
_FORMAT = 1
"""Version of the row format; part of the cache key. Increase it when tokenization changes."""
_QUANTILE = 0.99
_COLUMNS = ("role", "problem", "generation")
_FED = ["input_ids", "labels"]
_PROBED = 32
"""Length of a test row in tokens: longer than the window of a convolution."""
# Maximum change of a token's logits, relative to their norm, when the preceding row changes.
# Attention gives no change, a mixture of experts only the last digit. Models that mix rows gave at
# least 1e-3 in float32, and 5e-3 in bfloat16.
_MOST_IN_FLOAT32, _MOST_IN_HALF = 1e-5, 4e-3


@dataclass(frozen=True, slots=True)
class SourceRows:
    """The tokenized rows of one source."""

    source: SetSource
    sets: SetsFolder
    splits: dict[str, Dataset]
    """``train``, and ``validation`` if there is an evaluation. Columns ``input_ids``, ``labels``
    (``-100`` for tokens without a loss), ``tokens``, ``role``, ``problem`` and ``generation``."""
    left_out: dict[str, int]  # Number of rows longer than ``max_length``, by split


def tokenize_sources(
    config: SftOptions, base: BaseCheckpoint, found: Sequence[SetsFolder]
) -> tuple[list[SourceRows], int]:
    """Read, check and select the rows of all sources of an ``SftConfig``.

    Returns:
        The rows of each source, and ``max_length``: the maximum tokens of a row and of a pack.

    Raises:
        ConfigError: A row would lose text in training; rows exceed ``max_length``, or this exceeds
            the model's context; or a split has no rows.
    """
    names = ["train"] + ["validation"] * (config.do_eval or config.eval_on_start)
    sources = list(zip(config.sources, found, strict=True))
    whole = [
        {split: _split(config, base, sets, source.role, split) for split in names}
        for source, sets in sources
    ]
    if len(names) > 1 and not any(len(splits["validation"]) for splits in whole):
        raise ConfigError(
            "There are evaluations, but the sets have no validation rows",
            "Build them with a larger share, e.g. --set validation=0.3, or train with "
            "--eval_strategy no --load_best_model_at_end false.",
        )
    _learn_once(sources, whole)
    lengths = [tokens for splits in whole for part in splits.values() for tokens in part["tokens"]]
    max_length = _max_length(config, base, lengths)
    parts = [
        _fitting(source, sets, splits, max_length)
        for (source, sets), splits in zip(sources, whole, strict=True)
    ]
    # Shares are computed from the rows that fit, because only these are trained on.
    counts = shares(
        [len(part.splits["train"]) for part in parts],
        [source.fraction for source in config.sources],
    )
    for part, count in zip(parts, counts, strict=True):
        if count < len(rows := part.splits["train"]):
            part.splits["train"] = rows.shuffle(seed=config.seed).select(range(count))
    return parts, max_length


def _learn_once(
    sources: Sequence[tuple[SetSource, SetsFolder]], whole: Sequence[dict[str, Dataset]]
) -> None:
    """Remove a deliberator's plain problems if the thinker's rows, of which they are copies, are
    all learnt too."""
    thinkers = {
        folder.folder
        for source, folder in sources
        if source.role == "thinker" and source.fraction is None
    }
    for (source, folder), splits in zip(sources, whole, strict=True):
        if source.role == "deliberator" and folder.folder in thinkers:
            for split, rows in splits.items():
                own = [place for place, role in enumerate(rows["role"]) if role == source.role]
                splits[split] = rows.select(own)


def _split(
    config: SftOptions, base: BaseCheckpoint, sets: SetsFolder, role: str, split: str
) -> Dataset:
    """Return the tokenized rows of a split; raises ``ConfigError`` if a row fails a check."""
    from datasets import Dataset

    file = sets.file(role, split)
    if file is None:
        return Dataset.from_dict(
            {name: [] for name in ("input_ids", "labels", "tokens", *_COLUMNS)}
        )
    counted = config.chat_template_path is None
    name = f"{sets.name}, {role}, {split}"
    digest = sets.manifest.files[file.relative_to(sets.folder).as_posix()]
    with config.main_process_first(desc=f"reading {file.name}"):
        rows = Dataset.from_parquet(str(file))
        rows = rows.map(
            partial(_look, chat=base.chat, counted=counted),
            remove_columns=[name for name in rows.column_names if name not in _COLUMNS],
            num_proc=config.dataset_num_proc,
            new_fingerprint=_fingerprint(base, digest, counted),
            desc=f"Looking at {name}",
        )
    _demand_whole(rows, name)
    return rows.remove_columns(["faults"])


def _look(row: Mapping[str, object], chat: Chat, counted: bool) -> dict[str, object]:
    """Return the columns of a row for the trainer, and the faults found in the row.

    ``counted``: whether the row's token counts were made with this template.
    """
    inspection = Inspection(chat, row)
    prompt, completion = inspection.tokens.prompt, inspection.tokens.completion
    faults = [[fault.code, fault.detail] for fault in inspection.faults()]
    counts = len(prompt), len(completion)
    if counted and counts != (row["prompt_tokens"], row["completion_tokens"]):
        faults.append(
            [
                "other_tokenizer",
                f"it has {counts[0]:,} and {counts[1]:,} tokens, but the build counted "
                f"{row['prompt_tokens']:,} and {row['completion_tokens']:,}",
            ]
        )
    return {
        "input_ids": [*prompt, *completion],
        "labels": [NOT_LEARNT] * len(prompt) + completion,
        "tokens": sum(counts),
        "faults": faults,
    }


def _demand_whole(rows: Dataset, where: str) -> None:
    faults = [
        Fault(code, detail, row["problem"], row["generation"])
        for row in rows.select([at for at, codes in enumerate(rows["faults"]) if codes])
        for code, detail in row["faults"]
    ]
    demand_whole(faults, len(rows), where)


def _fingerprint(base: BaseCheckpoint, digest: str, counted: bool) -> str:
    tokenizer = base.tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", None)
    vocabulary = backend.to_str() if backend else repr(sorted(tokenizer.get_vocab().items()))
    stops = sorted(base.chat.stops)
    parts = f"{_FORMAT} {digest} {base.chat.sha256} {stops} {counted} {vocabulary}"
    return hashlib.sha256(parts.encode()).hexdigest()[:32]


def _max_length(config: SftOptions, base: BaseCheckpoint, lengths: list[int]) -> int:
    import numpy as np

    longest, leaves_out = max(lengths), config.too_long == "leave_out"
    limit: int | None = config.max_length
    if limit is None:
        limit = int(np.quantile(lengths, _QUANTILE, method="higher")) if leaves_out else longest
    if limit > base.context:
        raise ConfigError(
            f"max_length: {limit:,} tokens exceed the context of {base.name}, {base.context:,}",
            f"Give --max_length {base.context} --too_long leave_out, or build shorter rows.",
        )
    if longest > limit and not leaves_out:
        more = sum(length > limit for length in lengths)
        raise ConfigError(
            f"max_length: {more:,} of {len(lengths):,} rows are longer than {limit:,} tokens; the "
            f"longest has {longest:,}",
            f"Give --max_length {longest}, or leave them out with --too_long leave_out.",
        )
    return limit


def _fitting(
    source: SetSource, sets: SetsFolder, splits: dict[str, Dataset], max_length: int
) -> SourceRows:
    kept, left_out = {}, {}
    for split, part in splits.items():
        kept[split] = part.select([i for i, n in enumerate(part["tokens"]) if n <= max_length])
        left_out[split] = len(part) - len(kept[split])
    if not len(kept["train"]):
        raise ConfigError(
            f"No row of {sets.name} for a {source.role} has {max_length:,} tokens or fewer",
            "Give a larger --max_length.",
        )
    return SourceRows(source, sets, kept, left_out)


def sequences_of_roles(
    parts: Sequence[Dataset], max_length: int, packing: bool
) -> dict[str, Dataset]:
    """Return the rows of each role; if packed, as sequences of up to ``max_length`` tokens.

    Returns:
        Columns ``input_ids``, ``labels`` and, if packed, ``seq_lengths`` (tokens of each row), by
        role; roles without rows are left out.

    Raises:
        RunError: Packing lost tokens.
    """
    from datasets import concatenate_datasets
    from trl import pack_dataset

    sequences = {}
    for role in ROLES if parts else ():
        rows = concatenate_datasets(
            [
                part.select([i for i, own in enumerate(part["role"]) if own == role])
                for part in parts
            ]
        ).select_columns(_FED)
        if not len(rows):
            continue
        sequences[role] = (
            pack_dataset(rows, max_length, "bfd", {"desc": "Packing"}) if packing else rows
        )
        before, after = sum_of(rows), sum_of(sequences[role])
        if before != after:
            raise RunError(
                f"Packing lost tokens: {before} before (all, learnt), {after} after",
                "Train with --packing false, and report it with the versions of trl and datasets.",
            )
    return sequences


def sum_of(rows: Dataset) -> tuple[int, int]:
    """Return (number of tokens, number of tokens with a loss)."""
    import pyarrow.compute as pc

    tokens = learnt = 0
    for batch in rows.with_format("arrow").iter(1000):
        labels = pc.list_flatten(batch["labels"])
        tokens += len(labels)
        learnt += pc.sum(pc.not_equal(labels, NOT_LEARNT)).as_py() or 0
    return tokens, learnt


def check_isolation(
    model: torch.nn.Module,
    collate: Callable[[list[dict[str, list[int]]]], dict[str, object]],
    vocabulary: int,
    *,
    is_mixed: bool = False,
) -> None:
    """Check that the logits of a packed row do not depend on the row before it.

    The same row is read after two different rows of equal shape, so that rounding is equal too.
    Under ZeRO and FSDP all processes must call this.

    Args:
        model: The model as wrapped by the training engine.
        collate: Makes a batch of packed rows on the device of the computation.
        vocabulary: Size of the vocabulary.
        is_mixed: Whether the computation is in half precision and the weights in float32.
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
    model.eval()  # dropout would change the logits
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
            "packing: this model mixes the rows of a sequence: the logits of a row change by up to "
            f"{change:.2%} with the row before it",
            "Give --packing false, or on a machine with a GPU install the kernels: "
            "pip install flash-linear-attention causal-conv1d",
        )
