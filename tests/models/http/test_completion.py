"""What servers send, of any shape: values of known types, and for each sample a response or a
failure of its own, which can be kept."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heavydistill.config.models import Sampling
from heavydistill.heavy.episode import trajectory
from heavydistill.models.http.completion import ChatCompletion, failed
from heavydistill.models.http.failures import ServerFault, failure_of
from heavydistill.models.http.replies import Redactor, message_of, seconds, token_counts
from heavydistill.models.request import Request, Response, fields_of, user_turn
from heavydistill.schema import Problem, Trace, arrow_schema, to_row
from heavydistill.store.segment import FORMAT, Record, record_at

TAGS = ("<think>", "</think>")
KEY = "sk-0123456789abcdef"
REQUEST = Request(user_turn("3+4?"), Sampling(), 1)
PROBLEM = Problem(id="a", text="3+4?", reference="7", verifier="math")
SCHEMA = arrow_schema(Trace)
COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens")

_texts = st.text(st.characters(exclude_categories=()), max_size=8)
_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | _texts
    | st.sampled_from([KEY, "stop", "length", "error", "<think>", "\x1b[31m"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4),
    max_leaves=12,
)


def _object(**fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with any of these fields, each of its own or of any shape."""
    return st.fixed_dictionaries({}, optional={n: one | _json for n, one in fields.items()})


_message = _object(
    content=_texts | st.lists(_object(type=st.just("thinking"), text=_texts), max_size=3),
    reasoning_content=_texts,
    reasoning=_texts,
    reasoning_details=st.lists(_object(text=_texts), max_size=3),
    refusal=_texts,
)
_usage = _object(
    prompt_tokens=st.integers(0, 99),
    completion_tokens=st.integers(0, 99),
    total_tokens=st.integers(0, 999),
    prompt_tokens_details=_object(cached_tokens=st.integers(0, 99)),
    completion_tokens_details=_object(reasoning_tokens=st.integers(0, 999)),
)
_error = _object(
    message=_texts,
    code=st.sampled_from([402, 429, "insufficient_quota"]),
    metadata=_object(raw=_texts | st.sampled_from(['{"error": {"message": "no"}}', "[[[", "7"])),
)
_choice = _object(
    index=st.integers(0, 3),
    message=_message,
    delta=_message,
    finish_reason=st.sampled_from(["stop", "end_turn", "error", "content_filter", "odd", None]),
    usage=_usage,
    error=_error,
)
_body = _object(
    id=_texts,
    choices=st.lists(_choice | _json, max_size=4),
    usage=_usage,
    error=_error,
    model=_texts,
    provider=_texts,
    system_fingerprint=_texts,
)
_sendable = _body | _json | st.lists(_body, max_size=2)


def read(bodies: list[bytes], streams: bool, wanted: int) -> list[Response]:
    """What the client makes of these bodies: of one that is whole, or of the pieces of a stream."""
    completion = ChatCompletion(redact=Redactor(KEY))
    try:
        if streams:
            for body in bodies:
                completion.add_line(b"data: " + body)
        else:
            completion.add_whole(bodies[0])
        return completion.responses(wanted, TAGS, 0.5)
    except (ServerFault, ValueError) as fault:
        failure = failed(failure_of(fault), Redactor(KEY)(str(fault)), 0.5)
        responses = completion.before_fault(wanted, TAGS, failure)
        assert len(responses) == wanted
        return responses


def check(response: Response, folder: Any) -> None:
    """It can be journaled, read again, and written as a row."""
    assert (response.finish_reason == "error") == (response.failure is not None)
    assert (response.error is None) == (response.failure is None)
    assert all(-1 <= getattr(response, name) < 2**31 for name in COUNTS)
    assert KEY not in f"{response.error}{response.request_id}"
    line = Record("0" * 64, "m", {}, response, 1.0).line()
    path = folder / "one.segment"
    path.write_bytes(FORMAT + line)
    assert record_at(path, len(FORMAT)).response == response
    trace = Trace(problem=PROBLEM, pool=[trajectory("a", fields_of("m", REQUEST, response))])
    pa.Table.from_pylist([to_row(trace)], schema=SCHEMA)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("journal")


@given(st.lists(_sendable, min_size=1, max_size=4), st.booleans(), st.integers(1, 4))
@example([{"choices": [{"message": {"content": "7"}, "finish_reason": {"a": 1}}]}], False, 1)
@example([{"choices": [], "usage": [1, 2]}], False, 4)
@settings(max_examples=300, deadline=None)
def test_a_reply_of_any_shape_is_a_record_for_each_sample(folder, bodies, streams, wanted):
    responses = read([json.dumps(body).encode() for body in bodies], streams, wanted)
    assert 1 <= len(responses) <= wanted
    for response in responses:
        check(response, folder)


def completion(*choices: Any, **more: Any) -> list[bytes]:
    return [json.dumps({"id": "r", "choices": choices, **more}).encode()]


def choice(content: Any = "7", **more: Any) -> dict[str, Any]:
    return {"finish_reason": "stop", "message": {"content": content}, **more}


def nested(depth: int, key: str, inside: bytes) -> bytes:
    return f'{{"{key}":'.encode() * depth + inside + b"}" * depth


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    "body", [b"[" * 50_000, nested(50_000, "a", b"1"), b"\xff\xfe", b"", b"7", b"null", b"[]"]
)
def test_a_body_that_is_no_completion_fails_every_sample(body, streams):
    assert [r.failure for r in read([body], streams, 3)] == ["malformed"] * 3


def test_a_text_is_read_however_deep_it_lies(folder):
    body = b'{"choices": [{"finish_reason": "stop", "message": {"content": %s}}]}'
    (response,) = read([body % nested(400, "text", b'"7"')], False, 1)
    assert response.answer_text == "7"
    check(response, folder)
    (response,) = read([body % nested(50_000, "text", b'"7"')], False, 1)
    assert response.failure == "malformed" and "nested too deep" in response.error
    for content in (7, True, [7], [["a"], None, False]):
        (response,) = read(completion(choice(content)), False, 1)
        assert response.failure == "malformed" and response.answer_text == ""


@pytest.mark.parametrize("broken", [None, "x", 7, {}, {"message": None}, {"message": ["7"]}])
def test_a_choice_that_cannot_be_read_costs_its_own_sample_alone(broken):
    responses = read(completion(choice("6"), broken, choice("8")), False, 3)
    assert [r.answer_text for r in responses] == ["6", "", "8"]
    assert [r.failure for r in responses] == [None, "malformed", None]


@pytest.mark.parametrize(
    "indices", [(0, "1", 2), (None, 1, 1), (True, 0, 1), (0, 1.0, [2]), (0, 0, 0), (5, 7, 9)]
)
def test_choices_of_one_list_are_told_by_their_places_whatever_their_indices(indices):
    choices = [choice(str(n), index=index) for n, index in enumerate(indices)]
    assert [r.answer_text for r in read(completion(*choices), False, 3)] == ["0", "1", "2"]
    in_order = [choice(str(index), index=index) for index in (2, 0, 1)]
    assert [r.answer_text for r in read(completion(*in_order), False, 3)] == ["0", "1", "2"]


@pytest.mark.parametrize("index", ["0", True, 0.5, [0]])
def test_a_piece_of_a_stream_whose_index_is_no_number_spoils_what_has_not_ended(index):
    first = completion({"index": 0, "delta": {"content": "7"}, "finish_reason": "stop"})
    second = completion({"index": index, "delta": {"content": "8"}})
    responses = read(first + second, True, 2)
    assert [r.failure for r in responses] == [None, "malformed"]


@pytest.mark.parametrize("usage", [[1, 2], "x", 7, None, {"prompt_tokens_details": [1]}])
def test_usage_of_any_shape_is_unknown(usage):
    (response,) = read(completion(choice(), usage=usage), False, 1)
    assert [getattr(response, name) for name in COUNTS] == [-1, -1, -1]
    assert response.answer_text == "7"


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        # Thinking is part of the completion (OpenAI), beside it and in the total (xAI, Gemini),
        # beside it alone, or in the total alone.
        ({"completion_tokens": 481, "total_tokens": 492, "reasoning": 469}, (11, 481, -1)),
        ({"completion_tokens": 12, "total_tokens": 492, "reasoning": 469}, (11, 481, -1)),
        ({"completion_tokens": 12, "total_tokens": 23, "reasoning": 469}, (11, 481, -1)),
        ({"completion_tokens": 12, "total_tokens": 492}, (11, 481, -1)),
        ({"total_tokens": 492}, (11, 481, -1)),
        ({"completion_tokens": 12, "total_tokens": 3}, (11, 12, -1)),
        # No server reads a prompt of no tokens.
        ({"prompt_tokens": 0, "completion_tokens": 12, "total_tokens": 12}, (-1, 12, -1)),
        ({"completion_tokens": 12, "prompt_cache_hit_tokens": 4}, (11, 12, 4)),
    ],
)
@pytest.mark.parametrize("place", ["body", "choice"])
def test_all_tokens_that_are_billed_are_counted_wherever_they_stand(usage, counts, place):
    usage = {"prompt_tokens": 11, **usage}
    if (thought := usage.pop("reasoning", None)) is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": thought}
    assert token_counts(usage) == counts
    # Moonshot's API has the usage of a stream in the choice that ends.
    body = (
        completion(choice(usage=usage)) if place == "choice" else completion(choice(), usage=usage)
    )
    (response,) = read(body, False, 1)
    assert tuple(getattr(response, name) for name in COUNTS) == counts


def test_the_usages_of_several_choices_are_added():
    usage = {"prompt_tokens": 11, "completion_tokens": 5}
    responses = read(completion(*(choice(f"{n}", usage=usage) for n in (6, 8))), False, 2)
    assert sum(r.completion_tokens for r in responses) == 10
    assert responses[0].prompt_tokens == 11


@pytest.mark.parametrize(
    ("text", "tokens", "counted"),
    [("7" * 2400, 12, -1), ("7" * 2400, 600, 600), ("7", 0, -1), ("", 0, 0), ("7" * 90, 3, 3)],
)
def test_a_count_of_fewer_tokens_than_a_text_can_have_is_unknown(text, tokens, counted):
    usage = {"prompt_tokens": 11, "completion_tokens": tokens}
    (response,) = read(completion(choice(text), usage=usage), False, 1)
    assert response.completion_tokens == counted


@pytest.mark.parametrize("streams", [False, True])
def test_a_tag_that_the_parser_of_a_server_left_before_the_thinking_is_none_of_it(streams):
    part = "delta" if streams else "message"
    said = {part: {"content": "7", "reasoning": "<think>\n3 + 4"}, "finish_reason": "stop"}
    (response,) = read(completion(said), streams, 1)
    assert (response.reasoning, response.answer_text) == ("\n3 + 4", "7")


def test_who_answered_is_read_from_the_reply():
    names = {"model": "glm-4.6-fp8", "provider": "DeepInfra", "system_fingerprint": "fp_1"}
    for streams in (False, True):
        bodies = completion(choice(delta={"content": "7"}), **names)
        (response,) = read(bodies, streams, 1)
        named = response.served_model, response.host, response.system_fingerprint
        assert named == tuple(names.values())
    (response,) = read(completion(choice(), model=KEY, provider=[KEY]), False, 1)
    assert (response.served_model, response.host) == ("***", '["***"]')


def test_copies_among_the_samples_of_one_call_are_left_out_where_no_chance_explains_them():
    long, other = choice("7" * 300), choice("8" * 300)
    assert len(read(completion(long, other, long, other), False, 4)) == 2
    assert len(read(completion(*[choice("7")] * 2, choice("8")), False, 3)) == 3


# --- Values.


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
        # Gemini's list, and what the host behind OpenRouter said, as text or JSON.
        ([{"error": {"message": "no", "status": "INVALID"}}], "no"),
        ({"error": {"message": "no", "metadata": {"raw": "min_p is odd"}}}, "no: min_p is odd"),
        (
            {"message": "no", "metadata": {"raw": '{"error": {"message": "odd", "type": "bad"}}'}},
            "no: odd (bad)",
        ),
        ({"message": "no", "metadata": {"raw": {"message": "odd"}}}, "no: odd"),
        ({"message": "no", "metadata": {"raw": "[1, 2]"}}, "no: [1, 2]"),
        ({"message": "no", "metadata": {"raw": [7]}}, "no"),
    ],
)
def test_the_message_of_an_error_is_found_however_it_is_wrapped(error, message):
    assert message_of(error) == message
