"""Hosted OpenAI-compatible APIs that profiles name: where they are and what they take.

Addresses and variables are those of the models.dev catalogue (``providers/*/provider.toml``).
A server of your own is none of these: it is asked with the Hub id and with every parameter.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A hosted API.

    Attributes:
        base_url: Where it is.
        key_env: Environment variable in which its key is usually kept.
        takes_top_k: Whether it knows ``top_k``, which the OpenAI API does not have.
    """

    base_url: str
    key_env: str
    takes_top_k: bool = False


PROVIDERS = {
    "fireworks": Provider(
        base_url="https://api.fireworks.ai/inference/v1", key_env="FIREWORKS_API_KEY"
    ),
    # The catalogue names no address; Groq's documentation does (OpenAI Compatibility).
    "groq": Provider(base_url="https://api.groq.com/openai/v1", key_env="GROQ_API_KEY"),
    "novita": Provider(base_url="https://api.novita.ai/openai", key_env="NOVITA_API_KEY"),
    "openrouter": Provider(
        base_url="https://openrouter.ai/api/v1", key_env="OPENROUTER_API_KEY", takes_top_k=True
    ),
    "zai": Provider(base_url="https://api.z.ai/api/paas/v4", key_env="ZHIPU_API_KEY"),
}


def provider_at(base_url: str) -> str | None:
    """Name of the provider on whose host an address is; None for a server of one's own."""
    host = urlsplit(base_url).hostname
    hosts = {urlsplit(provider.base_url).hostname: name for name, provider in PROVIDERS.items()}
    return hosts.get(host)
