"""Worked solutions and training rows of the micro models, and the tokenizer that reads them.

The weights are not tested here.
"""

import itertools
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from heavydistill.config.run import Problems
from heavydistill.heavy import prompts
from heavydistill.micro import rows
from heavydistill.micro.rows import TRAINING_SEEDS, MicroProblem
from heavydistill.micro.tokenizer import THINK_TAGS, train_tokenizer
from heavydistill.micro.worked import (
    FAMILIES,
    Step,
    Worked,
    careful,
    deliberator_solution,
    thinker_solution,
    work,
)
from heavydistill.problems.procedural import MICRO_LEVELS
from heavydistill.verifiers.extraction import boxed

NUMBER = r"-?\d+(?:\.\d+)?"
STRIDE = re.compile(rf"({NUMBER})([-+*])({NUMBER})=({NUMBER})")


@contextmanager
def few_problems_a_chunk() -> Iterator[list[range]]:
    """Makes the training stream fast. Yields the ranges of seeds that it asks for."""
    import reasoning_gym

    create, asked = reasoning_gym.create_dataset, []

    def create_few(family: str, *, size: int, seed: int, **level: Any) -> Any:
        asked.append(range(seed, seed + size))
        return create(family, size=3, seed=seed, **level)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reasoning_gym, "create_dataset", create_few)
        yield asked


def stream_of(stream: int, count: int) -> list[MicroProblem]:
    with few_problems_a_chunk():
        return list(itertools.islice(rows.problems(stream), count))


@pytest.fixture(scope="module", params=FAMILIES)
def solved(request) -> list[tuple[dict[str, Any], Worked]]:
    """reasoning-gym's problems of a family, each with its worked solution."""
    import reasoning_gym

    family = request.param
    items = reasoning_gym.create_dataset(family, size=300, seed=7, **MICRO_LEVELS[family])
    return [(item, work(family, item["metadata"])) for item in items]


@pytest.fixture(scope="module")
def some_problems() -> list[MicroProblem]:
    return stream_of(0, 36)


@pytest.fixture(scope="module")
def tokenizer(some_problems):
    learnt_from = (text for p in some_problems for text in (p.text, *thinker_solution(p.worked)))
    return train_tokenizer(learnt_from, context=512)


def value(left: str, operator: str, right: str) -> Decimal:
    a, b = Decimal(left), Decimal(right)
    return {"+": a + b, "-": a - b, "*": a * b}[operator]


def test_worked_answers_are_those_of_reasoning_gym(solved):
    for item, worked in solved:
        assert worked.answer == item["answer"], item["question"]


def check_strides(lines: list[str], worked: Worked) -> None:
    """Each line like ``57+87=144`` is right, one for each step."""
    assert len(lines) == len(worked.steps)
    for line in lines:
        left, operator, right, result = STRIDE.fullmatch(line).groups()
        assert value(left, operator, right) == Decimal(result), line


def test_a_thinker_writes_true_strides_to_the_answer(solved):
    for item, worked in solved:
        reasoning, answer_text = thinker_solution(worked)
        check_strides(reasoning.splitlines(), worked)
        assert boxed(answer_text) == item["answer"]
        assert answer_text.splitlines()[0].split()[-1] == item["answer"]


def test_a_deliberator_restates_and_derives_to_the_answer(solved):
    for item, worked in solved:
        answers = ["-999", item["answer"], "0.07"]
        reasoning, answer_text = deliberator_solution(worked, "the numbers", answers)
        given_line, *lines = reasoning.splitlines()
        assert given_line == "Given: the numbers"
        assert lines[:-3] == [careful(step) for step in worked.steps]
        assert lines[-3:] == [
            "Attempt 1: -999 wrong",
            f"Attempt 2: {item['answer']} right",
            "Attempt 3: 0.07 wrong",
        ]
        # A deliberation can be read as an attempt of a next round.
        assert answer_text == thinker_solution(worked)[1]


@settings(max_examples=300)
@given(
    left=st.integers(-2000, 2000),
    operator=st.sampled_from("+-"),
    right=st.integers(0, 2000),
    places=st.integers(0, 2),
)
def test_the_columns_of_a_careful_step_are_true_and_spell_its_value(left, operator, right, places):
    step = Step(Decimal(left).scaleb(-places), operator, Decimal(right).scaleb(-places))
    line = careful(step)
    assert line.startswith(f"{step}:") and line.endswith(f": {step.value}")
    columns = line.split(": ")[-2].split(", ")
    spelt = ""
    for column in columns:
        work_shown, result = column.split("=")
        assert eval(work_shown) == int(result)  # digits, + and - alone
        spelt = result[-1] + spelt
    last = columns[-1].split("=")[1]
    assert int(last[:-1] + spelt) == abs(step.value.scaleb(places))


def test_training_problems_take_training_seeds_and_each_but_once():
    # Item i of a data set has the seed of the set plus i; those of evaluations stay below.
    with pytest.raises(ValidationError):
        Problems(seed=10**9)
    assert TRAINING_SEEDS > 10**9 + 10**11
    assert tuple(MICRO_LEVELS) == FAMILIES
    assert stream_of(5, 20) == stream_of(5, 20) != stream_of(6, 20)
    with few_problems_a_chunk() as asked:
        for stream in range(3):
            # Three families of three problems a chunk: three chunks of each stream.
            list(itertools.islice(rows.problems(stream), 27))
    assert min(seeds.start for seeds in asked) >= TRAINING_SEEDS
    apart = sorted(set(asked), key=lambda seeds: seeds.start)
    assert len(apart) == len(asked) // len(FAMILIES) == 9
    assert all(one.stop <= other.start for one, other in itertools.pairwise(apart))


def test_what_is_given_is_all_there_is_to_work_out(some_problems):
    for problem in some_problems:
        # Every product and every term, in the order of the text; nothing that is worked out later.
        assert eval(problem.given.replace(", ", "+")) == pytest.approx(float(problem.worked.answer))
        counts = re.findall(r"\d+(?:\.\d+)?", problem.text)
        assert re.findall(r"(?:^|[+, -])(\d+(?:\.\d+)?)", problem.given) == counts


def test_a_thinker_row_is_worded_as_the_pipeline_words_it(some_problems):
    for problem in some_problems:
        row = rows.thinker_row(problem)
        wording = prompts.load("thinker", rows.PROMPT_DOMAIN, "en")
        assert row.prompt == prompts.thinker_prompt(problem.text, wording)
        assert (row.reasoning, row.answer_text) == thinker_solution(problem.worked)


def test_invented_attempts_end_with_the_answer_that_they_claim(some_problems):
    rng = random.Random(1)
    right = []
    for problem in some_problems:
        count = rows.attempt_count(rng)
        attempts = rows.invented_attempts(problem, count, rng)
        assert 2 <= len(attempts) == count <= rows.MOST_ATTEMPTS
        assert all(boxed(text) == answer for text, answer in attempts)
        right += [answer == problem.worked.answer for _, answer in attempts]
    # Both right and wrong ones, or nothing were to be learnt from them.
    assert 0.2 < sum(right) / len(right) < 0.9


def test_a_deliberator_row_shows_all_attempts_and_ends_right(some_problems):
    rng = random.Random(2)
    for problem in some_problems:
        attempts = rows.invented_attempts(problem, 5, rng)
        row = rows.deliberator_row(problem, attempts)
        assert problem.text in row.prompt
        assert all(text in row.prompt for text, _ in attempts)
        for number, (_, answer) in enumerate(attempts, 1):
            judged = "right" if answer == problem.worked.answer else "wrong"
            assert f"\nAttempt {number}: {answer} {judged}" in row.reasoning
        assert boxed(row.answer_text) == problem.worked.answer


def test_the_base_student_restates_one_of_the_attempts(some_problems):
    rng = random.Random(3)
    for problem in some_problems:
        attempts = rows.invented_attempts(problem, 5, rng)
        row = rows.restating_row(problem, attempts, rng)
        assert row.answer_text in [text for text, _ in attempts]
        judged = [line.rpartition(" ")[2] for line in row.reasoning.splitlines()]
        answers = [answer for _, answer in attempts]
        restated = boxed(row.answer_text)
        assert judged == ["right" if answer == restated else "wrong" for answer in answers]


def render(tokenizer: Any) -> Callable[..., str]:
    def rendered(*messages: dict[str, str], answering: bool = False) -> str:
        return tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=answering
        )

    return rendered


@settings(max_examples=60, deadline=None)
@given(prompt=st.text(), reasoning=st.text(), answer_text=st.text())
def test_a_rendered_prompt_opens_the_rendered_conversation(
    tokenizer, prompt, reasoning, answer_text
):
    chat = render(tokenizer)
    user = {"role": "user", "content": prompt}
    turn = {"role": "assistant", "reasoning_content": reasoning, "content": answer_text}
    opening = chat(user, answering=True)
    assert opening == f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
    thinking = f"{THINK_TAGS[0]}\n{reasoning}\n{THINK_TAGS[1]}\n" if reasoning else ""
    assert chat(user, turn) == f"{opening}{thinking}{answer_text}<|im_end|>"


@settings(max_examples=150, deadline=None)
@given(
    text=st.text()
    | st.lists(st.sampled_from(["<think>", "<|im_end|>", " ", "7", "é"])).map("".join)
)
def test_any_text_survives_the_tokenizer(tokenizer, text):
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text


@settings(max_examples=60, deadline=None)
@given(number=st.integers(), before=st.sampled_from(["", " ", "a", "{", "\n"]))
def test_a_digit_is_one_token(tokenizer, number, before):
    ids = tokenizer(f"{before}{number}.5", add_special_tokens=False)["input_ids"]
    digits = [text for text in map(tokenizer.decode, ids) if any(map(str.isdigit, text))]
    assert digits == [*str(abs(number)), "5"]


def test_the_control_tokens_are_one_token_and_thinking_survives_decoding(tokenizer):
    for token in ("<|im_start|>", "<|im_end|>", "<|pad|>", *THINK_TAGS):
        assert len(tokenizer(token, add_special_tokens=False)["input_ids"]) == 1
    ids = tokenizer("<think>3+4=7</think>7<|im_end|>", add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<think>3+4=7</think>7"
