"""What a good program gets, what is said where nothing can run, and what a kill leaves behind."""

import os
import random
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sandboxing import SYSTEM_PYTHON, adopted_all_end, children, ran

from heavydistill.config.run import Sandboxing
from heavydistill.sandbox import Limits, bubblewrap, open_sandbox

LIMITS = Limits(5, 60, 256, 1 << 16)
works = pytest.mark.usefixtures("works")
pytestmark = pytest.mark.usefixtures("nothing_left")


@works
def test_a_program_reads_its_files_and_no_input():
    program = """
        import sys
        print(open("data.txt").read(), repr(sys.stdin.read()), flush=True)
        print("ü", file=sys.stderr)
        sys.stdout.buffer.write(bytes(range(256)))
        sys.exit(3)
    """
    result = ran(program, **{"data.txt": "日本"})
    assert (result.ended, result.exit_code) == ("exit", 3)
    assert result.stdout == "日本 ''\n".encode() + bytes(range(256))
    assert result.stderr.decode() == "ü\n"
    assert 0 < result.cpu_s < 2


@works
@pytest.mark.parametrize(
    "program",
    [
        "import asyncio\nasync def f(): await asyncio.sleep(0); return 42\nprint(asyncio.run(f()))",
        "from concurrent.futures import ThreadPoolExecutor as P\n"
        "with P(32) as p: print(sum(p.map(int, '9' * 4)) + 6)",
        "import threading, sys\nsys.setrecursionlimit(10**6)\nthreading.stack_size(64 << 20)\n"
        "def f(n): return n and 1 + f(n - 1)\n"
        "t = threading.Thread(target=lambda: print(f(40_000) - 39_958))\nt.start(); t.join()",
        "import dataclasses, sqlite3, decimal, hashlib, zlib, bz2, lzma, ctypes, re, heapq\n"
        "db = sqlite3.connect(':memory:'); print(db.execute('select 6 * 7').fetchone()[0])",
        "import tempfile\nwith tempfile.NamedTemporaryFile() as f: print(42)",
        "import pickle\nclass A: x = 42\nprint(pickle.loads(pickle.dumps(A())).x)",
        "from __future__ import annotations\nimport dataclasses\n@dataclasses.dataclass\n"
        "class A:\n    x: int = 42\nprint(A().x)",
        "# -*- coding: latin-1 -*-\nimport sys\nsys.stdout.write('42\\n')",
        "if __name__ == '__main__':\n    print(42)",
    ],
)
def test_ordinary_python_works(program):
    result = ran(program)
    assert (result.ended, result.exit_code, result.stdout) == ("exit", 0, b"42\n"), result


@works
def test_runs_at_the_same_time_do_not_mix():
    def one(number: int) -> bytes:
        return ran(
            f"import time; time.sleep(0.05); print({number}, open('n').read())", n=str(number)
        ).stdout

    with ThreadPoolExecutor(6) as threads:
        said = list(threads.map(one, range(18)))
    assert said == [b"%d %d\n" % (number, number) for number in range(18)]


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process in which no program has run yet."""
    monkeypatch.setattr(bubblewrap, "_works", False)


def _refused(words: list[str]) -> None:
    place = open_sandbox(Sandboxing())
    reason = place.unavailable()
    assert reason is not None and all(word in reason for word in words), reason
    result = place.run({"main.py": "print('ran')"}, LIMITS)
    assert (result.ended, result.stdout) == ("unavailable", b"")
    assert result.stderr.decode() == reason


@pytest.mark.usefixtures("untried")
def test_without_bubblewrap_or_a_filter_nothing_runs(monkeypatch):
    for machine in ("i686", "armv7l", "riscv64", "ppc64le", ""):
        with monkeypatch.context() as other:
            other.setattr(bubblewrap.platform, "machine", lambda machine=machine: machine)
            _refused(["aarch64 and x86_64", "sandbox_fusion"])
    monkeypatch.setenv("PATH", "/nonexistent")
    _refused(["not installed", "apt-get install bubblewrap", "dnf install bubblewrap"])


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1",
         ["No permissions to create new namespace", "AppArmor", "Docker"]),
        ("echo 'bwrap: loopback: Failed RTM_NEWADDR' >&2; exit 1", ["RTM_NEWADDR", "AppArmor"]),
        ("exit 0", ["cannot start a program"]), ("echo 42; exit 0", ["cannot start a program"]),
        ("kill -9 $$", ["cannot start a program"]),
        ("echo \"bwrap: Can't find source path /x: Permission denied\" >&2; exit 1",
         ["cannot reach the interpreter"]),
        ("echo 'bwrap: Unknown option --size' >&2; exit 1", ["too old", "--size", "0.7"]),
    ],
)  # fmt: skip
def test_a_bubblewrap_that_does_not_do_it_all_runs_nothing(script, words, monkeypatch, tmp_path):
    _put_bwrap(tmp_path, script)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    tmp_path.chmod(0o755)
    _refused(words)


def _put_bwrap(folder: Path, script: str) -> None:
    fake = folder / "bwrap"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


@works
@pytest.mark.usefixtures("untried")
def test_what_failed_once_is_tried_again(monkeypatch):
    place = open_sandbox(Sandboxing())
    with monkeypatch.context() as without:
        without.setenv("PATH", "/nonexistent")
        assert place.unavailable() is not None
    assert place.unavailable() is None


@works
def test_the_interpreter_is_the_one_behind_the_virtual_environment():
    version = ran("import sys; print(sys.version, sys.prefix == sys.base_prefix)").stdout.decode()
    assert version == f"{sys.version} True\n"
    assert not Path(bubblewrap.interpreter()[0]).is_relative_to(sys.prefix) or (
        sys.prefix == sys.base_prefix
    )


@works
@pytest.mark.skipif(
    os.getuid() != 0 or not Path(SYSTEM_PYTHON).exists(), reason="needs root and a system Python"
)
def test_an_ordinary_user_is_contained_as_well(monkeypatch):
    monkeypatch.setattr(sys, "_base_executable", SYSTEM_PYTHON)
    bubblewrap.interpreter.cache_clear()
    program = """
        import os
        print(os.getuid() != 0)
        for attack in (os.fork, lambda: os.listdir("/proc"), lambda: open("/dev/x", "w"),
                       lambda: open("/x", "w"), lambda: open("/etc/passwd"), lambda: os.setuid(0)):
            try: print(attack())
            except OSError: print("refused", flush=True)
        number = 0
        while True: open(f"{(number := number + 1)}", "w").close()
    """
    try:
        bubblewrap.interpreter()
        result = _as_nobody(program)
    finally:
        bubblewrap.interpreter.cache_clear()
    if "namespace" in result:
        pytest.skip(f"no namespaces for ordinary users here: {result}")
    assert result == "files True" + " refused" * 6


def _as_nobody(program: str) -> str:
    """End and output of a program, run by a copy of this process that is an ordinary user."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        bubblewrap._may_mount.cache_clear()
        result = ran(program, cpu_s=10)
        said = result.stdout or result.stderr
        os.write(writes, b" ".join([result.ended.encode(), *said.split()]))
        os._exit(0)
    os.close(writes)
    with open(reads, "rb") as file:
        said = file.read().decode()
    os.waitpid(child, 0)
    return said


_RUNS_ON = """
import sys
from heavydistill.config.run import Sandboxing
from heavydistill.sandbox import Limits, open_sandbox
place = open_sandbox(Sandboxing())
assert place.unavailable() is None
print("ready", flush=True)
while True:
    place.run({"main.py": sys.argv[1]}, Limits(100, 1000, 256, 1000))
"""


@works
@pytest.mark.parametrize(
    ("program", "waits", "times"),
    [("import time; time.sleep(1000)", (0.3, 0.3), 2), ("pass", (0.0, 0.08), 4)],
)
def test_a_killed_process_takes_its_program_with_it(program, waits, times):
    chance = random.Random(0)
    for _ in range(times):
        before = children()
        command = [sys.executable, "-c", _RUNS_ON, program]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            time.sleep(chance.uniform(*waits))
            process.send_signal(signal.SIGKILL)
        assert adopted_all_end(before), "a program outlived the process that started it"
