"""The filter of system calls for every program in the sandbox.

The filter is a list of allowed calls, so unknown calls are refused. Allowed are the calls that
CPython and its standard library need to compute, to use files, and to start threads. Some are
allowed only with certain arguments:

    clone        threads of the same process alone: no other process, no namespace
    socketpair   two ends within the process (asyncio wakes itself with one); no other socket
    sendto       and recvfrom: no urgent data, no peeking
    ioctl        queries of a terminal, and whether reading blocks
    prctl        names of threads
    prlimit64    the process's own limits, not those of the launcher

Everything else fails with ENOSYS, as on a kernel without the call: processes, sockets, ptrace,
mounts, namespaces, keys, BPF, io_uring, memory outside the address space (memfd, System V). A call
through another system call table (i386, 32-bit ARM) kills the process; x32 is refused.

Not covered: machines other than x86_64 and little-endian aarch64; there, no program runs.
"""

from __future__ import annotations

import struct

# Name, number on x86_64, number on aarch64; a dash if that table lacks the call.
_ALLOWED = """
    read 0 63, write 1 64, open 2 -, openat 257 56, close 3 57, stat 4 -, fstat 5 80, lstat 6 -,
    newfstatat 262 79, statx 332 291, lseek 8 62, pread64 17 67, pwrite64 18 68, readv 19 65,
    writev 20 66, preadv 295 69, pwritev 296 70, preadv2 327 286, pwritev2 328 287, access 21 -,
    faccessat 269 48, faccessat2 439 439, sendfile 40 71, copy_file_range 326 285,
    fallocate 285 47,

    getdents 78 -, getdents64 217 61, getcwd 79 17, chdir 80 49, fchdir 81 50, rename 82 -,
    renameat 264 38, renameat2 316 276, mkdir 83 -, mkdirat 258 34, rmdir 84 -, creat 85 -,
    link 86 -, linkat 265 37, unlink 87 -, unlinkat 263 35, symlink 88 -, symlinkat 266 36,
    readlink 89 -, readlinkat 267 78, chmod 90 -, fchmod 91 52, fchmodat 268 53, umask 95 166,
    truncate 76 45, ftruncate 77 46, utime 132 -, utimes 235 -, utimensat 280 88, futimesat 261 -,
    statfs 137 43, fstatfs 138 44, flock 73 32, fsync 74 82, fdatasync 75 83,

    fcntl 72 25, dup 32 23, dup2 33 -, dup3 292 24, close_range 436 436, pipe 22 -, pipe2 293 59,
    poll 7 -, ppoll 271 73, select 23 -, pselect6 270 72, epoll_create 213 -,
    epoll_create1 291 20, epoll_ctl 233 21, epoll_wait 232 -, epoll_pwait 281 22, eventfd2 290 19,
    shutdown 48 210,

    mmap 9 222, mprotect 10 226, munmap 11 215, mremap 25 216, brk 12 214, madvise 28 233,
    msync 26 227, mincore 27 232,

    rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigpending 127 136,
    rt_sigtimedwait 128 137, rt_sigsuspend 130 133, rt_sigqueueinfo 129 138, sigaltstack 131 132,
    pause 34 -, kill 62 129, tkill 200 130, tgkill 234 131, alarm 37 -, getitimer 36 102,
    setitimer 38 103, restart_syscall 219 128,

    nanosleep 35 101, clock_nanosleep 230 115, clock_gettime 228 113, clock_getres 229 114,
    gettimeofday 96 169, time 201 -, times 100 153, timer_create 222 107, timer_settime 223 110,
    timer_gettime 224 108, timer_getoverrun 225 109, timer_delete 226 111, timerfd_create 283 85,
    timerfd_settime 286 86, timerfd_gettime 287 87,

    getpid 39 172, getppid 110 173, gettid 186 178, getuid 102 174, geteuid 107 175,
    getgid 104 176, getegid 108 177, getresuid 118 148, getresgid 120 150, getgroups 115 158,
    getpgid 121 155, getpgrp 111 -, getsid 124 156, setsid 112 157, setpgid 109 154,
    uname 63 160, sysinfo 99 179, getrusage 98 165, getrlimit 97 163, setrlimit 160 164,
    getpriority 140 141, setpriority 141 140,

    sched_yield 24 124, sched_getaffinity 204 123, sched_setaffinity 203 122,
    sched_getparam 143 121, sched_getscheduler 145 120, sched_get_priority_max 146 125,
    sched_get_priority_min 147 126, getcpu 309 168,

    futex 202 98, set_tid_address 218 96, set_robust_list 273 99, get_robust_list 274 100,
    rseq 334 293, membarrier 324 283, arch_prctl 158 -, getrandom 318 278,
    wait4 61 260, waitid 247 95, exit 60 93, exit_group 231 94
"""
_LOOKED_AT = """
    clone 56 220, socketpair 53 199, sendto 44 206, recvfrom 45 207, ioctl 16 29, prctl 157 167,
    prlimit64 302 261
"""
# For a call with checked arguments: the number of the argument, a mask of the bits that are checked
# in its lower half (the kernel reads no others of these), and the allowed values.
_Check = tuple[int, int, tuple[int, ...]]
_ALL = 0xFFFFFFFF
_PLAIN: _Check = (3, _ALL & ~0x4040, (0,))  # all flags except MSG_DONTWAIT, MSG_NOSIGNAL
_CHECKS: dict[str, list[_Check]] = {
    "clone": [(0, 0x7E020000 | 0x00010000, (0x00010000,))],  # no CLONE_NEW..., but CLONE_THREAD
    "socketpair": [(0, _ALL, (1,)), (1, 0xF, (1,))],  # AF_UNIX, SOCK_STREAM
    "sendto": [_PLAIN],
    "recvfrom": [_PLAIN],
    # TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX: the same numbers on both.
    "ioctl": [(1, _ALL, (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451))],
    "prctl": [(0, _ALL, (15, 16))],  # PR_SET_NAME, PR_GET_NAME
    "prlimit64": [(0, _ALL, (0,))],  # the process itself
}

# AUDIT_ARCH_X86_64 and AUDIT_ARCH_AARCH64, with the column of each in the tables above.
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

# Instructions of classic BPF, and field offsets in struct seccomp_data.
_LOAD, _AND, _RETURN, _IF_EQUAL = 0x20, 0x54, 0x06, 0x15
_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16

_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | 38  # 38 is ENOSYS on both

_Instruction = tuple[int, int, int, int]
"""(code, jump if true, jump if false, constant)."""


def machines() -> list[str]:
    """Machines for which a filter exists, by the names of ``platform.machine``."""
    return sorted(_MACHINES)


def program(machine: str) -> bytes:
    """Build the filter as an array of ``struct sock_filter``; KeyError for other machines."""
    audit, _ = _MACHINES[machine]
    looked_at = numbers(machine, _LOOKED_AT)
    code: list[_Instruction] = [
        (_LOAD, 0, 0, _MACHINE),
        (_IF_EQUAL, 1, 0, audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    for name, checks in _CHECKS.items():
        block = _block(checks)
        code += [(_IF_EQUAL, 0, len(block), looked_at[name]), *block]
    for number in sorted(numbers(machine, _ALLOWED).values()):
        code += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    code.append((_RETURN, 0, 0, _REFUSE))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def numbers(machine: str, table: str = f"{_ALLOWED},{_LOOKED_AT}") -> dict[str, int]:
    """Numbers on ``machine`` of the system calls in ``table``, by name."""
    _, column = _MACHINES[machine]
    rows = (row.split() for row in table.split(","))
    return {name: int(number[column]) for name, *number in rows if number[column] != "-"}


def _block(checks: list[_Check]) -> list[_Instruction]:
    """Instructions that allow a call if its arguments pass all checks, and refuse it otherwise."""
    code: list[_Instruction] = []
    for position, bits, values in checks:
        code += [(_LOAD, 0, 0, _ARGUMENTS + 8 * position), (_AND, 0, 0, bits)]
        # An allowed value jumps over the remaining values and the refusal.
        code += [(_IF_EQUAL, len(values) - n, 0, value) for n, value in enumerate(values)]
        code.append((_RETURN, 0, 0, _REFUSE))
    return [*code, (_RETURN, 0, 0, _ALLOW)]
