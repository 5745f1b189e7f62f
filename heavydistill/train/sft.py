"""SFT: sets in, a trained model and its record out.

``prepare`` reads and checks everything but the weights, ``train`` runs TRL's own ``SFTTrainer`` on
it. The rows reach the trainer as tokens that the guard has seen, and it changes nothing of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import heavydistill
from heavydistill.errors import ConfigError
from heavydistill.store.training_record import SetsUsed, TrainingRecord
from heavydistill.train import checkpoints
from heavydistill.train import launch as launching
from heavydistill.train.base_model import Base, load_base
from heavydistill.train.loop import (
    carry_out,
    check_steps,
    known_at_end,
    method_of,
    of_any,
    of_trainer,
    versions,
)
from heavydistill.train.mixture import find
from heavydistill.train.packing import of_role, pack, pack_one, sum_of
from heavydistill.train.recorded_arguments import told
from heavydistill.train.sft_config import ROLES, Asked
from heavydistill.train.tokenization import Read, read

if TYPE_CHECKING:
    from datasets import Dataset
    from trl import SFTTrainer


@dataclass(frozen=True, slots=True)
class Prepared:
    """A training, checked, without its weights.

    Attributes:
        asked: The arguments.
        base: The model.
        train: Sequences of tokens.
        validation: Likewise, by role; empty if none are looked at.
        record: Of the training, without what is known when the launch is there.
        start: The checkpoint that it goes on from.
    """

    asked: Asked
    base: Base
    train: Dataset
    validation: dict[str, Dataset]
    record: TrainingRecord
    start: Path | None


def prepare(asked: Asked) -> Prepared:
    """Read and check everything but the weights.

    Raises:
        ConfigError: Whatever a user can mend; see the modules that are called.
    """
    method = method_of(asked.model)
    check_steps(asked)
    folder = Path(asked.trl.output_dir)
    start = checkpoints.start_of(folder, asked.trl.resume_from_checkpoint)
    launch = launching.planned(asked)
    if asked.sets.muon and launch.engine not in ("single", "ddp"):
        raise ConfigError(
            f"muon is set, and {launch.engine} spreads matrices that Muon needs as a whole",
            "Leave out muon, or launch with configs/accelerate/single.yaml or ddp.yaml.",
        )
    found = find(asked.sources)
    base = load_base(asked, found)
    rows = read(asked, base, found)
    train = [part.train for part in rows.rows]
    held_out = [part.validation for part in rows.rows if part.validation is not None]
    with asked.trl.main_process_first(desc="packing"):
        sequences = pack(train, rows.max_length) if asked.trl.packing else _unpacked(train)
        packs = asked.trl.packing if asked.trl.eval_packing is None else asked.trl.eval_packing
        validation = _validation(held_out, rows.max_length, packs)
    _check_metric(asked.trl.metric_for_best_model, validation)
    tokens, learnt = sum_of(sequences)
    record = TrainingRecord(
        heavydistill=heavydistill.__version__,
        versions=versions(launch.engine, method),
        role=asked.role,
        method=method,
        base=base.used,
        sets=_sets(rows),
        max_length=rows.max_length,
        sequences=len(sequences),
        tokens=tokens,
        learnt_tokens=learnt,
        arguments=told(asked),
        launch=launch,
    )
    if start:
        checkpoints.check_same(folder, record)
    return Prepared(asked, base, sequences, validation, record, start)


def train(prepared: Prepared) -> TrainingRecord:
    """Train, and write the model and its record into the output folder; see ``course``."""
    return carry_out(
        prepared,
        lambda: new_trainer(prepared),
        lambda taken: taken.result(eval_loss=_losses(taken.trainer, prepared.validation)),
    )


def new_trainer(prepared: Prepared) -> SFTTrainer:
    """TRL's trainer over the sequences, as ``train`` runs it."""
    from heavydistill.train.trainer import RolesTrainer

    arguments = prepared.asked.trl
    # What was read by the guard is what is learnt: TRL renders, cuts and packs nothing again.
    arguments.dataset_kwargs = {"skip_prepare_dataset": True}
    arguments.chat_template_path = None  # the tokenizer has it
    # It cuts nothing now, and TRL refuses it with padding_free alone.
    arguments.max_length = prepared.record.max_length if arguments.packing else None
    return RolesTrainer(
        muon=prepared.asked.sets.muon,
        train_dataset=prepared.train,
        eval_dataset=prepared.validation or None,
        **of_trainer(prepared),
    )


def _unpacked(parts: list[Dataset]) -> Dataset:
    from datasets import concatenate_datasets

    return concatenate_datasets([of_role(parts, role) for role in ROLES])


def _validation(parts: list[Dataset], max_length: int, packing: bool) -> dict[str, Dataset]:
    """The validation rows of each role, so that damage to one of them is seen."""
    of_roles = {role: of_role(parts, role) for role in ROLES} if parts else {}
    return {
        role: pack_one(rows, max_length) if packing else rows
        for role, rows in of_roles.items()
        if len(rows)
    }


def _check_metric(name: str | None, validation: Mapping[str, Any]) -> None:
    losses = [f"{role}_loss" for role in validation]
    if losses and name is not None and name.removeprefix("eval_") not in losses:
        raise ConfigError(
            f"metric_for_best_model: {name!r} is not measured", f"Give {' or '.join(losses)}."
        )


def _sets(rows: Read) -> list[SetsUsed]:
    return [
        SetsUsed(
            name=part.found.name,
            revision=part.found.revision,
            role=part.found.source.role,
            fraction=part.found.source.fraction,
            rows={
                "train": len(part.train),
                "validation": len(part.validation) if part.validation is not None else 0,
            },
            left_out=part.left_out,
            manifest=part.found.manifest,
        )
        for part in rows.rows
    ]


def _losses(trainer: SFTTrainer, validation: Mapping[str, Any]) -> dict[str, float]:
    """The losses on the validation rows of the model that the trainer has at the end, by role."""
    known = known_at_end(trainer)
    names = {role: f"eval_{role}_loss" for role in validation}
    if not known.keys() >= set(names.values()):
        known = trainer.evaluate()
    return {role: known[name] for role, name in names.items()}


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


def _rows(rows: dict[str, int], left_out: dict[str, int], max_length: int) -> str:
    told = f"{rows['train']:,} rows, {rows['validation']:,} for validation"
    lost = sum(left_out.values())
    return told + (f"; {lost:,} left out, longer than {max_length:,} tokens" if lost else "")
