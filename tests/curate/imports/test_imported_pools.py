"""Rows of all files become problems with pools; what cannot be used is refused or counted."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from import_files import EGGS, GOLD, STAIRS, answers_row, boxed, config_of, lines

from heavydistill.curate.imports.import_pools import ImportedPools
from heavydistill.errors import ProblemsError

LEAVE_OUT = {"problems.unfit": "leave_out"}


def pools_of(folder: Path, *rows: Any, **keys: Any) -> ImportedPools:
    return ImportedPools(config_of("answers", lines(folder / "a.jsonl", *rows), **GOLD, **keys))


def test_rows_of_one_problem_are_one_pool(tmp_path: Path) -> None:
    pools = pools_of(
        tmp_path,
        answers_row(EGGS, "42", boxed(1)),
        answers_row(STAIRS, "36", boxed(36), boxed(15)),
        answers_row(EGGS, "42", boxed(2), boxed(3)),
    )
    eggs, stairs = pools
    assert [each.answer_text for each in eggs.trajectories] == [boxed(1), boxed(2), boxed(3)]
    assert [each.index for each in eggs.trajectories] == [0, 1, 2]
    assert len({each.id for each in (*eggs.trajectories, *stairs.trajectories)}) == 5
    assert (pools.joined, pools.left_out) == (1, {})
    assert [problem.id for problem in pools.problems] == ["a:1", "a:2"]


def test_one_question_with_other_arguments_is_not_joined(tmp_path: Path) -> None:
    asked = {"question": "Say yes.", "answers": ["Yes.", "yes"]}
    kinds = (["change_case:english_lowercase"], ["punctuation:no_comma"])
    rows = [{**asked, "instruction_id_list": kind, "kwargs": [{}]} for kind in kinds]
    path = lines(tmp_path / "a.jsonl", *rows)
    keys = {"problems.verifier": "instructions", **LEAVE_OUT}
    pools = ImportedPools(config_of("answers", path, **keys))
    assert len(pools.problems) == 1 and pools.left_out["contradictory"].rows == 1


def test_equal_answers_are_attempts_of_their_own(tmp_path: Path) -> None:
    (pool,) = pools_of(tmp_path, answers_row(EGGS, "42", boxed(42), boxed(42)))
    assert len({each.id for each in pool.trajectories}) == 2


@pytest.mark.parametrize(
    ("bad", "reason", "says"),
    [
        (
            answers_row(EGGS, "43"),
            "contradictory",
            r"a\.jsonl:2: the question is that of a\.jsonl:1",
        ),
        (answers_row(STAIRS, "36", boxed(36)), "too_few", r"a\.jsonl:2: the problem has 1 answer"),
        (answers_row(STAIRS, None), "unfit", r"a\.jsonl:2: the reference answer is empty"),
        ({**answers_row(STAIRS), "answers": "?"}, "too_few", r"a\.jsonl:2: .* has 1 answer"),
        ({**answers_row(STAIRS), "answers": [1]}, "unreadable", r"a\.jsonl:2: an answer holds int"),
        ({"question": STAIRS, "gold": "36"}, "unreadable", r"a\.jsonl:2: there is no column 'answ"),
    ],
)
def test_a_row_that_cannot_be_used_is_refused_or_left_out(
    bad: dict[str, Any], reason: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(ProblemsError, match=says) as refused:
        pools_of(tmp_path, answers_row(), bad)
    assert "problems.unfit=leave_out" in str(refused.value)
    pools = pools_of(tmp_path, answers_row(), bad, **LEAVE_OUT)
    assert [problem.text for problem in pools.problems] == [EGGS]
    assert {name: of.rows for name, of in pools.left_out.items()} == {reason: 1}
    assert pools.left_out[reason].first[0].startswith("a.jsonl:2: ")


def test_a_source_with_nothing_else_is_refused_even_so(tmp_path: Path) -> None:
    rows = [answers_row(f"{EGGS} {n}", "42", boxed(n)) for n in range(12)]
    with pytest.raises(ProblemsError, match=r"12 of 12 rows cannot be used") as refused:
        pools_of(tmp_path, *rows, **LEAVE_OUT)
    assert "and 2 more" in str(refused.value) and "leave_out" not in str(refused.value)


def test_the_limit_takes_the_first_problems_and_counts_the_others(tmp_path: Path) -> None:
    rows = [answers_row(f"{EGGS} {n}", "42") for n in range(4)]
    pools = pools_of(tmp_path, *rows, answers_row(f"{EGGS} 3"), **{"problems.limit": 1})
    assert len(list(pools)) == len(pools.problems) == 1
    assert pools.left_out["over_limit"].rows == 4


def test_a_reference_that_the_verifier_cannot_read_is_unfit(tmp_path: Path) -> None:
    with pytest.raises(ProblemsError, match=r"a\.jsonl:1: the reference has several lines"):
        pools_of(tmp_path, answers_row(EGGS, "It is\n42"))
    marker = {"problems.verifier_args": {"marker": "####"}}
    (pool,) = pools_of(tmp_path, answers_row(EGGS, "6 * 7\n#### 42"), **marker)
    assert pool.problem.verifier_args == '{"marker": "####"}'


def test_no_reference_at_all_names_the_option(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", {"question": EGGS, "answers": ["a", "b"]})
    with pytest.raises(ProblemsError, match=r"No row has a reference.*--columns reference="):
        ImportedPools(config_of("answers", path))


def test_two_problems_of_one_id_are_refused(tmp_path: Path) -> None:
    rows = [{"id": 1, **answers_row()}, {"id": 1, **answers_row(STAIRS, "36")}]
    with pytest.raises(ProblemsError, match=r"a\.jsonl:2: id '1' is also that of a\.jsonl:1"):
        pools_of(tmp_path, *rows)


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    files = [lines(place / "a.jsonl", answers_row()) for place in (tmp_path, tmp_path / "b")]
    with pytest.raises(ProblemsError, match=r"Two of the files are named a\.jsonl"):
        ImportedPools(config_of("answers", *files, **GOLD))


@pytest.mark.parametrize("content", ["", "[]", "\n\n"])
def test_a_file_without_rows_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ProblemsError, match=r"a\.jsonl holds no rows"):
        ImportedPools(config_of("answers", path, **GOLD, **{"problems.columns.answers": "answers"}))


def test_an_unknown_field_and_an_unknown_verifier_are_named(tmp_path: Path) -> None:
    with pytest.raises(ProblemsError, match=r"columns\.awnsers: .*Did you mean answers\?"):
        pools_of(tmp_path, answers_row(), **{"problems.columns.awnsers": "x"})
    with pytest.raises(ProblemsError, match="There is no verifier 'exakt'"):
        pools_of(tmp_path, answers_row(), **{"problems.verifier": "exakt"})


_ROWS = st.builds(
    answers_row,
    st.sampled_from([EGGS, STAIRS, "", "What is 1 + 1?"]),
    st.sampled_from(["42", "36", None]),
    st.sampled_from([boxed(42), "", 7, {"text": "42"}]),
)


@given(rows=st.lists(_ROWS, max_size=8), limit=st.none() | st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_every_row_is_in_a_pool_or_counted(rows: list[dict[str, Any]], limit: int | None) -> None:
    keys = {**LEAVE_OUT, **({"problems.limit": limit} if limit else {})}
    with tempfile.TemporaryDirectory() as folder:
        pools = pools_of(Path(folder), answers_row("What is 40 + 2?"), *rows, **keys)
        left_out = sum(of.rows for of in pools.left_out.values())
        assert len(pools.problems) + pools.joined + left_out == len(rows) + 1 == sum(pools.rows)
        for pool in pools:
            assert len(pool.trajectories) == len(pool.attempts) >= 2
