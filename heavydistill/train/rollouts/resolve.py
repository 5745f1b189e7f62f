"""Resolves what a training on prompts asks: the run behind them, and the settings of its rollouts.

Wording, K and cache settings come from the given run, or from the runs behind the sets; a given run
also supplies the problems and ``verify``.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heavydistill.config.models import SamplingChoice
from heavydistill.config.prompts import OwnPrompts
from heavydistill.config.run import RunConfig, Verifying, load_config, refuse_code_of_saved
from heavydistill.config.yaml import parse
from heavydistill.errors import ConfigError
from heavydistill.models.registry import profile_file
from heavydistill.models.tokenizer import ReaderTokenizer
from heavydistill.store.sets.folder import Manifest
from heavydistill.train.arguments import TrainArguments
from heavydistill.train.base_model import BaseCheckpoint
from heavydistill.train.datasets import SetsFolder
from heavydistill.train.grpo.episodes import Episodes
from heavydistill.train.grpo.options import GrpoOptions
from heavydistill.train.rollouts.options import DELIBERATOR, JOINT, RolloutOptions

_OF_SETS = ("domain", "language", "prompts", "think", "cache", "deliberate")


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """How the rollouts of a training are asked and judged."""

    run: RunConfig | None
    """Configuration that defines the prompts of problems; None if the prompts are caches."""
    episodes: Episodes | None  # Generates the episodes of mode ``joint``; None in other modes
    verify: Verifying  # Settings of the verifiers
    response_tokens: int  # Maximum number of tokens of the response to a prompt of the training


def resolve(
    arguments: TrainArguments[RolloutOptions], base: BaseCheckpoint, sets: SetsFolder | None
) -> RolloutSettings:
    """Resolve the settings of the rollouts.

    Raises:
        ConfigError: As ``run_of`` and ``Episodes``.
    """
    config = arguments.config
    tokens = int(config.max_completion_length)
    if config.mode == DELIBERATOR:
        return RolloutSettings(None, None, config.verifying, tokens)
    run = run_of(arguments, sets.manifest if sets else None)
    episodes = None
    if isinstance(config, GrpoOptions) and config.mode == JOINT:
        reader, context = ReaderTokenizer(base.path), context_of(config, base)
        episodes = Episodes(run, base.chat, reader, context, config.deliberations, tokens)
        tokens = episodes.most_tokens["thinker"]
    return RolloutSettings(run, episodes, config.verifying if sets else run.verify, tokens)


def run_of(arguments: TrainArguments[RolloutOptions], manifest: Manifest | None) -> RunConfig:
    """Return the configuration that defines the prompts: the given run, or the one behind the sets.

    Raises:
        ConfigError: The file is not a run's configuration, sets a key that has no effect, or has
            a K that does not fit the batch; or the runs behind the sets have different settings.
    """
    config = arguments.config
    if config.run:
        run = load_config(Path(config.run))
        fix = "copy the file out of the folder of the run, and give the copy"
        refuse_code_of_saved(Path(config.run), run, fix)
    else:
        run = _run_behind(manifest)
        run = run.model_copy(update={"prompts": config.own_prompts.over(run.prompts)})
    run.load_plugins()
    _refuse_unused(run, config)
    if isinstance(config, GrpoOptions) and config.mode == JOINT:
        config.check_episodes(run.think.k)
    if run.domain is None:
        profile = profile_file(str(arguments.model.model_name_or_path))
        run = run.model_copy(update={"domain": profile.domain if profile else "general"})
    return run


def _run_behind(manifest: Manifest | None) -> RunConfig:
    """Return the configuration shared by the runs behind the sets, without teacher settings."""
    runs = manifest.runs if manifest else []
    ways = [_way(run.config) for run in runs if run.config]
    fix = "Give --run, the configuration file of a run, in place of --dataset_name."
    if not ways:
        raise ConfigError("The sets do not record how their problems were asked", fix)
    if any(way != ways[0] for way in ways):
        names = ", ".join(run.name for run in runs)
        raise ConfigError(
            f"The runs behind the sets, {names}, have different prompts or settings", fix
        )
    return parse(RunConfig, ways[0], "The run behind the sets: ", fix)


def _way(config: dict[str, Any]) -> dict[str, Any]:
    way = {name: config[name] for name in _OF_SETS if config.get(name) is not None}
    for stage in ("think", "deliberate"):
        way[stage] = {key: v for key, v in way.get(stage, {}).items() if key != "sampling"}
    way["prompts"] = OwnPrompts.saved(way.get("prompts", {})).model_dump()
    way["cache"] = {key: v for key, v in way.get("cache", {}).items() if key != "budget_tokens"}
    return way


def wording_of(manifest: Manifest | None) -> RunConfig | None:
    """Return the configuration with the wording of the runs behind sets; None if they differ."""
    with contextlib.suppress(ConfigError):
        return _run_behind(manifest)
    return None


def _refuse_unused(run: RunConfig, config: RolloutOptions) -> None:
    """Raise an error if the run sets keys that have no effect in a training."""
    if run.pools:
        raise ConfigError(
            f"{config.run}: pools has no effect, because the trained model makes the attempts",
            "Leave pools out, and set problems.",
        )
    if run.system:
        raise ConfigError(
            f"{config.run}: system has no effect, because the trained model is asked without it",
            "Leave system out.",
        )
    if run.think.tools.python:
        where = config.run or "the run behind the sets"
        raise ConfigError(
            f"{where}: think.tools has no effect, because a training calls no tools",
            "Give --run, the configuration of a run without tools, or --mode deliberator.",
        )
    most, is_joint = config.max_completion_length, config.mode == JOINT
    stages = [("think", run.think.sampling)]
    if is_joint:
        stages.append(("deliberate", run.deliberate.sampling))
    for name, sampling in stages:
        if sampling.model_copy(update={"max_tokens": None}) != SamplingChoice():
            raise ConfigError(
                f"{config.run}: a training uses only max_tokens of {name}.sampling",
                "Leave out its other keys; give the training its own --temperature.",
            )
        # In an episode, each role may set a lower limit.
        tokens = sampling.max_tokens or most
        if tokens > most or (tokens < most and not is_joint):
            raise ConfigError(
                f"{name}.sampling.max_tokens is {tokens}, but max_completion_length is {most}",
                f"Give --max_completion_length {tokens}, or the same max_tokens.",
            )


def context_of(config: RolloutOptions, base: BaseCheckpoint) -> int:
    """Return the maximum number of tokens of a prompt and a response together."""
    server = config.vllm_max_model_length if config.use_vllm else None
    return min(base.context, server or base.context)
