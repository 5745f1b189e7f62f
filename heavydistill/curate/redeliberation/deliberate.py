"""Asks a model for deliberations on caches that are there, with the runner of a run.

A chain of three steps runs in this process: caches are loaded, deliberated on and judged. Requests,
rows and verdicts are those of a run: every response is in the journal before it is used, so the
same command goes on after a kill and pays for nothing twice; a budget holds over all resumptions.
What comes out is on disk, so that memory does not grow with it.

Not covered: a judge for what rules leave undecided; caches of the same prompt, of which one that
failed may be asked again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heavydistill.config.run import Verifying
from heavydistill.curate.redeliberation.asking import ResolvedDeliberator, Volume
from heavydistill.errors import RunError
from heavydistill.metrics.counts import UsageTally
from heavydistill.models.contact import Contact
from heavydistill.models.ledger import Ledger
from heavydistill.models.pace import LOCAL_BATCH, Pace
from heavydistill.models.registry import tariff_of
from heavydistill.models.request import deliberate_stage
from heavydistill.run.rows import dataset_of
from heavydistill.schema import OK, Cache, Deliberation, Problem, arrow_schema, from_row
from heavydistill.store.sets.folder import RedeliberationSummary

if TYPE_CHECKING:
    from heavydistill.run.runner import HeavyPipeline

Pairs = Iterable[tuple[Problem, Cache]]
Row = dict[str, Any]
_DELIBERATE = "deliberate"


@dataclass(slots=True)
class Tally:
    """What was asked for so far, and what came of it."""

    caches: int = 0  # whose deliberations are there
    failed: int = 0  # deliberations that failed
    cut_off: int = 0  # deliberations that were too long
    from_journal: int = 0  # deliberations that were paid for earlier
    tokens: UsageTally = field(default_factory=UsageTally)

    def add(self, row: Row) -> None:
        """Count a row of the step that deliberates."""
        from heavydistill.run.tasks import FROM_JOURNAL

        deliberations = [from_row(Deliberation, item) for item in row["deliberations"]]
        self.caches += 1
        self.failed += sum(each.finish_reason == "error" for each in deliberations)
        self.cut_off += sum(each.finish_reason == "length" for each in deliberations)
        self.from_journal += row.get(FROM_JOURNAL, 0)
        for each in deliberations:
            self.tokens.add(each)

    def asked(self, asking: ResolvedDeliberator) -> RedeliberationSummary:
        """The same for a manifest."""
        usage = self.tokens.usage
        known = usage.unknown_completion < usage.requests or not usage.requests
        usd = asking.model.usd(usage.prompt, usage.completion) if known else None
        return RedeliberationSummary(
            model=asking.model.name,
            sets=self.caches,
            deliberations=usage.requests,
            failed=self.failed,
            prompt_tokens=usage.prompt,
            completion_tokens=usage.completion,
            cost_usd=None if usd is None else round(usd, 6),
            sampling=asking.sampling.model_dump(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheDeliberations:
    """A row that leaves the chain: the deliberations on one cache, judged."""

    problem_id: str
    cache_id: str
    deliberations: list[Deliberation]
    status: str


class Deliberations:
    """Deliberations on many caches, read from disk as they are needed."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], tuple[Any, int]] = {}

    def on(self, problem: str, cache: str) -> list[Deliberation]:
        """Those on a cache of a problem, by their ids."""
        dataset, place = self._places[problem, cache]
        return [from_row(Deliberation, item) for item in dataset[place]["deliberations"]]

    def add(self, rows: Path, mapped: Path) -> None:
        """Take the rows of a folder of parquet files, which are mapped from files in ``mapped``.

        Raises:
            RunError: A row failed.
        """
        dataset = dataset_of(rows, mapped)
        columns = (dataset[name] for name in ("problem_id", "cache_id", "status"))
        for place, (problem, cache, status) in enumerate(zip(*columns, strict=True)):
            if status != OK:
                raise RunError(f"The deliberations on cache {cache}: {status}", "Report this.")
            self._places[problem, cache] = dataset, place


def deliberate(
    asking: ResolvedDeliberator,
    volume: Volume,
    verify: Verifying,
    pairs: Callable[[], Pairs],
    folder: Path,
    on_progress: Callable[[Tally], None] = lambda tally: None,
) -> tuple[Deliberations, Tally]:
    """Deliberate on caches and judge what comes.

    Args:
        asking: Who is asked, and how.
        volume: How much that is.
        verify: How deliberations are judged.
        pairs: Gives each problem with a cache; called once for each round of the caches.
        folder: Existing folder for the rows, which must outlive the result.
        on_progress: Called after each batch, by one thread at a time.

    Raises:
        TeacherError: The endpoint cannot be asked or refuses what is asked, or the weights cannot
            be loaded.
        ConfigError: The same is asked by another process, or the account, the journal or a
            verifier of one's own cannot be used.
        StoppedError: The budget is spent or no server answers.
        RunError: The disk is full.
        KeyboardInterrupt: Ctrl-C or SIGTERM.

        What was sent before any of the last four is answered and in the journal; only SIGTERM
        does not wait for it.
    """
    result, tally = Deliberations(), Tally()

    def count(step: str, rows: list[Row]) -> None:
        if step == _DELIBERATE:
            for row in rows:
                tally.add(row)
            on_progress(tally)

    with _paying(asking, volume):
        for round in volume.rounds:
            place = folder / f"round-{round}"
            these = (pair for pair in pairs() if pair[1].round == round)
            pipeline = _pipeline(asking, verify, round, these, count)
            pipeline.keep_in(place)
            pipeline.run_to_files()
            result.add(pipeline.leaf_files, place / "mapped")
    return result, tally


def _pipeline(
    asking: ResolvedDeliberator,
    verify: Verifying,
    round: int,
    pairs: Pairs,
    on_batch: Callable[[str, list[Row]], None],
) -> HeavyPipeline:
    from heavydistill.run.llm import HeavyLLM
    from heavydistill.run.runner import HeavyPipeline
    from heavydistill.run.steps import LoadCaches, Verify
    from heavydistill.run.tasks import Deliberate

    pace = Pace.of(asking.model, asking.d, asking.endpoint)
    llm = HeavyLLM.resolved(
        asking.model,
        teacher=asking.model.name,
        sampling=asking.sampling,
        seed=asking.seed,
        stage=deliberate_stage(round),
        endpoint=asking.endpoint,
        journal=str(asking.journal),
        ledger=str(asking.account) if asking.model.kind == "endpoint" else None,
        most_tokens=asking.most_tokens,
        most_usd=asking.most_usd,
    )
    schema = arrow_schema(CacheDeliberations)
    pipeline = HeavyPipeline("redeliberate", schema, on_batch, window=2 * pace.rows)
    with pipeline:
        source = LoadCaches(name="load_caches", batch_size=min(LOCAL_BATCH, 2 * pace.rows))
        source.take(pairs)
        (
            source
            >> Deliberate(
                name=_DELIBERATE,
                llm=llm,
                num_generations=asking.d,
                round=round,
                input_batch_size=pace.batch,
                batches_in_flight=pace.in_flight,
            )
            >> Verify(
                name="verify", column="deliberations", verify=verify, input_batch_size=pace.batch
            )
        )
    return pipeline


@contextlib.contextmanager
def _paying(asking: ResolvedDeliberator, volume: Volume) -> Iterator[None]:
    """While this lasts the account of what is asked is this process's own, if it is served.

    Raises:
        TeacherError: The server cannot be asked.
        ConfigError: The same is asked by another process, or the account cannot be used.
    """
    if asking.model.kind != "endpoint":
        yield
        return
    caps = asking.most_tokens, asking.most_usd
    account = partial(Ledger, asking.account, *caps) if any(caps) else None
    contact, tariff = asking.contact or Contact(), tariff_of(asking.model)
    most = volume.longest + asking.sampling.max_tokens
    contact.require(asking.model.model, asking.endpoint, most, account, tariff)
    with contextlib.closing(Ledger(asking.account)) as own, own.running():
        yield
