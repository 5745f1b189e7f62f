"""SFT: sets in, a trained model and its record out.

``prepare`` reads and checks everything but the weights, ``train`` runs TRL's own ``SFTTrainer`` on
it. The rows reach the trainer as tokens that the guard has seen, and it changes nothing of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heavydistill.errors import ConfigError
from heavydistill.store.training_record import SetsUsed, TrainingRecord
from heavydistill.train.arguments import TrainArguments
from heavydistill.train.base_model import load_base
from heavydistill.train.datasets import ROLES, locate_source
from heavydistill.train.loop import (
    TrainingPlan,
    begin,
    common_summary,
    known_at_end,
    new_record,
    run_training,
    trainer_options,
)
from heavydistill.train.sequences import (
    SourceRows,
    of_role,
    pack,
    pack_one,
    sum_of,
    tokenize_sources,
)

if TYPE_CHECKING:
    from datasets import Dataset
    from trl import SFTTrainer

    from heavydistill.train.sft_config import SftConfig


@dataclass(frozen=True, slots=True)
class SftPlan(TrainingPlan):
    """A training by SFT, checked, without its weights."""

    arguments: TrainArguments[SftConfig]
    train: Dataset
    """Sequences of tokens."""
    validation: dict[str, Dataset]
    """Sequences by role; empty without evaluation."""


def prepare(arguments: TrainArguments[SftConfig]) -> SftPlan:
    """Read and check everything but the weights.

    Raises:
        ConfigError: Whatever a user can correct; see the modules that are called.
    """
    config = arguments.config
    launch, start = begin(arguments)
    if config.muon and launch.engine not in ("single", "ddp"):
        raise ConfigError(
            f"muon is set, and {launch.engine} spreads matrices that Muon needs as a whole",
            "Leave out muon, or launch with configs/accelerate/single.yaml or ddp.yaml.",
        )
    found = [locate_source(source) for source in config.sources]
    base = load_base(arguments, found)
    parts, max_length = tokenize_sources(config, base, found)
    train = [part.train for part in parts]
    held_out = [part.validation for part in parts if part.validation is not None]
    with config.main_process_first(desc="packing"):
        sequences = pack(train, max_length) if config.packing else _unpacked(train)
        packs = config.packing if config.eval_packing is None else config.eval_packing
        validation = _validation(held_out, max_length, packs)
    _check_metric(config.metric_for_best_model, validation)
    tokens, learnt = sum_of(sequences)
    record = new_record(
        arguments,
        base,
        launch,
        start,
        role=config.roles,
        sets=[_used(part) for part in parts],
        max_length=max_length,
        sequences=len(sequences),
        tokens=tokens,
        learnt_tokens=learnt,
    )
    return SftPlan(arguments, base, record, start, sequences, validation)


def train(plan: SftPlan) -> TrainingRecord:
    """Train, and write the model and its record into the output folder; see ``loop``."""
    return run_training(
        plan,
        lambda: new_trainer(plan),
        lambda steps: steps.result(eval_loss=_losses(steps.trainer, plan.validation)),
    )


def new_trainer(plan: SftPlan) -> SFTTrainer:
    """TRL's trainer over the sequences, as ``train`` runs it."""
    from heavydistill.train.trainer import RolesTrainer

    config = plan.arguments.config
    # What was read by the guard is what is learnt: TRL renders, cuts and packs nothing again.
    config.dataset_kwargs = {"skip_prepare_dataset": True}
    config.chat_template_path = None  # the tokenizer has it
    # It cuts nothing now, and TRL refuses it with padding_free alone.
    config.max_length = plan.record.max_length if config.packing else None
    return RolesTrainer(
        muon=config.muon,
        train_dataset=plan.train,
        eval_dataset=plan.validation or None,
        **trainer_options(plan),
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


def _used(part: SourceRows) -> SetsUsed:
    held_out = len(part.validation) if part.validation is not None else 0
    return SetsUsed(
        name=part.sets.name,
        revision=part.sets.revision,
        role=part.source.role,
        fraction=part.source.fraction,
        rows={"train": len(part.train), "validation": held_out},
        left_out=part.left_out,
        manifest=part.sets.manifest,
    )


def _losses(trainer: SFTTrainer, validation: Mapping[str, Any]) -> dict[str, float]:
    """The losses on the validation rows of the model that the trainer has at the end, by role."""
    known = known_at_end(trainer)
    names = {role: f"eval_{role}_loss" for role in validation}
    if not known.keys() >= set(names.values()):
        known = trainer.evaluate()
    return {role: known[name] for role, name in names.items()}


def summary(plan: SftPlan) -> list[tuple[str, str]]:
    """(what, how much) of a training."""
    record, config = plan.record, plan.arguments.config
    at_once = config.per_device_train_batch_size * record.launch.processes
    # As the Trainer counts: what is left of an epoch after its last full step is a step as well.
    per_epoch = math.ceil(
        math.ceil(record.sequences / at_once) / config.gradient_accumulation_steps
    )
    steps = math.ceil(per_epoch * config.num_train_epochs)
    if config.max_steps > 0:
        steps = config.max_steps
    full = record.tokens / (record.sequences * record.max_length)
    kind = "packs" if config.packing else "rows"
    return [
        *((f"{sets.name}, {sets.role}", _rows(sets, record.max_length)) for sets in record.sets),
        (
            kind,
            f"{record.sequences:,} of up to {record.max_length:,} tokens"
            + (f", {full:.1%} full" if config.packing else ""),
        ),
        (
            "tokens an epoch",
            f"{record.tokens:,}, of which {record.learnt_tokens:,} are learnt "
            f"({record.learnt_tokens / record.tokens:.0%})",
        ),
        (
            "steps",
            f"{steps:,} of {at_once * config.gradient_accumulation_steps} {kind}, "
            f"{steps / per_epoch:.2g} epochs",
        ),
        *common_summary(plan),
    ]


def _rows(sets: SetsUsed, max_length: int) -> str:
    text = f"{sets.rows['train']:,} rows, {sets.rows['validation']:,} for validation"
    lost = sum(sets.left_out.values())
    return text + (f"; {lost:,} left out, longer than {max_length:,} tokens" if lost else "")
