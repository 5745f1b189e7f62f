"""Checks what a run needs: this machine (``machine``) and the behaviour of the endpoint.

Each check ends with a finding. Findings that a run must obey are stored in the capability file
(``models.capabilities``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Result = Literal["ok", "warning", "failure"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str  # Name of the check
    result: Result  # ``failure`` means that the run cannot work as configured
    text: str  # Observation
    fix: str = ""  # Action for the user; with ``ok``, an optional one
