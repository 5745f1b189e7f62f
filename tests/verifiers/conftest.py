"""No test of a verifier leaves anything behind: no process, file, variable or signal handler."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandboxing import adopted_all_end, adopting, children, need_sandbox
from verdict_pools import SETTINGS

from heavydistill.verifiers import registry
from heavydistill.verifiers.pool import VerdictPool

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
_GRACE_S = 5.0


def _state() -> object:
    variables = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}
    return variables, [signal.getsignal(number) for number in _SIGNALS], os.getcwd()


def _children() -> dict[int, str]:
    """The processes that this one has started, but for those that live as long as it does."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has ended
            continue
        if int(parent) == os.getpid() and not any(
            lasting in command for lasting in ("resource_tracker", "forkserver")
        ):
            found[int(folder.name)] = command or "ended, and nobody asked how"
    return found


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
    children = _children()
    tmp_path_factory.getbasetemp()  # is where temporary files were before
    folder = tempfile.mkdtemp(prefix="verifiers-")
    before, tempfile.tempdir = tempfile.tempdir, folder
    os.environ["TMPDIR"], earlier = folder, os.environ.get("TMPDIR")
    try:
        yield
        deadline = time.monotonic() + _GRACE_S
        while (left := _children().keys() - children.keys()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left, [command for pid, command in _children().items() if pid in left]
        assert not os.listdir(folder)
    finally:
        tempfile.tempdir = before
        if earlier is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = earlier
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def known_here_alone() -> Iterator[None]:
    """Verifiers of tests are known no longer than a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_known", dict(registry._known))
        patch.setattr(registry, "_own", dict(registry._own))
        yield


@pytest.fixture(scope="module")
def shared(known_here_alone: None) -> Iterator[VerdictPool]:
    with VerdictPool(SETTINGS) as pool:
        yield pool


@pytest.fixture
def pool(known_here_alone: None) -> Iterator[VerdictPool]:
    with VerdictPool(SETTINGS) as pool:
        yield pool
