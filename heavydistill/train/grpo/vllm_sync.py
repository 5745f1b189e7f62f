"""The weights that vLLM receives of a model with an adapter: base + delta.

TRL merges the adapter into the base, sends the result, and subtracts the adapter again, which in
bfloat16 does not restore the base: it drifts with every synchronisation, away from the base that
the saved adapter is loaded on. Here PEFT merges into a copy in float32, which is cast once to the
dtype of the base; the base itself is never written.

Not covered: quantized bases, which ``config`` refuses, and FSDP with an adapter, which ``train``
refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def merged_weights(vllm: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Every weight under the name that vLLM knows, one at a time.

    In place of ``VLLMGeneration._iter_named_params``. Under ZeRO-3 every process has to iterate,
    because a weight is gathered from all of them.

    Args:
        vllm: TRL's ``VLLMGeneration``, of a model with an adapter.

    Yields:
        Name and weight, in the shape and dtype of the base.
    """
    import torch

    model = vllm.model
    layers = _layers(model)
    for name, weight in model.named_parameters():
        # PEFT's wrappers go; of a module that is trained as a whole, the trained copy stays.
        name = name.removeprefix("base_model.model.").replace(".base_layer", "")
        if model.prefix in name or "original_module" in name:
            continue
        name = vllm._fix_param_name_to_vllm(name, extra_prefixes=["modules_to_save.default."])
        own = layers.get(weight, [])
        # Each once, and in an order that all processes have.
        needed = dict.fromkeys([weight, *(one for layer in own for one in layer.parameters())])
        with torch.no_grad(), vllm._dist.gather_params(list(needed)):
            yield name, _merged(weight, own) if own else weight.data


def _layers(model: Any) -> dict[torch.nn.Parameter, list[Any]]:
    """The layers of the adapter, by the weight of the base that each of them changes."""
    from peft.tuners.lora.layer import LoraLayer, ParamWrapper

    found: dict[torch.nn.Parameter, list[Any]] = {}
    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            name = layer.parameter_name if isinstance(layer, ParamWrapper) else "weight"
            found.setdefault(getattr(layer.get_base_layer(), name), []).append(layer)
    return found


def _merged(weight: torch.nn.Parameter, layers: list[Any]) -> torch.Tensor:
    """A weight of the base with these layers of the adapter, in the dtype of the base."""
    base = weight.data
    weight.data = base.clone().float()
    try:
        for layer in layers:
            layer.merge()
        return weight.data.to(base.dtype)
    finally:
        for layer in layers:
            if layer.merged:
                layer.unmerge()  # so that it counts as not merged; the copy is dropped
        weight.data = base
