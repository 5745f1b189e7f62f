"""Requests new deliberations on existing caches.

    run = resolve(config, source.config)     resolves the model, its journal and its budget
    volume = volume_of(run, pairs)           checks that the prompts fit, and counts the requests
    deliberate(run, volume, ...)             loads the caches, deliberates on them, judges

After an interruption, the same command continues, and no response is billed twice; a budget applies
across all restarts. The results are on disk, so that memory does not grow with them. The seeds
differ from those of a run with the same seed, so that a deliberator that failed on a cache does not
repeat the same response.

``Redeliberation`` does this for the sets in a build's mixture that have no usable deliberation.

Not covered: starting a server; a judge for undecided verdicts; caches with equal prompts: after a
failure on one of them, its request may be sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heavydistill.config.models import Endpoint, SamplingChoice
from heavydistill.config.run import Deliberating, RunConfig, Verifying
from heavydistill.config.sets import BuildConfig, Redeliberate, RefilterConfig
from heavydistill.curate.build_state import BuildState, OnProgress, SetOfTrace, SourceRun
from heavydistill.errors import ConfigError, RunError
from heavydistill.metrics.counts import Usage, no_usage
from heavydistill.models.contact import ServerProbe
from heavydistill.models.identity import identified
from heavydistill.models.registry import profile_file, revision_of
from heavydistill.models.request import (
    Request,
    conversation,
    deliberate_stage,
    sample_seed,
    samples,
)
from heavydistill.models.resolve import ResolvedRun, of_another_model
from heavydistill.models.resolve import resolve as resolve_run
from heavydistill.models.tokenizer import SERVER, TEMPLATE_TOKENS, ReaderTokenizer
from heavydistill.run.generate import require_endpoints
from heavydistill.run.rows import dataset_of
from heavydistill.schema import OK, Cache, Deliberation, Problem, arrow_schema, content_id, from_row
from heavydistill.store import segment
from heavydistill.store.journal import Journal, keys
from heavydistill.store.sets.folder import RedeliberationSummary
from heavydistill.store.traces import LEAF_FOLDER

if TYPE_CHECKING:
    from heavydistill.run.runner import HeavyPipeline

Pairs = Iterable[tuple[Problem, Cache]]
Row = dict[str, Any]
_DELIBERATE = "deliberate"


def resolve(
    config: BuildConfig, run: RunConfig | None, contact: ServerProbe | None = None
) -> ResolvedRun:
    """Return a resolved run that deliberates on the sets of ``run`` (None for an imported pool).

    Raises:
        ConfigError: No model is named, a server would have to be started, or the budget is in money
            and there is no price.
        TeacherError: The model is unknown, cannot run here, or does not return its thinking.
    """
    assert config.redeliberate is not None
    choice = _as_in_run(config.redeliberate, run) if run else config.redeliberate
    if choice.teacher is None:
        raise ConfigError(
            "redeliberate.teacher is not set, and an imported pool has no deliberator",
            "Give --teacher MODEL.",
        )
    # A different configuration gets a new budget, unless only addresses and folders differ. All
    # runs of a build share one budget, whichever model deliberates on each.
    place = {"endpoint": True, "journal": True, "budget": True}
    about = config.model_dump(exclude={"out": True, "verify": True, "redeliberate": place})
    out = Path(config.out)
    system = run.system if run else None
    return resolve_choice(choice, config.verify, "redeliberate", out, about, contact, system)


def resolve_choice(
    choice: Redeliberate,
    verify: Verifying,
    section: str,
    out: Path,
    about: object,
    contact: ServerProbe | None,
    system: str | None = None,
) -> ResolvedRun:
    """Return the resolved run in which the model of ``choice`` deliberates on caches.

    ``section`` is the configuration section of ``choice``, for messages. The journal is next to
    ``out`` unless ``choice`` names another. ``about`` identifies the budget's account, as JSON.
    Raises the same errors as ``resolve``; without a ``contact`` no request is sent.
    """
    name, endpoint = choice.teacher or "", choice.endpoint or Endpoint()
    keys = f"{section}.endpoint".lstrip(".")
    if endpoint.start_vllm:
        raise ConfigError(
            f"{keys}.start_vllm: this command starts no server",
            f"Start it yourself (`heavydistill teachers {name}` prints the command) and give its "
            f"address as {keys}.base_url.",
        )
    if not endpoint.is_served and not profile_file(name) and Path(name).is_dir():
        name = str(Path(name).resolve())  # the journal identifies a folder by its full path
    journal, identity = journal_of(choice, out), content_id("a", about)
    config = RunConfig(
        teacher=name,
        system=system,
        endpoint=endpoint,
        pools=section or "sets",
        pools_sha256=identity,
        verify=verify,
        deliberate=Deliberating(d=choice.d, sampling=choice.sampling or SamplingChoice()),
        seed=sample_seed(choice.seed, "redeliberate"),
        journal=str(journal),
        budget=choice.budget,
        out=str(journal / identity),  # only names the account; no folder is written there
    )
    run = resolve_run(config, contact, section)
    segment.require(journal, writes=True)
    return identified(run, contact, saves=True) if contact else run


def journal_of(choice: Redeliberate | RefilterConfig, out: Path) -> Path:
    """Return the journal's folder: the configured one, or ``journal`` next to ``out``."""
    return Path(choice.journal or out.absolute().parent / "journal")


def _as_in_run(choice: Redeliberate, run: RunConfig) -> Redeliberate:
    """Return ``choice`` with its unset values taken from the run."""
    own = run.deliberator or run.teacher
    name = choice.teacher or own
    endpoint, chosen = run.endpoint, choice.sampling or SamplingChoice()
    if name == own:
        known = run.deliberate.sampling.model_dump(exclude_none=True)
        chosen = SamplingChoice(**(known | chosen.model_dump(exclude_none=True)))
    else:
        endpoint = of_another_model(endpoint)
    overrides = {"teacher": name, "endpoint": choice.endpoint or endpoint, "sampling": chosen}
    return choice.model_copy(update=overrides)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEstimate:
    """Number and size of the requests of a redeliberation."""

    caches: int
    requests: int
    in_journal: int  # Requests whose response is in the journal
    prompt_tokens: int  # Prompt tokens of the other requests, without the chat template
    completion_tokens: int  # Maximum completion tokens of the other requests
    usd: float | None  # Maximum cost of the other requests; None if the price is unknown
    rounds: tuple[int, ...]  # Rounds of the caches, ascending
    skipped: int  # Unreadable lines of the journal


def volume_of(run: ResolvedRun, pairs: Pairs, section: str = "redeliberate") -> RequestEstimate:
    """Return the volume of a redeliberation on (problem, cache) pairs; sends no request.

    If the tokenizer of the model is unknown, the prompts have the tokens that the caches record:
    those of the student, or of the run's deliberator.

    Raises ConfigError, naming keys of ``section``, if the longest prompt and a response exceed the
    model's context; TeacherError if the model's tokenizer cannot be loaded.
    """
    deliberator, folder = run.deliberator, Path(run.config.journal or "")
    model, most, d = deliberator.profile, deliberator.sampling.max_tokens, deliberator.samples
    reader = None if model.tokenizer == SERVER else ReaderTokenizer(model.tokenizer)
    journal = Journal(folder) if folder.is_dir() else None
    revision = revision_of(model, deliberator.endpoint) if journal else ""
    count = in_journal = prompt_tokens = longest = 0
    rounds = set()
    for problem, cache in pairs:
        tokens = cache.prompt_tokens
        if reader and reader.name != cache.reader:
            tokens = reader.count(cache.prompt)
        if reader:
            tokens += reader.count(problem.history_json)
        asked = keys(model.model, revision, requests_of(run, problem, cache))
        answered = sum(journal.state(each) == "answered" for each in asked) if journal else 0
        count, in_journal, longest = count + 1, in_journal + answered, max(longest, tokens)
        prompt_tokens += tokens * (d - answered)
        rounds.add(cache.round)
    _require_room(run, longest, section)
    completion_tokens = (count * d - in_journal) * most
    return RequestEstimate(
        caches=count,
        requests=count * d,
        in_journal=in_journal,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        usd=model.usd(prompt_tokens, completion_tokens),
        rounds=tuple(sorted(rounds)),
        skipped=journal.skipped if journal else 0,
    )


def _require_room(run: ResolvedRun, longest: int, section: str) -> None:
    """Raise ConfigError if a prompt of ``longest`` tokens and a response exceed the context."""
    model, most = run.deliberator.profile, run.deliberator.sampling.max_tokens
    room = model.context - run.config.system_tokens - longest - TEMPLATE_TOKENS
    if most > room:
        less = f"Set {f'{section}.sampling'.lstrip('.')}.max_tokens to {room} or less, or use"
        raise ConfigError(
            f"A prompt of {longest:,} tokens and {most:,} tokens of response exceed the context of "
            f"{model.name}, {model.context:,} tokens",
            f"{less if room > 0 else 'Use'} a model with a larger context.",
        )


def requests_of(run: ResolvedRun, problem: Problem, cache: Cache) -> list[Request]:
    return samples(
        conversation(cache.prompt, problem.history, run.config.system),
        run.deliberator.samples,
        run.deliberator.sampling,
        run_seed=run.config.seed,
        model=run.deliberator.profile.name,
        stage=deliberate_stage(cache.round),
    )


@dataclass(slots=True)
class DeliberationTally:
    """Counts of a redeliberation so far."""

    caches: int = 0  # Caches whose deliberations are all done
    failed: int = 0  # Deliberations that failed
    cut_off: int = 0  # Deliberations that reached ``max_tokens``
    from_journal: int = 0  # Deliberations read from the journal
    usage: Usage = field(default_factory=no_usage)

    def add(self, row: Row) -> None:
        """Count a row of the deliberation step's output."""
        from heavydistill.run.recipe.tasks import FROM_JOURNAL

        self.caches += 1
        self.from_journal += row.get(FROM_JOURNAL, 0)
        for item in row["deliberations"]:
            deliberation = from_row(Deliberation, item)
            self.failed += deliberation.finish_reason == "error"
            self.cut_off += deliberation.finish_reason == "length"
            self.usage.add(deliberation)

    def summary(self, run: ResolvedRun) -> RedeliberationSummary:
        """Return the counts in the manifest's format."""
        usage, deliberator = self.usage, run.deliberator
        known = usage.unknown_completion < usage.requests or not usage.requests
        usd = (
            deliberator.profile.usd(usage.prompt, usage.completion, usage.cached) if known else None
        )
        return RedeliberationSummary(
            model=deliberator.profile.name,
            sets=self.caches,
            deliberations=usage.requests,
            failed=self.failed,
            prompt_tokens=usage.prompt,
            completion_tokens=usage.completion,
            cost_usd=None if usd is None else round(usd, 6),
            sampling=deliberator.sampling.model_dump(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheDeliberations:
    """A row of the result: the judged deliberations on one cache."""

    problem_id: str
    cache_id: str
    deliberations: list[Deliberation]
    status: str


class Deliberations:
    """Deliberations on many caches, read on demand. Raises RunError if the row had an error."""

    def __init__(self, rows: Path) -> None:
        self._rows = dataset_of(rows, rows.parent / "mapped")
        self._places: dict[tuple[str, str], int] = {}
        columns = (self._rows[name] for name in ("problem_id", "cache_id", "status"))
        for place, (problem, cache, status) in enumerate(zip(*columns, strict=True)):
            if status != OK:
                raise RunError(f"The deliberations on cache {cache}: {status}", "Please report it.")
            self._places[problem, cache] = place

    def on(self, problem: str, cache: str) -> list[Deliberation]:
        """Return the deliberations on a cache; ``problem`` and ``cache`` are ids."""
        items = self._rows[self._places[problem, cache]]["deliberations"]
        return [from_row(Deliberation, item) for item in items]


def deliberate(
    run: ResolvedRun,
    volume: RequestEstimate,
    pairs: Callable[[], Pairs],
    folder: Path,
    on_progress: Callable[[DeliberationTally], None] = lambda tally: None,
    contact: ServerProbe | None = None,
) -> tuple[Deliberations, DeliberationTally]:
    """Request deliberations on caches, and judge them.

    Args:
        run: From ``resolve``.
        volume: From ``volume_of``.
        pairs: Returns pairs of a problem and a cache; called once for each round of the caches.
        folder: Existing folder for the rows, which must outlive the result.
        on_progress: Called after each batch, by one thread at a time.
        contact: Contact that has queried the servers already; None to query them now.

    Raises:
        ConfigError, TeacherError: A server, the weights, the account, the journal or an own
            verifier cannot be used.
        StoppedError, RunError, KeyboardInterrupt: As in a run; responses to the requests in flight
            are in the journal.
    """
    if run.asks_servers:
        require_endpoints(run, contact or ServerProbe())
    from heavydistill.run.recipe.pipeline import paying

    tally = DeliberationTally()

    def count(step: str, rows: list[Row]) -> None:
        if step == _DELIBERATE:
            for row in rows:
                tally.add(row)
            on_progress(tally)

    with paying(run):
        for round in volume.rounds:
            these = (pair for pair in pairs() if pair[1].round == round)
            pipeline = _pipeline(run, round, these, count)
            pipeline.keep_in(folder, f"round-{round}")
            pipeline.run_to_files()
    return Deliberations(folder / LEAF_FOLDER), tally


def _pipeline(
    run: ResolvedRun, round: int, pairs: Pairs, on_batch: Callable[[str, list[Row]], None]
) -> HeavyPipeline:
    from heavydistill.run.recipe.pipeline import LOCAL_BATCH, llm_of, pace_of, window_of
    from heavydistill.run.recipe.steps import LoadCaches, Verify
    from heavydistill.run.recipe.tasks import Deliberate
    from heavydistill.run.runner import HeavyPipeline

    stage, window = deliberate_stage(round), window_of(run)
    pace = pace_of(run, stage)
    schema = arrow_schema(CacheDeliberations)
    pipeline = HeavyPipeline("redeliberate", schema, on_batch, window=window)
    with pipeline:
        source = LoadCaches(name="load_caches", batch_size=min(LOCAL_BATCH, window))
        source.take(pairs)
        ask = Deliberate(
            name=_DELIBERATE,
            llm=llm_of(run, stage),
            num_generations=run.deliberator.samples,
            input_batch_size=pace.batch,
            batches_in_flight=pace.in_flight,
        )
        verify, size = run.config.verify, pace.batch
        (
            source
            >> ask
            >> Verify(name="verify", column="deliberations", verify=verify, input_batch_size=size)
        )
    return pipeline


# --- Redeliberation of a build.


class Redeliberation:
    """The redeliberation of a build; marks the sets to deliberate on in the build's notes.

    The first pass of ``build`` must be finished. ``runs`` has the resolved runs by name of the
    source run; ``contact`` has queried the servers, or is None if nothing was sent. Raises
    ConfigError if a prompt and a response exceed the context.
    """

    def __init__(
        self, build: BuildState, runs: Mapping[str, ResolvedRun], contact: ServerProbe | None
    ) -> None:
        self._build, self._contact = build, contact
        seen = set()
        for note in build.pending():
            note.asked = note.of not in seen  # runs that share a pool have equal sets
            seen.add(note.of)
        self.volumes: list[tuple[SourceRun, ResolvedRun, RequestEstimate]] = []
        """(source run, resolved run, volume) for each source run with sets to deliberate on."""
        self._written: dict[str, Deliberations] = {}
        for source in build.sources:
            if next(self._sets(source), None):
                run = runs[source.name]
                self.volumes.append((source, run, volume_of(run, self._pairs(source))))

    def ask(self, folder: Path, on_progress: OnProgress) -> list[RedeliberationSummary]:
        """Request the deliberations and add notes on them; ``answers`` returns them afterwards.

        The rows are kept in ``folder``, which must outlive this object. Raises the same errors as
        ``deliberate``.
        """
        total = sum(volume.caches for _, _, volume in self.volumes)
        summaries, before = [], 0

        def show(before: int, tally: DeliberationTally) -> None:
            on_progress("Asking for deliberations", before + tally.caches, total)

        for source, run, volume in self.volumes:
            place = folder / source.name
            place.mkdir()
            pairs = partial(self._pairs, source)
            written, tally = deliberate(
                run, volume, pairs, place, partial(show, before), self._contact
            )
            self._written[source.name] = written
            for each in self._sets(source):
                each.note.deliberations += [
                    self._build.look_at_deliberation(each.problem, each.shown, deliberation)
                    for deliberation in written.on(each.problem.id, each.cache.id)
                ]
            before += tally.caches
            summaries.append(tally.summary(run))
        return summaries

    def answers(self, run: str, problem: Problem, cache: Cache) -> list[Deliberation]:
        """Return the new deliberations on a cache of a run."""
        return self._written[run].on(problem.id, cache.id)

    def _pairs(self, source: SourceRun) -> Iterator[tuple[Problem, Cache]]:
        return ((each.problem, each.cache) for each in self._sets(source))

    def _sets(self, source: SourceRun) -> Iterator[SetOfTrace]:
        """Yield the sets of a run that need deliberations."""
        for trace, known in self._build.traces_of(source):
            for note in known.sets:
                asked = self._build.with_cache(source, trace, note) if note.asked else None
                note.asked = asked is not None  # the set may exceed the student's context
                if asked:
                    yield asked
