"""How any stage goes, from a checked training to a model and its record in the output folder."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from heavydistill.errors import ConfigError
from heavydistill.store.training_record import Result, TrainingRecord, write_record
from heavydistill.train import checkpoints
from heavydistill.train import launch as launching
from heavydistill.train.arguments import Asked
from heavydistill.train.base_model import Base
from heavydistill.train.memory import explained

if TYPE_CHECKING:
    from transformers import Trainer
    from trl import ModelConfig

_PACKAGES = ("trl", "transformers", "peft", "accelerate", "torch", "datasets")
_GIB = 2**30
_LONG = 8192
"""Tokens of a sequence above which sdpa costs much more time and memory than FlashAttention."""
_MORE_THAN_0 = (
    "learning_rate",
    "num_train_epochs",
    "gradient_accumulation_steps",
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
)
# Values of the best checkpoint and of others are compared only where all of these are the same.
_MEASURE = (
    "metric_for_best_model",
    "greater_is_better",
    "held_out",
    "held_out_from",
    "num_generations_eval",
)
# What a trainer raises that is made with arguments, a model or a machine that do not fit.
_OF_ARGUMENTS = (ValueError, ImportError, OSError)


class Prepared(Protocol):
    """A training, checked, without its weights."""

    @property
    def asked(self) -> Asked:
        """The arguments."""

    @property
    def base(self) -> Base:
        """The model."""

    @property
    def record(self) -> TrainingRecord:
        """Of the training, without what is known when the launch is there."""

    @property
    def start(self) -> Path | None:
        """The checkpoint that it goes on from."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The steps that a trainer has taken.

    Attributes:
        trainer: It.
        first: The step that it began behind, which an earlier start took.
        train_loss: As the Trainer says it.
        seconds: That they took.
    """

    trainer: Trainer
    first: int
    train_loss: float
    seconds: float

    def result(self, **more: Any) -> Result:
        """What came out of them; the fields that stages differ in are given."""
        import torch

        state = self.trainer.state
        taken = state.global_step - self.first
        on_gpu = torch.cuda.is_available() and self.trainer.accelerator.device.type == "cuda"
        return Result(
            steps=state.global_step,
            epochs=float(state.epoch or 0),
            # The Trainer divides the losses of these steps by the number of all.
            train_loss=self.train_loss * state.global_step / taken if taken else None,
            seconds=self.seconds,
            peak_memory_gib=torch.cuda.max_memory_reserved() / _GIB if on_gpu else None,
            **{"tokens": int(max(self._counted(), default=0)), **more},
        )

    def _counted(self) -> Iterator[float]:
        for entry in self.trainer.state.log_history:
            if "num_tokens" in entry and entry["step"] > self.first:
                yield entry["num_tokens"]


def check_steps(asked: Asked) -> None:
    """Refuse steps of nothing, and what the Trainer would take for something else.

    Raises:
        ConfigError: A number that must be larger is 0 or less.
    """
    for name in _MORE_THAN_0:
        if (value := getattr(asked.trl, name)) <= 0:
            raise ConfigError(f"{name}: {value} is not more than 0", "Give a larger one.")
    if asked.trl.max_steps == 0 or asked.trl.max_steps < -1:
        raise ConfigError(
            f"max_steps: {asked.trl.max_steps} is no number of steps",
            "Give 1 or more, or leave it out: num_train_epochs then says how many there are.",
        )
    if asked.trl.save_strategy == "steps" and not asked.trl.save_steps > 0:
        raise ConfigError(
            f"save_steps: {asked.trl.save_steps:g} is not more than 0",
            "Give a number of steps, a share of all below 1, or --save_strategy no.",
        )


def method_of(model: ModelConfig) -> str:
    """What is trained of the model, as the record calls it.

    Raises:
        ConfigError: A parameter is set that has no effect without another one.
    """
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


def versions(engine: str, method: str, *more: str) -> dict[str, str]:
    """Of the packages that a training needs, and of others that it uses."""
    named = [*_PACKAGES, *["deepspeed"] * engine.startswith("zero")]
    named += ["bitsandbytes"] * (method == "qlora")
    found = {}
    for name in (*named, *more):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def of_trainer(prepared: Prepared) -> dict[str, Any]:
    """What TRL's trainers are made with in every stage: model, arguments, tokenizer, callbacks.

    The arguments are brought to what a trainer of ours needs.
    """
    from trl import get_peft_config, get_quantization_config

    from heavydistill.train.callbacks import GoOn, KeepWhole

    asked, base = prepared.asked, prepared.base
    arguments: Any = asked.trl
    arguments.model_init_kwargs = {
        "revision": asked.model.model_revision,
        "attn_implementation": prepared.record.launch.attention,
        "dtype": asked.model.dtype,
        **(arguments.model_init_kwargs or {}),
    }
    arguments.push_to_hub = False  # once, at the end, with the card
    arguments.logging_nan_inf_filter = False  # a loss that is no number would be logged as one
    launching.accumulate_in_float32(arguments.deepspeed_plugin)
    peft_config = get_peft_config(asked.model)
    if peft_config and not Path(base.path).is_dir():
        # Whoever loads the adapter gets the base that it was trained on, and not a later one.
        peft_config.revision = base.revision
    measure = {
        name: getattr(part, name)
        for part in (asked.around, arguments)
        for name in _MEASURE
        if hasattr(part, name)
    }
    callbacks = [GoOn(measure), KeepWhole(arguments.save_total_limit)]
    arguments.save_total_limit = None  # the callback sees to it
    return {
        "model": base.path,
        "args": arguments,
        "processing_class": base.tokenizer,
        "quantization_config": get_quantization_config(asked.model),
        "peft_config": peft_config,
        "callbacks": callbacks,
    }


def carry_out(
    prepared: Prepared, new_trainer: Callable[[], Trainer], result: Callable[[Taken], Result]
) -> TrainingRecord:
    """Train, and write the model and its record into the output folder.

    Every process of the launch calls this.

    Args:
        prepared: The training.
        new_trainer: Makes its trainer.
        result: What came out; called in all processes, before the model is saved.

    Raises:
        ConfigError: The memory does not suffice, or TRL, PEFT or transformers do not take what
            is asked for.
        RunError: The disk is full. Checkpoints that are whole stay.
    """
    arguments = prepared.asked.trl
    folder = Path(str(arguments.output_dir))
    record = prepared.record
    with _explaining(prepared, _OF_ARGUMENTS):
        trainer = new_trainer()
    with _explaining(prepared):
        launch = launching.real(trainer.accelerator, record.launch)
        record = record.model_copy(update={"launch": launch})
        if arguments.should_save:
            folder.mkdir(parents=True, exist_ok=True)
            write_record(record, folder)
            for said in checkpoints.remove_others(folder, prepared.start):
                print(said, flush=True)
        started = time.perf_counter()
        output = trainer.train(resume_from_checkpoint=prepared.start and str(prepared.start))
        seconds = time.perf_counter() - started
        first = checkpoints.step_of(prepared.start) if prepared.start else 0
        ended = result(Taken(trainer, first, output.training_loss, seconds))
        checkpoints.save_model(trainer, folder)
        record = record.model_copy(update={"result": ended})
        if arguments.should_save:
            write_record(record, folder)
    # transformers has ``end`` from 5.18 on.
    getattr(trainer, "end", trainer.accelerator.end_training)()
    return record


def step_at_end(trainer: Trainer) -> int:
    """The step whose model the trainer has at the end: the last one, or that of the best."""
    state = trainer.state
    best = trainer.args.load_best_model_at_end and state.best_model_checkpoint
    return checkpoints.step_of(Path(best)) if best else int(state.global_step)


def known_at_end(trainer: Trainer) -> Mapping[str, Any]:
    """What was measured of the model that the trainer has at the end, by its name in the logs."""
    step = step_at_end(trainer)
    return {
        name: value
        for entry in trainer.state.log_history
        if entry["step"] == step
        for name, value in entry.items()
    }


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


def of_any(prepared: Prepared) -> list[tuple[str, str]]:
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
    fell_back = (
        prepared.asked.model.attn_implementation == launching.AUTO
        and launch.attention == launching.FALLBACK
    )
    if fell_back and record.max_length > _LONG:
        lines.append(
            (
                "warning",
                f"no FlashAttention fits this machine, and {launching.FALLBACK} needs time and "
                f"memory of the square of {record.max_length:,} tokens; on a GPU install the extra "
                'kernels with access to the Hub (pip install "heavydistill[kernels]"), or '
                "shorten the sequences",
            )
        )
    if prepared.start:
        lines.append(("goes on from", prepared.start.name))
    return lines
