"""Fills in what a configuration leaves to the profiles, to capability files and to this machine.

A completed configuration is what is saved with a run. To complete it again changes nothing in it,
whatever the capability files and the sampling of the profiles have become since. Not covered: what
is read from a profile when a model is asked, such as its served name and its switches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heavydistill.config.models import Endpoint, Judge, Sampling, SamplingChoice
from heavydistill.config.run import Deliberate, RunConfig, Think
from heavydistill.errors import ConfigError
from heavydistill.models.capabilities import bounded, obeyed
from heavydistill.models.contact import Contact
from heavydistill.models.context import Context, contexts_of, held
from heavydistill.models.profile import Profile
from heavydistill.models.profile_files import ProfileFile
from heavydistill.models.providers import PROVIDERS, provider_at
from heavydistill.models.registry import file_of, find, names, nearest
from heavydistill.models.tokenizer import SERVER, TEMPLATE_TOKENS
from heavydistill.models.vllm.machine import largest_setup

PAPER_BUDGET_TOKENS = 80_000  # arXiv 2605.02396 prunes caches to this
# Votes must differ to be worth more than one, and the verdict is a word after some thinking.
JUDGE_SAMPLING = Sampling(temperature=0.7, top_p=0.95, top_k=0, max_tokens=8192)
OF_ANOTHER_MODEL = ("tokenizer", "context", "capabilities", "price_in", "price_out")


@dataclass(frozen=True, slots=True)
class Completed:
    """A completed configuration.

    Attributes:
        config: The configuration.
        contexts: What the models that are served take, and who says so.
    """

    config: RunConfig
    contexts: list[Context]


def complete(config: RunConfig) -> RunConfig:
    """As ``completed``, without a request to any server."""
    return completed(config).config


def completed(
    config: RunConfig, contact: Contact | None = None, saved: int | None = None
) -> Completed:
    """The configuration with everything filled in that profiles, capability files and servers say.

    Args:
        config: As the user gave it.
        contact: Asks the servers which models they serve, and how much these take; None sends
            nothing.
        saved: Context of the run that is in the folder already, in tokens; None if there is none.

    Raises:
        TeacherError: A model is not known, cannot run here, or hides its thinking there; or its
            server cannot be asked, as of ``Contact.context``.
        ConfigError: The model's context cannot hold a prompt beside the response, there is a
            budget in money and no price, or it cannot be served here although
            ``endpoint.serve`` wants it.
    """
    roles = config.roles
    endpoint = located(config.endpoint)
    if endpoint.serve and endpoint.context is None:
        _, setup = largest_setup(to_serve(config))
        endpoint = endpoint.model_copy(update={"context": setup.max_model_len})
    given = endpoint
    endpoint = obeyed(endpoint, [find(name, endpoint, config.sampling) for name in roles])
    contexts: list[Context] = []
    if endpoint.is_served:
        named = [find(name, endpoint, config.sampling) for name in dict.fromkeys(roles)]
        contexts = contexts_of(given, endpoint, named, contact, _needed(config), saved)
        endpoint, contexts = held(endpoint, contexts)
    config = config.model_copy(update={"endpoint": endpoint})
    thinker, deliberator = (find(name, config.endpoint, config.sampling) for name in roles)
    if deliberator.tokenizer == SERVER:
        endpoint = config.endpoint.model_copy(update={"tokenizer": SERVER})
        config = config.model_copy(update={"endpoint": endpoint})
    _check_budget(config, thinker, deliberator)
    for stage, processes, model in (
        ("think", 1 if config.pools else config.think.processes, thinker),
        ("deliberate", config.deliberate.processes, deliberator),
    ):
        if processes > 1 and model.kind != "local":
            raise ConfigError(
                f"{stage}.processes is {processes}, and {model.name} is served",
                "Leave it out; endpoint.concurrency says how many requests are in flight.",
            )
    seen = endpoint.capabilities
    deliberate = bounded(
        "deliberate.sampling", config.deliberate.sampling, deliberator.deliberator, seen
    )
    room = _room(deliberator, "deliberate", deliberate)
    budget = config.cache.budget_tokens or min(PAPER_BUDGET_TOKENS, room)
    if budget > room:
        raise ConfigError(
            f"cache.budget_tokens {budget} and {deliberate.max_tokens} tokens of response do not "
            f"fit the {deliberator.context} tokens of {deliberator.name}",
            f"Set cache.budget_tokens to {room} or less{_more_context(deliberator)}.",
        )
    judge = config.judge
    if judge:
        judge, asked = _completed_judge(config, judge, roles, contact)
        contexts += [context for context in asked if context not in contexts]
    decided: dict[str, Any] = {
        "judge": judge,
        "deliberator": roles[1],
        "domain": config.domain or thinker.domain,
        "cache": config.cache.model_copy(update={"budget_tokens": budget}),
        "deliberate": config.deliberate.model_copy(update={"sampling": _chosen(deliberate)}),
    }
    if not config.pools:
        think = bounded("think.sampling", config.think.sampling, thinker.thinker, seen)
        _room(thinker, "think", think)
        decided["thinker"] = roles[0]
        decided["think"] = config.think.model_copy(update={"sampling": _chosen(think)})
    return Completed(config.model_copy(update=decided), contexts)


def located(endpoint: Endpoint) -> Endpoint:
    """The endpoint with the address and the key's variable of its provider, if it is one's.

    Raises:
        ConfigError: It names a provider that is not known.
    """
    provider = endpoint.base_url
    if provider and "://" in provider:
        provider = provider_at(endpoint.urls[0])
    if not provider:
        return endpoint
    if provider not in PROVIDERS:
        raise ConfigError(
            f"endpoint.base_url: there is no provider {provider!r}",
            f"Give an address such as http://localhost:8000/v1, or one of {', '.join(PROVIDERS)}.",
        )
    known = PROVIDERS[provider]
    named = endpoint.base_url == provider
    return endpoint.model_copy(
        update={
            "base_url": known.base_url if named else endpoint.base_url,
            "api_key_env": endpoint.api_key_env or known.key_env,
        }
    )


def to_serve(config: RunConfig) -> ProfileFile:
    """The profile of the one model that ``endpoint.serve`` is to serve.

    Raises:
        ConfigError: There are two, or it has no profile.
    """
    roles = config.roles
    themselves = "`heavydistill teachers NAME` prints the command"
    if roles[0] != roles[1]:
        raise ConfigError(
            f"endpoint.serve (--serve) serves one model, but {roles[0]} thinks and {roles[1]} "
            "deliberates",
            f"Serve both yourself ({themselves} for each), put a router that knows both before "
            "them, and name its address with --endpoint.",
        )
    file = file_of(roles[0])
    if not file:
        raise ConfigError(
            f"endpoint.serve (--serve) takes its flags from a profile, and {roles[0]!r} has none",
            f"{nearest(roles[0])}Give one of {', '.join(names())}, a YAML file with one, or start "
            "a server yourself and name it with --endpoint.",
        )
    return file


def room_of(config: RunConfig) -> int:
    """Most tokens that the cache of a completed configuration can have beside the response."""
    deliberator = find(config.roles[1], config.endpoint)
    return _room(deliberator, "deliberate", sampling_of(config.deliberate))


def sampling_of(stage: Think | Deliberate | Judge) -> Sampling:
    """The sampling of a stage of a completed configuration."""
    return stage.sampling.over(Sampling())


def _needed(config: RunConfig) -> int:
    """Tokens of the longest prompt and its response in a configuration that sets both.

    A configuration of an older version that was completed without a context is one; 0 if the
    limits depend on the context.
    """
    response, budget = config.deliberate.sampling.max_tokens, config.cache.budget_tokens
    if not response or not budget:
        return 0
    return max(response + budget, config.think.sampling.max_tokens or 0) + TEMPLATE_TOKENS


def _completed_judge(
    config: RunConfig, judge: Judge, roles: tuple[str, str], contact: Contact | None
) -> tuple[Judge, list[Context]]:
    """(with its endpoint, unless that is the server of the run or this process, and its sampling;
    what it takes there)."""
    run, endpoint = config.endpoint, judge.endpoint
    contexts: list[Context] = []
    if run.serve and not endpoint and judge.model not in roles:
        raise ConfigError(
            f"endpoint.serve (--serve) serves {roles[0]}, but {judge.model} is the judge",
            "Name the server of the judge with --set judge.endpoint.base_url=URL.",
        )
    if run.base_url and not endpoint:
        other = {} if judge.model in roles else dict.fromkeys(OF_ANOTHER_MODEL)
        endpoint = run.model_copy(update=other)
    if endpoint:
        given = located(endpoint).model_copy(update={"reasoning": "optional"})
        endpoint = obeyed(given, [find(judge.model, given)])
        # The prompts are not known yet; one is taken to be as long as its response.
        needed = 2 * (judge.sampling.max_tokens or 0)
        contexts = contexts_of(given, endpoint, [find(judge.model, endpoint)], contact, needed)
        endpoint, contexts = held(endpoint, contexts)
        if not judge.endpoint and judge.model in roles:
            contexts = []  # those of the run
        judge = judge.model_copy(update={"endpoint": endpoint})
    profile = find(judge.model, endpoint or run)
    if config.most_usd is not None and profile.kind == "endpoint" and not profile.price:
        raise ConfigError(
            f"budget: {config.budget} is in money, and the price of the judge {profile.name} is "
            "not known here",
            "Give judge.endpoint with base_url, price_in and price_out, or a budget in tokens, "
            "e.g. --budget 40Mtok.",
        )
    most = min(JUDGE_SAMPLING.max_tokens, profile.deliberator.max_tokens)
    known = JUDGE_SAMPLING.model_copy(update={"max_tokens": most})
    seen = endpoint.capabilities if endpoint else run.capabilities
    sampling = bounded("judge.sampling", judge.sampling, known, seen)
    _room(profile, "judge", sampling)
    return judge.model_copy(update={"sampling": _chosen(sampling)}), contexts


def _check_budget(config: RunConfig, *models: Profile) -> None:
    if not config.budget:
        return
    if not config.asks_servers:
        raise ConfigError(
            f"budget: {config.budget} is for served models, and these run in this process",
            "Leave out --budget, or name a server with --endpoint.",
        )
    unknown = [model.name for model in models if model.kind == "endpoint" and not model.price]
    if config.most_usd is not None and unknown:
        raise ConfigError(
            f"budget: {config.budget} is in money, and the price of {unknown[0]} is not known here",
            "Give it with --price-in and --price-out, or a budget in tokens, e.g. --budget 40Mtok.",
        )


def _room(profile: Profile, stage: str, sampling: Sampling) -> int:
    """Tokens that a prompt may have beside the response."""
    room = profile.context - sampling.max_tokens - TEMPLATE_TOKENS
    if room < 1:
        raise ConfigError(
            f"{stage}.sampling.max_tokens {sampling.max_tokens} leaves no room for a prompt "
            f"in the {profile.context} tokens of {profile.name}",
            f"Set {stage}.sampling.max_tokens lower, to {profile.context // 2} for instance"
            f"{_more_context(profile)}.",
        )
    return room


def _more_context(profile: Profile) -> str:
    if profile.kind == "local":
        return ""
    return ", or endpoint.context higher if the server takes more"


def _chosen(sampling: Sampling) -> SamplingChoice:
    return SamplingChoice(**sampling.model_dump())
