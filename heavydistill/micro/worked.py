"""Worked solutions, written by program: what the micro models are trained to write.

Three families of reasoning-gym: ``chain_sum``, ``decimal_chain_sum`` and ``leg_counting``. Each
problem is unrolled into ``Step``s of one operation. A thinker's reasoning takes a whole step at
once (``57+87=144``), which a small model often gets wrong. A deliberator's reasoning lists the
answers of the attempts, restates what is given, derives it again step by step (where the values
in the attempts are evidence for each step, not for the answer alone), and names the attempts that
agree. Both end with the same hand-off: the running values and the boxed answer, so that a
deliberation can be read as an attempt in a next round.

Not covered: division, brackets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

FAMILIES = ("chain_sum", "decimal_chain_sum", "leg_counting")


@dataclass(frozen=True, slots=True)
class Step:
    """One operation ``left operator right``, operator in ``+ - *``."""

    left: Decimal
    operator: str
    right: Decimal

    @property
    def value(self) -> Decimal:
        if self.operator == "*":
            return self.left * self.right
        return self.left + self.right if self.operator == "+" else self.left - self.right

    def __str__(self) -> str:
        return f"{self.left}{self.operator}{self.right}"


@dataclass(frozen=True, slots=True)
class Worked:
    """The steps of one problem.

    Attributes:
        steps: In order of work.
        values: The running values that the hand-off names, the answer last.
    """

    steps: tuple[Step, ...]
    values: tuple[Decimal, ...]

    @property
    def answer(self) -> str:
        return str(self.values[-1])


def work(family: str, metadata: dict[str, Any]) -> Worked:
    """Unroll a problem of one of ``FAMILIES`` (reasoning-gym's metadata) into steps."""
    return _leg_counting(metadata) if family == "leg_counting" else _chain_sum(metadata)


def thinker_solution(worked: Worked) -> tuple[str, str]:
    """(reasoning, answer text) of a thinker: each step in one stride."""
    return "\n".join(f"{step}={step.value}" for step in worked.steps), hand_off(worked)


def deliberator_solution(worked: Worked, given: str, answers: Sequence[str]) -> tuple[str, str]:
    """(reasoning, answer text) of a deliberator that was shown ``answers``, in that order."""
    lines = [f"Answers: {' '.join(answers)}", f"Given: {given}"]
    lines += [f"{step}={step.value}" for step in worked.steps]
    lines += [agreement(worked.answer, answers)]
    return "\n".join(lines), hand_off(worked)


def agreement(answer: str, answers: Sequence[str]) -> str:
    """The line that names the attempts with this answer, counted from 1."""
    agreeing = [str(i) for i, other in enumerate(answers, 1) if other == answer]
    return f"Agree: {' '.join(agreeing) or 'none'}"


def hand_off(worked: Worked) -> str:
    """The answer text of both roles."""
    return f"Values: {' '.join(map(str, worked.values))}\nAnswer: \\boxed{{{worked.answer}}}"


def _chain_sum(metadata: dict[str, Any]) -> Worked:
    first, *rest = re.findall(r"([+-]?)\s*([\d.]+)", metadata["expression"])
    total, steps = Decimal(first[1]), []
    for operator, term in rest:
        steps.append(Step(total, operator, Decimal(term)))
        total = steps[-1].value
    return Worked(tuple(steps), tuple(step.value for step in steps))


def _leg_counting(metadata: dict[str, Any]) -> Worked:
    from reasoning_gym.arithmetic.leg_counting import ANIMALS

    steps: list[Step] = []
    values: list[Decimal] = []
    for animal, count in metadata["animals"].items():
        steps.append(Step(Decimal(count), "*", Decimal(ANIMALS[animal])))
        if values:
            steps.append(Step(values[-1], "+", steps[-1].value))
        values.append(steps[-1].value)
    return Worked(tuple(steps), tuple(values))
