"""Generates the worked solutions that the micro models are trained to write.

Three families of reasoning-gym are supported: ``chain_sum``, ``decimal_chain_sum`` and
``leg_counting``. A solution multiplies where there is something to multiply, and then adds up, one
running total after the other: ``57 +87=144 -22=122``. A thinker computes each value at once and
sometimes forgets a carry or a borrow (``57 +87=134``), at random, so that its attempts err in
different steps. A deliberator writes the same steps, but reads each of them in the attempts that
have the same operands there:

1. It takes over a value on which at least two attempts agree.
2. It computes a value again, with care, if attempts differ, or if a single attempt differs from
   its own computation.
3. It computes a value alone, and slips as often as a thinker, if no attempt has this step.

Then it subtracts its answer from that of each attempt, and judges the attempt by the difference:
a model of this size learns to compare numbers in no other way that was tried. Both roles repeat the
steps in their answer text, so that a deliberation can be an attempt in the next round.

Not covered: division, brackets, terms below zero.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

FAMILIES = ("chain_sum", "decimal_chain_sum", "leg_counting")


@dataclass(frozen=True, slots=True)
class MicroTask:
    """What a problem asks for: products to be added, or signed terms to be added."""

    products: tuple[tuple[Decimal, Decimal], ...]  # (count, legs); empty for sums of given terms
    terms: tuple[Decimal, ...]  # signed; empty for sums of products


@dataclass(frozen=True, slots=True)
class Worked:
    """A worked solution: the value of each product, the terms, and the running total after each
    term from the second."""

    task: MicroTask
    values: tuple[Decimal, ...]
    totals: tuple[Decimal, ...]

    @property
    def terms(self) -> tuple[Decimal, ...]:
        return self.task.terms or self.values

    @property
    def answer(self) -> str:
        return str(self.totals[-1])

    @property
    def steps(self) -> str:
        """All steps as text; the last number is the answer."""
        first, *rest = self.terms
        chain = [str(first)]
        for term, total in zip(rest, self.totals, strict=True):
            chain.append(f"{'-' if term < 0 else '+'}{abs(term)}={total}")
        line = " ".join(chain)
        if not self.values:
            return line
        products = zip(self.task.products, self.values, strict=True)
        return " ".join(f"{a}*{b}={value}" for (a, b), value in products) + "\n" + line


def read_task(family: str, metadata: dict[str, Any]) -> MicroTask:
    """The task of a problem of one of ``FAMILIES``, by reasoning-gym's metadata."""
    if family != "leg_counting":
        terms = re.findall(r"([+-]?)\s*([\d.]+)", metadata["expression"])
        return MicroTask((), tuple(Decimal(sign + number) for sign, number in terms))
    from reasoning_gym.arithmetic.leg_counting import ANIMALS

    return MicroTask(
        tuple((Decimal(n), Decimal(ANIMALS[name])) for name, n in metadata["animals"].items()), ()
    )


def solve(
    task: MicroTask,
    rng: random.Random | None = None,
    slip_rate: float = 0.0,
    attempts: Sequence[Worked] = (),
) -> Worked:
    """Work out a task step by step.

    Args:
        task: The task.
        rng: Source of the slips; may be None if ``slip_rate`` is 0.
        slip_rate: Probability of forgetting each carry or borrow; a product misses one factor with
            half this probability.
        attempts: Attempts that are read at each step, see the module's docstring.
    """
    rng = rng or random.Random(0)
    values: list[Decimal] = []
    for place, (count, legs) in enumerate(task.products):
        slips = legs > 0 and rng.random() < slip_rate / 2
        own = (count - slips) * legs
        read = [attempt.values[place] for attempt in attempts]
        values.append(_compare(count * legs, own, read))
    terms = task.terms or tuple(values)
    totals = [terms[0]]
    for place, term in enumerate(terms[1:]):
        own_total = _add(totals[-1], term, rng, slip_rate)
        read = [
            attempt.totals[place]
            for attempt in attempts
            if (attempt.totals[place - 1] if place else attempt.terms[0]) == totals[-1]
            and attempt.terms[place + 1] == term
        ]
        totals.append(_compare(totals[-1] + term, own_total, read))
    return Worked(task, tuple(values), tuple(totals[1:]))


def thinker_solution(worked: Worked) -> tuple[str, str]:
    """(reasoning, answer text) of a thinker."""
    return worked.steps, answer_of(worked)


def deliberator_solution(worked: Worked, answers: Sequence[str]) -> tuple[str, str]:
    """(reasoning, answer text) of a deliberator that saw ``answers`` in this order."""
    return "\n".join([worked.steps, *judgement(worked.answer, answers)]), answer_of(worked)


def judgement(found: str, answers: Sequence[str]) -> list[str]:
    """One line per attempt: the difference of its answer to ``found``, and right if that is 0."""
    lines = []
    for number, answer in enumerate(answers, 1):
        difference = Decimal(answer) - Decimal(found)
        subtracted = f"-{found}" if Decimal(found) >= 0 else f"+{found[1:]}"
        judged = "wrong" if difference else "right"
        lines.append(f"Attempt {number}: {answer} {subtracted}={difference} {judged}")
    return lines


def answer_of(worked: Worked) -> str:
    """The answer text of both roles: the steps and the boxed answer."""
    return f"{worked.steps}\nAnswer: \\boxed{{{worked.answer}}}"


def _compare(true: Decimal, own: Decimal, read: Sequence[Decimal]) -> Decimal:
    """The value of a step that the attempts have as ``read``; see the module's docstring."""
    values = {*read} if len(read) > 1 else {*read, own}
    return values.pop() if len(values) == 1 else true


def _add(total: Decimal, term: Decimal, rng: random.Random, slip_rate: float) -> Decimal:
    """``total + term`` by columns of digits, each carry or borrow forgotten at ``slip_rate``."""
    exponent = min(int(total.as_tuple().exponent), int(term.as_tuple().exponent))
    left, right = (int(number.scaleb(-exponent)) for number in (total, term))
    adds = (left < 0) == (right < 0)
    upper, lower = sorted((abs(left), abs(right)), reverse=True)
    result = over = 0
    place = 1
    while upper or lower or over:
        column = upper % 10 + (lower % 10 + over if adds else -(lower % 10) - over)
        over = int(not 0 <= column <= 9)
        result += column % 10 * place
        if over and rng.random() < slip_rate:
            over = 0
        upper, lower, place = upper // 10, lower // 10, place * 10
    return Decimal(-result if left + right < 0 else result).scaleb(exponent)
