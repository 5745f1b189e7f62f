"""Builds of runs that share pools, of students that are folders, and of rows that hardly fit."""

import shutil
from dataclasses import replace
from pathlib import Path

import messages
import pytest
from import_files import lines
from runs import STUDENT, build, rows, traces, write_run
from samples import cache_of

from heavydistill.chat.guard import Inspection
from heavydistill.chat.student import Student
from heavydistill.cli.runs import _student_at_hand
from heavydistill.config.run import Problems, RunConfig, dump_config
from heavydistill.curate.build import EmptyError
from heavydistill.curate.mixture import PRESETS
from heavydistill.errors import ConfigError
from heavydistill.schema import ToolCall, Trace, Turn, turns_as_json
from heavydistill.store.traces import TRACES_FOLDER, write_traces


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "run", 20)


def test_a_set_that_two_runs_made_of_one_pool_counts_once(tmp_path):
    write_run(tmp_path / "one", 12)
    alone = build(tmp_path / "alone", tmp_path / "one")
    write_traces((_reread(trace, seed=5) for trace in traces(12)), tmp_path / "two" / TRACES_FOLDER)
    both = build(tmp_path / "both", tmp_path / "one", tmp_path / "two")
    assert both.strata == alone.strata
    assert both.rows["rl"] == alone.rows["rl"]
    assert both.deliberations["used"] > alone.deliberations["used"]
    again = {row["rl_label"] for row in rows(tmp_path / "both", "caches") if row["run"] == "two"}
    assert "duplicate" in again


def test_rows_that_a_tool_had_a_part_in_are_refused(tmp_path):
    several = [
        Turn(role="assistant", text="", calls=[ToolCall(id="1", name="python", arguments="{}")]),
        Turn(role="tool", text="42", result_of="1"),
        Turn(role="assistant", text="42"),
    ]
    for stage in ("pool", "deliberations"):
        (trace,) = traces(1)
        first, *others = getattr(trace, stage)
        told = replace(
            trace, **{stage: [replace(first, turns_json=turns_as_json(several)), *others]}
        )
        write_traces([told], tmp_path / stage / TRACES_FOLDER)
        with messages.raises("turns_in_set", id=first.id):
            build(tmp_path / "sets", tmp_path / stage)
        assert not (tmp_path / "sets").exists()


BEFORE = [
    Turn(role="system", text="Be brief."),
    Turn(role="user", text="What is 6 plus 1?"),
    Turn(role="assistant", text="It is 7, which I would also write as seven."),
]


def test_rows_of_a_conversation_show_its_turns_and_learn_the_last_one_alone(tmp_path):
    for name, before in (("plain", []), ("told", BEFORE)):
        history = turns_as_json(before) if before else ""
        told = (
            replace(trace, problem=replace(trace.problem, history_json=history))
            for trace in traces(12)
        )
        write_traces(told, tmp_path / name / "run" / TRACES_FOLDER)
        build(tmp_path / name / "sets", tmp_path / name / "run", max_tokens=2048)
    chat = Student("micro-student").chat
    shown = [{"role": turn.role, "content": turn.text} for turn in BEFORE]
    for name in ("sft_thinker", "sft_deliberator", "rl"):
        plain, told = (rows(tmp_path / kind / "sets", name) for kind in ("plain", "told"))
        assert told and len(told) == len(plain)
        for row in told:
            assert row["prompt"][:-1] == shown
            assert row["prompt_tokens"] == chat.prompt_tokens(row["prompt"])
            if name != "rl":
                tokens = Inspection(chat, row).tokens
                learnt, read = chat.decode(tokens.completion), chat.decode(tokens.prompt)
                assert row["answer_text"] in learnt and not Inspection(chat, row).faults()
                assert BEFORE[2].text in read and BEFORE[2].text not in learnt
    problems = {row["id"] for row in rows(tmp_path / "told" / "sets", "problems")}
    assert problems.isdisjoint(row["id"] for row in rows(tmp_path / "plain" / "sets", "problems"))


def test_the_turns_before_a_cache_are_counted_once_where_it_is_cut_again(tmp_path):
    before = [Turn(role="user", text="?"), Turn(role="assistant", text="carry the digit " * 60)]
    told = (
        replace(trace, problem=replace(trace.problem, history_json=turns_as_json(before)))
        for trace in traces(12)
    )
    write_traces(told, tmp_path / "run" / TRACES_FOLDER)
    build(tmp_path / "whole", tmp_path / "run")
    whole = {row["generation"]: row for row in rows(tmp_path / "whole", "sft_deliberator")}
    longest = max(row["prompt_tokens"] + row["completion_tokens"] for row in whole.values())
    build(tmp_path / "cut", tmp_path / "run", max_tokens=longest - 40)
    cut = [
        row
        for row in rows(tmp_path / "cut", "sft_deliberator")
        if row["cache"] not in {each["cache"] for each in whole.values()} and row["cache"]
    ]
    assert cut
    for row in cut:
        assert whole[row["generation"]]["prompt_tokens"] - row["prompt_tokens"] < 150


@pytest.mark.parametrize(
    "turn",
    [
        Turn(role="assistant", text="7", thinking="6 and 1"),
        Turn(role="assistant", text="", calls=[ToolCall(id="1", name="python", arguments="{}")]),
        Turn(role="tool", text="7", result_of="1"),
    ],
)
def test_turns_that_sets_cannot_show_are_refused(tmp_path, turn):
    (trace,) = traces(1)
    told = replace(trace, problem=replace(trace.problem, history_json=turns_as_json([turn])))
    write_traces([told], tmp_path / "run" / TRACES_FOLDER)
    with pytest.raises(
        ConfigError, match=f"before the text of problem {trace.problem.id} has tool"
    ):
        build(tmp_path / "sets", tmp_path / "run")
    assert not (tmp_path / "sets").exists()


def test_a_set_that_one_run_measured_is_not_unmeasured_in_another(tmp_path):
    write_run(tmp_path / "one", 12)
    seldom = (_reread(trace, seed=5, most=1) for trace in traces(12))
    write_traces(seldom, tmp_path / "two" / TRACES_FOLDER)
    alone = build(tmp_path / "alone", tmp_path / "two", sets__per_problem=1)
    assert alone.unmeasured == len(rows(tmp_path / "alone", "caches")) > 0
    both = build(tmp_path / "both", tmp_path / "one", tmp_path / "two", sets__per_problem=1)
    assert both.unmeasured == 0


def test_a_student_that_is_given_as_a_folder_knows_its_own_attempts(tmp_path, monkeypatch):
    student = tmp_path / "models" / "mine"
    shutil.copytree(STUDENT, student)
    run = write_run(tmp_path / "run", 8, thinker=str(student))
    monkeypatch.chdir(student)
    for number, given in enumerate((str(student), ".", "../mine")):
        out = tmp_path / f"sets{number}"
        manifest = build(out, run, student=given, sets__written_by="student", max_tokens=2048)
        assert manifest.student.name == "mine"
        assert manifest.student_written.part == manifest.student_written.whole > 0
        assert str(tmp_path) not in (out / "manifest.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("written_by", "thinker", "mends"),
    [
        ("student", "another", "Give the model that wrote them as --student"),
        ("teacher", "student", "Give runs of another model"),
    ],
)
def test_attempts_of_nobody_who_is_wanted_are_told(tmp_path, written_by, thinker, mends):
    run = write_run(tmp_path / "run", 4, thinker=thinker)
    with pytest.raises(ConfigError, match=f"all are by {thinker}.*{mends}"):
        build(tmp_path / "sets", run, student=str(STUDENT), sets__written_by=written_by)


def test_a_file_of_problems_is_named_alike_from_everywhere(tmp_path, monkeypatch):
    run = write_run(tmp_path / "run", 4)
    config = RunConfig(problems=Problems(source="mine/sums.jsonl"))
    (run / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sums.jsonl").touch()
    for place in (tmp_path / "mine", tmp_path):
        monkeypatch.chdir(place)
        manifest = build(tmp_path / f"sets-{place.name}", run)
        assert manifest.runs[0].config["problems"]["source"] == "sums.jsonl"


def test_a_long_deliberation_does_not_take_the_place_of_a_short_one(tmp_path):
    long = dict.fromkeys([0], "Attempt 1 and attempt 2 differ. " + "carry the digit " * 400)
    made = (_rewritten(trace, long) for trace in traces(12, d=4))
    write_traces(made, tmp_path / "run" / TRACES_FOLDER)
    manifest = build(
        tmp_path / "sets", tmp_path / "run", filters__length_quantile=1, max_tokens=1300
    )
    labels = {row["index"]: set() for row in rows(tmp_path / "sets", "deliberations")}
    for row in rows(tmp_path / "sets", "deliberations"):
        labels[row["index"]].add(row["label"])
    assert "" not in labels[0] and "too_long_for_student" in labels[0]
    assert "" in labels[1] & labels[2] & labels[3]
    assert sum(manifest.rows["rl"].values()) > 0


def test_the_bounds_of_genselect_hold_for_the_sets_of_a_run_too(run, tmp_path, monkeypatch):
    narrow = write_run(tmp_path / "narrow", 10, k=3)
    with pytest.raises(EmptyError) as raised:
        build(tmp_path / "few", narrow, preset="genselect", thinker__handoff_tokens=16)
    assert sum(counts.with_deliberation for counts in raised.value.manifest.strata.values()) == 0
    whole = build(tmp_path / "whole", run, preset="genselect")
    most = whole.tokens["rl"]["p50"] - 1
    monkeypatch.setitem(PRESETS, "genselect", replace(PRESETS["genselect"], most_tokens=most))
    build(tmp_path / "sets", run, preset="genselect")
    found = rows(tmp_path / "sets", "rl") + rows(tmp_path / "sets", "sft_deliberator")
    assert found
    assert all(row["prompt_tokens"] <= most for row in found)


def test_a_deliberation_on_a_set_that_is_left_out_takes_nobodys_place(tmp_path):
    other = write_run(tmp_path / "other", 8, thinker="micro-student", seed=0)
    run = write_run(tmp_path / "run", 8)
    alone = build(tmp_path / "alone", run, sets__written_by="teacher")
    both = build(tmp_path / "both", other, run, sets__written_by="teacher")
    assert both.deliberations["used"] == alone.deliberations["used"] > 0


def test_deliberations_on_a_problem_that_is_left_out_say_so(run, tmp_path):
    texts = [{"question": trace.problem.text} for trace in traces(20)]
    benchmark = lines(tmp_path / "exam.jsonl", *texts[:6])
    build(tmp_path / "sets", run, against=[str(benchmark)])
    left_out = {
        row["id"] for row in rows(tmp_path / "sets", "problems") if row["label"] == "contaminated"
    }
    found = rows(tmp_path / "sets", "deliberations")
    labels = {row["label"] for row in found if row["problem"] in left_out}
    assert "contaminated" in labels and "set_not_used" not in labels


def test_drawn_sets_that_do_not_fit_are_counted(tmp_path):
    run = write_run(tmp_path / "run", 8, k=16, d=0)
    wide = build(tmp_path / "wide", run)
    small = build(tmp_path / "small", run, max_tokens=700)
    assert wide.unfit == 0 < small.unfit
    assert small.undeliberated == wide.undeliberated - small.unfit
    assert small.undeliberated == len(rows(tmp_path / "small", "caches"))


def _rewritten(trace: Trace, reasoning: dict[int, str]) -> Trace:
    """A trace whose deliberations of some indices think otherwise."""
    return replace(
        trace,
        deliberations=[
            replace(one, reasoning=reasoning.get(one.index, one.reasoning))
            for one in trace.deliberations
        ],
    )


def _reread(trace: Trace, seed: int, most: int | None = None) -> Trace:
    """Another run on the same pool: another order in the cache, and (so many) deliberations."""
    cache = cache_of(trace.problem, trace.pool, seed=seed)
    there = [
        replace(one, id=f"{one.id}-{seed}", cache=cache.id, reasoning=f"{one.reasoning} So.")
        for one in trace.deliberations[:most]
    ]
    return replace(trace, caches=[cache], deliberations=there)


def test_sets_record_the_problems_of_the_pools_that_a_run_read(tmp_path):
    thought, read = write_run(tmp_path / "thought", 12), write_run(tmp_path / "read", 12)
    files = thought / "config.yaml", read / "config.yaml"
    problems = {"source": "gym:gcd", "size": 12}
    files[0].write_text(dump_config(RunConfig(thinker=str(tmp_path), problems=problems)))
    on_pools = RunConfig(pools=str(thought), domain="brief", deliberator="rules")
    files[1].write_text(dump_config(on_pools))
    manifest = build(tmp_path / "sets", read)
    assert manifest.runs[0].config["problems"]["source"] == "gym:gcd"
    assert _student_at_hand(on_pools) == str(tmp_path)
    files[0].unlink()
    assert build(tmp_path / "again", read).runs[0].config["problems"] == {}
    assert _student_at_hand(on_pools) == "Qwen/Qwen3-4B"
    assert _student_at_hand(RunConfig(teacher="micro")) == "micro-student"
