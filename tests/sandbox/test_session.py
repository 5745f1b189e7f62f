"""Interpreters that keep their state from cell to cell."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import messages
import pytest
from sandboxing import adopted_all_end, children

from heavydistill.config.run import Sandboxing
from heavydistill.sandbox import bubblewrap, cells, memory
from heavydistill.sandbox.session import (
    Session,
    SessionLimits,
    open_session,
    require_sessions,
    room_for_sessions,
)

pytestmark = pytest.mark.usefixtures("works", "nothing_left")
LIMITS = SessionLimits()


@pytest.fixture
def session() -> Iterator[Session]:
    with open_session(LIMITS) as opened:
        yield opened


def test_state_lasts_and_the_last_expression_is_printed(session):
    define = "import math, pickle\nx = 3\ndef f(n): return math.comb(n, 2) + x\nclass A: y = f(4)"
    said = [session.run(cell) for cell in (define, "f(4)", "x = 4; None", "f(4)", "_ + 1", "'ü 𝛼'")]
    assert [cell.output for cell in said] == ["", "9\n", "", "10\n", "11\n", "'ü 𝛼'\n"]
    assert {(cell.error, cell.truncated) for cell in said} == {(None, False)}
    assert (
        session.run("open('a', 'w').write('b')\npickle.loads(pickle.dumps(A())).y").output == "9\n"
    )
    assert session.run("print(open('a').read())").output == "b\n"


def test_packages_are_there(session):
    cell = session.run("import numpy, sympy\nsympy.factorint(int(numpy.prod([6, 7, 6])))")
    assert (cell.output, cell.error) == ("{2: 2, 3: 2, 7: 1}\n", None)


def test_a_traceback_has_the_lines_of_cells_alone(session):
    session.run("import json\ndef f(text):\n    return json.loads(text)")
    assert session.run("print('before')\nx = 5\nf('{')").output == (
        "before\n"
        "Traceback (most recent call last):\n"
        '  File "<cell 2>", line 3, in <module>\n'
        "    f('{')\n"
        '  File "<cell 1>", line 3, in f\n'
        "    return json.loads(text)\n"
        "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: "
        "line 1 column 2 (char 1)\n"
    )
    deep = session.run("def g(n):\n    return h(n)\ndef h(n):\n    return g(n)\ng(0)")
    assert deep.error == "exception" and len(deep.output.splitlines()) < 30
    assert session.run("x").output == "5\n"


@pytest.mark.parametrize(
    ("cell", "error", "text"),
    [
        ("x = (", "exception", "SyntaxError: '(' was never closed"),
        ("raise SystemExit(3)", "exception", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "exception", "KeyboardInterrupt"),
        ("'\udc80'", "exception", "UnicodeEncodeError"), ("1\0", "exception", "null bytes"),
        ("class E(Exception):\n def __str__(self): 1/0\nraise E", "exception", "E"),
        ("input()", "exception", "EOFError"), ("y = bytearray(1 << 40)", "memory", "MemoryError"),
        ("y = []\nwhile True: y.append(bytearray(1 << 20))", "memory", "MemoryError"),
        ("import os, sys\nsys.stdout.close(); sys.stderr.close(); os.close(0)", None, ""),
        ("import os\nos.close(1); os.close(2)", None, ""),
        ("import sys\nsys.stdout = sys.stderr = None", None, ""),
        ("import os\nprint('a', end=''); os.write(1, b'\\xff'); os.system('ls')", None, "�"),
    ],
)  # fmt: skip
def test_an_interpreter_goes_on_after(cell, error, text, session):
    session.run("kept = 6")
    came = session.run(cell)
    assert came.error == error and text in came.output, came
    assert session.run("print(kept * 7)").output == "42\n"


@pytest.mark.parametrize(
    ("cell", "error"),
    [
        ("os._exit(0)", "closed"), ("os.closerange(0, 128)", "closed"),
        ("os.write(CHANNEL, b'1 n' * 100_000)", "closed"), ("os.write(CHANNEL, b'9')", "closed"),
        ("os.write(CHANNEL, b'1 n\\n')\nwhile True: pass", None),
        ("os.write(CHANNEL, b'1 n\\n')\ntime.sleep(0.5); os._exit(3)", None),
        ("for _ in range(9): threading.Thread(target=os.read, args=(CHANNEL, 999)).start()", None),
        ("os.kill(os.getpid(), signal.SIGSTOP)", "timeout"),
    ],
)  # fmt: skip
def test_a_cell_that_breaks_its_interpreter_breaks_nothing_else(cell, error):
    code = f"import os, signal, threading, time\nCHANNEL = {cells._CHANNEL}\n{cell}"
    with open_session(SessionLimits(wall_s=3, memory_mb=128)) as session:
        came = session.run(code)
        assert came.error == error and came.seconds < 60, came
        later = [session.run("'CHANNEL' in globals()").output for _ in range(3)]
        assert later[-1] == "False\n"


def test_an_interpreter_that_ends_by_itself_is_missed_by_the_next_cell(session):
    assert session.run("import signal\nsignal.alarm(1)").output == "0\n"
    time.sleep(1.5)
    cell = session.run("1")
    assert cell.error == "closed" and cell.output.startswith("[Signal 14 ended"), cell
    assert session.run("1").output == "1\n"


def test_after_an_interrupt_the_next_cell_has_a_new_interpreter(session):
    session.run("x = 1")
    interrupt = threading.Timer(0.5, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        session.run("import time; time.sleep(1000)")
    interrupt.join()
    assert session.run("'x' in globals()").output == "False\n"


def test_a_long_output_loses_its_middle_and_no_more(session):
    whole = session.run("print('é' * 1999)")
    assert (whole.output, whole.truncated) == ("é" * 1999 + "\n", False)
    cell = session.run("for n in range(10**5): print(n, 'é')\n1 / 0")
    assert (cell.truncated, cell.error) == (True, "exception")
    assert cell.output.startswith("0 é\n1 é\n") and cell.output.endswith("division by zero\n")
    assert "bytes left out]\n" in cell.output and "�" not in cell.output
    assert len(cell.output.encode()) < LIMITS.output_bytes + 100
    assert session.run("print(n)").output == "99999\n"


def test_processor_time_is_limited_in_all():
    burn = "import time\nbegun = time.process_time()\nwhile time.process_time() < begun + 1: pass"
    with open_session(SessionLimits(cpu_s=60, total_cpu_s=2.7)) as session:
        assert [session.run(burn).error for _ in range(4)] == [None, None, "timeout", "closed"]
        assert "2.7 s of processor time are used" in session.run("1").output


def test_sessions_at_once_do_not_mix():
    def one(number: int) -> list[str]:
        with open_session(SessionLimits(memory_mb=64)) as session:
            session.run(f"x = {number}; open('x', 'w').write('{number}')")
            return [session.run("import time; time.sleep(0.1); x, open('x').read()").output]

    with ThreadPoolExecutor(6) as threads:
        said = list(threads.map(one, range(12)))
    assert said == [[f"({number}, '{number}')\n"] for number in range(12)]


def test_a_closed_session_runs_nothing(session):
    session.close()
    session.close()
    assert (session.run("1").error, session.run("1").output) == (
        "closed",
        "[The session is closed.]\n",
    )


@pytest.mark.slow
def test_a_model_may_think_long(session):
    session.run("x = 5")
    time.sleep(20)
    assert session.run("x").output == "5\n"


def test_more_sessions_than_memory_are_refused(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 3 << 30)
    with open_session(LIMITS), open_session(LIMITS), open_session(LIMITS):
        require_sessions(LIMITS, 1)
        with messages.raises("too_many_sessions", count=2, each=512, room=1):
            require_sessions(LIMITS, 2)
        with open_session(LIMITS), messages.raises("too_many_sessions", count=1, room=0):
            open_session(LIMITS)
    require_sessions(LIMITS, 4)


def test_sessions_that_wait_share_memory_that_became_less(monkeypatch):
    room = SessionLimits(memory_mb=512)
    free = iter([30 << 30, *[1 << 30] * 9])  # for many at the start of a run, later for one
    monkeypatch.setattr(memory, "free_memory", lambda: next(free))
    assert room_for_sessions(room) > 4

    def sum_of(number: int) -> str:
        with open_session(room, waits=True) as session:
            return session.run(f"{number} + 1").output

    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(sum_of, range(4))] == ["1\n", "2\n", "3\n", "4\n"]


def test_where_no_session_can_be_that_is_said(monkeypatch):
    with messages.raises("no_session_on_a_server"):
        server = Sandboxing(backend="sandbox_fusion", url="http://localhost:1")
        open_session(LIMITS, server)
    monkeypatch.setattr(bubblewrap, "_works", False)
    monkeypatch.setenv("PATH", "/nonexistent")
    with messages.raises("no_bubblewrap"):
        open_session(LIMITS)


_HOLDS = """
import sys, time
from heavydistill.sandbox.session import SessionLimits, open_session
sessions = [open_session(SessionLimits(cpu_s=100, wall_s=1000, memory_mb=64)) for _ in range(3)]
assert sessions[0].run("1").error is None
print("ready", flush=True)
sessions[1].run(sys.argv[1])
"""


@pytest.mark.parametrize("cell", ["while True: pass", "import time; time.sleep(1000)"])
def test_a_killed_process_takes_its_interpreters_with_it(cell):
    before = children()
    command = [sys.executable, "-c", _HOLDS, cell]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGKILL)
    assert adopted_all_end(before), "an interpreter outlived the process that started it"
