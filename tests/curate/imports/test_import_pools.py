"""Rows of all files become pools, which are judged and written whole or not at all."""

import json
import tempfile
from pathlib import Path
from typing import Any

import messages
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from import_files import EGGS, GOLD, STAIRS, answers_row, boxed, config_of, lines
from messages import message
from plug_ins import forgotten
from runs import build

from heavydistill.config.sets import ImportConfig
from heavydistill.curate.imports.import_pools import ImportedPools, ImportResult, import_pools
from heavydistill.errors import ProblemsError
from heavydistill.metrics.summary import summarize
from heavydistill.schema import Trace
from heavydistill.store.traces import read_traces
from heavydistill.verifiers.exact import Exact

LEAVE_OUT = {"problems.unfit": "leave_out"}


def pools_of(folder: Path, *rows: Any, **keys: Any) -> ImportedPools:
    return ImportedPools(config_of("answers", lines(folder / "a.jsonl", *rows), **GOLD, **keys))


def test_rows_of_one_problem_are_one_pool(tmp_path):
    pools = pools_of(
        tmp_path,
        answers_row(EGGS, "42", boxed(1)),
        answers_row(STAIRS, "36", boxed(36), boxed(15)),
        answers_row(EGGS, "42", boxed(2), boxed(2)),
    )
    eggs, stairs = pools
    assert [each.answer_text for each in eggs.trajectories] == [boxed(1), boxed(2), boxed(2)]
    assert [each.index for each in eggs.trajectories] == [0, 1, 2]
    assert len({each.id for each in (*eggs.trajectories, *stairs.trajectories)}) == 5
    assert (pools.joined, pools.left_out) == (1, {})
    assert [problem.id for problem in pools.problems] == ["a:1", "a:2"]


def test_one_question_with_other_arguments_is_not_joined(tmp_path):
    asked = {"question": "Say yes.", "answers": ["Yes.", "yes"]}
    kinds = (["change_case:english_lowercase"], ["punctuation:no_comma"])
    rows = [{**asked, "instruction_id_list": kind, "kwargs": [{}]} for kind in kinds]
    path = lines(tmp_path / "a.jsonl", *rows)
    keys = {"problems.verifier": "instructions", **LEAVE_OUT}
    pools = ImportedPools(config_of("answers", path, **keys))
    assert len(pools.problems) == 1 and pools.left_out["contradictory"].rows == 1


@pytest.mark.parametrize(
    ("bad", "reason", "says"),
    [
        (answers_row(EGGS, "43"), "contradictory", r"a\.jsonl:2: a\.jsonl:1 has the same question"),
        (answers_row(STAIRS, "36", boxed(36)), "too_few", r"a\.jsonl:2: the problem has 1 answer"),
        (answers_row(STAIRS, None), "unfit", message("empty_reference", place="a.jsonl:2")),
        ({**answers_row(STAIRS), "answers": "?"}, "too_few", r"a\.jsonl:2: .* has 1 answer"),
        (
            {**answers_row(STAIRS), "answers": [1]},
            "unreadable",
            r"a\.jsonl:2: an answer is of type int",
        ),
        (
            {"question": STAIRS, "gold": "36"},
            "unreadable",
            message("no_column", row="a.jsonl:2", column="'answers'"),
        ),
    ],
)
def test_a_row_that_cannot_be_used_is_refused_or_left_out(bad, reason, says, tmp_path):
    with pytest.raises(ProblemsError, match=says) as refused:
        pools_of(tmp_path, answers_row(), bad)
    assert "problems.unfit=leave_out" in str(refused.value)
    pools = pools_of(tmp_path, answers_row(), bad, **LEAVE_OUT)
    assert [problem.text for problem in pools.problems] == [EGGS]
    assert {name: of.rows for name, of in pools.left_out.items()} == {reason: 1}
    assert pools.left_out[reason].first[0].startswith("a.jsonl:2: ")


def test_a_source_with_nothing_else_is_refused_even_so(tmp_path):
    rows = [answers_row(f"{EGGS} {n}", "42", boxed(n)) for n in range(12)]
    with messages.raises("rows_unfit", count=12, of="12 rows") as refused:
        pools_of(tmp_path, *rows, **LEAVE_OUT)
    assert "a.jsonl:3 and 9 more: " in str(refused.value) and "leave_out" not in str(refused.value)


def test_the_limit_takes_the_first_problems_and_counts_the_others(tmp_path):
    rows = [answers_row(f"{EGGS} {n}", "42") for n in range(4)]
    pools = pools_of(tmp_path, *rows, answers_row(f"{EGGS} 3"), **{"problems.limit": 1})
    assert len(list(pools)) == len(pools.problems) == 1
    assert pools.left_out["over_limit"].rows == 4


def test_a_reference_that_the_verifier_cannot_read_is_unfit(tmp_path):
    with messages.raises("reference_of_lines"):
        pools_of(tmp_path, answers_row(EGGS, "It is\n42"))
    marker = {"problems.verifier_args": {"marker": "####"}}
    for keys in ({}, marker):
        pools = pools_of(tmp_path, answers_row(EGGS, "6 * 7\n#### 42"), **keys)
        (pool,) = pools
        assert pool.problem.verifier_args == '{"marker": "####"}'
        assert pools.marker == ("" if keys else "####")


def test_two_problems_of_one_id_are_refused(tmp_path):
    rows = [{"id": 1, **answers_row()}, {"id": 1, **answers_row(STAIRS, "36")}]
    with messages.raises("id_twice", row="a.jsonl:2: ", id="1", first="a.jsonl:1"):
        pools_of(tmp_path, *rows)


def test_two_files_of_one_name_are_refused(tmp_path):
    (tmp_path / "b").mkdir()
    files = [lines(place / "a.jsonl", answers_row()) for place in (tmp_path, tmp_path / "b")]
    with messages.raises("files_of_one_name", name="a.jsonl"):
        ImportedPools(config_of("answers", *files, **GOLD))


@pytest.mark.parametrize("content", ["", "[]", "\n\n"])
def test_a_file_without_rows_is_refused(content, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(content, encoding="utf-8")
    with messages.raises("file_without_rows", file="a.jsonl"):
        ImportedPools(config_of("answers", path, **GOLD, **{"problems.columns.answers": "answers"}))


_ROWS = st.builds(
    answers_row,
    st.sampled_from([EGGS, STAIRS, "", "What is 1 + 1?"]),
    st.sampled_from(["42", "36", None]),
    st.sampled_from([boxed(42), "", 7, {"text": "42"}]),
)


@given(rows=st.lists(_ROWS, max_size=8), limit=st.none() | st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_every_row_is_in_a_pool_or_counted(rows, limit):
    keys = {**LEAVE_OUT, **({"problems.limit": limit} if limit else {})}
    with tempfile.TemporaryDirectory() as folder:
        pools = pools_of(Path(folder), answers_row("What is 40 + 2?"), *rows, **keys)
        left_out = sum(of.rows for of in pools.left_out.values())
        assert len(pools.problems) + pools.joined + left_out == len(rows) + 1 == sum(pools.rows)
        for pool in pools:
            assert len(pool.trajectories) == len(pool.attempts) >= 2


GSM8K = Path(__file__).parents[3] / ".." / "shared" / "data" / "gsm8k_solutions_k4.jsonl"

EGGS_ROW = answers_row(
    EGGS,
    "42",
    {"text": boxed(42), "is_correct": True, "model": "b"},
    {"text": boxed(42), "is_correct": False},
    {"text": boxed(13), "is_correct": False},
    {"text": boxed("42 eggs"), "is_correct": True},
    {"text": boxed(7), "is_correct": "no"},
)
STAIRS_ROW = answers_row(STAIRS, "36", boxed(36), "")


def configured(folder: Path, *rows: Any, name: str = "a.jsonl", **keys: Any) -> ImportConfig:
    return config_of(
        "answers", lines(folder / name, *rows), out=str(folder / "run"), **GOLD, **keys
    )


def imported(folder: Path, *rows: Any, **keys: Any) -> tuple[ImportResult, list[Trace]]:
    done = import_pools(configured(folder, *rows, **keys))
    return done, list(read_traces(done.folder))


def test_traces_have_our_verdicts_and_nothing_that_is_not_in_the_files(tmp_path):
    _, (eggs, stairs) = imported(tmp_path, EGGS_ROW, STAIRS_ROW)
    labels = [each.verdict.label for each in eggs.pool if each.verdict]
    assert labels == ["correct", "correct", "incorrect", "undecided", "incorrect"]
    assert (eggs.stratum, eggs.status) == ("majority-right", "ok")
    assert (eggs.caches, eggs.deliberations, eggs.outcome) == ([], [], None)
    assert (stairs.stratum, stairs.status) == ("majority-right", "too_few_usable")
    assert [each.unusable_because for each in stairs.pool] == [None, "error"]


def test_labels_of_the_file_are_counted_against_our_verdicts(tmp_path):
    done, _ = imported(tmp_path, EGGS_ROW)
    assert done.labels["right"] == {"correct": 1, "undecided": 1}
    assert done.labels["wrong"] == {"correct": 1, "incorrect": 1}
    assert done.labels["unlabelled"] == {"incorrect": 1}
    assert done.record["labels_unclear"] == 1
    assert done.record["labels"]["right"] == {"correct": 1, "incorrect": 0, "undecided": 1}


def test_the_record_says_what_was_read_and_assumed(tmp_path):
    unfit = answers_row("?", None)
    done, _ = imported(
        tmp_path, EGGS_ROW, STAIRS_ROW, unfit, **{"problems.unfit": "leave_out", "model": "m"}
    )
    record = json.loads((done.folder / "import.json").read_text(encoding="utf-8"))
    assert record == done.record
    assert record["format"] == "answers"
    assert record["files"] == [{"name": "a.jsonl", "rows": 3}]
    assert (record["rows"], record["problems"], record["answers"]) == (3, 2, 7)
    assert record["finish_reasons_assumed"] == 7
    assert record["models"] == {"b": 1, "m": 6}
    assert record["verifiers"] == ["exact@2"]
    assert record["left_out"] == {
        "unfit": {
            "rows": 1,
            "first": [message("empty_reference", place="a.jsonl:3") + " (column 'gold')"],
        }
    }
    assert record["options"]["problems"]["verifier"] == "exact"
    assert str(tmp_path) not in json.dumps(record)


def test_the_summary_is_that_of_the_traces(tmp_path):
    done, traces = imported(tmp_path, EGGS_ROW, STAIRS_ROW)
    assert done.summary == summarize(traces)
    written = json.loads((done.folder / "summary.json").read_text(encoding="utf-8"))
    assert written["mean_at_k"]["mean"] == pytest.approx((2 / 5 + 1 / 2) / 2)
    assert (written["rejects"], written["missing"], written["left_out"]) == (0, 0, 0)
    assert written["usage"]["thinking"]["unknown_completion"] == 7


def test_the_same_files_give_the_same_bytes(tmp_path):
    folders = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        done, _ = imported(tmp_path / name, EGGS_ROW, STAIRS_ROW)
        folders.append(done.folder)
    first, second = (sorted(p for p in f.rglob("*") if p.is_file()) for f in folders)
    assert [p.relative_to(folders[0]) for p in first] == [p.relative_to(folders[1]) for p in second]
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    assert len(first) == 3


def test_a_user_who_has_samples_builds_sets_of_them(tmp_path):
    done, _ = imported(tmp_path, EGGS_ROW, STAIRS_ROW)
    manifest = build(tmp_path / "sets", done.folder, sets__widths=[2, 3])
    assert manifest.runs[0].config == {}
    assert manifest.rows["sft_thinker"]["train"] > 0
    assert sum(strata.sets for strata in manifest.strata.values()) >= 4


def test_a_folder_that_holds_something_is_refused(tmp_path):
    config = configured(tmp_path, EGGS_ROW)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("kept", encoding="utf-8")
    with messages.raises("out_not_empty"):
        import_pools(config)


def test_nothing_is_left_where_an_import_fails_or_is_interrupted(tmp_path):
    config = configured(tmp_path, EGGS_ROW, STAIRS_ROW)

    def interrupt(what: str, done: int, total: int) -> None:
        if what == "judging":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_pools(config, interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_progress_tells_of_references_and_problems(tmp_path):
    seen: list[tuple[str, int, int]] = []
    config = configured(tmp_path, EGGS_ROW, STAIRS_ROW)
    import_pools(config, lambda *told: seen.append(told))
    stages = ("checking references", "judging")
    assert seen == [(stage, done, 2) for stage in stages for done in (1, 2)]


def test_a_verifier_that_cannot_judge_here_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Exact, "unavailable", lambda self, config: "install it")
    with messages.raises("verifier_cannot_judge", verifier="exact", why="install it"):
        import_pools(configured(tmp_path, EGGS_ROW))
    assert not (tmp_path / "run").exists()


def test_an_answer_that_breaks_its_verifier_costs_itself_alone(tmp_path):
    own = Path(__file__).parents[2] / "verifiers" / "own_verifiers.py"
    keys = {"verify.own": [str(own)], "verify.workers": 1, "problems.verifier": "obedient"}
    with forgotten():
        done, (trace,) = imported(tmp_path, answers_row(EGGS, "42", "42", "crash", "13"), **keys)
    said = [each.verdict.reason for each in trace.pool if each.verdict]
    assert said == ["told", "worker_died", "told"]
    assert done.record["verifiers"] == ["obedient@1"]
    assert done.record["options"]["verify"]["own"] == ["own_verifiers.py"]


def test_real_solutions_get_the_verdicts_that_were_recorded(tmp_path):
    if not GSM8K.is_file():
        pytest.skip("the GSM8K solutions are not here")
    keys = {"problems.verifier_args": {"marker": "A:"}, "problems.columns.answers": "*b_*"}
    done = import_pools(config_of("answers", GSM8K, out=str(tmp_path / "run"), **keys))
    assert (done.record["problems"], done.record["answers"]) == (660, 2640)
    assert set(done.record["models"]) == {
        f"{size}_{way}" for size in ("6b", "175b") for way in ("finetuning", "verification")
    }
    # Of the answers recorded as wrong one is undecided: a number of cents for one of dollars.
    assert done.labels["right"] == {"correct": 1008}
    assert done.labels["wrong"] == {"incorrect": 1631, "undecided": 1}


def test_real_solutions_without_a_box_get_their_marker(tmp_path):
    if not GSM8K.is_file():
        pytest.skip("the GSM8K solutions are not here")
    rows = [json.loads(line) for line in GSM8K.read_text(encoding="utf-8").splitlines()[:200]]
    for row in rows:
        row["ground_truth"] = row["ground_truth"].rpartition("A:")[2].strip()
    file = lines(tmp_path / "gsm8k.jsonl", *rows)
    keys = {"problems.columns.answers": "*b_*"}
    done = import_pools(config_of("answers", file, out=str(tmp_path / "run"), **keys))
    shared = done.marker
    assert shared and (shared.marker, shared.count, shared.of) == ("A:", 795, 800)
