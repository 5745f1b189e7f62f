"""What must be known of a model before it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from heavydistill.config.models import Sampling
from heavydistill.config.run import Domain
from heavydistill.models.profile_files import Price


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A model as a teacher.

    Attributes:
        name: Of its profile, however its file was named; without one its id or the
            name that it is served under, and of a folder or path the last name.
        kind: ``local`` runs in this process, ``endpoint`` is asked over HTTP.
        model: Folder or Hub id (local), or the served name (endpoint).
        tokenizer: Folder or Hub id whose tokenizer counts what this model reads; where none is
            known, ``models.tokenizer.SERVER``.
        context: Most tokens of prompt and response together.
        context_is_known: Whether that was set or is known of the model, and is not assumed.
        thinks: Whether it is known to think, so that a response without thinking lost it.
        think_tags: Tags around thinking that stays in the text; None if it has none.
        extra_body: Added to every request to an endpoint, e.g. what switches thinking on.
        domain: Wording of the prompts that suits it.
        thinker: Sampling as a thinker.
        deliberator: Sampling as a deliberator.
        licence: SPDX id of its weights, or empty if not known.
        price: What its tokens cost where it is served; None if that is not known.
        is_described: Whether there is a profile file of it, and not its name alone.
    """

    name: str
    kind: Literal["local", "endpoint"]
    model: str
    tokenizer: str
    context: int
    context_is_known: bool = True
    thinks: bool = False
    think_tags: tuple[str, str] | None = ("<think>", "</think>")
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    domain: Domain = "general"
    thinker: Sampling = field(default_factory=Sampling)
    deliberator: Sampling = field(default_factory=Sampling)
    licence: str = ""
    price: Price | None = None
    is_described: bool = False

    def usd(self, prompt_tokens: float, completion_tokens: float) -> float | None:
        """What so many tokens cost: nothing in this process; None if the price is not known.

        No discount for tokens that a provider has in its prefix cache.
        """
        if self.kind == "local":
            return 0.0
        return self.price.usd(prompt_tokens, completion_tokens) if self.price else None
