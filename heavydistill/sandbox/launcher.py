"""Runs in a sandbox before the program, in the interpreter that then runs the program.

Its source is passed to ``python -c``, followed by one call of ``start`` or ``start_alone``. In a
process namespace it is the first process: the program is its only child, which it watches. It kills
the program if the program exceeds its time or creates too many files, or if the process that
started the launcher closes a pipe or ends. The program may be an interpreter that executes cells,
each of which has its own limit of processor time. When the launcher ends, the kernel ends the whole
namespace. The program gets only its three standard streams, and nothing of the launcher is visible
in ``__main__``.

Not covered: creating namespaces.
"""

from __future__ import annotations

import posix  # like os, but without its imports: a short program spends most of its time starting
import resource
import sys

_THREADS = 64
_SIGNALS = 256  # limit of queued signals and timers, which use kernel memory
_OPEN_FILES = 128
_STACK_BYTES = 64 << 20
# A program can create about 10,000 files between two checks.
_MOST_FILES = 4096
_LOOK_MS = 50
_MOST_LOOK_MS = 800
"""Interval of the looks at an interpreter that does nothing."""
_IDLE_S, _WORK_S = 15.0, 0.01
_CPUCLOCK_SCHED = 2
_SIGKILL = 9
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_STAYS = {"__name__", "__builtins__", "__loader__", "__spec__", "__package__"}


def start(cpu_s: int, memory_bytes: int) -> None:
    """Set permanent limits for this process, then have it run ``main.py`` of the working folder.

    The process gets SIGXCPU after ``cpu_s`` seconds of processor time and is killed one second
    later.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    sys.argv[:] = ["main.py"]
    with open("main.py", "rb") as file:
        code = compile(file.read(), "main.py", "exec", dont_inherit=True)
    main = vars(sys.modules["__main__"])
    path = f"{posix.getcwd()}/main.py"
    for name in main.keys() - _STAYS:
        del main[name]
    main["__file__"] = path
    exec(code, main)


def start_alone(
    cpu_s: float,
    cell_s: float | None,
    memory_bytes: int,
    file_bytes: int,
    uid: int | None,
    filtered: bytes,
    alive: int,
    told: int,
    files: int,
) -> None:
    """Like ``start``, but the launcher is the first process of a namespace and the program a child.

    Args:
        cpu_s: Limit of the processor time of the program.
        cell_s: Limit of the processor time of a cell, if the program executes cells; a byte from
            ``alive`` begins the next one. Such a program may idle.
        uid: User and group id to change to, if started as root; None for no change.
        filtered: System call filter, as instructions of classic BPF.
        alive: End of a pipe, or of a pair of sockets, whose other end the process that starts the
            launcher holds.
        told: File descriptor for the line ``begun`` before the program starts, and for ``cpu``,
            ``cell``, ``files`` or ``idle`` if the program had to be ended for that reason.
        files: File descriptors from 3 up to, but not including, this number are closed.
    """
    if child := posix.fork():
        posix.dup2(alive, 0)
        posix.dup2(told, 1)
        posix.closerange(2, files)
        posix._exit(_watch(child, cpu_s, cell_s))
    if uid is not None:
        posix.setgroups([])
        posix.setresgid(uid, uid, uid)
        posix.setresuid(uid, uid, uid)
    for kind, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NPROC, _THREADS),
        (resource.RLIMIT_SIGPENDING, _SIGNALS),
    ):
        resource.setrlimit(kind, (most, most))
    # The stack counts towards the address space, so a larger stack limit is safe.
    _, most = resource.getrlimit(resource.RLIMIT_STACK)
    enough = _STACK_BYTES if most == resource.RLIM_INFINITY else min(_STACK_BYTES, most)
    resource.setrlimit(resource.RLIMIT_STACK, (enough, most))
    _filter(filtered)
    posix.write(told, b"begun\n")
    posix.closerange(3, files)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))
    # The system's own limit counts in ticks, which on a busy machine may include other processes.
    start(2 * int(cpu_s) + 2, memory_bytes)


def _watch(child: int, cpu_s: float, cell_s: float | None) -> int:
    """Watch the program; returns the namespace's exit status: 128 plus the signal, as in a
    shell."""
    import select
    import time

    clock = (~child << 3) | _CPUCLOCK_SCHED
    ends = posix.pidfd_open(child)
    events = select.poll()
    events.register(0, select.POLLIN)  # a closed other end is reported too
    events.register(ends, select.POLLIN)
    begun, worked, since, wait_ms = 0.0, 0.0, time.monotonic(), _LOOK_MS
    while ends not in (ready := dict(events.poll(wait_ms))):
        used, now = time.clock_gettime(clock), time.monotonic()
        if used >= worked + _WORK_S:
            worked, since, wait_ms = used, now, _LOOK_MS
        elif cell_s is not None:
            wait_ms = min(2 * wait_ms, _MOST_LOOK_MS)
        if ready.get(0) == select.POLLIN:
            posix.read(0, 1)
            begun, wait_ms = used, _LOOK_MS
        reason = _exceeded(used, cpu_s, used - begun, cell_s, now - since)
        if reason or ready.get(0, 0) & select.POLLHUP:
            if reason:
                posix.write(1, reason)
            # Only the process that waits for the child gets the child's processor time.
            posix.kill(child, _SIGKILL)
            break
    code = posix.waitstatus_to_exitcode(posix.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def _exceeded(
    used: float, cpu_s: float, used_by_cell: float, cell_s: float | None, idle_s: float
) -> bytes:
    """The limit that the program has exceeded, as a line; empty if none."""
    room = posix.statvfs(".")
    if used >= cpu_s:
        return b"cpu\n"
    if cell_s is not None and used_by_cell >= cell_s:
        return b"cell\n"
    if cell_s is None and idle_s >= _IDLE_S:
        return b"idle\n"
    return b"files\n" if room.f_files - room.f_ffree > _MOST_FILES else b""


def _filter(instructions: bytes) -> None:
    import ctypes

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    program = Program(len(instructions) // 8, instructions)
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (ctypes.c_ulong(_SECCOMP_MODE_FILTER), ctypes.byref(program), 0, 0)
    if libc.prctl(_PR_SET_SECCOMP, *arguments):
        raise OSError(ctypes.get_errno(), "the filter of system calls is refused")
