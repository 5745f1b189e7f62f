"""Texts of the reference pages, generated from where each thing is documented in the package."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def benchmarks() -> str:
    """Text of benchmarks/README.md without its title, with links that hold for the page."""
    text = (REPOSITORY / "benchmarks" / "README.md").read_text(encoding="utf-8")
    _, _, body = text.partition("\n")
    return re.sub(r"\]\((?!\w+:|#)", "](../../benchmarks/", body).strip()


TEXTS: dict[str, Callable[[], str]] = {"benchmarks": benchmarks}
