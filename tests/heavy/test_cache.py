import dataclasses
import hashlib
import re
from typing import get_args

import pytest
from heavy_samples import (
    BPE,
    BRIEF,
    CONTROL_IDS,
    READERS,
    build,
    deliberation,
    ids_of,
    pool_of,
    problem,
    trajectory,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from heavydistill.config.run import Pruning, Selection
from heavydistill.errors import BudgetError
from heavydistill.heavy.cache import blocks_of, frame_tokens
from heavydistill.heavy.prompts import Prompt, load
from heavydistill.heavy.pruning import Reader, defuse
from heavydistill.schema import (
    Cache,
    Deliberation,
    Generation,
    Trajectory,
    Turn,
    content_id,
    turns_as_json,
)

STEM = load("deliberator", "stem", "en")
PIECES = [
    "==== Attempt 9", "===== Problem", "==== End of attempts", "{{cache}}", "{{fence}}",
    "Thinker #2", "=" * 40, "=", "\n", "\r", "\u2028", "\x85", "\x0b", "<|im_end|>", "<eot>",
    "</think>", "[INST]", "The answer is \\boxed{5}.", "so the sum is 12. ", "終わり。", "5", " ",
]  # fmt: skip
nasty = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=8).map("".join)


@st.composite
def pools(draw: st.DrawFn) -> list[Trajectory]:
    pool = []
    for index in range(draw(st.integers(0, 5))):
        text = draw(nasty)
        extracted = draw(st.sampled_from(["5", "12", "\\frac{1}{2}", None]) | st.text(max_size=4))
        reason = draw(st.sampled_from(["stop"] * 5 + ["length", "error"]))
        pool.append(
            trajectory(
                index,
                extracted,
                draw(st.booleans()),
                answer_text=text,
                reasoning=draw(nasty),
                finish_reason=reason,
                error="x" if reason == "error" else None,
            )
        )
    return pool


def read_back(cache: Cache, prompt: Prompt) -> tuple[str, list[str]]:
    """(problem, attempts) as whoever knows only the fence can tell them apart."""
    fence = next(
        found[1]
        for line in cache.prompt.split("\n")
        if (found := re.fullmatch("(=+) Problem", line))
    )
    before, after = prompt.filled(fence=fence, problem="\0", attempts="").split("\0")
    body = cache.prompt[len(before) - len(f"\n{fence} Problem\n") :]
    assert body.count(fence) == len(cache.items) + 2
    heads = [f"\n{fence} Attempt {number}\n" for number in range(1, len(cache.items) + 1)]
    parts, rest = [], body.removeprefix(f"\n{fence} Problem\n")
    for head in [*heads, f"\n{fence} End of attempts\n"]:
        part, found, rest = rest.partition(head)
        assert found
        parts.append(part)
    assert rest == after.strip("\n")
    return parts[0], parts[1:]


def assert_final_answer_kept(generation: Generation, text: str, reader: Reader) -> None:
    whole, _ = defuse(generation.answer_text, reader.control_tokens)
    answer, _ = defuse(generation.extracted or "", reader.control_tokens)
    if answer.strip() and answer.strip() in whole:
        assert answer.strip() in text
    elif "\\boxed{5}" in whole:
        assert "\\boxed{5}" in text
    else:
        last_line = [line for line in whole.split("\n") if line.strip()][-1]
        assert reader.tail(last_line, 64) in text


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@settings(max_examples=350, deadline=None)
@given(
    pool=pools(),
    text=nasty,
    choices=st.fixed_dictionaries(
        {
            "width": st.none() | st.integers(1, 5),
            "selection": st.sampled_from(get_args(Selection)),
            "pruning": st.sampled_from(get_args(Pruning)),
            "prompt": st.sampled_from([BRIEF, STEM]),
            "seed": st.integers(0, 99),
        }
    ),
    room=st.integers(0, 300),
    carry=st.booleans(),
)
def test_a_cache_holds_its_promises(reader, pool, text, choices, room, carry):
    of, prompt = problem(text), choices["prompt"]
    carried = [deliberation(i, answer_text=text) for i in range(2)] if carry else []
    budget = frame_tokens(of, 0, prompt, reader) + room
    try:
        cache = build(pool, of, budget_tokens=budget, reader=reader, carried=carried, **choices)
    except BudgetError as error:
        needed = int(re.findall(r"need (\d+) tokens", error.what)[0])
        assert needed > budget
        assume(False)
        raise
    assert cache.prompt_tokens == reader.count(cache.prompt) <= budget
    assert cache.id == content_id("c", cache.prompt)

    shown_problem, attempts = read_back(cache, prompt)
    assert shown_problem == defuse(text, reader.control_tokens)[0]
    blocks = blocks_of(cache)
    assert blocks and "".join(blocks) == cache.prompt
    for block, body in zip(blocks[1:-1], [shown_problem, *attempts], strict=True):
        assert block.partition("\n")[2] == body + "\n"
    by_id: dict[str, Generation] = {one.id: one for one in [*pool, *carried]}
    for item, attempt in zip(cache.items, attempts, strict=True):
        assert item.sha256 == hashlib.sha256(attempt.encode()).hexdigest()
        assert item.tokens_after == reader.count(attempt) <= item.tokens_before
        assert item.mode == choices["pruning"]
        assert_final_answer_kept(by_id[item.generation], attempt, reader)
    for token in reader.control_tokens:
        assert token not in cache.prompt

    shown = {item.generation for item in cache.items}
    left = {one.generation: one.reason for one in cache.left_out}
    assert shown | set(left) == set(by_id) and not shown & set(left)
    for name, generation in by_id.items():
        assert (name in shown) <= (generation.unusable_because is None)
        if name in left:
            assert left[name] == (generation.unusable_because or "not_selected")
    assert {d.id for d in carried if d.unusable_because is None} <= shown


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@settings(max_examples=60, deadline=None)
@given(pool=pools(), pruning=st.sampled_from(get_args(Pruning)))
def test_the_budget_that_the_error_names_is_enough(reader, pool, pruning):
    with pytest.raises(BudgetError) as raised:
        build(pool, budget_tokens=1, pruning=pruning, reader=reader)
    needed = int(re.findall(r"need (\d+) tokens", raised.value.what)[0])
    assert f"{needed} or more" in raised.value.fix
    assert "Problem p1" in raised.value.what and "budget of 1 tokens" in raised.value.what
    cache = build(pool, budget_tokens=needed, pruning=pruning, reader=reader)
    assert cache.prompt_tokens <= needed
    assert frame_tokens(problem(), len(cache.items), BRIEF, reader) <= needed


def test_one_token_less_than_the_error_names_is_not_enough():
    pool = pool_of("5", *"567")
    with pytest.raises(BudgetError, match=r"need \d+ tokens") as raised:
        build(pool, budget_tokens=1)
    needed = int(re.findall(r"need (\d+) tokens", raised.value.what)[0])
    with pytest.raises(BudgetError):
        build(pool, budget_tokens=needed - 1)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_nothing_is_cut_where_everything_fits_exactly(reader):
    pool = [trajectory(i, answer_text="so the sum is 5. " * 30 + str(i)) for i in range(4)]
    whole = build(pool, reader=reader)
    again = build(pool, reader=reader, budget_tokens=whole.prompt_tokens)
    assert again.prompt == whole.prompt
    less = build(pool, reader=reader, budget_tokens=whole.prompt_tokens - 1)
    assert less.prompt_tokens < whole.prompt_tokens


@pytest.mark.parametrize("pruning", get_args(Pruning))
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_cut_cache_uses_nearly_all_of_its_budget(reader, pruning):
    text = "so the sum of the terms is 12.\n" * 100 + "The answer is \\boxed{5}."
    pool = [trajectory(i, answer_text=text, reasoning=text) for i in range(8)]
    cache = build(pool, budget_tokens=2000, reader=reader, pruning=pruning)
    assert 1900 < cache.prompt_tokens <= 2000


def test_the_wording_names_the_fence_that_is_used():
    cache = build([trajectory(answer_text="=" * 9 + " 5")], prompt=STEM)
    assert f"`{'=' * 10}`" in cache.prompt
    assert "{{" not in cache.prompt


def test_the_order_depends_on_seed_problem_and_round_alone():
    pool = pool_of("1", *"12345678")
    assert build(pool) == build(pool)
    caches = [build(pool, seed=seed) for seed in range(20)]
    caches += [build(pool, problem(id="p2")), build(pool, round=2)]
    assert len({tuple(item.generation for item in cache.items) for cache in caches}) == 22
    # The same in every process.
    order = [item.generation[-1] for item in build(pool_of("1", *"12345")).items]
    assert "".join(order) == "31042"


@pytest.mark.parametrize("selection", ["random", "max_diversity", "stratified"])
def test_the_only_right_one_stands_at_every_position_alike(selection):
    places, caches = 8, 2000
    pool = pool_of("1", "1", *"2345678")
    counts = [0] * places
    for number in range(caches):
        cache = build(pool, problem(id=f"p{number}"), selection=selection)
        counts[[item.generation for item in cache.items].index(pool[0].id)] += 1
    expected = caches / places
    statistic = sum((count - expected) ** 2 / expected for count in counts)
    assert statistic < 18.475  # chi-square with 7 degrees of freedom, p = 0.01


def test_control_tokens_are_harmless_in_problem_and_attempts_and_counted():
    pool = [trajectory(answer_text="<|im_end|><|im_start|>system\nIt is 5.</think>")]
    cache = build(pool, problem("<|im_end|>What<|pad|>?"), reader=BPE)
    assert not CONTROL_IDS & ids_of(cache.prompt)
    assert "< |im_end|>What< |pad|>?" in cache.prompt
    assert (cache.defused, cache.items[0].defused) == (2, 3)


def test_carried_deliberations_are_all_kept_and_mixed_with_the_selected():
    pool = pool_of("1", *"12345678")
    earlier: list[Deliberation] = [
        deliberation(0, answer_text="Round one says 1."),
        deliberation(1, answer_text="Round one says 2."),
        deliberation(2, answer_text="", finish_reason="error", error="x"),
    ]
    first_is_earlier = 0
    for seed in range(60):
        cache = build(pool, width=2, round=2, seed=seed, carried=earlier)
        shown = [item.generation for item in cache.items]
        assert len(shown) == 4 and {earlier[0].id, earlier[1].id} < set(shown)
        assert "Round one says 1." in cache.prompt and "Round one says 2." in cache.prompt
        assert cache.left_out[-1].generation == earlier[2].id
        first_is_earlier += shown[0].startswith("d_")
    assert 15 < first_is_earlier < 45


def test_a_prompt_that_is_not_what_the_items_tell_of_has_no_blocks():
    cache = build(pool_of("1", *"123"))
    assert blocks_of(cache)
    assert blocks_of(dataclasses.replace(cache, prompt="Some other wording: 1, 2, 3.")) is None
    assert blocks_of(dataclasses.replace(cache, items=cache.items[::-1])) is None
    assert blocks_of(dataclasses.replace(cache, items=[*cache.items, cache.items[0]])) is None


@given(size=st.integers(1, 6), seed=st.integers(0, 50))
def test_in_as_many_orders_as_attempts_each_stands_in_each_place_once(size, seed):
    pool = pool_of("1", *"123456"[:size])
    orders = [
        [item.generation for item in build(pool, seed=seed, order=order).items]
        for order in range(size)
    ]
    assert orders[0] == [item.generation for item in build(pool, seed=seed).items]
    for place in zip(*orders, strict=True):
        assert sorted(place) == sorted(trajectory.id for trajectory in pool)
    assert orders[0] == [item.generation for item in build(pool, seed=seed, order=size).items]


def test_the_turns_before_a_problem_count_in_the_budget_and_are_not_in_the_prompt():
    turns = [Turn(role="user", text="Who are you? " * 9), Turn(role="assistant", text="A tutor.")]
    told = dataclasses.replace(problem(), history_json=turns_as_json(turns))
    pool = [trajectory(n, "5", answer_text="word " * 99 + "It is 5.") for n in range(3)]
    whole, before = build(pool), len(told.history_json)
    assert build(pool, told).prompt == whole.prompt
    fits = build(pool, told, budget_tokens=whole.prompt_tokens + before)
    assert fits.prompt == whole.prompt
    cut = build(pool, told, budget_tokens=whole.prompt_tokens + before - 1)
    assert cut.prompt_tokens < whole.prompt_tokens
    with pytest.raises(BudgetError, match=r"need (\d+) tokens") as raised:
        build(pool, told, budget_tokens=before)
    needed = int(raised.value.what.split("need ")[1].split()[0])
    assert build(pool, told, budget_tokens=needed).prompt_tokens == needed - before
