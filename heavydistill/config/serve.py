"""The configuration of ``heavydistill serve``: that of a run, and how it is served.

The configuration that a run saved can be served as it is, with the wordings, the cache and the
sampling of its traces. Keys that choose problems, folders and a journal have no effect.
"""

from __future__ import annotations

import ipaddress
import os
from typing import Annotated, Any

from pydantic import Field, model_validator

from heavydistill.config.models import NAME_OF_A_VARIABLE, Endpoint
from heavydistill.config.run import RunConfig
from heavydistill.config.yaml import Section


class Serving(Section):
    """How the models are served, and the limits of a request."""

    host: str = "127.0.0.1"
    """Address to listen at. An address that other machines reach needs a key."""
    port: int = Field(default=8642, ge=0, le=65_535)
    """Port to listen at; 0 takes any free one."""
    page: str | None = None
    """HTML file that browsers get at the root of the address, e.g. ``docs/examples/chat.html``; no
    other page can ask the service."""
    api_key_env: Annotated[str, NAME_OF_A_VARIABLE] = "HEAVYDISTILL_SERVE_KEY"
    """Environment variable with the key that clients must send; without it, none is asked for."""
    verifier: str | None = None
    """Verifier that reads the final answers by which attempts are grouped: math, exact, judged or
    choice (default: the last box, or else the whole text)."""
    verifier_args: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the verifier, e.g. ``{options: 4}`` for choice."""
    deliberator_endpoint: Endpoint | None = None
    """Endpoint of the deliberator, if it is another one than the thinker's; ``{}`` runs the
    deliberator in this process (default: that of both)."""
    deadline_s: float = Field(default=600.0, gt=0)
    """Maximum seconds of a request. Once ``think.min_k`` attempts are usable, the others are
    awaited for half of it, and then given up, so that there is time to deliberate."""
    grace_s: float | None = Field(default=None, ge=0)
    """Seconds to wait for further attempts once ``think.min_k`` are usable (default: half of the
    deadline)."""
    stopping: str | None = None
    """File ``adaptive.json`` that ``evaluate --adaptive`` wrote for these models, with the rule by
    which requests with k ``auto`` get fewer attempts (default: such requests are refused)."""
    gate: bool = False
    """Whether requests with k ``auto`` also get one attempt if their question is short, as
    confirmed by ``stopping``."""
    max_k: int = Field(default=32, ge=1, le=1024)
    """Maximum number of attempts that a request may ask for."""
    max_d: int = Field(default=8, ge=1, le=1024)
    """Maximum number of deliberations that a request may ask for."""
    max_requests: int = Field(default=64, ge=1)
    """Maximum number of requests in progress; further ones are refused with HTTP 429."""
    out: str | None = None
    """Folder in which answered requests are recorded, as a run that ``show``, ``report`` and
    ``build`` read (default: nothing is recorded)."""
    max_out_bytes: int = Field(default=2**30, ge=1024)
    """Maximum number of bytes in ``out``; beyond it the oldest rows are deleted."""
    max_body_bytes: int = Field(default=4 * 2**20, ge=1024)
    """Maximum number of bytes of a request."""

    @property
    def key(self) -> str:
        """The key that clients must send; empty for none."""
        return os.environ.get(self.api_key_env, "").strip()

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches the address."""
        return is_loopback(self.host)


class ServeConfig(RunConfig):
    """The models that are served, and how."""

    serve: Serving = Serving()

    @model_validator(mode="after")
    def _can_be_served(self) -> ServeConfig:
        apart = self.serve.deliberator_endpoint
        starts = self.endpoint.start_vllm or (apart and apart.start_vllm)
        without = {
            "pools": self.pools,
            "several thinkers": len(self.attempts_by_thinker) > 1,
            "think.tools": self.think.tools.python,
            "judge": self.judge,
            "endpoint.batch or batch_files": self.endpoint.is_batched,
            "budget": self.budget,
            "a deliberate.task other than deliberate": self.deliberate.task != "deliberate",
            "serve.deliberator_endpoint with start_vllm": apart and starts,
            "serve.gate without serve.stopping": self.serve.gate and not self.serve.stopping,
        }
        if wrong := [name for name, is_set in without.items() if is_set]:
            fix = "Leave it out; --set KEY=null does so for a key of the file."
            raise ValueError(f"{', '.join(wrong)} cannot be served. {fix}")
        if self.think.k > self.serve.max_k:
            raise ValueError(
                f"think.k {self.think.k} is larger than serve.max_k {self.serve.max_k}. Lower it, "
                "or raise serve.max_k."
            )
        return self


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, reached from this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
