"""Capabilities and context size of served models, from ``heavydistill doctor`` and other sources.

For each pair of model and address, ``heavydistill doctor`` writes one YAML file to the user's cache
folder; it may be edited by hand. If the configuration does not set ``endpoint.capabilities``, a run
uses the strictest values in the files of its models at its addresses. These values are saved with
the run, so a replay reads no capability file.

The context is the maximum number of tokens of prompt and response together. The first known value
is used:

1. the user's setting; 2. the value that doctor measured; 3. the context of the run in the same
folder that is resumed, unless the server now accepts less; 4. the smaller of the values that the
server and the profile state; 5. the context of the checkpoint in the tokenizer's folder; 6.
``ASSUMED`` tokens, with a warning.

If the configuration needs more tokens than one of the last two, its number is used.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from heavydistill.config.models import Capabilities, Endpoint, Sampling, SamplingChoice
from heavydistill.config.yaml import Section, parse, read_yaml
from heavydistill.errors import ConfigError, TeacherError
from heavydistill.models.hub_files import json_in
from heavydistill.models.profiles import Profile
from heavydistill.models.tokenizer import SERVER

_HEADER = """\
# What `heavydistill doctor` saw of this model at this address. Runs obey it. Run doctor again to
# renew it, or remove this file to forget it.
"""
ASSUMED = 8192  # context if none is known, in tokens; few servers accept less
_SMALLEST = 256
SET_IT = "set the server's context with --set endpoint.context=N"


class Source(StrEnum):
    """Where the size of a context comes from; messages show these words after the number."""

    SET = "from endpoint.context"
    DOCTOR = "measured by doctor"
    SAVED = "from the run in the folder"
    SERVER = "from the server"
    PROFILE = "from the profile"
    TOKENIZER = "from the config.json beside its tokenizer"
    SHARED = "because another model at its endpoint accepts no more"
    CONFIGURED = "assumed, because the configuration needs them"
    ASSUMED = "assumed"


class CapabilityFile(Section):
    """Content of a capability file: address, served name of the model, measured capabilities."""

    base_url: str
    model: str
    capabilities: Capabilities


def path_of(base_url: str, model: str) -> Path:
    """Path of the capability file of a model at an address; the file need not exist."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    base_url = base_url.rstrip("/")
    # Different pairs may give the same file name, so a digest is added.
    digest = hashlib.sha256(f"{base_url}\n{model}".encode()).hexdigest()[:8]
    readable = re.sub(r"[^\w.]+", "-", f"{urlsplit(base_url).netloc}-{model}")
    return cache / "heavydistill" / "capabilities" / f"{readable}-{digest}.yaml"


def save(base_url: str, model: str, capabilities: Capabilities) -> Path:
    """Write the measured capabilities, replacing an older file; returns the path.

    Raises:
        ConfigError: The file cannot be written.
    """
    path = path_of(base_url, model)
    seen = CapabilityFile(base_url=base_url.rstrip("/"), model=model, capabilities=capabilities)
    text = _HEADER + yaml.safe_dump(seen.model_dump(), sort_keys=False, allow_unicode=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"The capability file {path} cannot be written: {error.strerror}",
            "Set XDG_CACHE_HOME to a folder of yours.",
        ) from error
    return path


def load(base_url: str, model: str) -> Capabilities | None:
    """Read what doctor measured for a model at an address; None if doctor was not run on it.

    Raises:
        ConfigError: The file is damaged; the message names the file and the key.
    """
    path = path_of(base_url, model)
    if not path.is_file():
        return None
    fix = "Run `heavydistill doctor` again, or remove the file."
    seen = parse(CapabilityFile, read_yaml(path), path, fix).capabilities
    return seen.model_copy(update={"checked": f"{seen.checked}; {path}"})


def apply_capabilities(endpoint: Endpoint, profiles: Sequence[Profile]) -> Endpoint:
    """Return the endpoint with the capabilities and at most the context that doctor measured.

    Raises:
        ConfigError: A file is damaged, the addresses do not accept the same parameters, or more
            context is configured than the server has.
        TeacherError: The run needs the thinking, but doctor found that the server returns none.
    """
    if not endpoint.is_served:
        return endpoint
    models = dict.fromkeys(profile.model for profile in profiles)
    seen = endpoint.capabilities or _strictest(
        [load(url, model) for model in models for url in endpoint.urls]
    )
    if seen.reasoning == "none" and endpoint.reasoning == "required":
        for profile in profiles:
            if profile.thinks:
                raise TeacherError(
                    f"{profile.name} thinks, but "
                    f"{endpoint.base_url or 'the server of --start-vllm'} returns no thinking "
                    f"({_source(seen)})",
                    "Run `heavydistill doctor` with the same flags: it tests the server again and "
                    "names the fix. To go on without thinking: --set endpoint.reasoning=optional.",
                )
    context = endpoint.context or seen.context
    if seen.context and context and context > seen.context:
        raise ConfigError(
            f"endpoint.context {context} exceeds the {seen.context} tokens that the server "
            f"accepts ({_source(seen)})",
            f"Set it to {seen.context} or less.",
        )
    return endpoint.model_copy(update={"capabilities": seen, "context": context})


def bounded(
    key: str, chosen: SamplingChoice, known: Sampling, seen: Capabilities | None
) -> Sampling:
    """Return the profile's sampling, overridden by the configuration, within the server's limits.

    Raises:
        ConfigError: The configured response is longer than the server allows.
    """
    sampling = chosen.over(known)
    if not seen or not seen.max_output or sampling.max_tokens <= seen.max_output:
        return sampling
    if chosen.max_tokens:
        raise ConfigError(
            f"{key}.max_tokens {chosen.max_tokens} exceeds the {seen.max_output} "
            f"tokens that the server allows for one response ({_source(seen)})",
            f"Set it to {seen.max_output} or less.",
        )
    return sampling.model_copy(update={"max_tokens": seen.max_output})


def _source(seen: Capabilities) -> str:
    return seen.checked or "endpoint.capabilities of the configuration"


def _strictest(files: Sequence[Capabilities | None]) -> Capabilities:
    """Capabilities that hold at all addresses; None stands for an address that was not tested."""
    known = [seen or Capabilities() for seen in files]
    if not any(files) or len(known) == 1:
        return known[0] if known else Capabilities()
    names = {seen.max_tokens_name for seen in known}
    if len(names) > 1:
        raise ConfigError(
            "The endpoint's servers expect different parameters for the length of a response: "
            f"{', '.join(sorted(names))}",
            "Run `heavydistill doctor` on each address, or use each in a run of its own.",
        )
    is_lost = any(seen.reasoning == "none" for seen in known)
    fewest = min(known, key=lambda seen: seen.n)
    return fewest.model_copy(
        update={
            "stream": all(seen.stream for seen in known),
            "refused": sorted({name for seen in known for name in seen.refused}),
            "max_output": min((s.max_output for s in known if s.max_output), default=None),
            "context": min((seen.context for seen in known if seen.context), default=None),
            "reasoning": "none" if is_lost else "unknown",
            "seed": "unknown",
            "tools": min(ways) if len(ways := {seen.tools for seen in known}) == 1 else "unknown",
            "checked": " | ".join(seen.checked for seen in known if seen.checked),
        }
    )


@dataclass(frozen=True, slots=True)
class Context:
    """Context of a served model in tokens, and the source of the number."""

    model: str  # Name of the model's profile
    tokens: int  # Maximum tokens of prompt and response together
    source: Source  # Where the number comes from

    @property
    def is_known(self) -> bool:
        return self.source not in (Source.ASSUMED, Source.CONFIGURED)

    def __str__(self) -> str:
        if self.is_known:
            return f"Context of {self.model}: {self.tokens:,} tokens, {self.source}"
        tokens = f"unknown, {self.tokens:,} tokens are {self.source}"
        return f"Context of {self.model}: {tokens}; {SET_IT}"


def context_of(
    profile: Profile,
    given: Endpoint,
    seen: Endpoint,
    said: int | None = None,
    needed: int = 0,
    saved: int | None = None,
) -> Context:
    """Determine the context of a served model.

    Args:
        profile: The profile of the model at the endpoint ``given``.
        given: The endpoint as configured.
        seen: The same endpoint with the capabilities that doctor measured (``apply_capabilities``).
        said: The context that the server states.
        needed: Tokens of a prompt and its response, if the configuration limits both.
        saved: Context of the run in the same folder that this run may resume.
    """

    def decided() -> tuple[int, Source]:
        if given.context:
            return given.context, Source.SET
        if seen.context:
            return seen.context, Source.DOCTOR
        if saved and (said is None or said >= saved):
            return saved, Source.SAVED
        if said and not (profile.context_is_known and said >= profile.context):
            return said, Source.SERVER
        if profile.context_is_known:
            return profile.context, Source.PROFILE
        folder = None if profile.tokenizer == SERVER else Path(profile.tokenizer)
        positions = positions_in(json_in(folder / "config.json") if folder else {}) or 0
        made_for = positions if positions >= _SMALLEST else 0
        if needed > (made_for or ASSUMED):
            return needed, Source.CONFIGURED
        return (made_for, Source.TOKENIZER) if made_for else (ASSUMED, Source.ASSUMED)

    return Context(profile.name, *decided())


def positions_in(config: Mapping[str, object]) -> int | None:
    """The maximum number of positions in a checkpoint's ``config.json``; None if not stated.

    For a model that also reads images, the number is in the section of its text model.
    """
    text = config.get("text_config")
    for part in (config, text if isinstance(text, dict) else {}):
        if type(positions := part.get("max_position_embeddings")) is int:
            return positions
    return None
