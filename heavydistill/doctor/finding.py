"""One line of what was found out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Result = Literal["ok", "warning", "failure"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found out.

    Attributes:
        check: What was looked at.
        result: ``failure`` keeps a run from going on as it is configured.
        text: What was seen, and how.
        fix: What mends it; of an ``ok``, what one may want to do with it.
    """

    check: str
    result: Result
    text: str
    fix: str = ""
