"""Measures models beside what they are compared with and their controls, on the same problems.

The folder of an evaluation (see ``experiment``):

    before/            a run of the model that it is compared with, if there is one
    after/             a run of the models that are evaluated
    evaluation.json    see ``metrics.comparison``
    NAME/              a run for each control that is asked for, see ``controls``
    controls.json      see ``metrics.controls``, if there are any

The runs before and after are asked alike: what the configuration leaves open of prompts, sampling
and caches is what the profile of the model before says. A checkpoint has no profile, and with the
defaults for unknown models it would be asked another question than its base.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from heavydistill.config.run import RunConfig
from heavydistill.errors import ConfigError
from heavydistill.metrics.comparison import COMPARISON, Comparison, compare, refuse_other_ways
from heavydistill.metrics.controls import CONTROLS, Controlled, hold_against
from heavydistill.models.contact import Contact
from heavydistill.models.resolve import ResolvedRun, resolve
from heavydistill.problems import OnChecked
from heavydistill.run import generate
from heavydistill.run.comparison import side_of
from heavydistill.run.controls import ControlRun, controls_of
from heavydistill.run.experiment import ExperimentFolder, RunOne, experiment, place_of

BEFORE, AFTER = "before", "after"
_RAN_BY = ("distilabel", "torch", "transformers")


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """A checked evaluation."""

    place: ExperimentFolder
    runs: dict[str, generate.Plan]
    """``BEFORE``, if there is one, and ``AFTER``, in the order in which they are made."""
    controls: list[ControlRun] = field(default_factory=list)
    """Runs that are made after them."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What came of an evaluation."""

    comparison: Comparison
    controlled: Controlled | None
    """None if no control was asked for."""


def check(
    config: RunConfig,
    before: str | None = None,
    controls: Collection[str] = (),
    orders: int = 1,
    on_checked: OnChecked | None = None,
    contact: Contact | None = None,
) -> EvaluationPlan:
    """Check the runs of an evaluation, each as ``generate.check`` does.

    Args:
        config: Configuration as the user gave it.
        before: Model that both roles are compared with; None makes one run alone.
        controls: Names of ``metrics.controls.NAMES``.
        orders: Number of orders in which the caches of the run after are read.
        on_checked: As of ``generate.check``, for one run after the other.
        contact: Asks the servers, as in ``generate.check``; None sends nothing.

    Raises:
        UserError: Anything that the user can fix; nothing was written.
    """
    configs = {AFTER: config}
    if before is None:
        config.refuse_unnamed("--before BASE")
    else:
        configs = dict(zip((BEFORE, AFTER), paired(config, before, contact), strict=True))
    place = place_of(config, Path(configs[AFTER].roles[1]).name)
    runs = {which: place.check(each, which, on_checked, contact) for which, each in configs.items()}
    return EvaluationPlan(place, runs, controls_of(runs[AFTER], controls, orders))


def paired(
    config: RunConfig, before: str, contact: Contact | None = None
) -> tuple[RunConfig, RunConfig]:
    """The configurations of the run before and of the one after, which differ in their models.

    What is left open is filled in for the model before and holds for both; so does that model
    itself for a role that nobody is named for.

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


def evaluate(plan: EvaluationPlan, run_one: RunOne) -> Evaluated:
    """Make the runs of a plan from ``check``, compare them, and write the folder.

    Raises:
        TeacherError: A server does not have a model; nothing was asked.
        RunError: As of ``generate.run``. There is no folder, and what was answered is in the
            journal.
        KeyboardInterrupt: Likewise.
    """
    after = plan.runs[AFTER]
    asked = [*plan.runs.values(), *(control.plan for control in plan.controls if control.plan)]
    runs = [each.run for each in asked]
    with experiment(plan.place, runs, after.contact, run_one) as made:
        folders = {which: made.run(which, each).folder for which, each in plan.runs.items()}
        sides = {which: side_of(folder, which) for which, folder in folders.items()}
        if BEFORE in sides:
            refuse_other_ways(sides[BEFORE], sides[AFTER])
        versions = {name: importlib.metadata.version(name) for name in _RAN_BY}
        comparison = compare(sides[AFTER], sides.get(BEFORE), versions)
        made.write(comparison, COMPARISON)
        if not plan.controls:
            return Evaluated(comparison, None)
        for control in plan.controls:
            if control.plan:
                made.run(control.name, control.plan)
            else:
                made.run_on_pools(control.name, control.config, AFTER)
        traces = {control.name: made.traces(control.name) for control in plan.controls}
        controlled = hold_against(made.traces(AFTER), after.config.rounds, traces)
        made.write(controlled, CONTROLS)
        return Evaluated(comparison, controlled)


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
