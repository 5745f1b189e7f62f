"""How sure a model is of its tokens, learnt at a rate of its own.

The weights of the last normalisation scale all logits, as a sampling temperature does. A small
model that answers at temperature 1 errs much by chance, and reinforcement makes it surer; but these
few weights are of the size of 1, and with a learning rate that suits matrices they hardly move.

Not covered: adapters, which leave these weights as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from heavydistill.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel
    from trl import GRPOConfig, ModelConfig


@dataclass
class SurenessArguments:
    """The rate."""

    final_norm_learning_rate: float | None = field(
        default=None,
        metadata={
            "help": "Learning rate of the weights of the last normalisation alone. They scale all "
            "logits, so they set how sure the model is of its tokens, and they are few and of the "
            "size of 1: their steps may be hundreds of times as large. [default: learning_rate]"
        },
    )


def check(rate: float | None, trl: GRPOConfig, model: ModelConfig) -> None:
    """Whether the weights can have the rate.

    Raises:
        ConfigError: They cannot; the message says what to leave out.
    """
    if rate is None:
        return
    if not rate > 0:
        raise ConfigError(
            f"final_norm_learning_rate: {rate} is not more than 0", "Give a larger one."
        )
    if model.use_peft:
        raise ConfigError(
            "final_norm_learning_rate is given, and what is trained is an adapter",
            "Leave it out, or use_peft.",
        )
    if trl.optim_target_modules:
        raise ConfigError(
            f"final_norm_learning_rate is given, and {trl.optim.value} sorts weights in its own "
            "way",
            "Leave it out, or optim_target_modules.",
        )


def set_rate(optimizer: torch.optim.Optimizer, model: PreTrainedModel, rate: float) -> None:
    """Give the weights of the last normalisation groups and a rate of their own.

    Args:
        optimizer: Of the model; no step was taken.
        model: As of ``_final_norm``.
        rate: Of these weights.

    Raises:
        ConfigError: Which normalisation is the last one cannot be told.
    """
    own = {id(weight) for weight in _final_norm(model).parameters()}
    for group in list(optimizer.param_groups):
        mine = [weight for weight in group["params"] if id(weight) in own]
        if mine:
            group["params"] = [weight for weight in group["params"] if id(weight) not in own]
            optimizer.add_param_group({**group, "params": mine, "lr": rate})


def _final_norm(model: PreTrainedModel) -> torch.nn.Module:
    """The one normalisation that is in no list of layers, of several the one of the model's width.

    By what modules are called, for what they do cannot be asked of them.
    """
    from torch.nn import ModuleList

    lists = [module for module in model.modules() if isinstance(module, ModuleList)]
    of_layers = {id(module) for layers in lists for module in layers.modules()}
    norms = {
        name: module
        for name, module in model.named_modules()
        if "norm" in type(module).__name__.lower() and id(module) not in of_layers
    }
    if len(norms) > 1:
        width = model.config.get_text_config().hidden_size
        norms = {name: one for name, one in norms.items() if one.weight.numel() == width}
    if len(norms) != 1:
        raise ConfigError(
            "final_norm_learning_rate is given, and which normalisation of the model is the last "
            f"one cannot be told: {', '.join(norms) or 'there is none'}",
            "Leave it out.",
        )
    return next(iter(norms.values()))
