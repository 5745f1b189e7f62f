"""No test of a verifier leaves anything behind; verdict pools."""

from collections.abc import Iterator

import pytest
from leaving_nothing import (  # noqa: F401  (fixtures)
    a_busy_machine_ends_no_program,
    nothing_changed,
    nothing_left,
    nothing_left_behind,
    works,
)
from plug_ins import forgotten
from verdict_pools import SETTINGS

from heavydistill.verifiers.pool import VerdictPool


@pytest.fixture(scope="module")
def known_here_alone() -> Iterator[None]:
    """Verifiers of tests are known no longer than a module."""
    with forgotten():
        yield


@pytest.fixture(scope="module")
def shared(known_here_alone: None) -> Iterator[VerdictPool]:
    with VerdictPool(SETTINGS) as pool:
        yield pool


@pytest.fixture
def pool(known_here_alone: None) -> Iterator[VerdictPool]:
    with VerdictPool(SETTINGS) as pool:
        yield pool
