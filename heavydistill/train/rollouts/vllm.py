"""What a training needs of vLLM: the trained weights, and in GRPO proof that they arrived.

To sync an adapter, TRL merges it into the base and subtracts it again, which in bfloat16 does not
restore the base. Here PEFT merges into a float32 copy, which is cast once to the dtype of the base
(``merged_weights``); the base is never written.

vLLM reports the log-probability of each token that it samples, and the training computes it again
(``check_gap``). With equal weights the two differ by rounding. Mean absolute differences measured
with vLLM 0.31 and models of 0.9 M parameters, over three generations:

    both in float32                       8e-7 to 2e-6
    vLLM in bfloat16                      1e-3 to 3e-2
    adapter that never reached vLLM       0.16 and 0.29 after one and two steps
    weights that never reached vLLM       0.44 and 1.53

The mean separates them; the largest single difference does not, because it grows with the number of
tokens. Below the bound, a model that vLLM did not receive cannot be told from rounding, nor does it
matter more than rounding; as soon as the training has moved further, it is found. Only tokens that
are trained on count: a generation whose responses are all left out of the loss shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Any

import torch
from packaging.requirements import Requirement

from heavydistill.errors import ConfigError

if TYPE_CHECKING:
    from trl.generation.vllm_generation import VLLMGeneration

# Largest mean absolute difference of log-probabilities that is taken for rounding, in nats.
_ROUNDING = {True: 1e-3, False: 0.1}  # by whether training and vLLM both compute in float32
_INSTALL = "`pip install -c constraints.txt -e '.[train,vllm]'`"


def require_vllm() -> None:
    """Check that the installed vLLM is one that TRL can send weights to.

    Raises:
        ConfigError: vLLM is not installed, or its version is outside the range of the extra vllm.
    """
    declared = {
        each.name: each.specifier for each in map(Requirement, requires("heavydistill") or ())
    }
    try:
        installed = version("vllm")
    except PackageNotFoundError:
        raise ConfigError(
            "use_vllm is set, but vLLM is not installed",
            f"Install it with {_INSTALL}, or give --use_vllm false.",
        ) from None
    if "vllm" in declared and not declared["vllm"].contains(installed, prereleases=True):
        raise ConfigError(
            f"use_vllm is set, but TRL cannot send weights to vLLM {installed}, only to "
            f"{declared['vllm']}",
            f"Install a version in this range with {_INSTALL}, or give --use_vllm false.",
        )


def check_gap(gap: float, step: int, is_float32: bool, temperature: float) -> None:
    """Raise an error if vLLM samples from a different model than the one that is trained.

    Args:
        gap: Mean absolute difference of the log-probabilities of sampled tokens, in nats.
        step: Number of optimizer steps so far.
        is_float32: Whether training and vLLM both compute in float32.
        temperature: Temperature of the samples; below 1 it magnifies rounding of the logits.

    Raises:
        ConfigError: The difference is more than rounding.
    """
    bound = _ROUNDING[is_float32] / min(1.0, temperature)
    if gap <= bound:
        return
    raise ConfigError(
        f"At step {step}, the log-probabilities of sampled tokens from vLLM and from the training "
        f"differ by {gap:.2g} nats on average, more than rounding ({bound:.2g}): vLLM samples from "
        "other weights than those that are trained",
        f"Give --use_vllm false, or install the tested versions with {_INSTALL}. A server must "
        "have been started with the model of model_name_or_path and with --logprobs-mode "
        "processed_logprobs.",
    )


def engine_dtype(vllm: VLLMGeneration) -> torch.dtype | None:
    """Return the dtype of an engine in this process; None for a server."""
    if vllm.mode != "colocate":
        return None
    dtype: torch.dtype = vllm.llm.llm_engine.model_config.dtype
    return dtype


def shut_down(vllm: VLLMGeneration) -> None:
    """Shut down an engine in this process, which needs the process group of the training."""
    if vllm.mode == "colocate":
        vllm.llm.llm_engine.engine_core.shutdown()


def merged_weights(vllm: VLLMGeneration) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each weight under vLLM's name for it, in the shape and dtype of the base.

    Replaces ``VLLMGeneration._iter_named_params`` of ``vllm``. Under ZeRO-3 every process has to
    iterate, because a weight is gathered from all of them.
    """
    model = vllm.model
    layers = _layers(model)
    for name, weight in model.named_parameters():
        # Remove PEFT's wrapper names; for a fully trained module, keep the trained copy.
        name = name.removeprefix("base_model.model.").replace(".base_layer", "")
        if model.prefix in name or "original_module" in name:
            continue
        name = vllm._fix_param_name_to_vllm(name, extra_prefixes=["modules_to_save.default."])
        own = layers.get(weight, [])
        # Each parameter once, in the same order in all processes.
        needed = dict.fromkeys([weight, *(one for layer in own for one in layer.parameters())])
        with torch.no_grad(), vllm._dist.gather_params(list(needed)):
            yield name, _merged(weight, own) if own else weight.data


def _layers(model: torch.nn.Module) -> dict[torch.nn.Parameter, list[Any]]:
    """Return the adapter layers that modify each weight of the base."""
    from peft.tuners.lora.layer import LoraLayer, ParamWrapper

    layers: dict[torch.nn.Parameter, list[Any]] = {}
    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            name = layer.parameter_name if isinstance(layer, ParamWrapper) else "weight"
            layers.setdefault(getattr(layer.get_base_layer(), name), []).append(layer)
    return layers


def _merged(weight: torch.nn.Parameter, layers: list[Any]) -> torch.Tensor:
    """Return a base weight with the given adapter layers merged in, in the dtype of the base."""
    base = weight.data
    weight.data = base.clone().float()
    try:
        for layer in layers:
            layer.merge()
        # Without a copy, a float32 base would be returned as the tensor that is unmerged below.
        return weight.data.to(base.dtype, copy=True)
    finally:
        for layer in layers:
            if layer.merged:
                layer.unmerge()  # marks the layer as not merged; the copy is dropped
        weight.data = base
