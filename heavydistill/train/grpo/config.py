"""The configuration of a GRPO training: TRL's fields and ours (``options``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trl import GRPOConfig

from heavydistill.errors import ConfigError
from heavydistill.train.arguments import TrainArguments
from heavydistill.train.grpo.options import GrpoOptions
from heavydistill.train.rollouts.config import read_rollout_arguments
from heavydistill.train.rollouts.options import JOINT


@dataclass
class GrpoConfig(GrpoOptions, GRPOConfig):
    """All arguments of a GRPO training except those of the model."""


def parse(arguments: Sequence[str]) -> TrainArguments[GrpoConfig]:
    """Parse flags, and the YAML file that they name; raises the errors of ``read_arguments``."""
    arguments_read = read_rollout_arguments(GrpoOptions, GrpoConfig, arguments)
    config = arguments_read.config
    correction = config.vllm_importance_sampling_mode
    is_of_rows = config.vllm_importance_sampling_correction and correction.startswith("sequence")
    if config.use_vllm and is_of_rows and config.mode == JOINT:
        raise ConfigError(
            f"vllm_importance_sampling_mode: {correction} applies to single responses, but a "
            "sample of mode joint is an episode of several",
            "Set vllm_importance_sampling_mode: token_truncate.",
        )
    return arguments_read
