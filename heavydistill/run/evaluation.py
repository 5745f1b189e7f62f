"""Runs a model, what it is compared with and its controls on the same problems, and compares them.

The folder of an evaluation, which appears under its name when all of it is there:

    before/            a run of the model that it is compared with (see ``run``), if there is one
    after/             a run of the models that are evaluated
    evaluation.json    see ``metrics.comparison``
    NAME/              a run for each control that is asked for, see ``controls``
    controls.json      see ``metrics.controls``, if there are any

The runs before and after are asked alike: what the configuration leaves open of prompts, sampling
and caches is what the profile of the model before says. A checkpoint has no profile, and with the
defaults for unknown models it would be asked another question than its base.

An evaluation that was broken off goes on when the same command is given again: what was answered is
in the journal, of a run that was finished too.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from heavydistill import problems as problem_sources
from heavydistill.config.run import RunConfig
from heavydistill.config.versioned import write_versioned
from heavydistill.errors import ConfigError
from heavydistill.metrics.comparison import COMPARISON, Comparison, compare, refuse_other_ways
from heavydistill.metrics.controls import CONTROLS, Controlled, hold_against
from heavydistill.models.contact import Contact
from heavydistill.models.resolve import ResolvedRun, resolve
from heavydistill.run import generate
from heavydistill.run.comparison import side_of
from heavydistill.run.controls import Control, controls_of
from heavydistill.run.following import check_following
from heavydistill.run.result import all_traces
from heavydistill.store.atomic import new_folder, refuse_taken

BEFORE, AFTER = "before", "after"
_RAN_BY = ("distilabel", "torch", "transformers")

RunOne = Callable[[str, generate.Plan], generate.Finished]


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked evaluation.

    Attributes:
        folder: Where it will be.
        journal: Where the responses of all its runs are kept.
        runs: ``BEFORE``, if there is one, and ``AFTER``, in the order in which they are made.
        controls: Made after them.
    """

    folder: Path
    journal: Path
    runs: dict[str, generate.Plan]
    controls: list[Control] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What came of an evaluation; ``controlled`` is None if no control was asked for."""

    comparison: Comparison
    controlled: Controlled | None


def check(
    config: RunConfig,
    before: str | None = None,
    controls: Collection[str] = (),
    orders: int = 1,
    on_checked: problem_sources.OnChecked | None = None,
    contact: Contact | None = None,
) -> Plan:
    """Check the runs of an evaluation, each as ``run.check`` does.

    Args:
        config: As the user gave it.
        before: The model that both roles are compared with; None makes one run alone.
        controls: Of ``metrics.controls.NAMES``.
        orders: In how many orders the caches of the run after are read.
        on_checked: As of ``run.check``, for one run after the other.
        contact: Asks the servers, as in ``run.check``; None sends nothing.

    Raises:
        UserError: Whatever a user can mend; nothing was written.
    """
    configs = {BEFORE: config, AFTER: config}
    if before is None:
        config.refuse_unnamed("--before BASE")
        del configs[BEFORE]
    else:
        configs[BEFORE], configs[AFTER] = paired(config, before, contact)
    name = Path(configs[AFTER].roles[1]).name
    folder = Path(config.out or f"runs/{name}-{time.strftime('%Y%m%d-%H%M%S')}")
    refuse_taken(folder)
    journal = Path(config.journal or folder.parent / "journal")
    runs = {}
    for which, each in configs.items():
        places = {"out": str(folder / which), "journal": str(journal)}
        plan = generate.check(
            each.model_copy(update=places), on_checked=on_checked, contact=contact
        )
        log = folder.with_name(f"{folder.name}.{which}.vllm.log")
        runs[which] = dataclasses.replace(plan, server_log=log)
    return Plan(folder, journal, runs, controls_of(runs[AFTER], controls, orders))


def paired(
    config: RunConfig, before: str, contact: Contact | None = None
) -> tuple[RunConfig, RunConfig]:
    """The configurations of the run before and of the one after, which differ in their models.

    What is left open is filled in for the model before and holds for both; so does that model
    itself for a role that nobody is named for.

    Args:
        config: As the user gave it.
        before: The model that both roles are compared with.
        contact: Asks the servers, as in ``run.check``; None sends nothing.

    Raises:
        UserError: As of ``models.resolve.resolve``; or the models are the same, or cannot be
            asked alike.
    """
    models = {"teacher": before, "thinker": None, "deliberator": None}
    before_run = resolve(config.model_copy(update=models), contact)
    first = before_run.config
    models |= {"thinker": config.thinker, "deliberator": config.deliberator}
    if "teacher" in config.model_fields_set:
        models["teacher"] = config.teacher
    alike = {
        key: getattr(first, key) for key in ("domain", "think", "cache", "deliberate", "judge")
    }
    second = config.model_copy(update=models | alike)
    if first.roles == second.roles:
        raise ConfigError(
            f"--before: {before} would be compared with itself",
            "Name what was trained with --thinker, --deliberator or both.",
        )
    after_run = resolve(second, contact)
    _refuse_other_switches(before_run, after_run)
    return first, after_run.config


def evaluate(plan: Plan, run_one: RunOne) -> Evaluated:
    """Make the runs of an evaluation, compare them, and write the folder.

    Args:
        plan: From ``check``.
        run_one: ``run.run`` of the plan that it is given under ``BEFORE``, ``AFTER`` or the name
            of a control, with whatever shows its progress.

    Raises:
        TeacherError: A server does not have a model; nothing was asked.
        RunError: As of ``run.run``. There is no folder, and what was answered is in the journal.
        KeyboardInterrupt: Likewise.
    """
    anew = [control.plan for control in plan.controls if control.plan]
    for each in [*plan.runs.values(), *anew]:
        if each.run.asks_servers and not each.server:
            generate.require_endpoints(each.run, each.contact or Contact())
    with new_folder(plan.folder) as folder:
        sides = {}
        for which, each in plan.runs.items():
            placed = dataclasses.replace(each, folder=folder / which)
            run_one(which, placed)
            sides[which] = side_of(placed.folder, which)
        if BEFORE in sides:
            refuse_other_ways(sides[BEFORE], sides[AFTER])
        comparison = compare(sides[AFTER], sides.get(BEFORE), _versions())
        write_versioned(comparison, folder / COMPARISON)
        controlled = _controlled(plan, run_one, folder) if plan.controls else None
    return Evaluated(comparison, controlled)


def _controlled(plan: Plan, run_one: RunOne, folder: Path) -> Controlled:
    """Make the controls in the folder, and hold the run after against them."""
    for control in plan.controls:
        if control.plan:
            each = dataclasses.replace(control.plan, folder=folder / control.name)
        else:
            places = {"out": str(plan.folder / control.name), "journal": str(plan.journal)}
            config = control.config.model_copy(update=places)
            each = check_following(config, AFTER, plan.folder, folder)
        log = plan.folder.with_name(f"{plan.folder.name}.{control.name}.vllm.log")
        run_one(control.name, dataclasses.replace(each, server_log=log))
    traces = {control.name: all_traces(folder / control.name) for control in plan.controls}
    rounds = plan.runs[AFTER].config.rounds
    controlled = hold_against(all_traces(folder / AFTER), rounds, traces)
    write_versioned(controlled, folder / CONTROLS)
    return controlled


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in _RAN_BY}


def _refuse_other_switches(before: ResolvedRun, after: ResolvedRun) -> None:
    """Switches of a model's thinking are sent with a request, and come from its profile alone."""
    base = before.deliberator.profile
    for model in filter(None, (after.thinker, after.deliberator)):
        if model.profile.extra_body != base.extra_body:
            raise ConfigError(
                f"--before: {base.name} is asked with {dict(base.extra_body)}, and {model.name} "
                f"with {dict(model.profile.extra_body)}, as their profiles say",
                f"Give {model.name} a YAML file with a profile that has the thinking of "
                f"{base.name}.",
            )
