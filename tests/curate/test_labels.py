"""What is wrong with a response as something to learn from."""

import dataclasses
import itertools
import json
import re
from pathlib import Path

import pytest
from generations import deliberation, problem, trajectory, unboxed
from hypothesis import given
from hypothesis import strategies as st
from linear import assert_linear

from heavydistill.config.sets import Filters
from heavydistill.curate.filters.labels import (
    ResponseSignals,
    copied,
    fingerprint,
    look_at_deliberation,
    look_at_trajectory,
    spoken,
    uses_attempts,
)
from heavydistill.store.sets.set_rows import LABELS

USES = "Attempt 1 adds wrongly, attempt 2 is right: 2 + 3 = 5."
FALSE = f"{USES} Attempt 1 is right."
ANSWER = r"The sum of two and three is \boxed{5}."
LEAK = r"Attempt 2 is right: \boxed{5}."
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
    "false_claims": {"reasoning": FALSE},
    "verbatim_copy": {"answer_text": COPY},
    "leaks_attempts": {"answer_text": LEAK},
    "leaks_reference": {"reasoning": f"{USES} The reference answer is 5."},
    "other_language": {"reasoning": f"{USES} {CHINESE * 4}"},
}
ASKED = problem("What is the sum of two and three? Explain how you found it, in a sentence or two.")


STRICT = Filters(false_claims="leave_out")


def looked(filters=STRICT, shown=SHOWN, **changes) -> tuple[str, ResponseSignals]:
    fields = {"answer_text": ANSWER, "reasoning": USES, **changes}
    return look_at_deliberation(ASKED, shown, deliberation(**fields), filters)


def test_a_right_deliberation_that_works_with_the_attempts_has_no_label():
    assert looked() == ("", ResponseSignals(True, copied=0.0, false_claims=0, leaks_attempts=False))


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        *FAULTS.items(),
        ("unfinished", {"finish_reason": "error", "error": "gone", "failure": "timeout"}),
        ("unfinished", {"answer_text": " \n"}),
        ("undecided", {"label": None}),
        ("not_correct", {"label": "incorrect"}),
        ("no_final_answer", {"verdict": unboxed().verdict}),
    ],
)
def test_each_fault_has_its_label(code, changes):
    assert looked(**changes)[0] == code


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
    assert looked(**both)[0] == first


def test_the_attempts_may_be_ignored_where_the_build_says_so():
    alone = {"reasoning": "Two and three is five."}
    assert looked(Filters(uses_attempts=False), **alone) == (
        "",
        ResponseSignals(False, 0.0, 0, False),
    )


def test_false_claims_may_be_kept_and_are_counted_all_the_same():
    for treatment, label in (("keep", ""), ("leave_out", "false_claims")):
        found = looked(Filters(false_claims=treatment), reasoning=FALSE)
        assert found == (label, ResponseSignals(True, 0.0, 1, False))
    verdict = dataclasses.replace(SHOWN[0].verdict, label="undecided", extracted="6")
    unknown = [dataclasses.replace(SHOWN[0], verdict=verdict), SHOWN[1]]
    assert looked(shown=unknown, reasoning="Attempt 1 is wrong, attempt 2 is right.")[0] == ""
    contradicts = "Attempt 1 is right, attempt 2 is right."
    assert looked(shown=unknown, reasoning=contradicts)[0] == "false_claims"


@pytest.mark.parametrize("reasoning", [USES, ""])
def test_answers_that_speak_of_attempts_may_be_kept_and_are_counted_all_the_same(reasoning):
    leak = rf"Attempt 1 and attempt 2 differ in the sum. {ANSWER}"
    for treatment, label in (("keep", ""), ("leave_out", "leaks_attempts")):
        found = looked(Filters(leaks_attempts=treatment), reasoning=reasoning, answer_text=leak)
        assert found == (label, ResponseSignals(True, 0.0, 0, leaks_attempts=True))
    told = dataclasses.replace(ASKED, text=f"{ASKED.text} The solver had three attempts.")
    said = deliberation(rf"All attempts agree. {ANSWER}", reasoning="Attempts 1 and 2 differ.")
    assert not look_at_deliberation(told, SHOWN, said, STRICT)[1].leaks_attempts


def test_how_much_is_a_copy_is_the_builds_to_say():
    half = " ".join(COPY.split()[:16]) + " " + " ".join(f"own{n}" for n in range(16)) + ANSWER
    share = looked(answer_text=half)[1].copied
    assert 0.1 < share < 0.8
    assert looked(answer_text=half)[0] == ""
    assert looked(Filters(most_copied=share), answer_text=half)[0] == "verbatim_copy"
    assert looked(Filters(most_copied=1.0), answer_text=COPY)[0] == "verbatim_copy"


def test_the_signs_are_measured_whatever_the_label():
    seen = looked(label="incorrect", answer_text=COPY)
    assert seen == ("not_correct", ResponseSignals(True, 1.0, 0, False))


def test_what_was_shown_bounds_the_numbers_and_may_be_repeated():
    assert looked(reasoning="Attempts 2 and 3 are right.")[0] == "ignores_attempts"
    worked = "one two three four five six seven eight nine ten eleven twelve thirteen"
    asked = dataclasses.replace(
        ASKED, reference=f"{worked} #### 5", verifier_args='{"marker":"####"}'
    )
    answer = deliberation(ANSWER, f"{USES} {worked}")
    assert look_at_deliberation(asked, SHOWN, answer, Filters())[0] == "leaks_reference"
    knows = [*SHOWN, trajectory(ANSWER, worked)]
    assert look_at_deliberation(asked, knows, answer, Filters())[0] == ""


def test_an_attempt_is_looked_at_without_others():
    assert look_at_trajectory(ASKED, trajectory(ANSWER), Filters()) == ""
    of_deliberations = ("ignores_attempts", "false_claims", "leaks_attempts")
    alone = {code: fault for code, fault in FAULTS.items() if code not in of_deliberations}
    for code, fault in alone.items():
        found = look_at_trajectory(ASKED, trajectory(**{"answer_text": ANSWER, **fault}), Filters())
        assert found == ("" if code == "verbatim_copy" else code)


@given(st.sampled_from(["", *FAULTS]), st.sampled_from([" ", "\n\n", "\t \n"]))
def test_blanks_at_the_ends_change_no_label(code, blanks):
    fields = {"answer_text": ANSWER, "reasoning": USES, **FAULTS.get(code, {})}
    spaced = {name: f"{blanks}{fields[name]}{blanks}" for name in ("answer_text", "reasoning")}
    assert looked(**{**fields, **spaced}) == looked(**fields)


SAID = st.lists(st.sampled_from([USES, LEAK, ANSWER, "Five.", "All attempts agree."])).map(
    "\n".join
)


@given(SAID, SAID)
def test_a_used_answer_leaks_nothing_whatever_was_thought(reasoning, answer_text):
    label, signs = looked(reasoning=reasoning, answer_text=answer_text)
    assert label or not signs.leaks_attempts
    assert signs.leaks_attempts == looked(reasoning="", answer_text=answer_text)[1].leaks_attempts


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_text_gets_a_known_label(reasoning, answer_text):
    seen = looked(reasoning=reasoning, answer_text=answer_text)
    assert seen[0] in ("", *CODES)
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


ROOT = Path(__file__).parents[2]
SOLUTIONS = ROOT / ".." / "shared" / "data" / "gsm8k_solutions_k4.jsonl"


@pytest.mark.parametrize(
    "text",
    [
        "Attempts 1 and 2 differ in the last step.",
        "Looking at attempt 1, I see a slip. Let me look at attempt 2.",
        "Looking at the first attempt, the sign is off; based on the third attempt it is +.",
        "As for attempt 2, we verified it; in attempt 3, we checked every step.",
        "In a sense attempt 3 is right, and on a closer look attempt 4 too.",
        "### Attempt 1\n- induction, 12\n\n### Attempt 2\n- generating functions, 14",
        "| Attempt 1 | 42 |\n| Attempt 2 | 43 |",
        "Attempt 1: Let's check this. Fine.\nAttempt 2: Let me verify. Wrong.",
        "Okay. The first attempt uses brute force. The second attempt finds a closed form.",
        "Most attempts agree on 42, but let me check.", "All 8 attempts arrive at 042.",
        "Both attempts claim that the limit is 1.", "Three of the attempts get 16, one gets 18.",
        "Hmm, the attempts disagree.", "The other thinkers use the wrong formula.",
        "Attempt 4 is right; the others make an error.",
        "Attempt 4 differs from the other attempts.", "The attempts all yield 42.",
        "The attempts have conflicting answers.", "The attempts seem to converge on 42.",
        "None of the attempts considered n = 0.", "Only one attempt got 5.",
        "After carefully reviewing the attempts, I find 42.",
        "Among the four attempts, three got 12.",
        "Looking across the attempts, the answers are 12 and 14.",
        "Most of the responses conclude that it is 42.", "Both solutions agree on 42.",
        "Response 1 and Response 3 both say 12.",
        "Response 1: correct. Response 2: incorrect because it forgets zero.",
        "Only attempt 3 gets this right, the other three are wrong.", "Attempt 1和Attempt 2都对",
        "轨迹1和轨迹3的结果一样。", "方案1和方案2都忽略了边界条件。", "四个尝试中有三个得到42。",
        "没有一个尝试考虑到零。", "对比各个尝试，答案分别是12、14、12。",
        "只有尝试3是正确的，其他都错了。", "Programmer 1 uses a heap; programmer 2 sorts.",
        "All the attempts are wrong, so I derive it again.",
        "The attempts get 5, 5 and 6. All of them are wrong because they forget zero.",
        "Every attempt fails at the second case.", "None of the attempts is correct.",
        "所有尝试都错了，重新推导。", "没有一个尝试是正确的。", "大多数尝试认为是12",
        "**尝试1**：答案是5\n**尝试2**：答案是6", "解答一：忽略了零。解答二：正确。",
        "尝试得到5和6。它们都错了。",
    ],
)  # fmt: skip
def test_a_deliberation_uses_attempts_if_it_names_two_or_says_what_several_hold(text):
    assert uses_attempts(text, attempts=4)


@pytest.mark.parametrize(
    "text",
    [
        "Attempt 1 differs. Attempt 1 is wrong.", "Attempts 7 and 9 differ.",
        "Attempt 1 is right so far; the rest of the proof follows.",
        "All the terms are positive and every case is covered.",
        "Let x be the number of apples. Then x = 5.",
        "In my first attempt I used 3, in my second attempt I used 4.",
        "A first attempt would be 2. A second attempt would be 3.",
        "In the first attempt, I forgot the sign; in the second attempt I made a slip.",
        "First attempt: let me try 3. Second attempt: let me try 4.",
        "Attempt 1: Let's try 2. No.\nAttempt 2: Let's try 3. Attempt 2 is right, attempt 1 not.",
        "**Attempt 1 (brute force):** Try x=1.\n**Attempt 2 (induction):** Suppose P(k).",
        "Solution 1: use induction.\nSolution 2: use generating functions.",
        "**Solution 1.** x=2\n**Solution 2.** x=3\nIn solution 1 and in solution 2 we divide.",
        "The equation has solutions 2 and 3. Both solutions are correct.",
        "The first solution is x = 2 and the second solution is x = 3.",
        "Candidates 2, 3, 5 and 7 remain. Candidate 2 fails, candidate 3 works.",
        "None of these solutions is valid.",
        "Both attempts failed, so let me start over. All attempts got stuck.",
        "My very first attempt gives 2, my own second attempt gives 3.",
        "In my attempt 1 and in our attempt 2 this is missing.",
        "All attempts to find a smaller one fail.", "Every attempt to construct such a set fails.",
        "On the first attempt she hits; on the second attempt she misses.",
        "All of them are incorrect except C.", "None of them is correct, so D.",
        "Let me attempt 2 different ways, then attempt 3 more.",
        "See [Reference 1] and [Reference 2].", "We attempt 2, then we attempt 3.",
        "I will look at all attempts to find a smaller one.",
        "The two solutions agree. All solutions are positive: both are valid.",
        "**Attempt 1:** Assume x=2.\n**Attempt 2:** Assume x=3.",
        "首先尝试1，不行；尝试2，不行；如果尝试3，可以。", "我第一个尝试是2，第二个尝试是3。",
        "我们尝试一下，尝试一种新方法，再尝试两种。", "依次尝试1、2、3，发现都不行。",
        "第一次尝试得到3，第二次尝试得到4。", "解答一：设x=2\n解答二：设x=3",
        "方案一：先算。\n方案二：后算。", "这些选项都不正确", "",
    ],
)  # fmt: skip
def test_a_solver_that_saw_no_attempts_shows_no_sign(text):
    assert not uses_attempts(text, attempts=4)


def test_attempts_that_the_problem_tells_of_need_a_name_to_count_for_others():
    told = "A player makes three attempts. Each attempt succeeds with probability 1/2."
    story = "The first attempt fails and the second attempt succeeds. All attempts fail: attempt 1."
    assert uses_attempts(story, 4)
    assert not uses_attempts(story, 4, told)
    assert uses_attempts("Attempt 1 forgets this; Attempt 3 does not.", 4, told)
    mixed = "Solution 1 uses more salt, solution 2 uses less."
    assert uses_attempts(mixed, 4)
    assert not uses_attempts(mixed, 4, "Solution 1 has 20% salt.")
    assert uses_attempts("尝试一得到5，尝试二得到7。", 4, "小明投篮。")
    assert not uses_attempts("方案一正确，方案二错误。", 4, "比较方案一和方案二。")


def test_the_control_looks_at_thinking_and_answer_of_an_attempt():
    both = spoken(trajectory("Attempt 2 is right.", "Attempt 1 is wrong."))
    assert uses_attempts(both, 2) and not uses_attempts(both, 1)
    assert not uses_attempts(spoken(trajectory("It is 5.", "Add 2 and 3.")), 8)
    both = spoken(trajectory("The second attempt hits.", "The first attempt hits."))
    assert not uses_attempts(both, 8, "attempts")


@pytest.mark.skipif(not SOLUTIONS.is_file(), reason="the real data is not here")
def test_no_real_solution_that_was_written_alone_shows_the_signs():
    rows = [json.loads(line) for line in SOLUTIONS.read_text(encoding="utf-8").splitlines()]
    alone = [one["solution"] for row in rows for one in row.values() if isinstance(one, dict)]
    assert len(alone) > 2000
    assert not [text for text in alone if uses_attempts(text, 8)]


def test_a_copy_is_measured_against_the_nearest_attempt():
    attempt = " ".join(f"word{n}" for n in range(40))
    own = " ".join(f"other{n}" for n in range(40))
    assert copied(attempt, [own, attempt]) == 1.0
    assert copied(own, [attempt]) == 0.0
    half = " ".join((*attempt.split()[:20], *own.split()[:20]))
    assert 0.3 < copied(half, [attempt]) < 0.5
    for alike in ("The answer is 5.", "42 -25=17 +73=90 +67=157 -70=87 +93=180\nAnswer: 180" * 2):
        assert copied(alike, [alike]) == 0.0
    assert copied(attempt, []) == 0.0


def test_other_typography_does_not_hide_a_copy():
    attempt = " ".join(f"word{n}" for n in range(40))
    assert copied(attempt.replace(" ", ", ").upper(), [f"**{attempt}**"]) == 1.0
    chinese = "设这个三角形的三条边分别为三、四、五，由勾股定理可知它是直角三角形。"
    assert copied(chinese, [chinese.replace("，", "\n")]) == 1.0


@pytest.mark.parametrize(
    "piece",
    [
        "attempt ", "Attempt 1: let us try (", "attempts 1, ", "attempt" + " " * 500,
        "the first, second ", "all of the attempts ", "All of them are ", "Solution 1: ",
        "1, 2 and 3 attempts ", "尝试一、", "所有尝试都", "第一个、", "((((",
        "The quick brown fox jumps over the lazy dog.\n",
    ],
)  # fmt: skip
def test_reading_takes_linear_time(piece):
    assert_linear(lambda text: uses_attempts(text, 8), lambda size: piece * (size // len(piece)))


WORDS = re.findall(
    r"\S+",
    "Attempt attempts solution the first second other all are wrong 1 2, (3) and of let's try i "
    "used : ** 尝试 一 所有 都错 第 个",
)


SENTENCES = st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join)


@given(st.text(max_size=300) | SENTENCES, st.sampled_from(["", " ", "\n\n", "\t"]))
def test_any_text_can_be_looked_at_and_blanks_around_it_change_nothing(text, blanks):
    assert uses_attempts(text, 8) == uses_attempts(f"{blanks}{text}{blanks}", 8)
    assert 0.0 <= copied(text, [text]) <= 1.0
