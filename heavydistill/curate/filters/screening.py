"""Which problems must not be learnt from: those of benchmarks, and near-duplicates of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from heavydistill.curate.filters.contamination import read, shipped
from heavydistill.curate.filters.duplicates import NearDuplicates
from heavydistill.schema import Problem
from heavydistill.store.sets.manifest import BenchmarkUsed


class Screen:
    """Looks at problems, each once, in the order of the runs.

    Args:
        against: Files of benchmarks; None takes those that come with heavydistill.

    Raises:
        UserError: A file cannot be read.
    """

    def __init__(self, against: Sequence[str] | None) -> None:
        files = shipped() if against is None else [Path(file) for file in against]
        self._benchmarks = [read(file) for file in files]
        self._hits: list[Counter[str]] = [Counter() for _ in self._benchmarks]
        self._seen = NearDuplicates()

    def look(self, key: str, problem: Problem) -> tuple[str, str]:
        """(label, detail) of a problem; both empty if it may be learnt from."""
        for benchmark, hits in zip(self._benchmarks, self._hits, strict=True):
            if hit := benchmark.hit(problem.text):
                hits[hit.reason] += 1
                return "contaminated", f"{hit.benchmark}: {hit.reason}"
        if earlier := self._seen.add(key, problem.text, problem.verifier == "procedural"):
            return "near_duplicate", earlier
        return "", ""

    @property
    def used(self) -> list[BenchmarkUsed]:
        """What problems were compared with, and how many were found."""
        return [
            BenchmarkUsed(name=one.name, texts_sha256=one.sha256, hits=dict(sorted(hits.items())))
            for one, hits in zip(self._benchmarks, self._hits, strict=True)
        ]
