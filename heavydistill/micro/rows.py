"""Training rows of the micro models: problems, prompts of the pipeline, worked solutions.

Problems come from reasoning-gym with seeds from ``TRAINING_SEEDS`` upwards. reasoning-gym seeds
item i of a dataset with ``seed + i``; seeds of evaluations and bundled problems are smaller.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from heavydistill.heavy import prompts
from heavydistill.heavy.cache import serialize
from heavydistill.micro.worked import (
    Worked,
    deliberator_solution,
    hand_off,
    judgement,
    thinker_solution,
    work,
)
from heavydistill.problems.procedural import MICRO_LEVELS

TRAINING_SEEDS = 10**12
PROMPT_DOMAIN = "brief"
MOST_ATTEMPTS = 12


@dataclass(frozen=True, slots=True)
class MicroRow:
    """One training example: a user turn, and the assistant's reasoning and answer text."""

    prompt: str
    reasoning: str
    answer_text: str


@dataclass(frozen=True, slots=True)
class MicroProblem:
    """A problem with its worked solution; ``given`` is a short form of the task."""

    text: str
    given: str
    worked: Worked


def problems(stream: int) -> Iterator[MicroProblem]:
    """An endless sequence of training problems, determined by the number ``stream``."""
    import reasoning_gym

    rng = random.Random(stream)
    chunk = 4096
    for turn in range(10**6):
        seed = TRAINING_SEEDS + stream * 10**9 + turn * chunk
        batch = [
            _problem(family, item)
            for family, level in MICRO_LEVELS.items()
            for item in reasoning_gym.create_dataset(family, size=chunk, seed=seed, **level)
        ]
        rng.shuffle(batch)
        yield from batch


def thinker_row(problem: MicroProblem) -> MicroRow:
    """A training row of the thinker: the problem, solved in large steps."""
    prompt = prompts.load("thinker", PROMPT_DOMAIN, "en")
    return MicroRow(prompts.thinker_prompt(problem.text, prompt), *thinker_solution(problem.worked))


def deliberator_row(problem: MicroProblem, attempts: Sequence[tuple[str, str]]) -> MicroRow:
    """A training row of the deliberator, for a cache of (answer text, answer) attempts."""
    answers = [answer for _, answer in attempts]
    solution = deliberator_solution(problem.worked, problem.given, answers)
    return MicroRow(_cache_prompt(problem, attempts), *solution)


def restating_row(
    problem: MicroProblem, attempts: Sequence[tuple[str, str]], rng: random.Random
) -> MicroRow:
    """A row that teaches the base student the format of a deliberation by repeating one attempt."""
    text, answer = rng.choice(attempts)
    reasoning = judgement(answer, [other for _, other in attempts])
    return MicroRow(_cache_prompt(problem, attempts), reasoning, text)


def invented_attempts(
    problem: MicroProblem, count: int, rng: random.Random
) -> list[tuple[str, str]]:
    """Attempts with artificial errors, used until a model can write attempts itself.

    An error shifts one intermediate value and all later ones.
    """
    slip_rate, attempts = rng.random(), []
    unit = Decimal(1).scaleb(int(problem.worked.values[-1].as_tuple().exponent))
    for _ in range(count):
        values = list(problem.worked.values)
        if rng.random() < slip_rate:
            first = rng.randrange(len(values))
            slip = unit * rng.choice((-1, 1)) * rng.choice((1, 1, 2, 3, 5, 10, 10, 20, 100))
            values[first:] = [value + slip for value in values[first:]]
        worked = Worked(problem.worked.steps, tuple(values))
        attempts.append((hand_off(worked), worked.answer))
    return attempts


def attempt_count(rng: random.Random) -> int:
    """A random number of attempts: mostly 8, otherwise 2 to ``MOST_ATTEMPTS``."""
    return 8 if rng.random() < 0.6 else rng.randint(2, MOST_ATTEMPTS)


def _problem(family: str, item: dict[str, Any]) -> MicroProblem:
    worked = work(family, item["metadata"])
    if family == "leg_counting":
        given = ", ".join(str(step) for step in worked.steps if step.operator == "*")
    else:
        given = item["metadata"]["expression"]
    return MicroProblem(item["question"].strip(), given, worked)


def _cache_prompt(problem: MicroProblem, attempts: Sequence[tuple[str, str]]) -> str:
    prompt = prompts.load("deliberator", PROMPT_DOMAIN, "en")
    return serialize(problem.text, [text for text, _ in attempts], prompt)
