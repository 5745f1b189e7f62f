"""New deliberations on caches that are there: a run whose caches are loaded.

    run = resolve(config, source.config)     the model that is asked, with its journal and budget
    volume = volume_of(run, caches)          whether the prompts fit, and how much it is
    deliberate(run, volume, ...)             the chain: caches are loaded, deliberated on, judged

The same command goes on after a kill and pays for nothing twice; a budget holds over all
resumptions. What comes out is on disk, so that memory does not grow with it. The samples are others
than those of a run with the same seed, so that a deliberator that failed on a cache is not asked
for the same once more.

``Redeliberation`` is that on sets of a build's mixture that have no deliberation to learn from.

Not covered: starting a server; a judge for what rules leave undecided; caches of the same prompt,
of which one that failed may be asked again.
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
from heavydistill.curate.first_pass import Build, OnProgress, SetOfTrace, SourceRun
from heavydistill.errors import ConfigError, RunError
from heavydistill.metrics.counts import Usage, no_usage
from heavydistill.models.contact import Contact
from heavydistill.models.registry import profile_file, revision_of
from heavydistill.models.request import Request, deliberate_stage, sample_seed, samples, user_turn
from heavydistill.models.resolve import ResolvedRun, of_another_model
from heavydistill.models.resolve import resolve as resolve_run
from heavydistill.models.tokenizer import SERVER, TEMPLATE_TOKENS, ReaderTokenizer
from heavydistill.run.generate import require_endpoints
from heavydistill.run.rows import dataset_of
from heavydistill.schema import (
    OK,
    Cache,
    Deliberation,
    Problem,
    arrow_schema,
    content_id,
    from_row,
)
from heavydistill.store import segment
from heavydistill.store.journal import Journal, key
from heavydistill.store.sets.folder import RedeliberationSummary
from heavydistill.store.traces import LEAF_FOLDER

if TYPE_CHECKING:
    from heavydistill.run.runner import HeavyPipeline

Pairs = Iterable[tuple[Problem, Cache]]
Row = dict[str, Any]
_DELIBERATE = "deliberate"


def resolve(
    config: BuildConfig, run: RunConfig | None, contact: Contact | None = None
) -> ResolvedRun:
    """Who deliberates again on sets of a run; None for ``run`` is an imported pool.

    Raises:
        ConfigError: No model is named, a server would have to be started, its tokens cannot be
            counted, or the budget is in money and there is no price.
        TeacherError: The model is not known, cannot run here, or hides its thinking there.
    """
    assert config.redeliberate is not None
    choice = _as_in_run(config.redeliberate, run) if run else config.redeliberate
    if choice.teacher is None:
        raise ConfigError(
            "redeliberate.teacher is not set, and an imported pool has no deliberator",
            "Name one with --set redeliberate.teacher=NAME.",
        )
    # What else is built from is another budget; how and where it is done is not. All runs that it
    # is built from share one, whoever deliberates on each.
    place = {"endpoint": True, "journal": True, "budget": True}
    about = config.model_dump(exclude={"out": True, "verify": True, "redeliberate": place})
    out = Path(config.out)
    return resolve_choice(choice, config.verify, "redeliberate", out, about, contact)


def resolve_choice(
    choice: Redeliberate,
    verify: Verifying,
    section: str,
    out: Path,
    about: object,
    contact: Contact | None,
) -> ResolvedRun:
    """The run that asks a model, which ``choice`` names, about caches.

    ``section`` is where ``choice`` stands in the configuration, for messages; the journal is beside
    ``out``, unless it names another; ``about`` is what is asked for, as JSON: another account for
    each. Raises as ``resolve``; no ``contact`` sends nothing.
    """
    name, endpoint = choice.teacher or "", choice.endpoint or Endpoint()
    keys = f"{section}.endpoint".lstrip(".")
    if endpoint.start_vllm:
        raise ConfigError(
            f"{keys}.start_vllm: no server is started for this",
            f"Start it yourself, `heavydistill teachers {name}` tells how, and give its address "
            f"as {keys}.base_url.",
        )
    if not endpoint.is_served and not profile_file(name) and Path(name).is_dir():
        name = str(Path(name).resolve())  # under which the journal knows a folder
    journal, identity = journal_of(choice, out), content_id("a", about)
    config = RunConfig(
        teacher=name,
        endpoint=endpoint,
        pools=section or "sets",
        pools_sha256=identity,
        verify=verify,
        deliberate=Deliberating(d=choice.d, sampling=choice.sampling or SamplingChoice()),
        seed=sample_seed(choice.seed, "redeliberate"),
        journal=str(journal),
        budget=choice.budget,
        out=str(journal / identity),  # which names the account; no folder is written there
    )
    run = resolve_run(config, contact, section)
    if run.deliberator.profile.tokenizer == SERVER:  # what is trained on is counted exactly
        raise ConfigError(
            f"{keys}.tokenizer names none, and no profile of {name} does, so the tokens of the "
            "prompts cannot be counted",
            "Set it to a folder or a Hub id with a tokenizer.json.",
        )
    segment.require(journal, writes=True)
    return run


def journal_of(choice: Redeliberate | RefilterConfig, out: Path) -> Path:
    """Where every response is kept: beside ``out``, unless another folder is named."""
    return Path(choice.journal or out.absolute().parent / "journal")


def _as_in_run(choice: Redeliberate, run: RunConfig) -> Redeliberate:
    """With the run's teacher, endpoint and sampling in place of what is left out."""
    own = run.deliberator or run.teacher
    name = choice.teacher or own
    endpoint, chosen = run.endpoint, choice.sampling or SamplingChoice()
    if name == own:
        known = run.deliberate.sampling.model_dump(exclude_none=True)
        chosen = SamplingChoice(**(known | chosen.model_dump(exclude_none=True)))
    else:
        endpoint = of_another_model(endpoint)
    asked = {"teacher": name, "endpoint": choice.endpoint or endpoint, "sampling": chosen}
    return choice.model_copy(update=asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """How much is to be asked."""

    caches: int
    requests: int
    in_journal: int  # requests that have a response already
    prompt_tokens: int  # of the others, in the model's tokenizer, without its chat template
    completion_tokens: int  # the maximum that they can bring
    usd: float | None  # maximum cost of both; None if the price is not known
    rounds: tuple[int, ...]  # rounds of the caches, ascending
    skipped: int  # lines of the journal that cannot be read


def volume_of(run: ResolvedRun, caches: Iterable[Cache], section: str = "redeliberate") -> Volume:
    """How much asking about these caches takes; sends no request.

    Raises ConfigError, with keys of ``section``, where the model's context does not hold the
    longest prompt and a response; TeacherError where its tokenizer cannot be loaded.
    """
    deliberator, folder = run.deliberator, Path(run.config.journal or "")
    model, most, d = deliberator.profile, deliberator.sampling.max_tokens, deliberator.samples
    reader = ReaderTokenizer(model.tokenizer)
    journal = Journal(folder) if folder.is_dir() else None
    revision = revision_of(model, deliberator.endpoint) if journal else ""
    count = in_journal = prompt_tokens = longest = 0
    rounds = set()
    for cache in caches:
        same = cache.reader == reader.name
        tokens = cache.prompt_tokens if same else reader.count(cache.prompt)
        keys = [key(model.model, revision, request) for request in requests_of(run, cache)]
        known = sum(journal.state(each) == "answered" for each in keys) if journal else 0
        count, in_journal, longest = count + 1, in_journal + known, max(longest, tokens)
        prompt_tokens += tokens * (d - known)
        rounds.add(cache.round)
    room = model.context - longest - TEMPLATE_TOKENS
    if most > room:
        less = f"Set {f'{section}.sampling'.lstrip('.')}.max_tokens to {room} or less, or ask"
        raise ConfigError(
            f"A prompt of {longest:,} tokens and {most:,} tokens of response do not fit the "
            f"{model.context:,} tokens of {model.name}",
            f"{less if room > 0 else 'Ask'} a model with more context.",
        )
    completion_tokens = (count * d - in_journal) * most
    return Volume(
        caches=count,
        requests=count * d,
        in_journal=in_journal,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        usd=model.usd(prompt_tokens, completion_tokens),
        rounds=tuple(sorted(rounds)),
        skipped=journal.skipped if journal else 0,
    )


def requests_of(run: ResolvedRun, cache: Cache) -> list[Request]:
    """The requests for the deliberations on a cache."""
    return samples(
        user_turn(cache.prompt),
        run.deliberator.samples,
        run.deliberator.sampling,
        run_seed=run.config.seed,
        model=run.deliberator.profile.name,
        stage=deliberate_stage(cache.round),
    )


@dataclass(slots=True)
class DeliberationTally:
    """What was asked for so far, and what came of it."""

    caches: int = 0  # whose deliberations are there
    failed: int = 0  # deliberations that failed
    cut_off: int = 0  # deliberations that were too long
    from_journal: int = 0  # deliberations that were paid for earlier
    usage: Usage = field(default_factory=no_usage)

    def add(self, row: Row) -> None:
        """Count a row of the step that deliberates."""
        from heavydistill.run.tasks import FROM_JOURNAL

        self.caches += 1
        self.from_journal += row.get(FROM_JOURNAL, 0)
        for item in row["deliberations"]:
            deliberation = from_row(Deliberation, item)
            self.failed += deliberation.finish_reason == "error"
            self.cut_off += deliberation.finish_reason == "length"
            self.usage.add(deliberation)

    def summary(self, run: ResolvedRun) -> RedeliberationSummary:
        """The same for a manifest."""
        usage, deliberator = self.usage, run.deliberator
        known = usage.unknown_completion < usage.requests or not usage.requests
        usd = deliberator.profile.usd(usage.prompt, usage.completion) if known else None
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
    """A row that leaves the chain: the deliberations on one cache, judged."""

    problem_id: str
    cache_id: str
    deliberations: list[Deliberation]
    status: str


class Deliberations:
    """Deliberations on many caches, read as they are needed; a row that failed is a RunError."""

    def __init__(self, rows: Path) -> None:
        self._rows = dataset_of(rows, rows.parent / "mapped")
        self._places: dict[tuple[str, str], int] = {}
        columns = (self._rows[name] for name in ("problem_id", "cache_id", "status"))
        for place, (problem, cache, status) in enumerate(zip(*columns, strict=True)):
            if status != OK:
                raise RunError(f"The deliberations on cache {cache}: {status}", "Report this.")
            self._places[problem, cache] = place

    def on(self, problem: str, cache: str) -> list[Deliberation]:
        """Those on a cache of a problem, by their ids."""
        items = self._rows[self._places[problem, cache]]["deliberations"]
        return [from_row(Deliberation, item) for item in items]


def deliberate(
    run: ResolvedRun,
    volume: Volume,
    pairs: Callable[[], Pairs],
    folder: Path,
    on_progress: Callable[[DeliberationTally], None] = lambda tally: None,
    contact: Contact | None = None,
) -> tuple[Deliberations, DeliberationTally]:
    """Deliberate on caches and judge what comes.

    Args:
        run: From ``resolve``.
        volume: How much is asked.
        pairs: Gives each problem with a cache; called once for each round of the caches.
        folder: Existing folder for the rows, which must outlive the result.
        on_progress: Called after each batch, by one thread at a time.
        contact: What has asked the servers before, if anything has.

    Raises:
        ConfigError, TeacherError: A server, the weights, the account, the journal or a verifier of
            one's own cannot be used.
        StoppedError, RunError, KeyboardInterrupt: As a run; what was sent before is answered and
            in the journal.
    """
    if run.asks_servers:
        require_endpoints(run, contact or Contact())
    from heavydistill.run.recipe import paying

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
    from heavydistill.run.recipe import LOCAL_BATCH, llm_of, pace_of, window_of
    from heavydistill.run.runner import HeavyPipeline
    from heavydistill.run.steps import LoadCaches, Verify
    from heavydistill.run.tasks import Deliberate

    stage, window = deliberate_stage(round), window_of(run)
    pace = pace_of(run, stage)
    schema = arrow_schema(CacheDeliberations)
    pipeline = HeavyPipeline("redeliberate", schema, on_batch, window=window)
    with pipeline:
        source = LoadCaches(name="load_caches", batch_size=min(LOCAL_BATCH, window))
        source.take(pairs)
        (
            source
            >> Deliberate(
                name=_DELIBERATE,
                llm=llm_of(run, stage),
                num_generations=run.deliberator.samples,
                round=round,
                input_batch_size=pace.batch,
                batches_in_flight=pace.in_flight,
            )
            >> Verify(
                name="verify",
                column="deliberations",
                verify=run.config.verify,
                input_batch_size=pace.batch,
            )
        )
    return pipeline


# --- What a build asks for.


class Redeliberation:
    """What a build asks for. The sets that are asked about are marked in its notes.

    ``build`` is after its first pass, ``runs`` say who deliberates on the sets of each run, by its
    name, and ``contact`` is what has asked the servers; None if nothing was sent. Raises
    ConfigError where a prompt and a response do not fit.
    """

    def __init__(
        self, build: Build, runs: Mapping[str, ResolvedRun], contact: Contact | None
    ) -> None:
        self._build, self._contact = build, contact
        seen = set()
        for note in build.pending():
            note.asked = note.of not in seen  # two runs that share a pool have the same sets
            seen.add(note.of)
        self.volumes: list[tuple[SourceRun, ResolvedRun, Volume]] = []
        """The runs with sets to ask about; who is asked, and how much."""
        self._written: dict[str, Deliberations] = {}
        for source in build.sources:
            if next(self._sets(source), None):
                run, caches = runs[source.name], (each.cache for each in self._sets(source))
                self.volumes.append((source, run, volume_of(run, caches)))

    def ask(self, folder: Path, on_progress: OnProgress) -> list[RedeliberationSummary]:
        """Ask, and note what is found out about the answers; ``answers`` gives them afterwards.

        The rows are kept in ``folder``, which must outlive this. Raises as ``deliberate``.
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
        """The deliberations on a cache of a run."""
        return self._written[run].on(problem.id, cache.id)

    def _pairs(self, source: SourceRun) -> Iterator[tuple[Problem, Cache]]:
        return ((each.problem, each.cache) for each in self._sets(source))

    def _sets(self, source: SourceRun) -> Iterator[SetOfTrace]:
        """The sets of a run to ask about."""
        for trace, known in self._build.traces_of(source):
            for note in known.sets:
                asked = self._build.with_cache(source, trace, note) if note.asked else None
                note.asked = asked is not None  # the student's context may not hold it
                if asked:
                    yield asked
