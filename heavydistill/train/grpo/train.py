"""GRPO from prompts to a trained model and its record.

``parse`` reads the arguments, and ``prepare`` reads and checks everything except the weights
(``rollouts.plan``). ``train`` runs the trainer of the mode (``new_trainer``), which samples
responses, judges them and updates the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from trl import GRPOConfig

from heavydistill.errors import ConfigError
from heavydistill.store.training_record import TrainingRecord
from heavydistill.train.arguments import TrainArguments
from heavydistill.train.grpo.options import GrpoOptions
from heavydistill.train.rollouts.config import read_rollout_arguments
from heavydistill.train.rollouts.judge import RolloutJudge
from heavydistill.train.rollouts.options import JOINT, THINKER
from heavydistill.train.rollouts.plan import (
    RolloutPlan,
    planned,
    rollout_options,
    run_rollouts,
    summary_of,
)
from heavydistill.train.rollouts.reward import VerdictReward
from heavydistill.verifiers.pool import VerdictPool

if TYPE_CHECKING:
    from heavydistill.train.grpo.trainer import RlTrainer


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


GrpoPlan = RolloutPlan[GrpoConfig]
prepare = planned


def train(plan: GrpoPlan) -> TrainingRecord:
    """Train, and write the model and its record into the output folder (``loop``)."""
    return run_rollouts(plan, partial(new_trainer, plan))


def new_trainer(plan: GrpoPlan, pool: VerdictPool, judge: RolloutJudge | None = None) -> RlTrainer:
    """Return the trainer of the mode; ``pool`` judges responses, ``judge`` the undecided ones."""
    from heavydistill.train.grpo.joint import JointTrainer
    from heavydistill.train.grpo.passk import ThinkerTrainer
    from heavydistill.train.grpo.trainer import RlTrainer

    config, base, episodes = plan.arguments.config, plan.base, plan.settings.episodes
    size = plan.record.rl.rows_of_episode if plan.record.rl else 1
    reward = VerdictReward(
        pool,
        base.chat,
        config.format_share,
        config.num_generations // size * config.deliberations,
        config.claims_share,
        judge,
    )
    options = {"reward_funcs": [reward], **rollout_options(plan, reward.judge)}
    trainer: RlTrainer
    if episodes:
        options["most_tokens"] = episodes.most_tokens
        trainer = JointTrainer(episodes=episodes, verdicts=pool, **options)
    elif config.mode == THINKER:
        trainer = ThinkerTrainer(pass_at_k=config.pass_at_k, **options)
    else:
        trainer = RlTrainer(**options)
    # TRL masks by these ids, some of which come from the model's configuration.
    reward.ends = frozenset([*trainer.eos_token_ids, base.tokenizer.pad_token_id])
    return trainer


def summary(plan: GrpoPlan) -> list[tuple[str, str]]:
    """Return the (label, text) lines that describe the training."""
    config = plan.arguments.config
    group, episodes = config.num_generations, ""
    if plan.settings.episodes:
        episodes = f", {group // plan.settings.episodes.size} episodes,"
    text = (
        f"{config.prompts_of_generation:,} prompts x {group} responses{episodes} of up to "
        f"{config.max_completion_length:,} tokens; {config.objective}, temperature "
        f"{config.temperature:g}"
    )
    return summary_of(plan, text, config.num_generations_eval or group)
