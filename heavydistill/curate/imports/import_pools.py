"""Judges imported pools and writes them as the folder of a run.

    traces/        as of a run, without caches and deliberations; the verdicts are ours
    summary.json   as of a run
    import.json    in the place of a run's configuration: what was read, left out and assumed, and
                   how the files' own labels and our verdicts agree

The folder appears under its name when it is whole. The same files and options give the same bytes.

Not covered: a judge for what rules leave undecided.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import typing
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import heavydistill
from heavydistill.config.sets import ImportConfig
from heavydistill.curate.imports.pools import ImportedPool, ImportedPools
from heavydistill.errors import ConfigError
from heavydistill.heavy import voting
from heavydistill.metrics.summary import Summary, summarize
from heavydistill.problems.options import orders_kept
from heavydistill.schema import OK, TOO_FEW_USABLE, Label, Trace
from heavydistill.store.atomic import new_folder, refuse_taken
from heavydistill.store.traces import TRACES_FOLDER, read_traces, write_traces
from heavydistill.verifiers import registry
from heavydistill.verifiers.markers import Shared, shared_marker
from heavydistill.verifiers.pool import Judged, VerdictPool

RECORD = "import.json"
LABELS: tuple[Label, ...] = typing.get_args(Label)
FEWEST_USABLE = 2
"""A pool with fewer usable answers is no choice; ``think.min_k`` of a run."""
# Problems that are judged at once.
_AHEAD = 64

Show = Callable[[str, int, int], None]
"""Called with (what is done, how many are done, of how many)."""


@dataclass(slots=True)
class Agreement:
    """How the labels of the files and our verdicts agree: our verdicts, by the files' label."""

    right: Counter[Label] = field(default_factory=Counter)
    wrong: Counter[Label] = field(default_factory=Counter)
    unlabelled: Counter[Label] = field(default_factory=Counter)

    def add(self, label: bool | None, verdict: Label) -> None:
        """Count one answer."""
        row = self.unlabelled if label is None else self.right if label else self.wrong
        row[verdict] += 1

    @property
    def labelled(self) -> int:
        return self.right.total() + self.wrong.total()

    @property
    def agreeing(self) -> int:
        """Answers that both call right, or both wrong."""
        return self.right["correct"] + self.wrong["incorrect"]


@dataclass(frozen=True, slots=True)
class Imported:
    """What was written."""

    folder: Path
    summary: Summary  # over all problems
    agreement: Agreement
    record: dict[str, Any]  # the content of ``import.json``
    marker: Shared | None  # one that most answers share, where many hold no final answer


def import_pools(config: ImportConfig, show: Show | None = None) -> Imported:
    """Read, judge and write.

    Args:
        config: What to read, and where to write.
        show: Called after each reference and each problem.

    Raises:
        UserError: Anything that the user can fix; nothing was written.
        RunError: The disk is full or fails; nothing was written.
    """
    folder = Path(config.out).expanduser()
    refuse_taken(folder)
    pools = ImportedPools(config, functools.partial(show, "checking references") if show else None)
    if unable := registry.unavailable({each.verifier for each in pools.problems}, config.verify):
        raise ConfigError(unable[0], "Else every verdict would be undecided.")
    tally = _Tally(len(pools.problems), show)
    with new_folder(folder) as new:
        with VerdictPool(config.verify) as judges:
            write_traces(map(tally.trace, _judged(pools, judges)), new / TRACES_FOLDER)
        summary = summarize(read_traces(new))
        record = _record(config, pools, tally)
        _write(new / "summary.json", _summary(summary, pools))
        _write(new / RECORD, record)
        marker = None
        if summary.trajectories.has_many_unanswered:
            given = config.problems.verifier_args
            marker = shared_marker(read_traces(new), given, config.verify)
    return Imported(folder, summary, tally.agreement, record, marker)


def _judged(
    pools: Iterable[ImportedPool], judges: VerdictPool
) -> Iterator[tuple[ImportedPool, list[Judged]]]:
    """Each pool with its verdicts, in order; some pools are on their way at once."""
    waiting: deque[tuple[ImportedPool, list[Future[Judged]]]] = deque()

    def first() -> tuple[ImportedPool, list[Judged]]:
        pool, futures = waiting.popleft()
        return pool, [future.result() for future in futures]

    for pool in pools:
        verdicts = [judges.submit_generation(pool.problem, each) for each in pool.trajectories]
        waiting.append((pool, verdicts))
        if len(waiting) > _AHEAD:
            yield first()
    while waiting:
        yield first()


class _Tally:
    """Makes the traces and counts what goes into the record."""

    def __init__(self, problems: int, show: Show | None) -> None:
        self.agreement = Agreement()
        self.models: Counter[str] = Counter()
        self.verifiers: set[str] = set()
        self.assumed = self.unclear = 0
        self._done, self._of, self._show = 0, problems, show

    def trace(self, judged: tuple[ImportedPool, list[Judged]]) -> Trace:
        """The trace of a pool with its verdicts."""
        pool, verdicts = judged
        trajectories = [
            dataclasses.replace(each, verdict=one.verdict)
            for each, one in zip(pool.trajectories, verdicts, strict=True)
        ]
        for trajectory, label, one in zip(trajectories, pool.labels, verdicts, strict=True):
            self.agreement.add(label, one.verdict.label)
            self.models[trajectory.model] += 1
            self.verifiers.add(one.verdict.verifier)
        self.assumed += pool.assumed
        self.unclear += pool.unclear
        self._done += 1
        if self._show:
            self._show("judging", self._done, self._of)
        usable = sum(each.unusable_because is None for each in trajectories)
        return Trace(
            problem=pool.problem,
            pool=trajectories,
            stratum=voting.stratum(trajectories),
            status=OK if usable >= FEWEST_USABLE else TOO_FEW_USABLE,
        )


def _summary(summary: Summary, pools: ImportedPools) -> dict[str, Any]:
    return {
        **dataclasses.asdict(summary),
        "rejects": 0,
        "missing": 0,
        "option_orders_kept": orders_kept(pools.problems),
        "left_out": sum(each.rows for each in pools.left_out.values()),
    }


def _record(config: ImportConfig, pools: ImportedPools, tally: _Tally) -> dict[str, Any]:
    agreement = tally.agreement
    verify = config.verify.model_dump()
    verify["own"] = [Path(file).name for file in config.verify.own]
    # Where and with how many processes it was judged changes no verdict.
    del verify["workers"], verify["sandbox"]["url"]
    files: list[dict[str, Any]] = [
        {"name": file.name, "rows": rows}
        for file, rows in zip(pools.files, pools.rows, strict=True)
    ]
    if pools.format.one_a_file:
        for entry, lacks in zip(files, pools.lacking, strict=True):
            entry["lacks"] = lacks
    return {
        "heavydistill": heavydistill.__version__,
        "format": config.format,
        "files": files,
        "columns": {**pools.columns, "answers": pools.format.answers},
        "rows": sum(pools.rows),
        "rows_without_answers": pools.without_answers,
        "rows_joined": pools.joined,
        "left_out": {
            reason: dataclasses.asdict(each) for reason, each in sorted(pools.left_out.items())
        },
        "problems": len(pools.problems),
        "answers": tally.models.total(),
        "finish_reasons_assumed": tally.assumed,
        "labels_unclear": tally.unclear,
        **pools.format.notes,
        "models": dict(sorted(tally.models.items())),
        "verifiers": sorted(tally.verifiers),
        "labels": {
            "right": _by_verdict(agreement.right),
            "wrong": _by_verdict(agreement.wrong),
            "unlabelled": _by_verdict(agreement.unlabelled),
        },
        "options": {
            "model": config.model,
            "problems": config.problems.model_dump(),
            "verify": verify,
        },
    }


def _by_verdict(counts: Counter[Label]) -> dict[str, int]:
    return {label: counts[label] for label in LABELS}


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")
