"""Problems that are the last turn of a conversation so far."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from import_files import lines

from heavydistill.config.run import Problems
from heavydistill.errors import ProblemsError
from heavydistill.problems import load
from heavydistill.problems.messages import read_messages
from heavydistill.schema import Problem, ToolCall, Turn

SYSTEM = {"role": "system", "content": "Be brief."}
ASKED, ANSWERED = {"role": "user", "content": "6+1?"}, {"role": "assistant", "content": "7"}
LAST = {"role": "user", "content": "And 6+2?"}
FUNCTION = {"name": "python", "arguments": '{"code": "6+1"}'}
CALL = {"id": "c1", "type": "function", "function": FUNCTION}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "7", "tool_call_id": "c1"}


def load_rows(tmp_path, *rows: dict[str, Any], **keys: Any) -> list[Problem]:
    return load(Problems(source=str(lines(tmp_path / "set.jsonl", *rows)), **keys))


def read(messages: Any) -> tuple[str, list[Turn]]:
    text, history_json = read_messages(messages, "messages")
    problem = Problem(id="", text=text, reference="", verifier="", history_json=history_json)
    return text, problem.history


def test_the_last_turn_is_the_text_and_all_before_it_the_history(tmp_path):
    messages = [SYSTEM, ASKED, CALLED, RESULT, ANSWERED | {"reasoning_content": "So."}, LAST]
    (problem,) = load_rows(tmp_path, {"messages": messages, "answer": "8"})
    assert (problem.text, problem.reference) == ("And 6+2?", "8")
    call = ToolCall(id="c1", name="python", arguments='{"code": "6+1"}')
    assert problem.history == [
        Turn(role="system", text="Be brief."),
        Turn(role="user", text="6+1?"),
        Turn(role="assistant", text="", calls=[call]),
        Turn(role="tool", text="7", result_of="c1"),
        Turn(role="assistant", text="7", thinking="So."),
    ]
    sent = [turn.message for turn in problem.history]
    assert sent[2:4] == [CALLED | {"content": ""}, RESULT]


def test_a_single_message_is_a_problem_without_history(tmp_path):
    (alone,) = load_rows(tmp_path, {"messages": json.dumps([LAST]), "answer": "8"})
    (plain,) = load_rows(tmp_path, {"text": "And 6+2?", "answer": "8"})
    assert alone == plain and plain.history_json == ""


def test_messages_are_read_where_there_is_no_text_or_where_the_user_says_so(tmp_path):
    row = {"question": "6*9?", "messages": [ASKED], "chat": [LAST], "answer": "8"}
    for columns, text in ({}, "6*9?"), ({"messages": "chat"}, "And 6+2?"):
        assert load_rows(tmp_path, row, columns=columns)[0].text == text
    with pytest.raises(ProblemsError, match="maps both text and messages"):
        load_rows(tmp_path, row, columns={"messages": "chat", "text": "question"})


@pytest.mark.parametrize(
    ("messages", "what", "fix"),
    [
        (None, "no list of messages", '"role": "user"'),
        ([], "no list of messages", '"role": "user"'),
        ("[{", "no list of messages", '"role": "user"'),
        ("[" * 10**5, "no list of messages", '"role": "user"'),
        (["6+1?"], "message 1 .* has no role of system, user", '"role": "user"'),
        ([{"role": "human", "content": "?"}], "message 1 .* has no role", '"role": "user"'),
        ([LAST | {"images": ["a.png"]}], "message 1 .* has images, which is not sent", "Leave it"),
        ([LAST | {"content": [{"text": "?"}]}], "message 1 .* a value of another form", "as text"),
        ([LAST | {"content": "\ud800"}], "half a character", "valid Unicode"),
        (
            [
                CALLED | {"tool_calls": [CALL | {"id": "\ud800"}]},
                RESULT | {"tool_call_id": "\ud800"},
                LAST,
            ],
            "half a character",
            "valid Unicode",
        ),
        ([LAST | {"content": " "}], "must end with a text of the user", "Fill it in"),
        ([ASKED, SYSTEM, LAST], "message 2 .* has the role system", "the first message"),
        ([ASKED, RESULT, LAST], "message 2 .* out of order", "tool_call_id"),
        ([ASKED, CALLED, RESULT, RESULT, LAST], "message 4 .* out of order", "tool_call_id"),
        ([ASKED, CALLED, LAST], "message 3 .* out of order", "tool_call_id"),
        ([ASKED, CALLED, RESULT | {"tool_call_id": "c2"}, LAST], "message 3 .* out of", "results"),
        ([ASKED, CALLED, RESULT | {"tool_call_id": None}, LAST], "message 3 .* out of", "results"),
        ([ASKED, CALLED | {"tool_calls": [{"id": "c1"}]}, LAST], "another form", "tool calls"),
        ([ASKED, CALLED | {"tool_calls": 3}, LAST], "message 2 .* another form", "tool calls"),
        ([ASKED, ANSWERED], "must end .* role assistant", "Leave the last answer"),
        ([ASKED, CALLED, RESULT], "must end .* role tool", "that follows"),
        ([SYSTEM], "must end .* role system", "Add the turn of the user"),
    ],
)
def test_what_is_no_conversation_to_go_on_is_refused_with_the_fix(messages, what, fix):
    with pytest.raises(ProblemsError, match=what) as caught:
        read(messages)
    assert fix in caught.value.fix


def test_a_fault_names_its_row(tmp_path):
    rows = {"messages": [LAST], "answer": "8"}, {"messages": [ASKED, ANSWERED], "answer": "7"}
    with pytest.raises(ProblemsError, match=r"set\.jsonl:2: column 'messages' must end"):
        load_rows(tmp_path, *rows)


@given(
    st.lists(
        st.one_of(
            st.sampled_from([SYSTEM, ASKED, CALLED, RESULT, ANSWERED, LAST]),
            st.dictionaries(
                st.sampled_from(["role", "content", "tool_calls", "x"]),
                st.one_of(st.none(), st.text(max_size=3), st.lists(st.text(max_size=2))),
            ),
            st.text(max_size=3),
        ),
        max_size=6,
    )
)
def test_any_list_is_read_whole_or_refused(messages):
    try:
        text, history = read(messages)
    except ProblemsError:
        return
    sent = [*(turn.message for turn in history), {"role": "user", "content": text}]
    wanted = [{k: v for k, v in m.items() if v is not None} | {"content": m.get("content") or ""}
              for m in messages]  # fmt: skip
    assert [{k: v for k, v in m.items() if v != []} for m in wanted] == sent
