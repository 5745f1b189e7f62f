"""Determines once which models a run uses, their endpoints, sampling and contexts.

No other module looks up a model's name. The completed configuration is saved with the run;
resolving it again changes nothing, even if profiles and capability files have changed. Not covered:
whether a problem fits into its prompt (``run.generate``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from heavydistill.config.models import Endpoint, Judge, Sampling, SamplingChoice
from heavydistill.config.run import RunConfig, SamplingName, Tools
from heavydistill.config.thinkers import ThinkerSettings
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
_PRICES = "it with --price-in and --price-out"
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
    thinkers: tuple[ResolvedModel, ...]  # Empty if the run reads the trajectories of another run
    deliberator: ResolvedModel  # Reader of the caches, even if the run has no deliberations
    judge: ResolvedModel | None  # None if no judge is configured
    contexts: tuple[Context, ...] = ()  # The context of each served model, with its source
    server: OwnServer | None = None  # Server that the run starts, if any

    @property
    def models(self) -> list[ResolvedModel]:
        """Thinkers, deliberator and judge, as far as the run uses them."""
        judge = [self.judge] if self.judge else []
        return [*self.thinkers, self.deliberator, *judge]

    @property
    def thinker(self) -> ResolvedModel | None:
        """The only thinker; None if the run reads the trajectories of another run.

        Raises:
            ConfigError: The run has several thinkers.
        """
        if len(self.thinkers) > 1:
            raise ConfigError(
                f"thinker names {len(self.thinkers)} models, and this works with one",
                "Name one model with --thinker; `heavydistill generate` takes several.",
            )
        return self.thinkers[0] if self.thinkers else None

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
            ConfigError: The run has no thinker, because it reads the trajectories of another run,
                or it has several.
            ValueError: The run has no judge.
        """
        if stage == JUDGE:
            if not self.judge:
                raise ValueError("the configuration has no judge")
            return self.judge
        if stage != THINK:
            return self.deliberator
        if not (thinker := self.thinker):
            raise ConfigError(
                "pools: this run reads the trajectories of another run, so it has no thinker",
                "Begin a recipe of your own with LoadPools, or use `heavydistill generate`.",
            )
        return thinker

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
        apart = config.thinkers_apart
        thinkers = tuple(m if m.name in apart else moved(m, endpoint) for m in self.thinkers)
        deliberator = moved(self.deliberator, endpoint)
        return dataclasses.replace(
            self, config=config, thinkers=thinkers, deliberator=deliberator, judge=judge
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
    endpoint, server = located(config.endpoint), None
    if endpoint.start_vllm and (starts or endpoint.context is None):
        server = own_server(to_serve(config))
        endpoint = _of_own_server(endpoint, server)
    response, budget = config.deliberate.sampling.max_tokens, config.cache.budget_tokens
    needed = 0
    if response and budget:
        longest = max(response + budget, config.think.sampling.max_tokens or 0)
        needed = longest + TEMPLATE_TOKENS
    name, apart = config.roles[1], _endpoints_apart(config, endpoint)
    here = (*(thinker for thinker in config.attempts_by_thinker if thinker not in apart), name)
    endpoint, contexts = _reach(endpoint, here, contact, needed, config.sampling, context)
    deliberator = profile_at(name, endpoint, config.sampling)
    if deliberator.tokenizer == SERVER:
        endpoint = endpoint.model_copy(update={"tokenizer": SERVER})
    config = config.model_copy(update={"endpoint": endpoint})
    _check_budget(config)
    _require_price(config, deliberator, "", _PRICES)
    choice, known = config.deliberate.sampling, deliberator.deliberator
    reads = _model(name, deliberator, endpoint, stage, choice, known, config.deliberate.d)
    room = reads.max_prompt_tokens - config.system_tokens
    budget = budget or min(PAPER_BUDGET_TOKENS, room)
    if budget > room:
        raise ConfigError(
            f"cache.budget_tokens {budget} and {reads.sampling.max_tokens} tokens of response "
            f"exceed the context of {deliberator.name}, {deliberator.context} tokens",
            f"Set cache.budget_tokens to {room} or less{_more_context(deliberator)}.",
        )
    decided: dict[str, object] = {
        "deliberator": name,
        "cache": config.cache.model_copy(update={"budget_tokens": budget}),
        "deliberate": config.deliberate.model_copy(update={"sampling": _chosen(reads)}),
    }
    thinkers, changes, seen = _thinkers(config, apart, contact)
    contexts += [context for context in seen if context not in contexts]
    decided |= {"domain": config.domain or (thinkers[0] if thinkers else reads).profile.domain}
    decided |= changes
    judge = None
    if config.judge:
        judge, decided["judge"], seen_by_judge = _judge(config, config.judge, contact)
        contexts += [context for context in seen_by_judge if context not in contexts]
    config = config.model_copy(update=decided)
    return ResolvedRun(config, thinkers, reads, judge, tuple(contexts), server)


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


def _endpoints_apart(config: RunConfig, shared: Endpoint) -> dict[str, Endpoint]:
    """The endpoints of the thinkers that do not have the run's, by name.

    Of several thinkers, one that is not the deliberator has the run's address, but not the price,
    context and tokenizer that are set there, which are those of one model.
    """
    names, found = config.attempts_by_thinker, {}
    for name in names:
        own = config.thinkers.get(name, ThinkerSettings()).endpoint
        if own:
            found[name] = located(own)
        elif shared.base_url and len(names) > 1 and name != config.roles[1]:
            found[name] = of_another_model(shared)
    return found


def _thinkers(
    config: RunConfig, apart: dict[str, Endpoint], contact: ServerProbe | None
) -> tuple[tuple[ResolvedModel, ...], dict[str, object], list[Context]]:
    """Resolve the thinkers; returns (models, changes of the configuration, contexts apart).

    Raises:
        ConfigError: Two of them are known by one name; or as ``resolve``.
    """
    models: dict[str, ResolvedModel] = {}
    settings, contexts = {}, list[Context]()
    for name, count in config.attempts_by_thinker.items():
        model, seen = _thinker(config, name, count, apart.get(name), contact)
        if same := models.get(model.profile.name):
            raise ConfigError(
                f"thinker: {same.name} and {name} are both called {model.profile.name}, so their "
                "trajectories could not be told apart",
                "Name each model once, and rename one of two folders with the same name.",
            )
        models[model.profile.name] = model
        place = model.endpoint if name in apart else None
        settings[name] = ThinkerSettings(endpoint=place, sampling=_chosen(model))
        contexts += seen
    thinkers, changes = tuple(models.values()), dict[str, object]()
    if thinkers:
        changes = {"thinker": config.roles[0], "thinkers": settings}
    think = config.think.model_copy(update={"tools": _tools(config.think.tools, thinkers)})
    if len(thinkers) == 1 and not config.thinkers:
        think = think.model_copy(update={"sampling": _chosen(thinkers[0])})
        changes["thinkers"] = {}
    return thinkers, changes | {"think": think}, contexts


def _thinker(
    config: RunConfig, name: str, count: int, place: Endpoint | None, contact: ServerProbe | None
) -> tuple[ResolvedModel, list[Context]]:
    """Resolve a thinker of ``count`` trajectories; ``place`` is its endpoint, if not the run's."""
    own, endpoint, contexts = config.thinkers.get(name), config.endpoint, list[Context]()
    own_sampling = own.sampling if own else SamplingChoice()
    if place:
        needed = 2 * (own_sampling.max_tokens or config.think.sampling.max_tokens or 0)
        endpoint, contexts = _reach(place, (name,), contact, needed, config.sampling)
    profile = profile_at(name, endpoint, config.sampling)
    if not place and endpoint.tokenizer == SERVER:
        profile = dataclasses.replace(profile, tokenizer=SERVER)
    prices = f"thinkers.{name}.endpoint with base_url, price_in and price_out"
    _require_price(config, profile, "", prices if place else _PRICES)
    choice = config.think.sampling.model_copy(update=own_sampling.model_dump(exclude_none=True))
    stage = THINK if own_sampling == SamplingChoice() else f"thinkers.{name}"
    return _model(name, profile, endpoint, stage, choice, profile.thinker, count), contexts


def _judge(
    config: RunConfig, judge: Judge, contact: ServerProbe | None
) -> tuple[ResolvedModel, Judge, list[Context]]:
    """Resolve the judge; returns (judge, completed configuration, its context if not shared)."""
    run, endpoint = config.endpoint, judge.endpoint
    apart = _endpoints_apart(config, run)
    roles = [name for name in config.model_names if name not in apart]
    contexts: list[Context] = []
    if run.start_vllm and not endpoint and judge.model not in roles:
        raise ConfigError(
            f"--start-vllm serves {config.roles[0]}, but {judge.model} is the judge",
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


def _check_budget(config: RunConfig) -> None:
    places = [config.judge, *config.thinkers.values()]
    is_served = config.endpoint.is_served or any(place and place.endpoint for place in places)
    if config.budget and not is_served:
        raise ConfigError(
            f"budget: {config.budget} is for served models; here all models run in this process",
            "Leave out --budget, or name a server with --endpoint.",
        )


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


def _tools(tools: Tools, thinkers: Sequence[ResolvedModel]) -> Tools:
    """The tools with the form of their calls.

    Raises:
        ConfigError: The model cannot call tools in the configured form, or the form is not known.
    """
    if not (tool := tools.python) or not thinkers:
        return tools
    (thinker,) = thinkers  # the configuration has refused several
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
