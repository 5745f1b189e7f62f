"""The file format of a profile: one YAML file per teacher, in ``configs/teachers`` or your own.

Your own file needs ``name``, ``tokenizer`` and ``context``; the shipped files also name the source
of each fact, and leave out facts without a source. Sizes are in tokens, prices in US dollars per
million tokens, and GPUs have about 80 GB. Not covered: keys of providers (``PROVIDERS``), and
finding a file by name (``models.registry``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from heavydistill.config.models import Endpoint, Sampling
from heavydistill.config.run import SamplingName
from heavydistill.config.yaml import Section, parse, read_yaml
from heavydistill.models.thinking import COMMON_TAGS, Tags

Distillation = Literal["allowed", "restricted", "unknown"]
GpuCount = Literal[1, 2, 4, 8]
GPU_COUNTS: tuple[GpuCount, ...] = (1, 2, 4, 8)
_PACKAGE = Path(__file__).parents[1]
_IN_PACKAGE = "package:"
LOCAL_BATCH = 16  # Minimum number of rows of a batch for a model in this process
_LOCAL_REQUESTS = 64  # Minimum number of requests of a batch; with fewer, Python is the bottleneck
_ROWS_PER_SLOT = 8
_MOST_IN_FLIGHT = 512


Flags = dict[str, str | int | list[str]]
"""Flags of ``vllm serve`` without dashes; an empty text: no value, a list: several values."""
# On a CPU, vLLM 0.31 ends when it reads the prompt of a request with a seed in pieces ("CPU
# Generator does not use offset"), and compiling a model takes longer than most runs gain from it.
_ON_CPU: Flags = {"no-enable-chunked-prefill": "", "enforce-eager": ""}
_CPU_MEMORY = 0.5  # Share of the machine's memory for vLLM; the run itself needs some too


class Samplings(Section):
    """Sampling parameters from two sources; if one source has none, those of the other are used."""

    paper: Sampling | None = None
    """Sampling that the paper used for every model (arXiv 2605.02396, section 3.1)."""
    maker: Sampling | None = None  # Sampling that the model's maker recommends for thinking


class Thinking(Section):
    """How the thinking of a model is switched on and how it is marked in the text."""

    tags: tuple[str, str] | None = None
    """Opening and closing tag of thinking in the text; null if the text never contains thinking."""
    parser: str | None = None  # vLLM's reasoning parser, which moves thinking to a field
    extra_body: dict[str, object] = Field(default_factory=dict)
    """Request parameters that switch thinking on, for your own server."""


class Price(Section):
    """Price of prompt and completion tokens, and of prompt tokens that the provider cached."""

    usd_per_mtok_in: float = Field(ge=0)  # US dollars per million prompt tokens
    usd_per_mtok_out: float = Field(ge=0)  # US dollars per million completion tokens
    usd_per_mtok_cached: float | None = Field(default=None, ge=0)
    """US dollars per million prompt tokens from the provider's cache; null if unknown."""
    as_of: str  # Date of the price, or version of the price list

    def usd(
        self, prompt_tokens: float, completion_tokens: float, cached_tokens: float = 0.0
    ) -> float:
        """Cost of these tokens in US dollars; an unknown price of cached tokens is the full one.

        ``cached_tokens`` are those of the prompt tokens that came from the provider's cache.
        """
        cached_usd = self.usd_per_mtok_cached
        cached = 0.0 if cached_usd is None else max(0.0, min(cached_tokens, prompt_tokens))
        paid = (prompt_tokens - cached) * self.usd_per_mtok_in + cached * (cached_usd or 0.0)
        return (paid + completion_tokens * self.usd_per_mtok_out) / 10**6

    def halved(self) -> Price:
        """The price in a batch."""
        half = {name: value / 2 for name, value in self if isinstance(value, float)}
        return self.model_copy(update={**half, "as_of": f"half of {self.as_of}, in batches"})


class ProviderTerms(Section):
    """How one provider serves the model."""

    model: str  # Served name at the provider
    extra_body: dict[str, object] = Field(default_factory=dict)
    """Request parameters for this provider, used instead of ``thinking.extra_body``."""
    routing: dict[str, object] = Field(default_factory=dict)
    """Request parameters that choose the host behind a router, added to the provider's. They do not
    identify the model, so journaled responses are reused when they change."""
    price: Price | None = None  # Null if unknown
    source: str = ""  # Source of these facts


class Setup(Section):
    """Setup of vLLM for a number of GPUs."""

    model: str | None = None  # Hub id of another checkpoint of the model, if it fits better
    tensor_parallel: int = Field(default=1, ge=1)  # Number of GPUs per replica
    data_parallel: int = Field(default=1, ge=1)  # Number of replicas
    quantization: str | None = None  # Quantization while loading an unquantized checkpoint
    gpu_memory_utilization: float = Field(default=0.9, gt=0, le=1)
    """Share of each GPU's memory for vLLM."""
    max_model_len: int = Field(ge=256)  # Maximum tokens of prompt and response together
    flags: Flags = Field(default_factory=dict)
    """More flags, as in ``vllm.flags``."""


class Vllm(Section):
    """How to serve the model with vLLM."""

    flags: Flags = Field(default_factory=dict)
    """Flags of every setup, without dashes; an empty text means no value, a list several values."""
    gpus: dict[GpuCount, Setup | None]  # Setup by number of GPUs; null: does not fit
    why_null: str = ""  # Reason why the model does not fit

    @model_validator(mode="after")
    def _all_counts(self) -> Vllm:
        missing = [count for count in GPU_COUNTS if count not in self.gpus]
        if missing:
            raise ValueError(f"gpus lacks {missing}. Give a set-up for each, or null.")
        if None in self.gpus.values() and not self.why_null:
            raise ValueError("gpus has a null without a reason. Set why_null.")
        for count, setup in self.gpus.items():
            if setup and setup.tensor_parallel * setup.data_parallel != count:
                raise ValueError(
                    f"gpus.{count}: tensor_parallel {setup.tensor_parallel} times data_parallel "
                    f"{setup.data_parallel} is not {count}"
                )
        return self

    def setup(self, gpus: int) -> Setup | None:
        """The setup for a number of GPUs; 0 is that of one GPU for a vLLM built for CPUs.

        None if there is none.
        """
        found = next((setup for count, setup in self.gpus.items() if count == (gpus or 1)), None)
        if gpus or not found:
            return found
        flags = {**found.flags, **_ON_CPU}
        return found.model_copy(update={"flags": flags, "gpu_memory_utilization": _CPU_MEMORY})


class Terms(Section):
    """Licence terms on training with the model's output."""

    distillation: Distillation = "unknown"  # ``restricted`` also if only for competing models
    because: str = ""  # Summary of the document
    source: str = ""  # Address of the document


class Sources(Section):
    """Sources of the facts in the other sections: for each, a document and a place in it."""

    limits: str = ""  # source of ``context`` and ``output``
    sampling: str = ""  # source of ``sampling``
    thinking: str = ""  # source of ``thinking``
    vllm: str = ""  # source of ``vllm``


class ProfileFile(Section):
    """A profile: everything known about a model as a teacher."""

    name: str = Field(min_length=1)
    """Name for ``--teacher``; a shipped profile has the name of its file."""
    hub: str | None = None  # Hub id of the weights; null if they are not public
    folder: str | None = None
    """Checkpoint folder on this machine: absolute, relative to this file, or ``package:PATH`` for a
    folder of heavydistill. The model runs in this process, except with ``--start-vllm``."""
    tokenizer: str | None
    """Hub id or folder of the ``tokenizer.json`` that counts the model's tokens; null if there is
    none, so that the server counts (see ``endpoint.tokenizer``)."""
    context: int = Field(ge=256)  # Maximum tokens of prompt and response together
    output: int | None = Field(default=None, ge=1)  # Maximum tokens of a response, if smaller
    thinker_output: int | None = Field(default=None, ge=1)
    """Maximum tokens of a trajectory, if smaller."""
    domain: str = "general"  # Domain whose prompt wording suits the model
    sampling: Samplings = Samplings()
    thinking: Thinking = Thinking()
    providers: dict[str, ProviderTerms] = Field(default_factory=dict)  # Offers by provider
    vllm: Vllm | None = None
    licence: str = ""  # Licence of the weights: SPDX id or name
    terms: Terms = Terms()
    sources: Sources = Sources()

    @property
    def served_name(self) -> str:
        """Served name of the model on your own server."""
        return self.hub or self.name

    def sampled_by(self, whose: SamplingName) -> Sampling:
        """The sampling of a source, else of the other source, else the defaults of ``Sampling``."""
        first, second = self.sampling.paper, self.sampling.maker
        if whose == "maker":
            first, second = second, first
        return first or second or Sampling()


def load_profile(path: Path) -> ProfileFile:
    """Read a profile from a file; relative folders become absolute.

    Raises:
        ConfigError: The file does not exist, is not YAML, or has unknown keys or bad values.
    """
    profile = parse(ProfileFile, read_yaml(path), path)
    folder, tokenizer = _resolved(profile.folder, path), _resolved(profile.tokenizer, path)
    if not (tokenizer and Path(tokenizer).is_dir()):
        tokenizer = profile.tokenizer  # a Hub id
    return profile.model_copy(update={"folder": folder, "tokenizer": tokenizer})


_STREAM_INTERVAL = 16
"""Tokens in each piece of a stream: a client spends its time on pieces, not on tokens."""


def serve_command(profile: ProfileFile, gpus: int, context: int | None = None) -> list[str] | None:
    """The ``vllm serve`` command for a number of GPUs, 0 for the CPU; None without a setup for it.

    Flags are added so that the server reports cached prompt tokens, ignores the checkpoint's
    sampling defaults, and sends several tokens at once. ``context`` replaces the setup's
    ``max_model_len``.
    """
    setup = profile.vllm.setup(gpus) if profile.vllm else None
    if not profile.vllm or not setup:
        return None
    flags: dict[str, str | int | float | list[str] | None] = {
        "served-model-name": profile.served_name,
        "reasoning-parser": profile.thinking.parser,
        "tensor-parallel-size": setup.tensor_parallel,
        "data-parallel-size": setup.data_parallel if setup.data_parallel > 1 else None,
        "quantization": setup.quantization,
        "gpu-memory-utilization": setup.gpu_memory_utilization,
        "max-model-len": context or setup.max_model_len,
        "generation-config": "vllm",
        "enable-prompt-tokens-details": "",
        "stream-interval": _STREAM_INTERVAL,
        **profile.vllm.flags,
        **setup.flags,
    }
    command = ["vllm", "serve", weights_of(profile, setup)]
    for flag, value in flags.items():
        if value is not None:
            values = value if isinstance(value, list) else [str(value)] if value != "" else []
            command += [f"--{flag}", *values]
    return command


def run_batch_words(profile: ProfileFile | None, model: str, context: int | None) -> list[str]:
    """The flags of ``vllm run-batch`` for a model, those of the smallest setup of its profile."""
    setups = profile.vllm.gpus if profile and profile.vllm else {}
    gpus = next((count for count in GPU_COUNTS if setups.get(count)), None)
    if not profile or not gpus:
        return ["--model", model]
    _, _, *words = serve_command(profile, gpus, context) or []
    return ["--model", *words]


def weights_of(profile: ProfileFile, setup: Setup) -> str:
    """Folder or Hub id of the weights that a setup serves."""
    return setup.model or profile.hub or profile.folder or profile.name


def _resolved(folder: str | None, file: Path) -> str | None:
    if folder is None:
        return None
    if folder.startswith(_IN_PACKAGE):
        return str(_PACKAGE / folder.removeprefix(_IN_PACKAGE))
    return str((file.parent / Path(folder).expanduser()).resolve())


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A model as it runs in this process or at an endpoint."""

    name: str  # Name of the profile; otherwise the Hub id, served name or last part of the path
    kind: Literal["local", "endpoint"]  # ``local`` runs in this process, ``endpoint`` over HTTP
    model: str  # Folder or Hub id (local), or served name (endpoint)
    tokenizer: str  # Folder or Hub id; ``models.tokenizer.SERVER`` if unknown
    context: int  # Maximum tokens of prompt and response together
    context_is_known: bool = True  # False if the context is assumed
    thinks: bool = False  # Whether the model is known to think
    think_tags: Tags | None = COMMON_TAGS  # None if the text has no tags
    extra_body: Mapping[str, object] = field(default_factory=dict)  # Parameters added to requests
    routing: Mapping[str, object] = field(default_factory=dict)
    """Parameters added to requests that choose the host; see ``ProviderTerms.routing``."""
    domain: str = "general"  # Domain whose prompt wording suits the model
    thinker: Sampling = field(default_factory=Sampling)  # Sampling as a thinker
    deliberator: Sampling = field(default_factory=Sampling)  # Sampling as a deliberator
    licence: str = ""  # SPDX id of the weights' licence; empty if unknown
    price: Price | None = None  # Price at the endpoint; None if unknown
    is_described: bool = False  # False if only the model's name is known, without a profile file

    @property
    def added_body(self) -> dict[str, object]:
        """All parameters added to requests."""
        return merged(self.routing, self.extra_body)

    def usd(
        self, prompt_tokens: float, completion_tokens: float, cached_tokens: float = 0.0
    ) -> float | None:
        """Cost of these tokens in US dollars: 0 for a local model; None if the price is unknown."""
        if self.kind == "local":
            return 0.0
        tokens = prompt_tokens, completion_tokens, cached_tokens
        return self.price.usd(*tokens) if self.price else None


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider of a hosted API."""

    base_url: str  # Address of the API
    key_env: str  # Usual environment variable of its key
    takes_top_k: bool = False  # Whether it accepts ``top_k``, which the OpenAI API does not have
    routing: Mapping[str, object] = field(default_factory=dict)  # See ``ProviderTerms.routing``


PROVIDERS = {
    "fireworks": Provider("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    # Address from Groq's documentation (OpenAI Compatibility).
    "groq": Provider("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "novita": Provider("https://api.novita.ai/openai", "NOVITA_API_KEY"),
    # Without these, hosts ignore parameters that they do not support, and the terms of a model may
    # forbid training on its output (OpenRouter, Provider Routing).
    "openrouter": Provider(
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        takes_top_k=True,
        routing={"provider": {"require_parameters": True, "enforce_distillable_text": True}},
    ),
    "zai": Provider("https://api.z.ai/api/paas/v4", "ZHIPU_API_KEY"),
}


def merged(base: Mapping[str, Any], over: Mapping[str, object]) -> dict[str, object]:
    """Request parameters ``base`` with those of ``over``.

    Mappings in both are merged; null in ``over`` removes a parameter of ``base``.
    """
    both = dict(base)
    for name, value in over.items():
        known = both.get(name)
        if isinstance(value, Mapping) and isinstance(known, Mapping):
            both[name] = merged(known, value)
        elif value is None and name in base:
            del both[name]
        else:
            both[name] = value
    return both


def provider_at(base_url: str) -> str | None:
    """Name of the provider whose API has the host of this URL; None for other servers."""
    host = urlsplit(base_url).hostname
    hosts = {urlsplit(provider.base_url).hostname: name for name, provider in PROVIDERS.items()}
    return hosts.get(host)


@dataclass(frozen=True, slots=True)
class Pace:
    """Batch size and number of batches in flight for a pipeline stage that uses a model."""

    batch: int  # Rows per batch
    in_flight: int  # Number of batches in flight

    @classmethod
    def of(cls, model: Profile, samples: int, endpoint: Endpoint) -> Pace:
        """Batching for a stage with ``samples`` samples per row; 0 samples means no requests."""
        if model.kind == "local":
            return cls(max(LOCAL_BATCH, _LOCAL_REQUESTS // samples if samples else 0), 1)
        slots = -(-endpoint.slots // max(1, samples))
        return cls(1, max(slots, min(_MOST_IN_FLIGHT, _ROWS_PER_SLOT * slots)))

    @property
    def rows(self) -> int:
        return self.batch * self.in_flight
