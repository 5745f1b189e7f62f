"""Checks what a run needs: this machine (``machine``) and the behaviour of the endpoint.

Each check returns a finding. Results that affect how runs send requests are stored in the
capability file (``models.capabilities``).
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
    text: str  # What was found
    fix: str = ""  # Suggested action; optional if the result is ``ok``
