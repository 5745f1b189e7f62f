"""No test of the sandbox leaves anything behind, and an attack is tried wherever code runs."""

from collections.abc import Callable
from typing import Any

import pytest
from leaving_nothing import (  # noqa: F401  (fixtures)
    a_busy_machine_ends_no_program,
    nothing_changed,
    nothing_left,
    nothing_left_behind,
    works,
)
from sandboxing import attempted, attempted_in_a_cell


@pytest.fixture(params=[attempted, attempted_in_a_cell], ids=["program", "cell"])
def tried(request: pytest.FixtureRequest) -> Callable[..., dict[str, Any]]:
    """What an attack put into ``said``: as a program, or in a cell of an interpreter."""
    return request.param
