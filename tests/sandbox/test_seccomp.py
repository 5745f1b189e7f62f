"""The filter, run here as the kernel would run it, and its numbers against the system's headers."""

import re
import struct
from pathlib import Path

import pytest

from heavydistill.sandbox import seccomp

ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050026
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
HEADERS = {
    "x86_64": ["x86_64-linux-gnu/asm/unistd_64.h", "asm/unistd_64.h"],
    "aarch64": ["asm-generic/unistd.h"],
}
MACHINES = pytest.mark.parametrize("machine", ["aarch64", "x86_64"])


def verdict(machine: str, number: int, *arguments: int, audit: int | None = None) -> int:
    """What the filter says to a call."""
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("<IIQ6Q", number, audit or AUDIT[machine], 0, *padded)
    code = list(struct.iter_unpack("<HBBI", seccomp.program(machine)))
    accumulator, at = 0, 0
    while True:
        operation, yes, no, constant = code[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, constant)
        elif operation == 0x54:
            accumulator &= constant
        elif operation == 0x06:
            return constant
        else:
            taken = {0x15: accumulator == constant, 0x25: accumulator > constant,
                     0x35: accumulator >= constant}[operation]  # fmt: skip
            at += yes if taken else no


@MACHINES
def test_exactly_the_listed_calls_are_allowed(machine):
    listed = set(seccomp.numbers(machine).values())
    looked_at = {seccomp.numbers(machine)[name] for name in LOOKED_AT}
    for number in [*range(700), 2**30 + 1, 2**31, 2**32 - 1]:
        if number not in looked_at:
            assert verdict(machine, number) == (ALLOW if number in listed else REFUSE)


@MACHINES
def test_a_call_of_another_machine_kills(machine):
    for audit in (0x40000003, 0x40000028, *set(AUDIT.values()) - {AUDIT[machine]}):
        assert verdict(machine, 0, audit=audit) == KILL


# Arguments that are allowed, and those that are not.
LOOKED_AT = {
    "clone": (  # threads of glibc and of musl; the kernel reads the lower half of the flags
        [(0x3D0F00,), (0x7D0F00,)],
        [(0x11,), (0x4111,), (0x10011 | 0x10000000,), (0x10000 | 0x20000,), (0x3D0F00 << 32,)],
    ),
    "socketpair": ([(1, 1), (1, 1 | 0o2000000 | 0o4000)], [(1, 2), (1, 5), (2, 1), (16, 3)]),
    "sendto": ([(3, 0, 1, 0), (3, 0, 1, 0x4040)], [(3, 0, 1, 1)]),  # MSG_OOB
    "recvfrom": ([(3, 0, 1, 0)], [(3, 0, 1, 3)]),  # MSG_OOB | MSG_PEEK
    "ioctl": ([(0, 0x5401)], [(0, 0x5412), (0, 0x5412 | 1 << 32), (0, 0x541C)]),  # TIOCSTI, -LINUX
    "prlimit64": ([(0, 7)], [(1, 7)]),
    "prctl": ([(15,)], [(1, 0), (22, 2), (36, 1)]),
}


@MACHINES
@pytest.mark.parametrize("name", LOOKED_AT)
def test_arguments_are_looked_at(machine, name):
    number = seccomp.numbers(machine)[name]
    for expected, calls in zip((ALLOW, REFUSE), LOOKED_AT[name], strict=True):
        for arguments in calls:
            assert verdict(machine, number, *arguments) == expected, arguments


DANGEROUS = """
    vfork fork clone3 execve execveat socket connect accept bind sendmsg recvmsg ptrace
    process_vm_readv process_vm_writev mount umount2 pivot_root chroot open_tree move_mount fsopen
    fsmount mount_setattr unshare setns keyctl add_key request_key bpf perf_event_open
    io_uring_setup io_setup userfaultfd memfd_create memfd_secret shmget msgget semget mq_open
    kexec_load kexec_file_load init_module finit_module reboot syslog acct swapon settimeofday
    clock_settime adjtimex sethostname iopl ioperm mknod mknodat chown fchownat setxattr capset
    personality seccomp landlock_create_ruleset pidfd_open pidfd_getfd pidfd_send_signal
    inotify_init1 fanotify_init name_to_handle_at open_by_handle_at quotactl vhangup modify_ldt kcmp
    mlock mlockall migrate_pages move_pages vmsplice splice tee lookup_dcookie setuid setresuid
    setgroups openat2 setfsuid rt_tgsigqueueinfo
"""


@MACHINES
def test_no_call_that_could_reach_out_is_listed(machine):
    assert not seccomp.numbers(machine).keys() & set(DANGEROUS.split())


@MACHINES
def test_numbers_are_those_of_the_headers(machine):
    files = (Path("/usr/include", name) for name in HEADERS[machine])
    header = next((file for file in files if file.exists()), None)
    if header is None:
        pytest.skip("no headers of the C library here")
    pattern = r"^#define __NR(?:3264)?_(\w+)\s+(\d+)\s*$"
    known = dict(re.findall(pattern, header.read_text(), re.MULTILINE))
    if machine == "aarch64":
        known["newfstatat"] = known["fstatat"]
    ours = {name: str(number) for name, number in seccomp.numbers(machine).items()}
    assert ours == {name: known[name] for name in ours if name in known}


def test_other_machines_have_no_filter():
    assert seccomp.machines() == ["aarch64", "x86_64"]
    with pytest.raises(KeyError):
        seccomp.program("i686")
