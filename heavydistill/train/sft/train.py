"""SFT from sets to a trained model and its record.

``parse`` reads the arguments, and ``prepare`` reads and checks everything except the weights.
``train`` runs TRL's ``SFTTrainer`` on tokenized rows that the guard has checked; TRL does not
change them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trl import ModelConfig, SFTConfig, SFTTrainer

from heavydistill.config.run import Verifying
from heavydistill.errors import ConfigError
from heavydistill.store.sets.set_rows import SPLITS
from heavydistill.store.training_record import SetsUsed, TrainingRecord
from heavydistill.train.arguments import TrainArguments, read_arguments
from heavydistill.train.base_model import load_base
from heavydistill.train.datasets import locate_source
from heavydistill.train.guards import OFF, WARN, PolicyGuardOptions
from heavydistill.train.held_out import HELD_OUT_METRICS
from heavydistill.train.loop import (
    TrainingPlan,
    alarms_of,
    begin,
    common_summary,
    logged_ends,
    new_record,
    run_training,
    sharing,
    step_at_end,
    trainer_options,
)
from heavydistill.train.rollouts.reward import VerdictReward
from heavydistill.train.sft.data import SourceRows, sequences_of_roles, sum_of, tokenize_sources
from heavydistill.train.sft.options import SftOptions
from heavydistill.train.sft.sampling import SampledCaches, sampled_caches
from heavydistill.verifiers.pool import VerdictPool

if TYPE_CHECKING:
    from datasets import Dataset

# The other guards watch responses that are learnt from.
_GUARDS = PolicyGuardOptions(
    guard_entropy=OFF,
    guard_length=OFF,
    guard_cut_off=OFF,
    guard_evaluation=OFF,
    guard_reading=WARN,
)


@dataclass
class SftConfig(SftOptions, SFTConfig):
    """The arguments of SFT: TRL's and ours."""


def parse(arguments: Sequence[str]) -> TrainArguments[SftConfig]:
    """Parse flags, and the YAML file that they name; raises the errors of ``read_arguments``."""
    return read_arguments(SftOptions, SftConfig, ModelConfig, arguments)


@dataclass(frozen=True, slots=True)
class SftPlan(TrainingPlan):
    """An SFT training with its token sequences; validation sequences are kept by role."""

    arguments: TrainArguments[SftConfig]
    train: Dataset
    validation: dict[str, Dataset]
    sampled: SampledCaches


def prepare(arguments: TrainArguments[SftConfig]) -> SftPlan:
    """Read and check everything except the weights; raises ``ConfigError`` on an error."""
    from datasets import concatenate_datasets

    config = arguments.config
    launch, start = begin(arguments)
    trained = "an adapter" if arguments.model.use_peft else launch.engine
    if config.muon and trained not in ("single", "ddp"):
        raise ConfigError(
            f"muon needs whole matrices, and {trained} has none",
            "Leave out muon, or train all weights with --accelerate single or ddp.",
        )
    folders = [locate_source(source) for source in config.sources]
    base = load_base(arguments, folders)
    parts, max_length = tokenize_sources(config, base, folders)
    train = [part.splits["train"] for part in parts]
    held_out = [part.splits["validation"] for part in parts if "validation" in part.splits]
    with config.main_process_first(desc="packing"):
        sequences = concatenate_datasets(
            [*sequences_of_roles(train, max_length, config.packing).values()]
        )
        # By role, so that a loss of quality in one role is visible.
        validation = sequences_of_roles(held_out, max_length, config.packing)
    sampled = sampled_caches(config, base, launch, max_length)
    _require_measured(config.metric_for_best_model, validation, sampled)
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
    return SftPlan(arguments, base, record, start, sequences, validation, sampled)


def _require_measured(
    metric: str | None, validation: Iterable[str], sampled: SampledCaches
) -> None:
    names = [f"{role}_loss" for role in validation]
    names += ["hm", "hm_minus_v"] * bool(sampled.rows)
    if names and metric is not None and metric.removeprefix("eval_") not in names:
        raise ConfigError(
            f"metric_for_best_model: {metric!r} is not measured", f"Give {' or '.join(names)}."
        )


def train(plan: SftPlan) -> TrainingRecord:
    """Train, and write the model and its record into the output folder (``loop``)."""
    with contextlib.ExitStack() as held:
        pool = held.enter_context(VerdictPool(Verifying())) if plan.sampled.rows else None
        return run_training(
            plan,
            lambda: new_trainer(plan, pool),
            lambda trainer, _: {
                "eval_loss": _losses(trainer, plan.validation),
                "rollouts": logged_ends(trainer, HELD_OUT_METRICS),
                "alarms": alarms_of(trainer),
            },
        )


def new_trainer(plan: SftPlan, pool: VerdictPool | None = None) -> SFTTrainer:
    """Return TRL's trainer for the plan's token sequences; ``pool`` judges sampled responses, of
    which there are none without it."""
    from heavydistill.train.callbacks import WatchGuards, WatchLoss
    from heavydistill.train.sft.trainer import RolesTrainer

    config, chat = plan.arguments.config, plan.base.chat
    # TRL must not render, cut or pack the rows again after the guard has checked them.
    config.dataset_kwargs = {"skip_prepare_dataset": True}
    config.chat_template_path = None  # the tokenizer has the template
    # No row is cut by this, and TRL refuses it with padding_free without packing.
    config.max_length = plan.record.max_length if config.packing else None
    if sharing() > 1 and config.pad_to_multiple_of is None:
        config.pad_to_multiple_of = 2 * sharing()  # every process gets as many tokens
    options: dict[str, Any] = trainer_options(plan)
    options["callbacks"].append(WatchLoss())
    if pool:
        options["callbacks"].append(WatchGuards(_GUARDS, draws=False))
    return RolesTrainer(
        muon=config.muon,
        chat=chat,
        held_out=plan.sampled.rows if pool else {},
        most_tokens={"deliberator": plan.sampled.most_tokens},
        max_length=plan.record.max_length,
        judge=VerdictReward(pool, chat).judge if pool else None,
        train_dataset=plan.train,
        eval_dataset=plan.validation or None,
        **options,
    )


def _used(part: SourceRows) -> SetsUsed:
    sets, source = part.sets, part.source
    return SetsUsed(
        name=sets.name,
        revision=sets.revision,
        role=source.role,
        fraction=source.fraction,
        rows={split: len(part.splits.get(split, ())) for split in SPLITS},
        left_out=part.left_out,
        manifest=sets.manifest,
    )


def _copies(used: SetsUsed) -> int:
    """Rows of a deliberator that are learnt as rows of the thinker (``sft.data``)."""
    if used.fraction is not None:
        return 0
    built = used.manifest.rows[f"sft_{used.role}"]
    parts = [(built.get(split, 0), used.left_out.get(split, 0)) for split in used.left_out]
    return sum(rows - left_out for rows, left_out in parts) - sum(
        used.rows[split] for split in used.left_out
    )


def _losses(trainer: SFTTrainer, validation: Iterable[str]) -> dict[str, float]:
    """Return the losses of the final model on the validation rows, by role."""
    step = step_at_end(trainer)
    losses = {
        name: value
        for entry in trainer.state.log_history
        if entry["step"] == step
        for name, value in entry.items()
    }
    names = {role: f"eval_{role}_loss" for role in validation}
    if not losses.keys() >= set(names.values()):
        losses = trainer.evaluate()
    return {role: losses[name] for role, name in names.items()}


def summary(plan: SftPlan) -> list[tuple[str, str]]:
    """Return the (label, text) lines that describe the training."""
    record, config = plan.record, plan.arguments.config
    lines = []
    for sets in record.sets:
        text = f"{sets.rows['train']:,} rows, {sets.rows['validation']:,} for validation"
        if lost := sum(sets.left_out.values()):
            text += f"; {lost:,} left out, longer than {record.max_length:,} tokens"
        if copies := _copies(sets):
            text += f"; {copies:,} plain problems are learnt as the thinker's"
        lines.append((f"{sets.name}, {sets.role}", text))
    unit, size = "rows", f"{record.sequences:,} of up to {record.max_length:,} tokens"
    if config.packing:
        unit = "packs"
        size += f", {record.tokens / (record.sequences * record.max_length):.1%} full"
    learnt = f"{record.learnt_tokens:,} are learnt ({record.learnt_tokens / record.tokens:.0%})"
    of_batch = config.per_device_train_batch_size * (record.launch.processes // sharing())
    if plan.sampled.text:
        lines.append(("held out", plan.sampled.text))
    return [
        *lines,
        (unit, size),
        ("tokens an epoch", f"{record.tokens:,}, of which {learnt}"),
        *common_summary(plan, math.ceil(record.sequences / of_batch), unit),
    ]
