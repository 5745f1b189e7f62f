"""The file format of a profile: one YAML file for each teacher.

Profiles are shipped in ``configs/teachers``; a user may write others. ``name``, ``tokenizer`` and
``context`` are required. The shipped files state the source of each fact, and leave out facts
without a source. Sizes are in tokens, prices in US dollars for a million tokens, GPUs have 80 GB.
Not covered: API keys of providers (``PROVIDERS``), and finding a file by name (``registry``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from heavydistill.config.models import Endpoint, Sampling
from heavydistill.config.run import Domain, SamplingName
from heavydistill.config.yaml import Section, parse, read_yaml

Distillation = Literal["allowed", "restricted", "unknown"]
GPU_COUNTS = (1, 2, 4, 8)
_PACKAGE = Path(__file__).parents[1]
_IN_PACKAGE = "package:"
LOCAL_BATCH = 16  # Least rows of a batch for a model in this process
_LOCAL_REQUESTS = 64  # least requests of a batch: with fewer, a small model waits for Python
_ROWS_PER_SLOT = 8
_MOST_IN_FLIGHT = 512


class Samplings(Section):
    """The samplings of the paper and of the model's maker; if one is missing, the other is used."""

    paper: Sampling | None = None
    """The sampling of every model in the paper (arXiv 2605.02396, section 3.1)."""
    maker: Sampling | None = None  # What the maker of the model recommends for thinking


class Thinking(Section):
    """How the thinking of a model is switched on and how it is marked in the text."""

    tags: tuple[str, str] | None = None
    """Opening and closing tag of the thinking, if a server returns it inside the text; null if it
    is returned in a separate field, or not at all."""
    parser: str | None = None  # vLLM's reasoning parser, which moves it to a separate field
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Added to every request to a server of your own, to switch the thinking on."""


class Price(Section):
    """The price of a model's tokens."""

    usd_per_mtok_in: float = Field(ge=0)  # US dollars for a million tokens of prompts
    usd_per_mtok_out: float = Field(ge=0)  # For a million tokens of responses, with the thinking
    as_of: str  # Date of the price, or the version of the price list that has it

    def usd(self, prompt_tokens: float, completion_tokens: float) -> float:
        """The price of that many tokens in US dollars."""
        paid = prompt_tokens * self.usd_per_mtok_in + completion_tokens * self.usd_per_mtok_out
        return paid / 10**6


class Offer(Section):
    """The model at one provider."""

    model: str  # The name that the provider serves it under
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Added to every request, instead of ``thinking.extra_body``."""
    price: Price | None = None  # Null if no source states it
    source: str = ""  # Source of these facts


class Setup(Section):
    """How vLLM serves the model on a number of GPUs."""

    model: str | None = None  # Hub id of another checkpoint of the model that fits better
    tensor_parallel: int = Field(1, ge=1)  # GPUs that share one replica
    data_parallel: int = Field(1, ge=1)  # Replicas side by side
    quantization: str | None = None  # Applied at loading, if the checkpoint is not quantized
    gpu_memory_utilization: float = Field(0.9, gt=0, le=1)  # Share of each GPU that vLLM uses
    max_model_len: int = Field(ge=256)  # Tokens of prompt and response that the server accepts
    flags: dict[str, str | int] = Field(default_factory=dict)  # Further flags; see ``vllm.flags``


class Vllm(Section):
    """How to serve the model with vLLM."""

    flags: dict[str, str | int] = Field(default_factory=dict)
    """Flags for any number of GPUs, without dashes; an empty text is a flag without a value."""
    gpus: dict[Literal[1, 2, 4, 8], Setup | None]  # Set-up by number of GPUs; null if too few
    why_null: str = ""  # Why the model does not fit those numbers of GPUs

    @model_validator(mode="after")
    def _all_counts(self) -> Vllm:
        missing = [count for count in GPU_COUNTS if count not in self.gpus]
        if missing:
            raise ValueError(f"gpus lacks {missing}: give a set-up, or null where it does not fit")
        if None in self.gpus.values() and not self.why_null:
            raise ValueError("gpus has a null, so why_null must say why it does not fit")
        for count, setup in self.gpus.items():
            if setup and setup.tensor_parallel * setup.data_parallel != count:
                raise ValueError(
                    f"gpus.{count}: tensor_parallel {setup.tensor_parallel} times data_parallel "
                    f"{setup.data_parallel} is not {count}"
                )
        return self


class Terms(Section):
    """Whether other models may be trained on the model's output."""

    distillation: Distillation = "unknown"  # ``restricted`` also if only for competing models
    because: str = ""  # What the document says, in a few words
    source: str = ""  # The document


class Sources(Section):
    """The sources of the other facts: a document and the place in it."""

    limits: str = ""  # source of ``context`` and ``output``
    sampling: str = ""  # source of ``sampling``
    thinking: str = ""  # source of ``thinking``
    vllm: str = ""  # source of ``vllm``


class ProfileFile(Section):
    """The facts about a model that are needed to use it as a teacher."""

    name: str = Field(min_length=1)
    """Name for ``--teacher``; a shipped profile has the name of its file."""
    hub: str | None = None  # Hub id of the weights; null if they are not public
    folder: str | None = None
    """Folder of the checkpoint, in place of ``hub``: absolute, relative to this file, or
    ``package:PATH`` inside heavydistill. The model runs in this process, unless ``--start-vllm``
    serves it by ``vllm``."""
    tokenizer: str | None
    """Hub id of the ``tokenizer.json`` that counts the model's prompts, or a folder as above; null
    if there is none: then its server counts, see ``config.models.Endpoint.tokenizer``."""
    context: int = Field(ge=256)  # Most tokens of prompt and response together
    output: int | None = Field(None, ge=1)  # Most tokens of a response, if less than the context
    thinker_output: int | None = Field(None, ge=1)  # Most tokens of a trajectory, if less
    domain: Domain = "general"  # Wording of the prompts that suits the model
    sampling: Samplings = Samplings()
    thinking: Thinking = Thinking()
    providers: dict[str, Offer] = Field(default_factory=dict)  # By the names of ``PROVIDERS``
    vllm: Vllm | None = None
    licence: str = ""  # Licence of the weights: SPDX id, or its own name
    terms: Terms = Terms()
    sources: Sources = Sources()

    @property
    def served_name(self) -> str:
        """Name of the model at a server of one's own."""
        return self.hub or self.name

    def sampled_by(self, whose: SamplingName) -> Sampling:
        """The sampling of that name; else the other one; else the paper's."""
        first, second = self.sampling.paper, self.sampling.maker
        if whose == "maker":
            first, second = second, first
        return first or second or Sampling()


def load_profile(path: Path) -> ProfileFile:
    """The profile in a file, with absolute folders.

    Raises:
        ConfigError: There is no such file, or it is not YAML, or has an unknown key or a bad value;
            the message names file and key.
    """
    profile = parse(ProfileFile, read_yaml(path), path)
    folder, tokenizer = _resolved(profile.folder, path), _resolved(profile.tokenizer, path)
    if not (tokenizer and Path(tokenizer).is_dir()):
        tokenizer = profile.tokenizer  # a Hub id
    return profile.model_copy(update={"folder": folder, "tokenizer": tokenizer})


def serve_command(profile: ProfileFile, gpus: int, context: int | None = None) -> list[str] | None:
    """The command ``vllm serve`` with every flag; None if the profile has no set-up for ``gpus``.

    Two flags are added to those of the profile: the server reports cached prompt tokens, and it
    does not apply the checkpoint's own sampling to requests that leave a parameter out. ``context``
    replaces the set-up's ``max_model_len``.
    """
    setup = profile.vllm.gpus.get(gpus) if profile.vllm else None  # type: ignore[call-overload]
    if not profile.vllm or not setup:
        return None
    flags: dict[str, str | int | float | None] = {
        "served-model-name": profile.served_name,
        "reasoning-parser": profile.thinking.parser,
        "tensor-parallel-size": setup.tensor_parallel,
        "data-parallel-size": setup.data_parallel if setup.data_parallel > 1 else None,
        "quantization": setup.quantization,
        "gpu-memory-utilization": setup.gpu_memory_utilization,
        "max-model-len": context or setup.max_model_len,
        "generation-config": "vllm",
        "enable-prompt-tokens-details": "",
        **profile.vllm.flags,
        **setup.flags,
    }
    weights = setup.model or profile.hub or profile.folder or profile.name
    command = ["vllm", "serve", weights]
    for flag, value in flags.items():
        if value is not None:
            command += [f"--{flag}"] if value == "" else [f"--{flag}", str(value)]
    return command


def _resolved(folder: str | None, file: Path) -> str | None:
    if folder is None:
        return None
    if folder.startswith(_IN_PACKAGE):
        return str(_PACKAGE / folder.removeprefix(_IN_PACKAGE))
    return str((file.parent / Path(folder).expanduser()).resolve())


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A model at the place where it runs: in this process, or at an endpoint."""

    name: str  # Name of the profile; else the Hub id, served name, or the last part of a path
    kind: Literal["local", "endpoint"]  # ``local`` runs in this process, ``endpoint`` over HTTP
    model: str  # Folder or Hub id (local), or the served name (endpoint)
    tokenizer: str  # Folder or Hub id; ``models.tokenizer.SERVER`` where none is known
    context: int  # Most tokens of prompt and response together
    context_is_known: bool = True  # False if the context is assumed
    thinks: bool = False  # Whether the model is known to think, so that thinking is expected
    think_tags: tuple[str, str] | None = ("<think>", "</think>")  # None if none are in the text
    extra_body: Mapping[str, Any] = field(default_factory=dict)  # Added to requests to an endpoint
    domain: Domain = "general"  # Wording of the prompts that suits the model
    thinker: Sampling = field(default_factory=Sampling)  # Sampling as a thinker
    deliberator: Sampling = field(default_factory=Sampling)  # Sampling as a deliberator
    licence: str = ""  # Licence of the weights (SPDX id); empty if not known
    price: Price | None = None  # Price of the tokens at the endpoint; None if not known
    is_described: bool = False  # Whether a profile file describes the model

    def usd(self, prompt_tokens: float, completion_tokens: float) -> float | None:
        """The price of that many tokens in US dollars; None if it is not known.

        A model in this process costs 0. Discounts for cached prompt tokens are not counted.
        """
        if self.kind == "local":
            return 0.0
        return self.price.usd(prompt_tokens, completion_tokens) if self.price else None


@dataclass(frozen=True, slots=True)
class Provider:
    """A hosted API."""

    base_url: str  # Its address
    key_env: str  # Environment variable in which its key is usually kept
    takes_top_k: bool = False  # Whether it accepts ``top_k``, which is not in the OpenAI API


PROVIDERS = {
    "fireworks": Provider("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    # The catalogue has no address; this one is from Groq's documentation (OpenAI Compatibility).
    "groq": Provider("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "novita": Provider("https://api.novita.ai/openai", "NOVITA_API_KEY"),
    "openrouter": Provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", takes_top_k=True),
    "zai": Provider("https://api.z.ai/api/paas/v4", "ZHIPU_API_KEY"),
}


def provider_at(base_url: str) -> str | None:
    """Name of the provider whose host is in an address; None for any other server."""
    host = urlsplit(base_url).hostname
    hosts = {urlsplit(provider.base_url).hostname: name for name, provider in PROVIDERS.items()}
    return hosts.get(host)


@dataclass(frozen=True, slots=True)
class Pace:
    """How many rows a stage that asks a model works on at once."""

    batch: int  # Rows in a batch
    in_flight: int  # Batches at once

    @classmethod
    def of(cls, model: Profile, samples: int, endpoint: Endpoint) -> Pace:
        """The pace for that many samples a row; 0 samples at an endpoint count as 1."""
        if model.kind == "local":
            return cls(max(LOCAL_BATCH, _LOCAL_REQUESTS // samples if samples else 0), 1)
        slots = -(-endpoint.slots // max(1, samples))
        return cls(1, max(slots, min(_MOST_IN_FLIGHT, _ROWS_PER_SLOT * slots)))

    @property
    def rows(self) -> int:
        return self.batch * self.in_flight
