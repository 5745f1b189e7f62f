from __future__ import annotations

import ast
from typing import Any

import pytest

from heavydistill.verifiers.code.asserts import Case, Unsplittable, constant, program_names, split
from heavydistill.verifiers.code.values import tree_of


def parts(text: str) -> Case:
    return split(ast.parse(text, mode="eval").body, ["f", "g", "Stack"])


def found(text: str, *values: Any) -> str:
    return parts(text).holds([tree_of(value) for value in values])


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("f(2) == 4", ["f(2)"]), ("4 == f(2)", ["f(2)"]),
        ("f([1, 2], k='a') == (1, 2)", ["f([1, 2], k='a')"]), ("f(2)", ["f(2)"]),
        ("not f(2)", ["f(2)"]), ("f(2) is None", ["f(2)"]), ("f(2) in [1, 4]", ["f(2)"]),
        ("3 in f(2)", ["f(2)"]), ("sorted(f(2)) == [1]", ["sorted(f(2))"]),
        ("sorted(f(2), reverse=True) == [1]", ["sorted(f(2), reverse=True)"]),
        ("set(f(2)) == {1}", ["set(f(2))"]), ("list(f(2)) == [1]", ["list(f(2))"]),
        ("len(f(2)) == 3", ["len(f(2))"]), ("round(f(2), 3) == 1.414", ["round(f(2), 3)"]),
        ("f(2)[0] == 1", ["f(2)[0]"]), ("f(2) == g(4)", ["f(2)", "g(4)"]),
        ("f(2) == 4 and f(3) == 9", ["f(2)", "f(3)"]), ("f(f(2)) == 16", ["f(f(2))"]),
        ("Stack().pop() == None", ["Stack().pop()"]), ("f(2) == 2.0 / 3.0", ["f(2)"]),
        ("f(2) == float('inf')", ["f(2)"]), ("f(2) == set()", ["f(2)"]),
        ("f(2) == 10 ** 12 + 7", ["f(2)"]),
    ],
)  # fmt: skip
def test_only_calls_are_sent(text: str, calls: list[str]) -> None:
    assert [call["source"] for call in parts(text).calls] == calls


@pytest.mark.parametrize(
    "text",
    [
        "True", "1 == 1", "same(f(2), 4)", "np.allclose(f(2), [4])", "math.floor(f(2)) == 4",
        "f(2).startswith('ab')", "isinstance(f(2), int)", "type(f(2)) == int",
        "all(x > 0 for x in f(2))", "bool(f(2))", "max(f(2), 4) == 4", "f(2) + 1 == 5",
        "f(2) == expected", "f(2) == [x for x in range(3)]", "f(2) <= {1, 2}", "1 < f(2) < 3",
        "f(2) == 9 ** 9 ** 9", "f(2) == 'a' * 10 ** 9", "f(2) == {[]}", "abs(f(2) - 1.5) < 1e-6",
        "math.isclose(f(2), 1.5)", "(lambda: f(2))() == 4",
    ],
)  # fmt: skip
def test_what_is_right_never_goes_with_a_call(text: str) -> None:
    with pytest.raises(Unsplittable):
        parts(text)


@pytest.mark.parametrize(
    ("text", "values", "truth"),
    [
        ("f(2) == 4", [4], "yes"), ("f(2) == 4", [5], "no"), ("f(2) == 4", [4.0], "types"),
        ("f(2) == True", [1], "types"), ("f(2) == [1, 2]", [(1, 2)], "no"),
        ("f(2) == (1,)", [[1]], "no"), ("f(2) != 4", [5], "yes"), ("f(2) != 4", [4], "no"),
        ("f(2) != 4", [4.0], "no"), ("f(2) is True", [True], "yes"), ("f(2) is True", [1], "no"),
        ("f(2) is not None", [0], "yes"), ("f(2) is None", [None], "yes"), ("f(2)", [[0]], "yes"),
        ("f(2)", [[]], "no"), ("f(2)", [{}], "no"), ("f(2)", [""], "no"), ("f(2)", [0.0], "no"),
        ("not f(2)", [None], "yes"), ("not f(2)", ["False"], "no"),
        ("f(2) in [1, 4]", [4], "yes"), ("f(2) in [1, 4]", [4.0], "types"),
        ("f(2) in [1, 4]", [3], "no"), ("f(2) not in [1, 4]", [3], "yes"),
        ("f(2) in 'abc'", ["b"], "yes"), ("f(2) in 'abc'", [1], "no"),
        ("3 in f(2)", [{3: 1}], "yes"), ("3 in f(2)", ["3"], "no"),
        ("f(2) == 4 and f(3) == 9", [4, 8], "no"), ("f(2) == 4 and f(3) == 9", [4, 9.0], "types"),
        ("f(2) == 4 or f(3) == 9", [5, 9], "yes"), ("f(2) == g(2)", [[1], [1]], "yes"),
        ("f(2) == float('nan')", [float("nan")], "yes"), ("f(2) == {1, 2}", [{2, 1}], "yes"),
        ("f(2) == {1, 2}", [[1, 2]], "no"), ("f(2) == {'a': 1}", [{"a": 1}], "yes"),
    ],
)  # fmt: skip
def test_a_condition_is_decided_on_the_values(text: str, values: list[Any], truth: str) -> None:
    assert found(text, *values) == truth


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("f(2) == 4", True), ("f(2) in [4]", True), ("f(2) is None", True), ("f(2)", False),
        ("not f(2)", False), ("f(2) != 4", False), ("f(2) is not None", False),
        ("4 in f(2)", False),
    ],
)  # fmt: skip
def test_an_object_fails_only_where_it_must_be_a_value(text: str, needed: bool) -> None:
    assert parts(text).needs_values is needed


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("f(2) == 4", ["f"]), ("f([Pair(1, 2)]) == 1", ["f", "Pair"]),
        ("math.isclose(f(2), 1)", ["f"]), ("set(f(2)) == set([1])", ["f"]),
        ("sum(10, 15) == 6", ["sum"]), ("set(sum(10, 15)) == 6", ["sum"]),
        ("helper(f(2)) == 1", ["f"]), ("Solution().run(1) == 1", ["Solution"]),
    ],
)  # fmt: skip
def test_the_programs_names_are_those_that_tests_do_not_bring(text: str, names: list[str]) -> None:
    tree = ast.parse(text, mode="eval").body
    assert sorted(program_names([tree], {"helper"})) == sorted(names)


@pytest.mark.parametrize("text", ["10 ** 10 ** 10", "x", "f()", "[1] * 10**9", "1 / 0", "-'a'"])
def test_a_constant_is_never_run(text: str) -> None:
    with pytest.raises(Unsplittable):
        constant(ast.parse(text, mode="eval").body)
