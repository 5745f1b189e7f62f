"""Generates the worked solutions that the micro models are trained to write.

Three families of reasoning-gym are supported: ``chain_sum``, ``decimal_chain_sum`` and
``leg_counting``. Each problem is divided into ``Step``s of one operation. A thinker computes a step
at once (``57+87=144``), which a small model often gets wrong. A deliberator restates the task,
derives it again column by column (``57+87: 7+7=14, 5+8+1=14: 144``), and compares each attempt with
its own result. Both end with the intermediate values and the boxed answer, so that a deliberation
can be an attempt in the next round.

Not covered: division, brackets, terms below zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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
    """A problem divided into steps."""

    steps: tuple[Step, ...]  # Steps in order
    values: tuple[Decimal, ...]  # Intermediate values in the answer text, the answer last

    @property
    def answer(self) -> str:
        return str(self.values[-1])


def work(family: str, metadata: dict[str, Any]) -> Worked:
    """Divide a problem of one of ``FAMILIES`` into steps, by reasoning-gym's metadata."""
    steps: list[Step] = []
    if family != "leg_counting":
        first, *rest = re.findall(r"([+-]?)\s*([\d.]+)", metadata["expression"])
        total = Decimal(first[1])
        for operator, term in rest:
            steps.append(Step(total, operator, Decimal(term)))
            total = steps[-1].value
        return Worked(tuple(steps), tuple(step.value for step in steps))
    from reasoning_gym.arithmetic.leg_counting import ANIMALS

    values: list[Decimal] = []
    for animal, count in metadata["animals"].items():
        steps.append(Step(Decimal(count), "*", Decimal(ANIMALS[animal])))
        if values:
            steps.append(Step(values[-1], "+", steps[-1].value))
        values.append(steps[-1].value)
    return Worked(tuple(steps), tuple(values))


def thinker_solution(worked: Worked) -> tuple[str, str]:
    """(reasoning, answer text) of a thinker, which computes each step at once."""
    return "\n".join(f"{step}={step.value}" for step in worked.steps), hand_off(worked)


def deliberator_solution(worked: Worked, given: str, answers: Sequence[str]) -> tuple[str, str]:
    """(reasoning, answer text) of a deliberator that saw ``answers`` in this order."""
    lines = [f"Given: {given}", *map(careful, worked.steps), judgement(worked.answer, answers)]
    return "\n".join(lines), hand_off(worked)


def judgement(found: str, answers: Sequence[str]) -> str:
    """One line per attempt: whether its answer equals ``found``."""
    return "\n".join(
        f"Attempt {number}: {answer} {'right' if answer == found else 'wrong'}"
        for number, answer in enumerate(answers, 1)
    )


def careful(step: Step) -> str:
    """Write one step by columns of digits, the last column first; a product is not split.

    In a difference, a column borrows ten if its upper digit is too small. For negative numbers, the
    equivalent positive operation is written: ``12-45: -(45-12): 5-2=3, 4-1=3: -33``.
    """
    if step.operator == "*":
        return f"{step}={step.value}"
    right = step.right if step.operator == "+" else -step.right
    adds = (step.left < 0) == (right < 0)
    sizes = (abs(step.left), abs(right))
    upper, lower = sizes if adds else (max(sizes), min(sizes))
    worked_out = f"{upper}{'+' if adds else '-'}{lower}"
    if step.value < 0:
        worked_out = f"-({worked_out})"
    named = "" if worked_out == str(step) else f" {worked_out}:"
    return f"{step}:{named} {', '.join(_columns(upper, lower, adds))}: {step.value}"


def _columns(upper: Decimal, lower: Decimal, adds: bool) -> Iterator[str]:
    """Yield the columns of a sum or difference of two numbers with equally many decimals."""
    digits = [str(number).replace(".", "") for number in (upper, lower)]
    width = max(map(len, digits))
    over = 0
    for a, b in zip(*(map(int, reversed(text.zfill(width))) for text in digits), strict=True):
        if adds:
            yield f"{a}+{b}{'+1' if over else ''}={a + b + over}"
            over = int(a + b + over > 9)
        else:
            borrowed = int(a < b + over)
            top = a + 10 * borrowed
            yield f"{top}-{b}{'-1' if over else ''}={top - b - over}"
            over = borrowed


def hand_off(worked: Worked) -> str:
    """The answer text of both roles: the intermediate values and the boxed answer."""
    return f"Values: {' '.join(map(str, worked.values))}\nAnswer: \\boxed{{{worked.answer}}}"
