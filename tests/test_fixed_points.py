"""This version opens what an earlier one wrote: tests/fixed_points."""

import contextlib
import dataclasses
import itertools
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import messages
import pytest
import trainings
import yaml
from command_line import run_command
from fake_server import serving

from heavydistill.config.run import load_config
from heavydistill.config.sets import load_build_config
from heavydistill.config.yaml import parse
from heavydistill.metrics.comparison import read_comparison
from heavydistill.metrics.summary import summarize
from heavydistill.models.profiles import load_profile
from heavydistill.problems.benchmarks import Benchmark
from heavydistill.schema import SCHEMA_VERSION, Deliberation, Trace
from heavydistill.store.journal import Journal
from heavydistill.store.segment import FORMAT, record_at, segments
from heavydistill.store.sets.folder import read_manifest, read_rows, splits_of
from heavydistill.store.traces import read_traces
from heavydistill.store.training_record import read_record
from heavydistill.train import checkpoints

FIXED = Path(__file__).parent / "fixed_points"
RUN, SETS = Path("runs/served"), Path("sets")
COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens")
ANSWERED = 47 + 25 + 25 + 10 + 10  # of the run; before, after and both alone of the evaluation


@pytest.fixture(autouse=True)
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All of it, in the working directory, where its relative paths lead."""
    folder = tmp_path / "fixed"
    shutil.copytree(FIXED, folder)
    monkeypatch.chdir(folder)
    return folder


def run(*arguments: object) -> str:
    """Give a command, which must succeed: what it prints."""
    done = run_command(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def timeless(trace: Trace) -> Trace:
    """Without latencies, claims and versions: this version judges anew and reads claims."""

    def still(generation: Any) -> Any:
        verdict = generation.verdict
        name = verdict.verifier.partition("@")[0]
        verdict = dataclasses.replace(verdict, verifier=name)
        changed = dataclasses.replace(generation, latency_s=0.0, verdict=verdict)
        is_read = isinstance(generation, Deliberation)
        return dataclasses.replace(changed, claims=None) if is_read else changed

    pool = [still(trajectory) for trajectory in trace.pool]
    deliberations = [still(deliberation) for deliberation in trace.deliberations]
    return dataclasses.replace(
        trace, pool=pool, deliberations=deliberations, schema_version=SCHEMA_VERSION
    )


def same(run: Path, other: Path) -> bool:
    """Whether both hold the same rows, as of ``timeless``."""
    one, two = ([timeless(trace) for trace in read_traces(folder)] for folder in (run, other))
    return len(one) == 8 and one == two


def test_the_figures_of_the_run_are_those_that_it_had():
    traces = list(read_traces(RUN))
    summary = summarize(traces)
    assert (summary.k, summary.d, summary.rounds, summary.statuses) == (4, 2, 1, {"ok": 8})
    assert dataclasses.astuple(summary.mean_at_k) == (0.5625, 0.375, 0.75)
    assert dataclasses.astuple(summary.vote_at_k) == (0.6875, 0.375, 0.9375)
    assert dataclasses.astuple(summary.pass_at_k) == (1.0, 1.0, 1.0)
    assert dataclasses.astuple(summary.heavy_mean_at_d) == (0.875, 0.6875, 1.0)
    assert dataclasses.astuple(summary.heavy_pass_at_d) == (1.0, 1.0, 1.0)
    assert dataclasses.astuple(summary.heavy_minus_vote) == (0.1875, -0.125, 0.5625)
    assert (summary.rescue.count, summary.rescue.of) == (2, 3)
    assert (summary.regress.count, summary.regress.of) == (1, 5)
    strata = {stratum: count for stratum, count in summary.strata.items() if count}
    assert strata == {"all-right": 1, "majority-right": 4, "tie": 1, "minority-right": 2}
    assert summary.trajectories.failures == {"filtered": 1}
    assert (summary.trajectories.truncated, summary.trajectories.undecided) == (1, 2)
    ends = [t.finish_reason for t in traces[0].pool]
    assert sorted(ends) == ["error", "length", "stop", "stop"]


@pytest.mark.parametrize("version", ["4", "5"])
def test_rows_of_earlier_schemas_have_the_same_figures(version):
    old, new = (summarize(read_traces(folder)) for folder in (Path("rows", version), RUN))
    assert old.vote_at_k == new.vote_at_k and old.heavy_minus_vote == new.heavy_minus_vote
    assert (old.strata, old.outcomes) == (new.strata, new.outcomes)
    assert {trace.schema_version for trace in read_traces(Path("rows", version))} == {version}
    assert "What is 45 + 38?" in run("show", Path("rows", version), "--problem", "sum0")


def test_the_run_is_shown_and_reported():
    assert "What is 45 + 38?" in run("show", RUN, "--problem", "sum0")
    said = run("report", RUN, "--out", "page.html")
    assert "served: 8 problems" in said
    page = Path("page.html").read_text(encoding="utf-8")
    assert "What is 45 + 38?" in page and "Unfinished" not in said


def test_the_evaluation_is_compared_and_reported():
    evaluation = Path("runs/evaluation")
    run("compare", evaluation / "before", evaluation / "after", "--json", "again.json")
    again = json.loads(Path("again.json").read_text(encoding="utf-8"))
    stored = json.loads((evaluation / "evaluation.json").read_text(encoding="utf-8"))
    for name in ("mean_at_k", "vote_at_k", "pass_at_k", "heavy_mean_at_d", "heavy_minus_vote"):
        assert again[name].keys() == stored[name].keys()
        for part, figures in stored[name].items():
            assert again[name][part] == figures
    assert again["deliberation_pairs"] == stored["deliberation_pairs"]
    assert again["heavy_minus_vote"]["difference"]["mean"] == 0.5
    assert read_comparison(evaluation / "evaluation.json").after.summary.trajectories.total == 15
    said = run("report", evaluation, "--out", "page.html")
    assert said.count(": 5 problems") == 4


def test_the_run_is_replayed_from_its_journal():
    run("replay", RUN, "--out", "runs/again")
    assert same(RUN, Path("runs/again"))


def test_every_line_of_the_journal_is_whole():
    said = run("journal", "check", "runs/journal")
    assert sum(map(int, re.findall(r"(\d+) records", said))) == ANSWERED + 1  # and one that failed
    assert "damaged" not in said and "dropped" not in said
    assert Journal(Path("runs/journal")).answered == ANSWERED
    assert "47" in run("journal", "stats", "runs/journal")


# Counts and a time that are none, as 0.1.0 wrote them when a server sent them.
POISON: list[tuple[Any, Any]] = [
    *((True, math.nan), (10**30, math.inf), (10**400, "1.5"), (-5, 10**400)),
    *((7.5, True), ("7", -1.0), ([7], None), (None, {})),
]


def poison(journal: Path) -> None:
    """Write numbers that are none into all records."""
    numbers = itertools.cycle(POISON)
    for segment in list(segments(journal)):
        lines = []
        for line in segment.lines:
            record = record_at(segment.path, line.offset)
            count, latency = next(numbers)
            fields: dict[str, Any] = dict.fromkeys(COUNTS, count) | {"latency_s": latency}
            response = dataclasses.replace(record.response, **fields)
            lines.append(dataclasses.replace(record, response=response).line())
        segment.path.write_bytes(FORMAT + b"".join(lines))


def countless(trace: Trace) -> Trace:
    """A trace whose server counted nothing."""
    unknown: dict[str, Any] = dict.fromkeys(COUNTS, -1)
    pool = [dataclasses.replace(trajectory, **unknown) for trajectory in trace.pool]
    deliberations = [dataclasses.replace(each, **unknown) for each in trace.deliberations]
    return dataclasses.replace(
        trace, pool=pool, deliberations=deliberations, schema_version=SCHEMA_VERSION
    )


@pytest.mark.parametrize("is_poisoned", [False, True], ids=["sound", "poisoned"])
def test_the_run_goes_on_without_asking_for_what_was_answered(is_poisoned):
    held = {record.asked["seed"] for record in Journal(Path("runs/journal")).answers()}
    if is_poisoned:
        poison(Path("runs/journal"))

    def filtered(body: dict[str, Any]) -> Any:
        choice = {"index": 0, "finish_reason": "content_filter", "message": {"content": ""}}
        return 200, {"choices": [choice], "usage": {"prompt_tokens": 67, "completion_tokens": 17}}

    models = (200, {"object": "list", "data": [{"id": "served", "object": "model"}]})
    with serving(filtered, models) as server:
        run("generate", "--config", RUN / "config.yaml", "--endpoint", server.base_url,
            "--out", "runs/again")  # fmt: skip
    asked = [body["seed"] for body in server.requests if "seed" in body]
    assert not held.intersection(asked) and len(asked) <= 2  # what had failed
    assert Journal(Path("runs/journal")).answered == ANSWERED
    one, two = ([t.problem.id for t in read_traces(folder)] for folder in (RUN, Path("runs/again")))
    assert one == two
    pairs = list(zip(read_traces(RUN), read_traces(Path("runs/again")), strict=True))[1:]
    if is_poisoned:
        latencies = [each.latency_s for _, new in pairs for each in (*new.pool, *new.deliberations)]
        assert set(latencies) == {0.0}
        pairs = [(countless(old), new) for old, new in pairs]
    assert all(timeless(old) == timeless(new) for old, new in pairs)


def test_the_sets_are_read_and_shown():
    manifest = read_manifest(SETS)
    assert (manifest.student.name, manifest.student.max_tokens) == ("model", 12_000)
    rows = {
        (name, split): len(list(read_rows(SETS, name, split)))
        for name in ("sft_thinker", "sft_deliberator", "rl")
        for split in splits_of(SETS, name)
    }
    assert rows == {
        ("sft_thinker", "train"): 5, ("sft_thinker", "validation"): 3,
        ("sft_deliberator", "train"): 6, ("sft_deliberator", "validation"): 4,
        ("rl", "train"): 2,
    }  # fmt: skip
    assert "\\boxed{" in run("show", SETS, "--set", "sft_deliberator")
    assert messages.is_in(run("show", SETS, "--tokens"), "guard_whole")


def test_the_sets_are_learnt_from(capfd):
    given = ["--config=yaml/sft.yaml", "--output_dir=out/sft", "--dry_run=true"]
    assert trainings.main(given) == 0
    said = " ".join(capfd.readouterr().out.split())
    assert "sets, thinker 5 rows" in said
    assert "sets, deliberator 5 rows" in said
    given = ["--config=yaml/grpo.yaml", "--output_dir=out/grpo", "--dry_run=true"]
    assert trainings.main(given, trainings.GRPO) == 0
    assert "sets, deliberator 6 prompts" in " ".join(capfd.readouterr().out.split())
    given += ["--claims_share=0.1", "--scale_rewards=none"]
    assert trainings.main(given, trainings.GRPO) == 0


def test_trained_models_are_read_and_merged():
    from heavydistill.train.merge import merge

    records = {name: read_record(Path("trained") / name) for name in ("full", "adapter", "grpo")}
    assert [record.method for record in records.values()] == ["full", "lora", "full"]
    assert [record.stage for record in records.values()] == ["sft", "sft", "grpo"]
    assert all(record.result and record.result.steps == 1 for record in records.values())
    assert {len(record.sets) for record in records.values()} == {1, 2}
    checkpoint = Path("trained/full/checkpoint-1")
    assert checkpoints.is_whole(checkpoint)
    assert checkpoints.start_of(Path("trained/full"), True) == checkpoint
    merged = merge("trained/adapter", Path("out/merged"))
    assert merged.is_right and merged.record and merged.base == "model"


@pytest.mark.parametrize("name", ["run", "evaluate", "every_section", "../runs/served/config"])
def test_configurations_of_runs_are_read(name):
    config = load_config(Path(f"yaml/{name}.yaml"))
    assert config.think.k == {"evaluate": 3, "every_section": 16}.get(name, 4)


def test_other_files_are_read():
    built = load_build_config(Path("yaml/build.yaml"), {"runs": [str(RUN)], "out": "out"})
    assert (built.preset, built.filters.most_copied) == ("natural", 0.95)
    assert load_profile(Path("yaml/teacher.yaml")).context == 40_960
    tree = yaml.safe_load(Path("yaml/benchmark.yaml").read_text(encoding="utf-8"))
    assert parse(Benchmark, tree).size == 198
    phases = trainings.ROOT / "scripts" / "phases.py"
    with contextlib.chdir("yaml"):
        assert trainings.main(["--config=phases.yaml", "--dry_run"], phases) == 0
    given = ["--config=yaml/sft_adapter.yaml", "--output_dir=out", "--dataset_name=sets"]
    from heavydistill.train.sft.train import parse as parse_training

    assert parse_training(given).model.lora_target_modules == ["q_proj", "v_proj"]


def test_a_saved_pipeline_is_read():
    from distilabel.pipeline import Pipeline

    pipeline = Pipeline.from_yaml("yaml/pipeline.yaml")
    assert next(iter(pipeline.dag)) == "load_problems" and len(pipeline.dag) == 7
