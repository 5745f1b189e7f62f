from __future__ import annotations

import dataclasses
import itertools

import pytest
from generations import deliberation, problem, trajectory, unboxed
from hypothesis import given
from hypothesis import strategies as st

from heavydistill.config.sets import Filters
from heavydistill.curate.filters.labels import (
    Looked,
    fingerprint,
    look_at_deliberation,
    look_at_trajectory,
)
from heavydistill.store.sets.rows import LABELS

USES = "Attempt 1 adds wrongly, attempt 2 is right: 2 + 3 = 5."
ANSWER = r"The sum of two and three is \boxed{5}."
CODES = [code for code, _ in LABELS]
COPY = " ".join(f"word{number}" for number in range(30)) + r" \boxed{5}"
CHINESE = "我们把这两个数相加，先从二数到三，再接着数两个数，最后得到的结果就是五，验算无误。"
SHOWN = [trajectory(r"It is \boxed{6}.", label="incorrect"), trajectory(COPY)]
# What makes a deliberation worth each label, alone, in the order of LABELS.
FAULTS = {
    "unfinished": {"finish_reason": "length"},
    "undecided": {"label": "undecided"},
    "no_final_answer": {"answer_text": "It is five."},
    "several_final_answers": {"answer_text": r"It is \boxed{4}. No, after all it is \boxed{5}."},
    "ignores_attempts": {"reasoning": "Two and three is five."},
    "verbatim_copy": {"answer_text": COPY},
    "leaks_reference": {"reasoning": f"{USES} The reference answer is 5."},
    "other_language": {"reasoning": f"{USES} {CHINESE * 4}"},
}
ASKED = problem("What is the sum of two and three? Explain how you found it, in a sentence or two.")


def looked(filters=None, shown=SHOWN, **changes) -> Looked:
    fields = {"answer_text": ANSWER, "reasoning": USES, **changes}
    return look_at_deliberation(ASKED, shown, deliberation(**fields), filters or Filters())


def test_a_right_deliberation_that_works_with_the_attempts_has_no_label():
    assert looked() == Looked("", uses_attempts=True, copied=0.0)


@pytest.mark.parametrize("code", FAULTS)
def test_each_fault_has_its_label(code):
    assert looked(**FAULTS[code]).label == code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"finish_reason": "error", "error": "gone", "failure": "timeout"}, "unfinished"),
        ({"answer_text": " \n"}, "unfinished"),
        ({"label": None}, "undecided"),
        ({"label": "incorrect"}, "not_correct"),
        ({"verdict": unboxed().verdict}, "no_final_answer"),
    ],
)
def test_responses_that_are_not_whole_judged_and_right_are_told_apart(changes, code):
    assert looked(**changes).label == code


@pytest.mark.parametrize(("first", "second"), [*itertools.combinations(FAULTS, 2)])
def test_of_two_faults_the_one_that_stands_first_in_the_table_is_the_label(first, second):
    assert CODES.index(first) < CODES.index(second)
    both = {**FAULTS[second], **FAULTS[first]}
    if FAULTS[first].keys() & FAULTS[second].keys():
        # Both faults in one text.
        key = next(iter(FAULTS[first]))
        both[key] = f"{FAULTS[second][key]}\n{FAULTS[first][key]}"
        if first == "ignores_attempts":
            both[key] = FAULTS[second][key].replace(USES, "")
        if first == "no_final_answer":
            both[key] = FAULTS[second][key].replace("\\boxed", "")
    assert looked(**both).label == first


def test_the_attempts_may_be_ignored_where_the_build_says_so():
    alone = {"reasoning": "Two and three is five."}
    assert looked(Filters(uses_attempts=False), **alone) == Looked("", False, 0.0)


def test_how_much_is_a_copy_is_the_builds_to_say():
    half = " ".join(COPY.split()[:16]) + " " + " ".join(f"own{n}" for n in range(16)) + ANSWER
    share = looked(answer_text=half).copied
    assert 0.1 < share < 0.8
    assert looked(answer_text=half).label == ""
    assert looked(Filters(most_copied=share), answer_text=half).label == "verbatim_copy"
    assert looked(Filters(most_copied=1.0), answer_text=COPY).label == "verbatim_copy"


def test_the_signs_are_measured_whatever_the_label():
    seen = looked(label="incorrect", answer_text=COPY)
    assert seen == Looked("not_correct", uses_attempts=True, copied=1.0)


def test_what_was_shown_bounds_the_numbers_and_may_be_repeated():
    assert looked(reasoning="Attempts 2 and 3 are right.").label == "ignores_attempts"
    worked = "one two three four five six seven eight nine ten eleven twelve thirteen"
    asked = dataclasses.replace(
        ASKED, reference=f"{worked} #### 5", verifier_args='{"marker":"####"}'
    )
    answer = deliberation(ANSWER, f"{USES} {worked}")
    assert look_at_deliberation(asked, SHOWN, answer, Filters()).label == "leaks_reference"
    knows = [*SHOWN, trajectory(ANSWER, worked)]
    assert look_at_deliberation(asked, knows, answer, Filters()).label == ""


def test_an_attempt_is_looked_at_without_others():
    assert look_at_trajectory(ASKED, trajectory(ANSWER)) == ""
    alone = {code: fault for code, fault in FAULTS.items() if code != "ignores_attempts"}
    for code, fault in alone.items():
        found = look_at_trajectory(ASKED, trajectory(**{"answer_text": ANSWER, **fault}))
        assert found == ("" if code == "verbatim_copy" else code)


def test_every_label_is_explained_once():
    assert len(set(CODES)) == len(CODES)
    assert {*FAULTS, "not_correct"} <= set(CODES)
    assert all(meaning and not meaning.endswith(".") for _, meaning in LABELS)


@given(st.sampled_from(["", *FAULTS]), st.sampled_from([" ", "\n\n", "\t \n"]))
def test_blanks_at_the_ends_change_no_label(code, blanks):
    fields = {"answer_text": ANSWER, "reasoning": USES, **FAULTS.get(code, {})}
    spaced = {name: f"{blanks}{fields[name]}{blanks}" for name in ("answer_text", "reasoning")}
    assert looked(**{**fields, **spaced}) == looked(**fields)


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_text_gets_a_known_label(reasoning, answer_text):
    seen = looked(reasoning=reasoning, answer_text=answer_text)
    assert seen.label in ("", *CODES)
    assert seen == looked(reasoning=reasoning, answer_text=answer_text)


TEXT = "The sum of 2+3 is Five; 所以答案是五。"


@pytest.mark.parametrize(
    "other",
    [
        TEXT.upper(),
        f"\n\n{TEXT}  ",
        TEXT.replace(" ", "\n  "),
        "**The** sum, of (2+3) is: 'five'! 所以，答案是 五",
        TEXT.replace(" ", ""),
        "Ｔｈｅ sum of 2+3 is Five; 所以答案是五。",
    ],
)
def test_responses_that_differ_in_typography_alone_are_duplicates(other):
    assert fingerprint(deliberation(TEXT, "Think.")) == fingerprint(deliberation(other, "think"))
    assert fingerprint(deliberation(ANSWER, TEXT)) == fingerprint(trajectory(ANSWER, other))


@pytest.mark.parametrize(
    "other", ["The sum of 2+3 is Six; 所以答案是五。", TEXT.replace("+", "="), ""]
)
def test_responses_that_say_something_else_are_not(other):
    assert fingerprint(deliberation(TEXT)) != fingerprint(deliberation(other))
    assert fingerprint(deliberation(ANSWER, TEXT)) != fingerprint(deliberation(ANSWER, other))


def test_a_fingerprint_is_the_same_in_every_process():
    assert fingerprint(deliberation("It is 5.", "2+3=5")) == "cdbc4721bdbd98eeabf23ee0c25f418e"
