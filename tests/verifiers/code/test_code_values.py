import enum
import json
import math
from collections import Counter, OrderedDict, defaultdict, namedtuple
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavydistill.verifiers.code.inside.serialize import EncodeError, TooLarge, decode, encode
from heavydistill.verifiers.code.values import Malformed, likeness, number, parsed, tree_of

MOST = 100_000
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.fractions()
)
HASHABLE = PLAIN | st.tuples(PLAIN, PLAIN) | st.frozensets(PLAIN, max_size=3)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(HASHABLE, inner, max_size=4)
        | st.sets(HASHABLE, max_size=4)
    ),
    max_leaves=10,
)
Point = namedtuple("Point", "x y")


class Level(enum.IntEnum):
    LOW = 1


class Liar(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __repr__(self) -> str:
        return "42"

    __hash__ = int.__hash__
    __str__ = __format__ = __repr__  # type: ignore[assignment]


class LyingText(str):
    def __str__(self) -> str:
        return "right"


class LyingList(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        return iter([1, 2, 3])


class LyingDict(dict):  # type: ignore[type-arg]
    def items(self) -> Any:
        return [("right", 1)]


@given(VALUES)
def test_a_value_travels_and_stays_what_it_is(value):
    tree = json.loads(encode(value, MOST))
    back = decode(tree)
    assert back == value
    assert type(back) is type(value)
    assert likeness(tree, tree_of(value)) == "same"


@given(VALUES, VALUES)
def test_likeness_is_equality_in_python(left, right):
    found = likeness(tree_of(left), tree_of(right))
    assert (found in ("same", "alike")) == (left == right)
    assert found == likeness(tree_of(right), tree_of(left))


@pytest.mark.parametrize(
    ("left", "right", "found"),
    [
        (1, 1.0, "alike"), (1, True, "alike"), (0, False, "alike"),
        ([1, [2]], [1, [2.0]], "alike"), ({1: "a"}, {True: "a"}, "alike"),
        ({1, 2}, {1.0, 2}, "alike"), (0.5, Fraction(1, 2), "alike"),
        (0.5, Decimal("0.5"), "alike"), (Decimal("1.0"), Decimal("1.00"), "same"),
        (1, complex(1, 0), "alike"), (2**70, float(2**70), "alike"),
        (2**70, 2**70 + 1, "different"), (0.1, Decimal("0.1"), "close"),
        (0.1 + 0.2, 0.3, "close"), ({1: [0.1 + 0.2]}, {1: [0.3]}, "close"),
        ({0.1 + 0.2}, {0.3}, "different"), (0.3001, 0.3, "different"), (1e-8, 0.0, "different"),
        (math.nan, 0.3, "different"), (1 + 1e-9, 1, "different"), ([1], (1,), "different"),
        ("1", 1, "different"), (None, 0, "different"), (None, False, "different"),
        (b"a", "a", "different"), ({1, 2}, {2, 1}, "same"), ({1: 2, 3: 4}, {3: 4, 1: 2}, "same"),
        ([1, 2], [2, 1], "different"), ([], {}, "different"), (math.nan, math.nan, "same"),
        ([math.inf], [math.inf], "same"), (math.inf, -math.inf, "different"), (0.0, -0.0, "same"),
        ("a", "a ", "different"), ({1: [1]}, {1: [2]}, "different"),
    ],
)  # fmt: skip
def test_types_and_values_are_told_apart(left, right, found):
    assert likeness(tree_of(left), tree_of(right)) == found


def test_tuples_may_count_as_lists():
    left, right = tree_of([(1, 2), [3]]), tree_of(([1, 2], (3,)))
    assert likeness(left, right, tuples_are_lists=True) == "same"
    assert likeness(left, right) == "different"


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Counter("aab"), {"a": 2, "b": 1}), (defaultdict(int, a=1), {"a": 1}),
        (OrderedDict(a=1), {"a": 1}), (Point(1, 2), (1, 2)), (Level.LOW, 1), (Liar(7), 7),
        (LyingText("wrong"), "wrong"), (LyingList([9]), [9]), (LyingDict(wrong=1), {"wrong": 1}),
    ],
)  # fmt: skip
def test_of_a_subclass_travels_what_it_is_not_what_it_says(value, plain):
    assert decode(json.loads(encode(value, MOST))) == plain


@pytest.mark.parametrize(
    "value", [object(), len, int, iter([1]), range(3), [object()], {1: object()}, (x for x in "a")]
)
def test_nothing_else_travels(value):
    with pytest.raises(EncodeError):
        encode(value, MOST)


def nested_in_itself() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


def doubled(times: int) -> Any:
    value: Any = [0]
    for _ in range(times):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        nested_in_itself(), doubled(60), 2 ** (8 * MOST), "a" * (MOST + 1), [0] * MOST,
        set(range(MOST)), b"a" * (MOST + 1), Decimal("1E+100000"),
    ],
    ids=["loop", "doubled", "integer", "text", "list", "set", "bytes", "decimal"],
)  # fmt: skip
def test_what_is_too_large_is_refused_before_it_is_written(value):
    with pytest.raises(TooLarge):
        encode(value, MOST)


FORGED = [
    b"", b"{}", b"nope", b"[" * 100_000, b"9" * 5000, b"[]", b"[[]]", b'["d",1]', b'["x",1]',
    b'["i","zz"]', b'["i",["l"]]', b'["q",1,0]', b'["q",["d",1,1],1]', b'["D","1E+999999999"]',
    b'["D","sNaN!"]', b'["b","0"]', b'["c"]', b'["F",{}]',
]  # fmt: skip


@pytest.mark.parametrize("payload", FORGED)
def test_forged_values_are_malformed_or_equal_nothing(payload):
    try:
        tree = parsed(payload)
        assert likeness(tree, tree_of(4)) == "different"
        number(tree)
    except Malformed:
        return
    assert payload == b'["l"]'


def test_a_set_whose_hashes_collide_costs_no_time():
    colliding = ["s", *(["i", hex(i * (2**61 - 1))] for i in range(20_000))]
    assert likeness(colliding, tree_of({1})) == "different"
