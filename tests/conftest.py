"""What holds for all tests."""

import os
import signal
from collections.abc import Iterator

import pytest
from claims import CLAIMS
from fair_clock import fair_verdicts
from hypothesis import HealthCheck, settings

# With a key a run asks a server for one token more, see ``models.contact``; a developer's own key
# must not change what the servers of tests are asked, nor a terminal what is printed.
for name in ("OPENAI_API_KEY", "COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE"):
    os.environ.pop(name, None)

# A shell starts jobs of the background with Ctrl-C ignored, and what they start inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says something about the machine.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


@pytest.fixture(autouse=True, scope="session")
def a_busy_machine_is_no_verdict() -> Iterator[None]:
    with fair_verdicts():
        yield


@pytest.fixture(autouse=True)
def no_memory_of_the_hub() -> None:
    """Whether the Hub answers is found out once in a process, and a process runs many tests."""
    from heavydistill.models.hub_files import obstacle

    obstacle.cache_clear()


@pytest.fixture
def known_here_alone() -> Iterator[None]:
    """Plug-ins of a test are known no longer than the test."""
    from plug_ins import forgotten

    with forgotten():
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests of the default lane."""
    tests = {f"tests/{test}" for test in CLAIMS.values()}
    for item in items:
        if item.nodeid in tests or item.nodeid.partition("[")[0] in tests:
            item.add_marker(pytest.mark.claim)
