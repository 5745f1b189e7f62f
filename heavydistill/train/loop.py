"""How every training runs, from a checked plan to a model and its record in the output folder.

What the libraries raise meanwhile is explained; out of memory names the settings to change, with
their values, in order.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import heavydistill
from heavydistill.errors import ConfigError, HeavydistillError, RunError
from heavydistill.store.training_record import Launch, Result, TrainingRecord, write_record
from heavydistill.train import checkpoints
from heavydistill.train import launch as launching
from heavydistill.train.arguments import TrainArguments, recorded
from heavydistill.train.base_model import BaseCheckpoint

if TYPE_CHECKING:
    from transformers import Trainer
    from trl import ModelConfig

_PACKAGES = ("trl", "transformers", "peft", "accelerate", "torch", "datasets")
_GIB = 2**30
_LONG = 8192
"""Tokens of a sequence above which sdpa costs much more time and memory than FlashAttention."""
# Values of the best checkpoint and of others are compared only where all of these are the same.
_MEASURE = (
    "metric_for_best_model",
    "greater_is_better",
    "held_out",
    "held_out_from",
    "num_generations_eval",
)
# What a trainer raises that is made with arguments, a model or a machine that do not fit.
_OF_ARGUMENTS = (ValueError, ImportError, OSError, RuntimeError)
_MEMORY = ("can't allocate memory", "not enough memory", "DefaultCPUAllocator", "out of memory")
# The last two: what torch says of a disk that took less than it was given.
_DISK = (
    *("No space left", "Not enough disk space", "Disk quota exceeded", "File too large"),
    *("PytorchStreamWriter failed", "unexpected pos"),
)


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """A training, checked, without its weights."""

    arguments: TrainArguments[Any]
    base: BaseCheckpoint
    record: TrainingRecord
    """What is known of it before the launch."""
    start: Path | None
    """The checkpoint that it resumes from."""


@dataclass(frozen=True, slots=True)
class TrainResult:
    """The steps that a trainer has taken."""

    trainer: Trainer
    first: int
    """The step that it began behind, which an earlier start took."""
    train_loss: float
    """As the Trainer gives it."""
    seconds: float
    """Duration of the steps."""

    def result(self, **more: Any) -> Result:
        """The result as the record has it; the fields that stages differ in are given."""
        import torch

        state = self.trainer.state
        steps = state.global_step - self.first
        on_gpu = torch.cuda.is_available() and self.trainer.accelerator.device.type == "cuda"
        counted = [
            entry["num_tokens"]
            for entry in state.log_history
            if "num_tokens" in entry and entry["step"] > self.first
        ]
        return Result(
            steps=state.global_step,
            epochs=float(state.epoch or 0),
            # The Trainer divides the losses of these steps by the number of all.
            train_loss=self.train_loss * state.global_step / steps if steps else None,
            seconds=self.seconds,
            peak_memory_gib=torch.cuda.max_memory_reserved() / _GIB if on_gpu else None,
            **{"tokens": int(max(counted, default=0)), **more},
        )


def begin(arguments: TrainArguments[Any]) -> tuple[Launch, Path | None]:
    """The launch, and the checkpoint that the training resumes from; both stages begin so.

    Raises:
        ConfigError: Parameters that do not fit each other, the output folder or the launch.
    """
    config = arguments.config
    method_of(arguments.model)
    start = checkpoints.start_of(Path(str(config.output_dir)), config.resume_from_checkpoint)
    return launching.planned(arguments), start


def new_record(
    arguments: TrainArguments[Any],
    base: BaseCheckpoint,
    launch: Launch,
    start: Path | None,
    packages: Sequence[str] = (),
    **stage: Any,
) -> TrainingRecord:
    """What is known of a training before it is launched.

    Args:
        arguments: Its arguments.
        base: The model.
        launch: As of ``begin``.
        start: As of ``begin``.
        packages: Names of those that it needs beside the usual ones.
        **stage: The fields in which stages differ.

    Raises:
        ConfigError: It resumes another training.
    """
    method = method_of(arguments.model)
    names = [*_PACKAGES, *["deepspeed"] * launch.engine.startswith("zero"), *packages]
    versions = {}
    for name in [*names, *["bitsandbytes"] * (method == "qlora")]:
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    record = TrainingRecord(
        heavydistill=heavydistill.__version__,
        versions=versions,
        method=method,
        base=base.used,
        arguments=recorded(arguments),
        launch=launch,
        **stage,
    )
    if start:
        checkpoints.check_same(Path(str(arguments.config.output_dir)), record)
    return record


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
    from trl import ModelConfig

    for field in fields(ModelConfig):
        name = field.name
        if name.startswith(prefixes) and getattr(model, name) != field.default:
            raise ConfigError(
                f"{name} is set, and {needed} is not",
                f"Set {needed}: true, or leave {name} out (--{name} {field.default}).",
            )


def trainer_options(plan: TrainingPlan) -> dict[str, Any]:
    """What TRL's trainers are made with in every stage: model, arguments, tokenizer, callbacks.

    The arguments are brought to what a trainer of ours needs.
    """
    from trl import get_peft_config, get_quantization_config

    from heavydistill.train.callbacks import GoOn, KeepWhole

    config, model, base = plan.arguments.config, plan.arguments.model, plan.base
    config.model_init_kwargs = {
        "revision": model.model_revision,
        "attn_implementation": plan.record.launch.attention,
        "dtype": model.dtype,
        **(config.model_init_kwargs or {}),
    }
    config.push_to_hub = False  # once, at the end, with the card
    config.logging_nan_inf_filter = False  # a loss that is no number would be logged as one
    launching.accumulate_in_float32(config.deepspeed_plugin)
    peft_config = get_peft_config(model)
    if peft_config and not Path(base.path).is_dir():
        # Whoever loads the adapter gets the base that it was trained on, and not a later one.
        peft_config.revision = base.revision
    measure = {name: getattr(config, name) for name in _MEASURE if hasattr(config, name)}
    callbacks = [GoOn(measure), KeepWhole(config.save_total_limit)]
    config.save_total_limit = None  # the callback sees to it
    return {
        "model": base.path,
        "args": config,
        "processing_class": base.tokenizer,
        "quantization_config": get_quantization_config(model),
        "peft_config": peft_config,
        "callbacks": callbacks,
    }


def run_training(
    plan: TrainingPlan, new_trainer: Callable[[], Trainer], result: Callable[[TrainResult], Result]
) -> TrainingRecord:
    """Train, and write the model and its record into the output folder.

    Every process of the launch calls this, and in it ``result``, before the model is saved.

    Raises:
        ConfigError: The memory does not suffice, or TRL, PEFT or transformers reject the arguments.
        RunError: The disk is full. Checkpoints that are whole stay.
    """
    config = plan.arguments.config
    folder, record = Path(str(config.output_dir)), plan.record
    with _explaining(plan, _OF_ARGUMENTS):
        trainer = new_trainer()
    with _explaining(plan):
        launch = launching.real(trainer.accelerator, record.launch)
        record = record.model_copy(update={"launch": launch})
        if config.should_save:
            folder.mkdir(parents=True, exist_ok=True)
            write_record(record, folder)
            checkpoints.remove_others(folder, plan.start)
        started = time.perf_counter()
        output = trainer.train(resume_from_checkpoint=plan.start and str(plan.start))
        seconds = time.perf_counter() - started
        first = checkpoints.step_of(plan.start) if plan.start else 0
        ended = result(TrainResult(trainer, first, output.training_loss, seconds))
        checkpoints.save_model(trainer, folder)
        record = record.model_copy(update={"result": ended})
        if config.should_save:
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
    of_step = [entry for entry in trainer.state.log_history if entry["step"] == step]
    return {name: value for entry in of_step for name, value in entry.items()}


def common_summary(plan: TrainingPlan) -> list[tuple[str, str]]:
    """(what, how much) of what every training has: model, launch, start."""
    record, launch = plan.record, plan.record.launch
    processes = f"{launch.processes} process{'es' * (launch.processes > 1)}"
    where = f"{processes}, {launch.engine}, {launch.device}, attention: {launch.attention}"
    lines = [("model", f"{record.base.name}, {record.method}"), ("launch", where)]
    wants_flash = plan.arguments.model.attn_implementation == launching.AUTO
    if wants_flash and launch.attention == launching.FALLBACK and record.max_length > _LONG:
        text = (
            f"no FlashAttention fits this machine, and {launching.FALLBACK} takes the square of "
            f"{record.max_length:,} tokens; on a GPU: pip install 'heavydistill[kernels]'"
        )
        lines.append(("warning", text))
    if plan.start:
        lines.append(("goes on from", plan.start.name))
    return lines


@contextlib.contextmanager
def _explaining(
    plan: TrainingPlan, of_arguments: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Raise what a user can correct as an error of ours; ``of_arguments`` come from arguments."""
    try:
        yield
    except Exception as error:
        reason = explained(error, plan.arguments, plan.record)
        if reason is None and isinstance(error, of_arguments):
            reason = ConfigError(f"The training cannot be set up: {error}", "Change what it names.")
        if reason:
            raise reason from error
        raise


def explained(
    error: Exception, arguments: TrainArguments[Any], record: TrainingRecord
) -> HeavydistillError | None:
    """An error of memory or disk in the user's words; None if it is another one."""
    import torch

    message = str(error)
    first_line = message.strip().partition("\n")[0][:200]
    is_memory = isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, OSError) and error.errno == errno.ENOMEM
    )
    if is_memory or any(words in message for words in _MEMORY):
        ways = enumerate(_less_memory(arguments, record), start=1)
        return ConfigError(
            f"The memory does not suffice ({record.launch.device}; {first_line})",
            f"Change these, in this order: {' '.join(f'{n}. {way}' for n, way in ways)}",
        )
    if any(words in message for words in _DISK):
        return RunError(
            f"The disk of {arguments.config.output_dir} is full, or fails ({first_line})",
            "Make room, and go on with --resume_from_checkpoint true; what is not whole is not "
            "taken. --save_total_limit keeps fewer checkpoints.",
        )
    return None


def _less_memory(arguments: TrainArguments[Any], record: TrainingRecord) -> Iterator[str]:
    """What lowers the memory: first what costs time alone, then long rows, then the method."""
    config, model, is_grpo = arguments.config, arguments.model, record.stage == "grpo"
    quantized, samples = model.load_in_4bit or model.load_in_8bit, is_grpo and config.use_vllm
    least = record.rl.rows_of_episode if record.rl else 1
    if samples and config.vllm_mode == "colocate" and not config.vllm_enable_sleep_mode:
        yield "--vllm_enable_sleep_mode true (vLLM gives its memory back for the update)."
    if (times := config.per_device_train_batch_size // least) > 1:
        keys = f"--gradient_accumulation_steps {times * config.gradient_accumulation_steps}"
        if is_grpo:
            keys += f" --steps_per_generation {times * config.steps_per_generation}"
        yield f"--per_device_train_batch_size {least} {keys} (the same rows a step)."
    if not config.gradient_checkpointing:
        yield "--gradient_checkpointing true (slower by about a third)."
    if is_grpo:
        yield f"--max_completion_length {config.max_completion_length // 2}."
    else:
        yield f"--max_length {record.max_length // 2} --too_long leave_out."
    if not model.use_peft:
        yield "--use_peft true (an adapter has small optimizer states)."
    elif not quantized and not samples:
        yield "--load_in_4bit true (the model in a quarter of the memory)."
    if record.launch.device != "cpu" and not quantized:
        yield "configs/accelerate/zero3_offload.yaml (weights and states on the host)."
    yield "A smaller model, or a machine with more memory."
