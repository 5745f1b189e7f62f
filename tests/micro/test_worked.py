"""Worked solutions and training rows of the micro models, and the tokenizer that reads them.

The weights are not tested here.
"""

import itertools
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from micro_models import rows
from micro_models.rows import TRAINING_SEEDS, MicroProblem
from micro_models.tokenizer import THINK_TAGS, train_tokenizer
from micro_models.worked import (
    FAMILIES,
    MicroTask,
    Worked,
    answer_of,
    deliberator_solution,
    read_task,
    solve,
    thinker_solution,
)

from heavydistill.config.run import Problems
from heavydistill.errors import ConfigError
from heavydistill.experiments.perturbation import garble_attempts
from heavydistill.heavy import prompts
from heavydistill.problems.procedural import MICRO_LEVELS
from heavydistill.text.extraction import boxed

NUMBER = r"-?\d+(?:\.\d+)?"


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
    return [(item, solve(read_task(family, item["metadata"]))) for item in items]


@pytest.fixture(scope="module")
def some_problems() -> list[MicroProblem]:
    return stream_of(0, 36)


@pytest.fixture(scope="module")
def tokenizer(some_problems):
    learnt_from = (
        text for p in some_problems for text in (p.text, *thinker_solution(solve(p.task)))
    )
    return train_tokenizer(learnt_from, context=512)


def test_worked_answers_are_those_of_reasoning_gym(solved):
    for item, worked in solved:
        assert worked.answer == item["answer"], item["question"]


def check_steps(worked: Worked) -> None:
    """Each line of the steps is a chain of true operations."""
    for line in worked.steps.splitlines():
        for product in re.finditer(r"(\d+)\*(\d+)=(\d+)", line):
            count, legs, value = map(int, product.groups())
            assert count * legs == value, line
        total = None
        for operator, term, result in re.findall(rf" ([+-])({NUMBER})=({NUMBER})", line):
            total = Decimal(line.split(" ")[0]) if total is None else total
            total = total + Decimal(term) if operator == "+" else total - Decimal(term)
            assert total == Decimal(result), line


def test_without_slips_all_steps_are_true(solved):
    for item, worked in solved:
        check_steps(worked)
        reasoning, answer_text = thinker_solution(worked)
        assert reasoning == worked.steps
        assert answer_text.startswith(worked.steps) and boxed(answer_text) == item["answer"]
        counts = re.findall(r"\d+(?:\.\d+)?", item["question"])
        first_line = worked.steps.splitlines()[0]
        assert re.findall(r"(?:^| [+-]?)(\d+(?:\.\d+)?)", first_line) == counts


@settings(max_examples=300)
@given(left=st.integers(-2000, 2000), right=st.integers(-2000, 2000), places=st.integers(0, 2))
def test_a_slip_is_a_carry_or_a_borrow_that_was_forgotten(left, right, places):
    terms = (Decimal(left).scaleb(-places), Decimal(right).scaleb(-places))
    assert solve(MicroTask((), terms)).totals == (sum(terms),)
    forgotten = solve(MicroTask((), terms), random.Random(0), slip_rate=1.0).totals[0]
    # Each column alone: digits are added or subtracted, and nothing is carried over.
    adds = (left < 0) == (right < 0)
    upper, lower = sorted((abs(left), abs(right)), reverse=True)
    columns = zip(str(upper).zfill(4), str(lower).zfill(4), strict=True)
    digits = "".join(str((int(a) + (int(b) if adds else -int(b))) % 10) for a, b in columns)
    sign = -1 if left + right < 0 else 1
    assert forgotten == Decimal(sign * int(digits)).scaleb(-places)


def test_attempts_slip_in_different_steps(some_problems):
    rng = random.Random(1)
    attempts = [[solve(problem.task, rng, 0.15) for _ in range(8)] for problem in some_problems]
    right = [
        attempt.answer == solve(problem.task).answer
        for problem, pool in zip(some_problems, attempts, strict=True)
        for attempt in pool
    ]
    assert 0.4 < sum(right) / len(right) < 0.7
    assert sum(len({attempt.answer for attempt in pool}) > 2 for pool in attempts) > 9


TASK = MicroTask((), (Decimal(57), Decimal(87), Decimal(-26), Decimal(19)))


def chain(*totals: int) -> Worked:
    return Worked(TASK, (), tuple(map(Decimal, totals)))


RIGHT, FIRST, LAST = chain(144, 118, 137), chain(134, 108, 127), chain(144, 118, 127)


@pytest.mark.parametrize(
    "attempts, totals",
    [
        ([RIGHT], RIGHT),  # its own computation agrees
        ([FIRST], RIGHT),  # its own computation parts from it
        ([FIRST, FIRST], FIRST),  # what attempts agree on is taken, even if it is wrong
        ([LAST, LAST], LAST),
        ([FIRST, RIGHT], RIGHT),  # where they part the step is computed again
        ([FIRST, FIRST, LAST, LAST], LAST),  # and only attempts with the same operands are read
        ([FIRST, LAST], RIGHT),  # joined: sound steps of two wrong attempts
    ],
)
def test_a_deliberator_takes_what_attempts_agree_on(attempts, totals):
    assert solve(TASK, random.Random(0), 0.0, attempts).totals == totals.totals


def test_a_deliberator_on_its_own_slips_as_a_thinker_does():
    assert solve(TASK, random.Random(0), 1.0).totals != RIGHT.totals
    assert solve(TASK, random.Random(0), 1.0, [RIGHT, FIRST]).totals == RIGHT.totals


def test_a_deliberator_judges_the_attempts_by_its_answer():
    reasoning, answer_text = deliberator_solution(RIGHT, ["-999", "137", "0.5"])
    assert reasoning.splitlines() == [
        "57 +87=144 -26=118 +19=137",
        "Attempt 1: -999 -137=-1136 wrong",
        "Attempt 2: 137 -137=0 right",
        "Attempt 3: 0.5 -137=-136.5 wrong",
    ]
    # A deliberation can be read as an attempt of a next round.
    assert answer_text == answer_of(RIGHT)


def test_training_problems_take_training_seeds_and_each_but_once():
    # Item i of a data set has the seed of the set plus i; those of evaluations stay below.
    with pytest.raises(ConfigError):
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


def test_a_thinker_row_is_worded_as_the_pipeline_words_it(some_problems):
    for problem in some_problems:
        row = rows.thinker_row(problem, 0.0, random.Random(0))
        wording = prompts.load("thinker", rows.PROMPT_DOMAIN, "en")
        assert row.prompt == prompts.thinker_prompt(problem.text, wording)
        assert (row.reasoning, row.answer_text) == thinker_solution(solve(problem.task))


def test_a_deliberator_row_shows_all_attempts(some_problems):
    rng = random.Random(2)
    for problem in some_problems:
        attempts = [solve(problem.task, rng, 0.3) for _ in range(5)]
        row = rows.deliberator_row(problem, attempts, 0.15, rng)
        assert problem.text in row.prompt
        assert all(answer_of(attempt) in row.prompt for attempt in attempts)
        found = boxed(row.answer_text)
        for number, attempt in enumerate(attempts, 1):
            judged = "right" if attempt.answer == found else "wrong"
            assert re.search(rf"\nAttempt {number}: {attempt.answer} .*=.* {judged}", row.reasoning)


def test_the_base_student_restates_one_of_the_attempts(some_problems):
    rng = random.Random(3)
    for problem in some_problems:
        attempts = [solve(problem.task, rng, 0.3) for _ in range(5)]
        row = rows.restating_row(problem, attempts, rng)
        assert row.answer_text in map(answer_of, attempts)


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


def test_no_control_garbles_as_the_training_does(some_problems):
    """A control that was trained on measures the training."""
    for source in (rows.__file__, Path(rows.__file__).parents[1] / "train_micro.py"):
        imports = re.findall(r"^\s*(?:from|import) (\S+)", Path(source).read_text(), re.MULTILINE)
        assert imports and not [name for name in imports if "heavydistill.experiments" in name]

    def coherent(texts: list[str]) -> float:
        """Share of the additions that come out right."""
        step = re.compile(rf"(?=(?<![\d.])({NUMBER}) ([+-])({NUMBER})=({NUMBER}))")
        made = [found.groups() for text in texts for found in step.finditer(text)]
        assert len(made) > len(texts)
        return fmean(
            Decimal(a) + (Decimal(b) if sign == "+" else -Decimal(b)) == Decimal(c)
            for a, sign, b, c in made
        )

    trained, controls = [], []
    for problem in some_problems:
        attempt = answer_of(solve(problem.task))
        trained += rows.with_other_numbers([attempt], "s")
        controls += garble_attempts([attempt], "s", problem=problem.text)
    assert coherent(trained) < 0.1 and coherent(controls) > 0.7
