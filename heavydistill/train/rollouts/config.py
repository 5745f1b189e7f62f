"""The model arguments of GRPO and distillation, and how both read their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from trl import ModelConfig

from heavydistill.errors import ConfigError
from heavydistill.train.arguments import TrainArguments, read_arguments
from heavydistill.train.rollouts.options import RolloutModelOptions, RolloutOptions

R = TypeVar("R", bound=RolloutOptions)


@dataclass
class RolloutModelConfig(RolloutModelOptions, ModelConfig):
    """The model arguments of a training on prompts. Dropout of an adapter is 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.use_peft and self.lora_dropout:
            raise ConfigError(
                f"lora_dropout: with {self.lora_dropout} the trained model would be another one "
                "than the one that samples",
                "Set lora_dropout to 0, or leave it out.",
            )
        if "lm_head" in (self.lora_target_modules or ()):
            raise ConfigError(
                "lora_target_modules: TRL does not train an adapter of lm_head",
                "Leave lm_head out.",
            )


def read_rollout_arguments(
    options: type[RolloutOptions], config: type[R], arguments: Sequence[str]
) -> TrainArguments[R]:
    """Parse flags, and the YAML file that they name; raises the errors of ``read_arguments``."""
    read = read_arguments(options, config, RolloutModelConfig, arguments)
    model = read.model
    if read.config.use_vllm and (model.load_in_4bit or model.load_in_8bit):
        bits = 4 if model.load_in_4bit else 8
        raise ConfigError(
            f"load_in_{bits}bit with use_vllm: base + adapter would be quantized again for every "
            "generation, and vLLM would sample from a different model",
            f"Give --load_in_{bits}bit false, or --use_vllm false (samples with transformers).",
        )
    return read
