"""Finds a profile by name, completes a configuration from it, and opens its engine.

A name is, in this order: with ``endpoint.base_url`` the served name of a model; a bundled
profile; a folder with a checkpoint; a Hub id. A bundled profile of your own is one entry in
``_BUNDLED``.
"""

from __future__ import annotations

import difflib
import json
from importlib import resources
from pathlib import Path

from heavydistill.config import (
    Deliberate,
    Endpoint,
    RunConfig,
    Sampling,
    SamplingChoice,
    Think,
)
from heavydistill.engine.request import Engine
from heavydistill.errors import ConfigError, TeacherError
from heavydistill.teachers.profile import Profile

PAPER_BUDGET_TOKENS = 80_000  # arXiv 2605.02396 prunes caches to this
_TEMPLATE_TOKENS = 64  # left free for what a chat template wraps around a prompt


def _micro(name: str, folder: str) -> Profile:
    path = str(resources.files("heavydistill") / "micro" / folder)
    return Profile(
        name=name,
        kind="local",
        model=path,
        tokenizer=path,
        context=2048,
        domain="brief",
        thinker=Sampling(max_tokens=192),
        deliberator=Sampling(max_tokens=448),
        licence="apache-2.0",
    )


_BUNDLED = {
    profile.name: profile
    for profile in (_micro("micro", "teacher"), _micro("micro-student", "student"))
}


def names() -> list[str]:
    """The bundled profiles."""
    return sorted(_BUNDLED)


def find(name: str, endpoint: Endpoint) -> Profile:
    """The profile of a name.

    Raises:
        TeacherError: Nothing is known under that name; the message lists what is.
    """
    if endpoint.base_url:
        tokenizer = endpoint.tokenizer or ""
        # Hosted APIs refuse parameters that they do not know, so top_k is sent only on request.
        sampling = _within(Sampling(top_k=0), endpoint.context)
        return Profile(
            name=name,
            kind="endpoint",
            model=name,
            tokenizer=tokenizer,
            context=endpoint.context,
            thinker=sampling,
            deliberator=sampling,
        )
    if name in _BUNDLED:
        return _BUNDLED[name]
    if Path(name).is_dir() or name.count("/") == 1:
        context = _context_of(name)
        sampling = _within(Sampling(), context)
        return Profile(
            name=name,
            kind="local",
            model=name,
            tokenizer=name,
            context=context,
            thinker=sampling,
            deliberator=sampling,
        )
    near = difflib.get_close_matches(name, names(), n=1)
    raise TeacherError(
        f"There is no model {name!r}",
        f"{f'Did you mean {near[0]}? ' if near else ''}Give a bundled profile "
        f"({', '.join(names())}), a checkpoint folder, a Hub id ORG/NAME, or set "
        "endpoint.base_url (--base-url) to ask a server for it.",
    )


def complete(config: RunConfig) -> RunConfig:
    """The configuration with everything filled in that the profiles decide.

    Raises:
        TeacherError: A model is not known.
        ConfigError: The model's context cannot hold a prompt beside the response.
    """
    thinker = find(config.thinker or config.teacher, config.endpoint)
    deliberator = find(config.deliberator or config.teacher, config.endpoint)
    think = config.think.sampling.over(thinker.thinker)
    deliberate = config.deliberate.sampling.over(deliberator.deliberator)
    _room(thinker, "think", think)
    room = _room(deliberator, "deliberate", deliberate)
    budget = config.cache.budget_tokens or min(PAPER_BUDGET_TOKENS, room)
    if budget > room:
        raise ConfigError(
            f"cache.budget_tokens {budget} and {deliberate.max_tokens} tokens of response do not "
            f"fit the {deliberator.context} tokens of {deliberator.name}",
            f"Set cache.budget_tokens to {room} or less.",
        )
    return config.model_copy(
        update={
            "thinker": thinker.name,
            "deliberator": deliberator.name,
            "domain": config.domain or thinker.domain,
            "think": config.think.model_copy(update={"sampling": _chosen(think)}),
            "cache": config.cache.model_copy(update={"budget_tokens": budget}),
            "deliberate": config.deliberate.model_copy(update={"sampling": _chosen(deliberate)}),
        }
    )


def open_engine(profile: Profile, endpoint: Endpoint) -> Engine:
    """The engine that asks this model. Loads the weights of a local one.

    Raises:
        TeacherError: The model cannot be loaded.
    """
    if profile.kind == "endpoint":
        from heavydistill.engine.openai_client import OpenAIEngine

        return OpenAIEngine(profile.model, endpoint, profile.think_tags)
    from heavydistill.engine.local import LocalEngine

    return LocalEngine(profile.model, profile.think_tags)


def _room(profile: Profile, stage: str, sampling: Sampling) -> int:
    """Tokens that a prompt may have beside the response."""
    room = profile.context - sampling.max_tokens - _TEMPLATE_TOKENS
    if room < 1:
        raise ConfigError(
            f"{stage}.sampling.max_tokens {sampling.max_tokens} leaves no room for a prompt "
            f"in the {profile.context} tokens of {profile.name}",
            f"Set {stage}.sampling.max_tokens lower.",
        )
    return room


def sampling_of(stage: Think | Deliberate) -> Sampling:
    """The sampling of a stage of a completed configuration."""
    return stage.sampling.over(Sampling())


def _chosen(sampling: Sampling) -> SamplingChoice:
    return SamplingChoice(**sampling.model_dump())


def _within(sampling: Sampling, context: int) -> Sampling:
    """Half of a small context is left to the prompt."""
    return sampling.model_copy(update={"max_tokens": min(sampling.max_tokens, context // 2)})


def _context_of(model: str) -> int:
    """Positions that a checkpoint was made for, from its ``config.json``."""
    file = Path(model) / "config.json"
    try:
        if not Path(model).is_dir():
            from huggingface_hub import hf_hub_download

            file = Path(hf_hub_download(model, "config.json"))
        return int(json.loads(file.read_text(encoding="utf-8"))["max_position_embeddings"])
    except Exception as error:  # not found, no network, no such key: all the same to the user
        raise TeacherError(
            f"The model {model!r} cannot be used: {type(error).__name__}: {error}",
            "Give a folder with a transformers checkpoint (config.json and tokenizer.json), or a "
            "Hub id that this machine can reach (HF_TOKEN for a private one).",
        ) from error
