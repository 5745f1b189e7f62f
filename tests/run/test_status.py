"""What a run says of itself while it lasts, against what its folder says in the end."""

import dataclasses
import json
import random
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import messages
import pytest
from generations import unboxed
from marked import eventually
from runs import traces

from heavydistill.config.run import RunConfig
from heavydistill.metrics.summary import summarize
from heavydistill.models.resolve import resolve
from heavydistill.report.status import line_of
from heavydistill.run import status as status_module
from heavydistill.run.status import STATUS, Status, StatusWriter, read_status, running
from heavydistill.schema import Trace
from heavydistill.store.atomic import Workplace

CONFIG = RunConfig.model_validate({"think": {"k": 8}, "deliberate": {"d": 2}})
STEPS = ("load_problems", "sample_trajectories", "verify_pool", "build_caches_1", "deliberate_1")
STEPS += ("verify_deliberations_1", "label_traces")
ASKING = STEPS[1], STEPS[4]


def finished(problems: int = 40, seed: int = 3) -> list[Trace]:
    """Traces in which some requests failed and some were cut off."""
    rng = random.Random(seed)
    made = []
    for trace in traces(problems, seed=seed):
        pool = [
            dataclasses.replace(each, **rng.choice([{}, {}, FAILED, CUT_OFF, UNBOXED]))
            for each in trace.pool
        ]
        made.append(dataclasses.replace(trace, pool=pool))
    return made


FAILED: dict[str, Any] = {
    "finish_reason": "error",
    "error": "no answer",
    "failure": "timeout",
    "answer_text": "",
    "verdict": None,
    "prompt_tokens": -1,
    "completion_tokens": -1,
}
CUT_OFF: dict[str, Any] = {"finish_reason": "length", "verdict": None}
UNBOXED: dict[str, Any] = {"verdict": unboxed().verdict}


def passed(count: Any, made: list[Trace], batch: int = 7) -> None:
    """Let rows leave the steps as in a run, in batches that overtake each other."""
    rows = [json.loads(json.dumps(dataclasses.asdict(trace))) for trace in made]
    batches = [rows[start : start + batch] for start in range(0, len(rows), batch)]
    random.Random(1).shuffle(batches)
    for each in batches:
        for step in STEPS:
            count(step, each)


def test_what_was_counted_is_what_the_summary_says():
    made = finished()
    counting = writer(Path("none"), problems=len(made))
    passed(counting.on_batch, made)
    status = counting.status()
    summary = summarize(made)
    assert status.loaded == status.finished == len(made) == summary.problems
    assert status.mean_at_k == pytest.approx(summary.mean_at_k.mean)
    assert summary.heavy_mean_at_d
    assert status.heavy_mean_at_d == pytest.approx(summary.heavy_mean_at_d.mean)
    assert status.statuses == summary.statuses
    thinking, deliberating = status.stages
    assert (thinking.name, thinking.done, thinking.finished) == ("thinking", 40, 320)
    assert thinking.failures == {
        "timeout": summary.trajectories.failed,
        "truncated": summary.trajectories.truncated,
    }
    assert thinking.completion_tokens == summary.usage["thinking"].completion
    assert thinking.prompt_tokens == summary.usage["thinking"].prompt
    assert (deliberating.finished, deliberating.failures) == (80, {})
    assert deliberating.completion_tokens == summary.usage["deliberating"].completion


def test_a_row_that_failed_early_is_counted_and_breaks_nothing():
    counting = writer(Path("none"), problems=1)
    row = {"problem": {"id": "p"}, "status": "failed: sample_trajectories: ValueError: x"}
    for step in STEPS[:-1]:
        counting.on_batch(step, [row])
    counting.on_batch("label_traces", [{**row, "pool": [], "deliberations": [], "stratum": None}])
    status = counting.status()
    assert status.finished == 1 and status.statuses == {"failed": 1}
    assert status.mean_at_k == status.heavy_mean_at_d == 0


def writer(
    path: Path, config: RunConfig = CONFIG, problems: int = 40, asks: bool = False
) -> StatusWriter:
    return StatusWriter(path, resolve(config), problems, asks)


def asking(folder: Path, **keys: Any) -> RunConfig:
    """A run that asks a server."""
    endpoint = {"base_url": "http://localhost:1/v1", "tokenizer": "micro", **keys}
    tree = {"teacher": "mine", "endpoint": endpoint, "journal": str(folder / "journal")}
    return RunConfig.model_validate(tree)


def test_the_file_is_there_and_young_while_the_run_lasts_and_then_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(status_module, "EVERY_S", 0.05)
    place = Workplace(tmp_path / "run")
    assert running(tmp_path / "run") is None
    with place.claimed():
        file, said = place.path / STATUS, writer(place.path / STATUS)
        with said.writing():
            found = running(tmp_path / "run")
            assert found and found[0] == ""
            first = found[1]
            assert first.finished == 0 and first.mean_at_k is None and first.left_s is None
            passed(said.on_batch, finished())
            assert eventually(lambda: read_status(file).finished == 40, 300)
            assert (now := read_status(file)) and now.at > first.at
            assert now.spent_usd == 0.0 and now.requests is None
            assert now.left_s == 0 and now.stages[0].failures["timeout"]
        assert not file.exists() and running(tmp_path / "run") is None


def test_an_evaluation_is_found_by_its_own_name(tmp_path):
    outer = Workplace(tmp_path / "evaluation")
    with outer.claimed():
        outer.new.mkdir()
        inner = Workplace(outer.new / "after")
        with inner.claimed(), writer(inner.path / STATUS).writing():
            found = running(tmp_path / "evaluation")
            assert found and found[0] == "after"


def test_a_reader_never_sees_half_a_file(tmp_path):
    said, file = writer(tmp_path / STATUS), tmp_path / STATUS
    passed(said.on_batch, finished())
    said.write()
    written = threading.Thread(target=lambda: [said.write() for _ in range(200)])
    written.start()
    while written.is_alive():
        status = read_status(file)
        assert status and status.finished == 40
    written.join()


def test_a_run_goes_on_where_the_file_cannot_be_written(tmp_path, caplog):
    said = writer(tmp_path / "nowhere" / STATUS)
    with said.writing():
        said.write()
    assert len([r for r in caplog.records if "cannot be written" in r.message]) == 1


@pytest.mark.parametrize("text", ["", "{}", '{"version": 0}', '{"version": 9, "stages": []}', "[]"])
def test_a_file_of_another_version_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / STATUS).write_text(text, encoding="utf-8")
    with messages.raises("status_unreadable"):
        read_status(tmp_path / STATUS)


def test_a_price_that_is_not_known_is_not_nothing(tmp_path):
    for keys, asks, told in (
        ({}, True, (None, 0)),
        ({"price_in": 1, "price_out": 2}, True, (0.0, 0)),
        ({}, False, (0.0, None)),
    ):
        now = writer(tmp_path / STATUS, asking(tmp_path, **keys), asks=asks).status()
        assert (now.spent_usd, now.requests) == told


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock of the writer, which the test moves."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(status_module.time, "monotonic", lambda: clock.now)
    return clock


def test_paces_are_those_of_late(tmp_path, clock):
    """An hour in which nothing happened does not slow what is told of the last minutes."""
    said = writer(tmp_path / STATUS)
    made = finished()

    def after(seconds: int, rows: list[Trace]) -> Status:
        for _ in range(0, seconds, 10):  # as the file is written
            clock.now += 10
            now = said.status()
        for trace in rows:
            for step, samples in zip(ASKING, (trace.pool, trace.deliberations), strict=True):
                for _ in samples:
                    said.on_sample(step, 10)
        passed(said.on_batch, rows)
        return said.status() if rows else now

    said.on_batch(STEPS[0], [{}] * len(made))
    assert after(3600, []).left_s is None
    clock.now += 10
    now = after(100, made[:10])
    assert now.problems_per_minute == pytest.approx(60 * 10 / 300, rel=0.05)
    assert now.left_s == pytest.approx(300 * 3, rel=0.05)
    assert after(100, []).problems_per_minute == pytest.approx(60 * 10 / 300, rel=0.05)
    assert after(400, []).problems_per_minute is None


def test_tokens_of_unfinished_samples_count_before_the_first_one_ends(tmp_path, clock):
    said = writer(tmp_path / STATUS)
    clock.now += 10
    said.on_sample(ASKING[0], 300, False)
    status = said.status()
    assert status.samples[0] == 0 and status.tokens_per_s == pytest.approx(30)
    assert "300 tokens written" in line_of(status)
    said.on_sample(ASKING[0], 20, True)
    assert "300 tokens written" in line_of(said.status())


def test_no_time_left_is_told_while_servers_bring_nothing(tmp_path, clock):
    said = writer(tmp_path / STATUS, asking(tmp_path), asks=True)
    said.on_batch(STEPS[0], [{}] * 4)
    for seconds, brings, is_known in ((10, 9, True), (30, 0, True), (40, 0, False), (10, 1, True)):
        clock.now += seconds
        for _ in range(brings):
            said.on_sample(ASKING[0], 10)
        assert (said.status().left_s is not None) is is_known


def test_a_pace_counts_new_samples_alone_from_the_first_problem_on(tmp_path, clock):
    said = writer(tmp_path / STATUS, problems=2)
    clock.now += 900  # while a model is loaded
    said.on_batch(STEPS[0], [{}, {}])
    clock.now += 900  # while the journal is read
    said.on_batch(ASKING[0], [{"from_journal": 8}])
    for _ in range(5):
        said.on_sample(ASKING[0], 200)
    clock.now += 100
    now = said.status()
    assert (now.stages[0].received, now.stages[0].done, now.finished) == (5, 1, 0)
    assert now.samples == (13, 20)
    assert (now.tokens_per_s, now.left_s) == (10.0, 140.0)


def test_the_time_left_counts_down_between_two_arrivals_and_is_unknown_after_it(tmp_path, clock):
    said = writer(tmp_path / STATUS, problems=2)
    said.on_batch(STEPS[0], [{}, {}])

    def left_after(seconds: float, samples: int = 0) -> float | None:
        clock.now += seconds
        for _ in range(samples):
            said.on_sample(ASKING[0], 1)
        return said.status().left_s

    assert left_after(5, 1) is None, "one sample says too little"
    needed = said.status().samples[1]
    assert left_after(5, 9) == pytest.approx(10 * (needed - 10) / 10)
    first = 10 * (needed - 10) / 10
    assert [left_after(3), left_after(3)] == [pytest.approx(first - 3), pytest.approx(first - 6)]
    assert left_after(first) is None
    assert left_after(2, needed - 10) == 0.0
