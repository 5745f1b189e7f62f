"""Programs that want to be called right without being right. None of them is."""

import dataclasses
import json
import signal
from collections.abc import Mapping
from typing import Any

import pytest
from coding import SQUARES, decision, fenced, problem, said

from heavydistill.config.run import Sandboxing
from heavydistill.sandbox import Limits, Sandbox, SandboxResult
from heavydistill.verifiers.code.formats import task_of
from heavydistill.verifiers.code.verifier import decide

pytestmark = pytest.mark.usefixtures("works", "nothing_left")

SPLIT: dict[str, Any] = {"asserts": SQUARES}
REHEARSED: dict[str, Any] = {"asserts": [*SQUARES, "assert f(4) + 1 == 17"]}
CHECKED: dict[str, Any] = {
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(3) == 9\n",
    "entry_point": "f", "prompt": "def f(x):\n    '''Square x.'''\n",
}  # fmt: skip
FUNCTIONAL: dict[str, Any] = {
    "tests": [{"args": [2], "expected": 4}, {"args": [3], "expected": 9}], "entry_point": "f",
}  # fmt: skip
PRINTED: dict[str, Any] = {"tests": [{"input": "2", "output": "4"}, {"input": "3", "output": "9"}]}
FORMATS = {
    "split": SPLIT, "rehearsed": REHEARSED, "checked": CHECKED, "functional": FUNCTIONAL,
    "printed": PRINTED,
}  # fmt: skip

# Reports answers of its own, in the first test, for both.
FORGED = """
import os, re
token = re.search('token.: .([0-9a-f]+)', open('job.txt').read())[1]
first, second = {answers}
reports = f'{{token}} 0 V 1\\n{{first}}\\n{{token}} 1 B 0\\n\\n{{token}} 1 V 1\\n{{second}}\\n'
for channel in range(3, 20):
    try: os.write(channel, reports.encode())
    except OSError: pass
def f(x): return 0
"""

# Of the property attacked to the program. Each stands for one way to end, lie or look.
ATTACKS = {
    "the exit status at the start": "import sys\nsys.exit(0)",
    "the exit status in a call": "import sys\ndef f(x): sys.exit(0)\nf(1)",
    "an exit that nothing catches": "import os\nos._exit(0)",
    "the exit of the kernel": "import ctypes\nctypes.CDLL(None)._exit(0)",
    "SystemExit": "raise SystemExit", "quit": "quit()",
    "a kill by itself": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n1 / 0",
    "a crash": "import ctypes\nctypes.string_at(0)",
    "an end in a thread":
        "import ctypes, threading, time\ndef end():\n    time.sleep(0.2)\n"
        "    ctypes.CDLL(None)._exit(0)\nthreading.Thread(target=end).start()\ndef f(x):\n"
        "    time.sleep(0.5)\nf(1)",
    "an end in a handler of SIGALRM":
        "import ctypes, signal, time\n"
        "signal.signal(signal.SIGALRM, lambda *_: ctypes.CDLL(None)._exit(0))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.1)\ndef f(x):\n    time.sleep(0.5)\nf(1)",
    "another program in its place":
        "import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'pass'])",
    "atexit": "import atexit, os\natexit.register(os._exit, 0)\n1 / 0",
    "the hook for exceptions":
        "import sys\nsys.excepthook = lambda *_: print('4')\n"
        "sys.unraisablehook = sys.excepthook\nraise ValueError",
    "an object equal to everything":
        "class Any:\n    def __eq__(self, other): return True\n"
        "    def __ne__(self, other): return False\n    def __add__(self, other): return self\n"
        "    def __hash__(self): return 0\n    def __bool__(self): return True\n"
        "    def __str__(self): return '4'\ndef f(x): return Any()\nprint(Any())",
    "the standard library's object equal to everything":
        "from unittest import mock\ndef f(x): return mock.ANY\nprint(mock.ANY)",
    "a number equal to everything":
        "class Any(int):\n    def __eq__(self, other): return True\n"
        "    def __add__(self, other): return self\n    __hash__ = int.__hash__\n"
        "def f(x): return Any(-1)",
    "a class of its own choice":
        "class Any:\n    __class__ = int\n    def __eq__(self, other): return True\n"
        "def f(x): return Any()",
    "a list that shows another face each time":
        "class Any(list):\n    def __iter__(self): return iter([4])\n"
        "    def __eq__(self, other): return True\ndef f(x): return Any()",
    "changed builtins":
        "import builtins\nbuiltins.isinstance = builtins.issubclass = lambda *_: True\n"
        "builtins.type = lambda *_: int\nbuiltins.repr = builtins.str = lambda *_: '4'\n"
        "builtins.all = builtins.any = builtins.bool = lambda *_: True\n"
        "builtins.AssertionError = None\nbuiltins.len = lambda *_: 1\ndef f(x): return object()",
    "changed equality of builtins":
        "import ctypes, operator\noperator.eq = lambda *_: True\ndef f(x): return 0",
    "a changed harness":
        "import sys\nframe = sys._getframe()\nwhile frame:\n"
        "    for name in list(frame.f_globals):\n"
        "        if name in ('encode', 'likeness', 'report', '_told', 'compile'):\n"
        "            frame.f_globals[name] = lambda *_: 'true'\n    frame = frame.f_back\n"
        "def f(x): return 0",
    "a changed interpreter of assertions": "__debug__ = False\ndef f(x): return 0",
    "forged reports": FORGED.format(answers=(0, 1)),
    "reports that never end":
        "import os, re\ntoken = re.search('token.: .([0-9a-f]+)', open('job.txt').read())[1]\n"
        "for channel in range(20):\n"
        "    try: os.write(channel, f'{token} 0 V 999999999\\n'.encode())\n"
        "    except OSError: pass\ndef f(x): return 0",
    "noise where reports go":
        "import os\ndef f(x):\n    for channel in range(20):\n"
        "        try: os.write(channel, b'passed\\n' * 1000)\n        except OSError: pass\n"
        "    return 0\nf(1)",
    "closed channels": "import os\nos.closerange(0, 100)\ndef f(x): return 0",
    "a claim": "print('All tests passed', 'OK', True, 1)\ndef f(x): print(True)",
    "no end": "def f(x):\n    while True: pass\nf(1)",
    "no end that catches everything":
        "def f(x):\n    while True:\n        try:\n            while True: pass\n"
        "        except BaseException: pass\nf(1)",
    "no end that has taken the clock":
        "import signal\nsignal.signal(signal.SIGPROF, signal.SIG_IGN)\ndef f(x):\n"
        "    while True: pass\nf(1)",
    "no end that ignores every signal":
        "import signal\nfor number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:\n"
        "    signal.signal(number, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))\ndef f(x):\n"
        "    while True: pass\nf(1)",
    "no end in one call of the interpreter": "def f(x): return sum(iter(int, 1))\nf(1)",
    "an endless iterator": "import itertools\ndef f(x): return itertools.count()\nprint(f(1))",
    "a value without end": "def f(x):\n    a = []\n    a.append(a)\n    return a\nprint(f(1))",
    "a value that is small and unfolds":
        "def f(x):\n    a = [0]\n    for _ in range(99): a = [a, a]\n    return a",
    "endless recursion": "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(x): return f(x)\nf(1)",
    "all memory": "def f(x): return len([bytearray(10 ** 7) for _ in range(10 ** 5)])\nf(1)",
    "a flood of output": "def f(x):\n    while True: print('4' * 10000)\nf(1)",
    "a flood where reports go":
        "import os\ndef f(x):\n    while True:\n        for channel in range(3, 20):\n"
        "            try: os.write(channel, b'4' * 10000)\n            except OSError: pass\n"
        "f(1)",
    "children": "import os\nos.fork()\ndef f(x): return 0",
    "a shell": "import os\nos.system('true')\ndef f(x): return 0",
    "a stranger's file": "open('/etc/passwd').read()\ndef f(x): return 0",
    "the network": "import socket\nsocket.create_connection(('1.1.1.1', 53))\ndef f(x): return 0",
}  # fmt: skip


# They take all of their time or memory, so one format is enough.
LONG = {
    "all memory", "endless recursion", "no end in one call of the interpreter",
    "no end that has taken the clock", "no end that ignores every signal",
}  # fmt: skip
IN_EVERY_FORMAT = [
    "the exit status in a call", "an object equal to everything", "a number equal to everything",
    "changed builtins", "forged reports", "a list that shows another face each time",
]  # fmt: skip


@pytest.mark.parametrize(
    ("attack", "form"),
    [
        *((attack, "split") for attack in ATTACKS),
        *((attack, "printed") for attack in ATTACKS if attack not in LONG),
        *((a, form) for form in ("rehearsed", "checked", "functional") for a in IN_EVERY_FORMAT),
    ],
)
def test_no_attack_is_correct(attack, form):
    assert said(ATTACKS[attack], **FORMATS[form])[0] != "correct"


def test_the_tests_are_such_that_a_right_program_passes():
    program = "def f(x): return x * x\nif __name__ == '__main__': print(f(int(input())))"
    assert {said(program, **tests) for tests in FORMATS.values()} == {("correct", "passed")}


# What a program can find: files, and every text within reach of the collector, of frames and of
# modules. It says so in the value that it gives.
SEARCH = """
import gc, os, re, sys
def found():
    looks_like = re.compile("S[E]CRET")
    texts = [open(name, errors="replace").read() for name in os.listdir(".")]
    frame = sys._getframe()
    roots = [gc.get_objects(), list(sys.modules.values())]
    while frame:
        roots.append([frame.f_globals, frame.f_locals, frame.f_code])
        frame = frame.f_back
    seen, rest = set(), roots
    while rest and len(seen) < 400_000:
        one = rest.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, (str, bytes)):
            texts.append(one if isinstance(one, str) else one.decode("latin1"))
        else:
            rest.extend(gc.get_referents(one))
    return "found" if any(map(looks_like.search, texts)) else f"{len(texts) > 1000}"
def f(x):
    return found()
if __name__ == "__main__":
    print(found())
"""


@pytest.mark.parametrize(
    "tests",
    [
        {"asserts": ["assert f(1) == 'SECRET'"]}, {"asserts": ["assert f(1) in ['a', 'SECRET']"]},
        {"asserts": ["assert f(1) == table['x']"], "setup": "table = {'x': 'SECRET'}"},
        {"asserts": ["assert f(1).startswith('SECRET')"]},
        {"tests": [{"args": [1], "expected": "SECRET"}], "entry_point": "f"},
        {"tests": [{"input": "1", "output": "SECRET"}]},
        {
            "test": "def check(candidate):\n    for x, y in [(1, 'SECRET')]:\n"
            "        assert candidate(x) == y\n",
            "entry_point": "f",
        },
    ],
)  # fmt: skip
def test_what_is_right_is_not_where_the_program_is(tests):
    seen = Recording(SandboxResult("unavailable"))
    asked = problem(**tests)
    found = decision(asked, fenced(SEARCH), test_s=5.0)
    assert found.reason == "different"
    if "first" in found.evidence:
        assert "True" in found.evidence
    decide(task_of(asked), SEARCH, seen, Sandboxing())
    with_program = [files for files in seen.files if "S[E]CRET" in str(files)]
    assert with_program or seen.files
    assert not any("SECRET" in str(files) for files in with_program)


def test_a_forged_report_is_an_answer_and_no_more():
    assert said(FORGED.format(answers=(4, 8))) == ("incorrect", "different")
    assert said(FORGED.format(answers=(4, 9))) == ("correct", "passed")


def test_the_search_finds_what_is_there():
    assert said(SEARCH, asserts=["assert f('SECRET') == 'found'"]) == ("correct", "passed")


class Recording(Sandbox):
    """A sandbox that keeps what it is given and runs nothing, but may report that one second has
    passed and the first test begins."""

    def __init__(self, ran: SandboxResult, has_begun: bool = False) -> None:
        self.files: list[Mapping[str, str]] = []
        self._ran, self._has_begun = ran, has_begun

    def unavailable(self) -> str | None:
        return None

    def run(self, files: Mapping[str, str], limits: Limits) -> SandboxResult:
        self.files.append(files)
        begun = f"{json.loads(files['job.txt'])['token']} 0 B 4\n1000\n".encode()
        return dataclasses.replace(self._ran, stdout=begun) if self._has_begun else self._ran


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("ran", "reason"),
    [
        (SandboxResult("unavailable", stderr=b"Install it."), "no_sandbox"),
        (SandboxResult("exit", 1, b"", b"no such interpreter"), "no_sandbox"),
        (SandboxResult("exit", 0, b"4\n"), "no_sandbox"),
        (SandboxResult("signal", 9), "no_sandbox"),
        (SandboxResult("wall"), "timeout"),
    ],
)  # fmt: skip
def test_a_sandbox_that_fails_is_never_the_programs_fault(ran, reason, form):
    asked = problem(**FORMATS[form])
    found = decide(task_of(asked), "def f(x): return x * x", Recording(ran), Sandboxing())
    assert (found.label, found.reason) == ("undecided", reason)
    if ran.ended == "unavailable":
        assert "Install it." in found.evidence


def test_a_program_that_was_right_before_must_be_right_again():
    program = "import sys\ncount = sys.modules.setdefault('seen', [])\ncount.append(1)\n"
    program += "def f(x): return x * x if len(count) < 2 else 0"
    assert said(program) == ("incorrect", "different")


@pytest.mark.parametrize(
    ("ran", "label", "reason"),
    [
        (SandboxResult("signal", signal.SIGKILL), "undecided", "killed"),
        (SandboxResult("signal", signal.SIGKILL, cpu_s=9.9), "undecided", "killed"),
        (SandboxResult("signal", signal.SIGKILL, cpu_s=10.5), "incorrect", "too_slow"),
        (SandboxResult("wall"), "undecided", "timeout"),
        (SandboxResult("unavailable", stderr=b"gone"), "undecided", "no_sandbox"),
        (SandboxResult("cpu"), "incorrect", "too_slow"),
        (SandboxResult("signal", signal.SIGXCPU), "incorrect", "too_slow"),
        (SandboxResult("signal", signal.SIGSEGV), "incorrect", "died"),
        (SandboxResult("exit", 0), "incorrect", "died"),
        (SandboxResult("exit", 1), "incorrect", "died"),
        (SandboxResult("files"), "incorrect", "died"),
    ],
)  # fmt: skip
def test_only_what_a_program_did_is_its_fault(ran, label, reason):
    found = decide(
        task_of(problem(**SPLIT)),
        "def f(x): return 1",
        Recording(ran, has_begun=True),
        Sandboxing(),
    )
    assert (found.label, found.reason) == (label, reason)
