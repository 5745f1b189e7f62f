"""What a launch really is: how many processes, which engine, which attention.

Some launches are silently less than they were asked to be: FSDP on a CPU falls back to plain data
parallelism, which is refused here. That ``--cpu --num_processes 2`` starts one process cannot be
told from within it: the number of processes is said before training begins, and recorded.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from typing import TYPE_CHECKING, Any

from heavydistill.errors import ConfigError
from heavydistill.store.training_record import Launch

if TYPE_CHECKING:
    from accelerate import Accelerator
    from accelerate.utils import DeepSpeedPlugin

    from heavydistill.train.arguments import TrainArguments

AUTO = "auto"
FALLBACK = "sdpa"
# Compute capabilities from and below which a kernel of the Hub is taken; FlashAttention 3 does not
# run on what came after Hopper.
_KERNELS = (
    ((9, 0), (10, 0), "kernels-community/vllm-flash-attn3"),
    ((8, 0), (99, 0), "kernels-community/flash-attn2"),
)


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
    elif _is_set("ACCELERATE_USE_DEEPSPEED"):
        engine = f"zero{os.environ.get('ACCELERATE_DEEPSPEED_ZERO_STAGE', '')}"
    elif _is_set("ACCELERATE_USE_FSDP"):
        engine = f"fsdp{os.environ.get('FSDP_VERSION', '1')}"
    launch = Launch(
        processes=state.num_processes,
        engine=engine,
        device=torch.cuda.get_device_name() if on_gpu else state.device.type,
        attention=attention(arguments),
    )
    if engine.startswith("fsdp") and not on_gpu:
        raise _other(launch, "ddp")
    return launch


def real(accelerator: Accelerator, plan: Launch) -> Launch:
    """The launch as the trainer has it.

    Raises:
        ConfigError: Its engine is another one than was planned.
    """
    kind = accelerator.distributed_type.value
    if kind == "DEEPSPEED":
        engine = f"zero{accelerator.state.deepspeed_plugin.zero_stage}"
    elif kind == "FSDP":
        engine = f"fsdp{accelerator.state.fsdp_plugin.fsdp_version}"
    else:
        engine = "ddp" if accelerator.num_processes > 1 else "single"
    if not engine.startswith(plan.engine):
        raise _other(plan, engine)
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


def _other(plan: Launch, engine: str) -> ConfigError:
    return ConfigError(
        f"The launch asks for {plan.engine}, and would be {engine} on {plan.device}, with "
        f"{plan.processes} process(es)",
        "FSDP needs GPUs. On a CPU take configs/accelerate/cpu2.yaml, or zero2 and zero3 with "
        "use_cpu: true.",
    )


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").lower() == "true"


def attention(arguments: TrainArguments[Any]) -> str:
    """The implementation of attention: the user's, or for ``auto`` what fits this machine.

    FlashAttention from the Hub's kernels where there is a GPU for it, the ``kernels`` package in
    a version that transformers takes, and the kernel itself; ``sdpa`` otherwise, with which packed
    rows do not attend to each other either, at the cost of memory.
    """
    chosen = str(arguments.model.attn_implementation or FALLBACK)
    if chosen != AUTO:
        return chosen
    import torch
    from transformers.utils import is_kernels_available

    if not torch.cuda.is_available() or torch.version.hip or not is_kernels_available():
        return FALLBACK
    if importlib.util.find_spec("kernels") is None:
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
