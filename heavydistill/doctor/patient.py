"""A served model as a run wants it: what doctor examines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heavydistill.config.models import Sampling
from heavydistill.models.context import Context
from heavydistill.models.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """A served model and what a run wants of it.

    Attributes:
        profile: Of the model.
        samplings: Of each role that it has in the run.
        context: What is known of its context without asking the server.
        prompt: What a thinker is asked, with a problem that takes little thinking.
        parser: vLLM's reasoning parser for it, if it has one.
        hosted: Whether a provider serves it, so that nobody here can restart the server.
    """

    profile: Profile
    samplings: list[Sampling]
    context: Context
    prompt: str
    parser: str | None = None
    hosted: bool = False

    @property
    def parameters(self) -> dict[str, Any]:
        """All that the run sends beside the messages and the length, the dearest first."""
        sent: dict[str, Any] = dict(self.profile.extra_body)
        for sampling in self.samplings:
            sent |= {"temperature": sampling.temperature, "seed": 1, "top_p": sampling.top_p}
            for name, off in (("top_k", 0), ("min_p", 0.0), ("repetition_penalty", 1.0)):
                if (value := getattr(sampling, name)) != off:
                    sent[name] = value
        return sent

    @property
    def max_tokens(self) -> int:
        return max(sampling.max_tokens for sampling in self.samplings)
