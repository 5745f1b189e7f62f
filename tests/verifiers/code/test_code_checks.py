"""Programs against assertions and functions that check, of any shape."""

from __future__ import annotations

import json

import pytest
from coding import decision, fenced, problem, said

pytestmark = pytest.mark.usefixtures("works", "nothing_left")


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
def test_assertions_as_in_mbpp(test: str, program: str, label: str) -> None:
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
def test_checks_of_any_shape_are_rehearsed(test: str, program: str, label: str) -> None:
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
def test_tests_that_cannot_be_rehearsed_are_undecided(test: str) -> None:
    assert said("def f(x): return 1", test=test, entry_point="f") == ("undecided", "unfit_tests")
