"""Programs that look or reach out of the sandbox, each in one way."""

import os
import pwd
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sandboxing import ran

from heavydistill.sandbox import cells, seccomp

pytestmark = pytest.mark.usefixtures("works", "nothing_left")
ROOT = Path(__file__).parents[2]
X86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86_64")


@X86
def test_no_call_that_is_not_listed_is_there(tried):
    # Kernels let uretprobe and uprobe pass every filter, and kill whoever calls them.
    unlisted = sorted({*range(335), *range(337, 500)} - set(seccomp.numbers("x86_64").values()))
    attack = f"""
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        for number in {unlisted}:
            ctypes.set_errno(0)
            said[number] = [libc.syscall(number, 0, 0, 0, 0, 0, 0), ctypes.get_errno()]
    """
    assert tried(attack) == {str(number): [-1, 38] for number in unlisted}


@X86
def test_a_call_of_i386_kills():
    program = """
        import ctypes, mmap
        code = mmap.mmap(-1, 4096, prot=7)
        code.write(bytes.fromhex("b814000000" "cd80" "c3"))  # mov eax, 20 (getpid); int 0x80; ret
        run = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
        print(run() > 0, flush=True)
    """
    result = ran(program)
    assert result.stdout == b""
    assert (result.ended, result.exit_code) in (("signal", 31), ("signal", 11))


_LIBC = "import ctypes, platform, resource\nlibc = ctypes.CDLL(None, use_errno=True)\n"
_HOME = pwd.getpwuid(os.getuid()).pw_dir
_PLACES = [
    "/etc/passwd", "/etc/shadow", "/etc/hostname", "/proc/self/environ", "/proc/1/mem",
    "/sys/kernel", "/var/log", "/run", "/home", "/boot", "/usr/bin/env", "/bin/sh",
    f"{_HOME}/.bashrc", f"{_HOME}/.ssh", str(ROOT / "pyproject.toml"), __file__,
    "/dev/kmsg", "/dev/mem", "/dev/sda", "/dev/tty", "/dev/ptmx", "/dev/shm",
]  # fmt: skip
# Of the way out to an attack, and what it says beside the tries that are refused or give -1.
ATTACKS: dict[str, tuple[str, dict[str, Any]]] = {
    "calls of x32": (_LIBC + """
said["getpid"] = libc.syscall(0x40000000 | 39)
said["fork"] = libc.syscall(0x40000000 | 57)
""", {}),
    "clone": (_LIBC + """
clone = 56 if platform.machine() == "x86_64" else 220
for name, flags in {"fork": 17, "newuser": 0x10000011, "vfork": 0x4111,
                    "both": 0x10010000, "high": 1 << 40 | 17}.items():
    said[name] = libc.syscall(clone, ctypes.c_ulong(flags), 0, 0, 0, 0)
""", {}),
    "the first process": (_LIBC + """
said["outlive"] = libc.prctl(1, 0, 0, 0, 0)
said["reaper"] = libc.prctl(36, 1, 0, 0, 0)
said["tracer"] = libc.prctl(0x59616D61, -1, 0, 0, 0)
for name in ("CPU", "AS", "NOFILE"):
    attempt(resource.prlimit, 1, getattr(resource, f"RLIMIT_{name}"), (1, 1))
""", {}),
    "another process": (_LIBC + """
import multiprocessing, subprocess
said["fork"] = attempt(os.fork)
said["forkpty"] = attempt(os.forkpty)
said["spawn"] = attempt(os.posix_spawn, sys.executable, [sys.executable, "-V"], {})
said["system"] = os.system("true") != 0
said["subprocess"] = attempt(subprocess.run, [sys.executable, "-V"])
said["popen"] = attempt(os.popen, "true")
said["process"] = attempt(multiprocessing.get_context("fork").Process().start)
said["vfork"] = libc.vfork()
for number in (56, 57, 58, 435):
    said[number] = libc.syscall(number, 17, 0, 0, 0, 0)
""", {"system": True}),
    "higher limits": (_LIBC + """
for name in ("AS", "CPU", "NPROC", "FSIZE", "NOFILE", "CORE", "SIGPENDING"):
    kind = getattr(resource, f"RLIMIT_{name}")
    soft, hard = resource.getrlimit(kind)
    said[name] = attempt(resource.setrlimit, kind, (hard + 1, hard + 1))
said["of the watcher"] = attempt(resource.prlimit, 1, resource.RLIMIT_CPU)
said["own"] = attempt(resource.prlimit, 0, resource.RLIMIT_CPU)[0]
""", {"own": "done"}),
    "memory outside the address space": (_LIBC + """
said["memfd"] = attempt(os.memfd_create, "x")
said["shmget"] = libc.shmget(0, 1 << 20, 0o1600)
said["semaphore"] = attempt(lambda: __import__("multiprocessing").Lock())
said["dev_shm"] = attempt(open, "/dev/shm/x", "w")
""", {"memfd": ["refused", "OSError"]}),
    "files of the machine": (f"""
said["there"] = [place for place in {_PLACES!r} if os.path.lexists(place)]
top = {{"etc", "proc", "sys", "var", "run", "home", "bin"}}
said["top"] = sorted(top & set(os.listdir("/")))
""", {"there": [], "top": []}),
    "files other than the interpreter's": ("""
import sysconfig
library = sysconfig.get_path("stdlib")
files = [os.path.join(folder, file) for folder, _, files in os.walk("/") for file in files
         if not folder.startswith(library)]
others = [file for file in files
          if ".so" not in file and not file.startswith(
              ("/dev/", "/program/", "/tmp/", "/packages/"))]
said["alone"] = others == [os.path.realpath(sys.executable)]
said["packages"] = [f for _, _, fs in os.walk(f"{library}/site-packages") for f in fs]
""", {"alone": True, "packages": []}),
    "a place to write": ("""
said["places"] = [folder for folder, _, _ in os.walk("/")
                  if attempt(open, os.path.join(folder, "x"), "w")[0] == "done"]
""", {"places": ["/program"]}),
    "links and odd paths": ("""
for number, target in enumerate(
    ["/etc/passwd", "../../../etc/passwd", "/", "..", "/proc/1/root"]
):
    os.symlink(target, f"/program/l{number}")
    said[target] = attempt(lambda: open(f"/program/l{number}").read())
said["long"] = attempt(open, "x" * 5000, "w")
said["deep"] = attempt(open, "d/" * 3000, "w")
said["nul"] = attempt(open, "a\\0b", "w")
listing = sorted(os.listdir("/program/l2"))
os.chdir("/"); os.chdir("..")
said["parent"] = listing == sorted(os.listdir("."))
said["etc"] = "etc" in listing
""", {"parent": True, "etc": False}),
    "signals": (f"""
import signal
said["pids"] = [os.getpid(), os.getppid()]
for pid in (-1, *range(3, 300), {os.getpid()}, {os.getppid()}):
    said[pid] = attempt(os.kill, pid, signal.SIGKILL)
for number in set(signal.Signals):
    attempt(os.kill, 1, number)
""", {"pids": [2, 1]}),
    "another user": ("""
said["root"] = 0 in [*os.getresuid(), *os.getresgid(), *os.getgroups()]
said["setuid"] = attempt(os.setuid, 0)
said["setgid"] = attempt(os.setgid, 0)
said["setreuid"] = attempt(os.setresuid, 0, 0, 0)
said["groups"] = attempt(os.setgroups, [0])
said["chown"] = attempt(os.chown, "/program", 0, 0)
said["chroot"] = attempt(os.chroot, "/program")
said["sudo"] = attempt(os.execv, "/usr/bin/su", ["su"])
""", {"root": False}),
    "a terminal": ("""
import fcntl, termios
for number in (0, 1, 2):
    said[number] = attempt(fcntl.ioctl, number, termios.TIOCSTI, b"x")
said["linux"] = attempt(fcntl.ioctl, 0, 0x541C, b"\\x03")
said["tty"] = attempt(open, "/dev/tty")
said["names"] = [os.isatty(number) for number in (0, 1, 2)]
""", {"names": [False] * 3}),
}  # fmt: skip


def refuses(tried: Callable[..., Any], attack: str, others: dict[str, Any]) -> None:
    said = tried(attack)
    assert {name: said.pop(name) for name in others} == others
    results = {name: value[0] if isinstance(value, list) else value for name, value in said.items()}
    assert not {name: value for name, value in results.items() if value not in ("refused", -1)}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=X86 if "x32" in name else ()) for name in ATTACKS]
)
def test_there_is_no_way_out(name, tried):
    refuses(tried, *ATTACKS[name])


@pytest.mark.skipif(os.getuid() != 0, reason="an ordinary user is always the same")
def test_every_run_is_another_nobody():
    first, second = (ran("import os; print(os.getuid())").stdout for _ in range(2))
    assert first != second
    with pytest.raises(KeyError):
        pwd.getpwuid(int(first))


def test_there_is_no_network_of_any_kind(tried):
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        udp.bind(("127.0.0.1", 0))
        abstract.bind(f"\0heavydistill-{os.getpid()}")
        abstract.listen()
        ports = tcp.getsockname()[1], udp.getsockname()[1]
        attack = f"""
            import socket, urllib.request
            def udp(port):
                socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port))
            said["tcp"] = attempt(socket.create_connection, ("127.0.0.1", {ports[0]}), 1)
            said["udp"] = attempt(udp, {ports[1]})
            said["abstract"] = attempt(
                lambda: socket.socket(socket.AF_UNIX).connect({abstract.getsockname()!r}))
            said["netlink"] = attempt(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW)
            said["raw"] = attempt(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)
            said["packet"] = attempt(socket.socket, socket.AF_PACKET, socket.SOCK_RAW)
            said["vsock"] = attempt(socket.socket, socket.AF_VSOCK)
            said["dns"] = attempt(socket.getaddrinfo, "example.org", 80)
            said["http"] = attempt(urllib.request.urlopen, "http://1.1.1.1", None, 1)
            said["dgram"] = attempt(socket.socketpair, socket.AF_UNIX, socket.SOCK_DGRAM)
        """
        refuses(tried, attack, {})
        for listener in (tcp, udp, abstract):
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.recv(1) if listener is udp else listener.accept()


def test_no_secret_of_the_environment_is_told(monkeypatch, tried):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-attack-4711")
    attack = """
        import ctypes, itertools
        said["environment"] = dict(os.environ)
        said["block"] = attempt(open, "/proc/1/environ")
        pointers = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
        raw = itertools.takewhile(bool, (pointers[i] for i in itertools.count()))
        said["raw"] = [text.decode() for text in raw]
    """
    said = tried(attack)
    of_packages = {"PYTHONPATH", "OPENBLAS_NUM_THREADS"}
    ours = {"PYTHONHASHSEED", "MALLOC_ARENA_MAX", "PWD"}
    assert set(said["environment"]) - of_packages == ours
    assert "4711" not in repr(said)
    assert said["block"][0] == "refused"


def test_no_open_file_is_inherited(tmp_path, tried):
    secret = tmp_path / "secret"
    secret.write_text("4711")
    inherited = os.open(secret, os.O_RDWR)
    os.set_inheritable(inherited, True)
    held = [inherited, *(os.dup(0) for _ in range(150))]  # so that there are high numbers too
    try:
        attack = """
            said["open"] = [n for n in range(1200) if attempt(os.fstat, n)[0] == "done"]
            said["stdin"] = attempt(os.write, 0, b"x")
            said["stdout"] = attempt(os.read, 1, 1)
        """
        said = tried(attack)
    finally:
        for file in held:
            os.close(file)
    channels = [cells._CHANNEL, cells._OUTPUT]
    assert [number for number in said["open"] if number not in channels] == [0, 1, 2]
    assert said["stdin"][0] == said["stdout"][0] == "refused"
    assert secret.read_text() == "4711"


def test_writing_outside_reaches_nothing(tried):
    mark = f"heavydistill-attack-{os.getpid()}"
    places = ["/tmp", "/var/tmp", "/dev/shm", "/run", "/root", str(ROOT), str(Path.home()), "/"]
    attack = f"""
        for place in {places!r}:
            said[place] = attempt(lambda: open(os.path.join(place, {mark!r}), "w").close())
    """
    assert tried(attack)["/tmp"][0] == "done"  # its own
    assert not [place for place in places if Path(place, mark).exists()]


def test_a_daemon_cannot_be_left_behind():
    program = """
        import os, sys
        os.setsid() if os.getpid() != os.getsid(0) else None
        try:
            if os.fork(): os._exit(0)
        except OSError:
            print("alone")
    """
    assert ran(program).stdout == b"alone\n"  # that nothing is left the fixture looks at


def test_the_launcher_leaves_no_name_and_no_report_channel():
    program = """
        import sys
        print({"start", "_become", "resource", "ctypes"} & set(globals()))
        print(sys.argv, __file__, __name__)
    """
    assert ran(program).stdout == b"set()\n['main.py'] /program/main.py __main__\n"
