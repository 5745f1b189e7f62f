"""Problems with options, and what responses to them claim: the right option C, another, or none."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging import judged
from linear import assert_linear

from heavydistill.schema import Problem
from heavydistill.verifiers.choice.verifier import MOST_CHARACTERS, Choice

PLANETS = ["Venus", "Mars", "Jupiter", "42"]


def _texts(table: str) -> list[str]:
    """The texts of a table: those beside each other are of one kind; ↵ is a line end."""
    cells = (cell for line in table.strip().split("\n") for cell in line.split(" | "))
    return [cell.replace("↵", "\n") for cell in cells]


# Responses that claim C, and nothing else.
ACCEPTED = _texts(r"""
\boxed{c} | \boxed{\textbf{(C)}} | \boxed{\mathrm{C}} | \boxed{\textbf{(C) } Jupiter}
\boxed{C. the planet Jupiter} | \boxed{\text{Answer: C}} | \boxed{答案：C}
<answer> (C) Jupiter </answer> | Answer: c | Answer: (c) | Answer: C. No reaction occurs in A.
Answer: "C" | {"answer": "C"} | {"final_answer": "C"} | Answer: $C$ | Answer: \(C\)
Answer: $\text{C}$ | Answer:↵↵**C** | ## Final Answer↵↵C | ### Answer↵**C) Jupiter**
Final Answer: Option C | The answer is option C. | The answer is the letter C.
The answer is clearly C. | The answer is therefore (C). | The answer should be C.
The correct answer would be C. | The correct answer is C because A and B are rocky.
The correct answer is C, not A. | The correct answer is C rather than A or B.
Die Antwort ist \boxed{C}.
Correct option: C) Jupiter | If we compare the masses, one is far larger, so the answer is C.
The answer is not A. The answer is C. | 答案选C | 最终答案：**C** | 正确选项是C | 因此选C。
故选：C。 | 本题选C | 不是A。答案是C。 | c | Option C | ### Final Answer:↵↵$\boxed{C}$
Final Answer: The final answer is C. I hope it is correct. | <answer>\boxed{C}</answer>
答案是C，不是B | 应选C，而非B | I would say the answer is C. | 【答案】C↵【解析】木星最大
The right letter is C. | The correct answer would therefore be C. | \boxed{C\text{. Jupiter}}
\boxed{选C} | 选C。A、B错误，D错误。 | 答案：C。A项错误，B项错误。 | 答案是C。A、B、D均不对
Answer: C. Das ist Jupiter. | Answer: ✅ **C** | The answer is C. Reason for my answer: it is large.
""")
# Responses that claim one other option.
OTHER = _texts(r"""
\boxed{B} because C is too large. | The answer is B, not C.
The answer is A because the second one is C. | Option C is wrong. The answer is B.
\boxed{B} instead of \boxed{C}
""")
HEDGED = _texts(r"""
\boxed{A, C} | \boxed{\text{B and C}} | \boxed{C/D} | \boxed{A} or \boxed{C}
\boxed{C} and \boxed{B} | Answer: C/B | Answer: A, B and C | Answer: C & D | Answer: C (or B)
Answer: C, or possibly B. | The answer is either B or C. | The answer is both B and C. | 答案是C或B
答案：B和C | 答案是B、C。 | \boxed{A, B, C, D} | \boxed{\text{C (or D)}} | Answer: \boxed{C} or D
The answer is A, B, or C. | The answer is C as well as D | The answer is C, also D
The answer is C followed by D | 答案：C 或者 D | Answer: C. Jupiter and D. 42
""")
# By reason, what is not decided.
UNDECIDED = {
    "unclear": _texts(r"""
\boxed{B} \boxed{C} | \boxed{C} The final answer is B. | Answer: C↵Or B.
Answer: C. Alternatively, D. | \boxed{C. Mars} | \boxed{(C) 42} | Answer: C. Mars
The answer is C and D moves faster. | Answer: B C D | \boxed{C.D.}
<answer>A</answer><answer>C</answer> | Answer: Jupiter. Or Mars. | \boxed{C} o B
\boxed{C} oder vielleicht B
Answer: A) false B) false C) true D) false | The answer is C, and A and B are wrong.
故选C，A、B、D错误。 | Answer: C, D is too small. | The answer is C and D is also correct.
答案是C，D也正确。 | Answer: C, and D is possible too.
"""),
    "conflict": _texts(r"""
The answer is C. It could be D. | The answer is C. But B is possible. | Answer: A↵Answer: C
The answer is B. \boxed{C} | Answer: C. It could also be D.
Answer: C. In the end, both B and C are correct.
The answer is C. But C is not the correct answer. | \boxed{C} The answer is not C.
Answer: C. Moment, B ist richtig. | Answer: C. Non, la bonne réponse est B.
Answer: C. いや、Bです。 | Ответ: \boxed{C}. Нет, всё-таки B.
答案是C。答案不是C。 | Answer: C. B | Answer: C↵D | The answer is C. On reading again it is D.
The answer is B. Wait, I mixed up the letters, so the answer is C.
Answer: A↵Hmm, let me recheck.↵Answer: C
The answer is A. No, that was Venus. Actually the answer is C. | 答案是A。不对，重新计算，答案是C。
\boxed{C} Wait, no. \boxed{B} | Answer: C. D is also correct.
"""),
    "retracted": _texts(r"""
Answer: C. Wait, that cannot be, it must be one of the others.
\boxed{C} Actually, I was thinking of Mars. | 答案是C。不对，应该是别的。
Answer: C. Moment, das ist falsch. | \boxed{C} ist nicht richtig. | \boxed{C}. Attendez, c'est faux.
The answer is C. I mean D. | The answer is C. Just kidding, it is D.
"""),
    "no_option": _texts(r"""
Answer: A B C D | \boxed{a gas giant} | \boxed{A gas giant} | \boxed{C^2} | \boxed{P(C)}
\boxed{B \cup C} | \boxed{C + D} | The answer is A. The answer is none of the above.
Answer: A planet that is large | Final answer: see above | The answer is neither B nor C.
\boxed{C?} | Answer: C -> D | Answer: 'C' | \boxed{F} | Answer: E | The answer is (F).
"""),
    "no_answer": _texts(r"""
Die Antwort ist nicht \boxed{C} | La respuesta no es \boxed{C}
The answer is C?! | not \boxed{C} | The answer is not \boxed{C} | It isn't \boxed{C}
\boxed{C} is wrong | \boxed{C} is not correct. | \boxed{C | \boxed{}
I do not think the answer is C. | It is not true that the answer is C. | The wrong answer is C.
A common incorrect answer is C. | The answer is C if it is a gas. | The answer is a large planet.
The answer is A large planet. | the answer is c = 5 | The third thinker's answer: C
C. Because it is large and the others are not. | 如果是气体，答案是C | 答案是C吗？
The answer is C. That is wrong. | 选项：A. Venus B. Mars C. Jupiter | The answer is C#
Many say "the answer is C". | Do not say the answer is C. | 答案是C还是B？ | 为什么答案是C
The answer is C when it is hot. | The answer is C for large planets and B for small ones.
The answer is C, which is wrong. | Answer: C (wrong) | Answer: C or maybe not.
\boxed{C} ≠ the answer | The least correct answer is C. | The second-best answer is C.
The distractor answer is C. | My initial guess: the answer is C | For example, "Answer: C".
Format: Answer: C | I choose C over B. | B or C is the correct answer. | I choose C and B.
I choose C and then D
"""),
}


def problem(reference: str = "C", options: object = PLANETS) -> Problem:
    args = json.dumps({"options": options})
    return Problem(id="p", text="?", reference=reference, verifier="choice", verifier_args=args)


def outcome(text: str, reference: str = "C", options: object = PLANETS) -> tuple[str, str]:
    verdict = judged(problem(reference, options), text)
    return verdict.label, verdict.reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, ("correct", "equal")) for text in ACCEPTED),
        *((text, ("incorrect", "different")) for text in OTHER),
        *((text, ("incorrect", "hedged")) for text in HEDGED),
        *((text, ("undecided", why)) for why, texts in UNDECIDED.items() for text in texts),
    ],
)
def test_what_a_response_claims_is_read_and_never_guessed(text, expected):
    assert outcome(text) == expected


BLOOD = ["O", "A", "AB", "B"]
CLASSES = ["E. coli", "S. aureus", "a cat", "A cat"]
NUMBERS = ["1/2", "0.5 m", "2", "$x^2$"]
ROMANS = ["I only", "II only", "I and II", "III"]
COURT = [
    "Yes, because the ordinance is vague.", "No, because the sidewalk is a public forum.",
    "No, because the permit was denied.",
]  # fmt: skip
JOINT = ["Both B and C", "All of the above", "Mars", "None of the above"]


@pytest.mark.parametrize(
    ("options", "reference", "text", "reason"),
    [
        (BLOOD, "B", "Answer: A", "unclear"),
        (BLOOD, "B", "The answer is B", "unclear"),
        (BLOOD, "B", "Answer: B. A", "equal"),
        (CLASSES, "A", "The answer is E. coli.", "equal"),
        (CLASSES, "A", r"\boxed{A. a cat}", "unclear"),
        (CLASSES, "C", "Answer: a cat", "equal"),
        (CLASSES, "C", r"\boxed{A cat}", "different"),
        (NUMBERS, "C", "The answer is 2.5", "no_answer"),
        (["5", "0.5", "-5"], "C", "Answer: C - 5", "no_option"),
        (["x_1", "x1"], "A", r"\boxed{x1}", "no_option"),
        (["Mars", "mars"], "B", "Answer: mars", "equal"),
        (["Mars", "mars"], "A", "Answer: MARS", "no_option"),
        (ROMANS, "C", "Answer: I and II", "equal"),
        (ROMANS, "A", r"\boxed{I}", "no_option"),
        (JOINT, "A", "The answer is A, both B and C.", "equal"),
        (JOINT, "A", "Answer: B and C", "unclear"),
        (JOINT, "D", "The answer is none of the above.", "equal"),
        (JOINT, "A", "The answer is none of the above.", "different"),
        (["True", "False"], "B", "The answer is false.", "equal"),
        (4, "C", "Answer: C", "equal"),
        (4, "C", "Answer: B or C", "hedged"),
        (4, "C", "Jupiter", "no_answer"),
        (["the force F", "the mass m"], "A", r"\boxed{F}", "no_option"),
        (COURT, "B", "Answer: B: No, because the sidewalk is a public forum. So it is.", "equal"),
        (COURT, "B", "Answer: B. No, the sidewalk is not one.", "retracted"),
        (
            COURT,
            "A",
            "Answer: A. No, because the permit was denied, it is another one.",
            "retracted",
        ),
    ],
)  # fmt: skip
def test_an_option_may_be_named_by_its_text_where_that_is_one(options, reference, text, reason):
    label = {"equal": "correct", "different": "incorrect", "hedged": "incorrect"}
    assert outcome(text, reference, options) == (label.get(reason, "undecided"), reason)


def test_one_option_is_extracted_alike_so_that_votes_meet():
    texts = [r"\boxed{\text{(C)}}", "Answer: **c**", "Jupiter", "故选C"]
    verdicts = [judged(problem(), text) for text in texts]
    assert {verdict.extracted for verdict in verdicts} == {"C"}
    assert verdicts[0].verifier == "choice@7"


def test_the_evidence_of_a_conflict_is_its_claims():
    verdict = judged(problem(), "Answer: A\nAnswer: C or D\nAnswer: C")
    assert json.loads(verdict.evidence) == {"claims": ["A", "CD", "C"]}
    assert verdict.extracted is None


@pytest.mark.parametrize(
    ("reference", "args", "says"),
    [
        ("E", {"options": PLANETS}, "not a letter from A to D"),
        ("c", {"options": PLANETS}, "not a letter from A to D"),
        ("AB", {"options": PLANETS}, "not a letter from A to D"),
        ("Jupiter", {"options": PLANETS}, "not a letter from A to D"),
        ("A", {}, "must be a list of the texts"),
        ("A", {"options": "A, B"}, "must be a list of the texts"),
        ("A", {"options": [1, 2]}, "must be a list of the texts"),
        ("A", {"options": ["x", " "]}, "must be a list of the texts"),
        ("A", {"options": ["x"]}, "there are 1 options"),
        ("A", {"options": 27}, "there are 27 options"),
        ("A", {"options": True}, "must be a list of the texts"),
        ("A", {"options": PLANETS, "marker": "####"}, "marker"), ("C", {"options": PLANETS}, None),
        (" C ", {"options": PLANETS, "order": [0, 1, 2, 3]}, None), ("Z", {"options": 26}, None),
    ],
)  # fmt: skip
def test_unfit_references_and_arguments_are_told_before_a_run(reference, args, says):
    unfit = Problem(
        id="p", text="?", reference=reference, verifier="choice", verifier_args=json.dumps(args)
    )
    fault = Choice().check_reference(unfit)
    assert (says is None and fault is None) or (says and fault and says in fault)


PIECES = [
    *("A", "B", "C", "D", "E", "a", "c", "I", " ", "\n", ".", ",", "?", ":", "(", ")", "**", "$"),
    *(r"\boxed{", "}", r"\text{", "{", "<answer>", "</answer>", "Answer: ", "the answer is "),
    *("not ", " or ", " and ", "wait, ", "Jupiter", "Mars", "42", "答案是", "故选", "不", "或"),
    *(" is the correct answer", " is wrong", "if ", "so ", "option ", "actually ", "it is "),
]


@given(
    st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.text(),
    st.sampled_from(["{}", "\\boxed{{{}}}", "Answer: {}"]),
)
def test_any_text_gets_a_verdict_and_only_the_reference_is_correct(text, around):
    text = around.format(text)
    verdicts = {letter: judged(problem(letter), text) for letter in "ABCD"}
    assert not any(verdict.reason.startswith("verifier_error") for verdict in verdicts.values())
    right = [letter for letter, verdict in verdicts.items() if verdict.is_correct]
    assert len(right) <= 1
    if right:
        assert {verdict.extracted for verdict in verdicts.values()} == set(right)


@pytest.mark.parametrize("before", ["Let us see.\n", "We look at A and B first.\n", "首先看题。\n"])
def test_what_is_not_correct_alone_is_not_correct_after_other_words(before):
    texts = [*OTHER, *HEDGED, *(text for texts in UNDECIDED.values() for text in texts)]
    assert [text for text in texts if judged(problem(), before + text).is_correct] == []


def test_a_text_far_longer_than_any_reply_is_not_read():
    verdict = judged(problem(), "Answer: C\n" * (MOST_CHARACTERS // 5))
    assert (verdict.label, verdict.reason) == ("undecided", "too_complex")
    at_most = "x" * (MOST_CHARACTERS - 10) + "\nAnswer: C"
    assert judged(problem(), at_most).is_correct
    assert not judged(problem(), " " + at_most).is_correct


# Texts with a long stretch of one piece at each ~.
LONG = [
    ("~", "The fox, e.g. A or B, is not there. So it is. "), ("~", "the answer is "),
    ("~", "Answer: C\n"), ("~", r"\boxed{C} "), ("~", r"\boxed{"), ("~", "A or "), ("~", "wait, "),
    ("~", "answer: A is not "), ("~", "only correct right best "), ("~", "\n "), ("~", "."),
    ("~", "*"), ("~", "~~a"), ("~", "<answer>"), ("~", "C is correct.\n"), ("~", "答案是"),
    ("~", "Ａ"), ("~", "ﷺ"), (r"\boxed{~}", "A, "), ("Answer: ~", "A, "), ("~x", " "),
]  # fmt: skip


@pytest.mark.parametrize(("text", "piece"), LONG)
def test_reading_is_linear_in_the_text(text, piece):
    assert_linear(
        lambda text: judged(problem(), text),
        lambda size: text.replace("~", piece * (size // len(piece))),
    )


@pytest.mark.parametrize("opens", [r"\boxed{", "{"])
def test_reading_is_linear_in_the_depth_of_braces(opens):
    assert_linear(
        lambda text: judged(problem(), text), lambda size: opens * (size // 8) + "}" * (size // 8)
    )
