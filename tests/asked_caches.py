"""Problems with caches as a build has them, for tests of what asks about them."""

from __future__ import annotations

import dataclasses

from samples import trajectory

from heavydistill.config import Endpoint, Problems
from heavydistill.engine.tokenizer import ReaderTokenizer
from heavydistill.heavy import prompts
from heavydistill.heavy.cache import build_cache
from heavydistill.problems import load
from heavydistill.schema import Cache, Problem
from heavydistill.teachers.registry import find

MICRO = find("micro", Endpoint()).tokenizer
"""A folder with the tokenizer of the micro models."""


def pairs(count: int) -> list[tuple[Problem, Cache]]:
    """So many problems of the micro models, each with a cache of a right and a wrong attempt."""
    reader = ReaderTokenizer(MICRO)
    wording = prompts.load("deliberator", "brief", "en")
    found = []
    for n, drawn in enumerate(load(Problems(size=count, seed=7))):
        problem = dataclasses.replace(drawn, id=f"p_{n}", verifier="math", verifier_args="{}")
        pool = [
            trajectory(id=f"t_{n}_{i}", index=i, answer_text=f"\\boxed{{{answer}}}")
            for i, answer in enumerate((problem.reference, "9999"))
        ]
        cache = build_cache(
            problem,
            pool,
            round=1,
            seed=0,
            selection="random",
            width=2,
            pruning="answer_only",
            budget_tokens=1024,
            prompt=wording,
            reader=reader,
        )
        found.append((problem, cache))
    return found
