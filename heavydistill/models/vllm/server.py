"""Serves a teacher on this machine for as long as a run lasts: vLLM, watched, stopped at the end.

The server is on a free port of the loopback, and is asked nothing before it is healthy; all that it
prints goes to a log. ``supervisor`` holds it, so nothing of it is left when the block ends or this
process dies, whatever of.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import itertools
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from heavydistill.config.models import Endpoint
from heavydistill.errors import ConfigError, RunError, TeacherError
from heavydistill.models.profiles import ProfileFile, Setup, serve_command
from heavydistill.models.vllm import supervisor

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
# What vLLM prints for the usual causes, and what to do then.
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
_INSTALL = "pip install -c constraints.txt -e '.[vllm]'"


@dataclass(frozen=True, slots=True)
class VllmServer:
    """A server that runs here; ``endpoint`` is the configuration's, with its address."""

    endpoint: Endpoint
    _port: int
    _log: _Log
    _process: subprocess.Popen[bytes]

    def failure(self) -> RunError | None:
        """Why nothing can be asked any more; None while the server runs."""
        with socket.socket() as probe:
            probe.settimeout(_HEALTH_TIMEOUT_S)
            listens = probe.connect_ex((_HOST, self._port)) != errno.ECONNREFUSED  # maybe busy
        if listens and self._process.poll() is None:
            return None
        self._process.communicate()  # its children may take a while to end
        return RunError(
            f"vLLM {_ending(self._process.returncode)} in the middle of the run",
            f"What was answered is in the journal, and the same command goes on from there. "
            f"{self._log.told()}",
        )


def command(profile: ProfileFile, context: int | None) -> list[str]:
    """The command that serves a model here, with so many tokens of context or the set-up's.

    Raises:
        ConfigError: No set-up of the profile fits this machine, or vLLM is not installed.
    """
    count, _ = largest_setup(profile)
    _, *words = serve_command(profile, count, context) or []
    return [vllm(), *words]


@contextlib.contextmanager
def served(
    words: list[str], endpoint: Endpoint, log: Path, on_start: OnStart | None = None
) -> Iterator[VllmServer]:
    """Serve a model.

    Args:
        words: A command from ``command``.
        endpoint: The endpoint of the run, with ``start_vllm``.
        log: File to which the server's output is appended.
        on_start: Called twice a second until the server is healthy.

    Raises:
        TeacherError: The server ended before it could be asked.
    """
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port = int(probe.getsockname()[1])
    words = [*words, "--host", _HOST, "--port", str(port)]
    url = f"http://{_HOST}:{port}/v1"
    endpoint = endpoint.model_copy(update={"start_vllm": False, "base_url": url})
    # Clients take a proxy from the environment, which has no way to this machine's loopback.
    bypassed = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    hosts = {*(bypassed.split(",") if bypassed else ()), _HOST}
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(sorted(hosts))
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
        started = time.monotonic()
        while not _is_healthy(port):
            if process.poll() is not None:
                what = f"vLLM {_ending(process.returncode)} before it could be asked"
                raise TeacherError(what, printed.told())
            if on_start:
                on_start(time.monotonic() - started, printed.last_line())
            time.sleep(_POLL_S)
        yield VllmServer(endpoint, port, printed, process)
    finally:
        process.communicate()  # closes the pipe, and waits


def _is_healthy(port: int) -> bool:
    url = f"http://{_HOST}:{port}/health"
    try:
        with urllib.request.urlopen(url, timeout=_HEALTH_TIMEOUT_S) as answer:
            return bool(answer.status == http.client.OK)
    except (OSError, http.client.HTTPException):
        return False


@dataclass(frozen=True, slots=True)
class _Log:
    """What a server printed, from a place in a file on."""

    path: Path
    start: int

    def told(self) -> str:
        """What to do if that is known, where the log is, and its errors, or else its end."""
        lines = self._lines()
        text = "\n".join(lines)
        hints = [fix for pattern, fix in _HINTS if re.search(pattern, text)]
        # The first are the cause; what comes after is often only that the others miss a process.
        grave = "\n".join(line for line in lines if not re.search(_HARMLESS, line))
        errors = list(dict.fromkeys(re.findall(_ERROR, grave)))[:_SHOWN_ERRORS]
        shown = "\n".join(errors or lines[-_SHOWN_LINES:])
        said = "says" if errors else "ends with"
        return " ".join([*hints[:1], f"The log is {self.path} and {said}:\n{shown}"])

    def last_line(self) -> str:
        return next(reversed(self._lines()), "")

    def _lines(self) -> list[str]:
        with self.path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(self.start, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
        # A progress bar is one line that is written again and again.
        return [line for line in re.split(r"[\r\n]+", text) if line.strip()]


def _ending(code: int) -> str:
    if code <= 128:
        return f"ended with code {code}"
    short = ", as where the system is short of memory" if code == 137 else ""
    return f"was ended by signal {code - 128}{short}"


def gpus() -> int:
    """How many GPUs a process that is started from here sees.

    They are those of NVIDIA's driver that ``CUDA_VISIBLE_DEVICES`` leaves, counted without CUDA,
    which would take memory of each.

    Raises:
        ConfigError: The driver does not answer.
    """
    if not shutil.which("nvidia-smi"):
        return 0
    asked = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    if asked.returncode:
        raise ConfigError(
            f"The GPUs cannot be counted: nvidia-smi -L ended with code {asked.returncode}: "
            f"{(asked.stdout + asked.stderr).strip()}",
            "Repair the driver, or ask another server with --endpoint.",
        )
    listed = [line for line in asked.stdout.splitlines() if line.startswith("GPU ")]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return len(listed)

    def is_there(device: str) -> bool:
        if device.isdigit():
            return int(device) < len(listed)
        return device.startswith(("GPU-", "MIG-")) and device in asked.stdout

    # CUDA stops at the first that is not there.
    return len(list(itertools.takewhile(is_there, map(str.strip, visible.split(",")))))


def largest_setup(profile: ProfileFile) -> tuple[int, Setup]:
    """The set-up of a profile that uses most of this machine's GPUs, and their number.

    Raises:
        ConfigError: The profile has none at all, or none that fits; the message says why.
    """
    if not profile.vllm:
        why, fix = (
            "its profile does not say how",
            "Add the key vllm to the profile, as those in configs/teachers have it, or start a "
            "server yourself and name it with --endpoint.",
        )
        if profile.folder:
            why, fix = "it runs in this process", "Leave --start-vllm out; nothing else is needed."
        elif not profile.hub:
            why, fix = "its maker alone serves it", "Ask the maker's server with --endpoint."
        raise ConfigError(f"The model {profile.name} cannot be served here: {why}", fix)
    here = gpus()
    elsewhere = "ask a server that has it with --endpoint"
    if not here:
        raise ConfigError(
            "--start-vllm needs a GPU, and none is seen here: nvidia-smi lists none, "
            "or CUDA_VISIBLE_DEVICES hides them",
            f"Use a machine with GPUs, or {elsewhere}.",
        )
    setups = {count: setup for count, setup in profile.vllm.gpus.items() if setup}
    fitting = [count for count in setups if count <= here]
    if not fitting:
        needs = f"it needs {min(setups)}" if setups else f"nor {max(profile.vllm.gpus)}"
        raise ConfigError(
            f"The model {profile.name} does not fit the {here} GPU(s) seen here, {needs}: "
            f"{profile.vllm.why_null}",
            f"Use more GPUs, name a profile of your own with a set-up that fits, or {elsewhere}.",
        )
    return max(fitting), setups[max(fitting)]


def vllm() -> str:
    """Path of the command ``vllm``: on the search path, or beside this Python.

    Raises:
        ConfigError: There is none.
    """
    beside = str(Path(sys.executable).parent)
    found = shutil.which("vllm") or shutil.which("vllm", path=beside)
    if not found:
        raise ConfigError(
            "--start-vllm starts vLLM, and there is no command vllm",
            f"Install it ({_INSTALL}), or start a server elsewhere and name it with --endpoint.",
        )
    return found
