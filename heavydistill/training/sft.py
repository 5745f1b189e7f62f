"""SFT: sets in, a trained model and its record out.

``prepare`` reads and checks everything but the weights, ``train`` runs TRL's own ``SFTTrainer`` on
it. The rows reach the trainer as tokens that the guard has seen, and it changes nothing of them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import heavydistill
from heavydistill.errors import ConfigError
from heavydistill.record import BaseModelUsed, Result, SetsUsed, TrainingRecord, write_record
from heavydistill.training import keeping, launching
from heavydistill.training.arguments import ROLES, Asked
from heavydistill.training.base import Base, load_base
from heavydistill.training.memory import explained
from heavydistill.training.mixture import find
from heavydistill.training.packing import of_role, pack, pack_one, sum_of
from heavydistill.training.reading import Read, read
from heavydistill.training.told import told

if TYPE_CHECKING:
    from datasets import Dataset
    from trl import ModelConfig, SFTTrainer

_PACKAGES = ("trl", "transformers", "peft", "accelerate", "torch", "datasets")
_GIB = 2**30
_MORE_THAN_0 = (
    "learning_rate",
    "num_train_epochs",
    "gradient_accumulation_steps",
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
)
# What a trainer raises that is made with arguments, a model or a machine that do not fit.
_OF_ARGUMENTS = (ValueError, ImportError, OSError)


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
    method = _method(asked)
    for name in _MORE_THAN_0:
        if (value := getattr(asked.trl, name)) <= 0:
            raise ConfigError(f"{name}: {value} is not more than 0", "Give a larger one.")
    folder = Path(asked.trl.output_dir)
    start = keeping.start_of(folder, asked.trl.resume_from_checkpoint)
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
        versions=_versions(launch.engine, method),
        role=asked.role,
        method=method,
        base=BaseModelUsed(
            name=base.name, revision=base.revision, template_sha256=base.chat.sha256
        ),
        sets=_sets(rows),
        max_length=rows.max_length,
        sequences=len(sequences),
        tokens=tokens,
        learnt_tokens=learnt,
        arguments=told(asked),
        launch=launch,
    )
    if start:
        keeping.check_same(folder, record)
    return Prepared(asked, base, sequences, validation, record, start)


def train(prepared: Prepared) -> TrainingRecord:
    """Train, and write the model and its record into the output folder.

    Every process of the launch calls this.

    Raises:
        ConfigError: The memory does not suffice, or TRL, PEFT or transformers do not take what
            is asked for.
        RunError: The disk is full. Checkpoints that are whole stay.
    """
    folder = Path(prepared.asked.trl.output_dir)
    arguments = prepared.asked.trl
    record = prepared.record
    with _explaining(prepared, _OF_ARGUMENTS):
        trainer = new_trainer(prepared)
    with _explaining(prepared):
        launch = launching.real(trainer.accelerator, record.launch)
        record = record.model_copy(update={"launch": launch})
        if arguments.should_save:
            folder.mkdir(parents=True, exist_ok=True)
            write_record(record, folder)
            for said in keeping.remove_others(folder, prepared.start):
                print(said, flush=True)
        started = time.perf_counter()
        output = trainer.train(resume_from_checkpoint=prepared.start and str(prepared.start))
        seconds = time.perf_counter() - started
        losses = _losses(trainer, prepared.validation)
        keeping.save_model(trainer, folder)
        first = keeping.step_of(prepared.start) if prepared.start else 0
        result = _result(trainer, first, output.training_loss, losses, seconds)
        record = record.model_copy(update={"result": result})
        if arguments.should_save:
            write_record(record, folder)
    # transformers has ``end`` from 5.18 on.
    getattr(trainer, "end", trainer.accelerator.end_training)()
    return record


def new_trainer(prepared: Prepared) -> SFTTrainer:
    """TRL's trainer over the sequences, as ``train`` runs it."""
    from trl import get_peft_config, get_quantization_config

    from heavydistill.training.callbacks import KeepWhole
    from heavydistill.training.trainer import RolesTrainer

    asked, base = prepared.asked, prepared.base
    arguments = asked.trl
    arguments.model_init_kwargs = {
        "revision": asked.model.model_revision,
        "attn_implementation": prepared.record.launch.attention,
        "dtype": asked.model.dtype,
        **(arguments.model_init_kwargs or {}),
    }
    # What was read by the guard is what is learnt: TRL renders, cuts and packs nothing again.
    arguments.dataset_kwargs = {"skip_prepare_dataset": True}
    arguments.chat_template_path = None  # the tokenizer has it
    # It cuts nothing now, and TRL refuses it with padding_free alone.
    arguments.max_length = prepared.record.max_length if arguments.packing else None
    arguments.push_to_hub = False  # once, at the end, with the card
    arguments.logging_nan_inf_filter = False  # a loss that is no number would be logged as one
    peft_config = get_peft_config(asked.model)
    if peft_config and not Path(base.path).is_dir():
        # Whoever loads the adapter gets the base that it was trained on, and not a later one.
        peft_config.revision = base.revision
    callback = KeepWhole(arguments.save_total_limit)
    arguments.save_total_limit = None  # the callback sees to it
    return RolesTrainer(
        muon=asked.sets.muon,
        model=base.path,
        args=arguments,
        train_dataset=prepared.train,
        eval_dataset=prepared.validation or None,
        processing_class=base.tokenizer,
        quantization_config=get_quantization_config(asked.model),
        peft_config=peft_config,
        callbacks=[callback],
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


def _method(asked: Asked) -> str:
    model = asked.model
    if not model.use_peft:
        _refuse_unused(model, ("lora_", "use_dora", "use_rslora", "load_in_"), "use_peft")
    if not model.load_in_4bit:
        _refuse_unused(model, ("bnb_4bit_", "use_bnb_"), "load_in_4bit")
    elif model.dtype == "auto":
        raise ConfigError(
            "dtype: auto does not say what 4 bits are unpacked to", "Give --dtype bfloat16."
        )
    if not model.use_peft:
        return "full"
    if model.load_in_4bit or model.load_in_8bit:
        return "qlora"
    return "dora" if model.use_dora else "rslora" if model.use_rslora else "lora"


def _refuse_unused(model: ModelConfig, prefixes: tuple[str, ...], needed: str) -> None:
    """Refuse what is set and would have no effect without another key."""
    for field in fields(model):
        name = field.name
        if name.startswith(prefixes) and getattr(model, name) != field.default:
            raise ConfigError(
                f"{name} is set, and {needed} is not",
                f"Set {needed}: true, or leave {name} out (--{name} {field.default}).",
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


def _versions(engine: str, method: str) -> dict[str, str]:
    more = ["deepspeed"] * engine.startswith("zero") + ["bitsandbytes"] * (method == "qlora")
    found = {}
    for name in (*_PACKAGES, *more):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _losses(trainer: SFTTrainer, validation: Mapping[str, Any]) -> dict[str, float]:
    """The losses on the validation rows of the model that the trainer has at the end, by role."""
    state = trainer.state
    best = trainer.args.load_best_model_at_end and state.best_model_checkpoint
    step = keeping.step_of(Path(best)) if best else state.global_step
    known = {
        name: value
        for entry in state.log_history
        if entry["step"] == step
        for name, value in entry.items()
    }
    names = {role: f"eval_{role}_loss" for role in validation}
    if not known.keys() >= set(names.values()):
        known = trainer.evaluate()
    return {role: known[name] for role, name in names.items()}


def _result(
    trainer: SFTTrainer, first: int, loss: float, losses: dict[str, float], seconds: float
) -> Result:
    """What came out of the steps behind the first ones, which an earlier start did."""
    import torch

    state = trainer.state
    taken = state.global_step - first
    counted = [
        entry["num_tokens"]
        for entry in state.log_history
        if "num_tokens" in entry and entry["step"] > first
    ]
    on_gpu = torch.cuda.is_available() and trainer.accelerator.device.type == "cuda"
    return Result(
        steps=state.global_step,
        epochs=float(state.epoch or 0),
        # The Trainer divides the losses of these steps by the number of all.
        train_loss=loss * state.global_step / taken if taken else None,
        eval_loss=losses,
        tokens=int(max(counted, default=0)),
        seconds=seconds,
        peak_memory_gib=torch.cuda.max_memory_reserved() / _GIB if on_gpu else None,
    )


@contextlib.contextmanager
def _explaining(
    prepared: Prepared, of_arguments: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Say what to do about what a user can mend while the libraries work.

    Args:
        prepared: The training.
        of_arguments: Errors that come from the arguments.
    """
    try:
        yield
    except Exception as error:
        reason = explained(error, prepared.asked, prepared.record)
        if reason is None and isinstance(error, of_arguments):
            reason = ConfigError(f"The training cannot be set up: {error}", "Change what it names.")
        if reason:
            raise reason from error
        raise
