"""Tools of a request: for the deliberator alone, its calls for the client, and their results."""

import json

import pytest
from command_line import run_command
from fault_server import faulty
from runs import build, rows
from serving import QUESTION, body_of, is_deliberation, post, serving, stream

from heavydistill.store.traces import read_traces

ASKED = {"role": "user", "content": QUESTION}
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}}
FUNCTION = {"name": "add", "description": "Adds.", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": FUNCTION}]
CALLS = [
    {"id": id, "type": "function", "function": {"name": "add", "arguments": arguments}}
    for id, arguments in (("c1", '{"a": 3}'), ("c2", '{"a": 4, "why": "\\u00e9 \\"so\\""}'))
]
RESULTS = [{"role": "tool", "tool_call_id": each["id"], "content": each["id"]} for each in CALLS]
NAMED = {"type": "function", "function": {"name": "add"}}


@pytest.fixture(scope="module")
def models():
    with faulty(calls=CALLS, usage="never") as server:  # or it is asked whether it cuts prompts
        yield server


def test_the_deliberator_calls_tools_and_reads_their_results(client, models):
    del models.requests[:]
    asked = {"model": "heavy", "tools": TOOLS, "extra_body": {"heavy": {"seed": 1}}}
    first = client.chat.completions.create(
        messages=[ASKED], tool_choice=NAMED, parallel_tool_calls=False, **asked
    )
    (choice,) = first.choices
    assert choice.finish_reason == "tool_calls" and choice.message.content == ""
    assert [call.model_dump() for call in choice.message.tool_calls] == CALLS
    assert first.model_extra["heavy"]["path"] == "deliberated"
    more = {"tools": TOOLS, "tool_choice": NAMED, "parallel_tool_calls": False}
    sent = [{name: each[name] for name in more if name in each} for each in models.asked]
    assert sorted(sent, key=len) == [{}] * 4 + [more]
    assert [is_deliberation(each) for each in models.asked if "tools" in each] == [True]

    del models.requests[:]
    named = [each | {"name": "add"} for each in RESULTS]  # as some clients repeat it
    messages = [ASKED, choice.message.model_dump(), *named]
    last = client.chat.completions.create(messages=messages, **asked)
    assert last.choices[0].finish_reason == "stop" and "boxed" in last.choices[0].message.content
    called = {"role": "assistant", "content": "", "tool_calls": CALLS}
    for body in models.asked:
        *before, question = body["messages"]
        assert before == [ASKED, called, *RESULTS]
        assert question["role"] == "user" and QUESTION in question["content"]
        assert is_deliberation(body) == ("tools" in body)


def test_a_stream_brings_the_calls_whole_before_its_end(client, address):
    chunks = [
        *client.chat.completions.create(model="heavy", messages=[ASKED], tools=TOOLS, stream=True)
    ]
    *_, called, end = (chunk.choices[0] for chunk in chunks)
    deltas = called.delta.tool_calls
    assert [each.index for each in deltas] == [0, 1]
    assert [each.model_dump(exclude={"index"}) for each in deltas] == CALLS
    assert end.finish_reason == "tool_calls"
    with client.chat.completions.stream(model="heavy", messages=[ASKED], tools=TOOLS) as events:
        message = events.get_final_completion().choices[0].message
    assert [each.function.arguments for each in message.tool_calls] == [
        each["function"]["arguments"] for each in CALLS
    ]
    body = body_of(tools=TOOLS, n=2)
    ends = [
        choice
        for event in stream(address, body)
        for choice in event["choices"]
        if choice["finish_reason"]
    ]
    assert [(each["index"], each["finish_reason"]) for each in ends] == [
        (0, "tool_calls"),
        (1, "tool_calls"),
    ]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_responses_have_calls_as_items_and_read_them_and_their_results(client, models, is_streamed):
    tool = {"type": "function", **FUNCTION, "strict": False}
    asked = {"model": "heavy", "tools": [tool], "extra_body": {"heavy": {"seed": 1}}}
    choice = {"type": "function", "name": "add"}
    if is_streamed:
        with client.responses.stream(input=QUESTION, tool_choice=choice, **asked) as events:
            kinds = [each.type for each in events]
            first = events.get_final_response()
        assert kinds[-5:] == [
            "response.output_item.added",
            *(f"response.function_call_arguments.{kind}" for kind in ("delta", "done")),
            *("response.output_item.done", "response.completed"),
        ]
    else:
        first = client.responses.create(input=QUESTION, tool_choice=choice, **asked)
    assert [each.type for each in first.output] == ["reasoning"] + ["function_call"] * 2
    calls = [each.model_dump() for each in first.output if each.type == "function_call"]
    assert [(each["call_id"], each["arguments"]) for each in calls] == [
        (each["id"], each["function"]["arguments"]) for each in CALLS
    ]
    assert (first.tools[0].name, first.tool_choice.name) == ("add", "add")
    (deliberation,) = (each for each in models.asked[-5:] if "tools" in each)
    assert deliberation["tools"][0]["function"] == {**FUNCTION, "strict": False}
    assert deliberation["tool_choice"] == NAMED

    del models.requests[:]
    results = [
        {"type": "function_call_output", "call_id": "c1", "output": "c1"},
        {
            "type": "function_call_output",
            "call_id": "c2",
            "output": [{"type": "input_text", "text": "c2"}],
        },
    ]
    items = [{"role": "user", "content": QUESTION}, *first.output, *results]
    last = client.responses.create(input=items, **asked)
    assert "boxed" in last.output_text and last.tool_choice == "auto"
    called = {"role": "assistant", "content": "", "tool_calls": CALLS}
    assert models.asked[0]["messages"][:-1] == [ASKED, called, *RESULTS]


@pytest.mark.parametrize(
    ("more", "param", "said"),
    [
        ({"model": "vote", "tools": TOOLS}, "tools", "model heavy"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type", "'function'"),
        ({"tools": [{"type": "function"}]}, "tools.0.function", "missing"),
        ({"tool_choice": "required"}, "tool_choice", "name of one of the tools"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}},
            *("tool_choice", "name of one of the tools"),
        ),
        ({"messages": [ASKED, *RESULTS]}, "messages", "out of order with the tool calls"),
        (
            {"messages": [{"role": "assistant", "tool_calls": CALLS}, *RESULTS]},
            *("messages", "must end with a text of the user"),
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(address, models, more, param, said):
    del models.requests[:]
    status, reply, _ = post(address, {**body_of(), **more})
    assert (status, reply["error"]["param"]) == (400, param)
    assert said in reply["error"]["message"] and not models.asked


def test_a_choice_that_changes_nothing_is_accepted_without_tools(address):
    for model in ("heavy", "vote"):
        body = body_of(model=model, tool_choice="none", parallel_tool_calls=False)
        assert post(address, body)[0] == 200


def test_nothing_takes_the_place_of_a_deliberation_with_tools(models):
    with serving(models.base_url) as address:
        models.plan = lambda body, attempt: "refused" if "tools" in body else None
        status, reply, _ = post(address, body_of(tools=TOOLS))
        models.plan = lambda body, attempt: None
    assert (status, reply["error"]["code"]) == (502, "no_deliberation")
    assert "Only a deliberation can honour tools" in reply["error"]["message"]
    here = {"deliberator": "micro", "serve__deliberator_endpoint": {}, "domain": "brief"}
    with serving(models.base_url, **here) as address:
        status, reply, _ = post(address, body_of(tools=TOOLS))
    assert (status, reply["error"]["param"]) == (400, "tools")


def test_tools_take_their_room_from_the_cache(address):
    asked = body_of("7 " * 450, heavy={"k": 3})
    long = [{"type": "function", "function": FUNCTION | {"description": "Adds. " * 700}}]
    assert post(address, asked)[0] == post(address, asked | {"tools": TOOLS})[0] == 200
    status, reply, _ = post(address, asked | {"tools": long})
    assert status == 400 and "send fewer tools" in reply["error"]["message"]


def test_rows_have_the_turns_of_tools_and_a_build_leaves_them_out(tmp_path, models):
    key = "sk-" + "a1" * 24
    secret = {"name": "add", "arguments": json.dumps({"key": f"line\n{key}"})}
    called = {"role": "assistant", "tool_calls": [CALLS[0] | {"function": secret}]}
    messages = [ASKED, called, RESULTS[0]]
    folder, ids = tmp_path / "served", []
    with serving(models.base_url, serve__out=str(folder), domain="brief") as address:
        for number in range(4):
            plain = body_of(f"What is 3 + {number}?")
            for body in (plain, body_of(tools=TOOLS), {**body_of(), "messages": messages}):
                id = post(address, body)[1]["id"]
                ids.append(id)
                post(address, {"id": id, "right": True}, "feedback")
    traces = {trace.problem.id: trace for trace in read_traces(folder)}
    (calling,) = traces[ids[1]].deliberations
    assert [call.message for call in calling.turns[-1].calls] == CALLS
    assert calling.verdict.reason == "user_feedback"
    (call,) = traces[ids[2]].problem.history[1].calls
    assert "line" in call.arguments and key not in call.arguments
    shown = run_command("show", folder, "--problem", ids[1], "--full")
    assert shown.returncode == 0 and "call of add" in shown.stdout
    # The attempts, thus the strata that a balanced mixture counts, follow random seeds.
    build(tmp_path / "sets", folder, preset="natural", filters__uses_attempts=False)
    found = rows(tmp_path / "sets", "problems")
    assert {(bool(each["history_json"]), each["label"]) for each in found} == {
        (True, "with_tools"),
        (False, ""),
    }
    labels = {each["label"] for each in rows(tmp_path / "sets", "deliberations")}
    assert "unfinished" in labels  # of those that called tools
    assert "with_tools" in {each["label"] for each in rows(tmp_path / "sets", "trajectories")}
