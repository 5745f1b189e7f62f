"""How thinkers are asked, and what becomes of their attempts: the configuration of a run.

It is given, or that of the runs behind the sets. Of it count ``domain``, ``language``, ``think``,
``cache`` and ``deliberate``, and where it is given also ``problems`` and ``verify``. Whoever it
names as a teacher is not asked: the model that is trained answers, sampled as the training says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heavydistill.config.models import SamplingChoice
from heavydistill.config.run import RunConfig, load_config, refuse_code_of_saved
from heavydistill.config.yaml import parse
from heavydistill.errors import ConfigError
from heavydistill.models.registry import file_of
from heavydistill.store.sets.folder import Manifest
from heavydistill.train.grpo.batches import check_episodes
from heavydistill.train.grpo.config import JOINT, Asked

_OF_SETS = ("domain", "language", "think", "cache", "deliberate")


def run_of(asked: Asked, manifest: Manifest | None) -> RunConfig:
    """The configuration, with the wording of the prompts filled in.

    Args:
        asked: The training.
        manifest: Of the sets; None where the run is given.

    Raises:
        ConfigError: It is none, sets something that would have no effect, or has a K that does not
            fit the batch; or the runs behind the sets were asked in different ways.
    """
    if asked.rl.run:
        run = load_config(Path(asked.rl.run))
        fix = "copy the file out of the folder of the run, and give the copy"
        refuse_code_of_saved(Path(asked.rl.run), run, fix)
    else:
        run = _of_sets(manifest)
    _refuse_unused(run, asked)
    if asked.mode == JOINT:
        check_episodes(asked.batch, run.think.k)
    if run.domain is None:
        profile = file_of(str(asked.model.model_name_or_path))
        run = run.model_copy(update={"domain": profile.domain if profile else "general"})
    return run


def _of_sets(manifest: Manifest | None) -> RunConfig:
    """How the runs behind the sets asked, without what was right for their teachers alone."""
    runs = manifest.runs if manifest else []
    ways = [_way(run.config) for run in runs if run.config]
    fix = "Say how it is to be asked: give --run in place of --dataset_name."
    if not ways:
        raise ConfigError("The sets do not tell how their problems were asked", fix)
    if any(way != ways[0] for way in ways):
        names = ", ".join(run.name for run in runs)
        raise ConfigError(f"The runs behind the sets, {names}, were asked in different ways", fix)
    return parse(RunConfig, ways[0], "The run behind the sets: ", fix)


def wording_of(manifest: Manifest | None) -> RunConfig | None:
    """How the runs behind sets worded their prompts; None if they did not do it alike."""
    found = {
        (run.config.get("domain"), run.config.get("language"))
        for run in (manifest.runs if manifest else [])
        if run.config
    }
    if len(found) != 1:
        return None
    domain, language = found.pop()
    return RunConfig(domain=domain, **({"language": language} if language else {}))


def _way(config: dict[str, Any]) -> dict[str, Any]:
    way = {name: config[name] for name in _OF_SETS if config.get(name) is not None}
    for stage in ("think", "deliberate"):
        way[stage] = {key: v for key, v in way.get(stage, {}).items() if key != "sampling"}
    way["cache"] = {key: v for key, v in way.get("cache", {}).items() if key != "budget_tokens"}
    return way


def _refuse_unused(run: RunConfig, asked: Asked) -> None:
    """Refuse sampling that another key of the training says, and what no training does."""
    if run.pools:
        raise ConfigError(
            f"{asked.rl.run}: pools has no effect: the model that is trained thinks",
            "Leave it out, and say with problems what is asked.",
        )
    most = asked.trl.max_completion_length
    stages = {"think": run.think.sampling}
    if asked.mode == JOINT:
        stages["deliberate"] = run.deliberate.sampling
    for stage, sampling in stages.items():
        if sampling.model_copy(update={"max_tokens": None}) != SamplingChoice():
            raise ConfigError(
                f"{asked.rl.run}: of {stage}.sampling max_tokens alone counts in a training",
                "Leave the others out; temperature is a key of the training.",
            )
        # In an episode either role may have a smaller number of its own.
        tokens = sampling.max_tokens or most
        if tokens > most or (tokens < most and asked.mode != JOINT):
            raise ConfigError(
                f"{asked.rl.run}: {stage}.sampling.max_tokens is {tokens}, and "
                f"max_completion_length {most}",
                f"Give --max_completion_length {tokens}, or the same max_tokens.",
            )
