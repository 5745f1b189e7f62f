"""Several thinkers of one run: their names, their shares of K, and what each has of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, model_validator

from heavydistill.config.models import Endpoint, SamplingChoice, require_address
from heavydistill.config.yaml import Section

ModelNames = Annotated[
    str, BeforeValidator(lambda names: ",".join(map(str, names)) if type(names) is list else names)
]
"""A model, or several with commas between; a list in YAML."""


class ThinkerSettings(Section):
    """What a thinker of a run has of its own."""

    endpoint: Endpoint | None = None
    """Endpoint of the thinker, with its address, prices and limits (default: the run's)."""
    sampling: SamplingChoice = SamplingChoice()
    """Sampling of the thinker (default: that of ``think``)."""

    @model_validator(mode="after")
    def _has_an_address(self) -> ThinkerSettings:
        require_address(self.endpoint)
        return self


def shares_of(named: str) -> dict[str, int]:
    """Return the share of each model in ``a,b`` or ``a=2,b=1``; 1 where no share is given.

    A text without a comma is the name of one model. Raises ValueError if a share is not a whole
    number, or a model is named twice.
    """
    if "," not in named:
        return {named: 1}
    shares: dict[str, int] = {}
    for part in named.split(","):
        name, _, share = part.rpartition("=") if "=" in part else (part, "", "1")
        name = name.strip()
        if not name or not re.fullmatch(r"\s*[1-9]\d{0,8}\s*", share):
            raise ValueError(
                f"thinker has {part!r}, which is not a model with a share. Write NAME or "
                "NAME=SHARE for each, with a whole number of at least 1 as share, e.g. a=2,b=1."
            )
        if name in shares:
            raise ValueError(f"thinker names {name} twice. Name each model once, with a share.")
        shares[name] = int(share)
    return shares


def split(k: int, shares: Mapping[str, int]) -> dict[str, int]:
    """Divide K trajectories by shares; what is left over goes to the largest remainders."""
    total = sum(shares.values())
    counts = {name: k * share // total for name, share in shares.items()}
    by_remainder = sorted(shares, key=lambda name: -(k * shares[name] % total))
    for name in by_remainder[: k - sum(counts.values())]:
        counts[name] += 1
    return counts
