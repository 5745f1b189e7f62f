"""The words and numbers that parameters of GRPO may have, told before a model is loaded.

TRL looks at several of them only when it has a generation to learn from.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from heavydistill.errors import ConfigError

if TYPE_CHECKING:
    from trl import GRPOConfig, ModelConfig

    from heavydistill.training.rl.arguments import RlArguments

_MOST_FORMAT = 0.05
WORDS = {
    "loss_type": ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    "importance_sampling_level": ("token", "sequence"),
    "scale_rewards": ("group", "batch", "none"),
    "vllm_importance_sampling_mode": (
        "token_truncate",
        "token_mask",
        "sequence_truncate",
        "sequence_mask",
    ),
}
"""Those of TRL's ``grpo_trainer``, which its arguments have as any text."""
_ABOVE_0 = ("temperature", "max_completion_length")
_FROM_0 = ("learning_rate", "epsilon", "epsilon_high", "beta")


def check_ranges(rl: RlArguments, trl: GRPOConfig, model: ModelConfig) -> None:
    """See to it that every value is one.

    Raises:
        ConfigError: One is not.
    """
    for name, words in WORDS.items():
        if (word := getattr(trl, name)) not in words:
            raise ConfigError(
                f"{name}: {word!r} is none of {', '.join(words)}", "Take one of them."
            )
    for name in _ABOVE_0:
        value = getattr(trl, name)
        if value is None or not 0 < value < math.inf:
            raise ConfigError(f"{name}: {value} is no number above 0", "Give one.")
    for name in _FROM_0:
        value = getattr(trl, name)
        if value is not None and not 0 <= value < math.inf:
            raise ConfigError(f"{name}: {value} is no number from 0 on", "Give one.")
    if not 0 <= trl.top_entropy_quantile <= 1:
        raise ConfigError(
            f"top_entropy_quantile: {trl.top_entropy_quantile} is no share", "Give one from 0 to 1."
        )
    if trl.sync_ref_model and not trl.beta:
        raise ConfigError(
            "sync_ref_model is set, and with beta 0 there is no reference model",
            "Leave it out, or give --beta.",
        )
    _check_adapter(model)
    if not 0 <= rl.format_share <= _MOST_FORMAT:
        raise ConfigError(
            f"format_share: {rl.format_share} is not between 0 and {_MOST_FORMAT}: with more, form "
            "would be learnt in place of what is right",
            f"Give at most {_MOST_FORMAT}.",
        )
    if rl.max_accuracy is not None and not 0 <= rl.max_accuracy <= 1:
        raise ConfigError(
            f"max_accuracy: {rl.max_accuracy} is no share", "Give one from 0 to 1, such as 0.375."
        )


def _check_adapter(model: ModelConfig) -> None:
    if model.use_peft and model.lora_dropout:
        # It is drawn anew at each pass, so that the ratio of the same weights is not 1.
        raise ConfigError(
            f"lora_dropout: {model.lora_dropout} makes noise of the ratios, and their bounds are "
            "tighter than that",
            "Leave it out.",
        )
    targets = model.lora_target_modules or ()
    if model.use_peft and "lm_head" in ([targets] if isinstance(targets, str) else targets):
        raise ConfigError(
            "lora_target_modules: TRL computes log-probabilities past an adapter of lm_head, which "
            "would learn nothing",
            "Leave lm_head out.",
        )
