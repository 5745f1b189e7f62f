"""The steps that all trainings share, from a checked plan to a model and its record.

Some launches silently do less than requested. FSDP on a CPU would fall back to plain data
parallelism, and is refused. A launch with ``--cpu --num_processes 2`` starts only one process,
which cannot be detected; so the number of processes is printed and recorded. Errors of libraries
are translated into messages; an out-of-memory error lists the settings to change, in order.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import heavydistill
from heavydistill.errors import ConfigError, HeavydistillError, RunError
from heavydistill.models.local.architecture import TextTower, copy_processor
from heavydistill.store.training_record import (
    Alarm,
    Ends,
    Launch,
    Result,
    TrainingRecord,
    write_record,
)
from heavydistill.train import checkpoints
from heavydistill.train.arguments import TrainArguments, TrainingOptions, recorded
from heavydistill.train.base_model import BaseCheckpoint

if TYPE_CHECKING:
    import torch
    from accelerate.utils import DeepSpeedPlugin
    from transformers import Trainer
    from trl import ModelConfig

AUTO = "auto"
FALLBACK = "sdpa"
# Kernels on the Hub with their compute capabilities (minimum, exclusive maximum); FlashAttention 3
# does not run on GPUs after Hopper.
_KERNELS = (
    ((9, 0), (10, 0), "kernels-community/vllm-flash-attn3"),
    ((8, 0), (99, 0), "kernels-community/flash-attn2"),
)
_PACKAGES = ("trl", "transformers", "peft", "accelerate", "torch", "datasets")
_GIB = 2**30
_LONG = 8192
"""Length in tokens above which sdpa needs much more time and memory than FlashAttention."""
# The metrics of two checkpoints are comparable only if these arguments are equal.
_MEASURE = (
    "metric_for_best_model",
    "greater_is_better",
    "held_out",
    "held_out_from",
    "num_generations_eval",
)
_MEMORY = ("can't allocate memory", "not enough memory", "DefaultCPUAllocator", "out of memory")
# First settings that only cost time, then shorter rows, then other methods.
_LESS_MEMORY = (
    "Change these, in this order: 1. a smaller --per_device_train_batch_size, with a larger "
    "--gradient_accumulation_steps (for GRPO --steps_per_generation too); in a distillation also a "
    "smaller teacher. "
    "2. --gradient_checkpointing true; with vLLM on the same GPU --vllm_enable_sleep_mode true. "
    "3. a smaller --max_length with --too_long leave_out; for GRPO and a distillation "
    "--max_completion_length. "
    "4. --use_peft true, and without vLLM --load_in_4bit true. "
    "5. configs/accelerate/zero3_offload.yaml, a smaller model, or a larger machine."
)
# The last two are torch's errors after an incomplete write.
_DISK = (
    *("No space left", "Not enough disk space", "Disk quota exceeded", "File too large"),
    *("PytorchStreamWriter failed", "unexpected pos"),
)


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """A training that passed all checks; ``start`` is the checkpoint to resume from."""

    arguments: TrainArguments[TrainingOptions]
    base: BaseCheckpoint
    record: TrainingRecord
    start: Path | None


def begin(arguments: TrainArguments[TrainingOptions]) -> tuple[Launch, Path | None]:
    """Return the launch, and the checkpoint to resume from."""
    config = arguments.config
    method_of(arguments.model)
    start = checkpoints.start_of(Path(str(config.output_dir)), config.resume_from_checkpoint)
    return planned(arguments), start


def new_record(
    arguments: TrainArguments[TrainingOptions],
    base: BaseCheckpoint,
    launch: Launch,
    start: Path | None,
    packages: Sequence[str] = (),
    **stage: object,
) -> TrainingRecord:
    """Return the record of a training that has not run yet.

    ``packages`` are recorded in addition to the usual ones; ``stage`` has further fields. Raises
    ``ConfigError`` if the checkpoint belongs to a different training.
    """
    method = method_of(arguments.model)
    if base.tower and method != "full":  # the names of the layers, for the record
        arguments.model.lora_target_modules = base.tower.targets(
            arguments.model.lora_target_modules
        )
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
    """Return the name of the training method for the record."""
    if model.load_in_4bit and model.dtype == "auto":
        raise ConfigError(
            "load_in_4bit needs a type to compute in, and dtype is auto", "Give --dtype bfloat16."
        )
    if not model.use_peft:
        return "full"
    if model.load_in_4bit or model.load_in_8bit:
        return "qlora"
    return "dora" if model.use_dora else "rslora" if model.use_rslora else "lora"


def trainer_options(plan: TrainingPlan) -> dict[str, object]:
    """Return the arguments common to all of TRL's trainers; modifies the plan's configuration."""
    from transformers.utils.logging import disable_progress_bar
    from trl import get_peft_config, get_quantization_config

    from heavydistill.train import callbacks

    config, model, base = plan.arguments.config, plan.arguments.model, plan.base
    config.model_init_kwargs = {
        "revision": model.model_revision,
        "attn_implementation": plan.record.launch.attention,
        "dtype": model.dtype,
        **(config.model_init_kwargs or {}),
    }
    disable_progress_bar()
    config.disable_tqdm = True  # ``LogLines`` prints the progress
    if config.log_level == "passive":
        config.log_level = config.log_level_replica = "error"
    config.push_to_hub = False  # the model is pushed at the end, together with its card
    config.logging_nan_inf_filter = False  # the log must show a loss of nan
    accumulate_in_float32(config.deepspeed_plugin)
    peft_config = get_peft_config(model)
    if peft_config and not Path(base.path).is_dir():
        # The adapter must load the revision of the base that it was trained on.
        peft_config.revision = base.revision
    if peft_config and base.tower:
        peft_config.exclude_modules = base.tower.others
    measure = {name: getattr(config, name) for name in _MEASURE if hasattr(config, name)}
    columns = callbacks.columns_of(plan.record, bool(getattr(config, "beta", 0)))
    watching = [
        callbacks.ResumeArgsCallback(measure),
        callbacks.CheckpointMarkerCallback(config.save_total_limit),
        callbacks.LogLines(columns, plan.arguments.is_shown),
    ]
    config.save_total_limit = None  # ``CheckpointMarkerCallback`` applies the limit
    return {
        "model": base.path,
        "args": config,
        "processing_class": base.tokenizer,
        "quantization_config": get_quantization_config(model),
        "peft_config": peft_config,
        "callbacks": watching,
    }


def run_training(
    plan: TrainingPlan,
    new_trainer: Callable[[], Trainer],
    measured: Callable[[Trainer, int], Mapping[str, object]],
) -> TrainingRecord:
    """Train, and write the model and its record into the output folder.

    Every process of the launch calls this. ``measured`` is called before the model is saved, with
    the trainer and the step that it resumed from (0: none); it returns further fields of the
    result.

    Raises:
        ConfigError: Out of memory, or TRL, PEFT or transformers refuse the arguments.
        RunError: The disk is full. Complete checkpoints remain.
    """
    import torch
    from transformers.trainer_callback import PrinterCallback

    config = plan.arguments.config
    folder, record = Path(str(config.output_dir)), plan.record
    with _explaining(plan, is_set_up=False):
        trainer = new_trainer()
        trainer.remove_callback(PrinterCallback)
        if plan.base.tower:
            freeze_others(trainer.model, plan.base.tower)
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
            # The Trainer divides the loss of the steps since resuming by the number of all steps.
            train_loss=output.training_loss * state.global_step / steps if steps else None,
            seconds=seconds,
            peak_memory_gib=torch.cuda.max_memory_reserved() / _GIB if on_gpu else None,
            **fields,
        )
        if plan.base.tower and record.method == "full" and config.should_save:
            copy_processor(plan.base.path, folder, plan.base.revision)
        checkpoints.save_model(trainer, folder)
        record = record.model_copy(update={"result": result})
        if config.should_save:
            write_record(record, folder)
        if state.is_world_process_zero and plan.arguments.is_shown:
            text = f"{steps:,} step{'s' * (steps != 1)} in {seconds:,.0f} s"
            if steps and record.stage != "grpo":  # whose loss shows no progress
                text += f", training loss {result.train_loss:.4f}"
            print(text, flush=True)
    trainer.end()
    return record


def freeze_others(model: torch.nn.Module, tower: TextTower) -> None:
    """Freeze everything but the text tower and the head.

    Text alone gives the rest no gradients, for which DDP would wait.
    """
    others = re.compile(tower.others)
    for name, parameter in model.named_parameters():
        if others.fullmatch(name.removeprefix("base_model.model.")):
            parameter.requires_grad_(False)


def step_at_end(trainer: Trainer) -> int:
    """Return the step of the final model: the last step, or the best checkpoint's step."""
    state = trainer.state
    best = trainer.args.load_best_model_at_end and state.best_model_checkpoint
    return checkpoints.step_of(Path(best)) if best else int(state.global_step)


def logged_ends(trainer: Trainer, names: Sequence[str]) -> dict[str, Ends]:
    """Return the means of the first and the last tenth of the values that were logged, by name.

    Log entries after the checkpoint that became the final model do not describe it.
    """
    history, last, ends = trainer.state.log_history, step_at_end(trainer), {}
    for name in names:
        values = [
            entry[name]
            for entry in history
            if entry["step"] <= last and entry.get(name) is not None
        ]
        if values:
            tenth = max(1, len(values) // 10)
            first, final = (sum(part) / tenth for part in (values[:tenth], values[-tenth:]))
            ends[name] = Ends(first=first, last=final)
    return ends


def alarms_of(trainer: Trainer) -> list[Alarm]:
    """Return the alarms of the guards that watched a training, of the loss the first one."""
    from heavydistill.train.callbacks import WatchGuards, WatchLoss

    callbacks = trainer.callback_handler.callbacks
    alarms = [a for each in callbacks if isinstance(each, WatchGuards) for a in each.alarms]
    alarms += [a for each in callbacks if isinstance(each, WatchLoss) for a in each.alarms[:1]]
    return sorted(alarms, key=lambda alarm: alarm.step)


def common_summary(plan: TrainingPlan, batches: int, unit: str) -> list[tuple[str, str]]:
    """Return the (label, text) lines on steps, model, launch and start.

    ``batches`` is the number of micro-batches of an epoch, ``unit`` the name of their elements.
    """
    record, launch, config = plan.record, plan.record.launch, plan.arguments.config
    accumulated = config.gradient_accumulation_steps
    replicas = launch.processes // sharing()
    of_step = config.per_device_train_batch_size * replicas * accumulated
    # As in the Trainer, the remainder of an epoch after its last full step is a step too.
    of_epoch = math.ceil(batches / accumulated)
    steps = math.ceil(of_epoch * float(config.num_train_epochs))
    if config.max_steps > 0:
        steps = config.max_steps
    processes = f"{launch.processes} process{'es' * (launch.processes > 1)}"
    lines = [
        ("steps", f"{steps:,} of {of_step:,} {unit}, {steps / of_epoch:.2g} epochs"),
        ("model", f"{record.base.name}, {record.method}"),
        ("launch", f"{processes}, {launch.engine}, {launch.device}, attention: {launch.attention}"),
    ]
    wants_flash = plan.arguments.model.attn_implementation == AUTO
    has_mask = sharing() == 1  # without one, sdpa is FlashAttention
    if wants_flash and has_mask and launch.attention == FALLBACK and record.max_length > _LONG:
        text = (
            f"no FlashAttention on this machine: {FALLBACK} needs time and memory by the square "
            f"of {record.max_length:,} tokens; on a GPU: pip install 'heavydistill[kernels]'"
        )
        lines.append(("warning", text))
    if plan.start:
        lines.append(("resumes from", plan.start.name))
    return lines


def planned(arguments: TrainArguments[TrainingOptions]) -> Launch:
    """Return the launch that flags and ``accelerate launch`` request, before anything is loaded.

    Raises:
        ConfigError: DeepSpeed or FSDP is requested, but plain data parallelism would run; or
            processes would share rows that are packed, or rows of a GRPO.
    """
    import torch

    config, state = arguments.config, arguments.config.distributed_state
    on_gpu = state.device.type == "cuda"
    device = torch.cuda.get_device_name() if on_gpu else state.device.type
    engine = "ddp" if state.num_processes > 1 else "single"
    if (asked := _requested(config)) and not asked[1]:
        raise ConfigError(
            f"The launch requests {asked[0]}, but would run {engine} on {device}",
            "FSDP needs GPUs and a launcher, DeepSpeed a launch without use_cpu. On a CPU give "
            "--accelerate cpu2, or a copy of zero2 with fewer processes and use_cpu: false.",
        )
    engine = asked[0] if asked else engine
    if (shared := sharing()) > 1:
        _refuse_shared_rows(config, shared)
        engine = f"{engine}, {shared} share a row"
    return Launch(
        processes=state.num_processes, engine=engine, device=device, attention=attention(arguments)
    )


def _requested(config: TrainingOptions) -> tuple[str, bool] | None:
    """Return the engine that shards the training, and whether it would run; None without one."""
    from accelerate.utils import parse_flag_from_env

    if config.deepspeed_plugin:  # accelerate ignores it under this flag, which a launch file sets
        runs = not parse_flag_from_env("ACCELERATE_USE_CPU")
        return f"zero{config.deepspeed_plugin.zero_stage}", runs
    if config.fsdp or parse_flag_from_env("ACCELERATE_USE_FSDP"):
        by_launcher = os.environ.get("FSDP_VERSION", "1")
        version = config.fsdp_plugin_args["fsdp_version"] if config.fsdp else by_launcher
        state = config.distributed_state
        runs = state.device.type == "cuda" and state.distributed_type.value != "NO"
        return f"fsdp{version}", runs
    return None


def _refuse_shared_rows(config: TrainingOptions, shared: int) -> None:
    """Raise ConfigError if the rows of this training cannot be shared by processes."""
    if config.script != "sft":
        raise ConfigError(
            f"The launch lets {shared} processes share a row, which only an SFT can do",
            "Give another --accelerate, e.g. zero2.",
        )
    if getattr(config, "packing", False):
        raise ConfigError(
            f"packing: the launch lets {shared} processes share a row, and the rows of a pack "
            "would see each other",
            "Give --packing false.",
        )


def sharing() -> int:
    """Return the number of processes that share a row: accelerate's context parallelism."""
    sizes = (os.environ.get(f"PARALLELISM_CONFIG_{each}_SIZE", "1") for each in ("CP", "SP"))
    return math.prod(int(size) for size in sizes)


def accumulate_in_float32(plugin: DeepSpeedPlugin | None) -> None:
    """Make ZeRO accumulate the gradients of a step's micro-batches in float32.

    DeepSpeed accumulates in the dtype of the computation, and a bfloat16 sum has only 8 significant
    bits. A ``grad_accum_dtype`` in the user's DeepSpeed configuration is kept. Call this before the
    trainer is created.
    """
    # In stage 0 DeepSpeed accepts only the model's dtype.
    if plugin is not None and plugin.zero_stage > 0:
        types = plugin.deepspeed_config.setdefault("data_types", {})
        types.setdefault("grad_accum_dtype", "fp32")


def attention(arguments: TrainArguments[TrainingOptions]) -> str:
    """Return the attention implementation: the user's, or for ``auto`` the best on this machine.

    ``auto`` means FlashAttention from the Hub's kernels if GPU and packages allow it, otherwise
    ``sdpa``, which also separates packed rows but needs more memory.
    """
    chosen = str(arguments.model.attn_implementation or FALLBACK)
    if chosen != AUTO:
        return chosen
    if sharing() > 1:  # the launch names it too, and there is no mask
        return FALLBACK
    import torch
    from transformers.utils import is_kernels_available

    is_nvidia = torch.cuda.is_available() and not torch.version.hip
    if not (is_nvidia and is_kernels_available()):
        return FALLBACK
    from kernels import get_kernel

    capability = torch.cuda.get_device_capability()
    for least, end, name in _KERNELS:
        if least <= capability < end:
            # No network, or no build for this torch version; the next kernel may work.
            with contextlib.suppress(Exception):
                get_kernel(name)
                return name
    return FALLBACK


@contextlib.contextmanager
def _explaining(plan: TrainingPlan, is_set_up: bool = True) -> Iterator[None]:
    """Convert errors that the user can fix into errors of this package."""
    try:
        yield
    except Exception as error:
        reason = explained(error, plan)
        # Exception types that arguments, model or machine may cause.
        kinds = (ValueError, ImportError, OSError, RuntimeError)
        if not (reason or is_set_up) and isinstance(error, kinds):
            reason = ConfigError(
                f"The training cannot be set up: {error}",
                "Change the argument that this error names.",
            )
        if reason:
            raise reason from error
        raise


def explained(error: Exception, plan: TrainingPlan) -> HeavydistillError | None:
    """Return our error for lack of memory or disk space; None for any other error."""
    import torch

    message = str(error)
    first_line = message.strip().partition("\n")[0][:200]
    is_memory = isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, OSError) and error.errno == errno.ENOMEM
    )
    if is_memory or any(words in message for words in _MEMORY):
        device = plan.record.launch.device
        return ConfigError(f"Out of memory ({device}; {first_line})", _LESS_MEMORY)
    if any(words in message for words in _DISK):
        return RunError(
            f"The disk of {plan.arguments.config.output_dir} is full, or fails ({first_line})",
            "Free some space, and continue with --resume_from_checkpoint true; --save_total_limit "
            "keeps fewer checkpoints.",
        )
    return None
