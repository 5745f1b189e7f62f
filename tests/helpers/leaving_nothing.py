"""Fixtures of tests that leave nothing behind: no process, file, variable or signal handler."""

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fair_clock import fair_sandbox
from sandboxing import adopted_all_end, adopting, children, need_sandbox

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
_GRACE_S = 60.0


def _state() -> object:
    variables = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}
    return variables, [signal.getsignal(number) for number in _SIGNALS], os.getcwd()


def _lasting(pid: int) -> bool:
    """Whether a child is one of those that live as long as this process does."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return True
    return b"resource_tracker" in command or b"forkserver" in command


@pytest.fixture(autouse=True, scope="session")
def a_busy_machine_ends_no_program() -> Iterator[None]:
    with fair_sandbox():
        yield


@pytest.fixture(autouse=True)
def nothing_changed() -> Iterator[None]:
    before = _state()
    yield
    assert _state() == before


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """No process, orphans among them, and no open file."""
    before, files = children(), _open_files()
    with adopting():
        yield
        assert adopted_all_end(before), "a process is left"
    until = time.monotonic() + _GRACE_S
    while _open_files() > files and time.monotonic() < until:  # threads of a test's server
        time.sleep(0.02)
    assert _open_files() <= files, "a file is left open"


@pytest.fixture(scope="session")
def works() -> None:
    need_sandbox()


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(autouse=True, scope="module")
def nothing_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before, folder = children(), tmp_path_factory.mktemp("verifiers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        patch.setenv("TMPDIR", str(folder))
        yield
        deadline = time.monotonic() + _GRACE_S
        while (
            not (ended := all(map(_lasting, children() - before))) and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        assert ended, "a process is left"
        assert not os.listdir(folder)
