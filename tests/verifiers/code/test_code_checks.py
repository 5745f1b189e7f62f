"""Programs against assertions and functions that check, of any shape."""

from __future__ import annotations

import json

import pytest
from coding import decision, fenced, problem, said

pytestmark = pytest.mark.usefixtures("works")


@pytest.mark.parametrize(
    ("asserts", "more", "program", "label"),
    [
        (
            ["assert set(f((3, 4), (4, 5))) == set((4,))"],
            {},
            "def f(a, b): return tuple(set(a) & set(b))",
            "correct",
        ),
        (
            ["assert f([1, 1, 2]) == {1: 2, 2: 1}"],
            {},
            "from collections import Counter\ndef f(a): return Counter(a)",
            "correct",
        ),
        (
            ["assert math.isclose(f(2), math.sqrt(2), rel_tol=0.001)"],
            {"imports": "import math"},
            "def f(x): return x ** 0.5",
            "correct",
        ),
        (
            ["assert math.isclose(f(2), 1.41421, rel_tol=0.001)"],
            {"imports": "import math"},
            "def f(x): return x ** 0.5",
            "correct",
        ),
        (
            ["assert math.isclose(f(2), 1.41421, rel_tol=0.001)"],
            {},
            "def f(x): return 1.5",
            "incorrect",
        ),
        (
            ["assert f(pairs) == 3"],
            {"setup": "pairs = [1, 2]"},
            "def f(a): return sum(a)",
            "correct",
        ),
        (
            ["assert f([Pair(5, 24), Pair(15, 25)], 2) == 39"],
            {},
            "class Pair:\n    def __init__(self, a, b): self.a, self.b = a, b\n"
            "def f(p, n): return p[0].b + p[1].a",
            "correct",
        ),
        (["assert sum(10, 15) == 6"], {}, "def sum(a, b): return 6", "correct"),
        (["assert f(2) == None"], {}, "def f(x): pass", "correct"),
        (["assert f('a') == 'Valid'"], {}, "def f(s): return 'Valid' if s else 'No'", "correct"),
        (
            ["assert isinstance(f(2), int)", "assert f(2) + 1 == 5"],
            {},
            "def f(x): return x * x",
            "correct",
        ),
        *(
            ([f"assert {near}"], {}, f"def f(x): return {value}", label)
            for near in (
                "abs(f(2) - 1.5) < 1e-6",
                "isclose(f(2), 1.5, abs_tol=1e-6)",
                "1.4 < f(2) <= 1.55",
            )
            for value, label in [
                ("1.5000000001", "correct"),
                ("1.6", "incorrect"),
                ("float('nan')", "incorrect"),
                ("'1.5'", "incorrect"),
                ("None", "incorrect"),
            ]
        ),
        (["assert isinstance(f(2), str)"], {}, "def f(x): return x * x", "incorrect"),
        (["assert all(x > 0 for x in f(3))"], {}, "def f(n): return list(range(1, n))", "correct"),
        (["assert f(2) is not None"], {}, "def f(x): return object()", "undecided"),
    ],
)
def test_assertions_as_in_mbpp(
    asserts: list[str], more: dict[str, str], program: str, label: str
) -> None:
    assert said(program, asserts=asserts, **more)[0] == label


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


@pytest.mark.parametrize(
    ("test", "entry", "prompt", "program", "label"),
    [
        (ROUND_TRIP, "decode", ENCODE, "def decode(s): return s[::-1]", "correct"),
        (ROUND_TRIP, "decode", ENCODE, "def decode(s): return s", "incorrect"),
        (TABLE, "f", "", "def f(a): return sorted(a)", "correct"),
        (TABLE, "f", "", "def f(a): return a", "incorrect"),
        (IN_PLACE, "f", "", "def f(a): a.sort()", "correct"),
        (IN_PLACE, "f", "", "def f(a): return sorted(a)", "incorrect"),
        (
            RAISING,
            "f",
            "",
            "def f(x):\n    if x < 0: raise ValueError\n    return int(x ** 0.5)",
            "correct",
        ),
        (RAISING, "f", "", "def f(x): return int(abs(x) ** 0.5)", "incorrect"),
        (
            RAISING,
            "f",
            "",
            "def f(x):\n    if x < 0: raise ValueError\n    return x ** 0.5",
            "undecided",
        ),
        (RAISING, "f", "", "def f(x): raise ValueError", "incorrect"),
    ],
)
def test_checks_of_any_shape_are_rehearsed(
    test: str, entry: str, prompt: str, program: str, label: str
) -> None:
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
