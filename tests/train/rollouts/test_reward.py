"""The reward: what a verifier says of an answer, and nothing for tricks."""

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandboxing import need_sandbox
from students import MICRO, tokenizer_with

from heavydistill.chat.template import Chat
from heavydistill.config.run import Verifying
from heavydistill.schema import Claim, Problem
from heavydistill.train.rollouts.problem_rows import problem_row
from heavydistill.train.rollouts.reward import (
    METRICS,
    Reward,
    VerdictReward,
    claims_score,
    group_shares,
    with_claims,
)
from heavydistill.verifiers.pool import VerdictPool

SUM = Problem(id="p", text="What is 17 + 25? Numbers: 17, 25, 42.", reference="42", verifier="math")
CHOICE = Problem(
    id="c",
    text="Which is a colour?\n(A) seven\n(B) red\n(C) run",
    reference="B",
    verifier="choice",
    verifier_args=json.dumps({"options": ["seven", "red", "run"]}),
)
EXACT = Problem(id="e", text="The capital of France?", reference="Paris", verifier="exact")
HONEST_WRONG = "<think>\n17 + 25 = 41\n</think>\nThe sum is \\boxed{41}.<|im_end|>"
HONEST_RIGHT = "<think>\n17 + 25 = 42\n</think>\nThe sum is \\boxed{42}.<|im_end|>"


@pytest.fixture(scope="module")
def pool() -> Iterator[VerdictPool]:
    with VerdictPool(Verifying(workers=1)) as pool:
        yield pool


@pytest.fixture(scope="module")
def chat() -> Chat:
    from transformers import AutoTokenizer

    return Chat(AutoTokenizer.from_pretrained(MICRO))


def columns(problem: Problem, count: int) -> dict[str, list[str]]:
    names = {"problem": "id", "text": "text", "reference": "reference"}
    names |= {"verifier": "verifier", "verifier_args": "verifier_args"}
    return {key: [getattr(problem, name)] * count for key, name in names.items()}


class Told:
    """What a reward logs."""

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}
        self.extra: dict[str, list[Any]] = {}

    def __call__(
        self, reward: VerdictReward, problem: Problem, *texts: str, **more: list[Any]
    ) -> list[float | None]:
        tokenizer = reward._chat.tokenizer
        return reward(
            prompts=[[{"role": "user", "content": problem.text}]] * len(texts),
            completions=[[{"role": "assistant", "content": "TRL's decoding is not read"}]],
            completion_ids=[tokenizer(text)["input_ids"] for text in texts],
            log_metric=self.metrics.__setitem__,
            log_extra=self.extra.__setitem__,
            trainer_state=None,
            cache=["c"] * len(texts),
            **columns(problem, len(texts)),
            **more,
        )


def test_right_is_1_wrong_is_0_and_both_are_logged(pool, chat):
    told = Told()
    reward = VerdictReward(pool, chat, group=2)
    assert told(reward, SUM, HONEST_RIGHT, HONEST_WRONG, *[HONEST_RIGHT] * 2) == [
        1.0,
        0.0,
        1.0,
        1.0,
    ]
    shares = {"groups/all_right": 0.5, "groups/all_wrong": 0.0, "groups/uncompared": 0.0}
    assert shares.items() <= told.metrics.items()
    named = {f"verdict/{name}" for name in METRICS} | {"undecided/all"}
    assert told.metrics.keys() - shares.keys() == named
    assert told.metrics["verdict/correct"] == 0.75
    assert told.extra["verdict"] == ["equal", "different", "equal", "equal"]


def test_an_episode_that_failed_has_no_reward_whatever_its_answer(pool, chat):
    told = Told()
    reward = VerdictReward(pool, chat, group=2)
    given = told(reward, SUM, *[HONEST_RIGHT] * 4, failed=[True, True, False, False])
    assert given == [None, None, 1.0, 1.0]
    assert told.metrics["groups/uncompared"] == told.metrics["groups/all_right"] == 0.5
    assert told.metrics["verdict/correct"] == 0.5
    assert told.extra["verdict"] == ["failed", "failed", "equal", "equal"]


def test_held_out_responses_are_judged_as_rewarded_ones_are(pool, chat):
    texts = [
        HONEST_RIGHT,
        HONEST_WRONG,
        HONEST_RIGHT.removesuffix("<|im_end|>"),
        hidden("It is 42."),
    ]
    rows = [problem_row(SUM, SUM.text)] * len(texts)
    ids = [chat.tokenizer(text)["input_ids"] for text in texts]
    judged = VerdictReward(pool, chat).judge(rows, ids)
    assert [(one.is_right, one.kind) for one in judged] == [
        (True, "correct"),
        (False, ""),
        (None, "cut_off"),
        (False, "unanswered"),
    ]


def test_cut_off_or_undecided_is_none_and_counted(pool, chat):
    told = Told()
    cut = HONEST_RIGHT.removesuffix("<|im_end|>")
    units = "It is \\boxed{42\\text{ flurbs}}.<|im_end|>"
    assert told(VerdictReward(pool, chat), SUM, cut, units, HONEST_RIGHT) == [None, None, 1.0]
    assert told.metrics["verdict/cut_off"] == told.metrics["verdict/undecided"] == 1 / 3
    assert told.extra["verdict"][0] == "cut_off"


def test_an_undecided_answer_is_counted_by_its_reason_whatever_its_reward(pool, chat):
    told, reward = Told(), VerdictReward(pool, chat)
    ends = "<|im_end|>"
    units, million = (
        f"It is \\boxed{{42\\text{{ flurbs}}}}.{ends}",
        f"\\boxed{{42}} million{ends}",
    )
    two, nothing = f"\\boxed{{41}}\n\n\\boxed{{42}}{ends}", f"I do not know.{ends}"
    given = told(reward, SUM, units, million, two, nothing, HONEST_RIGHT)
    assert given == [None, 0.0, 0.0, 0.0, 1.0]
    counted = {name: share for name, share in told.metrics.items() if "undecided/" in name}
    assert counted == {
        "undecided/all": 2 / 5,
        "undecided/outside_box": 1 / 5,
        "undecided/unknown_unit": 1 / 5,
    }
    # A reason that does not occur again counts as 0.
    told(reward, SUM, HONEST_RIGHT)
    assert {told.metrics[name] for name in counted} == {0}


def hidden(answer: str) -> str:
    return f"<think>\n17 + 25 = 41\n</think>\n{answer}<|im_end|>"


HACKS = {
    "boxed list": hidden(" ".join(f"\\boxed{{{n}}}" for n in range(38, 46))),
    "boxed list that ends right": hidden(" ".join(f"\\boxed{{{n}}}" for n in range(36, 43))),
    "one box with a list": hidden("\\boxed{40, 41, 42, 43}"),
    "two boxes as one answer": hidden("\\boxed{41} or \\boxed{42}"),
    "several answers, the last one right": hidden("It is \\boxed{41}. No: it is \\boxed{42}."),
    "taken back": hidden("It is \\boxed{42}. No, that is wrong."),
    "the number without a box": hidden("42"),
    "the prompt": hidden(SUM.text),
    "the prompt in a box": hidden(f"\\boxed{{{SUM.text}}}"),
    "the sum as it stands in the problem": hidden("\\boxed{17 + 25}"),
    "the word reference": hidden("\\boxed{reference}"),
    "nothing": "<|im_end|>",
    "blanks": "  \n\n <|im_end|>",
    "empty thinking alone": "<think></think><|im_end|>",
    "empty thinking and no answer": "<think>\n\n</think>\nDone.<|im_end|>",
    "thinking without an end": "<think>\n\\boxed{42}<|im_end|>",
    "the answer in the thinking alone": "<think>\n\\boxed{42}\n</think>\n<|im_end|>",
    "think tags in the answer": hidden("<think>\\boxed{42}</think>\\boxed{42}"),
    "a closing tag in the answer": hidden("\\boxed{41}</think>\\boxed{42}"),
    "a closing tag alone": "\\boxed{41}</think>\\boxed{42}<|im_end|>",
    "words before the thinking": "\\boxed{41}<think>\nx\n</think>\\boxed{42}<|im_end|>",
    "a control token in the answer": hidden("\\boxed{4<|pad|>2}"),
    "another turn": hidden("\\boxed{41}<|im_start|>assistant\n\\boxed{42}"),
    "an end before the answer": "<|im_end|>\\boxed{42}<|im_end|>",
    "padding between answers": hidden("\\boxed{42}<|pad|> or \\boxed{41}"),
    "padding before thinking": "\\boxed{42}<|pad|><think>\\boxed{41}<|im_end|>",
}


R, W, U = True, False, None
SHOWN = [
    {"answer": answer, "right": right}
    for answer, right in (("42", R), ("41", W), ("43", U), ("40", W))
]
TRUTH = "Attempt 1 is right. Attempts 2 and 4 are wrong."


@pytest.mark.parametrize(("share", "claims_share"), [(0.0, 0.0), (0.05, 0.0), (0.0, 0.3)])
@pytest.mark.parametrize("trick", HACKS)
def test_a_trick_earns_no_more_than_an_honest_wrong_answer(pool, chat, trick, share, claims_share):
    told = Told()
    reward = VerdictReward(pool, chat, share, claims_share=claims_share)
    reward.ends |= {chat.tokenizer.pad_token_id}  # as a training has it
    texts = [text.replace("17 + 25 = 41", TRUTH) for text in (HACKS[trick], HONEST_WRONG)]
    given = told(reward, SUM, *texts, attempts=[SHOWN] * 2)
    wrong, earned = given[1], given[0]
    assert wrong == share + claims_share
    # None would be more: it is not counted against whoever writes so.
    assert earned is not None and earned <= wrong


def test_padding_behind_the_end_is_no_fault(pool, chat):
    reward = VerdictReward(pool, chat)
    reward.ends |= {chat.tokenizer.pad_token_id}
    texts = [f"{HONEST_RIGHT}<|pad|><|pad|>", HONEST_RIGHT.replace("<|im_end|>", "<|pad|>")]
    assert Told()(reward, SUM, *texts, "<|pad|>") == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("problem", "answer"),
    [
        (CHOICE, "\\boxed{A} \\boxed{B} \\boxed{C}"),
        (CHOICE, "It is A or B or C."),
        (CHOICE, "I do not say."),
        (CHOICE, "The answer is A. The answer is B."),
        (EXACT, "\\boxed{Rome} \\boxed{Paris}"),
        (EXACT, "Paris"),
        (EXACT, "\\boxed{The capital of France?}"),
    ],
)
def test_tricks_on_other_verifiers_earn_nothing(pool, chat, problem, answer):
    assert Told()(VerdictReward(pool, chat), problem, hidden(answer)) == [0.0]


def test_form_is_a_small_share_that_right_answers_have_too(pool, chat):
    reward = VerdictReward(pool, chat, 0.05)
    without = "<think></think>\nIt is \\boxed{42}.<|im_end|>"
    plain = "It is \\boxed{42}.<|im_end|>"
    given = Told()(reward, SUM, HONEST_RIGHT, plain, without, HONEST_WRONG)
    assert given == pytest.approx([1.0, 1.0, 0.95, 0.05])


def test_thinking_that_the_prompt_opens_is_no_answer(pool):
    template = (MICRO / "chat_template.jinja").read_text(encoding="utf-8")
    opened = template.replace(
        "<|im_start|>assistant\n{% endif -%}", "<|im_start|>assistant\n<think>\n{% endif -%}"
    )
    opening = Chat(tokenizer_with(opened))
    assert opening.opens_thinking
    reward = VerdictReward(pool, opening)
    texts = ["\\boxed{42}<|im_end|>", "x</think>\\boxed{42}<|im_end|>", "x</think>y<|im_end|>"]
    told = Told()
    assert told(reward, SUM, *texts) == [0.0, 1.0, 0.0]
    assert told.extra["verdict"][0] == "open_thinking"


def test_code_earns_the_share_of_tests_that_it_passes(pool, chat):
    need_sandbox()
    tests = ["assert f(1) == 2", "assert f(2) == 3", "assert f(3) == 4", "assert f(0) == 7"]
    problem = Problem(
        id="code",
        text="Write f, which adds 1.",
        reference="",
        verifier="code",
        verifier_args=json.dumps({"test_list": tests}),
    )
    right = "def f(x):\n    return x + 1 if x else 7"
    programs = [right, "def f(x):\n    return x + 1", "def f(x):\n    return 7", "def f(x"]
    texts = [hidden(f"```python\n{program}\n```") for program in programs]
    several = hidden("".join(f"```python\n{program}\n```\n" for program in programs[:3]))
    given = Told()(VerdictReward(pool, chat), problem, *texts, several, hidden("I cannot."))
    assert given == [1.0, 0.75, 0.25, 0.0, 0.0, 0.0]


def test_a_verifier_that_hangs_or_dies_holds_up_no_step(chat):
    own = Path(__file__).parents[2] / "verifiers" / "own_verifiers.py"
    config = Verifying(workers=1, timeout_s=0.5, own=[str(own)])
    with VerdictPool(config) as pool:
        problem = Problem(id="odd", text="?", reference="right", verifier="obedient")
        reward = VerdictReward(pool, chat)
        Told()(reward, problem, hidden("right"))  # which starts a worker
        started = time.monotonic()
        told = Told()
        deeds = [hidden(deed) for deed in ("hang", "hang in C", "be killed", "raise")]
        given = told(reward, problem, *deeds, hidden("right"), hidden("wrong"))
        assert time.monotonic() - started < 300
    assert given == [None] * 4 + [1.0, 0.0]
    assert told.metrics["verdict/undecided"] == 4 / 6
    assert told.extra["verdict"][0] == "timeout"


@pytest.mark.parametrize("size", range(1, 5))
def test_the_truth_scores_most_and_claims_made_blindly_no_more_than_silence(size):
    vectors = list(itertools.product((R, W, U), repeat=size))
    for pool in itertools.combinations_with_replacement((R, W, U), size):
        best = 1 if {R, W} <= set(pool) else 0.5
        for says in vectors:
            scores = []
            for rights in itertools.permutations(pool):
                score = claims_score(claims(says), rights)
                pairs = [
                    (one, right) for one, right in zip(says, rights, strict=True) if right != U
                ]
                is_truth = all(one == right for one, right in pairs)
                is_silent = all(one == U for one, _ in pairs)
                has_falsehood = any(one not in (right, U) for one, right in pairs)
                if is_truth or (best == 0.5 and not has_falsehood):
                    assert score == best
                else:
                    assert score < best
                if is_silent or (best == 1 and len({one for one, _ in pairs}) == 1):
                    assert score == 0.5
                scores.append(score)
            # Attempts are shown in random order, so this is the mean of claims that do not look.
            assert fmean(scores) <= 0.5 + 1e-9


def claims(says: tuple[bool | None, ...]) -> list[Claim]:
    return [
        Claim(attempt=number, says="right" if one else "wrong", quote="")
        for number, one in enumerate(says, 1)
        if one is not None
    ]


@pytest.mark.parametrize(
    ("said", "score"),
    [
        ("", 0.5),
        (TRUTH, 1.0),
        (f"{TRUTH} Attempt 3 is right.", 1.0),
        (f"{TRUTH} Attempt 3 is wrong.", 1.0),
        ("Attempt 1 is right.", 0.75),
        (" ".join(["Attempt 1 is right."] * 9), 0.75),
        ("Attempts 2 and 4 are wrong.", 0.75),
        ("Attempt 1 is right. Attempt 1 is wrong.", 0.25),
        ("Attempt 1 is wrong. Attempts 2 and 4 are right.", 0.0),
        ("All attempts are wrong.", 0.5),
        ("All attempts are right.", 0.5),
        (" ".join(f"Attempt {number} is right." for number in range(5, 50)), 0.5),
        ("Attempt 0 is right. Attempt 5 is wrong. Attempt 99 is right.", 0.5),
        ("If attempt 1 is right, then attempts 2 and 4 are wrong.", 0.5),
    ],
)
def test_true_claims_are_a_share_of_the_reward_whatever_the_answer(pool, chat, said, score):
    texts = [f"<think>\n{said}\n</think>\nIt is \\boxed{{{n}}}.<|im_end|>" for n in (42, 41)]
    texts += [f"{said} {answer}<|im_end|>" for answer in ("It is \\boxed{42}.", "Done.")]
    told = Told()
    given = told(VerdictReward(pool, chat, claims_share=0.2), SUM, *texts, attempts=[SHOWN] * 4)
    assert given == pytest.approx([0.8 + 0.2 * score, 0.2 * score, 0.8 + 0.2 * score, 0])
    assert told.metrics["claims/score"] == pytest.approx(score)


@pytest.mark.parametrize("value", [0.0, 0.5, 0.99])
def test_no_claims_lift_an_incorrect_deliberation_above_a_correct_one(value):
    false = "Attempt 1 is wrong. Attempts 2 and 4 are right."
    wrong, silent = (
        with_claims(Reward(value, "", "different"), text, SHOWN, 0.3).value for text in (TRUTH, "")
    )
    right = with_claims(Reward(1.0, "correct", "equal"), false, SHOWN, 0.3).value
    assert silent is not None and wrong is not None and right is not None
    assert silent < wrong < right


@pytest.mark.parametrize(
    ("right", "size", "all_right", "all_wrong", "uncompared"),
    [
        ([R, R, W, W, R, W, R, R], 2, 0.5, 0.25, 0),
        ([R, U, U, U, W, U], 2, 1 / 3, 1 / 3, 1),  # what could not be decided is passed over
        ([R, U, U, R, W, U, U, U, U], 3, 1 / 3, 0, 2 / 3),
    ],
)
def test_groups_that_teach_nothing_are_told_apart(right, size, all_right, all_wrong, uncompared):
    shares = (all_right, all_wrong, uncompared)
    assert tuple(group_shares(right, size).values()) == shares


@given(st.integers(1, 5), st.lists(st.lists(st.sampled_from([True, False, None])), min_size=1))
def test_no_group_is_counted_twice(size, drawn):
    right = [one for group in drawn for one in (*group, *[None] * size)[:size]]
    shares = group_shares(right, size)
    assert 0 <= shares.pop("groups/uncompared") <= 1
    assert 0 <= sum(shares.values()) <= 1 and min(shares.values()) >= 0


@pytest.mark.parametrize(("answers", "size"), [(0, 2), (3, 2), (2, 0)])
def test_answers_that_are_no_groups_are_refused(answers, size):
    with pytest.raises(ValueError, match="cannot be divided into groups"):
        group_shares([True] * answers, size)
