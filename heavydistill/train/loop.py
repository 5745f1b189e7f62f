"""How every training runs, from a checked plan to a model and its record in the output folder.

Some launches are silently less than they were asked to be: FSDP on a CPU falls back to plain data
parallelism, which is refused here. That ``--cpu --num_processes 2`` starts one process cannot be
told from within it: the number of processes is shown before training begins, and recorded. What the
libraries raise is explained; out of memory names the settings to change, in order.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import heavydistill
from heavydistill.errors import ConfigError, HeavydistillError, RunError
from heavydistill.store.training_record import Launch, Result, TrainingRecord, write_record
from heavydistill.train import checkpoints
from heavydistill.train.arguments import TrainArguments, recorded
from heavydistill.train.base_model import BaseCheckpoint

if TYPE_CHECKING:
    from accelerate.utils import DeepSpeedPlugin
    from transformers import Trainer
    from trl import ModelConfig

AUTO = "auto"
FALLBACK = "sdpa"
# Compute capabilities from and below which a kernel of the Hub is taken; FlashAttention 3 does not
# run on what came after Hopper.
_KERNELS = (
    ((9, 0), (10, 0), "kernels-community/vllm-flash-attn3"),
    ((8, 0), (99, 0), "kernels-community/flash-attn2"),
)
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
_MEMORY = ("can't allocate memory", "not enough memory", "DefaultCPUAllocator", "out of memory")
# First what costs time alone, then long rows, then the method.
_LESS_MEMORY = (
    "Change these, in this order: 1. --per_device_train_batch_size, with as many times more "
    "--gradient_accumulation_steps (of GRPO --steps_per_generation too): the same rows a step. "
    "2. --gradient_checkpointing true; beside vLLM on one GPU --vllm_enable_sleep_mode true. "
    "3. --max_length with --too_long leave_out; of GRPO --max_completion_length. "
    "4. --use_peft true, and without vLLM --load_in_4bit true. "
    "5. configs/accelerate/zero3_offload.yaml, a smaller model, or a larger machine."
)
# The last two: what torch says of a disk that took less than it was given.
_DISK = (
    *("No space left", "Not enough disk space", "Disk quota exceeded", "File too large"),
    *("PytorchStreamWriter failed", "unexpected pos"),
)


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """A training, checked, without its weights; it resumes from the checkpoint ``start``."""

    arguments: TrainArguments[Any]
    base: BaseCheckpoint
    record: TrainingRecord
    start: Path | None


def begin(arguments: TrainArguments[Any]) -> tuple[Launch, Path | None]:
    """The launch, and the checkpoint that the training resumes from; both stages begin so."""
    config = arguments.config
    method_of(arguments.model)
    start = checkpoints.start_of(Path(str(config.output_dir)), config.resume_from_checkpoint)
    return planned(arguments), start


def new_record(
    arguments: TrainArguments[Any],
    base: BaseCheckpoint,
    launch: Launch,
    start: Path | None,
    packages: Sequence[str] = (),
    **stage: Any,
) -> TrainingRecord:
    """What is known of a training before it is launched; a ``ConfigError`` if it resumes another.

    ``packages`` are those that it needs beside the usual ones, ``stage`` its own fields.
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
    """What is trained of the model, as the record calls it."""
    if model.load_in_4bit and model.dtype == "auto":
        raise ConfigError(
            "dtype: auto does not say what 4 bits are unpacked to", "Give --dtype bfloat16."
        )
    if not model.use_peft:
        return "full"
    if model.load_in_4bit or model.load_in_8bit:
        return "qlora"
    return "dora" if model.use_dora else "rslora" if model.use_rslora else "lora"


def trainer_options(plan: TrainingPlan) -> dict[str, Any]:
    """What TRL's trainers are made with in every stage; adapts the arguments to it."""
    from transformers.utils.logging import disable_progress_bar
    from trl import get_peft_config, get_quantization_config

    from heavydistill.train.callbacks import GoOn, KeepWhole, LogLines

    config, model, base = plan.arguments.config, plan.arguments.model, plan.base
    config.model_init_kwargs = {
        "revision": model.model_revision,
        "attn_implementation": plan.record.launch.attention,
        "dtype": model.dtype,
        **(config.model_init_kwargs or {}),
    }
    disable_progress_bar()
    config.disable_tqdm = True  # ``LogLines`` shows the progress
    if config.log_level == "passive":
        config.log_level = config.log_level_replica = "error"
    config.push_to_hub = False  # once, at the end, with the card
    config.logging_nan_inf_filter = False  # a loss that is no number would be logged as one
    accumulate_in_float32(config.deepspeed_plugin)
    peft_config = get_peft_config(model)
    if peft_config and not Path(base.path).is_dir():
        # Whoever loads the adapter gets the base that it was trained on, and not a later one.
        peft_config.revision = base.revision
    measure = {name: getattr(config, name) for name in _MEASURE if hasattr(config, name)}
    rl = plan.record.rl
    right = ("pass@1" if rl.mode == "thinker" else "HM") if rl else ""
    lines = LogLines(right, has_kl=bool(getattr(config, "beta", 0)))
    callbacks = [GoOn(measure), KeepWhole(config.save_total_limit), lines]
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
    plan: TrainingPlan,
    new_trainer: Callable[[], Trainer],
    measured: Callable[[Trainer, int], dict[str, Any]],
) -> TrainingRecord:
    """Train, and write the model and its record into the output folder.

    Every process of the launch calls this, and in it, before the model is saved, ``measured``: the
    fields of the result in which stages differ, of the trainer and the step that it began behind.

    Raises:
        ConfigError: The memory does not suffice, or TRL, PEFT or transformers reject the arguments.
        RunError: The disk is full. Checkpoints that are whole stay.
    """
    import torch
    from transformers.trainer_callback import PrinterCallback

    config = plan.arguments.config
    folder, record = Path(str(config.output_dir)), plan.record
    with _explaining(plan, is_set_up=False):
        trainer = new_trainer()
        trainer.remove_callback(PrinterCallback)
    with _explaining(plan):
        if config.should_save:
            folder.mkdir(parents=True, exist_ok=True)
            write_record(record, folder)
            checkpoints.remove_others(folder, plan.start)
        started = time.perf_counter()
        output = trainer.train(resume_from_checkpoint=plan.start and str(plan.start))
        seconds = time.perf_counter() - started
        first = checkpoints.step_of(plan.start) if plan.start else 0
        state, on_gpu = trainer.state, trainer.accelerator.device.type == "cuda"
        steps = state.global_step - first
        counted = [
            entry["num_tokens"]
            for entry in state.log_history
            if "num_tokens" in entry and entry["step"] > first
        ]
        fields = {"tokens": int(max(counted, default=0)), **measured(trainer, first)}
        result = Result(
            steps=state.global_step,
            epochs=float(state.epoch or 0),
            # The Trainer divides the losses of these steps by the number of all.
            train_loss=output.training_loss * state.global_step / steps if steps else None,
            seconds=seconds,
            peak_memory_gib=torch.cuda.max_memory_reserved() / _GIB if on_gpu else None,
            **fields,
        )
        checkpoints.save_model(trainer, folder)
        record = record.model_copy(update={"result": result})
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


def common_summary(plan: TrainingPlan, batches: int, unit: str) -> list[tuple[str, str]]:
    """(what, how much) of what every training has: steps, model, launch, start.

    ``batches`` are those of an epoch, of as many ``unit`` as the processes take at once.
    """
    record, launch, config = plan.record, plan.record.launch, plan.arguments.config
    accumulated = config.gradient_accumulation_steps
    of_step = config.per_device_train_batch_size * launch.processes * accumulated
    # As the Trainer counts: what is left of an epoch after its last full step is a step as well.
    of_epoch = math.ceil(batches / accumulated)
    steps = math.ceil(of_epoch * float(config.num_train_epochs))
    if config.max_steps > 0:
        steps = config.max_steps
    processes = f"{launch.processes} process{'es' * (launch.processes > 1)}"
    where = f"{processes}, {launch.engine}, {launch.device}, attention: {launch.attention}"
    lines = [
        ("steps", f"{steps:,} of {of_step:,} {unit}, {steps / of_epoch:.2g} epochs"),
        ("model", f"{record.base.name}, {record.method}"),
        ("launch", where),
    ]
    wants_flash = plan.arguments.model.attn_implementation == AUTO
    if wants_flash and launch.attention == FALLBACK and record.max_length > _LONG:
        text = (
            f"no FlashAttention fits this machine, and {FALLBACK} takes the square of "
            f"{record.max_length:,} tokens; on a GPU: pip install 'heavydistill[kernels]'"
        )
        lines.append(("warning", text))
    if plan.start:
        lines.append(("goes on from", plan.start.name))
    return lines


def planned(arguments: TrainArguments[Any]) -> Launch:
    """The launch that ``accelerate launch`` or flags ask for, before anything is loaded.

    Raises:
        ConfigError: They ask for FSDP where it would be plain data parallelism.
    """
    import torch

    config, state = arguments.config, arguments.config.distributed_state
    on_gpu = state.device.type == "cuda"
    device = torch.cuda.get_device_name() if on_gpu else state.device.type
    engine = "ddp" if state.num_processes > 1 else "single"
    if config.deepspeed_plugin:
        engine = f"zero{config.deepspeed_plugin.zero_stage}"
    elif config.fsdp or os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
        by_launcher = os.environ.get("FSDP_VERSION", "1")
        version = config.fsdp_plugin_args["fsdp_version"] if config.fsdp else by_launcher
        if not on_gpu or state.distributed_type.value == "NO":
            raise ConfigError(
                f"The launch asks for fsdp{version}, and would be {engine} on {device}",
                "FSDP needs GPUs and a launcher. On a CPU take configs/accelerate/cpu2.yaml, or "
                "zero2 with use_cpu: true.",
            )
        engine = f"fsdp{version}"
    return Launch(
        processes=state.num_processes,
        engine=engine,
        device=device,
        attention=attention(arguments),
    )


def accumulate_in_float32(plugin: DeepSpeedPlugin | None) -> None:
    """Have ZeRO add the gradients of a step's micro-batches in float32.

    DeepSpeed adds them in the type it computes with, and a sum of several in bfloat16 keeps 8 bits.
    A ``grad_accum_dtype`` in the user's own DeepSpeed configuration stays as it is. Call this
    before the trainer is made.
    """
    # Stage 0 spreads nothing, and DeepSpeed refuses another type than the model's there.
    if plugin is not None and plugin.zero_stage > 0:
        types = plugin.deepspeed_config.setdefault("data_types", {})
        types.setdefault("grad_accum_dtype", "fp32")


def attention(arguments: TrainArguments[Any]) -> str:
    """The implementation of attention: the user's, or for ``auto`` what fits this machine.

    FlashAttention from the Hub's kernels where GPU and packages allow it, or else ``sdpa``, with
    which packed rows do not attend to each other either, at the cost of memory.
    """
    chosen = str(arguments.model.attn_implementation or FALLBACK)
    if chosen != AUTO:
        return chosen
    import torch
    from transformers.utils import is_kernels_available

    is_nvidia = torch.cuda.is_available() and not torch.version.hip
    if not (is_nvidia and is_kernels_available()):
        return FALLBACK
    from kernels import get_kernel

    capability = torch.cuda.get_device_capability()
    for least, end, name in _KERNELS:
        if least <= capability < end:
            # Offline, or no build for this torch: whatever it is, there is another way.
            with contextlib.suppress(Exception):
                get_kernel(name)
                return name
    return FALLBACK


@contextlib.contextmanager
def _explaining(plan: TrainingPlan, is_set_up: bool = True) -> Iterator[None]:
    """Raise what a user can correct as an error of ours."""
    try:
        yield
    except Exception as error:
        reason = explained(error, plan)
        # Of arguments, a model or a machine that do not fit.
        kinds = (ValueError, ImportError, OSError, RuntimeError)
        if not (reason or is_set_up) and isinstance(error, kinds):
            reason = ConfigError(f"The training cannot be set up: {error}", "Change what it names.")
        if reason:
            raise reason from error
        raise


def explained(error: Exception, plan: TrainingPlan) -> HeavydistillError | None:
    """An error of memory or disk in the user's words; None if it is another one."""
    import torch

    message = str(error)
    first_line = message.strip().partition("\n")[0][:200]
    is_memory = isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, OSError) and error.errno == errno.ENOMEM
    )
    if is_memory or any(words in message for words in _MEMORY):
        device = plan.record.launch.device
        return ConfigError(f"The memory does not suffice ({device}; {first_line})", _LESS_MEMORY)
    if any(words in message for words in _DISK):
        return RunError(
            f"The disk of {plan.arguments.config.output_dir} is full, or fails ({first_line})",
            "Make room, and go on with --resume_from_checkpoint true; --save_total_limit keeps "
            "fewer checkpoints.",
        )
    return None
