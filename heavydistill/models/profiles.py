"""The file format of a profile: one YAML file a teacher, shipped in ``configs/teachers`` or yours.

``name``, ``tokenizer`` and ``context`` are all that a file of your own must have; the shipped ones
say where each fact comes from, and leave out what no source tells. Sizes are in tokens, prices in
US dollars for a million tokens, GPUs are of the 80 GB class. Not covered: keys of providers
(``PROVIDERS``), and finding a file by its name (``models.registry``).
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
LOCAL_BATCH = 16  # Rows of a batch for a model in this process, at least
_LOCAL_REQUESTS = 64  # of a batch, at least: with fewer a small model waits for Python
_ROWS_PER_SLOT = 8
_MOST_IN_FLIGHT = 512


class Samplings(Section):
    """How to sample, by whose advice; where one is missing, the other holds."""

    paper: Sampling | None = None
    """As the paper sampled every model (arXiv 2605.02396, section 3.1)."""
    maker: Sampling | None = None  # As the maker of the model recommends for thinking


class Thinking(Section):
    """How thinking is switched on and marked."""

    tags: tuple[str, str] | None = None
    """Tags around it where a server leaves it in the text; null if it only comes in a field of its
    own, or not at all."""
    parser: str | None = None  # vLLM's reasoning parser, which moves it to a field of its own
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Added to every request to a server of your own, to switch it on."""


class Price(Section):
    """What tokens cost."""

    usd_per_mtok_in: float = Field(ge=0)  # A million tokens of prompts
    usd_per_mtok_out: float = Field(ge=0)  # A million tokens of responses, thinking included
    as_of: str  # Date of the price, or the version of the price list that has it

    def usd(self, prompt_tokens: float, completion_tokens: float) -> float:
        """What so many tokens cost."""
        paid = prompt_tokens * self.usd_per_mtok_in + completion_tokens * self.usd_per_mtok_out
        return paid / 10**6


class Offer(Section):
    """The model at one provider."""

    model: str  # The name that the provider serves it under
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Added to every request, instead of ``thinking.extra_body``."""
    price: Price | None = None  # Null if no source tells it
    source: str = ""  # Where all this stands


class Setup(Section):
    """How vLLM serves it on so many GPUs."""

    model: str | None = None  # Hub id of another checkpoint of it that fits better
    tensor_parallel: int = Field(1, ge=1)  # GPUs that share one replica
    data_parallel: int = Field(1, ge=1)  # Replicas side by side
    quantization: str | None = None  # While loading, if the checkpoint has none of its own
    gpu_memory_utilization: float = Field(0.9, gt=0, le=1)  # Share that vLLM takes of each GPU
    max_model_len: int = Field(ge=256)  # Tokens of prompt and response that the server then takes
    flags: dict[str, str | int] = Field(default_factory=dict)  # Further ones, as ``vllm.flags``


class Vllm(Section):
    """How to serve it oneself."""

    flags: dict[str, str | int] = Field(default_factory=dict)
    """Flags of every set-up, without their dashes; an empty text is a flag without a value."""
    gpus: dict[Literal[1, 2, 4, 8], Setup | None]  # For so many; null where it does not fit
    why_null: str = ""  # Why it does not fit where it does not

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
    """Whether models may be trained on what it writes."""

    distillation: Distillation = "unknown"  # ``restricted`` also if competing models alone are
    because: str = ""  # What the document says, in short
    source: str = ""  # The document


class Sources(Section):
    """Where the other facts stand: a document and its place."""

    limits: str = ""  # source of ``context`` and ``output``
    sampling: str = ""  # source of ``sampling``
    thinking: str = ""  # source of ``thinking``
    vllm: str = ""  # source of ``vllm``


class ProfileFile(Section):
    """All that is known of a model as a teacher."""

    name: str = Field(min_length=1)
    """What ``--teacher`` calls it; of a shipped one, the name of its file."""
    hub: str | None = None  # Hub id of the weights; null if they are not public
    folder: str | None = None
    """Checkpoint on this machine instead: absolute, relative to this file, or ``package:PATH``
    inside heavydistill. It runs in this process, unless ``--start-vllm`` and ``vllm`` say
    otherwise."""
    tokenizer: str | None
    """Hub id of the ``tokenizer.json`` that counts what it reads, or a folder as above; null if
    there is none, so that its server counts, see ``config.models.Endpoint.tokenizer``."""
    context: int = Field(ge=256)  # Most tokens of prompt and response together
    output: int | None = Field(None, ge=1)  # Most tokens of a response, where that is less
    thinker_output: int | None = Field(None, ge=1)  # Most tokens of a trajectory, likewise
    domain: Domain = "general"  # Wording of the prompts that suits it
    sampling: Samplings = Samplings()
    thinking: Thinking = Thinking()
    providers: dict[str, Offer] = Field(default_factory=dict)  # By the names of ``PROVIDERS``
    vllm: Vllm | None = None
    licence: str = ""  # Of the weights: SPDX id, or the name it has
    terms: Terms = Terms()
    sources: Sources = Sources()

    @property
    def served_name(self) -> str:
        """What a server of one's own calls it."""
        return self.hub or self.name

    def sampled_by(self, whose: SamplingName) -> Sampling:
        """The sampling of that name, the other one, or the paper's."""
        first, second = self.sampling.paper, self.sampling.maker
        if whose == "maker":
            first, second = second, first
        return first or second or Sampling()


def load_profile(path: Path) -> ProfileFile:
    """The profile in a file, its folders made absolute.

    Raises:
        ConfigError: No such file, not YAML, an unknown key or a bad value; it names file and key.
    """
    profile = parse(ProfileFile, read_yaml(path), path)
    folder, tokenizer = _resolved(profile.folder, path), _resolved(profile.tokenizer, path)
    if not (tokenizer and Path(tokenizer).is_dir()):
        tokenizer = profile.tokenizer  # a Hub id
    return profile.model_copy(update={"folder": folder, "tokenizer": tokenizer})


def serve_command(profile: ProfileFile, gpus: int, context: int | None = None) -> list[str] | None:
    """``vllm serve`` with every flag, for so many GPUs; None where the profile has no set-up.

    Beside what the profile says, it counts the tokens of prompts that were cached, and leaves the
    sampling to the requests: a checkpoint's own defaults would hold for what they do not send.
    ``context`` stands in for the set-up's ``max_model_len``.
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
    """A model as a teacher."""

    name: str  # Name of the profile; else the Hub id, served name, or the last part of a path
    kind: Literal["local", "endpoint"]  # ``local`` runs in this process, the other over HTTP
    model: str  # Folder or Hub id (local), or the served name (endpoint)
    tokenizer: str  # Folder or Hub id; ``models.tokenizer.SERVER`` where none is known
    context: int  # Most tokens of prompt and response together
    context_is_known: bool = True  # Whether that is not assumed
    thinks: bool = False  # Whether it is known to, so that a response without thinking lost it
    think_tags: tuple[str, str] | None = ("<think>", "</think>")  # None if none are in the text
    extra_body: Mapping[str, Any] = field(default_factory=dict)  # Added to requests to an endpoint
    domain: Domain = "general"  # Wording of the prompts that suits it
    thinker: Sampling = field(default_factory=Sampling)  # Sampling as a thinker
    deliberator: Sampling = field(default_factory=Sampling)  # Sampling as a deliberator
    licence: str = ""  # SPDX id of its weights, or empty if not known
    price: Price | None = None  # Price of its tokens where it is served; None if not known
    is_described: bool = False  # Whether there is a profile file of it, and not its name alone

    def usd(self, prompt_tokens: float, completion_tokens: float) -> float | None:
        """What so many tokens cost: nothing in this process; None if the price is not known.

        No discount for tokens that a provider has in its prefix cache.
        """
        if self.kind == "local":
            return 0.0
        return self.price.usd(prompt_tokens, completion_tokens) if self.price else None


@dataclass(frozen=True, slots=True)
class Provider:
    """A hosted API."""

    base_url: str  # Where it is
    key_env: str  # Environment variable in which its key is usually kept
    takes_top_k: bool = False  # Whether it knows ``top_k``, which the OpenAI API does not have


PROVIDERS = {
    "fireworks": Provider("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    # The catalogue names no address; Groq's documentation does (OpenAI Compatibility).
    "groq": Provider("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "novita": Provider("https://api.novita.ai/openai", "NOVITA_API_KEY"),
    "openrouter": Provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", takes_top_k=True),
    "zai": Provider("https://api.z.ai/api/paas/v4", "ZHIPU_API_KEY"),
}


def provider_at(base_url: str) -> str | None:
    """Name of the provider on whose host an address is; None for a server of one's own."""
    host = urlsplit(base_url).hostname
    hosts = {urlsplit(provider.base_url).hostname: name for name, provider in PROVIDERS.items()}
    return hosts.get(host)


@dataclass(frozen=True, slots=True)
class Pace:
    """How the rows of a stage that asks a model are batched."""

    batch: int  # Rows a batch
    in_flight: int  # Batches at once

    @classmethod
    def of(cls, model: Profile, samples: int, endpoint: Endpoint) -> Pace:
        """For so many samples a row; 0 asks nothing, and of an endpoint is as slow as 1."""
        if model.kind == "local":
            return cls(max(LOCAL_BATCH, _LOCAL_REQUESTS // samples if samples else 0), 1)
        slots = -(-endpoint.slots // max(1, samples))
        return cls(1, max(slots, min(_MOST_IN_FLIGHT, _ROWS_PER_SLOT * slots)))

    @property
    def rows(self) -> int:
        return self.batch * self.in_flight
