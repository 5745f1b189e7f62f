"""What is read from between the bytes of an earlier event is what JSON says."""

import json
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heavydistill.models.http import completion
from heavydistill.models.http.completion import ChatCompletion
from heavydistill.models.http.events import RepeatedEvent

TEXTS = st.text() | st.sampled_from(['"', "\\", '\\"content":"', 'a"}', "\ud83d\ude00", "\n", "{}"])
FIELDS = st.sampled_from(["content", "reasoning", "reasoning_content", "refusal"])
PIECES = st.fixed_dictionaries(
    {"index": st.integers(0, 1), "delta": st.dictionaries(FIELDS, TEXTS | st.none(), max_size=2)},
    optional={"finish_reason": st.sampled_from([None, "stop"])},
)
WAYS = st.fixed_dictionaries(
    {"separators": st.sampled_from([(",", ":"), (", ", ": ")]), "ensure_ascii": st.booleans()}
)


def line(choice: dict[str, Any], ends: bytes = b"\r\n\n", **way: Any) -> bytes:
    """One event of a stream; its id and time repeat."""
    body = {"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice]}
    return f"data: {json.dumps(body, **way)}".encode(errors="surrogatepass") + ends


def read(lines: list[bytes], tried: int) -> list[Any]:
    """The responses of a stream, or the error that it ends with."""
    with mock.patch.object(completion, "_MOST_TRIED", tried):
        stream = ChatCompletion()
        try:
            heard = [stream.add_bytes(each) for each in lines]
            return [heard, stream.pieces, stream.place, stream.responses(2, None, 1.0)]
        except ValueError as error:
            return [str(error)]


@given(st.lists(PIECES, max_size=12), WAYS)
def test_a_stream_is_read_alike_with_and_without_them(choices, way):
    lines = [line(choice, **way) for choice in choices]
    assert read(lines, 32) == read(lines, 0)


@given(
    st.lists(PIECES, max_size=12),
    st.lists(st.text(max_size=3) | TEXTS, min_size=2, max_size=8),
    st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\n\n", b"\n"]),
    st.integers(1, 400),
)
@example([], ["a\\", "n", "b"], b"\n\n", 400)
def test_a_stream_is_read_alike_however_its_bytes_are_split(choices, texts, ends, size):
    choices = choices + [{"index": 1, "delta": {"content": text}} for text in texts]
    lines = [line(choice, ends) for choice in choices]
    joined = lines[0] + b"".join(lines[1:])
    together = [lines[0], b"".join(lines[1:])]
    split = [joined[start : start + size] for start in range(0, len(joined), size)]
    assert read(together, 32)[1:] == read(split, 32)[1:] == read(lines, 0)[1:]


@given(TEXTS, st.binary(max_size=6), st.integers(0, 200), st.integers(0, 4))
@example("so", b'", "x": "', 150, 0)
def test_a_damaged_event_is_read_as_json_reads_it(text, damage, place, length):
    first, whole = (
        line({"index": 0, "delta": {"content": said}}, b"\n\n", separators=(",", ":"))
        for said in ("first", text)
    )
    place = min(place, len(whole))
    lines = [first, first + whole[:place] + damage + whole[place + length :] + first]
    assert read(lines, 32) == read(lines, 0)


def test_events_that_repeat_are_parsed_once():
    texts = ["one", " \u4e8c", ' "three"\n', "", " \\boxed{4}"]
    lines = [line({"index": 0, "delta": {"content": text}}) for text in texts]
    stream = ChatCompletion()
    with mock.patch.object(completion, "json_of", wraps=completion.json_of) as parsed:
        for each in lines:
            stream.add_bytes(each)
    assert parsed.call_count == 1 and stream.pieces == 5
    stream.add_bytes(line({"index": 0, "delta": {}, "finish_reason": "stop"}))
    (response,) = stream.responses(1, None, 1.0)
    assert response.answer_text == "".join(texts)


def test_events_that_come_together_are_read_together():
    first, *others = (
        line({"index": 0, "delta": {"content": text}}, b"\n\n") for text in ("a", "b", "\\", "c")
    )
    stream = ChatCompletion()
    stream.add_bytes(first)
    with mock.patch.object(stream, "add_line", wraps=stream.add_line) as by_line:
        assert stream.add_bytes(others[0] + others[2])
        assert not by_line.called and stream.pieces == 3
        stream.add_bytes(others[1] + others[2])  # where a text may end is not certain
        assert by_line.called and stream.pieces == 5
    assert stream.new_texts()[1] == "abc\\c"


def test_a_character_whose_halves_come_in_two_events_is_whole():
    texts = ["a", "b\ud83d", "\ude00c", "", "d\ud83d"]
    stream, live = ChatCompletion(), []
    for text in texts:
        stream.add_bytes(line({"index": 0, "delta": {"content": text}}))
        live.append(stream.new_texts()[1])
    assert live == ["a", "", "b\U0001f600c", "", ""]
    stream.add_bytes(line({"index": 0, "delta": {}, "finish_reason": "stop"}))
    (response,) = stream.responses(1, None, 1.0)
    assert response.answer_text == "ab\U0001f600cd?"


def test_a_stream_that_never_repeats_is_soon_parsed_at_once():
    stream = ChatCompletion()
    with mock.patch.object(RepeatedEvent, "around", wraps=RepeatedEvent.around) as tried:
        for number in range(100):
            body = {"id": number, "choices": [{"index": 0, "delta": {"content": "x"}}]}
            stream.add_bytes(f"data: {json.dumps(body)}\n".encode())
    assert tried.call_count == 32 and stream.pieces == 100


@pytest.mark.parametrize("name", ["content", "text"])
def test_a_place_that_is_not_certain_is_not_taken(name):
    assert RepeatedEvent.around(b'{"content":"a","delta":{"content":"b"}}', name, "b") is None
