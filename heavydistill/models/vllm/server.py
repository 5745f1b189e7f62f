"""Serves a teacher on this machine for as long as a run lasts: vLLM, watched, stopped at the end.

The server is on a free port of the loopback. It is asked nothing before it says that it is healthy,
however long the weights take; all that it prints goes to a log. ``supervisor`` holds it, so nothing
of it is left when the block ends or this process dies, whatever of.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from heavydistill.config.models import Endpoint
from heavydistill.errors import RunError, TeacherError
from heavydistill.models.profile_files import serve_command
from heavydistill.models.resolve import ResolvedRun, to_serve
from heavydistill.models.vllm import supervisor
from heavydistill.models.vllm.machine import largest_setup, vllm

# Called now and then while the server starts, with the seconds so far and the end of its log.
OnStart = Callable[[float, str], None]

_HOST = "127.0.0.1"
_POLL_S = 0.5
_HEALTH_TIMEOUT_S = 5.0
_SHOWN_LINES = 15
_SHOWN_ERRORS = 5
_HARMLESS = r"\b(INFO|WARNING)\b"  # these levels name errors too, as what might happen
_ERROR = r"\b\w*(?:[Ee]rror|Exception)(?:: |, ).+"
_TAIL_BYTES = 200_000
# What vLLM prints for the usual causes, and what mends them.
_HINTS = (
    (
        r"out of memory|No available memory for the cache|larger than the available KV cache|"
        r"Free memory on device",
        "The GPUs have too little memory: end what else runs on them (nvidia-smi lists it), or "
        "lower the context with --set endpoint.context=N.",
    ),
    (
        r"Reasoning parser .* not found|unrecognized arguments|invalid choice",
        "This version of vLLM does not take a flag of the profile: install the one that the extra "
        "vllm of pyproject.toml allows, or correct the flag in a profile of your own.",
    ),
    (
        r"max_model_len .* is greater than",
        "The model has less context than that: lower it with --set endpoint.context=N.",
    ),
    (
        r"LocalEntryNotFoundError|RepositoryNotFoundError|GatedRepoError|not a valid model ident",
        "The weights cannot be had: correct the Hub id in the profile, set HF_TOKEN for a model "
        "that asks for it, and unset HF_HUB_OFFLINE or download them first.",
    ),
    (r"No space left on device", "The disk is full: make room for the weights."),
    (r"Address already in use", "Another program took its port: give the same command again."),
)


class Server:
    """A server that runs here.

    Attributes:
        endpoint: The configuration's, with the address of the server.
    """

    def __init__(
        self, endpoint: Endpoint, port: int, log: _Log, process: subprocess.Popen[bytes]
    ) -> None:
        self.endpoint = endpoint
        self._port = port
        self._log = log
        self._process = process

    def failure(self) -> RunError | None:
        """Why nothing can be asked any more; None while the server runs."""
        if self._process.poll() is None and not _is_refused(self._port):
            return None
        self._process.communicate()  # its children may take a while to end
        return RunError(
            f"vLLM {_ending(self._process.returncode)} in the middle of the run",
            f"What was answered is in the journal, and the same command goes on from there. "
            f"{self._log.told()}",
        )


def command(run: ResolvedRun) -> list[str]:
    """The command that serves the teacher of a run here, without its address.

    Raises:
        ConfigError: No set-up of its profile fits this machine, or vLLM is not installed.
    """
    profile = to_serve(run.config)
    count, _ = largest_setup(profile)
    _, *words = serve_command(profile, count, run.config.endpoint.context) or []
    return [vllm(), *words]


@contextlib.contextmanager
def served(run: ResolvedRun, log: Path, on_start: OnStart | None = None) -> Iterator[Server]:
    """Serve the teacher of a run with ``endpoint.start_vllm``.

    Args:
        run: The run.
        log: What the server prints is added here.
        on_start: Called twice a second until the server is healthy.

    Raises:
        ConfigError: As ``command``.
        TeacherError: The server ended before it could be asked.
    """
    port = _free_port()
    words = [*command(run), "--host", _HOST, "--port", str(port)]
    url = f"http://{_HOST}:{port}/v1"
    endpoint = run.config.endpoint.model_copy(update={"start_vllm": False, "base_url": url})
    _bypass_proxies()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        file.write(f"{shlex.join(words)}\n".encode())
        file.flush()
        printed = _Log(log, file.tell())
        process = subprocess.Popen(
            [sys.executable, "-I", supervisor.__file__, *words],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us: what is in flight must still be answered
        )
    try:
        _await_health(process, port, printed, on_start)
        yield Server(endpoint, port, printed, process)
    finally:
        process.communicate()  # closes the pipe, and waits


def _await_health(
    process: subprocess.Popen[bytes], port: int, log: _Log, on_start: OnStart | None
) -> None:
    started = time.monotonic()
    while not _is_healthy(port):
        if process.poll() is not None:
            raise TeacherError(
                f"vLLM {_ending(process.returncode)} before it could be asked", log.told()
            )
        if on_start:
            on_start(time.monotonic() - started, log.last_line())
        time.sleep(_POLL_S)


def _is_refused(port: int) -> bool:
    """Whether nobody listens any more; a server that is only busy lets us wait."""
    try:
        socket.create_connection((_HOST, port), timeout=_HEALTH_TIMEOUT_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False


def _is_healthy(port: int) -> bool:
    connection = http.client.HTTPConnection(_HOST, port, timeout=_HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class _Log:
    """What a server printed, from a place in a file on."""

    def __init__(self, path: Path, start: int) -> None:
        self._path = path
        self._start = start

    def told(self) -> str:
        """What mends it if that is known, where the log is, and its errors, or else its end."""
        lines = self._lines()
        text = "\n".join(lines)
        hints = [fix for pattern, fix in _HINTS if re.search(pattern, text)]
        # The first are the cause; what comes after is often only that the others miss a process.
        grave = "\n".join(line for line in lines if not re.search(_HARMLESS, line))
        errors = list(dict.fromkeys(re.findall(_ERROR, grave)))[:_SHOWN_ERRORS]
        shown = "\n".join(errors or lines[-_SHOWN_LINES:])
        said = "says" if errors else "ends with"
        return " ".join([*hints[:1], f"The log is {self._path} and {said}:\n{shown}"])

    def last_line(self) -> str:
        lines = self._lines()
        return lines[-1] if lines else ""

    def _lines(self) -> list[str]:
        with self._path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(self._start, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
        # A progress bar is one line that is written again and again.
        return [line for line in re.split(r"[\r\n]+", text) if line.strip()]


def _ending(code: int) -> str:
    if code <= 128:
        return f"ended with code {code}"
    short = ", as where the system is short of memory" if code == 137 else ""
    return f"was ended by signal {code - 128}{short}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _bypass_proxies() -> None:
    """Clients take a proxy from the environment, which has no way to this machine's loopback."""
    bypassed = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    hosts = {*(bypassed.split(",") if bypassed else ()), _HOST}
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = ",".join(sorted(hosts))
