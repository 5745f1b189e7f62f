"""Programs as models write them, against tests as data sets have them."""

import json
import signal
import sys
from typing import Any

import pytest
from coding import SQUARES, decision, fenced, problem, said

from heavydistill.sandbox import SandboxResult
from heavydistill.sandbox.bubblewrap import Bubblewrap

pytestmark = pytest.mark.usefixtures("works", "nothing_left")

SUM = {"tests": [{"input": "1 2\n", "output": "3\n"}, {"input": "10 -4\n", "output": "6\n"}]}


FUNCTIONS = {
    "correct passed": [
        "def f(x): return x * x", "def f(x: int) -> int:\n    return x ** 2\nprint(f(5))",
        "f = lambda x: x * x", "import math\ndef f(x): return int(math.pow(x, 2))",
        "def g(x): return x\ndef f(x): return g(x) * x",
        "def f(x): return x * x\nif __name__ == '__main__':\n    print(f(int(input())))",
        "from dataclasses import dataclass\n@dataclass\nclass N:\n    v: int\n"
        "def f(x): return N(x).v * x",
        "memo = {}\ndef f(x):\n    memo[x] = x * x\n    return memo[x] if len(memo) == 1 else 0",
    ],
    "incorrect different": [
        "def f(x): return x + 2", "def f(x): print(x * x)", "def f(x): return str(x * x)",
        "def f(x): return [x * x]",
    ],
    "incorrect raised": [
        "def f(x): raise ValueError(x)", "def g(x): return x * x", "def f(x, y): return x * x",
        "def f(x): return f(x)", "def f(x): return 'a' * 10 ** 9",
    ],
    "incorrect not_python": [
        "def f(x) return x * x", "def f(x): return x * x\x00", "x = " + "(" * 1000 + ")" * 1000,
    ],
    "incorrect not_a_value": ["def f(x): return object()", "def f(x): yield x * x"],
    "incorrect too_large": [
        "def f(x): return 1 << 10 ** 8", "def f(x): return ['a' * 10 ** 6] * 10",
    ],
    "incorrect too_slow": ["def f(x):\n    while True: pass"],
    "incorrect exited": ["import sys\ndef f(x): sys.exit(0)"],
    "undecided types": ["def f(x): return x * x * 1.0"],
    "undecided missing_module": [
        "import pandas as pd\ndef f(x): return int(pd.Series([x * x]).sum())",
        "import nothing_of_ours.at_all\ndef f(x): return x * x",
        "import maths_\ndef f(x): return x",
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("program", "expected"),
    [(program, expected) for expected, programs in FUNCTIONS.items() for program in programs],
)
def test_verdicts_on_functions(program, expected):
    assert " ".join(said(program)) == expected


ADD = "print(sum(map(int, input().split())))"
DEEP = """
import functools, sys
sys.setrecursionlimit(10 ** 6)
{cached}
def g(n): return 0 if n == 0 else 1 + g(n - 1)
assert g({depth}) == {depth}
"""
THREAD = """
import threading
threading.stack_size(1 << {bits})
threading.Thread(target=lambda: print(sum(map(int, input().split())))).start()
"""


@pytest.mark.parametrize(
    "program",
    [
        "a, b = map(int, input().split())\nprint(a + b)",
        "import sys\nprint(sum(map(int, sys.stdin.read().split())))",
        "import sys\nfor line in sys.stdin:\n    print(sum(map(int, line.split())))",
        "import sys\ninput = sys.stdin.readline\nprint(sum(map(int, input().split())), end='')",
        "import sys\nd = sys.stdin.buffer.read().split()\n"
        "sys.stdout.buffer.write(b'%d' % sum(map(int, d)))",
        "import os\nd = os.read(0, 100)\nos.write(1, b'%d\\n' % sum(map(int, d.split())))",
        "print(sum(map(int, open(0).read().split())))",
        "print(sum(map(int, open('/dev/stdin').read().split())))",
        f"import sys\nsys.stdin = open('/dev/stdin', 'r')\n{ADD}",
        "open('t', 'w').write(input())\nprint(sum(map(int, open('t').read().split())))",
        f"def main():\n    {ADD}\nif __name__ == '__main__':\n    main()",
        f"import sys\n{ADD}\nsys.exit(0)\nprint('x')",
        f"{ADD}\nexit(0)",
        "import os\nprint(sum(map(int, input().split())), flush=True)\nos._exit(0)",
        "import os\nout = os.fdopen(1, 'w')\nout.write(str(sum(map(int, input().split()))))",
        "import atexit, io, sys\nbuffer = io.StringIO()\nsys.stdout = buffer\n"
        f"atexit.register(lambda: sys.__stdout__.write(buffer.getvalue()))\n{ADD}",
        "print(sum(map(int, input().split())), '  ')\nprint()\nprint()",
        f"import sys\nsys.stderr.write('debug')\n{ADD}",
        *(THREAD.format(bits=bits) for bits in (26, 30)),
        DEEP.format(cached="", depth=20000) + ADD,
        pytest.param(
            DEEP.format(cached="@functools.cache", depth=50000) + ADD,
            marks=pytest.mark.skipif(
                sys.version_info >= (3, 12), reason="a recursion through C has a limit of its own"
            ),
        ),
    ],
)
def test_programs_that_read_stdin_may_do_so_in_any_way(program):
    assert said(program, **SUM) == ("correct", "passed")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("a, b = map(int, input().split())\nprint(a - b)", "different"), ("print(3)", "different"),
        ("pass", "different"), (f"print('Enter:', end='')\n{ADD}", "different"),
        ("print(sum(map(int, input('> ').split())))", "different"),
        (f"{ADD}\nprint('done')", "different"), (f"print()\n{ADD}", "different"),
        ("a = input()\nb = input()\nprint(a)", "raised"), (f"{ADD}\n1 / 0", "raised"),
        (f"import sys\n{ADD}\nsys.exit(1)", "exited"), (f"import os\n{ADD}\nos._exit(3)", "exited"),
        ("while True: print('x' * 1000)", "too_large"), ("while True: pass", "too_slow"),
    ],
)  # fmt: skip
def test_programs_that_print_something_else_are_incorrect(program, reason):
    label, found = said(program, **SUM)
    assert label == "incorrect"
    assert found == reason or {found, reason} == {"too_large", "raised"}


@pytest.mark.parametrize(
    ("program", "wanted", "compare", "reason"),
    [
        ("print(1)", "1\n2\n3\n", "lines", "different"),  # a first line that is right
        ("print(1, 2, 3, sep='\\n')", "1\n2\n3\n", "lines", "passed"),
        ("print(1)\nprint(2, '', 3)", "1 2 3\n", "lines", "different"),
        ("print(1)\nprint(2, '', 3)", "1 2 3\n", "tokens", "passed"),
        ("print(1, 2)", "1 2 3\n", "tokens", "different"),
    ],
)
def test_outputs_are_compared_whole(program, wanted, compare, reason):
    assert said(program, tests=[{"input": "", "output": wanted}], compare=compare)[1] == reason


@pytest.mark.parametrize(
    ("printed", "wanted", "tolerance", "reason"),
    [
        ("0.3333333333333333", "0.33333333", None, "rounding"), ("2.5", "2.50", None, "rounding"),
        ("4", "4.0", None, "rounding"), ("a 1e-3", "a 0.001", None, "rounding"),
        ("0.33", "0.333333333", None, "different"),
        ("1.2345678901234568e+20", "123456789012345678901", None, "different"),
        ("0.9999999999", "1", None, "different"), ("1000001", "1000000", 1e-6, "different"),
        ("0.5  1", "0.50 1", None, "different"), ("nan", "0.5", None, "different"),
        ("٠.5", "0.5", None, "different"), ("0.3333333333333333", "0.33333333", 1e-6, "passed"),
        ("0.9999999999", "1", 1e-6, "passed"), ("2.5", "2.50", 0, "passed"),
        ("2.51", "2.50", 0, "different"), ("2.51", "2.50", 1e-6, "different"),
        ("2.5\n2.5", "2.5", 1e-6, "different"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("compare", ["lines", "tokens"])
def test_how_a_number_is_rounded_is_told_from_a_wrong_one(
    printed, wanted, tolerance, reason, compare
):
    if compare == "tokens" and "  " in printed:
        reason = "rounding"
    tests = [{"input": "", "output": wanted}]
    args = {"tests": tests, "tolerance": tolerance, "compare": compare}
    assert said(f"print({printed!r})", **args)[1] == reason


@pytest.mark.parametrize(
    ("value", "expected", "tolerance", "reason"),
    [
        ("0.1 + 0.2", 0.3, None, "rounding"), ("[(1, 0.1 + 0.2)]", [[1, 0.3]], None, "rounding"),
        ("{'a': 0.1 + 0.2}", {"a": 0.3}, None, "rounding"), ("0.301", 0.3, None, "different"),
        ("3.9999999999", 4, None, "different"), ("[0.1 + 0.2]", [0.3, 1], None, "different"),
        ("{'b': 0.1 + 0.2}", {"a": 0.3}, None, "different"),
        ("[0.1 + 0.2, 2]", [0.3, 1], 1e-6, "different"),
        ("[0.1 + 0.2, 1]", [0.3, 1], 1e-6, "passed"), ("3.9999999999", 4, 1e-6, "passed"),
        ("0.301", 0.3, 1e-6, "different"), ("1000001", 1000000, 1e-3, "different"),
    ],
)  # fmt: skip
def test_a_float_that_is_near_is_undecided_or_within_the_tolerance(
    value, expected, tolerance, reason
):
    tests = [{"args": [], "expected": expected}]
    args = {"tests": tests, "entry_point": "f", "tolerance": tolerance}
    assert said(f"def f():\n    return {value}", **args)[1] == reason


def test_every_test_reads_its_own_input_and_the_score_is_the_share_passed():
    tests = [{"input": f"{i}\n" * 3, "output": f"{min(i, 2)}\n"} for i in range(4)]
    found = decision(problem(tests=tests), fenced("print(input())"))
    assert (found.label, found.reason, found.score) == ("incorrect", "different", 0.75)
    first = {"test": 4, "outcome": "different", "got": '"3\\n"'}
    assert json.loads(found.evidence)["first"] == first


METHOD = "class Solution:\n    def rev(self, nums):\n        "
FUNCTION = "def rev(nums): return nums[::-1]"
REVERSED = [
    {"args": [[1, 2]], "expected": [2, 1]}, {"args": [], "kwargs": {"nums": []}, "expected": []},
    {"input": "[1, 2, 3]", "output": "[3, 2, 1]"},
]  # fmt: skip


@pytest.mark.parametrize(
    ("program", "label", "entry"),
    [
        (METHOD.replace("nums)", "nums: List[int])") + "return nums[::-1]",
         "correct", "Solution.rev"),
        (METHOD + "return tuple(reversed(nums))", "correct", "Solution.rev"),
        (METHOD + "q = deque()\n        for n in nums: q.appendleft(n)\n        return list(q)",
         "correct", "Solution.rev"),
        (METHOD + "return nums", "incorrect", "Solution.rev"),
        (METHOD + "nums.reverse()", "incorrect", "Solution.rev"),
        (FUNCTION, "incorrect", "Solution.rev"), (FUNCTION, "correct", "rev"),
        (METHOD + "return nums[::-1]", "correct", "rev"),
    ],
)  # fmt: skip
def test_functions_and_methods_are_called_as_contest_sites_do(program, label, entry):
    assert said(program, tests=REVERSED, entry_point=entry)[0] == label


def test_python_equality_is_an_option():
    program = "def f(x): return float(x * x)"
    assert said(program) == ("undecided", "types")
    assert said(program, asserts=SQUARES, equality="python") == ("correct", "passed")
    wrong = "def f(x): return float(x)"
    assert said(wrong, asserts=SQUARES, equality="python") == ("incorrect", "different")
    table = {"asserts": [*SQUARES, "assert isinstance(f(2), (int, float))"]}
    assert said(program, **table) == ("undecided", "types")
    assert said(program, **table, equality="python") == ("correct", "passed")


def test_the_same_answer_gets_the_same_decision():
    program = (
        "import random\ndef f(x):\n    names = {'a', 'b', 'c', 'd'}\n"
        "    return [random.random(), list(names), id(object) > 0]"
    )
    first, second = (decision(problem(asserts=SQUARES), fenced(program)) for _ in range(2))
    assert first == second


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[SandboxResult]:
    """What ran in the sandbox."""
    runs: list[SandboxResult] = []
    run = Bubblewrap.run

    def recorded(*args: Any) -> SandboxResult:
        runs.append(run(*args))
        return runs[-1]

    monkeypatch.setattr(Bubblewrap, "run", recorded)
    return runs


def test_one_call_without_end_takes_the_time_of_one_test_not_of_all(runs):
    asserts = [f"assert f({i}) == {i * i}" for i in range(50)]
    found = decision(
        problem(asserts=asserts),
        fenced("def f(x):\n    return sum(range(10**12))"),
        test_s=0.5,
        total_s=60.0,
    )
    assert (found.label, found.reason) == ("incorrect", "too_slow")
    assert sum(ran.cpu_s for ran in runs) < 10


def test_a_program_that_ignores_signals_has_the_time_of_one_test(runs):
    program = """
import signal
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
def f(x):
    while x: pass
    return 0
"""
    asserts = [f"assert f({i}) == {i * i}" for i in range(50)]
    found = decision(problem(asserts=asserts), fenced(program), test_s=0.5, total_s=20.0)
    assert (found.label, found.reason, found.score) == ("incorrect", "too_slow", 1 / 50)
    assert json.loads(found.evidence)["first"]["test"] == 2
    (ran,) = runs
    # Of processor time, and of some 22 that all tests together have.
    assert (ran.ended, ran.exit_code) == ("signal", signal.SIGKILL)
    assert 1 < ran.cpu_s < 5


def test_time_for_all_tests_together_is_nobodys_fault():
    tests = [{"input": str(i), "output": str(i)} for i in range(6)]
    program = "import time\nwhile time.process_time() % 0.5 < 0.45: pass\nprint(input())"
    found = decision(problem(tests=tests), fenced(program), total_s=0.2)
    assert (found.label, found.reason) == ("undecided", "out_of_time")


PAIR = "class Pair:\n    def __init__(self, a, b): self.a, self.b = a, b\n"
NEAR = ["abs(f(2) - 1.5) < 1e-6", "isclose(f(2), 1.5, abs_tol=1e-6)", "1.4 < f(2) <= 1.55"]
VALUES = [("1.5000000001", "correct"), *((value, "incorrect") for value in (1.6, "'1.5'", None))]


@pytest.mark.parametrize(
    ("test", "program", "label"),
    [
        ("set(f((3, 4), (4, 5))) == set((4,))",
         "def f(a, b): return tuple(set(a) & set(b))", "correct"),
        ("f([1, 1, 2]) == {1: 2, 2: 1}",
         "from collections import Counter\ndef f(a): return Counter(a)", "correct"),
        ("math.isclose(f(2), math.sqrt(2), rel_tol=0.001)", "def f(x): return x ** 0.5", "correct"),
        ("math.isclose(f(2), 1.41421, rel_tol=0.001)", "def f(x): return x ** 0.5", "correct"),
        ("math.isclose(f(2), 1.41421, rel_tol=0.001)", "def f(x): return 1.5", "incorrect"),
        ("f(pairs) == 3", "def f(a): return sum(a)", "correct"),
        ("f([Pair(5, 24), Pair(15, 25)], 2) == 39",
         PAIR + "def f(p, n): return p[0].b + p[1].a", "correct"),
        ("sum(10, 15) == 6", "def sum(a, b): return 6", "correct"),
        ("f(2) == None", "def f(x): pass", "correct"),
        ("f('a') == 'Valid'", "def f(s): return 'Valid' if s else 'No'", "correct"),
        ("isinstance(f(2), int)", "def f(x): return x * x", "correct"),
        ("f(2) + 1 == 5", "def f(x): return x * x", "correct"),
        ("isinstance(f(2), str)", "def f(x): return x * x", "incorrect"),
        ("all(x > 0 for x in f(3))", "def f(n): return list(range(1, n))", "correct"),
        ("f(2) is not None", "def f(x): return object()", "undecided"),
        ("f(2) < 5", "def f(x): return object()", "undecided"),
        *((test, f"def f(x): return {value}", label) for test in NEAR for value, label in VALUES),
        *((test, "def f(x): return float('nan')", "incorrect") for test in NEAR),
    ],
)  # fmt: skip
def test_assertions_as_in_mbpp(test, program, label):
    setup = {"imports": "import math", "setup": "pairs = [1, 2]"} if "pairs" in test else {}
    assert said(program, asserts=[f"assert {test}"], **setup)[0] == label


ROUND_TRIP = """
def check(candidate):
    from random import choice
    import string
    for _ in range(20):
        word = ''.join(choice(string.ascii_lowercase) for _ in range(9))
        assert candidate(encode(word)) == word
"""
TABLE = """
def assertion(out, exp, atol):
    same = out == exp
    if not same and isinstance(exp, float):
        assert abs(out - exp) <= atol
    else:
        assert same, f"{out} is not {exp}"

def check(candidate):
    inputs = [[[3, 1, 2]], [[]], [[5.0]]]
    results = [[1, 2, 3], [], [5.0]]
    for i, (inp, exp) in enumerate(zip(inputs, results)):
        assertion(candidate(*inp), exp, 1e-6)
"""
IN_PLACE = """
def check(candidate):
    given = [3, 1, 2]
    candidate(given)
    assert given == [1, 2, 3]
"""
RAISING = """
def check(candidate):
    try:
        candidate(-1)
        assert False
    except ValueError:
        pass
    assert candidate(4) == 2
"""
ENCODE = 'def encode(s):\n    return s[::-1]\n\ndef decode(s):\n    """Undo it."""\n'


ROOT = "def f(x):\n    if x < 0: raise ValueError\n    return {}(x ** 0.5)"


@pytest.mark.parametrize(
    ("test", "program", "label"),
    [
        (ROUND_TRIP, "def decode(s): return s[::-1]", "correct"),
        (ROUND_TRIP, "def decode(s): return s", "incorrect"),
        (TABLE, "def f(a): return sorted(a)", "correct"),
        (TABLE, "def f(a): return a", "incorrect"),
        (IN_PLACE, "def f(a): a.sort()", "correct"),
        (IN_PLACE, "def f(a): return sorted(a)", "incorrect"),
        (RAISING, ROOT.format("int"), "correct"),
        (RAISING, "def f(x): return int(abs(x) ** 0.5)", "incorrect"),
        (RAISING, ROOT.format("float"), "undecided"),  # equal, and of another type
        (RAISING, "def f(x): raise ValueError", "incorrect"),
    ],
)
def test_checks_of_any_shape_are_rehearsed(test, program, label):
    entry, prompt = ("decode", ENCODE) if test is ROUND_TRIP else ("f", "")
    found = decision(problem(test=test, entry_point=entry, prompt=prompt), fenced(program))
    assert (found.label, json.loads(found.evidence)["way"]) == (label, "rehearsal")


@pytest.mark.parametrize(
    "test",
    [
        "def check(candidate):\n    g = lambda x: x\n    assert candidate(g) == 1\n",
        "def check(candidate):\n    x = candidate(1)\n    assert candidate(x) == 1\n",
        "def check(candidate):\n    raise RuntimeError\n    assert candidate(1)\n",
        "def check(candidate):\n    for i in [1]:\n        candidate(i)\n",
    ],
)
def test_tests_that_cannot_be_rehearsed_are_undecided(test):
    assert said("def f(x): return 1", test=test, entry_point="f") == ("undecided", "unfit_tests")
