"""Runs programs on this machine, each in its own namespaces, which bubblewrap creates.

A program is confined by, from the outside in:

    namespaces    an empty network of its own, processes, users, IPC, host name
    files         its interpreter and standard library, and some of ``packages``, read-only;
                  ``/program``, also as ``/tmp``, in memory; no ``/proc``, no ``/sys``;
                  only null, zero and random in ``/dev``
    user          an ordinary user; if this process is root, an unused user id
    system calls  see ``seccomp``: no second process, so that the limits are totals
    limits        see ``launcher``: processor time, address space, threads, sizes of files
    this process  limits the output that it reads, counts files, and kills the program at a limit

The program gets no environment, no open files and no name of a user or machine. Strings have the
same hash in every run, so that a program prints its sets in the same order each time.

If bubblewrap cannot do all of this, nothing runs; a trial run at the first use checks it.

Not covered: other packages, and extension modules of the standard library for terminals, windows
and old databases (curses, tkinter, dbm); a Python that finds its libraries only by LD_LIBRARY_PATH;
time zones other than UTC; programs with several processes; kernel bugs.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import json
import os
import platform
import select
import selectors
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import IO

from heavydistill.sandbox import packages, seccomp
from heavydistill.sandbox.base import LAUNCHER, Ended, Limits, Sandbox, SandboxResult, unavailable

# --- The Python of the sandbox: the Python of this process without its packages, i.e. the base of a
# virtual environment. Once per process, it reports which files it needs: it loads every extension
# module of its standard library and lists the shared libraries. A program sees no other files of
# the machine.
_ASK_S = 60.0
_PACKAGES = ("site-packages", "dist-packages")
# Excluded modules: their libraries would be two thirds of the total size.
_LEFT_OUT = ("_test", "xx", "nis", "readline", "_curses", "_tkinter", "_dbm", "_gdbm")
# System libraries that packages may use (manylinux, PEP 600). The C library loads the first one
# when a thread is ended from outside.
_OF_PACKAGES = (
    *("libgcc_s.so.1", "libstdc++.so.6", "libpthread.so.0", "libm.so.6", "libdl.so.2"),
    *("librt.so.1", "libutil.so.1", "libz.so.1"),
)

# Runs in that interpreter, without packages. The folders are those of its import path.
_QUESTION = f"""
import glob, importlib, json, os, sys
folders = [os.path.realpath(folder) for folder in sys.path if os.path.isdir(folder)]
for folder in folders:
    for file in glob.glob(os.path.join(folder, "*.so")):
        name = os.path.basename(file).split(".")[0]
        if not name.startswith({_LEFT_OUT}):
            try:
                importlib.import_module(name)
            except ImportError:
                pass
for library in {_OF_PACKAGES}:
    try:
        import ctypes
        ctypes.CDLL(library)
    except (ImportError, OSError):
        pass
with open("/proc/self/maps") as maps:
    mapped = sorted(set(line.split(maxsplit=5)[5].strip() for line in maps if ".so" in line))
print(json.dumps(dict(folders=folders, mapped=mapped)))
"""


@cache
def interpreter() -> tuple[str, list[str]]:
    """(path of this process's interpreter, bubblewrap arguments that expose the files it needs).

    These files are its standard library without folders of other packages, the shared libraries
    including the loader, and the other names under which the loader searches the libraries.

    Raises:
        OSError, ValueError: The interpreter does not report what it needs.
    """
    path = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    command = [path, "-I", "-S", "-B", "-c", _QUESTION]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_ASK_S, env={}, cwd="/")
        reported = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, json.JSONDecodeError) as error:
        raise ValueError(f"{path} does not report which files it needs: {error}") from error
    paths = sorted({Path(folder) for folder in reported["folders"]})
    folders = [folder for folder in paths if not set(folder.parents) & set(paths)]
    mapped = [Path(file) for file in reported["mapped"]]
    libraries = [file for file in mapped if not any(map(file.is_relative_to, folders))]
    # Programs name the loader by a path that may lead through links in folders that are hidden.
    links = {Path(name): Path(name).resolve() for name in glob.glob("/lib*/ld-*.so*")}
    for file in libraries:
        # The loader opens libz.so.1, a link in the folder of the library.
        beside = file.parent.glob(f"{glob.escape(file.name.partition('.so')[0])}.so*")
        links |= {link: link.resolve() for link in beside}
    links = {name: file for name, file in links.items() if file in libraries and name != file}
    hidden = [folder / name for folder in folders for name in _PACKAGES]
    files = [Path(path), *libraries]
    above = {folder for name in (*folders, *files, *links) for folder in name.parents}
    return path, [
        # Only root can access folders that bubblewrap creates by itself.
        *_flat(("--perms", "0755", "--dir", folder) for folder in sorted(above - {Path("/")})),
        *_flat(("--ro-bind", folder, folder) for folder in folders),
        *_flat(("--tmpfs", each, "--remount-ro", each) for each in hidden if each.is_dir()),
        *_flat(("--ro-bind", file, file) for file in files),
        *_flat(("--symlink", file, name) for name, file in sorted(links.items())),
    ]


# --- Watching a run. This process starts bubblewrap. Its only child is the launcher, the first
# process of a namespace. The launcher and its namespace end when this process closes the pipe
# ``alive``: it closes the pipe to end a run, and the system closes it if this process is killed. A
# copy of this process made by ``fork`` without exec would keep the pipe open too.
_CHUNK = 1 << 16
# Time for bubblewrap to start; after that, a run ends at once.
_LAST_S = 20.0


def _watched(
    process: subprocess.Popen[bytes], reports: int, alive: IO[bytes], limits: Limits
) -> SandboxResult:
    """Watch bubblewrap and return the result. Leaves no process and no open file, even if it
    raises.

    ``reports`` is the reading end of the launcher's pipe ``told``; ``alive`` is closed at the end.
    """
    assert process.stdout is not None and process.stderr is not None
    try:
        ends = os.pidfd_open(process.pid)
    except OSError:
        alive.close()
        process.communicate()
        raise
    report, out, err = bytearray(), bytearray(), bytearray()
    sinks = {reports: report, process.stdout.fileno(): out, process.stderr.fileno(): err}
    ended: Ended | None = None
    try:
        ended = _read(sinks, reports, ends, limits)
    finally:
        code, cpu_s = end_program(process, alive, ends)
    # The launcher's last report may arrive after the rest of the output.
    os.set_blocking(reports, False)
    with contextlib.suppress(BlockingIOError):
        report += os.read(reports, _CHUNK)
    lines = report.splitlines()
    if b"begun" not in lines or code < 0:
        late = b"the sandbox did not start within %g s" % limits.wall_s
        why = late if ended == "wall" else bytes(err).strip() or b"the sandbox was killed"
        return SandboxResult("unavailable", stderr=why)
    watched: dict[bytes, Ended] = {b"idle": "wall", b"cpu": "cpu", b"files": "files"}
    for line, end in watched.items():
        ended = end if line in lines else ended
    kept = bytes(out[: limits.output_bytes]), bytes(err[: limits.output_bytes])
    if ended is not None:
        return SandboxResult(ended, -1, *kept, cpu_s)
    if code > 128:
        return SandboxResult("signal", code - 128, *kept, cpu_s)
    return SandboxResult("exit", code, *kept, cpu_s)


def _read(sinks: dict[int, bytearray], reports: int, ends: int, limits: Limits) -> Ended | None:
    """Read until the run has ended (returns None) or must be ended (returns the reason)."""
    until = time.monotonic() + limits.wall_s
    with selectors.DefaultSelector() as selector:
        for source in (*sinks, ends):
            selector.register(source, selectors.EVENT_READ)
        while (left := until - time.monotonic()) > 0:
            ready = {key.fd for key, _ in selector.select(left)}
            if ready == {ends}:  # and everything is read
                return None
            for source in ready - {ends}:
                chunk = os.read(source, _CHUNK)
                sinks[source].extend(chunk)
                if not chunk:
                    selector.unregister(source)
                elif source != reports and len(sinks[source]) > limits.output_bytes:
                    return "output"
    return "wall"


def end_program(
    process: subprocess.Popen[bytes], alive: IO[bytes] | socket.socket, ends: int
) -> tuple[int, float]:
    """End the run if necessary and wait for it; returns (exit code, processor time in seconds).

    Closes ``alive`` and the process's ``pidfd``, ``ends``.
    """
    try:
        alive.close()
        last = select.poll()
        last.register(ends, select.POLLIN)
        if not last.poll(_LAST_S * 1000):
            process.kill()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode, used.ru_utime + used.ru_stime
    finally:
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
        os.close(ends)


# --- The sandbox.
_FOLDER = "/program"
_FILE_BYTES = 16 << 20
"""Maximum size of one file, and of all files of a program together."""
_PAGE = 4096
_FILES_OF_ITS_OWN = 64
"""Maximum number of files that bubblewrap opens in addition to those passed to it."""
_CAP_KILL, _CAP_SETGID, _CAP_SETUID, _CAP_SYS_ADMIN = 1 << 5, 1 << 6, 1 << 7, 1 << 21
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    # Memory arenas of threads would use up the address space without using memory.
    "MALLOC_ARENA_MAX": "1",
}
_NAMESPACES = ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts")

# Containers on machines with systemd use lower ids; no program assigns higher ids.
_FIRST_UID = 1_879_048_192
_UIDS = 1 << 28
_UIDS_A_PROCESS = 1024
"""Runs with the same user id share the limit of threads, so many run at once before one repeats."""
_FIRST_UID_OF_FEW, _FEW_UIDS = 65_520, 13
_runs = itertools.count()

_INSTALL = "apt-get install bubblewrap, or dnf install bubblewrap"
_ALLOW = (
    "Allow user namespaces: on Ubuntu load the AppArmor profile bwrap-userns-restrict (package "
    "apparmor-profiles), elsewhere sysctl -w kernel.unprivileged_userns_clone=1 and "
    "user.max_user_namespaces above 0; in Docker run with a seccomp profile that allows them. Or "
    "use a server: --set verify.sandbox.backend=sandbox_fusion."
)
_ELSEWHERE = "Use a server: --set verify.sandbox.backend=sandbox_fusion."

Fault = tuple[str, str]
"""(fault, fix), both as messages."""


class Bubblewrap(Sandbox):
    """The bubblewrap sandbox, described in this module's docstring."""

    def unavailable(self) -> str | None:
        return None if (problem := fault()) is None else f"{problem[0]}. {problem[1]}"

    def run(self, files: Mapping[str, str], limits: Limits) -> SandboxResult:
        reason = self.unavailable()
        return unavailable(reason) if reason else _run(files, limits)


_works = False


def fault() -> Fault | None:
    """Why no program can run on this machine; None if a trial run worked. Only success is
    cached."""
    global _works
    problem = None if _works else _fault()
    _works = problem is None
    return problem


def _fault() -> Fault | None:
    machine = platform.machine()
    if sys.platform != "linux" or machine not in seccomp.machines() or sys.maxsize < 2**32:
        known = " and ".join(seccomp.machines())
        return f"the sandbox is for Linux on {known}, and this is {sys.platform} on {machine}", (
            _ELSEWHERE
        )
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed", _INSTALL
    try:
        interpreter()
    except (OSError, ValueError) as error:
        return f"the sandbox cannot be prepared: {error}", _ELSEWHERE
    trial = _run({"main.py": "print(6 * 7)"}, Limits(10, 30, 256, 1000))
    if (trial.ended, trial.exit_code, trial.stdout) == ("exit", 0, b"42\n"):
        return None
    text = trial.stderr.decode("utf-8", "replace").strip() or f"it ended with {trial.ended}"
    if "Unknown option" in text:
        return f"bubblewrap is too old: {text}", "Install version 0.7 or newer."
    if "find source path" in text and "Permission denied" in text:
        return f"bubblewrap cannot reach the interpreter: {text}", (
            "Install Python where every user can read it, or run as a user who can."
        )
    return f"bubblewrap cannot start a program: {text}", _ALLOW


def _run(texts: Mapping[str, str], limits: Limits) -> SandboxResult:
    """Run a program, or report why that failed; this machine must have a seccomp filter."""
    launch = {"cpu_s": limits.cpu_s, "cell_s": None, "memory_bytes": limits.memory_mb << 20}
    shown = packages.mentioned(texts.values())
    try:
        with contextlib.ExitStack() as stack:
            reports, told = (_opened(stack, end) for end in os.pipe())
            reads, writes = os.pipe()
            alive = _opened(stack, reads)
            keeper = stack.enter_context(os.fdopen(writes, "wb", buffering=0))
            empty, out = _opened(stack, os.open(os.devnull, os.O_RDONLY)), subprocess.PIPE
            process = start_program(texts, shown, launch, (empty, out, out), alive, told)
            return _watched(process, reports, keeper, limits)
    except OSError as error:
        return unavailable(f"the sandbox cannot be started: {error}")


def start_program(
    texts: Mapping[str, str],
    shown: Iterable[str],
    launch: Mapping[str, float | None],
    streams: tuple[int, int, int],
    alive: int,
    told: int,
) -> subprocess.Popen[bytes]:
    """Start bubblewrap with ``main.py`` of ``texts``; OSError if that fails.

    Args:
        shown: Names of ``packages``.
        launch: Limits of ``launcher.start_alone``.
        streams: Standard streams of the program, as for ``subprocess.Popen``.
        alive: The launcher's end of a pipe or socket; the program ends when the other end closes.
        told: File that the launcher writes its reports to; may be ``alive``.
    """
    with contextlib.ExitStack() as stack:
        uid = _unused_uid() if os.getuid() == 0 else None
        becomes = uid if _may_mount() else None
        starts_as = None if becomes is not None else uid
        contents = {f"{_FOLDER}/{name}": text.encode() for name, text in texts.items()}
        files = {name: _holding(stack, content) for name, content in contents.items()}
        passed = [told, alive, *files.values()]
        arguments = {
            **launch,
            "file_bytes": _FILE_BYTES,
            "uid": becomes,
            "filtered": seccomp.program(platform.machine()),
            "alive": alive,
            "told": told,
            "files": max(passed) + _FILES_OF_ITS_OWN,
        }
        room = _FILE_BYTES + sum(-(-len(each) // _PAGE) * _PAGE for each in contents.values())
        command = [
            shutil.which("bwrap") or "bwrap",
            *_box(room, privileged=becomes is not None),
            *_packages(shown),
            *_flat(("--perms", "0444", "--file", str(file), name) for name, file in files.items()),
            *("--remount-ro", "/", "--chdir", _FOLDER),
            *("--", interpreter()[0], "-s", "-S", "-P", "-B", "-X", "utf8"),
            *("-c", f"{LAUNCHER}\nstart_alone(**{arguments!r})"),
        ]
        return subprocess.Popen(
            command,
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            env={},
            cwd="/",
            pass_fds=passed,
            start_new_session=True,
            user=starts_as,
            group=starts_as,
            extra_groups=None if starts_as is None else [],
        )


def _box(room: int, *, privileged: bool) -> list[str]:
    """Bubblewrap arguments for every program; its folder is limited to ``room`` bytes.

    If privileged, bubblewrap starts as root and the launcher changes the user; otherwise it starts
    as an ordinary user, in a user namespace.
    """
    given = ("CAP_SETUID", "CAP_SETGID", "CAP_KILL") if privileged else ()
    return [
        *(_NAMESPACES if privileged else ("--unshare-all",)),
        *("--as-pid-1", "--new-session", "--hostname", "sandbox"),
        *("--cap-drop", "ALL", *_flat(("--cap-add", capability) for capability in given)),
        *("--clearenv", *_flat(("--setenv", *pair) for pair in _ENVIRONMENT.items())),
        *interpreter()[1],
        *("--perms", "0755", "--dir", "/dev"),
        *_flat(("--dev-bind", device, device) for device in _DEVICES),
        *("--perms", "1777", "--size", str(room), "--tmpfs", _FOLDER),
        *("--symlink", _FOLDER, "/tmp"),
    ]


def _packages(names: Iterable[str]) -> list[str]:
    """Bubblewrap arguments that expose packages."""
    paths: dict[str, Path] = {}
    for name in names:
        paths |= packages.files_of(name)
    if not paths:
        return []
    return [
        *_flat(("--setenv", *pair) for pair in packages.ENVIRONMENT.items()),
        *("--perms", "0755", "--dir", packages.FOLDER),
        *_flat(("--ro-bind", path, f"{packages.FOLDER}/{top}") for top, path in paths.items()),
    ]


@cache
def _may_mount() -> bool:
    """Whether this process is root with the capabilities that bubblewrap and the launcher need."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    effective = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff"))
    needed = _CAP_SYS_ADMIN | _CAP_SETUID | _CAP_SETGID | _CAP_KILL
    return os.getuid() == 0 and effective & needed == needed


def _unused_uid() -> int:
    """A user id that nothing else on this machine and no other run uses, if enough ids exist."""
    slot = os.getpid() * _UIDS_A_PROCESS + next(_runs) % _UIDS_A_PROCESS
    uid = _FIRST_UID + slot % _UIDS
    for line in Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines():
        first, _, count = map(int, line.split())
        if first <= uid < first + count:
            return uid
    return _FIRST_UID_OF_FEW + slot % _FEW_UIDS


def _opened(stack: contextlib.ExitStack, file: int) -> int:
    stack.callback(os.close, file)
    return file


def _holding(stack: contextlib.ExitStack, data: bytes) -> int:
    """Create a file in memory with ``data``, positioned at its start; returns its descriptor."""
    file = _opened(stack, os.memfd_create("sandbox"))
    with open(file, "wb", closefd=False) as sink:
        sink.write(data)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _flat(groups: Iterable[tuple[str | Path, ...]]) -> list[str]:
    return [str(word) for group in groups for word in group]
