"""Configuration sections for models: sampling, endpoints, their capabilities, judges."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from heavydistill.config.yaml import Section, form

# Reasons of undecided verdicts that a judge cannot change: the response has no answer, or the
# problem cannot be judged.
NEVER_JUDGED = frozenset(
    {"error", "truncated", "empty", "not_text", "open_thinking", "unknown_verifier"}
)

Replies = Literal["verdict", "compass_verifier", "general_verifier"]

_ADDRESS = r"https?://(\[[0-9A-Fa-f:.]+\]|[^\s,?#@/:\\\[\]]+)(:\d+)?(/[^\s,?#]*)?"
_ADDRESSES = form(
    rf"{_ADDRESS}(,{_ADDRESS})*|[a-z]+",
    "must begin with http:// or https://, e.g. http://localhost:8000/v1, without user, password, ? "
    "or #, or be the name of a provider (the value is not shown, because it may hold a key). Put "
    "commas between several addresses, and the key into an environment variable "
    "(endpoint.api_key_env).",
    may_hold_a_key=True,
)
NAME_OF_A_VARIABLE = form(
    r"[A-Z_][A-Z0-9_]*|[a-z_]+",  # most keys mix capitals, lowercase letters and digits
    "must be the name of an environment variable in capital letters, not the key itself (the value "
    "is not shown, because it may be the key). Run `export MY_API_KEY=...` and give MY_API_KEY.",
    may_hold_a_key=True,
)
ADDRESS_OF_A_SANDBOX = form(
    _ADDRESS,
    "must begin with http:// or https://, e.g. http://localhost:8080, without user, password, ? or "
    "# (the value is not shown, because it may hold a key)",
    may_hold_a_key=True,
)


class Sampling(Section):
    """Sampling parameters, each with a value. The defaults are the paper's (arXiv 2605.02396,
    section 3.1)."""

    temperature: float = Field(default=1.0, ge=0.0, le=2.0)
    top_p: float = Field(default=0.95, gt=0.0, le=1.0)
    top_k: int = Field(default=10, ge=0)
    min_p: float = Field(default=0.0, ge=0.0, lt=1.0)
    repetition_penalty: float = Field(default=1.0, gt=0.0)
    max_tokens: int = Field(default=32_768, ge=1)


# Parameters that a run sends, and records as it sent them.
_OF_THE_RUN = {
    *("model", "messages", "n", "seed", "stream", "stream_options", "max_tokens"),
    *("max_completion_tokens", *Sampling.model_fields),
}


class SamplingChoice(Section):
    """Sampling parameters that the user sets; null keeps the value of the model's profile."""

    temperature: float | None = Field(default=None, ge=0.0, le=2.0)
    """Sampling temperature (default: the profile's); 0 always picks the most probable token."""
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    """Probability mass of the tokens that may be sampled (default: the profile's); 1 is no
    limit."""
    top_k: int | None = Field(default=None, ge=0)
    """Number of most probable tokens that may be sampled (default: the profile's); 0 is no
    limit."""
    min_p: float | None = Field(default=None, ge=0.0, lt=1.0)
    """Minimum probability of a sampled token, as a share of the most probable one's (default: the
    profile's)."""
    repetition_penalty: float | None = Field(default=None, gt=0.0)
    """Divisor for the logits of tokens that are in the text already (default: the profile's); 1 is
    off."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Maximum number of tokens of one response, thinking included (default: the profile's)."""

    def over(self, base: Sampling) -> Sampling:
        """Return ``base`` with the values that are set here."""
        return base.model_copy(update=self.model_dump(exclude_none=True))


class Capabilities(Section):
    """Properties of an endpoint that `heavydistill doctor` measures."""

    n: int = Field(default=1, ge=1)
    """Maximum number of samples that one request returns."""
    n_because: str = ""
    """Reason for ``n`` being 1, if more were requested."""
    stream: bool = True
    """Whether the server streams responses."""
    refused: list[str] = Field(default_factory=list)
    """Parameters that the server refuses, e.g. ``seed``; they are not sent."""
    max_tokens_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """Name of the parameter that limits the tokens of a response."""
    max_output: int | None = Field(default=None, ge=1)
    """Maximum number of tokens of a response that a request may ask for; null if the server states
    no limit."""
    context: int | None = Field(default=None, ge=256)
    """Maximum number of tokens of prompt and response together, if it is smaller than the
    profile's."""
    reasoning: Literal["reasoning_content", "reasoning", "blocks", "tags", "none", "unknown"] = (
        "unknown"
    )
    """Place of the thinking in a response: a field, blocks of the content, tags in the text, or
    none."""
    finish_reasons: dict[str, Literal["stop", "length"]] = Field(default_factory=dict)
    """Meaning of finish reasons that have other names at this server."""
    seed: Literal["honoured", "ignored", "refused", "forced", "unknown"] = "unknown"
    """Effect of a seed: honoured (the same text again), ignored, refused with an error, or forced
    (the same text for every seed)."""
    tools: Literal["server", "fence", "none", "unknown"] = "unknown"
    """Ways in which the model can call a tool: by the server's tool calls (``server``), by a block
    of code at whose end the server stops (``fence``), or ``none``."""
    checked: str = ""
    """Time and model of the measurement, and its file."""


class Endpoint(Section):
    """An OpenAI-compatible server; without ``base_url``, models run in this process."""

    base_url: Annotated[str, _ADDRESSES] | None = None
    """Address of an OpenAI-compatible server, e.g. http://localhost:8000/v1 (several with commas
    between), or the name of a provider such as openrouter."""
    start_vllm: bool = False
    """Start vLLM on this machine with the profile's settings, and stop it at the end. It runs on
    the GPUs, or on the CPU if it is built for CPUs and there is no GPU."""
    api_key_env: Annotated[str, NAME_OF_A_VARIABLE] | None = None
    """Environment variable that holds the API key (default: the provider's, else
    ``OPENAI_API_KEY``). A server without keys needs none."""
    batch: bool = False
    """Send the requests as batches (OpenAI's ``/v1/files`` and ``/v1/batches``), at half of the
    price: answers come within 24 hours for each pass."""
    batch_files: str | None = Field(default=None, min_length=1)
    """Folder for input files of ``vllm run-batch``, in place of a server: run it on them where the
    GPUs are, and the run reads its output files from the same folder."""
    batch_requests: int = Field(default=50_000, ge=1)
    """Maximum number of requests in a batch; lower it if the provider refuses so many tokens at
    once."""
    batch_mb: float = Field(default=190.0, gt=0)
    """Maximum size of the file of a batch, in MB."""
    tokenizer: str | None = None
    """Tokenizer of the served model: a folder or Hub id (default: the profile's, or ``server``).
    ``server`` counts with the server's ``/tokenize``, else estimates one token per UTF-8 byte."""
    context: int | None = Field(default=None, ge=256)
    """Maximum number of tokens of prompt and response together (default: the smaller of the
    server's and the profile's, else that of ``config.json`` beside the tokenizer, else 8,192)."""
    concurrency: int = Field(default=32, ge=1)
    """Maximum number of requests in flight per address (default: 32; with ``start_vllm`` 256 for
    each replica of the model); reduced while the server is overloaded."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    """Maximum number of requests per minute (default: no limit)."""
    tokens_per_minute: int | None = Field(default=None, ge=1)
    """Maximum number of tokens per minute, prompts and responses together (default: no limit)."""
    tokens_per_second: float = Field(default=20.0, gt=0)
    """Tokens per second of one response, for estimates while the journal has no responses."""
    timeout_s: float = Field(default=600.0, gt=0)
    """Maximum silence in seconds, before a response begins and between its pieces of text. A run
    stops if all servers are silent or fail, or ask for a longer pause, for more than this time."""
    retries: int = Field(default=4, ge=0)
    """Number of retries after a time-out, a server error or a broken connection. A request that
    meets an overload is retried for as long as the server answers others."""
    reasoning: Literal["required", "optional"] = "required"
    """Treatment of a thinking teacher that returns no thinking: ``required`` stops the run,
    ``optional`` does not."""
    price_in: float | None = Field(default=None, ge=0)
    """US dollars per million prompt tokens (default: the profile's)."""
    price_out: float | None = Field(default=None, ge=0)
    """US dollars per million completion tokens (default: the profile's)."""
    extra_body: dict[str, object] = Field(default_factory=dict)
    """Request parameters of this server, merged over the profile's, e.g. ``{provider: {only:
    [deepinfra]}}``; null removes one of the profile's. Changed parameters are new requests."""
    capabilities: Capabilities | None = None
    """Properties of the endpoint (default: what `heavydistill doctor` measured here)."""
    fresh: bool = False
    """Request and pay everything again if a priced server answers with another model than the one
    in the journal; without it, the run stops."""
    identities: dict[str, str] = Field(default_factory=dict)
    """Number of each served model among those that its name has had in the journal; found at the
    start of a run, and saved for ``replay``."""

    @property
    def urls(self) -> list[str]:
        return self.base_url.split(",") if self.base_url else []

    @property
    def slots(self) -> int:
        """Return the maximum number of requests in flight at all addresses together."""
        return self.concurrency * max(1, len(self.urls))

    @property
    def is_served(self) -> bool:
        """Return whether models are served, over HTTP or by ``vllm run-batch``."""
        return self.start_vllm or self.base_url is not None or self.batch_files is not None

    @property
    def is_batched(self) -> bool:
        """Return whether requests are collected in files, which are answered as a whole."""
        return self.batch or self.batch_files is not None

    @property
    def key_env(self) -> str:
        return self.api_key_env or "OPENAI_API_KEY"

    @property
    def key(self) -> str:
        """Return the API key, from the environment variable ``key_env``; empty if it is unset."""
        return os.environ.get(self.key_env, "").strip()

    @field_validator("extra_body")
    @classmethod
    def _leaves_the_runs_own(cls, extra_body: dict[str, object]) -> dict[str, object]:
        if own := sorted(_OF_THE_RUN.intersection(extra_body)):
            raise ValueError(
                f"the run itself sends {', '.join(own)}. Leave it out; keys such as "
                "think.sampling.top_p and endpoint.capabilities.n set it."
            )
        return extra_body

    @model_validator(mode="after")
    def _one_place(self) -> Endpoint:
        if self.start_vllm and self.base_url:
            both = "endpoint.start_vllm and endpoint.base_url"
            raise ValueError(f"{both} are both set. Leave one of them out.")
        return self

    @model_validator(mode="after")
    def _place_of_batches(self) -> Endpoint:
        if self.batch_files and (self.base_url or self.start_vllm or self.batch):
            raise ValueError(
                "batch_files is set together with base_url, start_vllm or batch. Give batch_files "
                "alone: no server is asked."
            )
        if self.batch and len(self.urls) != 1:
            lacks = "the model runs in this process" if not self.urls else "there are several"
            if self.start_vllm:
                lacks = "start_vllm starts a server without a batch API"
            raise ValueError(
                f"batch needs one address with a batch API, and {lacks}. Name it (--endpoint), "
                "leave --batch out, or write files for `vllm run-batch` (--batch-files FOLDER)."
            )
        return self


def require_address(endpoint: Endpoint | None) -> None:
    """Raise ValueError if the endpoint of one model has no address, or starts a server."""
    if endpoint and (endpoint.start_vllm or not endpoint.base_url):
        raise ValueError(
            "base_url is missing, or start_vllm is set. Give base_url alone, or leave endpoint "
            "out to use the run's."
        )


class Judge(Section):
    """A model that decides verdicts which rules leave undecided; see ``verifiers.judge``."""

    model: str = Field(min_length=1)
    """Model that decides verdicts which rules leave undecided (default: none)."""
    endpoint: Endpoint | None = None
    """Endpoint of the judge (default: the run's)."""
    votes: int = Field(default=3, ge=1)
    """Number of votes per answer; more than half must agree."""
    replies: Replies = "verdict"
    """Form of the judge's replies: ``verdict``, a word such as CORRECT; or ``compass_verifier`` or
    ``general_verifier``, as these models reply to their own prompts (``prompts.judge``)."""
    sampling: SamplingChoice = SamplingChoice()
    """Sampling of the judge (default: temperature 0.7, top_p 0.95, at most 8,192 tokens)."""
    reasons: list[str] | None = None
    """Reasons of undecided verdicts that the judge decides, e.g. ``[needs_symbolic]`` (default: all
    except failures of this machine or a verifier, and answers that repeat the problem)."""

    @model_validator(mode="after")
    def _no_contradictions(self) -> Judge:
        require_address(self.endpoint)
        if self.sampling.temperature == 0 and self.votes > 1:
            raise ValueError("votes at temperature 0 are identical. Set votes to 1.")
        never = sorted(NEVER_JUDGED.intersection(self.reasons or ()))
        if never:
            raise ValueError(
                f"reasons has {', '.join(never)}, which a judge does not decide. Remove it from "
                "the list."
            )
        return self
