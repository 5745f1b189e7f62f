"""Worked solutions: each that the verifier accepts becomes a row of the thinker."""

from pathlib import Path
from typing import Any

import pytest
from import_files import EGGS, STAIRS, boxed, config_of, lines
from runs import build, rows, write_run

from heavydistill.config.run import RunConfig
from heavydistill.curate.build import EmptyError
from heavydistill.curate.imports.import_pools import ImportResult, import_pools
from heavydistill.errors import ConfigError
from heavydistill.run.generate import check
from heavydistill.schema import OK
from heavydistill.store.traces import read_traces

LONG = " ".join(f"Egg {n} is in a box." for n in range(60))


def solutions(folder: Path, *given: dict[str, Any], **keys: Any) -> ImportResult:
    path = lines(folder / "worked.jsonl", *given)
    keys = {"problems.verifier": "math", "out": str(folder / "worked"), **keys}
    return import_pools(config_of("solutions", path, **keys))


def row(text: str, solution: str, answer: str) -> dict[str, str]:
    return {"problem": text, "solution": solution, "answer": answer}


def test_each_solution_is_a_pool_and_the_refused_ones_are_named(tmp_path):
    done = solutions(
        tmp_path,
        row(EGGS, f"6 * 7 = 42. {boxed(42)}", "42"),
        row(STAIRS, f"12 * 3 = 38. {boxed(38)}", "36"),
        row("How much is 1 + 1?", "1 + 1 = 2", "2"),
    )
    assert [len(trace.pool) for trace in read_traces(done.folder)] == [1, 1, 1]
    assert {trace.status for trace in read_traces(done.folder)} == {OK}
    refused = done.record["not_correct"]
    assert refused["rows"] == 2
    assert refused["first"] == [
        "worked.jsonl:2: incorrect (different): '38', reference '36'",
        "worked.jsonl:3: incorrect (no_answer): no final answer, reference '2'",
    ]
    assert done.record["columns"]["answers"] == "solution"


def test_a_build_learns_the_accepted_ones_also_the_longest(tmp_path):
    """A quantile of 0.5 would leave out half of sampled attempts."""
    done = solutions(
        tmp_path,
        row(EGGS, f"{LONG} {boxed(42)}", "42"),
        row(STAIRS, boxed(36), "36"),
        row("How much is 1 + 1?", boxed(3), "2"),
    )
    keys = {"validation": 0.0, "filters__length_quantile": 0.5}
    manifest = build(tmp_path / "sets", done.folder, **keys)
    learnt = {each["answer_text"] for each in rows(tmp_path / "sets", "sft_thinker")}
    assert learnt == {f"{LONG} {boxed(42)}", boxed(36)}
    assert manifest.trajectories == {"used": 2, "not_correct": 1}
    assert not rows(tmp_path / "sets", "sft_deliberator")


def test_attempts_of_another_run_keep_their_own_lengths(tmp_path):
    sampled = write_run(tmp_path / "sampled", 12)
    alone = build(tmp_path / "alone", sampled, filters__length_quantile=0.5)
    done = solutions(tmp_path, row(EGGS, f"{LONG} {boxed(42)}", "42"))
    both = build(tmp_path / "both", sampled, done.folder, filters__length_quantile=0.5)
    assert alone.trajectories["too_long"] == both.trajectories["too_long"] > 0
    assert any(LONG in each["answer_text"] for each in rows(tmp_path / "both", "sft_thinker"))


def test_a_solution_may_be_its_own_reference(tmp_path):
    text = f"{EGGS} Each box holds as many eggs as every other box, and no box is empty here."
    worked = "Each of the seven boxes on the long table holds six fresh brown eggs of the farm"
    done = solutions(tmp_path, {"question": text, "answer": f"{worked}: 6 * 7 = 42\n#### 42"})
    (trace,) = read_traces(done.folder)
    assert trace.pool[0].is_correct and done.reference_marker == "####"
    assert build(tmp_path / "sets", done.folder).trajectories == {"used": 1}


def test_a_build_without_any_accepted_solution_says_so(tmp_path):
    done = solutions(tmp_path, row(EGGS, boxed(41), "42"))
    with pytest.raises(EmptyError, match="Correct the solutions"):
        build(tmp_path / "sets", done.folder)


def test_nobody_deliberates_on_one_solution(tmp_path):
    done = solutions(tmp_path, row(EGGS, boxed(42), "42"))
    with pytest.raises(ConfigError, match=r"one attempt per problem.*heavydistill build"):
        check(RunConfig(pools=str(done.folder), deliberator="micro", out=str(tmp_path / "run")))
