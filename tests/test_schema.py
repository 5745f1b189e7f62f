import dataclasses
import json
import re
from typing import Any, get_args

import messages
import pyarrow as pa
import pytest
from samples import trajectory

from heavydistill.schema import (
    SCHEMA_VERSION,
    Label,
    Problem,
    ToolCall,
    Trace,
    Turn,
    Verdict,
    arrow_schema,
    content_id,
    from_row,
    to_row,
    turns_as_json,
)


def struct(columns: str, **rows: Any) -> dict[str, Any]:
    """Columns in their order, each with its type behind a colon; without one it is ``string``."""
    pairs = (column.partition(":")[::2] for column in columns.split())
    return {name: rows.get(kind, kind or "string") for name, kind in pairs}


# What a traces dataset holds. Who changes it on purpose raises SCHEMA_VERSION with it.
GENERATION = (
    "id index:int64 model seed:int64 reasoning answer_text finish_reason error verdict:verdict "
    "prompt_tokens:int64 completion_tokens:int64 latency_s:double request_id failure "
    "cached_tokens:int64 served_model host system_fingerprint unknown_finish_reason turns_json"
)
VERDICT = struct("label reason extracted verifier score:double evidence")
CACHE = struct(
    "id round:int64 seed:int64 selection prompt_version reader budget_tokens:int64 "
    "prompt_tokens:int64 defused:int64 items:items left_out:left_out prompt",
    items=[struct("generation mode tokens_before:int64 tokens_after:int64 sha256 defused:int64")],
    left_out=[struct("generation reason")],
)
VERSION_6 = struct(
    "problem:problem pool:pool caches:caches deliberations:deliberations stratum outcome status "
    "thinker_prompt_version schema_version",
    problem=struct("id text reference verifier verifier_args domain source history_json"),
    pool=[struct(GENERATION, verdict=VERDICT)],
    caches=[CACHE],
    deliberations=[
        struct(
            f"{GENERATION} cache round:int64 claims:claims",
            verdict=VERDICT,
            claims=[struct("attempt:int64 says quote")],
        )
    ],
)


def shape(kind: pa.DataType | pa.Schema) -> Any:
    """Nested names and types: a dict for a struct, a list of one for a list."""
    if isinstance(kind, pa.Schema) or pa.types.is_struct(kind):
        return {column.name: shape(column.type) for column in kind}
    return [shape(kind.value_type)] if pa.types.is_list(kind) else str(kind)


def verdict(label: Label) -> Verdict:
    return Verdict(label=label, reason="r", extracted="7", verifier="exact@1")


def test_the_arrow_schema_of_this_version_is_fixed():
    assert SCHEMA_VERSION == "6"
    # As JSON, because the order of the columns counts too.
    assert json.dumps(shape(arrow_schema(Trace)), indent=1) == json.dumps(VERSION_6, indent=1)


def test_a_generation_without_stored_turns_is_one_turn():
    plain = trajectory(reasoning="6+1=7", answer_text="7", latency_s=2.5)
    only = Turn(role="assistant", text="7", thinking="6+1=7", seconds=2.5)
    assert (plain.turns, plain.turns_json) == ([only], "")


CALL = ToolCall(id="c1", name="python", arguments='{"code": "6+1"}')
ASKS = Turn(role="assistant", text="I compute.", thinking="Hard.", calls=[CALL], seconds=1.5)
RESULT = Turn(role="tool", text="7", result_of="c1", seconds=0.1)
ANSWERS = Turn(role="assistant", text="It is 7.", thinking="So 7.")


@pytest.mark.parametrize(
    ("turns", "reasoning", "answer_text"),
    [
        ([ASKS, RESULT, ANSWERS], "Hard.\n\nI compute.\n\nSo 7.", "It is 7."),
        ([ASKS, RESULT], "Hard.\n\nI compute.", ""),  # the last call was not answered
        ([ASKS], "Hard.\n\nI compute.", ""),
        ([ANSWERS, Turn(role="user", text="Sure?"), ASKS, RESULT, ANSWERS],
         "So 7.\n\nIt is 7.\n\nHard.\n\nI compute.\n\nSo 7.", "It is 7."),
    ],
)  # fmt: skip
def test_reasoning_and_answer_of_several_turns_are_the_models_words_alone(
    turns, reasoning, answer_text
):
    several = trajectory(answer_text="other", turns_json=turns_as_json(turns))
    assert (several.reasoning, several.answer_text) == (reasoning, answer_text)
    assert several.turns == turns
    assert from_row(type(several), to_row(several)) == several


@pytest.mark.parametrize(
    "stored",
    [
        "{",
        "3",
        "[3]",
        '[{"text": "a"}]',
        "[" * 10**5,
        '[{"role": "user", "text": 3}]',
        '[{"role": "x", "text": "a"}]',
    ],
)
def test_damaged_turns_are_an_error(stored):
    with messages.raises("turns_no_json"):
        trajectory(answer_text="7", turns_json=stored)
    with messages.raises("turns_no_json"):
        Problem(id="p", text="?", reference="7", verifier="exact", history_json=stored)


def test_turns_become_messages_in_the_format_of_openai():
    function = {"name": "python", "arguments": '{"code": "6+1"}'}
    assert [turn.message for turn in (ASKS, RESULT)] == [
        {
            "role": "assistant",
            "content": "I compute.",
            "reasoning_content": "Hard.",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "7", "tool_call_id": "c1"},
    ]


def test_a_problem_has_its_history_and_a_transcript():
    problem = Problem(id="p", text="And 6+2?", reference="8", verifier="exact")
    assert (problem.history, problem.transcript) == ([], "And 6+2?")
    history = [Turn(role="user", text="6+1?"), Turn(role="assistant", text="7")]
    asked = dataclasses.replace(problem, history_json=turns_as_json(history))
    assert asked.history == history
    assert asked.transcript == "[user]\n6+1?\n\n[assistant]\n7\n\n[user]\nAnd 6+2?"


def test_types_stay_where_all_that_may_be_null_is_null():
    problem = Problem(id="p", text="6+1?", reference="7", verifier="exact")
    bare = Trace(problem=problem, pool=[trajectory()])
    judged = trajectory(error="timeout", verdict=verdict("correct"))
    full = Trace(problem=problem, pool=[judged], stratum="all-right", outcome="kept")
    schema = arrow_schema(Trace)
    tables = [pa.Table.from_pylist([to_row(trace)], schema=schema) for trace in (bare, full)]
    assert all(table.schema == schema for table in tables)
    both = pa.concat_tables(tables)
    assert [from_row(Trace, row) for row in both.to_pylist()] == [bare, full]


@pytest.mark.parametrize(
    ("source", "origin"),
    [
        ("gsm8k.jsonl:443", "gsm8k.jsonl"),
        ("a:b.jsonl:3", "a:b.jsonl"),
        ("hub:org/data/train:12", "hub:org/data"),
        ("gym:gsm_symbolic:7:0", "gym:gsm_symbolic"),
        ("micro:chain_sum:0:1", "micro"),
        ("serve:heavy:user:7", "serve:heavy"),
        ("mine", "mine"),
        ("", ""),
    ],
)
def test_the_origin_of_a_problem_is_its_source_without_the_row(source, origin):
    problem = Problem(id="p", text="6+1?", reference="7", verifier="exact", source=source)
    assert problem.origin == origin


def test_an_id_is_stable_between_versions_and_machines():
    assert content_id("t", "a", 1, None) == "t_0ae764bffd3a17b6"
    assert content_id("c", "é") == "c_0b657be394b1d432"


def test_ids_of_different_parts_differ():
    parts = [(), ("",), ("ab",), ("a", "b"), ("b", "a"), (1,), ("1",), (None,), ("None",)]
    ids = [content_id("t", *some) for some in parts]
    assert len(set(ids)) == len(parts)
    assert all(re.fullmatch(r"t_[0-9a-f]{16}", one) for one in ids)


@pytest.mark.parametrize(
    ("finish_reason", "answer_text", "reason"),
    [
        ("stop", "7", None),
        ("stop", "", "empty"),
        ("stop", " \n\t", "empty"),
        ("length", "7", "truncated"),
        ("length", "", "truncated"),
        ("error", "7", "error"),
        ("error", "", "error"),
    ],
)
def test_why_a_generation_is_unusable(finish_reason, answer_text, reason):
    sample = trajectory(finish_reason=finish_reason, answer_text=answer_text)
    assert sample.unusable_because == reason


@pytest.mark.parametrize("label", get_args(Label))
def test_only_the_label_correct_is_correct(label):
    assert trajectory(verdict=verdict(label)).is_correct == (label == "correct")
    assert trajectory(verdict=verdict(label)).right == (
        None if label == "undecided" else label == "correct"
    )
    assert trajectory(verdict=verdict(label)).extracted == "7"


def test_what_was_not_judged_is_not_correct_and_has_no_answer():
    assert not trajectory().is_correct
    assert trajectory().extracted is None and trajectory().right is None
