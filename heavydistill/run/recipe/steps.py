"""The steps without a model: load, verify, build caches, label.

A row becomes a ``schema.Trace``: each step continues its episode (``heavy.episode``), adds its
columns and keeps the others. An error in one row is not raised: its reason is stored in ``status``
and later steps pass the row on unchanged, so that every row reaches the end. ``status`` is ``ok``,
``too_few_usable``, or ``failed: ...``, which makes the row a reject.

distilabel inspects the annotations of ``process`` as objects, so they are not postponed here.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import Field, PrivateAttr

from heavydistill.config.models import Endpoint
from heavydistill.config.prompts import OwnPrompts
from heavydistill.config.run import Attempts, CacheChoice, Language, Problems, Task, Verifying
from heavydistill.errors import printable
from heavydistill.heavy.episode import Episode, Rules, VerdictAsk, labelled
from heavydistill.models.shared_resources import SharedResources
from heavydistill.models.tokenizer import SERVER, ReaderTokenizer, ServerTokenizer
from heavydistill.plugins import load_files
from heavydistill.problems import load_fit
from heavydistill.run.pools import is_current, shown_pools, verifier_now
from heavydistill.run.recipe.distilabel import GeneratorStep, Step, StepInput
from heavydistill.schema import (
    FAILED,
    OK,
    SCHEMA_VERSION,
    Cache,
    Deliberation,
    Problem,
    Trace,
    Trajectory,
    from_row,
    to_row,
)
from heavydistill.skill.prompt import for_task
from heavydistill.verifiers import registry
from heavydistill.verifiers.pool import TimedVerdict, VerdictPool

Row = dict[str, Any]

COLUMNS = list(Trace.__dataclass_fields__)
OWN_POOL = "own_pool"
"""Column of a row, not of a trace: the pool from which a control's cache is selected, if it shows
other attempts."""


def advance(rows: list[Row], step: str, work: Callable[[Row], Row]) -> list[Row]:
    """Add the columns from ``work`` to each row with status ``ok``; errors go to the status."""
    for row in rows:
        if row.setdefault("status", OK) != OK:
            continue
        try:
            row.update(work(row))
        except Exception as error:
            row["status"] = printable(f"{FAILED}{step}: {type(error).__name__}: {error}")
            logging.getLogger(f"distilabel.step.{step}").warning(
                "problem %s: %s", row["problem"].get("id"), row["status"]
            )
    return rows


def episode_of(row: Row, rules: Rules, **more: Any) -> Episode:
    """Return the episode of a row, with what the row holds so far; ``more`` as in ``Episode``."""
    kinds = {"pool": Trajectory, "caches": Cache, "deliberations": Deliberation}
    known: dict[str, Any] = {
        column: [from_row(kind, item) for item in row[column]]
        for column, kind in kinds.items()
        if column in row
    }
    return Episode(from_row(Problem, row["problem"]), rules, **known, **more)


class _Load(GeneratorStep):
    """Yields the rows that a subclass reads one by one."""

    def rows(self, offset: int) -> Iterator[Row]:
        """Yield all rows from row number ``offset`` on."""
        raise NotImplementedError

    def process(self, offset: int = 0) -> Iterator[tuple[list[Row], bool]]:
        """Yield (batch of rows, whether it is the last); two batches are in memory."""
        rows, size = self.rows(offset), int(self.batch_size)
        batch = list(islice(rows, size))
        while batch:
            following = list(islice(rows, size))
            yield batch, not following
            batch = following


class LoadProblems(_Load):
    """Yields one row per problem."""

    source: Problems
    verify: Verifying = Verifying()  # how references are checked
    plugins: list[str] = Field(default_factory=list)  # the user's Python files with plug-ins
    known_unfit: list[int] | None = None  # numbers of rows known to be unfit; null checks every row
    first: int = 0  # index of the first problem to load, i.e. of the shard
    every: int = 1  # distance between loaded problems, i.e. the number of shards

    _problems: list[Problem] = PrivateAttr(default_factory=list)

    @property
    def outputs(self) -> list[str]:
        return ["problem"]

    def load(self) -> None:
        super().load()
        load_files(self.plugins)
        problems = load_fit(self.source, self.verify, self.known_unfit).problems
        self._problems = problems[self.first :: self.every]

    def rows(self, offset: int) -> Iterator[Row]:
        return ({"problem": to_row(problem)} for problem in self._problems[offset:])


class LoadCaches(_Load):
    """Yields one row per existing cache, with an empty pool and no deliberations."""

    _pairs: Iterator[tuple[Problem, Cache]] = PrivateAttr(default_factory=lambda: iter(()))

    @property
    def outputs(self) -> list[str]:
        return ["problem", "problem_id", "cache_id", "pool", "caches", "deliberations"]

    def take(self, pairs: Iterable[tuple[Problem, Cache]]) -> None:
        """Set the (problem, cache) pairs to load; they are read one by one."""
        self._pairs = iter(pairs)

    def rows(self, offset: int) -> Iterator[Row]:
        for problem, cache in self._pairs:
            asked, shown = to_row(problem), to_row(cache)
            yield {
                "problem": {name: asked[name] for name in Problem.__dataclass_fields__},
                "problem_id": problem.id,
                "cache_id": cache.id,
                "pool": [],
                "caches": [{name: shown[name] for name in Cache.__dataclass_fields__}],
                "deliberations": [],
            }


class LoadPools(_Load):
    """Yields one row per trace of an earlier run: its pool with the verdicts that are still valid.

    See ``pools``.
    """

    source: str  # folder of the run
    attempts: Attempts = "own"  # attempts that the caches show; see ``config.run.CacheChoice``
    limit: int | None = None  # maximum number of traces
    own: list[str] = Field(default_factory=list)  # the user's Python files with verifiers
    first: int = 0  # as in ``LoadProblems``
    every: int = 1  # as in ``LoadProblems``

    @property
    def outputs(self) -> list[str]:
        return ["problem", "pool", "thinker_prompt_version"]

    def load(self) -> None:
        super().load()
        registry.load_own(self.own)

    def rows(self, offset: int) -> Iterator[Row]:
        pools = shown_pools(Path(self.source), self.attempts, self.limit)
        for trace, shown in islice(pools, self.first + offset * self.every, None, self.every):
            now = verifier_now(trace.problem)
            pool = [to_row(trajectory) for trajectory in shown]
            for item in pool:
                if not is_current(item["verdict"], now):
                    item["verdict"] = None
            row = {
                "problem": to_row(trace.problem),
                "pool": pool,
                "thinker_prompt_version": trace.thinker_prompt_version,
            }
            own = [] if shown is trace.pool else list(map(to_row, trace.pool))
            yield row | ({OWN_POOL: own} if own else {})


_pools = SharedResources(VerdictPool.close)  # all steps of a run share the workers


class Verify(Step):
    """Judges every generation of a column with the verifier of its problem."""

    column: str = "pool"  # ``pool`` or ``deliberations``
    verify: Verifying = Verifying()

    _judges: VerdictPool | None = PrivateAttr(default=None)

    @property
    def inputs(self) -> list[str]:
        return ["problem", self.column]

    @property
    def outputs(self) -> list[str]:
        return [self.column]

    def load(self) -> None:
        super().load()
        key = self.verify.model_dump_json()
        self._judges = _pools.borrow(key, lambda: VerdictPool(self.verify))

    def unload(self) -> None:
        if self._judges is not None:
            _pools.give_back(self._judges)
        self._judges = None

    def process(self, inputs: StepInput) -> Iterator[list[Row]]:
        """Yield rows with verdicts, judged concurrently; existing verdicts are kept."""
        if self._judges is None:
            raise RuntimeError("load() was not called")
        submit_to = self._judges
        judged: dict[int, tuple[Episode, list[tuple[VerdictAsk, Future[TimedVerdict]]]]] = {}

        def submit(row: Row) -> Row:
            episode = episode_of(row, Rules())
            submitted = [
                (ask, submit_to.submit_generation(episode.problem, ask.generation))
                for ask in episode.asks()
                if isinstance(ask, VerdictAsk) and bool(ask.round) == (self.column != "pool")
            ]
            judged[id(row)] = episode, submitted
            return {}

        def finish(row: Row) -> Row:
            episode, submitted = judged[id(row)]
            for ask, to_come in submitted:
                episode.tell(ask, to_come.result().verdict)
            return {self.column: list(map(to_row, getattr(episode, self.column)))}

        step = str(self.name)
        yield advance(advance(inputs, step, submit), step, finish)


class BuildCaches(Step):
    """Builds the cache of the next round from the pool and the last round's deliberations."""

    choice: CacheChoice  # selection, pruning and budget; ``budget_tokens`` must be set
    plugins: list[str] = Field(default_factory=list)  # as in ``LoadProblems``
    reader: str  # folder or Hub id of the deliberator's tokenizer, or ``models.tokenizer.SERVER``
    model: str = ""  # served name of the deliberator if ``reader`` is ``SERVER``
    endpoint: Endpoint = Endpoint()  # endpoint of the deliberator if ``reader`` is ``SERVER``
    journal: str | None = None  # journal that stores the server's counts; None for none
    replay: bool = False  # whether to read these counts only from the journal
    min_k: int = Field(default=2, ge=1)  # minimum number of usable trajectories
    seed: int = 0
    domain: str = "general"  # domain of problems without a domain
    language: Language = "en"
    prompts: OwnPrompts = OwnPrompts()  # the user's prompts
    task: Task = "deliberate"

    _reader: ReaderTokenizer | ServerTokenizer | None = PrivateAttr(default=None)

    @property
    def inputs(self) -> list[str]:
        return ["problem", "pool"]

    @property
    def outputs(self) -> list[str]:
        return ["caches", "deliberations"]

    def load(self) -> None:
        super().load()
        load_files(self.plugins)
        if self.reader == SERVER:
            journal = Path(self.journal) if self.journal else None
            self._reader = ServerTokenizer(self.model, self.endpoint, journal, self.replay)
        else:
            self._reader = ReaderTokenizer(self.reader)

    def unload(self) -> None:
        if isinstance(self._reader, ServerTokenizer):
            self._reader.close()
        self._reader = None

    def process(self, inputs: StepInput) -> Iterator[list[Row]]:
        """Yield the rows, each with the new cache added to ``caches``."""
        for row in inputs:
            row.setdefault("caches", [])
            row.setdefault("deliberations", [])
        yield advance(inputs, str(self.name), self._build)

    def _build(self, row: Row) -> Row:
        if self._reader is None or self.choice.budget_tokens is None:
            raise RuntimeError("load() was not called, or choice.budget_tokens is not set")
        reader = self._reader
        if isinstance(reader, ServerTokenizer):
            reader = reader.renewed()
        own = [from_row(Trajectory, item) for item in row.get(OWN_POOL) or []]
        domain = row["problem"]["domain"] or self.domain
        episode = episode_of(
            row,
            Rules(min_k=self.min_k, cache=self.choice, seed=self.seed),
            deliberator=for_task(self.task, domain, self.language, self.prompts),
            reader=reader,
            selected_from=own or None,
        )
        if episode.status != OK:
            return {"status": episode.status}
        return {"caches": [*row["caches"], to_row(episode.new_cache())]}


class LabelTraces(Step):
    """Adds claims, stratum and outcome, and reduces the row to the columns of ``schema.Trace``."""

    @property
    def inputs(self) -> list[str]:
        return ["problem", "pool"]

    @property
    def outputs(self) -> list[str]:
        return COLUMNS

    def process(self, inputs: StepInput) -> Iterator[list[Row]]:
        """Yield the labelled rows, reduced to the columns of a trace."""
        yield [self._finished(row) for row in inputs]

    def _finished(self, row: Row) -> Row:
        blank: Row = {
            "pool": [],
            "caches": [],
            "deliberations": [],
            "stratum": None,
            "outcome": None,
            "status": OK,
            "thinker_prompt_version": "",
        }
        row = {**blank, **row, "schema_version": SCHEMA_VERSION}
        if not row["status"].startswith(FAILED):
            trace = labelled(from_row(Trace, row))
            row["deliberations"] = list(map(to_row, trace.deliberations))
            row |= {"stratum": trace.stratum, "outcome": trace.outcome}
        return {column: row[column] for column in COLUMNS}
