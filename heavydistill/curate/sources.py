"""The runs that a build reads: each checked before anything is computed.

A run is known by the name of its folder. One that `heavydistill import` wrote has no
configuration; its wording and language then come from the student's profile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heavydistill.config.run import Domain, Language, RunConfig, load_config
from heavydistill.errors import ConfigError
from heavydistill.schema import Problem, Trace
from heavydistill.store.atomic import Workplace
from heavydistill.store.redact import name_alone
from heavydistill.store.traces import TRACES_FOLDER, count_rows, read_traces

_MICRO_MODELS = frozenset({"micro", "micro-student"})


@dataclass(frozen=True, slots=True)
class SourceRun:
    """A run that is read."""

    name: str  # of its folder
    folder: Path
    config: RunConfig | None  # None for an imported pool
    summary: dict[str, Any]  # its ``summary.json``; empty if it has none
    size: int = 0  # traces in it

    def traces(self) -> Iterator[Trace]:
        """Its traces, one row group in memory at a time, with models by their names alone."""
        for trace in read_traces(self.folder):
            yield replace(
                trace,
                pool=[replace(t, model=name_alone(t.model)) for t in trace.pool],
                deliberations=[replace(d, model=name_alone(d.model)) for d in trace.deliberations],
                caches=[replace(cache, reader=name_alone(cache.reader)) for cache in trace.caches],
            )

    def domain_of(self, problem: Problem, fallback: Domain) -> str:
        """Wording of the prompts for a problem of it."""
        return problem.domain or (self.config and self.config.domain) or fallback

    @property
    def is_toy(self) -> bool:
        """Whether it says that the bundled micro models alone wrote it."""
        return bool(
            self.config and not self.config.pools and _MICRO_MODELS.issuperset(self.config.roles)
        )

    @property
    def language(self) -> Language:
        """The language of its prompts."""
        return self.config.language if self.config else "en"


def open_sources(folders: Sequence[str]) -> list[SourceRun]:
    """The runs of these folders, in their order.

    Raises:
        ConfigError: A folder holds no finished run, one of another schema version, is still
            written to, or is named twice; so are two runs of one name.
    """
    sources = [_open(Path(folder).resolve()) for folder in folders]
    names = [source.name for source in sources]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(
            f"Two of the runs are named {twice}, and rows tell their run by that name",
            "Give each run once, and rename one of the folders if they are different runs.",
        )
    return sources


def _open(folder: Path) -> SourceRun:
    if Workplace(folder).is_claimed:
        raise ConfigError(
            f"{folder} is still being written by a run",
            "Wait for its end, or interrupt it: what is finished is kept.",
        )
    read_traces(folder)
    config, file = folder / "config.yaml", folder / "summary.json"
    try:
        summary = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except ValueError as error:
        raise ConfigError(f"{file} is not JSON: {error}", "Generate the run again.") from error
    return SourceRun(
        name=folder.name,
        folder=folder,
        config=load_config(config) if config.is_file() else None,
        summary=summary,
        size=count_rows(folder / TRACES_FOLDER),
    )
