import ast

import pytest

from heavydistill.verifiers.code.asserts import program_names, split
from heavydistill.verifiers.code.values import tree_of


@pytest.mark.parametrize(
    ("test", "call", "right"),
    [
        ("f(2) == 4", "f(2)", 4), ("4 == f(2)", "f(2)", 4), ("f(2) == -1.5", "f(2)", -1.5),
        ("f([1, 2], k='a') == (1, 2)", "f([1, 2], k='a')", (1, 2)),
        ("f(f(2)) == 16", "f(f(2))", 16),
        ("sorted(f(2), reverse=True) == [1]", "sorted(f(2), reverse=True)", [1]),
        ("set(f(2)) == set([1])", "set(f(2))", {1}), ("len(f(2)) == 3", "len(f(2))", 3),
        ("round(f(2), 3) == 1.414", "round(f(2), 3)", 1.414), ("f(2) == None", "f(2)", None),
        ("Stack().pop() == {'a': []}", "Stack().pop()", {"a": []}),
        ("f(2) == float('inf')", "f(2)", float("inf")), ("f(2) == set()", "f(2)", set()),
    ],
)  # fmt: skip
def test_a_call_is_sent_and_the_right_value_stays(test, call, right):
    node = ast.parse(test, mode="eval").body
    assert split(node, ["f", "g", "Stack"]) == (call, tree_of(right))


@pytest.mark.parametrize(
    "test",
    [
        "True", "1 == 1", "same(f(2), 4)", "np.allclose(f(2), [4])", "math.floor(f(2)) == 4",
        "f(2)", "not f(2)", "f(2) is None", "f(2) != 4", "f(2) in [1]", "f(2) == 4 and f(3) == 9",
        "f(2).startswith('ab')", "isinstance(f(2), int)", "type(f(2)) == int", "f(2) == g(4)",
        "all(x > 0 for x in f(2))", "bool(f(2)) == 1", "max(f(2), 4) == 4", "f(2) + 1 == 5",
        "f(2) == expected", "f(2) == [x for x in range(3)]", "f(2) <= {1, 2}", "1 == f(2) == 1",
        "f(2) == 9 ** 9 ** 9", "f(2) == 'a' * 10 ** 9", "f(2) == {[]}", "abs(f(2) - 1.5) < 1e-6",
        "math.isclose(f(2), 1.5)", "(lambda: f(2))() == 4", "f(2) == f()", "f(2) == 1 / 0",
        "f(2) == float('one')", "f(2) == -'a'",
    ],
)  # fmt: skip
def test_all_else_is_rehearsed_and_no_constant_is_run(test):
    assert split(ast.parse(test, mode="eval").body, ["f", "g", "Stack"]) is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("f(2) == 4", ["f"]), ("f([Pair(1, 2)]) == 1", ["f", "Pair"]),
        ("math.isclose(f(2), 1)", ["f"]), ("set(f(2)) == set([1])", ["f"]),
        ("sum(10, 15) == 6", ["sum"]), ("set(sum(10, 15)) == 6", ["sum"]),
        ("helper(f(2)) == 1", ["f"]), ("Solution().run(1) == 1", ["Solution"]),
    ],
)  # fmt: skip
def test_the_programs_names_are_those_that_tests_do_not_bring(text, names):
    tree = ast.parse(text, mode="eval").body
    assert sorted(program_names([tree], {"helper"})) == sorted(names)
