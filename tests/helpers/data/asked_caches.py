"""Problems with caches as a build has them, and sets of them, for tests of what asks about them."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from samples import cache_of, fields_of, trajectory
from set_folders import cache_row, manifest

from heavydistill.config.models import Endpoint
from heavydistill.config.run import Problems
from heavydistill.models.registry import profile_at
from heavydistill.models.tokenizer import ReaderTokenizer
from heavydistill.problems import load
from heavydistill.schema import Cache, Problem
from heavydistill.store.sets.folder import Writer, file_of, write_manifest
from heavydistill.store.sets.set_rows import CacheRow, ProblemRow

MICRO = profile_at("micro", Endpoint()).tokenizer
"""A folder with the tokenizer of the micro models."""


def pairs(count: int) -> list[tuple[Problem, Cache]]:
    """So many problems of the micro models, each with a cache of a right and a wrong attempt."""
    reader = ReaderTokenizer(MICRO)
    found = []
    for n, drawn in enumerate(load(Problems(size=count, seed=7))):
        problem = dataclasses.replace(drawn, id=f"p_{n}", verifier="math", verifier_args="{}")
        pool = [
            trajectory(id=f"t_{n}_{i}", index=i, answer_text=f"\\boxed{{{answer}}}")
            for i, answer in enumerate((problem.reference, "9999"))
        ]
        found.append((problem, cache_of(problem, pool, width=2, budget_tokens=1024, reader=reader)))
    return found


def write_caches(folder: Path, labels: Sequence[str]) -> Path:
    """A folder of sets with a cache for each of these labels of RL, every fourth for validation."""
    problems = Writer(file_of(folder, "problems", "train"), ProblemRow)
    caches = Writer(file_of(folder, "caches", "train"), CacheRow)
    for n, ((problem, cache), label) in enumerate(zip(pairs(len(labels)), labels, strict=True)):
        split = "train" if n % 4 else "validation"
        problems.write(
            ProblemRow(**fields_of(problem), split=split, label="", detail="", runs=["run"])
        )
        caches.write(
            cache_row(
                cache,
                problem=problem.id,
                drawn=True,
                stratum="tie" if n % 2 else "minority-right",
                success=None,
                judged=0,
                rl_label=label,
            )
        )
    problems.close()
    caches.close()
    stratum = manifest().strata["tie"]
    strata = {"tie": stratum, "minority-right": stratum, "all-wrong": stratum}
    write_manifest(manifest(strata=strata), folder)
    return folder
