"""How a fault of a problem source is worded."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def choices(wrong: str, right: Iterable[str], title: str) -> str:
    """``TITLE: a, b, c.``, and the one that was probably meant."""
    right = list(right)
    near = difflib.get_close_matches(wrong, right, n=1, cutoff=0.5)
    listed = f"{title}: {', '.join(right)}."
    return f"Did you mean {near[0]}? {listed}" if near else listed
