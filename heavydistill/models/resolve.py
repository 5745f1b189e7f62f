"""Determines once which models a run uses, their endpoints, sampling and contexts.

No other module looks up a model's name. The completed configuration is saved with the run;
resolving it again changes nothing, even if profiles and capability files have changed. Not covered:
whether a problem fits into its prompt (``run.generate``).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from heavydistill.config.models import Endpoint, Judge, Sampling, SamplingChoice
from heavydistill.config.run import RunConfig, SamplingName, Tools
from heavydistill.errors import ConfigError
from heavydistill.models.capabilities import (
    Context,
    Source,
    apply_capabilities,
    bounded,
    context_of,
)
from heavydistill.models.contact import ServerProbe
from heavydistill.models.http.probe import Evidence
from heavydistill.models.profiles import PROVIDERS, Profile, provider_at
from heavydistill.models.registry import profile_at
from heavydistill.models.request import JUDGE, THINK
from heavydistill.models.tokenizer import SERVER, TEMPLATE_TOKENS
from heavydistill.models.vllm.server import OwnServer, own_server
from heavydistill.models.vllm.weights import to_serve

PAPER_BUDGET_TOKENS = 80_000  # token budget of a cache in arXiv 2605.02396
REQUESTS_PER_REPLICA = 256
"""Requests in flight for each replica of a model that the run serves: vLLM's own default."""
# Sampling of a judge: votes must be able to differ, and a verdict is one word after short thinking.
JUDGE_SAMPLING = Sampling(temperature=0.7, top_p=0.95, top_k=0, max_tokens=8192)
_PROPERTIES_OF_A_MODEL = ("tokenizer", "context", "capabilities", "price_in", "price_out")


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model in one role of a run."""

    name: str  # Name in the configuration
    profile: Profile  # Profile of the model at its endpoint
    endpoint: Endpoint  # Where it is served; without an address, the model runs in this process
    sampling: Sampling  # Sampling of its requests
    samples: int  # Number of samples of one prompt
    evidence: Evidence | None = None  # What ``identity`` saw of a served model in this run

    @property
    def is_local(self) -> bool:
        """Whether the model runs in this process."""
        return self.profile.kind == "local"

    @property
    def max_prompt_tokens(self) -> int:
        """Maximum tokens of a prompt: the context minus the response."""
        return self.profile.context - self.sampling.max_tokens - TEMPLATE_TOKENS


@dataclass(frozen=True, slots=True)
class ResolvedRun:
    """The configuration of a run with its models resolved."""

    config: RunConfig  # The configuration, with all values that depend on the models
    thinker: ResolvedModel | None  # None if the run reads the trajectories of another run
    deliberator: ResolvedModel  # Reader of the caches, even if the run has no deliberations
    judge: ResolvedModel | None  # None if no judge is configured
    contexts: tuple[Context, ...] = ()  # The context of each served model, with its source
    server: OwnServer | None = None  # Server that the run starts, if any

    @property
    def models(self) -> list[ResolvedModel]:
        """Thinker, deliberator and judge, as far as the run uses them."""
        return [model for model in (self.thinker, self.deliberator, self.judge) if model]

    @property
    def asks_servers(self) -> bool:
        """Whether any model is accessed over HTTP."""
        return not all(model.is_local for model in self.models)

    def server_command(self) -> list[str]:
        """The command that starts ``server``; empty without one.

        Raises:
            ConfigError: vLLM is not installed.
        """
        return self.server.command(self.config.endpoint.context) if self.server else []

    def in_stage(self, stage: str) -> ResolvedModel:
        """The model for a stage (see ``models.request``).

        Raises:
            ConfigError: The run has no thinker, because it reads the trajectories of another run.
            ValueError: The run has no judge.
        """
        if stage == JUDGE:
            if not self.judge:
                raise ValueError("the configuration has no judge")
            return self.judge
        if stage != THINK:
            return self.deliberator
        if not self.thinker:
            raise ConfigError(
                "pools: this run reads the trajectories of another run, so it has no thinker",
                "Begin a recipe of your own with LoadPools, or use `heavydistill generate`.",
            )
        return self.thinker

    def with_config(self, **changes: object) -> ResolvedRun:
        """This run with changed configuration values, which must not affect the models."""
        return dataclasses.replace(self, config=self.config.model_copy(update=changes))

    def with_endpoint(self, endpoint: Endpoint) -> ResolvedRun:
        """This run with its models at another endpoint, i.e. another address or tokenizer."""
        config = self.config.model_copy(update={"endpoint": endpoint})

        def moved(model: ResolvedModel, endpoint: Endpoint) -> ResolvedModel:
            tokenizer = endpoint.tokenizer or model.profile.tokenizer
            profile = dataclasses.replace(model.profile, tokenizer=tokenizer)
            return dataclasses.replace(model, profile=profile, endpoint=endpoint)

        judge = self.judge
        if judge and not (config.judge and config.judge.endpoint):
            judge = moved(judge, _judge_endpoint(config))
        thinker = moved(self.thinker, endpoint) if self.thinker else None
        deliberator = moved(self.deliberator, endpoint)
        return dataclasses.replace(
            self, config=config, thinker=thinker, deliberator=deliberator, judge=judge
        )


def resolve(
    config: RunConfig,
    contact: ServerProbe | None = None,
    stage: str = "deliberate",
    context: int | None = None,
    starts: bool = True,
) -> ResolvedRun:
    """Complete a configuration with facts from profiles, capability files and servers.

    Args:
        contact: Asks the servers which models they serve and how large their contexts are; None
            sends no request.
        context: Context in tokens that an earlier run with the same models used, which this run
            continues; it is used unless a smaller one is known.
        starts: Whether the server of ``endpoint.start_vllm`` will be started, which must then be
            possible on this machine.

    Raises:
        TeacherError: A model is unknown, cannot run here, or its server hides the thinking; or as
            ``ServerProbe.context`` raises.
        ConfigError: The context of a model is too small for a prompt and a response, the budget is
            in money and a price is unknown, or a model cannot be served here.
    """
    roles = config.roles
    endpoint, server = located(config.endpoint), None
    if endpoint.start_vllm and (starts or endpoint.context is None):
        server = own_server(to_serve(config))
        endpoint = _of_own_server(endpoint, server)
    response, budget = config.deliberate.sampling.max_tokens, config.cache.budget_tokens
    needed = 0
    if response and budget:
        longest = max(response + budget, config.think.sampling.max_tokens or 0)
        needed = longest + TEMPLATE_TOKENS
    endpoint, contexts = _reach(endpoint, roles, contact, needed, config.sampling, context)
    thinker, deliberator = (profile_at(name, endpoint, config.sampling) for name in roles)
    if deliberator.tokenizer == SERVER:
        endpoint = endpoint.model_copy(update={"tokenizer": SERVER})
        thinker = dataclasses.replace(thinker, tokenizer=SERVER)
    config = config.model_copy(update={"endpoint": endpoint})
    _check_budget(config, thinker, deliberator)
    choice, known = config.deliberate.sampling, deliberator.deliberator
    reads = _model(roles[1], deliberator, endpoint, stage, choice, known, config.deliberate.d)
    room = reads.max_prompt_tokens - config.system_tokens
    budget = budget or min(PAPER_BUDGET_TOKENS, room)
    if budget > room:
        raise ConfigError(
            f"cache.budget_tokens {budget} and {reads.sampling.max_tokens} tokens of response "
            f"exceed the context of {deliberator.name}, {deliberator.context} tokens",
            f"Set cache.budget_tokens to {room} or less{_more_context(deliberator)}.",
        )
    decided: dict[str, object] = {
        "deliberator": roles[1],
        "domain": config.domain or thinker.domain,
        "cache": config.cache.model_copy(update={"budget_tokens": budget}),
        "deliberate": config.deliberate.model_copy(update={"sampling": _chosen(reads)}),
    }
    thinks = judge = None
    if not config.pools:
        choice, known = config.think.sampling, thinker.thinker
        thinks = _model(roles[0], thinker, endpoint, "think", choice, known, config.think.k)
        decided["thinker"] = roles[0]
        changed = {"sampling": _chosen(thinks), "tools": _tools(config.think.tools, thinks)}
        decided["think"] = config.think.model_copy(update=changed)
    if config.judge:
        judge, decided["judge"], seen_by_judge = _judge(config, config.judge, contact)
        contexts += [context for context in seen_by_judge if context not in contexts]
    config = config.model_copy(update=decided)
    return ResolvedRun(config, thinks, reads, judge, tuple(contexts), server)


def located(endpoint: Endpoint) -> Endpoint:
    """The endpoint, with a provider's name replaced by its address and the variable of its key.

    Raises:
        ConfigError: The provider is not known.
    """
    provider = endpoint.base_url
    if provider and "://" in provider:
        provider = provider_at(endpoint.urls[0])
    if not provider:
        return endpoint
    if provider not in PROVIDERS:
        raise ConfigError(
            f"endpoint.base_url: there is no provider {provider!r}",
            "Give an address such as http://localhost:8000/v1 or https://api.openai.com/v1, or one "
            f"of {', '.join(PROVIDERS)}.",
        )
    known = PROVIDERS[provider]
    named = endpoint.base_url == provider
    return endpoint.model_copy(
        update={
            "base_url": known.base_url if named else endpoint.base_url,
            "api_key_env": endpoint.api_key_env or known.key_env,
        }
    )


def _of_own_server(endpoint: Endpoint, server: OwnServer) -> Endpoint:
    """The endpoint with the context of the server that the run starts, and its requests in flight.

    What is configured is kept, and the default concurrency for a server on processors alone.
    """
    known: dict[str, int] = {"context": endpoint.context or server.setup.max_model_len}
    if server.gpus and "concurrency" not in endpoint.model_fields_set:
        known["concurrency"] = REQUESTS_PER_REPLICA * server.setup.data_parallel
    return endpoint.model_copy(update=known)


def _reach(
    endpoint: Endpoint,
    models: tuple[str, ...],
    contact: ServerProbe | None,
    needed: int,
    sampling: SamplingName = "paper",
    saved: int | None = None,
) -> tuple[Endpoint, list[Context]]:
    """(endpoint with measured capabilities and the smallest context of its models, contexts).

    See ``capabilities.context_of`` for the arguments.
    """
    profiles = [profile_at(name, endpoint, sampling) for name in dict.fromkeys(models)]
    reached = apply_capabilities(endpoint, profiles)
    if not reached.is_served:
        return reached, []
    contexts = []
    for profile in profiles:
        served_context = contact.context(profile.model, reached) if contact else None
        contexts.append(context_of(profile, endpoint, reached, served_context, needed, saved))
    if all(context.source in (Source.SET, Source.PROFILE) for context in contexts):
        return reached, contexts
    least = min(context.tokens for context in contexts)
    shared = [c if c.tokens == least else Context(c.model, least, Source.SHARED) for c in contexts]
    return reached.model_copy(update={"context": least}), shared


def of_another_model(endpoint: Endpoint) -> Endpoint:
    """The endpoint without facts about its model, for use with another model."""
    return endpoint.model_copy(update={**dict.fromkeys(_PROPERTIES_OF_A_MODEL), "extra_body": {}})


def _judge(
    config: RunConfig, judge: Judge, contact: ServerProbe | None
) -> tuple[ResolvedModel, Judge, list[Context]]:
    """Resolve the judge; returns (judge, completed configuration, its context if not shared)."""
    run, roles, endpoint = config.endpoint, config.roles, judge.endpoint
    contexts: list[Context] = []
    if run.start_vllm and not endpoint and judge.model not in roles:
        raise ConfigError(
            f"--start-vllm serves {roles[0]}, but {judge.model} is the judge",
            "Name the server of the judge with --set judge.endpoint.base_url=URL.",
        )
    if run.base_url and not endpoint:
        endpoint = run if judge.model in roles else of_another_model(run)
    if endpoint:
        given = located(endpoint).model_copy(update={"reasoning": "optional"})
        # The prompts are not known yet; each is assumed to be as long as its response.
        needed = 2 * (judge.sampling.max_tokens or 0)
        endpoint, contexts = _reach(given, (judge.model,), contact, needed)
        if not judge.endpoint and judge.model in roles:
            contexts = []  # the run's contexts already include it
        judge = judge.model_copy(update={"endpoint": endpoint})
    config = config.model_copy(update={"judge": judge})
    profile = profile_at(judge.model, endpoint or run)
    set_it = "judge.endpoint with base_url, price_in and price_out"
    _require_price(config, profile, "the judge ", set_it)
    most = min(JUDGE_SAMPLING.max_tokens, profile.deliberator.max_tokens)
    known = JUDGE_SAMPLING.model_copy(update={"max_tokens": most})
    place = _judge_endpoint(config)
    model = _model(judge.model, profile, place, JUDGE, judge.sampling, known, judge.votes)
    return model, judge.model_copy(update={"sampling": _chosen(model)}), contexts


def _judge_endpoint(config: RunConfig) -> Endpoint:
    """The endpoint of the judge: one sample per request, and thinking is optional.

    If one request returned several votes, equal votes would be dropped as copies.
    """
    endpoint = (config.judge and config.judge.endpoint) or config.endpoint
    seen = endpoint.capabilities and endpoint.capabilities.model_copy(update={"n": 1})
    return endpoint.model_copy(update={"reasoning": "optional", "capabilities": seen})


def _check_budget(config: RunConfig, *models: Profile) -> None:
    if not config.budget:
        return
    if not (config.endpoint.is_served or (config.judge and config.judge.endpoint)):
        raise ConfigError(
            f"budget: {config.budget} is for served models; here all models run in this process",
            "Leave out --budget, or name a server with --endpoint.",
        )
    for profile in models:
        _require_price(config, profile, "", "it with --price-in and --price-out")


def _require_price(config: RunConfig, profile: Profile, role: str, set_it: str) -> None:
    if config.most_usd is not None and profile.kind == "endpoint" and not profile.price:
        raise ConfigError(
            f"budget: {config.budget} is in money, but the price of {role}{profile.name} is "
            "unknown",
            f"Give {set_it}, or a budget in tokens, e.g. --budget 40Mtok.",
        )


def _model(
    name: str,
    profile: Profile,
    endpoint: Endpoint,
    stage: str,
    choice: SamplingChoice,
    known: Sampling,
    samples: int,
) -> ResolvedModel:
    """Resolve a model: ``choice`` overrides the ``known`` sampling, with room left for a prompt."""
    # A top-level sampling does not belong to a section of the configuration.
    key = f"{stage}.sampling" if stage else "sampling"
    sampling = bounded(key, choice, known, endpoint.capabilities)
    model = ResolvedModel(name, profile, endpoint, sampling, samples)
    if model.max_prompt_tokens < 1:
        raise ConfigError(
            f"{key}.max_tokens {sampling.max_tokens} leaves no room for a prompt "
            f"in the context of {profile.name}, {profile.context} tokens",
            f"Lower it, e.g. --set {key}.max_tokens={profile.context // 2}"
            f"{_more_context(profile)}.",
        )
    return model


def _more_context(profile: Profile) -> str:
    more = ", or endpoint.context higher if the server takes more"
    return "" if profile.kind == "local" else more


def _tools(tools: Tools, thinker: ResolvedModel) -> Tools:
    """The tools with the form of their calls.

    Raises:
        ConfigError: The model cannot call tools in the configured form, or the form is not known.
    """
    if not (tool := tools.python):
        return tools
    seen = thinker.endpoint.capabilities
    able = "fence" if thinker.is_local else seen.tools if seen else "unknown"
    if thinker.is_local and tool.calls == "server":
        raise ConfigError(
            f"think.tools.python.calls is server, but {thinker.name} runs in this process",
            "Leave it out, or set it to fence.",
        )
    if able in ("none", "unknown") and not tool.calls:
        where = f"{thinker.name} at {thinker.endpoint.base_url or 'the server of --start-vllm'}"
        is_none = able == "none"
        raise ConfigError(
            f"{where} calls no tools" if is_none else f"It is not known how {where} calls tools",
            "Run `heavydistill doctor` with the same flags, which tests it, or set "
            "think.tools.python.calls to server or fence.",
        )
    python = tool.model_copy(update={"calls": tool.calls or able})
    return tools.model_copy(update={"python": python})


def _chosen(model: ResolvedModel) -> SamplingChoice:
    return SamplingChoice(**model.sampling.model_dump())
