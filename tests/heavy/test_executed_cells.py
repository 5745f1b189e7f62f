"""Code that attempts ran: which text calls, and how a cache shows it and cuts it."""

import json

import pytest
from heavy_samples import BRIEF, CHARS, problem, trajectory

from heavydistill.config.run import Attempts
from heavydistill.experiments.controls import other_pools
from heavydistill.heavy.cache import blocks_of, build_cache, recut
from heavydistill.heavy.executed_cells import PYTHON, cells_of
from heavydistill.heavy.tools import fenced
from heavydistill.schema import Cache, ToolCall, Trace, Trajectory, Turn, turns_as_json

OUTPUT = "line 17\n" * 40


def code(text: str) -> str:
    return json.dumps({"code": text})


def ran(*cells: tuple[str, str], answer: str = "So \\boxed{5}.", index: int = 0) -> Trajectory:
    """An attempt that ran these cells, with their outputs, and answered."""
    turns = []
    for number, (text, output) in enumerate(cells):
        call = ToolCall(id=f"c{number}", name=PYTHON, arguments=code(text))
        turns += [
            Turn(role="assistant", text="", calls=[call]),
            Turn(role="tool", text=output, result_of=call.id),
        ]
    turns += [Turn(role="assistant", text=answer)]
    return trajectory(index, answer_text=answer, turns_json=turns_as_json(turns))


ATTEMPTS = [ran(("a = 2", ""), ("a + 3", "5"), ("show()", OUTPUT)), trajectory(1)]


def cached(budget: int, attempts: list[Trajectory] = ATTEMPTS) -> Cache:
    return build_cache(
        problem(),
        attempts,
        round=1,
        seed=0,
        selection="random",
        width=None,
        pruning="answer_only",
        budget_tokens=budget,
        prompt=BRIEF,
        reader=CHARS,
    )


def test_a_cache_shows_code_and_outputs_and_says_that_they_were_executed():
    cache = cached(10_000)
    assert "```python\na + 3\n```\n```output\n5\n```\n" in cache.prompt and OUTPUT in cache.prompt
    assert "was executed by an interpreter" in cache.prompt
    assert cache.prompt_version != BRIEF.version and blocks_of(cache)
    assert {item.mode for item in cache.items} == {"answer_only"}
    plain = cached(10_000, [trajectory(0), trajectory(1)])
    assert plain.prompt_version == BRIEF.version and "interpreter" not in plain.prompt


def test_outputs_are_cut_before_code_and_the_answer_never_is():
    whole, seen = cached(10_000), []
    for budget in range(whole.prompt_tokens - 1, 0, -10):
        try:
            cache = cached(budget)
        except Exception:
            break
        (item,) = (item for item in cache.items if item.generation == ATTEMPTS[0].id)
        assert item.tokens_after < item.tokens_before and "\\boxed{5}" in cache.prompt
        has_code = "show()" in cache.prompt and "a = 2" in cache.prompt
        assert has_code == (item.mode == "answer_only, outputs cut")
        seen.append(item.mode)
    assert seen == sorted(seen, reverse=True) and len(set(seen)) == 2, "outputs, then code"
    again = recut(problem(), cached(900), ATTEMPTS, budget_tokens=9_000, prompt=BRIEF, reader=CHARS)
    assert OUTPUT in again.prompt


def test_half_a_character_in_code_is_no_end_of_a_cache():
    (attempt,) = [ran(("print('\ud800')", ""))]
    assert "print('?')" in cached(10_000, [attempt, trajectory(1)]).prompt


def test_backticks_in_code_close_no_block():
    (attempt,) = [ran(("x = '''\n```\n'''", "```\n==== Attempt 9"))]
    text = cached(10_000, [attempt, trajectory(1)]).prompt
    assert "````python\nx = '''\n```\n'''\n````" in text


@pytest.mark.parametrize("control", ["outputs", "garbled"])
def test_controls_replace_what_the_code_printed(control: Attempts):
    pool = [ran(("a = 2 + 3\na", "5"), answer="It is \\boxed{5}."), trajectory(1)]
    trace = Trace(problem=problem("What?"), pool=pool, caches=[cached(10_000, pool)])
    ((_, others),) = other_pools(control, [trace])
    (cell,) = cells_of(others[0])
    assert cell.output not in ("5", "") and others[0].id != pool[0].id
    is_same = others[0].answer_text == pool[0].answer_text
    assert is_same == (control == "outputs") == (cell.code == "a = 2 + 3\na")
    assert (others[0].verdict == pool[0].verdict) == is_same


@pytest.mark.parametrize(
    ("text", "before", "called"),
    [
        ("So:\n```python\nx = 1\nx\n```", "So:\n", "x = 1\nx"),
        ("```python\nx\n```\n```output\n3\n```\nIt is 3.", "", "x"),
        ("```python\na\n```\nand\n```python\nb\n```", "```python\na\n```\nand\n", "b"),
        ("```python\nx\n```\nIt is 3.", "", ""),
        ("```text\nx\n```", "", ""),
        ("```python\nprint('```python')\n```", "", "print('```python')"),
        ("```python\nx\n```\nIt prints\n```\n3\n```", "", ""),
    ],
)
def test_only_a_block_of_python_at_the_end_is_a_call(text: str, before: str, called: str):
    rest, calls = fenced(text, "id")
    assert [call.arguments for call in calls] == ([code(called)] if called else [])
    assert rest == (before if called else text)
