"""A build from a run to its sets, and the rows that are learnt from."""

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import messages
import pytest
from generations import deliberation, problem
from plug_ins import forgotten
from runs import build, rows, traces, write_run
from students import checkpoint, real_template

from heavydistill.chat.guard import guard
from heavydistill.chat.student import Student
from heavydistill.config.sets import load_build_config
from heavydistill.curate.build import build_sets
from heavydistill.curate.set_writer import sft_row
from heavydistill.errors import ConfigError
from heavydistill.hub.dataset_card import write_card
from heavydistill.schema import Generation
from heavydistill.store.sets.folder import SETS, TRAINED, read_manifest
from heavydistill.store.sets.set_rows import SftRow
from heavydistill.store.traces import TRACES_FOLDER, write_traces


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "run", 60)


@pytest.fixture(scope="module")
def sets(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sets") / "sets"
    build(out, run, validation=0.2)
    return out


def test_every_row_to_learn_from_is_right_and_whole(sets):
    views = {name: {row["id"]: row for row in rows(sets, name)} for name in SETS[:4]}
    for row in rows(sets, "sft_deliberator") + rows(sets, "sft_thinker"):
        view = "deliberations" if row["role"] == "deliberator" else "trajectories"
        generation = views[view][row["generation"]]
        assert generation["label"] == ""
        assert generation["verdict"]["label"] == "correct"
        assert row["completion"][0]["content"] == generation["answer_text"] == row["answer_text"]
        assert row["completion"][0]["reasoning_content"] == generation["reasoning"]
        assert views["problems"][row["problem"]]["label"] == ""
        if row["role"] == "deliberator":
            assert row["prompt"][0]["content"] == views["caches"][row["cache"]]["prompt"]
        else:
            assert views["problems"][row["problem"]]["text"] in row["prompt"][0]["content"]


def test_splits_share_no_problem_and_have_the_wanted_share(sets):
    for name in TRAINED:
        train = {row["problem"] for row in rows(sets, name, "train")}
        validation = {row["problem"] for row in rows(sets, name, "validation")}
        assert train and validation
        assert not train & validation
    splits = Counter(row["split"] for row in rows(sets, "problems"))
    assert splits == {"train": 48, "validation": 12}


def test_views_leave_nothing_out(sets, run):
    manifest = read_manifest(sets)
    assert sum(manifest.trajectories.values()) == len(rows(sets, "trajectories")) == 60 * 8
    assert sum(manifest.deliberations.values()) == len(rows(sets, "deliberations")) == 60 * 2
    assert len([row for row in rows(sets, "caches") if not row["drawn"]]) == 60
    for name in ("trajectories", "deliberations"):
        labels = Counter(row["label"] or "used" for row in rows(sets, name))
        assert dict(labels) == getattr(manifest, name)


def test_what_is_labelled_as_used_is_used_and_nothing_else(sets):
    used = {row["id"] for row in rows(sets, "deliberations") if not row["label"]}
    assert used == {r["generation"] for r in rows(sets, "sft_deliberator") if r["cache"]}
    used = {row["id"] for row in rows(sets, "trajectories") if not row["label"]}
    assert used == {row["generation"] for row in rows(sets, "sft_thinker")}
    used = {row["id"] for row in rows(sets, "caches") if not row["rl_label"]}
    assert used == {row["cache"] for row in rows(sets, "rl")}


def test_every_deliberated_set_is_learnt_from_or_counted(sets):
    for counts in read_manifest(sets).strata.values():
        assert counts.sft == counts.with_deliberation - counts.not_admitted - counts.over_bound


def test_plain_problems_have_their_share_of_the_deliberators_rows(sets):
    for split in ("train", "validation"):
        roles = Counter(row["role"] for row in rows(sets, "sft_deliberator", split))
        assert roles["thinker"] == round(roles["deliberator"] / 4)


def test_rl_prompts_are_those_that_are_sometimes_right(sets):
    found = rows(sets, "rl")
    assert found
    assert all(0 < row["success"] < 1 and row["judged"] == 2 for row in found)
    measured = [row for row in rows(sets, "caches") if row["success"] in (0.0, 1.0)]
    assert {row["rl_label"] for row in measured} == {"never_right", "always_right"}


def test_caches_and_rl_prompts_have_the_answers_and_verdicts_of_their_attempts_in_order(sets):
    attempts = {row["id"]: row["verdict"] for row in rows(sets, "trajectories")}
    caches = {row["id"]: row for row in rows(sets, "caches")}
    for row in caches.values():
        verdicts = [attempts[item["generation"]] for item in row["items"]]
        assert row["attempts"] == [
            {"answer": verdict["extracted"], "right": verdict["label"] == "correct"}
            for verdict in verdicts
        ]
    assert len({each["right"] for row in caches.values() for each in row["attempts"]}) == 2
    for row in rows(sets, "rl"):
        assert row["attempts"] == caches[row["cache"]]["attempts"]


def test_drawn_sets_of_a_problem_differ_and_are_at_most_eight(sets):
    by_problem: dict[str, list[Any]] = {}
    for row in rows(sets, "caches"):
        by_problem.setdefault(row["problem"], []).append(row)
    assert any(len(those) > 1 for those in by_problem.values())
    texts = {row["id"]: row["answer_text"] for row in rows(sets, "trajectories")}
    for those in by_problem.values():
        assert len(those) <= 8
        shown = [tuple(sorted(texts[i["generation"]] for i in row["items"])) for row in those]
        assert len(set(shown)) == len(shown)


def test_rows_that_do_not_fit_are_cut_again_or_left_out_and_never_cut_off(run, tmp_path):
    whole = build(tmp_path / "whole", run)
    assert whole.recut == 0
    most = whole.tokens["sft_deliberator"]["p50"]
    small = build(tmp_path / "small", run, max_tokens=most)
    assert small.recut > 0
    assert small.tokens["sft_deliberator"]["max"] <= most
    for row in rows(tmp_path / "small", "sft_deliberator"):
        assert row["prompt_tokens"] + row["completion_tokens"] <= most
        assert "\\boxed{" in row["answer_text"]
    cut = [row for row in rows(tmp_path / "small", "caches") if row["recut"]]
    before = {row["problem"]: row for row in rows(tmp_path / "whole", "caches") if not row["drawn"]}
    for row in cut:
        order = [item["generation"] for item in row["items"]]
        assert order == [item["generation"] for item in before[row["problem"]]["items"]]


def test_only_sets_of_the_student_are_used_where_it_is_wished(tmp_path):
    teacher = write_run(tmp_path / "teacher", 20)
    student = write_run(tmp_path / "student", 20, thinker="micro-student", seed=1)
    either = build(tmp_path / "either", teacher, student)
    own = build(tmp_path / "own", teacher, student, sets__written_by="student")
    others = build(tmp_path / "others", teacher, student, sets__written_by="teacher")
    assert 0 < either.student_written.part < either.student_written.whole
    assert own.student_written.part == own.student_written.whole > 0
    assert others.student_written.part == 0 < others.student_written.whole


def test_a_pool_without_deliberations_gives_a_thinker_and_says_what_is_missing(tmp_path):
    run = write_run(tmp_path / "run", 20, d=0)
    manifest = build(tmp_path / "sets", run)
    assert manifest.rows["sft_deliberator"] == {"train": 0, "validation": 0}
    assert manifest.rows["sft_thinker"]["train"] > 0
    assert manifest.undeliberated > 0
    assert all(row["rl_label"] == "unmeasured" for row in rows(tmp_path / "sets", "caches"))
    assert manifest.unmeasured == len(rows(tmp_path / "sets", "caches"))


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_folder_that_is_not_empty_is_not_touched(run, tmp_path, dry_run):
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    config = load_build_config(None, {"runs": [str(run)], "out": str(tmp_path)})
    with messages.raises("out_not_empty"):
        build_sets(config, dry_run=dry_run)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_run_that_is_being_written_is_refused(tmp_path):
    import fcntl

    run = write_run(tmp_path / "run", 2)
    hidden = tmp_path / ".run.unfinished"
    hidden.mkdir()
    with (hidden / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with messages.raises("run_being_written"):
            build(tmp_path / "sets", run)
    (tmp_path / "empty").mkdir()
    with messages.raises("no_finished_run"):
        build(tmp_path / "sets", tmp_path / "empty")


def test_two_runs_of_one_name_are_refused(tmp_path):
    runs = [write_run(tmp_path / place / "run", 2) for place in ("a", "b")]
    with messages.raises("runs_of_one_name", name="run"):
        build(tmp_path / "sets", *runs)


def test_who_wrote_what_is_not_used_is_in_the_manifest_too(run, tmp_path):
    """Its texts are in the views, so its terms count where they are published."""

    def wrong(one: Any) -> Any:
        verdict = replace(one.verdict, label="incorrect", verifier="strict@1")
        return replace(one, verdict=verdict)

    lost = (
        replace(
            trace,
            problem=replace(trace.problem, source=f"lost.jsonl:{trace.problem.id[4:]}"),
            pool=list(map(wrong, trace.pool)),
            deliberations=list(map(wrong, trace.deliberations)),
        )
        for trace in traces(5, thinker="loser", deliberation_model="late loser")
    )
    write_traces(lost, tmp_path / "lost" / TRACES_FOLDER)
    manifest = build(tmp_path / "sets", run, tmp_path / "lost")
    assert manifest.models == {
        "thinker": ["loser", "teacher"],
        "deliberator": ["late loser", "teacher"],
    }
    assert manifest.verifiers == ["math@2", "strict@1"]
    assert manifest.sources == ["lost.jsonl"]
    for view, role in (("trajectories", "thinker"), ("deliberations", "deliberator")):
        written = rows(tmp_path / "sets", view)
        assert {row["model"] for row in written} == set(manifest.models[role])
    assert {row["model"] for row in rows(tmp_path / "sets", "sft_thinker")} == {"teacher"}


@pytest.fixture(scope="module", params=["qwen2_5", "qwen3"])
def student(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Student:
    """One with thinking in the text, one with thinking as a field."""
    return Student(checkpoint(tmp_path_factory.mktemp("student"), real_template(request.param)))


def _made(student: Student, generation: Generation, max_tokens: int = 1000) -> SftRow | str:
    return sft_row(student, max_tokens, problem(), "What is 2 + 3?", generation, run="run")


def test_the_parts_of_a_row_are_those_of_its_completion(student):
    """Teachers put line breaks around both, which a template may keep or not."""
    row = _made(student, deliberation("\n\nIt is 5.\n", "\n2 + 3\n  = 5\n"))
    assert isinstance(row, SftRow)
    assert (row.reasoning, row.answer_text) == ("2 + 3\n  = 5", "It is 5.")
    assert row.completion == student.completion(row.reasoning, row.answer_text)
    assert guard(student.chat, [row], row.prompt_tokens + row.completion_tokens) == []


def test_thinking_that_stands_in_an_answer_is_not_renderable(student):
    """Else it would be an answer in one column and thinking in another."""
    assert _made(student, deliberation("<think>\n2 + 3\n</think>\n\nIt is 5.")) == "not_renderable"


def test_a_row_that_does_not_fit_is_labelled(student):
    row = _made(student, deliberation("It is 5."))
    assert isinstance(row, SftRow)
    tokens = row.prompt_tokens + row.completion_tokens
    assert _made(student, deliberation("It is 5."), tokens) == row
    assert _made(student, deliberation("It is 5."), tokens - 1) == "too_long_for_student"


OWN = """
from heavydistill.plugins import plugin

@plugin("filter", "says_so")
def says_so(problem, generation, attempts):
    RETURN
"""


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("return not attempts or generation.index == 0", ""),
        ("return len(attempts)", "the filter says_so returned int"),
        ("return attempts[99]", r"the filter says_so failed: IndexError: .* \(mine.py:6\)"),
    ],
)
def test_a_filter_of_a_plug_in_labels_what_it_leaves_out(run, tmp_path, does, told):
    (tmp_path / "mine.py").write_text(OWN.replace("RETURN", does))
    more = {"plugins": [str(tmp_path / "mine.py")], "filters": {"more": ["says_so"]}}
    with forgotten(), pytest.raises(ConfigError, match=told) if told else nullcontext():
        manifest = build(tmp_path / "sets", run, **more)
    if told:
        assert not (tmp_path / "sets").exists()
        return
    assert manifest.build["filters"]["more"] == ["says_so"] and "plugins" not in manifest.build
    assert manifest.deliberations["says_so"] > 0 and "says_so" not in manifest.trajectories
    left_out = [
        row for row in rows(tmp_path / "sets", "deliberations") if row["label"] == "says_so"
    ]
    assert {row["index"] for row in left_out} == {1}
    write_card(tmp_path / "sets")
    assert "it does not pass this plug-in" in (tmp_path / "sets" / "README.md").read_text()


@pytest.mark.parametrize("name", ["sayso", "too_long", "used"])
def test_a_filter_that_is_not_there_is_refused_before_the_build(run, tmp_path, name):
    (tmp_path / "mine.py").write_text(OWN.replace("RETURN", "return True"))
    more = {"plugins": [str(tmp_path / "mine.py")], "filters": {"more": [name]}}
    told = f"filters.more: there is no filter '{name}'.* Names: says_so; --plugin FILE"
    with forgotten(), pytest.raises(ConfigError, match=told):
        build(tmp_path / "sets", run, **more)
    (tmp_path / "mine.py").write_text(OWN.replace("says_so", "too_long").replace("RETURN", "pass"))
    with forgotten(), messages.raises("plugin_name_taken", kind="filter", name="too_long"):
        build(tmp_path / "sets", run, **more)


def test_a_wording_may_ask_for_think_tags_and_no_cache_is_cut_for_them(run, tmp_path):
    out = tmp_path / "sets"
    manifest = build(out, run, prompts={"deliberator": "tagged"})
    drawn = [row["prompt"] for row in rows(out, "caches") if row["drawn"]]
    assert manifest.recut == 0
    assert drawn and all("<think>" in prompt for prompt in drawn)
