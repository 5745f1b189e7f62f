"""Rows of the data sets beside the repository."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest

_DATA = Path(__file__).parents[2] / ".." / "shared" / "data"


@functools.cache
def rows(name: str) -> list[dict[str, Any]]:
    """The rows of a file; where it is not there, the test is skipped."""
    if not (_DATA / name).is_file():
        pytest.skip(f"{name} is not here")
    return [json.loads(line) for line in (_DATA / name).read_text(encoding="utf-8").splitlines()]
