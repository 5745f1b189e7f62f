import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from import_files import lines
from judging import judged
from messages import message

from heavydistill.config.run import Problems
from heavydistill.errors import ProblemsError
from heavydistill.problems import load
from heavydistill.problems.options import Lettered, UnfitOptions, lettered, orders_kept
from heavydistill.schema import Problem

ROOT = Path(__file__).parents[2]
PLANETS = ["Venus", "Mars", "Jupiter", "Saturn"]
ROW = {"id": "a", "text": "Which is largest?", "options": PLANETS, "reference": "C"}


@pytest.fixture
def read(tmp_path):
    def _read(*rows, **keys):
        return load(Problems(source=str(lines(tmp_path / "set.jsonl", *rows)), **keys))

    return _read


def right_text(problem: Problem) -> str:
    return json.loads(problem.verifier_args)["options"]["ABCDEFGH".index(problem.reference)]


def shown(options, reference, seed=0, keep=False, text="Which?", name="p") -> Lettered:
    return lettered(text, options, reference, name, seed, keep)


def test_a_row_with_options_becomes_a_lettered_question_for_choice(read):
    (problem,) = read(ROW)
    args = json.loads(problem.verifier_args)
    lines = [f"{letter}) {text}" for letter, text in zip("ABCD", args["options"], strict=True)]
    question = ["Which is largest?", "", *lines, "", "Answer with the letter of the right option."]
    assert problem.text == "\n".join(question)
    assert problem.verifier == "choice"
    assert [PLANETS[place] for place in args["order"]] == args["options"]
    assert right_text(problem) == "Jupiter"
    assert judged(problem, rf"\boxed{{{problem.reference}}}").is_correct
    assert judged(problem, "Answer: Jupiter").is_correct


@pytest.mark.parametrize(
    ("options", "reference", "text"),
    [
        (PLANETS, "C", "Jupiter"), (PLANETS, "c", "Jupiter"), (PLANETS, "(C)", "Jupiter"),
        (PLANETS, "C.", "Jupiter"), (PLANETS, 2, "Jupiter"), (PLANETS, 0, "Venus"),
        (PLANETS, "Jupiter", "Jupiter"), (PLANETS, " Jupiter\n", "Jupiter"),
        (["2", "3", "4", "5"], 1, "3"), (["2", "3", "4", "5"], "4", "4"), ([10, 20, 30], 20, "20"),
        ([10, 20, 30], 2, "30"), ([0, 1, 2], 1, "1"),
        ({"label": ["A", "B"], "text": ["no", "yes"]}, "B", "yes"),
        ({"label": ["1", "2"], "text": ["no", "yes"]}, "2", "yes"),
        ({"label": ["1", "2"], "text": ["no", "yes"]}, 2, "yes"),
        ({"label": ["A", "B"], "text": ["B", "A"]}, "B", "A"),
        ({"label": ["A", "B"], "text": ["no", "yes"]}, "yes", "yes"),
        ({"A": "no", "B": "yes", "C": None}, "B", "yes"), (["A) 5", "B) 6", "C) 7"], "B", "6"),
        (["(A) 5", "(B) 6"], "6", "6"), (["A", "B", "AB"], "A", "A"),
        (["A. 5", "B. 6"], "B. 6", "6"), (["A：5", "B：6"], "B", "6"),
        (["A、五", "B、六"], "B", "六"), (["a) 5", "b) 6"], "b", "6"),
        ({"A": "A. 5", "B": "B. 6"}, "B", "6"), (PLANETS, "C) Jupiter", "Jupiter"),
    ],
)  # fmt: skip
def test_a_reference_names_an_option_by_label_number_letter_or_text(options, reference, text):
    made = shown(options, reference)
    args = json.loads(made.verifier_args)
    assert args["options"]["ABCD".index(made.reference)] == text


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"id": "a"}, message("id_twice", row="", id="a", first="")),
        ({"options": ["one"]}, "there are 1 options"),
        ({"options": []}, "there are 0 options"),
        ({"options": [str(n) for n in range(27)]}, "there are 27 options"),
        ({"options": ["a", "b", "a"]}, "options 1 and 3 are the same: 'a'"),
        ({"options": ["x  y", "x y"]}, "options 1 and 2 are the same"),
        ({"options": ["a", " "]}, "option 2 is empty"),
        ({"options": ["a", None]}, "option 2 is neither text nor a number"),
        ({"options": ["a", ["b"]]}, "option 2 is neither text nor a number"),
        ({"options": ["a", True]}, "option 2 is neither"),
        ({"options": ["a", "\ud800"]}, "option 2 holds half a character"),
        ({"options": "a, b, c"}, "the options are str, not a list"),
        ({"options": {"label": ["A"], "text": ["a", "b"]}}, "not two lists of the same length"),
        ({"reference": "C. Mars"}, "'C. Mars' names none"),
        ({"reference": "E"}, "'E' names none of the 4 options"),
        ({"reference": "Pluto"}, "'Pluto' names none of the 4 options"),
        ({"reference": 4}, "'4' names none"),
        ({"reference": -1}, "'-1' names none"),
        ({"reference": "2"}, "'2' names none.*a number counted from 0"),
        ({"reference": 1.5}, "'1.5' names none"),
        ({"reference": None}, r"\(column 'reference'\)"),
        ({"reference": True}, "holds bool"),
        ({"options": ["O", "A", "AB"], "reference": "A"}, "can mean the option 'O' or 'A'"),
        ({"options": [3, 2, 1], "reference": 1}, "can mean the option '2' or '1'"),
        (
            {"options": {"label": ["A", "B"], "text": ["x", "y"]}, "reference": "C"},
            "write one of the labels A, B",
        ),
        ({"verifier": "exact"}, "the row has options and names the verifier 'exact'"),
        ({"verifier_args": {"marker": "#"}}, "the row has options and verifier_args"),
    ],
)
def test_a_row_whose_options_cannot_be_used_is_an_error_with_its_line(read, changed, says):
    with pytest.raises(ProblemsError, match=f"set.jsonl:2: .*{says}"):
        read(ROW, ROW | {"id": "b"} | changed)


def test_the_order_depends_on_seed_and_id_alone(read):
    rows = [ROW | {"id": str(n)} for n in range(40)]
    there = {problem.id: problem for problem in read(*rows)}
    back = {problem.id: problem for problem in read(*reversed(rows[5:]))}
    assert all(back[name].text == there[name].text for name in back)
    other = {problem.id: problem for problem in read(*rows, seed=1)}
    assert any(other[name].text != there[name].text for name in there)


def test_the_order_of_the_dataset_can_be_kept(read):
    rows = [ROW | {"id": str(n)} for n in range(10)]
    problems = read(*rows, keep_option_order=True)
    assert {problem.reference for problem in problems} == {"C"}
    assert orders_kept(problems) == 0


@pytest.mark.parametrize(
    "last",
    [
        "All of the above", "none of the above.", "None of these", "Both A and B", "A and C",
        "A, B, and C", "Both (a) and (b)", "Options A and B", "Neither A nor B", "A only", "B or C",
        "Two of the above", "all are correct", "the first two options", "None", "以上都不是",
        "A和B",
    ],
)  # fmt: skip
def test_options_that_speak_of_others_keep_their_places(read, last):
    rows = [ROW | {"id": str(n), "options": [*PLANETS[:3], last]} for n in range(10)]
    problems = read(*rows)
    assert {problem.reference for problem in problems} == {"C"}
    assert all(json.loads(problem.verifier_args)["order_kept"] for problem in problems)
    assert orders_kept(problems) == 10


@pytest.mark.parametrize(
    "option", ["vitamin A", "the sea above", "some iron", "I and II", "a and b", "both lungs", "25"]
)
def test_other_options_are_shuffled(option):
    made = {shown([*PLANETS[:3], option], "C", name=f"p{n}").reference for n in range(40)}
    assert made == set("ABCD")


@pytest.mark.parametrize(
    ("text", "is_listed"),
    [("选哪个？A．1 B．10", True), ("Which? A.1 B.10", True), ("Is it A. 1 or B. 100?", False)],
)
def test_a_text_lists_an_option_if_its_whole_text_follows_its_letter(text, is_listed):
    made = shown(["1", "10"], "A", text=text)
    assert (made.text == text) is is_listed


def test_options_that_the_text_lists_already_are_not_listed_again():
    text = "Which is largest?\n" + "\n".join(
        f"({letter}) {planet}" for letter, planet in zip("ABCD", PLANETS, strict=True)
    )
    made = shown(PLANETS, "C", text=text)
    assert (made.text, made.reference) == (text, "C")
    assert json.loads(made.verifier_args)["order_kept"]


def test_a_chinese_question_asks_in_chinese():
    assert shown(PLANETS, "C", text="哪个最大？").text.endswith("请用正确选项的字母作答。")


def test_columns_of_other_datasets_are_found_and_mapped(read):
    mmlu = {"question": "Which?", "choices": PLANETS, "answer": 2}
    arc = {
        "question": "Which?",
        "choices": {"text": PLANETS, "label": ["1", "2", "3", "4"]},
        "answerKey": "3",
    }
    own = {"task": "Which?", "cops": PLANETS, "right": "Jupiter"}
    columns = {"text": "task", "options": "cops", "reference": "right"}
    for problems in (read(mmlu), read(arc), read(own, columns=columns)):
        assert right_text(problems[0]) == "Jupiter"


def test_rows_without_options_are_judged_as_before(read):
    plain = {"id": "b", "text": "1+1?", "reference": "2", "options": None}
    problems = read(ROW, plain, verifier="exact", verifier_args={"marker": "####"})
    assert [problem.verifier for problem in problems] == ["choice", "exact"]
    assert json.loads(problems[1].verifier_args) == {"marker": "####"}


def test_the_sample_file_loads_and_its_references_verify():
    problems = load(Problems(source=str(ROOT / "data" / "choice.sample.jsonl")))
    right = ["12:15", "59", "3/28", "rythm", "No blip is a blap.", "all of the above", "Friday"]
    assert [right_text(problem) for problem in problems] == [*right, "6"]
    assert orders_kept(problems) == 1
    for problem in problems:
        for letter in "ABCDE":
            verdict = judged(problem, rf"So it is \boxed{{\text{{({letter})}}}}.")
            assert verdict.is_correct == (letter == problem.reference), problem.id


TEXTS = st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=26)


@given(TEXTS, st.integers(0, 30), st.text(max_size=5), st.integers(0, 3))
def test_the_letter_always_names_the_option_of_the_dataset(options, place, name, seed):
    try:
        made = lettered("Which?", options, place, name, seed, False)
    except UnfitOptions:
        return
    args = json.loads(made.verifier_args)
    assert sorted(args["order"]) == list(range(len(options)))
    position = "ABCDEFGHIJKLMNOPQRSTUVWXYZ".index(made.reference)
    assert args["order"][position] == place
    assert all(
        f"{letter}) {text}" in made.text
        for letter, text in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", args["options"], strict=False)
    )


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(ANYTHING, ANYTHING)
def test_any_row_is_shown_or_has_a_fault(options, reference):
    try:
        assert lettered("Which?", options, reference, "p", 0, False).text
    except UnfitOptions as fault:
        assert str(fault)
