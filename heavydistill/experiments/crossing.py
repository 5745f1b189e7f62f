"""Runs every thinker with every deliberator on the same problems.

The folder of a crossing, an experiment (see ``folder``):

    THINKER+DELIBERATOR/    a run for each pair
    crossing.json           see ``metrics.experiments.crossing``

Each thinker is sampled once, in its run with the first deliberator; its other runs read these
pools. Sampling settings missing from the configuration come from each model's profile; all models
get the prompts of the first thinker.

Not covered: models of different servers in one crossing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heavydistill.config.run import RunConfig
from heavydistill.config.versioned import write_versioned
from heavydistill.errors import ConfigError
from heavydistill.experiments.folder import (
    ExperimentFolder,
    RunOne,
    experiment,
    reading_pools,
)
from heavydistill.metrics.experiments.crossing import CROSSING, Crossing, Samplings, cross
from heavydistill.models.contact import ServerProbe
from heavydistill.models.registry import profile_at
from heavydistill.models.request import THINK
from heavydistill.models.resolve import ResolvedRun, resolve
from heavydistill.problems import OnChecked
from heavydistill.run import generate
from heavydistill.run.result import all_traces


@dataclass(frozen=True, slots=True)
class CrossingPlan:
    """A crossing whose runs have all been checked; input of ``crossed``."""

    place: ExperimentFolder
    asked: dict[str, generate.Plan]  # run with the first deliberator, by thinker name
    deliberators: dict[str, ResolvedRun]  # run with the first thinker, by deliberator name
    given: RunConfig  # configuration as given by the user

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Return the pairs (thinker, deliberator), in the order of the runs."""
        return [(thinker, reader) for thinker in self.asked for reader in self.deliberators]


def check(
    config: RunConfig,
    thinkers: Sequence[str],
    deliberators: Sequence[str],
    on_checked: OnChecked | None = None,
    contact: ServerProbe | None = None,
) -> CrossingPlan:
    """Check all runs of a crossing of these models with ``generate.check``.

    ``config`` names no models; ``on_checked`` is called for each thinker in turn.

    Raises:
        UserError: The user has to fix something; nothing was written.
    """
    given = [key for key in ("thinker", "deliberator", "pools") if getattr(config, key)]
    if given or not config.rounds:
        raise ConfigError(
            f"{given[0] if given else 'deliberate.d 0'} cannot be used in a crossing",
            "Leave it out; --thinkers and --deliberators name the models.",
        )
    for flag, named in (("--thinkers", thinkers), ("--deliberators", deliberators)):
        if not named:
            raise ConfigError(f"{flag} is empty", f"Write e.g. {flag} qwen3-8b,out/trained.")
    first = resolve(_of(config, thinkers[0], deliberators[0]), contact)
    config = config.model_copy(update={"domain": first.config.domain})
    place = ExperimentFolder.of(config, "crossing")
    # All models are resolved before the first request.
    readers = {
        name: resolve(_of(config, thinkers[0], model), contact)
        for name, model in _named(deliberators, config, "--deliberators").items()
    }
    first_reader, reader = next(iter(readers.items()))
    plans = {
        name: place.check(
            _of(config, model, reader.deliberator.name),
            _pair(name, first_reader),
            on_checked,
            contact,
        )
        for name, model in _named(thinkers, config, "--thinkers").items()
    }
    problems = next(iter(plans.values())).problems
    for each in list(readers.values())[1:]:
        generate.check_room(each, problems, asks=contact is not None)
    return CrossingPlan(place, plans, readers, config)


def crossed(plan: CrossingPlan, run_one: RunOne) -> Crossing:
    """Execute the runs and compute the table; raises the same errors as ``evaluation.evaluate``."""
    first_plan, first_reader = next(iter(plan.asked.values())), next(iter(plan.deliberators))
    runs = [*(each.run for each in plan.asked.values()), *plan.deliberators.values()]
    sampling: Samplings = {"thinking": {}, "deliberating": {}}
    with experiment(plan.place, runs, first_plan.contact, run_one) as made:
        for thinker, reader in plan.pairs:
            asking = plan.asked[thinker]
            if reader == first_reader:
                run = made.run(_pair(thinker, reader), asking).run
                sampling["thinking"][thinker] = run.in_stage(THINK).sampling.model_dump()
            else:
                config = reading_pools(
                    asking.config,
                    deliberator=plan.deliberators[reader].deliberator.name,
                    cache=plan.given.cache,
                    deliberate=plan.given.deliberate,
                )
                pools = _pair(thinker, first_reader)
                checked = made.check_on_pools(_pair(thinker, reader), config, pools)
                run = made.run(_pair(thinker, reader), checked).run
            sampling["deliberating"][reader] = run.deliberator.sampling.model_dump()
        config = first_plan.config
        traces = {pair: all_traces(made.folder / _pair(*pair)) for pair in plan.pairs}
        crossing = cross(traces, config.think.k, config.deliberate.d, config.rounds, sampling)
        write_versioned(crossing, made.folder / CROSSING)
    return crossing


def _of(config: RunConfig, thinker: str, deliberator: str) -> RunConfig:
    models = {"teacher": thinker, "thinker": thinker, "deliberator": deliberator}
    return config.model_copy(update=models)


def _named(models: Sequence[str], config: RunConfig, flag: str) -> dict[str, str]:
    """Return the models by the names of their profiles."""
    named: dict[str, str] = {}
    for model in models:
        name = profile_at(model, config.endpoint).name.replace("/", "--")
        if name in named:
            raise ConfigError(
                f"{flag}: {model} and {named[name]} are both called {name}",
                "Name each model once, and rename one of two folders with the same name.",
            )
        named[name] = model
    return named


def _pair(thinker: str, deliberator: str) -> str:
    return f"{thinker}+{deliberator}"
