"""The model that writes deliberations on caches that are there: who it is, how much, and asking it.

    deliberator = resolve(config, run)          who is asked, how, and what it may cost
    volume = volume_of(deliberator, caches)     whether the prompts fit, and how much it is
    deliberate(deliberator, volume, ...)        with the runner of a run

A chain of three steps runs in this process: caches are loaded, deliberated on and judged. Requests,
rows and verdicts are those of a run: every response is in the journal before it is used, so the
same command goes on after a kill and pays for nothing twice; a budget holds over all resumptions.
What comes out is on disk, so that memory does not grow with it. The samples are others than those
of a run with the same seed, so that a deliberator that failed on a cache is not asked for the same
once more.

Not covered: starting a server; a judge for what rules leave undecided; caches of the same prompt,
of which one that failed may be asked again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heavydistill.config.models import Endpoint, Sampling, SamplingChoice
from heavydistill.config.run import RunConfig, Verifying, caps_of
from heavydistill.config.sets import BuildConfig, Redeliberate, RefilterConfig
from heavydistill.errors import ConfigError, RunError
from heavydistill.metrics.counts import UsageTally
from heavydistill.models.capabilities import Context, bounded
from heavydistill.models.contact import Contact
from heavydistill.models.ledger import Ledger
from heavydistill.models.profiles import LOCAL_BATCH, Pace, Profile
from heavydistill.models.registry import find, revision_of, tariff_of
from heavydistill.models.request import Request, deliberate_stage, sample_seed, samples, user_turn
from heavydistill.models.resolve import located, of_another_model, reach
from heavydistill.models.tokenizer import SERVER, TEMPLATE_TOKENS, ReaderTokenizer
from heavydistill.run.rows import dataset_of
from heavydistill.schema import OK, Cache, Deliberation, Problem, arrow_schema, content_id, from_row
from heavydistill.store import segment
from heavydistill.store.journal import Journal, key
from heavydistill.store.sets.folder import RedeliberationSummary

if TYPE_CHECKING:
    from heavydistill.run.runner import HeavyPipeline

Pairs = Iterable[tuple[Problem, Cache]]
Row = dict[str, Any]
_DELIBERATE = "deliberate"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedDeliberator:
    """Who is asked for deliberations, complete."""

    model: Profile
    """The model; a folder by its last name, so that the samples are the same wherever it is."""
    endpoint: Endpoint  # where it is served, if it is
    sampling: Sampling
    d: int  # deliberations per cache
    seed: int  # of all samples
    journal: Path  # folder that keeps every response
    account: Path  # file of what was spent
    most_usd: float | None  # the budget, if it is in money
    most_tokens: int | None  # the budget, if it is in tokens
    section: str  # of the configuration, with its dot, for messages
    context: Context | None = None  # the model's context and its source; None in this process
    contact: Contact | None = None  # has asked the server; None if nothing was sent

    def requests(self, cache: Cache) -> list[Request]:
        """Those for the deliberations on a cache."""
        return samples(
            user_turn(cache.prompt),
            self.d,
            self.sampling,
            run_seed=self.seed,
            model=self.model.name,
            stage=deliberate_stage(cache.round),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """How much is to be asked."""

    caches: int
    requests: int
    in_journal: int  # requests that have a response already
    prompt_tokens: int  # of the others, in the model's tokenizer, without its chat template
    completion_tokens: int  # the maximum that they can bring
    usd: float | None  # maximum cost of both; None if the price is not known
    longest: int  # tokens of the longest prompt of all
    rounds: tuple[int, ...]  # rounds of the caches, ascending
    skipped: int = 0  # lines of the journal that cannot be read


def resolve(
    config: BuildConfig, run: RunConfig | None, contact: Contact | None = None
) -> ResolvedDeliberator:
    """Who deliberates again on sets of a run.

    Args:
        config: With ``redeliberate``.
        run: The configuration of the run; None for an imported pool.
        contact: Asks the server how much context it takes; None sends nothing.

    Raises:
        ConfigError: No model is named, a server would have to be started, its tokens cannot be
            counted, or the budget is in money and there is no price.
        TeacherError: The model is not known, cannot run here, or hides its thinking there.
    """
    if config.redeliberate is None:
        raise ValueError("the configuration has no redeliberate")
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
    return deliberator_of(choice, "redeliberate.", Path(config.out), about, contact)


def deliberator_of(
    choice: Redeliberate, section: str, out: Path, about: object, contact: Contact | None = None
) -> ResolvedDeliberator:
    """Complete a section from the profile of its teacher and the capability files.

    Args:
        choice: The section, with a teacher.
        section: Its name in the configuration, with its dot, for messages.
        out: Beside which the journal is, unless it is named.
        about: What is asked for, as JSON: another account for each.
        contact: Asks the server how much context it takes; None sends nothing.

    Raises:
        ConfigError, TeacherError: As ``resolve``.
    """
    name = choice.teacher or ""
    given = located(choice.endpoint or Endpoint())
    if given.start_vllm:
        raise ConfigError(
            f"{section}endpoint.start_vllm: no server is started for this",
            f"Start it yourself, `heavydistill teachers {name}` tells how, and give its address "
            f"as {section}endpoint.base_url.",
        )
    # The prompts are not known yet; one is taken to be as long as its response.
    needed = 2 * ((choice.sampling and choice.sampling.max_tokens) or 0)
    endpoint, contexts = reach(given, (name,), contact, needed)
    model = find(name, endpoint)
    if model.tokenizer == SERVER:  # what is trained on is counted exactly
        raise ConfigError(
            f"{section}endpoint.tokenizer names none, and no profile of {name} does, so the "
            "tokens of the prompts cannot be counted",
            "Set it to a folder or a Hub id with a tokenizer.json.",
        )
    most_usd, most_tokens = caps_of(choice.budget)
    _check_budget(choice, section, model, most_usd)
    sampling_choice = choice.sampling or SamplingChoice()
    sampling = bounded(
        f"{section}sampling", sampling_choice, model.deliberator, endpoint.capabilities
    )
    journal = journal_of(choice, out)
    segment.require(journal, writes=True)
    return ResolvedDeliberator(
        model=_resolved(model),
        endpoint=endpoint,
        sampling=sampling,
        d=choice.d,
        seed=sample_seed(choice.seed, "redeliberate"),
        journal=journal,
        account=account_in(journal, about),
        most_usd=most_usd,
        most_tokens=most_tokens,
        section=section,
        context=contexts[0] if contexts else None,
        contact=contact,
    )


def account_in(journal: Path, about: object) -> Path:
    """The file of what is spent on what is asked for."""
    return journal / f"{content_id('a', about)}.ledger"


def journal_of(choice: Redeliberate | RefilterConfig, out: Path) -> Path:
    """Where every response is kept: beside ``out``, unless another folder is named."""
    return Path(choice.journal or out.absolute().parent / "journal")


def volume_of(deliberator: ResolvedDeliberator, caches: Iterable[Cache]) -> Volume:
    """How much asking about these caches takes. Sends no request and writes nothing.

    Raises:
        ConfigError: The model's context does not hold the longest prompt and a response.
        TeacherError: Its tokenizer cannot be loaded.
    """
    model, most = deliberator.model, deliberator.sampling.max_tokens
    reader = ReaderTokenizer(model.tokenizer)
    journal = Journal(deliberator.journal) if deliberator.journal.is_dir() else None
    revision = revision_of(model, deliberator.endpoint) if journal else ""
    count = in_journal = prompt_tokens = longest = 0
    rounds = set()
    for cache in caches:
        same = cache.reader == reader.name
        tokens = cache.prompt_tokens if same else reader.count(cache.prompt)
        keys = [key(model.model, revision, request) for request in deliberator.requests(cache)]
        known = sum(journal.state(each) == "answered" for each in keys) if journal else 0
        count, in_journal, longest = count + 1, in_journal + known, max(longest, tokens)
        prompt_tokens += tokens * (deliberator.d - known)
        rounds.add(cache.round)
    _check_room(deliberator, longest)
    completion_tokens = (count * deliberator.d - in_journal) * most
    return Volume(
        caches=count,
        requests=count * deliberator.d,
        in_journal=in_journal,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        usd=model.usd(prompt_tokens, completion_tokens),
        longest=longest,
        rounds=tuple(sorted(rounds)),
        skipped=journal.skipped if journal else 0,
    )


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
    return choice.model_copy(
        update={
            "teacher": name,
            "endpoint": choice.endpoint or endpoint,
            "sampling": chosen,
        }
    )


def _resolved(model: Profile) -> Profile:
    """A model in a folder by the whole path of that, under which the journal knows it."""
    folder = Path(model.model)
    if model.kind == "local" and folder.is_dir():
        return replace(model, model=str(folder.resolve()))
    return model


def _check_budget(
    choice: Redeliberate, section: str, model: Profile, most_usd: float | None
) -> None:
    if choice.budget and model.kind == "local":
        raise ConfigError(
            f"{section}budget: {choice.budget} is for a served model, and {model.name} runs in "
            "this process",
            f"Leave it out, or name a server with {section}endpoint.base_url.",
        )
    if most_usd is not None and not model.price:
        raise ConfigError(
            f"{section}budget: {choice.budget} is in money, and the price of {model.name} is not "
            "known here",
            f"Give {section}endpoint.price_in and price_out, or a budget in tokens, e.g. 40Mtok.",
        )


def _check_room(deliberator: ResolvedDeliberator, longest: int) -> None:
    model, most = deliberator.model, deliberator.sampling.max_tokens
    room = model.context - longest - TEMPLATE_TOKENS
    if most > room:
        less = f"Set {deliberator.section}sampling.max_tokens to {room} or less, or ask"
        raise ConfigError(
            f"A prompt of {longest:,} tokens and {most:,} tokens of response do not fit the "
            f"{model.context:,} tokens of {model.name}",
            f"{less if room > 0 else 'Ask'} a model with more context.",
        )


@dataclass(slots=True)
class DeliberationTally:
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

    def asked(self, deliberator: ResolvedDeliberator) -> RedeliberationSummary:
        """The same for a manifest."""
        usage = self.tokens.usage
        known = usage.unknown_completion < usage.requests or not usage.requests
        usd = deliberator.model.usd(usage.prompt, usage.completion) if known else None
        return RedeliberationSummary(
            model=deliberator.model.name,
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
    deliberator: ResolvedDeliberator,
    volume: Volume,
    verify: Verifying,
    pairs: Callable[[], Pairs],
    folder: Path,
    on_progress: Callable[[DeliberationTally], None] = lambda tally: None,
) -> tuple[Deliberations, DeliberationTally]:
    """Deliberate on caches and judge what comes.

    Args:
        deliberator: Who is asked, and how.
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
    result, tally = Deliberations(), DeliberationTally()

    def count(step: str, rows: list[Row]) -> None:
        if step == _DELIBERATE:
            for row in rows:
                tally.add(row)
            on_progress(tally)

    with _paying(deliberator, volume):
        for round in volume.rounds:
            place = folder / f"round-{round}"
            these = (pair for pair in pairs() if pair[1].round == round)
            pipeline = _pipeline(deliberator, verify, round, these, count)
            pipeline.keep_in(place)
            pipeline.run_to_files()
            result.add(pipeline.leaf_files, place / "mapped")
    return result, tally


def _pipeline(
    deliberator: ResolvedDeliberator,
    verify: Verifying,
    round: int,
    pairs: Pairs,
    on_batch: Callable[[str, list[Row]], None],
) -> HeavyPipeline:
    from heavydistill.run.llm import HeavyLLM
    from heavydistill.run.runner import HeavyPipeline
    from heavydistill.run.steps import LoadCaches, Verify
    from heavydistill.run.tasks import Deliberate

    pace = Pace.of(deliberator.model, deliberator.d, deliberator.endpoint)
    llm = HeavyLLM.resolved(
        deliberator.model,
        teacher=deliberator.model.name,
        sampling=deliberator.sampling,
        seed=deliberator.seed,
        stage=deliberate_stage(round),
        endpoint=deliberator.endpoint,
        journal=str(deliberator.journal),
        ledger=str(deliberator.account) if deliberator.model.kind == "endpoint" else None,
        most_tokens=deliberator.most_tokens,
        most_usd=deliberator.most_usd,
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
                num_generations=deliberator.d,
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
def _paying(deliberator: ResolvedDeliberator, volume: Volume) -> Iterator[None]:
    """While this lasts the account of what is asked is this process's own, if it is served.

    Raises:
        TeacherError: The server cannot be asked.
        ConfigError: The same is asked by another process, or the account cannot be used.
    """
    if deliberator.model.kind != "endpoint":
        yield
        return
    caps = deliberator.most_tokens, deliberator.most_usd
    account = partial(Ledger, deliberator.account, *caps) if any(caps) else None
    contact, tariff = deliberator.contact or Contact(), tariff_of(deliberator.model)
    most = volume.longest + deliberator.sampling.max_tokens
    contact.require(deliberator.model.model, deliberator.endpoint, most, account, tariff)
    with contextlib.closing(Ledger(deliberator.account)) as own, own.running():
        yield
