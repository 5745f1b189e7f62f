"""The reward: what a verifier says of an answer, and nothing for tricks."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandboxing import need_sandbox
from students import MICRO, tokenizer_with

from heavydistill.chat.template import Chat
from heavydistill.config.run import Verifying
from heavydistill.schema import Problem
from heavydistill.train.grpo.reward import METRICS, VerdictReward, group_shares
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
        self, reward: VerdictReward, problem: Problem, *texts: str, **more: list[bool]
    ) -> list[float | None]:
        tokenizer = reward._chat.tokenizer
        return reward(
            prompts=[[]] * len(texts),
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
    assert told.metrics.keys() - shares.keys() == {f"verdict/{name}" for name in METRICS}
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
    rows = [{name: values[0] for name, values in columns(SUM, 1).items()}] * len(texts)
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
    units = "It is \\boxed{42\\text{ furlongs}}.<|im_end|>"
    assert told(VerdictReward(pool, chat), SUM, cut, units, HONEST_RIGHT) == [None, None, 1.0]
    assert told.metrics["verdict/cut_off"] == told.metrics["verdict/undecided"] == 1 / 3
    assert told.extra["verdict"][0] == "cut_off"


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


@pytest.mark.parametrize("share", [0.0, 0.05])
@pytest.mark.parametrize("trick", HACKS)
def test_a_trick_earns_no_more_than_an_honest_wrong_answer(pool, chat, trick, share):
    told = Told()
    reward = VerdictReward(pool, chat, share)
    reward.ends |= {chat.tokenizer.pad_token_id}  # as a training has it
    given = told(reward, SUM, HACKS[trick], HONEST_WRONG)
    wrong, earned = given[1], given[0]
    assert wrong == share
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
        assert time.monotonic() - started < 60
    assert given == [None] * 4 + [1.0, 0.0]
    assert told.metrics["verdict/undecided"] == 4 / 6
    assert told.extra["verdict"][0] == "timeout"


R, W, U = True, False, None


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
