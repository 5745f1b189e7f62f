"""Serves a teacher with vLLM on this machine for the duration of a run.

The server listens on a free port of 127.0.0.1, gets no request before it is healthy, and writes its
output to a log. ``supervisor`` runs it and ends all of its processes when the run ends or this
process dies for any reason.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from heavydistill.errors import ConfigError, RunError, TeacherError
from heavydistill.models.profiles import ProfileFile, Setup, serve_command, weights_of
from heavydistill.models.vllm import supervisor

# Called while the server starts, with the seconds so far and the last line of its log.
OnStart = Callable[[float, str], None]

_HOST = "127.0.0.1"
_POLL_S = 0.5
_HEALTH_TIMEOUT_S = 5.0
_SHOWN_LINES = 15
_SHOWN_ERRORS = 5
_HARMLESS = r"\b(INFO|WARNING)\b"  # log lines of these levels may mention errors that did not occur
_ERROR = r"\b\w*(?:[Ee]rror|Exception)(?:: |, ).+"
_TAIL_BYTES = 200_000
# Maps messages of vLLM for common failures to the fix.
_HINTS = (
    (
        r"out of memory|No available memory for the cache|larger than the available KV cache|"
        r"Free memory on device",
        "There is too little memory: end other programs (nvidia-smi lists those on GPUs), lower "
        "the context with --set endpoint.context=N, or divide the model over several GPUs by a "
        "profile with vllm.gpus.N.tensor_parallel.",
    ),
    (
        r"Reasoning parser .* not found|unrecognized arguments|invalid choice",
        "This version of vLLM does not accept a flag of the profile: install the version that the "
        "extra vllm of pyproject.toml allows, or correct the flag in a profile of your own.",
    ),
    (
        r"max_model_len .* is greater than",
        "The model has less context: lower it with --set endpoint.context=N.",
    ),
    (
        r"LocalEntryNotFoundError|RepositoryNotFoundError|GatedRepoError|not a valid model ident",
        "The weights cannot be downloaded: correct the Hub id in the profile, set HF_TOKEN for a "
        "gated model, and unset HF_HUB_OFFLINE or download them first.",
    ),
    (
        r"does not yet support DoRA|only supports modules_to_save",
        "vLLM cannot serve such an adapter: merge it into its base (heavydistill merge --adapter "
        "FOLDER --out out/merged) and serve the merged model.",
    ),
    (r"No space left on device", "The disk is full: free space for the weights."),
    (r"Address already in use", "Another program took the port: repeat the command."),
)
_RESUME = "Repeat the command: it resumes, and all responses are in the journal."
_INSTALL = "pip install -c constraints.txt -e '.[vllm]'"


@dataclass(frozen=True, slots=True)
class VllmServer:
    """A running server."""

    url: str
    _port: int
    _log: _Log
    _process: subprocess.Popen[bytes]

    def failure(self, fix: str = _RESUME) -> RunError | None:
        """Why the server can no longer be used, and the fix; None while it runs."""
        with socket.socket() as probe:
            probe.settimeout(_HEALTH_TIMEOUT_S)
            # A busy server may not answer in time, which is not a failure.
            listens = probe.connect_ex((_HOST, self._port)) != errno.ECONNREFUSED
        if listens and self._process.poll() is None:
            return None
        self._process.communicate()  # its children may take a while to end
        return RunError(
            f"vLLM {_ending(self._process.returncode)} in the middle of the run",
            f"{fix} {self._log.diagnosis()}",
        )


@dataclass(frozen=True, slots=True)
class OwnServer:
    """What a run serves on this machine. The server need not run yet."""

    profile: ProfileFile  # Profile of the model, with the flags for its adapters
    gpus: int  # Number of GPUs that it uses; 0 on the CPU
    setup: Setup  # Setup of the profile for so many GPUs

    @property
    def weights(self) -> str:
        """Folder or Hub id of the weights, of adapters those of their base."""
        return weights_of(self.profile, self.setup)

    def command(self, context: int | None) -> list[str]:
        """The command that starts it; ``context`` None keeps the setup's context.

        Raises:
            ConfigError: vLLM is not installed.
        """
        _, *words = serve_command(self.profile, self.gpus, context) or []
        return [vllm(), *words]


@contextlib.contextmanager
def served(
    words: Sequence[str], log: Path, on_start: OnStart | None = None
) -> Iterator[VllmServer]:
    """Serve a model while the block runs.

    Args:
        words: A command from ``OwnServer.command``.
        log: File to which the server's output is appended.
        on_start: Called twice a second until the server is healthy.

    Raises:
        TeacherError: The server ended before it was ready.
    """
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port = int(probe.getsockname()[1])
    words = [*words, "--host", _HOST, "--port", str(port)]
    # Clients use the environment's proxy, which cannot reach this machine's loopback address.
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
            start_new_session=True,  # Ctrl-C must not end it: it must still answer requests
        )
    try:
        started = time.monotonic()
        while not _is_healthy(port):
            if process.poll() is not None:
                what = f"vLLM {_ending(process.returncode)} before it was ready"
                raise TeacherError(what, printed.diagnosis())
            if on_start:
                on_start(time.monotonic() - started, printed.last_line())
            time.sleep(_POLL_S)
        yield VllmServer(f"http://{_HOST}:{port}/v1", port, printed, process)
    finally:
        process.communicate()  # closes the pipe, which ends the server, and waits for it


class KeptServer(contextlib.ExitStack):
    """Serves a model for several runs: a server stays while they need the same command."""

    _words: tuple[str, ...] = ()
    _server: VllmServer | None = None

    def serving(
        self, words: Sequence[str], log: Path, on_start: OnStart | None = None
    ) -> VllmServer:
        """Return the last server if it has this command and runs, or else start one."""
        if not self._server or self._words != tuple(words) or self._server.failure():
            self.close()
            self._words, self._server = tuple(words), None
            self._server = self.enter_context(served(words, log, on_start))
        return self._server


def _is_healthy(port: int) -> bool:
    url = f"http://{_HOST}:{port}/health"
    try:
        with urllib.request.urlopen(url, timeout=_HEALTH_TIMEOUT_S) as answer:
            return bool(answer.status == http.client.OK)
    except (OSError, http.client.HTTPException):
        return False


@dataclass(frozen=True, slots=True)
class _Log:
    """A server's log file, read from the position ``start``."""

    path: Path
    start: int

    def diagnosis(self) -> str:
        """The fix, if the cause is known; else the path of the log and its errors or last lines."""
        lines = self._lines()
        text = "\n".join(lines)
        hints = [fix for pattern, fix in _HINTS if re.search(pattern, text)]
        # The first errors are the cause; later ones often only report that a process is missing.
        grave = "\n".join(line for line in lines if not re.search(_HARMLESS, line))
        errors = list(dict.fromkeys(re.findall(_ERROR, grave)))[:_SHOWN_ERRORS]
        shown = "\n".join(errors or lines[-_SHOWN_LINES:])
        verb = "says" if errors else "ends with"
        return " ".join([*hints[:1], f"The log is {self.path} and {verb}:\n{shown}"])

    def last_line(self) -> str:
        return next(reversed(self._lines()), "")

    def _lines(self) -> list[str]:
        with self.path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(self.start, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
        # A progress bar rewrites one line with carriage returns.
        return [line for line in re.split(r"[\r\n]+", text) if line.strip()]


def _ending(code: int) -> str:
    if code <= 128:
        return f"ended with code {code}"
    short = ", as the system does if memory is short" if code == 137 else ""
    return f"was ended by signal {code - 128}{short}"


def gpus() -> int:
    """The number of GPUs that a child process can use.

    Asks NVIDIA's driver and respects ``CUDA_VISIBLE_DEVICES``. CUDA is not initialised, because it
    would allocate memory on each GPU.

    Raises:
        ConfigError: The driver does not answer.
    """
    if not shutil.which("nvidia-smi"):
        return 0
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    if listing.returncode:
        raise ConfigError(
            f"The GPUs cannot be counted: nvidia-smi -L ended with code {listing.returncode}: "
            f"{(listing.stdout + listing.stderr).strip()}",
            "Repair the driver, or ask another server with --endpoint.",
        )
    listed = [line for line in listing.stdout.splitlines() if line.startswith("GPU ")]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return len(listed)

    def is_there(device: str) -> bool:
        if device.isdigit():
            return int(device) < len(listed)
        return device.startswith(("GPU-", "MIG-")) and device in listing.stdout

    # CUDA ignores all devices after the first invalid one.
    return len(list(itertools.takewhile(is_there, map(str.strip, visible.split(",")))))


def own_server(profile: ProfileFile) -> OwnServer:
    """The server with the profile's setup that uses the most GPUs of this machine.

    Without a GPU, a vLLM built for CPUs serves what fits on one.

    Raises:
        ConfigError: The profile has no setup that fits; the message says why.
    """
    if not profile.vllm:
        why, fix = (
            "its profile has no key vllm",
            "Add the key vllm to the profile, as in configs/teachers, or start a server yourself "
            "and name it with --endpoint.",
        )
        if profile.folder:
            why, fix = "it runs in this process", "Leave --start-vllm out."
        elif not profile.hub:
            why, fix = "its weights are not public", "Name the maker's server with --endpoint."
        raise ConfigError(f"The model {profile.name} cannot be served here: {why}", fix)
    here = gpus()
    elsewhere = "name a server that serves it with --endpoint"
    if not here:
        if (setup := profile.vllm.setup(0)) and _is_for_cpus():
            return OwnServer(profile, 0, setup)
        raise ConfigError(
            "--start-vllm needs a GPU, and there is none: nvidia-smi lists none, "
            "or CUDA_VISIBLE_DEVICES hides them",
            "Use a machine with GPUs, install vLLM's own build for CPUs (its version ends with "
            f"+cpu), or {elsewhere}.",
        )
    setups = {count: setup for count, setup in profile.vllm.gpus.items() if setup}
    fitting = [count for count in setups if count <= here]
    if not fitting:
        needs = f"it needs {min(setups)}" if setups else f"nor on {max(profile.vllm.gpus)}"
        raise ConfigError(
            f"The model {profile.name} does not fit on the {here} GPU(s) of this machine, {needs}: "
            f"{profile.vllm.why_null}",
            f"Use more GPUs, name a profile of your own with a set-up that fits, or {elsewhere}.",
        )
    return OwnServer(profile, max(fitting), setups[max(fitting)])


def _is_for_cpus() -> bool:
    """Whether the command ``vllm`` is of a build for processors, as its version says.

    Raises:
        ConfigError: There is a command, but the Python beside it does not know its version.
    """
    try:
        path = vllm()
    except ConfigError:
        return False
    python = Path(path).resolve().with_name("python")
    words = [str(python), "-c", "import importlib.metadata as m; print(m.version('vllm'))"]
    try:
        done = subprocess.run(words, capture_output=True, text=True)
        why = next(reversed(done.stderr.strip().splitlines()), f"code {done.returncode}")
    except OSError as error:
        why = str(error.strerror)
    else:
        if not done.returncode:
            return "cpu" in done.stdout
    raise ConfigError(
        f"--start-vllm finds no GPU, and it cannot be read whether {path} is a build for CPUs: "
        f"{python} does not know the version of vLLM: {why}",
        "Repair this installation of vLLM, put another one first on PATH, use a machine with GPUs, "
        "or name a server with --endpoint.",
    )


def vllm() -> str:
    """Path of the command ``vllm``, from the search path or the folder of this Python.

    Raises:
        ConfigError: vLLM is not installed.
    """
    beside = str(Path(sys.executable).parent)
    path = shutil.which("vllm") or shutil.which("vllm", path=beside)
    if not path:
        raise ConfigError(
            "--start-vllm needs vLLM, and there is no command vllm",
            f"Install it ({_INSTALL}), or start a server elsewhere and name it with --endpoint.",
        )
    return path
