"""What runs in a sandbox before the program, in the interpreter that then runs the program.

Its source is handed to ``python -c``, with one call of ``start`` or ``start_alone`` behind it. In a
process namespace of its own it is the first process: the program is its only child, and it stays
to watch. It kills the program that took its time or made too many files, and when whoever started
it closed a pipe or is no more. When it ends, the kernel ends all of the namespace. The program
finds no open file but its three, and nothing of the launcher in ``__main__``.

Not covered: namespaces; those are there before it.
"""

from __future__ import annotations

import posix  # os, without what os imports: starting is most of what a short program costs
import resource
import sys

_THREADS = 64
_SIGNALS = 256  # and timers, which are memory of the system
_OPEN_FILES = 128
_STACK_BYTES = 64 << 20
# Some 10,000 can be made between two looks.
_MOST_FILES = 4096
_LOOK_MS = 50
_IDLE_S, _WORK_S = 15.0, 0.01
_CPUCLOCK_SCHED = 2
_SIGKILL = 9
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_STAYS = {"__name__", "__builtins__", "__loader__", "__spec__", "__package__"}


def start(cpu_s: int, memory_bytes: int) -> None:
    """Limits this process for good, then runs ``main.py`` of the working folder in it.

    After ``cpu_s`` seconds of processor time it is ended; after one more it is killed.
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
    memory_bytes: int,
    file_bytes: int,
    uid: int | None,
    filtered: bytes,
    alive: int,
    told: int,
    files: int,
) -> None:
    """The same, for the first process of a namespace: a child of it is limited in all respects.

    Args:
        uid: User and group to become, as root; None to stay who it is.
        filtered: The filter of system calls, instructions of classic BPF.
        alive: End of a pipe that whoever started this holds the other end of.
        told: File descriptor that gets the line ``begun`` before the program starts, and ``cpu``,
            ``files`` or ``idle`` if it had to be ended for that.
        files: All open files from 3 to before this one are closed.
    """
    if child := posix.fork():
        posix.dup2(alive, 0)
        posix.dup2(told, 1)
        posix.closerange(2, files)
        posix._exit(_watch(child, cpu_s))
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
    # A stack is address space too, so that a program may have more of it.
    _, most = resource.getrlimit(resource.RLIMIT_STACK)
    enough = _STACK_BYTES if most == resource.RLIM_INFINITY else min(_STACK_BYTES, most)
    resource.setrlimit(resource.RLIMIT_STACK, (enough, most))
    _filter(filtered)
    posix.write(told, b"begun\n")
    posix.closerange(3, files)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))
    # The system's own limit counts in ticks, and on a busy machine some are another's.
    start(2 * int(cpu_s) + 2, memory_bytes)


def _watch(child: int, cpu_s: float) -> int:
    """Exit status of the namespace, once it has to end: 128 and the signal, as a shell tells it."""
    import select
    import time

    clock = (~child << 3) | _CPUCLOCK_SCHED
    ends = posix.pidfd_open(child)
    events = select.poll()
    events.register(0, 0)  # that the other end is closed is always told
    events.register(ends, select.POLLIN)
    worked, since = 0.0, time.monotonic()
    while not (ready := events.poll(_LOOK_MS)):
        room = posix.statvfs(".")
        used, now = time.clock_gettime(clock), time.monotonic()
        if used >= cpu_s:
            posix.write(1, b"cpu\n")
            break
        if used >= worked + _WORK_S:
            worked, since = used, now
        elif now >= since + _IDLE_S:
            posix.write(1, b"idle\n")
            break
        if room.f_files - room.f_ffree > _MOST_FILES:
            posix.write(1, b"files\n")
            break
    if ends not in dict(ready):
        # Its processor time is told to the one who waits for it alone.
        posix.kill(child, _SIGKILL)
    code = posix.waitstatus_to_exitcode(posix.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def _filter(instructions: bytes) -> None:
    import ctypes

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    program = Program(len(instructions) // 8, instructions)
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (ctypes.c_ulong(_SECCOMP_MODE_FILTER), ctypes.byref(program), 0, 0)
    if libc.prctl(_PR_SET_SECCOMP, *arguments):
        raise OSError(ctypes.get_errno(), "the filter of system calls is refused")
