"""Rows as tokens, each looked at by the guard, with the tokenizer and template in use.

Training does not start on a row that would lose its thinking, its answer or its end, whose prompt
is none, or whose tokens are not those that the build counted. A row that is longer than
``max_length`` is refused or left out and counted, as the user wants; none is cut.

What is read is kept in the cache of ``datasets`` under a hash of the file, the tokenizer and the
template, so the other processes of a machine, and the next start, take it from there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from heavydistill.chat.guard import Fault, Report, seen_and_inspected
from heavydistill.errors import ConfigError
from heavydistill.train.mixture import Found, shares

if TYPE_CHECKING:
    from datasets import Dataset

    from heavydistill.chat.template import Chat
    from heavydistill.train.base_model import Base
    from heavydistill.train.sft_config import Asked

_READING = 1
"""Goes up when the same rows are read in another way, so that no old cache is taken."""
_QUANTILE = 0.99
_COLUMNS = ("role", "problem", "generation")


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one source.

    Attributes:
        found: Where they are from.
        train: Columns ``input_ids``, ``labels``, ``tokens``, ``role``, ``problem`` and
            ``generation``; lists of token ids, ``-100`` in ``labels`` where nothing is learnt.
        validation: Likewise; None if none are looked at.
        left_out: Rows of each split that are longer than ``max_length``.
    """

    found: Found
    train: Dataset
    validation: Dataset | None
    left_out: dict[str, int]


@dataclass(frozen=True, slots=True)
class Read:
    """All rows.

    Attributes:
        rows: Of each source.
        max_length: Most tokens of a row, and the tokens of a pack.
    """

    rows: list[Rows]
    max_length: int


def read(asked: Asked, base: Base, found: list[Found]) -> Read:
    """Read, look at and choose the rows of all sources.

    Raises:
        ConfigError: A row would not be learnt as it stands, with its problem and generation; rows
            do not fit ``max_length``, or that does not fit the model; a split has no rows.
    """
    splits = ["train"] + ["validation"] * (asked.trl.do_eval or asked.trl.eval_on_start)
    whole = [{split: _split(asked, base, one, split) for split in splits} for one in found]
    if len(splits) > 1 and not any(len(parts["validation"]) for parts in whole):
        raise ConfigError(
            "Validation is asked for, and the sets have no validation rows",
            "Build them with --set validation=0.05, or train with --eval_strategy no "
            "--load_best_model_at_end false.",
        )
    lengths = [tokens for parts in whole for part in parts.values() for tokens in part["tokens"]]
    max_length = _max_length(asked, base, lengths)
    fitting = [_fitting(one, parts, max_length) for one, parts in zip(found, whole, strict=True)]
    # Of those that fit, for the mixture is of what is learnt.
    taken = shares([len(rows.train) for rows in fitting], [one.source.fraction for one in found])
    return Read(
        [_drawn(rows, count, asked.trl.seed) for rows, count in zip(fitting, taken, strict=True)],
        max_length,
    )


def _split(asked: Asked, base: Base, found: Found, split: str) -> Dataset:
    """The rows of a split as tokens, all of them whole."""
    from datasets import Dataset

    file = found.file(split)
    if file is None:
        return Dataset.from_dict(
            {name: [] for name in ("input_ids", "labels", "tokens", *_COLUMNS)}
        )
    counted = asked.trl.chat_template_path is None
    with asked.trl.main_process_first(desc=f"reading {file.name}"):
        rows = Dataset.from_parquet(str(file))
        looked_at = rows.map(
            partial(_look, chat=base.chat, counted=counted),
            remove_columns=[name for name in rows.column_names if name not in _COLUMNS],
            num_proc=asked.trl.dataset_num_proc,
            new_fingerprint=_fingerprint(base, found.digest(split), counted),
            desc=f"Looking at {found.name}, {found.source.role}, {split}",
        )
    _demand_whole(looked_at, f"{found.name}, {found.source.role}, {split}")
    return looked_at.remove_columns(["faults"])


def _look(row: Mapping[str, Any], chat: Chat, counted: bool) -> dict[str, Any]:
    """A row as the trainer takes it, and what is wrong with it.

    Args:
        row: As it stands in the file.
        chat: The tokenizer and template in use.
        counted: Whether its token counts are of this template.
    """
    seen, found = seen_and_inspected(chat, row)
    faults = [[fault.code, fault.detail] for fault in found]
    prompt, completion = seen.start, len(seen.ids) - seen.start
    if counted and (prompt, completion) != (row["prompt_tokens"], row["completion_tokens"]):
        faults.append(
            [
                "other_tokenizer",
                f"it has {prompt:,} and {completion:,} tokens, and the build counted "
                f"{row['prompt_tokens']:,} and {row['completion_tokens']:,}",
            ]
        )
    return {
        "input_ids": seen.ids,
        "labels": seen.labels,
        "tokens": len(seen.ids),
        "faults": faults,
    }


def _demand_whole(rows: Dataset, where: str) -> None:
    at = [i for i, faults in enumerate(rows["faults"]) if faults]
    faulty = [rows[i] for i in at]
    faults = [
        Fault(code, detail, row["problem"], row["generation"])
        for row in faulty
        for code, detail in row["faults"]
    ]
    others = [fault for fault in faults if fault.code == "other_tokenizer"]
    if others:
        raise ConfigError(
            f"{where}: the checkpoint has another tokenizer than the student for whom the sets "
            f"were built: {len(others):,} of {len(rows):,} rows have other tokens. {others[0]}",
            "Build the sets with --student and this checkpoint, or train the student that they "
            "were built for.",
        )
    Report(len(rows), 0, faults).demand_whole(where)


def _fingerprint(base: Base, digest: str, counted: bool) -> str:
    tokenizer = base.tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", None)
    vocabulary = backend.to_str() if backend else repr(sorted(tokenizer.get_vocab().items()))
    stops = sorted(base.chat.stops)
    parts = f"{_READING} {digest} {base.chat.sha256} {stops} {counted} {vocabulary}"
    return hashlib.sha256(parts.encode()).hexdigest()[:32]


def _max_length(asked: Asked, base: Base, lengths: list[int]) -> int:
    import numpy as np

    longest, leaves_out = max(lengths), asked.sets.too_long == "leave_out"
    wanted: int | None = asked.trl.max_length
    if wanted is None:
        wanted = int(np.quantile(lengths, _QUANTILE, method="higher")) if leaves_out else longest
    if wanted > base.context:
        raise ConfigError(
            f"max_length: {wanted:,} tokens do not fit {base.name}, which takes {base.context:,}",
            f"Give --max_length {base.context} --too_long leave_out, or build the sets with a "
            "smaller max_tokens.",
        )
    if longest > wanted and not leaves_out:
        more = sum(length > wanted for length in lengths)
        raise ConfigError(
            f"max_length: {more:,} of {len(lengths):,} rows are longer than {wanted:,} tokens; the "
            f"longest has {longest:,}",
            f"Give --max_length {longest}, or leave them out with --too_long leave_out.",
        )
    return wanted


def _fitting(found: Found, parts: dict[str, Dataset], max_length: int) -> Rows:
    fits = {
        split: [i for i, tokens in enumerate(part["tokens"]) if tokens <= max_length]
        for split, part in parts.items()
    }
    if not fits["train"]:
        raise ConfigError(
            f"No row of {found.name} for a {found.source.role} has {max_length:,} tokens or fewer",
            "Give a larger --max_length.",
        )
    left_out = {split: len(part) - len(fits[split]) for split, part in parts.items()}
    kept = {split: part.select(fits[split]) for split, part in parts.items()}
    return Rows(found, kept["train"], kept.get("validation"), left_out)


def _drawn(rows: Rows, count: int, seed: int) -> Rows:
    if count == len(rows.train):
        return rows
    return replace(rows, train=rows.train.shuffle(seed=seed).select(range(count)))
