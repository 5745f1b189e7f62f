"""Problems of a family of reasoning-gym, and the label of an answer, for tests."""

from __future__ import annotations

import functools
import json

from judging import judged

from heavydistill.config.run import Problems
from heavydistill.problems import load
from heavydistill.schema import Problem


@functools.cache
def problems(family: str, size: int, seed: int, settings: str = "{}") -> list[Problem]:
    chosen = json.loads(settings)
    gym = {family: chosen} if chosen else {}
    return load(Problems(source=f"gym:{family}", size=size, seed=seed, gym=gym))


def label(problem: Problem, answer: str) -> str:
    return judged(problem, f"So \\boxed{{{answer}}}").label
