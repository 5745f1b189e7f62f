"""Generates problems from families of reasoning-gym, in any number, reproducible by seed.

Families alternate, so that the first problems cover all families. The verifier generates each
problem again from its ``verifier_args``; families that it cannot judge are refused with the reason.
"""

from __future__ import annotations

import dataclasses
import json

from heavydistill.config.run import Problems
from heavydistill.errors import ProblemsError
from heavydistill.problems.tables import choices
from heavydistill.schema import Problem
from heavydistill.verifiers.procedural.verifier import (
    Procedural,
    Spec,
    dataset,
    entry,
    reasoning_gym,
    refusal,
)

# Families and settings of the source ``micro``, on which the bundled models were trained.
MICRO_LEVELS: dict[str, dict[str, object]] = {
    "chain_sum": {"min_terms": 5, "max_terms": 8, "min_digits": 2, "max_digits": 2},
    "decimal_chain_sum": {
        "min_terms": 5,
        "max_terms": 8,
        "min_digits": 1,
        "max_digits": 1,
        "min_decimal_places": 1,
        "max_decimal_places": 1,
    },
    "leg_counting": {"min_animals": 4, "max_animals": 6},
}
MICRO_MODELS = frozenset({"micro", "micro-student"})
"""Names of the bundled models."""
_MICRO_TEXTS = (  # beginnings of the problems of ``MICRO_LEVELS``
    "State the final answer to the following arithmetic problem:",
    "Your task is to count how many legs there are in total",
)

_INSTEAD = (
    "Take e.g. chain_sum, gcd, lcm, number_sequence, products, letter_counting, number_sorting "
    "or calendar_arithmetic."
)


def micro_problems(config: Problems) -> list[Problem]:
    """Generate ``config.size`` problems in total, alternating families of ``MICRO_LEVELS``."""
    families = list(MICRO_LEVELS)
    specs = [
        Spec(family, config.seed, size, index, json.dumps(MICRO_LEVELS[family], sort_keys=True))
        for index in range(config.size)
        for offset, family in enumerate(families)
        if index < (size := (config.size - offset + len(families) - 1) // len(families))
    ]
    return [_problem(spec, "micro") for spec in specs[: config.limit]]


def is_micro(problem: Problem) -> bool:
    """Whether the bundled models were trained on problems of this form."""
    return problem.text.startswith(_MICRO_TEXTS)


def gym_problems(families: list[str], config: Problems) -> list[Problem]:
    """Generate ``config.size`` problems of each family, alternating between the families.

    Raises ProblemsError for a family, setting or value that reasoning-gym or the verifier does not
    accept.
    """
    settings = {family: _settings(family, families, config) for family in families}
    for family in config.gym:
        if family not in settings:
            raise ProblemsError(
                f"problems.gym.{family} has no effect: the source does not name that family",
                choices(family, families, "Families of the source"),
            )
    specs = [
        Spec(family, config.seed, config.size, index, settings[family])
        for index in range(config.size)
        for family in families
    ]
    return [_problem(spec, "gym") for spec in specs[: config.limit]]


def _settings(family: str, families: list[str], config: Problems) -> str:
    """Check the settings of a family and return them as JSON."""
    known = reasoning_gym().factory.DATASETS
    if family not in known:
        fit = [name for name in sorted(known) if not refusal(name)]
        raise ProblemsError(f"There is no family {family!r}", choices(family, fit, "Families"))
    if families.count(family) > 1:
        raise ProblemsError(f"The source names {family} twice", "Name each family once.")
    reason = refusal(family)
    if reason:
        raise ProblemsError(f"The family {family} cannot be judged: {reason}", _INSTEAD)
    chosen = config.gym.get(family, {})
    keys = [field.name for field in dataclasses.fields(known[family][1])]
    own = [key for key in keys if key not in ("seed", "size")]
    for key in chosen:
        if key not in own:
            fix = f"Set problems.{key}." if key in keys else choices(key, own, "Settings")
            raise ProblemsError(f"problems.gym.{family}.{key}: there is no such setting", fix)
    try:
        settings = json.dumps(chosen, sort_keys=True)
        dataset(family, config.seed, config.size, settings)
    except Exception as error:
        # reasoning-gym checks values with assertions; wrong types may raise anything.
        raise ProblemsError(
            f"problems.gym.{family}: {type(error).__name__}: {error}", "Correct the settings."
        ) from error
    return settings


def _problem(spec: Spec, source: str) -> Problem:
    name = f"{spec.family}:{spec.seed}:{spec.index}"
    try:
        item = entry(spec)
    except Exception as error:
        raise ProblemsError(
            f"{name} cannot be made: {type(error).__name__}: {error}",
            f"Change problems.gym.{spec.family} or problems.seed.",
        ) from error
    if not item["answer"].strip():
        raise ProblemsError(f"{name} has an empty answer", f"Change problems.gym.{spec.family}.")
    return Problem(
        id=name,
        text=item["question"].strip(),
        reference=item["answer"],
        verifier=Procedural.name,
        verifier_args=spec.to_args(),
        source=f"{source}:{name}",
    )
