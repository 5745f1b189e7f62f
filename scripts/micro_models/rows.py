"""Training rows of the micro models: problems, prompts of the pipeline, worked solutions.

Problems come from reasoning-gym with seeds from ``TRAINING_SEEDS`` upwards. reasoning-gym seeds
item i of a dataset with ``seed + i``; seeds of evaluations and bundled problems are smaller.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from micro_models.worked import (
    MicroTask,
    Worked,
    answer_of,
    deliberator_solution,
    read_task,
    solve,
    thinker_solution,
)

from heavydistill.heavy import prompts
from heavydistill.heavy.cache import serialize
from heavydistill.problems.procedural import MICRO_LEVELS
from heavydistill.text.extraction import boxed

TRAINING_SEEDS = 10**12
PROMPT_DOMAIN = "brief"
MOST_ATTEMPTS = 12
_MANY = 50  # draws after which two numbers may become the same
# Longer problems of the same families, with more arithmetic for each token.
LONG_LEVELS: dict[str, dict[str, Any]] = {
    family: level
    | (
        {"min_animals": 8, "max_animals": 14}
        if family == "leg_counting"
        else {"min_terms": 16, "max_terms": 28}
    )
    for family, level in MICRO_LEVELS.items()
}


@dataclass(frozen=True, slots=True)
class MicroRow:
    """One training example: a user turn, and the assistant's reasoning and answer text."""

    prompt: str
    reasoning: str
    answer_text: str


@dataclass(frozen=True, slots=True)
class MicroProblem:
    """A problem and its task."""

    text: str
    task: MicroTask


def problems(
    stream: int, levels: Mapping[str, Mapping[str, Any]] = MICRO_LEVELS
) -> Iterator[MicroProblem]:
    """An endless sequence of training problems, determined by the number ``stream``."""
    import reasoning_gym

    rng = random.Random(stream)
    chunk = 4096
    for turn in range(10**6):
        seed = TRAINING_SEEDS + stream * 10**9 + turn * chunk
        batch = [
            _problem(family, item)
            for family, level in levels.items()
            for item in reasoning_gym.create_dataset(family, size=chunk, seed=seed, **level)
        ]
        rng.shuffle(batch)
        yield from batch


def thinker_prompt(problem: MicroProblem) -> str:
    """The prompt of a thinker, as the pipeline words it."""
    return prompts.thinker_prompt(problem.text, prompts.load("thinker", PROMPT_DOMAIN, "en"))


def cache_prompt(problem: MicroProblem, attempts: Sequence[str]) -> str:
    """The prompt of a deliberator on these attempts, as the pipeline words it."""
    return serialize(problem.text, attempts, prompts.load("deliberator", PROMPT_DOMAIN, "en"))


def thinker_row(problem: MicroProblem, slip_rate: float, rng: random.Random) -> MicroRow:
    """A training row of a thinker that forgets a carry at ``slip_rate``."""
    return MicroRow(thinker_prompt(problem), *thinker_solution(solve(problem.task, rng, slip_rate)))


def long_row(problem: MicroProblem, slip_rate: float, rng: random.Random) -> MicroRow:
    """A row that teaches arithmetic: the steps of a long problem, and the answer alone."""
    worked = solve(problem.task, rng, slip_rate)
    return MicroRow(thinker_prompt(problem), worked.steps, f"Answer: \\boxed{{{worked.answer}}}")


def deliberator_row(
    problem: MicroProblem, attempts: Sequence[Worked], slip_rate: float, rng: random.Random
) -> MicroRow:
    """A training row of the deliberator, on a cache of these attempts."""
    worked = solve(problem.task, rng, slip_rate, attempts)
    return _deliberation(problem, worked, list(map(answer_of, attempts)))


def garbled_row(
    problem: MicroProblem, attempts: Sequence[Worked], slip_rate: float, rng: random.Random
) -> MicroRow:
    """A row on attempts whose numbers are all replaced: the deliberator is on its own."""
    worked = solve(problem.task, rng, slip_rate)
    garbled = with_other_numbers(list(map(answer_of, attempts)), str(rng.random()))
    return _deliberation(problem, worked, garbled)


def with_other_numbers(attempts: Sequence[str], seed: str) -> list[str]:
    """Attempts in which each number is another one of as many digits, the same at each place.

    Steps do not come out right any more. No control of `heavydistill evaluate` garbles like this,
    so that none of them measures what was trained.
    """
    return [_garbled(text, random.Random(f"{seed}\x1f{n}")) for n, text in enumerate(attempts)]


def _garbled(text: str, rng: random.Random) -> str:
    new: dict[str, str] = {}

    def other(found: re.Match[str]) -> str:
        old, turn = found[0], 0
        while old not in new:
            drawn = "0" if old[0] == "0" and len(old) > 1 else rng.choice("123456789")
            drawn += "".join(c if c == "." else rng.choice("0123456789") for c in old[1:])
            if drawn != old and (drawn not in new.values() or turn > _MANY):
                new[old] = drawn
            turn += 1
        return new[old]

    return re.sub(r"\d+(?:\.\d+)?", other, text)


def restating_row(
    problem: MicroProblem, attempts: Sequence[Worked], rng: random.Random
) -> MicroRow:
    """A row of the base student, whose deliberation repeats one attempt."""
    return _deliberation(problem, rng.choice(attempts), list(map(answer_of, attempts)))


def attempt_count(rng: random.Random, most: int = MOST_ATTEMPTS) -> int:
    """A random number of attempts: mostly 8 if ``most`` is above 8, otherwise 2 to ``most``."""
    return 8 if most > 8 and rng.random() < 0.6 else rng.randint(2, most)


def _deliberation(problem: MicroProblem, found: Worked, attempts: Sequence[str]) -> MicroRow:
    answers = [boxed(attempt) or "" for attempt in attempts]
    return MicroRow(cache_prompt(problem, attempts), *deliberator_solution(found, answers))


def _problem(family: str, item: dict[str, Any]) -> MicroProblem:
    return MicroProblem(item["question"].strip(), read_task(family, item["metadata"]))
