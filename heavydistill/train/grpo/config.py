"""The configuration of a GRPO training: TRL's fields and ours (``options``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trl import GRPOConfig, ModelConfig

from heavydistill.errors import ConfigError
from heavydistill.train.arguments import TrainArguments, read_arguments
from heavydistill.train.grpo.options import JOINT, GrpoModelOptions, GrpoOptions


@dataclass
class GrpoConfig(GrpoOptions, GRPOConfig):
    """All arguments of a GRPO training except those of the model."""


@dataclass
class GrpoModelConfig(GrpoModelOptions, ModelConfig):
    """The model arguments of a GRPO training. Dropout of an adapter is 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.use_peft and self.lora_dropout:
            raise ConfigError(
                f"lora_dropout: {self.lora_dropout} adds noise to the importance ratios that "
                "exceeds the clipping range",
                "Set lora_dropout to 0, or leave it out.",
            )
        if "lm_head" in (self.lora_target_modules or ()):
            raise ConfigError(
                "lora_target_modules: TRL does not train an adapter of lm_head",
                "Leave lm_head out.",
            )


def parse(arguments: Sequence[str]) -> TrainArguments[GrpoConfig]:
    """Parse flags, and the YAML file that they name; raises the errors of ``read_arguments``."""
    arguments_read = read_arguments(GrpoOptions, GrpoConfig, GrpoModelConfig, arguments)
    config, model = arguments_read.config, arguments_read.model
    if not config.use_vllm:
        return arguments_read
    if model.load_in_4bit or model.load_in_8bit:
        bits = 4 if model.load_in_4bit else 8
        raise ConfigError(
            f"load_in_{bits}bit with use_vllm: base + adapter would be quantized again for every "
            "generation, and vLLM would sample from a different model",
            f"Give --load_in_{bits}bit false, or --use_vllm false (samples with transformers).",
        )
    correction = config.vllm_importance_sampling_mode
    is_of_rows = config.vllm_importance_sampling_correction and correction.startswith("sequence")
    if is_of_rows and config.mode == JOINT:
        raise ConfigError(
            f"vllm_importance_sampling_mode: {correction} applies to single responses, but a "
            "sample of mode joint is an episode of several",
            "Set vllm_importance_sampling_mode: token_truncate.",
        )
    return arguments_read
