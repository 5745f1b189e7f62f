"""The Responses API as the openai library reads it: whole, streamed, asynchronous, refused."""

import asyncio
from typing import Any

import openai
import pydantic
import pytest
from fault_server import faulty
from serving import QUESTION, body_of, post, serving

SEEDED = {"heavy": {"seed": 1}}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA"}


def turn(role: str, text: str, kind: str = "input_text") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def test_a_response_is_the_answer_of_a_chat_completion(client, address):
    response = client.responses.create(model="heavy", input=QUESTION, extra_body=SEEDED)
    reply = post(address, body_of(**SEEDED))[1]
    (choice,) = reply["choices"]
    reasoning, message = response.output
    assert response.status == "completed" and response.id.startswith("resp_")
    assert response.output_text == message.content[0].text == choice["message"]["content"]
    told = "".join(each.text for each in reasoning.summary).splitlines()
    assert sorted(told) == sorted(choice["message"]["reasoning"].splitlines())
    assert response.model_extra["heavy"]["path"] == "deliberated"
    assert response.usage.output_tokens == reply["usage"]["completion_tokens"]
    assert response.usage.total_tokens == reply["usage"]["total_tokens"]
    assert response.usage.model_extra["heavy"] == reply["usage"]["heavy"]


def test_a_stream_has_the_events_in_order_and_ends_with_the_response(client):
    whole = client.responses.create(model="heavy", input=QUESTION, extra_body=SEEDED)
    with client.responses.stream(model="heavy", input=QUESTION, extra_body=SEEDED) as stream:
        events = list(stream)
        final = stream.get_final_response()
    kinds = list(dict.fromkeys(each.type for each in events))
    assert kinds == [
        *("response.created", "response.in_progress", "response.output_item.added"),
        *("response.reasoning_summary_part.added", "response.reasoning_summary_text.delta"),
        *("response.reasoning_summary_text.done", "response.reasoning_summary_part.done"),
        *("response.output_item.done", "response.content_part.added"),
        *("response.output_text.delta", "response.output_text.done", "response.content_part.done"),
        "response.completed",
    ]
    assert [each.sequence_number for each in events] == list(range(len(events)))
    for each in client.responses.create(model="heavy", input=QUESTION, stream=True):
        type(each).model_validate(each.model_dump())  # the library itself checks nothing
    written = [each.delta for each in events if each.type == "response.output_text.delta"]
    assert "".join(written) == final.output_text == whole.output_text
    done = [each.item for each in events if each.type == "response.output_item.done"]
    assert [each.id for each in done] == [each.id for each in final.output]
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_the_asynchronous_client_reads_a_stream(address):
    async def ask() -> str:
        async with openai.AsyncOpenAI(base_url=address, api_key="none") as client:
            asked = client.responses.create(
                model="single", input=[turn("user", QUESTION)], stream=True
            )
            return "".join(
                [e.delta async for e in await asked if e.type == "response.output_text.delta"]
            )

    assert "boxed" in asyncio.run(ask())


def is_asked(request: str) -> bool:
    """Whether it is of the conversation below, and no probe of the server."""
    return "Be brief." in request


def test_a_conversation_reaches_the_models_as_in_a_chat_completion(client, address, models):
    del models.requests[:]
    items = [
        *(turn("user", "6 + 1?"), turn("assistant", "7", "output_text")),
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"role": "user", "content": QUESTION},
    ]
    client.responses.create(
        model="heavy",
        instructions="Be brief.",
        input=items,
        max_output_tokens=100,
        temperature=0.5,
        extra_body=SEEDED,
    )
    asked = sorted(filter(is_asked, map(str, models.asked)))
    del models.requests[:]
    turns = [("system", "Be brief."), ("user", "6 + 1?"), ("assistant", "7"), ("user", QUESTION)]
    messages = [{"role": role, "content": text} for role, text in turns]
    body = {"model": "heavy", "messages": messages, "max_tokens": 100, "temperature": 0.5}
    assert post(address, body | SEEDED)[0] == 200
    assert sorted(filter(is_asked, map(str, models.asked))) == asked and len(asked) == 5


class Sum(pydantic.BaseModel):
    total: int


def test_a_format_reaches_the_answer_alone_as_a_response_format(client, models, monkeypatch):
    told: dict[str, Any] = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    del models.requests[:]
    client.responses.create(model="heavy", input=QUESTION, text={"format": told | {"strict": True}})
    sent = [each["response_format"] for each in models.asked if "response_format" in each]
    schema = {"name": "n", "schema": {"type": "object"}, "strict": True}
    assert sent == [{"type": "json_schema", "json_schema": schema}]
    monkeypatch.setattr(models, "text_of", lambda body, index: ("", '{"total": 7}'))
    parsed = client.responses.parse(model="heavy", input=QUESTION, text_format=Sum)
    assert parsed.output_parsed == Sum(total=7)
    form = {"format": {"type": "json_object"}}
    client.responses.create(model="heavy", input=QUESTION, text=form)
    assert models.asked[-1]["response_format"] == form["format"]


def test_an_answer_that_is_cut_off_is_incomplete():
    with faulty(end_reason="length") as models, serving(models.base_url) as address:
        client = openai.OpenAI(base_url=address, api_key="none", max_retries=0)
        whole = client.responses.create(model="single", input=QUESTION)
        *_, last = client.responses.create(model="single", input=QUESTION, stream=True)
    assert "boxed" in whole.output_text and last.type == "response.incomplete"
    for response in (whole, last.response):
        assert response.status == response.output[-1].status == "incomplete"
        assert response.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize(
    ("more", "param", "said"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "not supported"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type", "'function'"),
        ({"store": True}, "store", "not supported"),
        ({"reasoning": {"effort": "high"}}, "reasoning", "not supported"),
        ({"text": {"verbosity": "low"}}, "text.verbosity", "not supported"),
        (
            {"model": "vote", "text": {"format": {"type": "json_object"}}},
            *("text.format", "The parameter text.format is wrong: it is for the model heavy"),
        ),
        ({"background": True}, "background", "not supported"),
        ({"heavy": {"d": 2}}, "heavy.d", "one choice"),
        ({"heavy": {"K": 2}}, "heavy.K", "heavy.k"),
        ({"max_output_tokens": 0}, "max_output_tokens", "at least 1"),
        ({"input": []}, "input", "at least 1"),
        ({"input": [{"type": "reasoning", "summary": []}]}, "input", "no message"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0", "'item_reference'"),
        ({"input": [{"role": "user", "content": [IMAGE]}]}, "input.0.content", "'input_image'"),
        ({"input": [turn("owner", "?")]}, "input", "role"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(address, models, more, param, said):
    del models.requests[:]
    body = {"model": "heavy", "input": QUESTION, **more}
    status, reply, _ = post(address, body, "responses")
    assert (status, reply["error"]["param"]) == (400, param)
    assert said in reply["error"]["message"] and models.asked == []


def test_failures_are_errors_and_failed_responses():
    with (
        faulty(plan=lambda body, _: "broken") as models,
        serving(models.base_url) as address,
    ):
        client = openai.OpenAI(base_url=address, api_key="none", max_retries=0)
        with pytest.raises(openai.InternalServerError, match="None of 4 attempts"):
            client.responses.create(model="heavy", input=QUESTION)
        *_, last = client.responses.create(model="heavy", input=QUESTION, stream=True)
    assert last.type == "response.failed" and last.response.status == "failed"
    assert "None of 4 attempts" in last.response.error.message
    assert last.response.model_extra["heavy"]["members"][0]["failure"] == "server"
