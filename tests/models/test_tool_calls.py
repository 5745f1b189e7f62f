"""Tool calls as servers send them: whole, in pieces, and without what they should have."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavydistill.models.http.completion import ChatCompletion
from heavydistill.models.request import Response

_texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
_calls = st.lists(
    st.tuples(st.uuids().map(str), _texts.filter(bool), _texts.filter(bool)), max_size=3
)


def whole(id: str, name: str, arguments: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def pieces(index: int | None, call: dict[str, Any], cuts: list[int]) -> list[dict[str, Any]]:
    """The call with its arguments cut at these places, or elsewhere if they are short."""
    arguments = call["function"]["arguments"]
    places = [0, *sorted(cut % (len(arguments) + 1) for cut in cuts), len(arguments)]
    parts = [arguments[a:b] for a, b in itertools.pairwise(places)]
    at = {} if index is None else {"index": index}
    first = {**at, **call, "function": {**call["function"], "arguments": parts[0]}}
    return [first, *({**at, "function": {"arguments": part}} for part in parts[1:])]


def streamed(*deltas: Any, end: str = "tool_calls", has_tools: bool = True) -> Response:
    completion = ChatCompletion(has_tools=has_tools)
    for delta in (*deltas, None):
        choice = {"index": 0, "delta": delta or {}, "finish_reason": None if delta else end}
        completion.add_line(b"data: " + json.dumps({"choices": [choice]}).encode())
    completion.add_line(b"data: [DONE]")
    return completion.responses(1, None, 0.0)[0]


def read(response: Response) -> list[dict[str, Any]]:
    assert (response.finish_reason, response.failure) == ("stop", None)
    return [call.message for call in response.calls]


@given(_calls, st.lists(st.integers(0, 50), max_size=3), st.booleans())
def test_pieces_are_the_calls_that_were_cut(calls, cuts, is_numbered):
    given_calls = [whole(*call) for call in calls]
    deltas = [{"content": "So."}]
    for number, call in enumerate(given_calls):
        for piece in pieces(number if is_numbered else None, call, cuts):
            deltas.append({"tool_calls": [piece]})
    response = streamed(*deltas, end="tool_calls" if calls else "stop")
    assert read(response) == given_calls and response.answer_text == "So."
    completion = ChatCompletion(has_tools=True)
    message = {"content": None, "tool_calls": given_calls}
    choice = {"message": message, "finish_reason": "stop"}
    completion.add_whole(json.dumps({"choices": [choice]}).encode())
    assert read(completion.responses(1, None, 0.0)[0]) == given_calls


def test_what_servers_leave_out_or_confuse_is_understood():
    one, two = whole("a", "f", "{}"), whole("b", "g", "{}")
    same_index = [{"tool_calls": [{"index": 0, **one}]}, {"tool_calls": [{"index": 0, **two}]}]
    assert read(streamed(*same_index)) == [one, two]
    assert read(streamed({"tool_calls": [whole("a", "f", {"x": 1})]})) == [
        whole("a", "f", '{"x": 1}')
    ]
    bare = {"function": {"name": "f"}}
    first, second = read(streamed({"tool_calls": [bare, bare]}))
    assert first["function"] == second["function"] == {"name": "f", "arguments": "{}"}
    assert first["id"] != second["id"]


@pytest.mark.parametrize(
    "wrong",
    [3, ["x"], [{"id": "a"}], [{"function": {"arguments": "{}"}}], [{"function": {"name": 3}}]],
)
def test_a_call_of_another_form_is_a_failure_where_there_are_tools(wrong):
    response = streamed({"content": "So.", "tool_calls": wrong})
    assert response.failure == "malformed" and "tool call" in (response.error or "")
    response = streamed({"content": "So.", "tool_calls": wrong}, end="stop", has_tools=False)
    assert (response.failure, response.calls) == (None, ())


def test_a_call_that_was_cut_off_or_not_asked_for_is_none():
    delta = {"tool_calls": [{"index": 0, **whole("a", "f", '{"x": ')}]}
    response = streamed(delta, end="length")
    assert (response.finish_reason, response.calls) == ("length", ())
    assert streamed(delta, has_tools=False).failure == "unknown_end"
