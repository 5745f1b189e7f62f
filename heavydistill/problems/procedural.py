"""Generates problems from families of reasoning-gym, in any number, reproducible by seed.

Families alternate, so that the first problems cover all families. The verifier generates each
problem again from its ``verifier_args``; families that it cannot judge are refused with the reason.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping
from typing import Any

from heavydistill.config.run import Problems
from heavydistill.errors import ProblemsError
from heavydistill.problems.rewriting import Rewrite
from heavydistill.problems.tables import choices
from heavydistill.schema import Problem
from heavydistill.verifiers.procedural.verifier import (
    Procedural,
    Spec,
    dataset,
    entry,
    reasoning_gym,
    refusal,
    template,
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

_LISTED = 40  # Templates that a message names
_ENOUGH = 1000  # Problems among which every template of a family occurs
_MOST_FOR_ONE = 500  # Problems that are looked at for each that has a template and is not left out
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


def gym_problems(
    families: list[str], config: Problems, rewrite: Rewrite | None = None
) -> tuple[list[Problem], int]:
    """Generate ``config.size`` problems of each family, alternating between the families.

    Returns (problems, number of problems that ``rewrite`` left out). Raises ProblemsError for a
    family, setting, value or template that reasoning-gym or the verifier does not accept, and if
    too few problems have the templates and pass ``rewrite``.
    """
    settings = {family: _settings(family, families, config) for family in families}
    for family in config.gym:
        if family not in settings:
            raise ProblemsError(
                f"problems.gym.{family} has no effect: the source does not name that family",
                choices(family, families, "Families of the source"),
            )
    if config.templates and len(families) > 1:
        raise ProblemsError(
            f"problems.templates is set for a source of {len(families)} families",
            "Name one family, because each has templates of its own.",
        )
    fitting = [_fitting(family, settings[family], config, rewrite) for family in families]
    turns = zip(*(problems for problems, _ in fitting), strict=True)
    problems = list(itertools.chain.from_iterable(turns))[: config.limit]
    return problems, sum(left_out for _, left_out in fitting)


def seeds_used(problems: Mapping[str, Any]) -> int:
    """Return how many seeds, from ``seed`` on, made problems with these keys of a configuration."""
    is_chosen = problems.get("templates") or problems.get("rewrite")
    return int(problems.get("size", 0)) * (_MOST_FOR_ONE if is_chosen else 1)


def _fitting(
    family: str, settings: str, config: Problems, rewrite: Rewrite | None
) -> tuple[list[Problem], int]:
    """Return the first problems of a family that have one of the templates and pass ``rewrite``,
    and how many did not pass.
    """
    wanted = {str(name) for name in config.templates or ()}
    _require_templates(wanted, Spec(family, config.seed, _ENOUGH, 0, settings))
    looked_at = config.size * (_MOST_FOR_ONE if wanted or rewrite else 1)
    size = min(config.size, config.limit or config.size)
    problems: list[Problem] = []
    left_out = 0
    for index in range(looked_at):
        spec = Spec(family, config.seed, looked_at, index, settings)
        if wanted and template(spec) not in wanted:
            continue
        problem: Problem | None = _problem(spec, "gym")
        if rewrite:
            facts = entry(spec)["metadata"] | {"template": template(spec)}
            problem = rewrite(_problem(spec, "gym"), facts)
        if problem:
            problems.append(problem)
        left_out += problem is None
        if len(problems) == size:
            return problems, left_out
    raise ProblemsError(
        f"Of the {looked_at:,} first problems of {family}, only {len(problems):,} have the "
        f"templates and pass problems.rewrite, which left out {left_out:,}",
        "Lower problems.size, give more templates, or let the plug-in pass more.",
    )


def _require_templates(wanted: set[str], first: Spec) -> None:
    """Raise ProblemsError if a family has no template of one of these names.

    ``first`` is the first problem of a dataset in which all templates occur.
    """
    there: dict[str, None] = {}
    for index in range(first.size):
        if wanted <= there.keys():
            return
        there[template(dataclasses.replace(first, index=index))] = None
    family, missing = first.family, min(wanted - there.keys())
    if "" in there:
        fix = "Leave problems.templates out."
        raise ProblemsError(f"The family {family} has no templates to choose from", fix)
    names = sorted(there, key=lambda name: (len(name), name))
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    raise ProblemsError(
        f"problems.templates: {family} has no template {missing!r}",
        f"Templates: {', '.join(names[:_LISTED])}{more}.",
    )


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
        source=":".join(filter(None, (source, name, template(spec)))),
    )
