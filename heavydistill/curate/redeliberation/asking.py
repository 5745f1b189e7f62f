"""Who is asked for deliberations on caches that are there, how, and how much that is.

    asking = resolve(config, run)          who, how, and what it may cost
    volume = volume_of(asking, caches)     whether the prompts fit, and how much it is

The samples are others than those of a run with the same seed, so that a deliberator that failed on
a cache is not asked for the same once more. ``deliberate`` asks.

Not covered: starting a server.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from heavydistill.config.models import Endpoint, Sampling, SamplingChoice
from heavydistill.config.run import RunConfig, caps_of
from heavydistill.config.sets import BuildConfig, Redeliberate, RefilterConfig
from heavydistill.errors import ConfigError
from heavydistill.models.capabilities import bounded
from heavydistill.models.contact import Contact
from heavydistill.models.context import Context
from heavydistill.models.profiles import Profile
from heavydistill.models.registry import find, revision_of
from heavydistill.models.request import Request, deliberate_stage, sample_seed, samples, user_turn
from heavydistill.models.resolve import located, of_another_model, reach
from heavydistill.models.tokenizer import SERVER, TEMPLATE_TOKENS, ReaderTokenizer
from heavydistill.schema import Cache, content_id
from heavydistill.store import segment
from heavydistill.store.journal import Journal, key


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
    return asking_of(choice, "redeliberate.", Path(config.out), about, contact)


def asking_of(
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


def volume_of(asking: ResolvedDeliberator, caches: Iterable[Cache]) -> Volume:
    """How much asking about these caches takes. Sends no request and writes nothing.

    Raises:
        ConfigError: The model's context does not hold the longest prompt and a response.
        TeacherError: Its tokenizer cannot be loaded.
    """
    model, most = asking.model, asking.sampling.max_tokens
    reader = ReaderTokenizer(model.tokenizer)
    journal = Journal(asking.journal) if asking.journal.is_dir() else None
    revision = revision_of(model, asking.endpoint) if journal else ""
    count = in_journal = prompt_tokens = longest = 0
    rounds = set()
    for cache in caches:
        same = cache.reader == reader.name
        tokens = cache.prompt_tokens if same else reader.count(cache.prompt)
        keys = [key(model.model, revision, request) for request in asking.requests(cache)]
        known = sum(journal.state(each) == "answered" for each in keys) if journal else 0
        count, in_journal, longest = count + 1, in_journal + known, max(longest, tokens)
        prompt_tokens += tokens * (asking.d - known)
        rounds.add(cache.round)
    _check_room(asking, longest)
    completion_tokens = (count * asking.d - in_journal) * most
    return Volume(
        caches=count,
        requests=count * asking.d,
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


def _check_room(asking: ResolvedDeliberator, longest: int) -> None:
    model, most = asking.model, asking.sampling.max_tokens
    room = model.context - longest - TEMPLATE_TOKENS
    if most > room:
        less = f"Set {asking.section}sampling.max_tokens to {room} or less, or ask"
        raise ConfigError(
            f"A prompt of {longest:,} tokens and {most:,} tokens of response do not fit the "
            f"{model.context:,} tokens of {model.name}",
            f"{less if room > 0 else 'Ask'} a model with more context.",
        )
