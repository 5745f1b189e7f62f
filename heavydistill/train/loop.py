"""How every training runs, from a checked plan to a model and its record in the output folder.

Some launches are silently less than they were asked to be: FSDP on a CPU falls back to plain data
parallelism, which is refused here. That ``--cpu --num_processes 2`` starts one process cannot be
told from within it: the number of processes is shown before training begins, and recorded. What the
libraries raise is explained; out of memory names the settings to change, with values, in order.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import heavydistill
from heavydistill.errors import ConfigError, HeavydistillError, RunError
from heavydistill.store.training_record import Launch, Result, TrainingRecord, write_record
from heavydistill.train import checkpoints
from heavydistill.train.arguments import TrainArguments, recorded
from heavydistill.train.base_model import BaseCheckpoint

if TYPE_CHECKING:
    from accelerate import Accelerator
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
    """What is trained of the model, as the record calls it.

    Raises:
        ConfigError: A parameter is set that has no effect without another one.
    """
    from trl import ModelConfig

    unused = {
        "use_peft": ("lora_", "use_dora", "use_rslora", "load_in_"),
        "load_in_4bit": ("bnb_4bit_", "use_bnb_"),
    }
    for field, needed in product(fields(ModelConfig), unused):
        name = field.name
        is_unused = name.startswith(unused[needed]) and not getattr(model, needed)
        if is_unused and getattr(model, name) != field.default:
            raise ConfigError(
                f"{name} is set, and {needed} is not",
                f"Set {needed}: true, or leave {name} out (--{name} {field.default}).",
            )
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
    accumulate_in_float32(config.deepspeed_plugin)
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

    config = plan.arguments.config
    folder, record = Path(str(config.output_dir)), plan.record
    with _explaining(plan, is_set_up=False):
        trainer = new_trainer()
    with _explaining(plan):
        launch = real(trainer.accelerator, record.launch)
        record = record.model_copy(update={"launch": launch})
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


def common_summary(plan: TrainingPlan) -> list[tuple[str, str]]:
    """(what, how much) of what every training has: model, launch, start."""
    record, launch = plan.record, plan.record.launch
    processes = f"{launch.processes} process{'es' * (launch.processes > 1)}"
    where = f"{processes}, {launch.engine}, {launch.device}, attention: {launch.attention}"
    lines = [("model", f"{record.base.name}, {record.method}"), ("launch", where)]
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
    """The launch by the environment that ``accelerate launch`` made, before anything is loaded.

    Raises:
        ConfigError: It asks for FSDP on a CPU.
    """
    import torch

    state = arguments.config.distributed_state
    on_gpu = state.device.type == "cuda"
    engine = "ddp" if state.num_processes > 1 else "single"
    # Flags of the script leave the rest to a file, which is read when the trainer is made.
    if arguments.config.deepspeed:
        engine = "zero"
    elif arguments.config.fsdp:
        engine = "fsdp"
    elif os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
        engine = f"zero{os.environ.get('ACCELERATE_DEEPSPEED_ZERO_STAGE', '')}"
    elif os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
        engine = f"fsdp{os.environ.get('FSDP_VERSION', '1')}"
    launch = Launch(
        processes=state.num_processes,
        engine=engine,
        device=torch.cuda.get_device_name() if on_gpu else state.device.type,
        attention=attention(arguments),
    )
    if engine.startswith("fsdp") and not on_gpu:
        raise _falls_back(launch, "ddp")
    return launch


def real(accelerator: Accelerator, plan: Launch) -> Launch:
    """The launch as the trainer has it; a ``ConfigError`` if its engine is not the planned one."""
    kind = accelerator.distributed_type.value
    if kind == "DEEPSPEED":
        engine = f"zero{accelerator.state.deepspeed_plugin.zero_stage}"
    elif kind == "FSDP":
        engine = f"fsdp{accelerator.state.fsdp_plugin.fsdp_version}"
    else:
        engine = "ddp" if accelerator.num_processes > 1 else "single"
    if not engine.startswith(plan.engine):
        raise _falls_back(plan, engine)
    return plan.model_copy(update={"engine": engine, "processes": accelerator.num_processes})


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


def _falls_back(plan: Launch, engine: str) -> ConfigError:
    return ConfigError(
        f"The launch asks for {plan.engine}, and would be {engine} on {plan.device}",
        "FSDP needs GPUs. On a CPU take configs/accelerate/cpu2.yaml, or zero2 with use_cpu: true.",
    )


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
    has_kernels = is_kernels_available() and importlib.util.find_spec("kernels")
    if not (is_nvidia and has_kernels):
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
        reason = explained(error, plan.arguments, plan.record)
        # Of arguments, a model or a machine that do not fit.
        kinds = (ValueError, ImportError, OSError, RuntimeError)
        if not (reason or is_set_up) and isinstance(error, kinds):
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
            "Make room, and go on with --resume_from_checkpoint true; --save_total_limit keeps "
            "fewer checkpoints.",
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
