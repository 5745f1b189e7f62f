"""Finds the profile of a model by name, and opens its engine.

A name is, in this order:

1. a shipped profile (a file of ``configs/teachers``), or that of a plug-in;
2. the path of a YAML file with a profile;
3. with ``endpoint.base_url``, the served name of a model;
4. a folder with a checkpoint or an adapter;
5. a Hub id of a checkpoint or an adapter.

Values in the configuration and in the capability file override those of the profile.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heavydistill import plugins
from heavydistill.config.models import Endpoint, Sampling
from heavydistill.config.run import SamplingName
from heavydistill.config.shipped import shipped
from heavydistill.errors import ConfigError, TeacherError, did_you_mean
from heavydistill.models.capabilities import ASSUMED, positions_in
from heavydistill.models.http.probe import Evidence
from heavydistill.models.hub_files import file_in, is_hub_id, unloadable, why_missing
from heavydistill.models.ledger import Ledger
from heavydistill.models.local.adapter import Adapter, adapter_of
from heavydistill.models.profiles import (
    GPU_COUNTS,
    PROVIDERS,
    GpuCount,
    Price,
    Profile,
    ProfileFile,
    ProviderTerms,
    Samplings,
    Setup,
    Thinking,
    Vllm,
    load_profile,
    merged,
    provider_at,
)
from heavydistill.models.request import Engine
from heavydistill.models.thinking import COMMON_TAGS
from heavydistill.models.tokenizer import SERVER
from heavydistill.store.redact import name_alone

_PROBLEM_TOKENS = 8192  # maximum tokens reserved for the problem, if half of the context is larger
plugins.ship("teacher", shipped("configs/teachers"))
_COMMON_TAGS = Thinking(tags=COMMON_TAGS)


def profile_file(name: str) -> ProfileFile | None:
    """Read the shipped profile of a name, or the profile in a YAML file; None for other names.

    Raises:
        ConfigError: The file does not exist or is not a profile.
    """
    file = path_of(name)
    return load_profile(file) if file.suffix in (".yaml", ".yml") else None


def path_of(name: str) -> Path:
    """Return the file of a shipped profile or of a plug-in; any other name as a path."""
    known, path = shipped("configs/teachers"), Path(name)
    if name in known or "/" in name or path.suffix in (".yaml", ".yml"):
        return known.get(name, path)
    own = plugins.find("teacher", name)
    return Path(own.value) if own else path


def profiles() -> list[str]:
    """Return the names of the shipped profiles, then those of plug-ins."""
    plugins.load_installed()
    return plugins.names("teacher")


def profile_of(name: str) -> ProfileFile:
    """Read the profile of that name or in that YAML file; like ``profile_file``, but never None.

    Raises:
        TeacherError: There is no such profile; the message lists the profiles that exist.
        ConfigError: As ``profile_file`` raises.
    """
    file = profile_file(name)
    if not file:
        listed = nearest(name) or f"Profiles: {', '.join(profiles())}. "
        fix = f"{listed}A YAML file with a profile works too."
        raise TeacherError(f"There is no profile {name!r}", fix)
    return file


def nearest(name: str) -> str:
    """Return a question that proposes the profile with the most similar name, if any."""
    return did_you_mean(name, profiles())


def profile_at(
    name: str, endpoint: Endpoint, sampling: SamplingName = "paper", may_be_served: bool = True
) -> Profile:
    """The profile of a name at an endpoint, or in this process if the endpoint has no server.

    ``sampling`` selects the source of its sampling parameters. Error messages suggest a server
    unless ``may_be_served`` is False, as for students.

    Raises:
        TeacherError: The name is unknown, or the model cannot run in this process.
        ConfigError: As ``profile_file`` raises.
    """
    if file := profile_file(name):
        if not endpoint.is_served:
            _refuse_served_alone(file)
        return _placed(file, endpoint, sampling)
    if endpoint.is_served and not (endpoint.start_vllm and is_checkpoint(name)):
        known = ProfileFile.model_construct(
            # The served name may be a path on the server, so no local files are read.
            name=Path(name).name if Path(name).is_absolute() else name,
            hub=name,
            tokenizer=None,
            context=ASSUMED,
            thinking=_COMMON_TAGS,
            # Hosted APIs refuse unknown parameters, so top_k is sent only if the user sets it.
            sampling=Samplings(paper=Sampling(top_k=0)),
        )
        return _placed(known, endpoint, sampling, is_described=False)
    if "/" in name and not Path(name).is_dir() and not is_hub_id(name):
        lacks = "is a file" if Path(name).exists() else f"does not exist (in {Path.cwd()})"
        raise TeacherError(
            f"The model folder {name} {lacks}", "Give the folder of a checkpoint or an adapter."
        )
    if is_checkpoint(name):
        return _placed(profile_of_weights(name), endpoint, sampling, is_described=False)
    served = "A model on a server also needs --endpoint ADDRESS. " if may_be_served else ""
    raise TeacherError(
        f"There is no model {name!r}",
        f"{served}{nearest(name)}Give the name of a profile (`heavydistill teachers` lists them), "
        "a YAML file with one, a checkpoint folder or a Hub id ORG/NAME.",
    )


def is_checkpoint(name: str) -> bool:
    """Whether a name is that of weights, a folder or a Hub id, and not of a profile."""
    path = path_of(name)
    return path.suffix not in (".yaml", ".yml") and (path.is_dir() or name.count("/") == 1)


def profile_of_weights(name: str) -> ProfileFile:
    """The profile of a checkpoint or an adapter: what its files say, with one replica on each GPU.

    Raises:
        TeacherError: There are no such files, or they cannot be read.
    """
    adapter = adapter_of(name)
    context = _context_of(name, adapter)
    setup = Setup.model_construct(max_model_len=context)  # of any size, as the model is
    setups: dict[GpuCount, Setup | None] = {
        count: setup.model_copy(update={"data_parallel": count}) for count in GPU_COUNTS
    }
    return ProfileFile.model_construct(
        name=name_alone(name),
        hub=name,  # also its served name
        folder=name,
        tokenizer=adapter.tokenizer if adapter else name,
        context=context,
        thinking=_COMMON_TAGS,
        vllm=Vllm.model_construct(gpus=setups),
    )


def _placed(
    file: ProfileFile, endpoint: Endpoint, whose: SamplingName, is_described: bool = True
) -> Profile:
    """Convert a profile file to the profile of a model at an endpoint or in this process.

    ``is_described`` is False if only the name of the model is known.
    """
    context, sampling = file.context, file.sampled_by(whose)
    model = file.folder or file.hub or file.name
    tokenizer = file.tokenizer or model
    of_server: dict[str, Any] = {}
    if endpoint.is_served:
        provider = provider_at(endpoint.base_url or "")
        offer = file.providers.get(provider or "")
        if provider and not PROVIDERS[provider].takes_top_k:
            sampling = sampling.model_copy(update={"top_k": 0})
        context = endpoint.context or context
        model = offer.model if offer else file.served_name
        tokenizer = endpoint.tokenizer or file.tokenizer or SERVER
        of_server = {
            "context_is_known": is_described or endpoint.context is not None,
            "thinks": is_described and bool(file.thinking.tags or file.thinking.parser),
            "extra_body": merged(
                offer.extra_body if offer else file.thinking.extra_body, endpoint.extra_body
            ),
            "routing": _routing(file, provider, offer),
            "price": _price(endpoint, offer.price if offer else None),
        }
    most = min(sampling.max_tokens, file.output or context)
    # Each role keeps room for its prompt: the problem, or half of the context for the cache.
    room = max(context // 2, context - _PROBLEM_TOKENS)
    thinker, deliberator = min(most, file.thinker_output or most, room), min(most, context // 2)
    return Profile(
        name=file.name,
        kind="endpoint" if endpoint.is_served else "local",
        model=model,
        tokenizer=tokenizer,
        context=context,
        think_tags=file.thinking.tags,
        domain=file.domain,
        thinker=sampling.model_copy(update={"max_tokens": thinker}),
        deliberator=sampling.model_copy(update={"max_tokens": deliberator}),
        licence=file.licence,
        is_described=is_described,
        **of_server,
    )


def _routing(
    file: ProfileFile, provider: str | None, offer: ProviderTerms | None
) -> dict[str, object]:
    """The request parameters that choose the host behind a router.

    A model whose terms forbid distillation is reached only without ``enforce_distillable_text``.
    """
    routing = merged(
        PROVIDERS[provider].routing if provider else {}, offer.routing if offer else {}
    )
    if routing and file.terms.distillation == "restricted":
        routing = merged(routing, {"provider": {"enforce_distillable_text": None}})
    return routing


def _price(endpoint: Endpoint, known: Price | None) -> Price | None:
    """The configured price, otherwise the profile's; None unless both of its parts are known.

    Half of it for a batch.
    """
    price = _listed_price(endpoint, known)
    return price.halved() if price and endpoint.is_batched else price


def _listed_price(endpoint: Endpoint, known: Price | None) -> Price | None:
    listed = (known.usd_per_mtok_in, known.usd_per_mtok_out) if known else (None, None)
    price_in = listed[0] if endpoint.price_in is None else endpoint.price_in
    price_out = listed[1] if endpoint.price_out is None else endpoint.price_out
    if price_in is None or price_out is None or (price_in, price_out) == listed:
        return known
    return Price(usd_per_mtok_in=price_in, usd_per_mtok_out=price_out, as_of="as set for this run")


def _refuse_served_alone(file: ProfileFile) -> None:
    if not (file.folder or file.hub):
        lacks = "only its maker serves it"
    elif file.vllm is not None and file.vllm.gpus[1] is None:
        lacks = "it is too large"
    elif file.thinking.parser is not None and file.thinking.tags is None:
        lacks = "only a server can separate its thinking from its answers"
    else:
        return
    offers = " or ".join(f"--endpoint {name}" for name in file.providers if name in PROVIDERS)
    ways = [f"give {offers or '--endpoint ADDRESS'}"]
    if file.vllm:
        ways += [
            "start vLLM on the GPUs here with --start-vllm",
            f"serve it yourself (`heavydistill teachers {file.name}` prints the command)",
        ]
    fix = ", or ".join(ways)
    raise TeacherError(
        f"The model {file.name} cannot run in this process, because {lacks}",
        f"{fix[0].upper()}{fix[1:]}.",
    )


def revision_of(profile: Profile, endpoint: Endpoint) -> str:
    """The revision that this model's engine will report; loads no weights."""
    if profile.kind == "endpoint":
        from heavydistill.models.http.engine import served_revision

        return served_revision(profile, endpoint)
    from heavydistill.models.local.engine import local_revision

    return local_revision(profile.model)


def open_engine(
    profile: Profile,
    endpoint: Endpoint,
    ledger: Ledger | None = None,
    evidence: Evidence | None = None,
    on_tokens: Callable[[int], None] = lambda tokens: None,
) -> Engine:
    """Open the engine of a model; loads the weights of a local one.

    ``evidence`` is as in ``http.engine.OpenAIEngine``, ``on_tokens`` as in ``LocalEngine``.

    Raises:
        TeacherError: The model cannot be loaded.
        ConfigError: The endpoint is one of batches, whose requests ``batch.queue`` collects.
    """
    if endpoint.is_batched:
        raise ConfigError(
            f"{profile.name} is to be asked in batches, which this command does not do",
            "Leave out endpoint.batch and endpoint.batch_files, or use `heavydistill generate`.",
        )
    if profile.kind == "endpoint":
        from heavydistill.models.http.engine import OpenAIEngine

        return OpenAIEngine(profile, endpoint, ledger, evidence)
    from heavydistill.models.local.engine import LocalEngine

    return LocalEngine(profile.model, profile.think_tags, on_tokens=on_tokens)


def _context_of(model: str, adapter: Adapter | None) -> int:
    """Context of a checkpoint, or of an adapter's base, from its ``config.json``."""
    base, revision = (adapter.base, adapter.revision) if adapter else (model, None)
    try:
        file = file_in(base, "config.json", revision)
        positions = positions_in(json.loads(file.read_text(encoding="utf-8")))
        if positions is None:
            raise ValueError("config.json has no max_position_embeddings")
        return positions
    except Exception as error:  # not found, no network, or key missing in the file
        if adapter:
            raise adapter.lost_base(why_missing(base, error)) from error
        folder = "a folder with a transformers checkpoint (config.json and tokenizer.json)"
        raise unloadable("model", model, error, folder) from error
