"""What a server sends, of whatever shape, as values of known types."""

from __future__ import annotations

import json

import pytest

from heavydistill.models.http.failures import (
    Redactor,
    count,
    message_of,
    parsed,
    seconds,
    status_of,
)


@pytest.mark.parametrize("data", [b"[" * 50_000, b'{"a":' * 50_000, b"[" * 50_000 + b"]" * 50_000])
def test_json_that_is_nested_too_deep_is_no_json(data):
    with pytest.raises(ValueError):
        parsed(data)


@pytest.mark.parametrize("value", [0, 7, 2**31 - 1])
def test_a_plain_integer_within_31_bits_is_a_count(value):
    assert count(value) == value


@pytest.mark.parametrize(
    "value", [-1, -5, 2**31, 10**30, True, False, 7.0, float("nan"), "7", None, [7], {"n": 7}]
)
def test_all_else_is_an_unknown_count(value):
    assert count(value) == -1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((1.5, 1.5), (2, 2.0), (-1.0, 0.0), (10**400, 0.0), (True, 0.0), ("1.5", 0.0)),
        *((float("nan"), 0.0), (float("inf"), 0.0), (None, 0.0), ([1.5], 0.0)),
    ],
)
def test_a_duration_is_finite_and_not_negative(value, expected):
    assert seconds(value) == expected


@pytest.mark.parametrize("start", [0, 480, 490, 499, 500, 510])
def test_the_key_is_replaced_before_a_text_is_cut(start):
    said = Redactor("sk-0123456789")("x" * start + "sk-0123456789" + "y" * 600)
    assert said == ("x" * start + "***" + "y" * 600)[:500]


def test_a_key_is_found_in_any_value_and_between_control_characters():
    redact = Redactor("sk-secret")
    assert redact({"keys": ["Bearer sk-secret"]}) == '{"keys": ["Bearer ***"]}'
    assert redact("sk-\x1b[31msec\u202eret") == "***"


def test_a_value_that_is_nested_too_deep_is_named():
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert Redactor()(deep) == "a list that is nested too deep"
    while deep:  # freed in one go it would overflow the stack
        (deep,) = deep


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ({"error": {"message": "no"}}, "no"),
        ({"error": {"message": "no", "code": "insufficient_quota"}}, "no (insufficient_quota)"),
        ({"error": {"message": "no", "code": 400, "type": "exceed"}}, "no (exceed)"),
        ({"error": "no", "error_type": "validation"}, "no"),
        ({"detail": [{"msg": "no"}]}, [{"msg": "no"}]),
        ("no", "no"),
        ({}, {}),
    ],
)
def test_the_message_of_an_error_is_found_however_it_is_wrapped(error, message):
    assert message_of(error) == message


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"code": 429, "status": "RESOURCE_EXHAUSTED"}, 429),
        ({"code": "402"}, 402),
        ({"code": None, "status": 503}, 503),
        ({"code": "rate_limit_exceeded", "type": "requests"}, 429),
        ({"code": None, "type": "insufficient_quota"}, 402),
        ({"type": "invalid_request_error"}, 400),
        ("rate_limit_exceeded", 429),
        *(({"code": code}, 500) for code in (True, 200, 7, -1, 10**30, [429], {}, "why", None)),
        *((error, 500) for error in ("out of memory", [], 7, True)),
    ],
)
def test_the_status_of_an_error_is_its_number_or_what_its_kind_stands_for(error, status):
    assert status_of(json.loads(json.dumps(error))) == status
