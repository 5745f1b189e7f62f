"""Programs that want more than their share, each in one way. The defence each tests is its name."""

import signal
import textwrap
import time

import pytest
from sandboxing import ran

from heavydistill.sandbox.session import SessionLimits, open_session

pytestmark = pytest.mark.usefixtures("works", "nothing_left")

MIB = 1 << 20


IGNORES = """
import signal, time
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, lambda *_: None)
signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
"""
FORKS = """
import os
while True:
    try: os.fork()
    except OSError: pass
"""
THREADS = """
import hashlib, threading
def burn():
    while True: hashlib.sha256(b"x" * 1_000_000)
for _ in range(4): threading.Thread(target=burn).start()
"""
WITHOUT_END = {
    "a loop": ("while True: pass", "cpu"), "a loop in four threads": (THREADS, "cpu"),
    "a loop that handles and masks every signal": (f"{IGNORES}while True: pass", "cpu"),
    "a fork bomb": (FORKS, "cpu"),
    "a sleeper that masks every signal": (f"{IGNORES}while True: time.sleep(1000)", "wall"),
    "a sleeper": ("import time; time.sleep(1000)", "wall"),
    "a sleeper that closed its output": (
        "import os, time; os.close(1); os.close(2); time.sleep(1000)",
        "wall",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_END)
def test_what_has_no_end_is_ended_by_processor_time_or_the_clock(name):
    program, ended = WITHOUT_END[name]
    begun = time.monotonic()
    result = ran(
        f"print('z', flush=True)\n{program}", cpu_s=1, wall_s=60 if ended == "cpu" else 1.5
    )
    assert (result.ended, result.stdout) == (ended, b"z\n")
    assert ended == "cpu" or time.monotonic() - begun < 60
    assert ended == "wall" or 0.9 <= result.cpu_s < 2.5


@pytest.mark.parametrize("name", WITHOUT_END)
def test_a_cell_without_end_is_ended_and_the_next_one_runs(name):
    program, ended = WITHOUT_END[name]
    with open_session(SessionLimits(cpu_s=1, wall_s=60 if ended == "cpu" else 1.5)) as session:
        waits = "import threading\nfor other in threading.enumerate()[1:]: other.join()"
        cell = session.run(f"x = 1\nprint('z')\n{program}\n{waits}")
        fault = "used more than 1 s of processor time" if ended == "cpu" else "took more than 1.5 s"
        assert cell.error == "timeout" and cell.output.startswith("z\n[") and fault in cell.output
        assert cell.seconds < 60
        assert "NameError" in session.run("x").output


def test_time_of_others_is_not_the_programs():
    result = ran("import time; time.sleep(1.5); print('slow')", cpu_s=1)
    assert (result.ended, result.stdout) == ("exit", b"slow\n")
    assert result.cpu_s < 1


def test_a_sandbox_that_has_no_time_to_start_is_unavailable():
    result = ran("print(1)", wall_s=0.001)
    assert result.ended == "unavailable"
    assert b"did not start" in result.stderr


@pytest.mark.parametrize(
    "grow",
    [
        "bytearray(MIB)", "list(range(100_000))",
        "mmap.mmap(-1, MIB, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)",
        "mmap.mmap(-1, MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)",
        "mmap.mmap(open(f'/program/{len(kept)}', 'w+b').fileno(), 0)",
        "[object() for _ in range(50_000)]",
    ],
)  # fmt: skip
def test_memory_is_a_total_of_all_kinds(grow, tried):
    attack = f"""
        import mmap
        MIB, kept, said["mib"] = 1 << 20, [], 0
        try:
            while said["mib"] < 2000:
                kept.append({grow})
                said["mib"] += 1
        except (MemoryError, OSError, ValueError):
            del kept
    """
    assert tried(attack)["mib"] < 256


PIPES = """
    import fcntl
    said["held"] = 0
    try:
        while True:
            _, end = os.pipe()
            large = attempt(fcntl.fcntl, end, 1031, 1 << 20)[0] == "done"
            said["held"] += 1 << 20 if large else 1 << 16
    except OSError:
        pass
"""
TIMERS = """
    import ctypes
    made = ctypes.byref(ctypes.c_int())
    libc = ctypes.CDLL(None)
    said["held"] = sum(libc.timer_create(0, None, made) == 0 for _ in range(5000))
"""
THREADS_HELD = """
    import threading
    threading.stack_size(32 << 10)
    wait, said["held"] = threading.Event(), 0
    try:
        while said["held"] < 5000:
            threading.Thread(target=wait.wait, daemon=True).start()
            said["held"] += 1
    except RuntimeError:
        wait.set()
"""


@pytest.mark.parametrize(
    ("attack", "least", "most"),
    [(PIPES, 0, 64 * MIB), (TIMERS, 0, 499), (THREADS_HELD, 32, 64)],
    ids=["pipes", "timers", "threads"],
)
def test_what_the_system_keeps_for_a_program_is_little(attack, least, most, tried):
    assert least <= tried(attack)["held"] <= most


def test_a_stack_is_memory_too():
    attack = """
        import functools, resource
        resource.setrlimit(resource.RLIMIT_STACK, (1 << 40, resource.getrlimit(3)[1]))
        sys.setrecursionlimit(10**9)
        @functools.cache
        def deep(n): return 0 if n == 0 else deep(n - 1)
        deep(10**8)
    """
    result = ran("import sys\n" + textwrap.dedent(attack), memory_mb=256)
    assert (result.ended, result.exit_code) in [("signal", 11), ("exit", 1)], result


@pytest.mark.slow
def test_a_program_that_computes_nothing_is_ended_before_the_clock():
    begun = time.monotonic()
    result = ran(
        "import threading; threading.Lock().acquire(); x = threading.Lock(); x.acquire(); "
        "x.acquire()",
        wall_s=600,
    )
    assert result.ended == "wall"
    assert time.monotonic() - begun < 250


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_is_cut_and_ends_the_program(stream):
    begun = time.monotonic()
    result = ran(
        f"import sys\nwhile True: sys.{stream}.write('x' * 10_000)",
        output_bytes=100_000,
        wall_s=600,
    )
    assert result.ended == "output"
    assert getattr(result, stream) == b"x" * 100_000
    assert time.monotonic() - begun < 250


def test_output_up_to_the_limit_is_whole():
    result = ran("print('x' * 999)", output_bytes=1000)
    assert (result.ended, len(result.stdout)) == ("exit", 1000)
    assert ran("print('x' * 1000)", output_bytes=1000).ended == "output"


@pytest.mark.parametrize("folder", ["/program", "/tmp"])
def test_the_disk_that_a_program_has_is_small(folder, tried):
    attack = f"""
        said["bytes"] = 0
        for number in range(100):
            try:
                with open(f"{folder}/{{number}}", "wb", buffering=0) as file:
                    while len(chunk := bytes(1 << 20)) and (wrote := file.write(chunk)):
                        said["bytes"] += wrote
            except OSError:
                pass
    """
    assert 15 * MIB < tried(attack)["bytes"] <= 17 * MIB


@pytest.mark.parametrize(
    "make",
    [
        "open(name, 'w').close()", "os.mkdir(name)", "os.symlink('x', name)",
        "os.close(os.open('.', os.O_TMPFILE | os.O_RDWR)) or open(name, 'w').close()",
    ],
)  # fmt: skip
def test_a_flood_of_files_is_ended(make):
    program = f"""
        import itertools, os
        for number in itertools.count():
            name = f"/program/{{number}}"
            {make}
    """
    result = ran(program, cpu_s=20)
    assert result.ended == "files"
    assert result.cpu_s < 3
    with open_session(SessionLimits(cpu_s=20)) as session:
        cell = session.run(textwrap.dedent(program))
        assert cell.error == "closed" and "too many files" in cell.output


def test_a_thousand_files_are_no_flood():
    program = "import time\nfor number in range(1000): open(str(number), 'w').close()\n"
    assert ran(f"{program}time.sleep(0.3)\nprint('fine')").stdout == b"fine\n"


@pytest.mark.parametrize(
    ("crash", "number"),
    [
        ("ctypes.string_at(0)", signal.SIGSEGV), ("os.abort()", signal.SIGABRT),
        ("os.kill(os.getpid(), signal.SIGKILL)", signal.SIGKILL),
        ("signal.alarm(1); time.sleep(60)", signal.SIGALRM),
        ("os.kill(0, signal.SIGTERM)", signal.SIGTERM),
        ("os.kill(os.getpid(), signal.SIGXCPU)", signal.SIGXCPU),  # not the limit
    ],
)  # fmt: skip
def test_a_crash_is_its_signal(crash, number):
    program = f"import ctypes, os, signal, time\n{crash}\nprint('alive')"
    result = ran(program)
    assert (result.ended, result.exit_code, result.stdout) == ("signal", number, b"")
    with open_session(SessionLimits()) as session:
        cell = session.run(program)
        assert cell.error == "closed" and cell.output.startswith(f"[Signal {number:d} ended")


def test_recursion_without_end_ends():
    program = "import sys\nsys.setrecursionlimit(10**9)\nf = lambda: [f()]\nf()\nprint('alive')"
    result = ran(program, cpu_s=1, memory_mb=128)
    assert result.stdout == b"" and (result.ended, result.exit_code) != ("exit", 0)
