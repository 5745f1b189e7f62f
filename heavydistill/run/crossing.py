"""Runs every thinker with every deliberator on the same problems.

The folder of a crossing, which appears under its name when all of it is there:

    THINKER+DELIBERATOR/    a run for each pair (see ``run``)
    crossing.json           see ``metrics.crossing``

A thinker is asked once: the run with the first deliberator has its pools, and those with the
others read them. What a configuration leaves open of sampling each model's profile fills in; the
wording is that of the first thinker's, for all.

Not covered: models of different servers in one crossing, as of any run.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heavydistill import problems as problem_sources
from heavydistill.config.run import RunConfig
from heavydistill.config.versioned import write_versioned
from heavydistill.errors import ConfigError
from heavydistill.metrics.crossing import CROSSING, Crossing, Samplings, cross
from heavydistill.models.contact import Contact
from heavydistill.models.registry import find
from heavydistill.models.resolve import ResolvedRun, resolve
from heavydistill.run import generate
from heavydistill.run.context_check import check_room
from heavydistill.run.evaluation import RunOne
from heavydistill.run.following import check_following, reading_pools
from heavydistill.run.result import all_traces
from heavydistill.store.atomic import new_folder, refuse_taken


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked crossing.

    Attributes:
        folder: Where it will be.
        journal: Where the responses of all its runs are kept.
        asked: For each thinker by name, the run that asks it.
        deliberators: All of them by name, in their order, each as it is asked with the first
            thinker.
        given: What the user said, for all of them.
    """

    folder: Path
    journal: Path
    asked: dict[str, generate.Plan]
    deliberators: dict[str, ResolvedRun]
    given: RunConfig

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """(thinker, deliberator), in the order in which they are run."""
        return [(thinker, reader) for thinker in self.asked for reader in self.deliberators]


def check(
    config: RunConfig,
    thinkers: Sequence[str],
    deliberators: Sequence[str],
    on_checked: problem_sources.OnChecked | None = None,
    contact: Contact | None = None,
) -> Plan:
    """Check the runs of a crossing, each as ``run.check`` does.

    Args:
        config: As the user gave it, without roles.
        thinkers: As a configuration names them.
        deliberators: Likewise.
        on_checked: As of ``run.check``, for one thinker after the other.
        contact: Asks the servers, as in ``run.check``; None sends nothing.

    Raises:
        UserError: Whatever a user can mend; nothing was written.
    """
    _refuse_roles(config)
    for flag, named in (("--thinkers", thinkers), ("--deliberators", deliberators)):
        if not named:
            raise ConfigError(f"{flag} names nobody", f"Write e.g. {flag} qwen3-8b,out/trained.")
    first = resolve(_of(config, thinkers[0], deliberators[0]), contact)
    config = config.model_copy(update={"domain": first.config.domain})
    folder = Path(config.out or f"runs/crossing-{time.strftime('%Y%m%d-%H%M%S')}")
    refuse_taken(folder)
    journal = Path(config.journal or folder.parent / "journal")
    # A mistake in the last one is found before the first is asked.
    readers = {
        name: resolve(_of(config, thinkers[0], asked), contact)
        for name, asked in _named(deliberators, config, "--deliberators").items()
    }
    first_reader = next(iter(readers))
    plans: dict[str, generate.Plan] = {}
    for name, asked in _named(thinkers, config, "--thinkers").items():
        places = {"out": str(folder / _pair(name, first_reader)), "journal": str(journal)}
        given = _of(config, asked, readers[first_reader].deliberator.name).model_copy(update=places)
        plans[name] = generate.check(given, on_checked=on_checked, contact=contact)
    problems = next(iter(plans.values())).problems
    for each in list(readers.values())[1:]:
        check_room(each, problems, asks=contact is not None)
    return Plan(folder, journal, plans, readers, config)


def crossed(plan: Plan, run_one: RunOne) -> Crossing:
    """Make the runs, and the table of them.

    Args:
        plan: From ``check``.
        run_one: ``run.run`` of the plan that it is given under the name of its folder, with
            whatever shows its progress.

    Raises:
        TeacherError: A server does not have a model; nothing was asked.
        RunError: As of ``run.run``. There is no folder, and what was answered is in the journal.
        KeyboardInterrupt: Likewise.
    """
    contact = next(iter(plan.asked.values())).contact or Contact()
    for asked in [*(each.run for each in plan.asked.values()), *plan.deliberators.values()]:
        if asked.asks_servers and not asked.config.endpoint.start_vllm:
            generate.require_endpoints(asked, contact)
    sampling: Samplings = {"thinking": {}, "deliberating": {}}
    with new_folder(plan.folder) as folder:
        for thinker, reader in plan.pairs:
            name = _pair(thinker, reader)
            each = _placed(plan, thinker, reader, folder)
            log = plan.folder.with_name(f"{plan.folder.name}.{name}.vllm.log")
            run_one(name, dataclasses.replace(each, server_log=log))
            if each.run.thinker:
                sampling["thinking"][thinker] = each.run.thinker.sampling.model_dump()
            sampling["deliberating"][reader] = each.run.deliberator.sampling.model_dump()
        config = next(iter(plan.asked.values())).config
        runs = {pair: all_traces(folder / _pair(*pair)) for pair in plan.pairs}
        k, d, rounds = config.think.k, config.deliberate.d, config.rounds
        crossing = cross(runs, k, d, rounds, sampling)
        write_versioned(crossing, folder / CROSSING)
    return crossing


def _placed(plan: Plan, thinker: str, reader: str, folder: Path) -> generate.Plan:
    """The plan of one run, written in this folder: the first asks, the others read its pools."""
    asking = plan.asked[thinker]
    first = next(iter(plan.deliberators))
    name = _pair(thinker, reader)
    if reader == first:
        return dataclasses.replace(asking, folder=folder / name)
    config = reading_pools(
        asking.config,
        deliberator=plan.deliberators[reader].deliberator.name,
        out=str(plan.folder / name),
        journal=str(plan.journal),
        cache=plan.given.cache,
        deliberate=plan.given.deliberate,
    )
    return check_following(config, _pair(thinker, first), plan.folder, folder)


def _of(config: RunConfig, thinker: str, deliberator: str) -> RunConfig:
    models = {"teacher": thinker, "thinker": thinker, "deliberator": deliberator}
    return config.model_copy(update=models)


def _named(models: Sequence[str], config: RunConfig, flag: str) -> dict[str, str]:
    """The models by the names of their profiles."""
    named: dict[str, str] = {}
    for model in models:
        name = find(model, config.endpoint).name.replace("/", "--")
        if name in named:
            raise ConfigError(
                f"{flag}: {model} and {named[name]} are both called {name}",
                "Name each model once, and rename a folder where two have the same name.",
            )
        named[name] = model
    return named


def _pair(thinker: str, deliberator: str) -> str:
    return f"{thinker}+{deliberator}"


def _refuse_roles(config: RunConfig) -> None:
    given = [key for key in ("thinker", "deliberator", "pools") if getattr(config, key)]
    if given or not config.rounds:
        raise ConfigError(
            f"{given[0] if given else 'deliberate.d 0'} has no place in a crossing",
            "Name the models with --thinkers and --deliberators, and let them deliberate.",
        )
