"""The traces of a run, prepared for the Hub: without folders of this machine, addresses and keys.

A published run has the layout of a run: a copy of it can be reported, built from, and deliberated
on with `--pools`. Rows on which a step failed are not published.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heavydistill.store.redact import portable_config
from heavydistill.store.sets.folder import RunUsed
from heavydistill.store.traces import TRACES_FOLDER, write_traces

if TYPE_CHECKING:
    from heavydistill.schema import Trace

SUMMARY = "summary.json"
"""The file by which a folder or repository is recognized as a run."""


@dataclass(slots=True, kw_only=True)
class RunTraces:
    """What the card of a run's traces says of them; the names are those of ``Manifest``."""

    heavydistill: str  # version that made the run; empty for imported attempts
    runs: list[RunUsed]  # the run
    problems: Counter[str] = field(default_factory=Counter)  # number of problems by status
    trajectories: Counter[str] = field(default_factory=Counter)  # number by verdict
    deliberations: Counter[str] = field(default_factory=Counter)  # number by verdict
    models: dict[str, list[str]] = field(default_factory=dict)  # models that wrote rows, by role
    sources: list[str] = field(default_factory=list)  # see ``Problem.origin``
    prompts: list[str] = field(default_factory=list)  # versions of the prompt wordings
    verifiers: list[str] = field(default_factory=list)  # names and versions of the verifiers
    first: Trace | None = None  # the first row
    asked: tuple[Any, ...] = ()  # a run asks for all of its deliberations itself
    refiltered: None = None


def prepare(run: Path, folder: Path) -> tuple[RunTraces, Path]:
    """Write the traces of a run into a folder; return what they hold, and the file.

    Raises:
        ConfigError: There is no finished run, or one of another schema version.
        RunError: The disk is full or fails.
    """
    from heavydistill.curate.build_state import open_sources

    (source,) = open_sources([str(run)])
    config = portable_config(source.config) if source.config else {}
    used = RunUsed(name=source.name, traces=source.size, config=config, summary=source.summary)
    prepared = RunTraces(heavydistill=str(source.summary.get("heavydistill", "")), runs=[used])
    return prepared, write_traces(_noted(source.traces(), prepared), folder / TRACES_FOLDER)


def _noted(traces: Iterable[Trace], found: RunTraces) -> Iterator[Trace]:
    """Yield the traces, and note what they hold."""
    models: dict[str, set[str]] = {"thinker": set(), "deliberator": set()}
    sources: set[str] = set()
    prompts: set[str] = set()
    verifiers: set[str] = set()
    for trace in traces:
        found.first = found.first or trace
        found.problems[trace.status] += 1
        sources.add(trace.problem.origin)
        prompts |= {trace.thinker_prompt_version, *(c.prompt_version for c in trace.caches)}
        for role, counts in (("thinker", found.trajectories), ("deliberator", found.deliberations)):
            for sample in trace.pool if role == "thinker" else trace.deliberations:
                models[role].add(sample.model)
                counts[sample.verdict.label if sample.verdict else "not judged"] += 1
                if sample.verdict:
                    verifiers.add(sample.verdict.verifier)
        yield trace
    found.models = {role: sorted(names) for role, names in models.items()}
    found.sources = sorted(filter(None, sources))
    found.prompts, found.verifiers = sorted(filter(None, prompts)), sorted(verifiers)
