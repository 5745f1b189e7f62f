"""What a run will meet: the machine it runs on, and what its endpoint really honours.

A check ends in a finding, never in a guess: the endpoint is asked what it does (``endpoint``, with
the requests of ``questions``), the machine is looked at (``machine``). What a run must obey goes
into the capability file (``models.capabilities``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Result = Literal["ok", "warning", "failure"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str  # What was looked at
    result: Result  # ``failure`` keeps a run from going on as it is configured
    text: str  # What was seen, and how
    fix: str = ""  # What to do about it; with ``ok``, what one may want to do
