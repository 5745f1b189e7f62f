r"""The verifier ``procedural``: problems of reasoning-gym, judged by the rules of their family.

``verifier_args`` record how the problem was generated (``Spec``), and the verifier generates it
again. If the result differs from the row, the verdict is undecided (``not_reproduced``). The final
answer is the last balanced ``\boxed{...}``, and ``families`` judges it: only a score of exactly 1
is correct. If the right answer is a decimal, an equal decimal is correct in all families
(``1{,}234`` for ``1234``). Model-written text is never executed.

Verdicts, by reason: those of ``families``; incorrect ``no_answer``; undecided ``unfit_family``,
``not_reproduced``, ``too_complex`` and, if a scorer crashes, ``verifier_error:TYPE``.

The verifier and ``problems.load`` refuse families without a single right answer, and families that
generate different problems in different processes (measured with reasoning-gym 0.1.25).
"""

from __future__ import annotations

import dataclasses
import decimal
import importlib
import json
import warnings
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from typing import Any

from heavydistill.config.run import Verifying
from heavydistill.schema import Problem
from heavydistill.text.extraction import boxed
from heavydistill.verifiers.base import Decision, Verifier, error_evidence, error_reason
from heavydistill.verifiers.normal import plain_decimal, without_text_macro

MOST_CHARACTERS = 10_000
MOST_STEPS_TO_DIE = 3
# Version; raise it whenever a change of ``families`` changes a verdict.
_REVISION = 5
_WITHOUT_ANSWER = "boxnet graph_color propositional_logic rubiks_cube rush_hour"
_NOT_REPEATABLE = (
    "codeio isomorphic_strings knight_swap list_functions polynomial_multiplication ransom_note "
    "word_ladder"
)
_UNFIT_FAMILIES: dict[str, str] = {
    "composite": "it mixes families; name those that it is to contain",
    **dict.fromkeys(_WITHOUT_ANSWER.split(), "it has no reference to compare with"),
    **dict.fromkeys(
        _NOT_REPEATABLE.split(), "the same seed gives other problems in another process"
    ),
}
# Keys of the metadata with the kind of a problem, in families that have several.
_TEMPLATES = ("task_type", "task_name", "task", "problem_type", "pool_type", "type")


@dataclass(frozen=True, slots=True)
class Spec:
    """How to generate a procedural problem."""

    family: str  # name of a dataset of reasoning-gym
    seed: int  # seed of the dataset; item i is made with ``seed + i``
    size: int  # size of the dataset; it changes the items of a few families
    index: int  # index of the item, from 0
    settings: str  # JSON object: the other fields of the dataset's configuration

    def to_args(self) -> str:
        """Convert the spec to the ``verifier_args`` of its problem."""
        fields = dataclasses.asdict(self) | {"settings": json.loads(self.settings)}
        return json.dumps(fields, ensure_ascii=False)

    @classmethod
    def from_args(cls, verifier_args: str) -> Spec:
        """Read a spec from ``verifier_args``. Raises ValueError if the arguments are malformed."""
        fields = json.loads(verifier_args)
        wanted = {"family": str, "seed": int, "size": int, "index": int, "settings": dict}
        if (
            not isinstance(fields, dict)
            or fields.keys() != wanted.keys()
            or any(type(fields[key]) is not kind for key, kind in wanted.items())
            or not 0 <= fields["index"] < fields["size"]
        ):
            raise ValueError(
                "verifier_args of procedural take family, seed, size, index (below size) and "
                f"settings (an object), not {verifier_args}"
            )
        settings = json.dumps(fields.pop("settings"), sort_keys=True)
        return cls(**fields, settings=settings)


def refusal(family: str) -> str | None:
    """Why problems of a family cannot be judged; None if they can, or the family does not exist."""
    return _UNFIT_FAMILIES.get(family)


def reasoning_gym() -> Any:
    """Import reasoning-gym without the warnings of its dependencies."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        return importlib.import_module("reasoning_gym")


@lru_cache(maxsize=256)
def dataset(family: str, seed: int, size: int, settings: str) -> Any:
    """Create a reasoning-gym dataset. Raises whatever reasoning-gym raises for bad settings."""
    return reasoning_gym().create_dataset(family, seed=seed, size=size, **json.loads(settings))


@lru_cache(maxsize=4096)
def entry(spec: Spec) -> dict[str, Any]:
    """Generate the problem of a spec: its ``question``, ``answer`` and ``metadata``.

    Raises:
        ValueError: The reference could be wrong, or the question is incomplete.
        Exception: Whatever reasoning-gym raises.
    """
    # Generating decimals depends on the decimal precision of the thread, and changes it.
    with decimal.localcontext(decimal.DefaultContext):
        item: dict[str, Any] = dataset(spec.family, spec.seed, spec.size, spec.settings)[spec.index]
    if spec.family == "intermediate_integration":
        # The answers of this family differ between processes, and one in eight is not a formula.
        integrand, variable = item["metadata"]["integrand"], item["metadata"]["variable"]
        item["answer"] = f"Integral({integrand}, {variable}) + C"
    if spec.family == "game_of_life_halting":
        # The reference is right only if there are enough steps for all patterns that die out.
        if item["metadata"]["simulation_steps"] < MOST_STEPS_TO_DIE:
            raise ValueError(f"max_simulation_steps must be {MOST_STEPS_TO_DIE} or more")
        if "..." in item["question"]:
            raise ValueError("numpy prints only a part of a grid this large; choose a smaller one")
    return item


def template(spec: Spec) -> str:
    """Name of the template that the problem of a spec is made from; empty if its family has none.

    Raises as ``entry``.
    """
    if spec.family == "gsm_symbolic":
        numbers = dataset(spec.family, spec.seed, spec.size, spec.settings).task_indices
        return str(numbers[spec.index])
    facts = entry(spec)["metadata"]
    return next((facts[key] for key in _TEMPLATES if isinstance(facts.get(key), str)), "")


class Procedural(Verifier):
    """The verifier ``procedural``, described in this module's docstring."""

    name = "procedural"
    version = f"reasoning-gym-{metadata.version('reasoning-gym')}+{_REVISION}"
    accepts_others = True

    def extract(self, problem: Problem, text: str) -> str | Decision:
        return boxed(text) or Decision("incorrect", "no_answer")

    def decide(self, problem: Problem, candidate: str) -> Decision:
        from heavydistill.verifiers.procedural.families import judge  # imports sympy

        spec = Spec.from_args(problem.verifier_args)
        given = without_text_macro(candidate)
        if len(given) > MOST_CHARACTERS:
            return Decision("undecided", "too_complex", given)
        number = plain_decimal(given)
        if refusal(spec.family):
            return Decision("undecided", "unfit_family", number or given)
        if not _is_made_again(problem, spec):
            return Decision("undecided", "not_reproduced", number or given)
        if number and plain_decimal(problem.reference) == number:
            return Decision("correct", "scored", number)
        made = dataset(spec.family, spec.seed, spec.size, spec.settings)
        try:
            with decimal.localcontext(decimal.DefaultContext):
                decision = judge(spec.family, made, entry(spec), given)
        except Exception as error:
            evidence = error_evidence(error, self)
            return Decision("undecided", error_reason(error), number or given, evidence=evidence)
        return dataclasses.replace(decision, extracted=number) if number else decision

    def prepare(self, config: Verifying) -> None:
        reasoning_gym()

    def check_reference(self, problem: Problem) -> str | None:
        try:
            spec = Spec.from_args(problem.verifier_args)
            reason = refusal(spec.family)
            if reason:
                return f"problems of {spec.family} are refused: {reason}; leave it out"
            made_again = _is_made_again(problem, spec)
        except Exception as error:
            return f"the problem cannot be made again ({type(error).__name__}: {error})"
        if made_again:
            return None
        return (
            f"reasoning-gym {metadata.version('reasoning-gym')} makes another problem of these "
            "verifier_args; take the problems from a gym: source instead"
        )


def _is_made_again(problem: Problem, spec: Spec) -> bool:
    item = entry(spec)
    return bool(item["question"].strip() == problem.text and item["answer"] == problem.reference)
