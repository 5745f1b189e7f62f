"""What a model takes at an address: the capability files of ``heavydistill doctor``, its context.

One YAML file for each pair, in the user's cache folder, made to be read and changed by hand. A run
whose configuration says nothing of ``endpoint.capabilities`` obeys those of its models at its
addresses, the strictest of several. What it obeyed is saved with it, so a replay reads no file.

The context, in tokens of prompt and response together, is what the user set, else what doctor saw,
else that of the run in the folder that goes on, unless the server has come to take less; else the
smaller of what the server and the profile say, else what the checkpoint beside the tokenizer was
made for, else ``ASSUMED`` tokens, which is said. The last two yield to a configuration that asks
for more.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
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
ASSUMED = 8192  # tokens of a model whose context nobody says: few servers take less
_SMALLEST = 256
SET_IT = "set what the server takes with --set endpoint.context=N"


class Source(StrEnum):
    """Who says how many tokens a context has, in words that follow the number."""

    SET = "as endpoint.context is set"
    DOCTOR = "as doctor saw"
    SAVED = "as the run in the folder has it"
    SERVER = "as the server says"
    PROFILE = "by the profile"
    TOKENIZER = "by the config.json beside its tokenizer"
    SHARED = "as another model at its endpoint takes no more"
    CONFIGURED = "assumed, as the configuration asks for them"
    ASSUMED = "assumed"


class CapabilityFile(Section):
    """What one file holds: where the model was asked, its served name, and what was seen."""

    base_url: str
    model: str
    capabilities: Capabilities


def path_of(base_url: str, model: str) -> Path:
    """The file of a model at an address, whether it is there or not."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    base_url = base_url.rstrip("/")
    # Different pairs may read alike once they are a file's name.
    digest = hashlib.sha256(f"{base_url}\n{model}".encode()).hexdigest()[:8]
    readable = re.sub(r"[^\w.]+", "-", f"{urlsplit(base_url).netloc}-{model}")
    return cache / "heavydistill" / "capabilities" / f"{readable}-{digest}.yaml"


def save(base_url: str, model: str, capabilities: Capabilities) -> Path:
    """Write what was seen, over what there was; returns the file.

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
    """What was seen of a model at an address; None if doctor was not run on it.

    Raises:
        ConfigError: The file is damaged; the message names it, and the key.
    """
    path = path_of(base_url, model)
    if not path.is_file():
        return None
    fix = "Run `heavydistill doctor` again, or remove the file."
    seen = parse(CapabilityFile, read_yaml(path), path, fix).capabilities
    return seen.model_copy(update={"checked": f"{seen.checked}; {path}"})


def obeyed(endpoint: Endpoint, profiles: Sequence[Profile]) -> Endpoint:
    """The endpoint with what doctor saw of it, and no more context than it has.

    Raises:
        ConfigError: A file is damaged, the addresses do not take the same parameters, or more
            context is configured than there is.
        TeacherError: The run needs the thinking, and it was seen that none comes.
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
                    f"{profile.name} thinks, but its thinking does not come through at "
                    f"{endpoint.base_url or 'the server of --start-vllm'} ({_source(seen)})",
                    "`heavydistill doctor` with the same flags says what mends it, and looks "
                    "again; --set endpoint.reasoning=optional goes on without.",
                )
    context = endpoint.context or seen.context
    if seen.context and context and context > seen.context:
        raise ConfigError(
            f"endpoint.context {context} is more than the {seen.context} tokens that the server "
            f"takes ({_source(seen)})",
            f"Set it to {seen.context} or less.",
        )
    return endpoint.model_copy(update={"capabilities": seen, "context": context})


def bounded(
    key: str, chosen: SamplingChoice, known: Sampling, seen: Capabilities | None
) -> Sampling:
    """What is chosen over what the profile knows, and no longer than the server takes.

    Raises:
        ConfigError: More was chosen.
    """
    sampling = chosen.over(known)
    if not seen or not seen.max_output or sampling.max_tokens <= seen.max_output:
        return sampling
    if chosen.max_tokens:
        raise ConfigError(
            f"{key}.max_tokens {chosen.max_tokens} is more than the {seen.max_output} "
            f"tokens of one response that the server takes ({_source(seen)})",
            f"Set it to {seen.max_output} or less.",
        )
    return sampling.model_copy(update={"max_tokens": seen.max_output})


def _source(seen: Capabilities) -> str:
    return seen.checked or "endpoint.capabilities of the configuration"


def _strictest(files: Sequence[Capabilities | None]) -> Capabilities:
    """What holds for all of them; one that was never looked at counts as one without surprises."""
    known = [seen or Capabilities() for seen in files]
    if not any(files) or len(known) == 1:
        return known[0] if known else Capabilities()
    names = {seen.max_tokens_name for seen in known}
    if len(names) > 1:
        raise ConfigError(
            f"The addresses do not call the length of a response alike: {', '.join(sorted(names))}",
            "Ask them in runs of their own, or run `heavydistill doctor` on each if you did not.",
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
            "checked": " | ".join(seen.checked for seen in known if seen.checked),
        }
    )


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a served model."""

    model: str  # Name of its profile
    tokens: int  # Most tokens of prompt and response together
    source: Source  # Who says so

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
    """The context of a served model, whose profile was found with the endpoint as ``given``.

    ``seen`` is that endpoint with what doctor saw (``obeyed``), ``said`` what the server says,
    ``needed`` what a prompt and its response have in a configuration that sets its limits, and
    ``saved`` the context of the run in the folder that this one may go on with.
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


def positions_in(config: Mapping[str, Any]) -> int | None:
    """The positions that a checkpoint was made for, by its ``config.json``; None without them.

    A model that reads images too has them in the part for its text.
    """
    text = config.get("text_config")
    for part in (config, text if isinstance(text, dict) else {}):
        if type(positions := part.get("max_position_embeddings")) is int:
            return positions
    return None
