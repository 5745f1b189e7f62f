import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from instructing import ALL, instructed
from judging import judged

from heavydistill.verifiers.instructions.ifbench import MISSING
from heavydistill.verifiers.instructions.verifier import Instructions


def fault(args) -> str | None:
    problem = dataclasses.replace(instructed(), verifier_args=json.dumps(args))
    return Instructions().check_reference(problem)


def fault_of(id: str, **given) -> str | None:
    return fault({"instruction_id_list": [id], "kwargs": [given]})


@pytest.mark.parametrize("id", ALL)
def test_complete_arguments_are_fit_and_each_one_is_needed(id):
    assert fault_of(id, **ALL[id]) is None
    for name in ALL[id]:
        rest = {other: value for other, value in ALL[id].items() if other != name}
        assert f"{name} is missing" in (fault_of(id, **rest) or "")
        assert f"{name} is missing" in (fault_of(id, **rest | {name: None}) or "")


NUMBERS = (-1, 0, 1.5, True, float("nan"), "3", [3])
TEXTS = ("", "  ", 7, ["a"], {"a": 1})
NO_COMMA = {"instruction_id_list": ["punctuation:no_comma"]}
WRONG = {
    **dict.fromkeys(
        (name for of in ALL.values() for name in of if name.startswith("num")), NUMBERS
    ),
    **dict.fromkeys(("frequency", "let_frequency", "capital_frequency", "nth_paragraph"), NUMBERS),
    **dict.fromkeys(("relation", "let_relation", "capital_relation"), ("at most", "", 1, [])),
    **dict.fromkeys(("keywords", "forbidden_words"), ([], [""], ["a", 3], "river", {"a": 1})),
    **dict.fromkeys(
        ("keyword", "end_phrase", "prompt_to_repeat", "section_spliter", "postscript_marker"), TEXTS
    ),
    "first_word": (*TEXTS, "two words", "..."), "letter": (*TEXTS, "ab"),
    "language": (*TEXTS, "German", "xx"),
    **dict.fromkeys(("N", "small_n", "n", "m", "min_words", "max_words"), NUMBERS),
    **dict.fromkeys(("percentage", "n_start", "n_end"), (-1, 1.5, True, "3", [3])),
    **dict.fromkeys((f"keyword{n}" for n in range(1, 6)), TEXTS),
    **dict.fromkeys(("word", "sep", "options", "reference_text"), TEXTS),
}  # fmt: skip


@pytest.mark.parametrize("id", [id for id in ALL if ALL[id]])
def test_an_argument_of_another_kind_is_told(id):
    for name in ALL[id]:
        for wrong in WRONG[name]:
            message = fault_of(id, **ALL[id] | {name: wrong}) or ""
            assert message.startswith(f"kwargs of {id}: {name} takes "), (name, wrong)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([], "take"), ({}, '"instruction_id_list", "kwargs"'), (NO_COMMA, '"kwargs"'),
        ({"instruction_id_list": [], "kwargs": []}, "at least one id"),
        ({"instruction_id_list": "punctuation:no_comma", "kwargs": [{}]}, "takes a list"),
        (NO_COMMA | {"kwargs": []}, "a list of 1"), (NO_COMMA | {"kwargs": None}, "a list of 1"),
        (NO_COMMA | {"kwargs": "[{"}, "a list of 1"),
        (NO_COMMA | {"kwargs": [3]}, "takes an object"),
        ({"instruction_id_list": ["punctuation:no_coma"], "kwargs": [{}]}, "did you mean"),
        ({"instruction_id_list": ["xyz"], "kwargs": [{}]}, "there are keywords:existence"),
        ({"instruction_id_list": [["a"]], "kwargs": [{}]}, "there is no instruction"),
        (NO_COMMA | {"kwargs": [{"num_words": 3}]}, "there is no 'num_words'"),
        (NO_COMMA | {"kwargs": [{}], "mode": "lax"}, "strict or loose"),
        (NO_COMMA | {"kwargs": [{}], "modus": "loose"}, '"mode"'),
    ],
)  # fmt: skip
def test_what_is_wrong_and_what_to_write_is_told(args, told):
    assert told in (fault(args) or "")


def test_a_paragraph_beyond_the_last_is_told():
    arguments = {"num_paragraphs": 2, "nth_paragraph": 3, "first_word": "so"}
    message = fault_of("length_constraints:nth_paragraph_first_word", **arguments)
    assert "above num_paragraphs" in (message or "")


def test_a_range_that_is_empty_is_told():
    message = fault_of("count:word_count_range", min_words=5, max_words=3)
    assert "min_words is above max_words" in (message or "")


@pytest.mark.parametrize("id", MISSING)
def test_what_needs_a_model_or_a_dictionary_is_refused_with_the_reason(id):
    message = fault_of(id) or ""
    assert f"{id} is not checked, because that needs {MISSING[id]}; leave the row out" in message


def test_rows_as_the_hub_has_them_are_fit():
    nulls = dict.fromkeys(["num_words", "relation", "keywords", "language"])
    args = {
        "instruction_id_list": ["en:punctuation:no_comma", "length_constraints:number_words"],
        "kwargs": [nulls, nulls | {"num_words": 3.0, "relation": "at least"}],
    }
    assert fault(args) is None
    assert fault(args | {"kwargs": json.dumps(args["kwargs"])}) is None
    assert fault(args | {"kwargs": [None, args["kwargs"][1]], "mode": None}) is None


def test_an_instruction_that_is_there_twice_is_reported_twice():
    problem = instructed(*["keywords:frequency"] * 3)
    assert list(json.loads(judged(problem, "Tree by tree").evidence)) == [
        "keywords:frequency",
        "keywords:frequency (2)",
        "keywords:frequency (3)",
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["num_words", "relation", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    st.fixed_dictionaries(
        {
            "instruction_id_list": st.lists(st.sampled_from(sorted(ALL)) | JSON, max_size=3) | JSON,
            "kwargs": st.lists(JSON, max_size=3) | JSON,
        },
        optional={"mode": JSON},
    )
    | JSON
)
def test_whatever_stands_in_a_row_is_fit_or_told(args):
    message = fault(args)
    assert message is None or message
