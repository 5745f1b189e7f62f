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


def set_rate(optimizer: torch.optim.Optimizer, model: torch.nn.Module, rate: float) -> None:
    """Give the weights of the last normalisation a group and a rate of their own.

    Args:
        optimizer: Of the model; no step was taken.
        model: The modules of it that are called norms are taken for its normalisations, and the
            last one that it lists for the last one.
        rate: Of these weights.

    Raises:
        ConfigError: The model has no normalisation, or its weights are in no group.
    """
    norms = [module for module in model.modules() if "norm" in type(module).__name__.lower()]
    own = {id(weight) for weight in norms[-1].parameters()} if norms else set()
    for group in optimizer.param_groups:
        mine = [weight for weight in group["params"] if id(weight) in own]
        if mine:
            group["params"] = [weight for weight in group["params"] if id(weight) not in own]
            optimizer.add_param_group({**group, "params": mine, "lr": rate})
            return
    raise ConfigError(
        "final_norm_learning_rate is given, and the optimizer has no weights of a last "
        "normalisation",
        "Leave it out.",
    )
