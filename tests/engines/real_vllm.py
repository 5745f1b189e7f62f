"""A real vLLM's processes, for tests: a server that is started by hand, and what runs of it."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

VLLM = str(Path(sys.executable).with_name("vllm"))
_LATEST_S = 400.0


@contextlib.contextmanager
def serving(log: Path, *words: object) -> Iterator[str]:
    """``vllm serve`` with these words, until the block ends: the address of its API."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [VLLM, "serve", *map(str, words), "--host", "127.0.0.1", "--port", str(port)]
    # Pieces of a prompt with a seed end an engine on a CPU.
    command += ["--enforce-eager", "--no-enable-chunked-prefill", "--max-num-seqs", "32"]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
    try:
        latest = time.monotonic() + _LATEST_S
        while not _is_healthy(port):
            assert process.poll() is None and time.monotonic() < latest, log.read_text()[-4000:]
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        for member in sessions(process.pid):
            os.kill(member, signal.SIGKILL)
        process.wait()


def sessions(leader: int) -> list[int]:
    """Processes of a session. vLLM's write a title over their environment, so no mark stays."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            if int(fields[3]) == leader:
                found.append(int(folder.name))
    return found


def engines_of(ancestor: int) -> list[int]:
    """The processes of vLLM's engine below a process."""
    parents, engines = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            if b"EngineCore" in (folder / "cmdline").read_bytes():
                engines.append(int(folder.name))

    def is_below(pid: int) -> bool:
        return pid == ancestor or (pid in parents and is_below(parents[pid]))

    return [pid for pid in engines if is_below(pid)]


def _is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:  # of which urllib's errors are
        return False
