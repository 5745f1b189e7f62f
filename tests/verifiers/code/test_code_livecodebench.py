"""Programs against tests of LiveCodeBench, judged as by its own grader."""

import json

import pytest
from coding import decision, fenced, problem
from hypothesis import given
from hypothesis import strategies as st

from heavydistill.verifiers.code.livecodebench import outputs_agree, values_agree
from heavydistill.verifiers.code.running import _MODULES, prelude
from heavydistill.verifiers.code.values import tree_of

pytestmark = pytest.mark.usefixtures("works", "nothing_left")
LIKE = {"judged_like": "livecodebench"}
ADD = "a, b = map(int, input().split())\n"
DEEP = "def g(n): return n if n == 0 else 1 + g(n - 1)\n"
# What a program needs besides the rules: numpy is large, and 5,000 calls take a little time.
ROOM = {"memory_mb": 512, "test_s": 6.0, "total_s": 20.0}


def of_program(program: str, given: str = "1 2\n", wanted: str = "3\n", **args: str):
    tests = json.dumps([{"input": given, "output": wanted, "testtype": "stdin"}])
    return _verdict(program, public_test_cases=tests, **args)


def of_function(program: str, wanted: str, **args: str):
    tests = json.dumps([{"input": "2", "output": wanted, "testtype": "functional"}])
    return _verdict(program, public_test_cases=tests, entry_point="Solution.f", **args)


def _verdict(program: str, **args: str):
    found = decision(problem(**args), fenced(program), **ROOM)
    return f"{found.label} {found.reason}"


def method(body: str) -> str:
    return f"class Solution:\n    def f(self, x):\n        return {body}\n"


# (program, input, output, verdict without the rules)
PROGRAMS = [
    (f"{ADD}print(sum(deque([a, b])))", "1 2\n", "3\n", "incorrect raised"),
    (f"{ADD}print(min(inf, a + b))", "1 2\n", "3\n", "incorrect raised"),
    (f"{ADD}print(math.gcd(a + b, 0))", "1 2\n", "3\n", "incorrect raised"),
    ("print(sum(map(int, sys.stdin.read().split())))", "1 2\n", "3\n", "incorrect raised"),
    (f"{DEEP}print(g(int(input())))", "5000\n", "5000\n", "incorrect raised"),
    ("print(len(str(2**20000)))", "", "6021\n", "incorrect raised"),
    (f"{ADD}print(a + b)\nexit(1)", "1 2\n", "3\n", "incorrect exited"),
    (f"{ADD}print((a + b) / 1)", "2 4\n", "6\n", "undecided rounding"),
    (f"{ADD}print(f'{{(a + b) / 2:.2f}}')", "2 3\n", "2.5\n", "undecided rounding"),
]
METHODS = [("x - 1.0", "1", "undecided types"), ("x > 1", "1", "undecided types")]


@pytest.mark.parametrize(("program", "given", "wanted", "otherwise"), PROGRAMS)
def test_a_program_is_right_as_there(program, given, wanted, otherwise):
    assert of_program(program, given, wanted, **LIKE) == "correct passed"
    assert of_program(program, given, wanted) == otherwise


@pytest.mark.parametrize(("body", "wanted", "otherwise"), METHODS)
def test_a_returned_value_is_right_as_there(body, wanted, otherwise):
    assert of_function(method(body), wanted, **LIKE) == "correct passed"
    assert of_function(method(body), wanted) == otherwise


@pytest.mark.parametrize("like", [LIKE, {}])
def test_numpy_is_there_and_a_tuple_is_a_list(like):
    numpy = "import numpy as np\n{}"
    assert of_program(f"{numpy.format(ADD)}print(np.sum([a, b]))", **like) == "correct passed"
    summed = numpy.format(method("np.arange(x + 1).sum()"))
    assert of_function(summed, "3", **like) == "correct passed"
    assert of_function(method("(x, 1)"), "[2, 1]", **like) == "correct passed"


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        (f"{ADD}print(a - b)\nexit(1)", "incorrect different"),
        (f"{ADD}print(a + b + 1e-9)", "incorrect different"),
        (f"{ADD}print(a, b)", "incorrect different"),
        (f"{ADD}print(a + b)\n1 / 0", "incorrect raised"),
        (f"{ADD}print(nobody_knows)", "incorrect raised"),
        (f"{DEEP}print(g(10**6))", "incorrect raised"),
        ("print(2**10**6)", "incorrect raised"),
        ("import os_of_nobody", "undecided missing_module"),
    ],
)
def test_what_is_wrong_there_is_wrong(program, verdict):
    assert of_program(program, **LIKE) == verdict


@pytest.mark.parametrize(
    ("program", "wanted", "verdict"),
    [
        (method("x / 20"), "0.1", "correct passed"),
        (method("0.1 + 0.2"), "0.3", "incorrect different"),
        (method("[(x, 1)]"), "[[2, 1]]", "incorrect different"),
        (method("{x}"), "[2]", "incorrect different"),
        (method("str(x)"), "2", "incorrect different"),
        (method("exit(0)"), "2", "incorrect exited"),
        (method("Counter([x])"), '{"2": 1}', "incorrect different"),
        (method("list(accumulate([x, 1]))"), "[2, 3]", "correct passed"),
        ("def f(x): return x", "2", "correct passed"),
    ],
)
def test_values_are_compared_as_python_compares_them(program, wanted, verdict):
    assert of_function(program, wanted, **LIKE) == verdict


# The reference of the rule on outputs is the grader's description in the module.
@pytest.mark.parametrize(
    ("given", "wanted", "agree"),
    [
        ("6.0", "6", True), ("2.50", "2.5", True), ("1e3 2", "1000 2.0", True), ("-0", "0", True),
        ("\n 3 \n4\n\n", "3\n4", True), ("  yes", "yes", True), ("3", "3\n\n4", False),
        ("a 6.0", "a 6", False), ("3 4", "34", False), ("3  4", "3 4", True), ("", "\n", True),
        ("a  b", "a b", False), ("nan", "nan", True), ("nan 1", "nan 1.0", False),
        ("snan", "1", False), ("1e99999999999999999999", "1", False), ("Yes", "YES", False),
        ("50000000000000000", "50000000000000001", False), ("0.30000000000000004", "0.3", False),
        ("1" * 5000, "1" * 5000 + ".0", True),
    ],
)  # fmt: skip
def test_lines_are_compared_as_decimals(given, wanted, agree):
    assert outputs_agree(given, wanted) is agree


@given(st.lists(st.integers() | st.floats(allow_nan=False) | st.text(max_size=5), max_size=4))
def test_a_value_agrees_with_itself(value):
    assert values_agree(tree_of(tuple(value)), tree_of(value))


def test_names_come_from_the_module_that_is_imported_last():
    names = "Counter pow sub time sqrt deque count random mean stdin dumps e"
    there: dict[str, object] = {}
    exec(prelude(names), there)
    full: dict[str, object] = {}
    exec("".join(f"from {module} import *\n" for module in _MODULES), full)
    full["random"] = there["random"]  # the module comes last
    assert {name: there[name] for name in names.split()} == {
        name: full[name] for name in names.split()
    }
    assert prelude("x y z") == "from builtins import *"
