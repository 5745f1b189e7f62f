"""Attempts and deliberations from several processes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from command_line import run_command

from heavydistill.config.run import RunConfig
from heavydistill.errors import ConfigError
from heavydistill.models.resolve import resolve
from heavydistill.schema import Generation, Trace
from heavydistill.store.traces import read_traces


def generate(folder: Path, *flags: str) -> None:
    sizes = ["--k=2", "--d=2", "--set=problems.size=48"]
    done = run_command("generate", *sizes, *flags, cwd=folder)
    assert done.returncode == 0, done.stderr


def without_times(trace: Trace) -> Trace:
    """Two servings of one request differ in them."""

    def timeless(one: Generation) -> Generation:
        return dataclasses.replace(one, latency_s=0.0)

    pool, deliberations = map(timeless, trace.pool), map(timeless, trace.deliberations)
    return dataclasses.replace(trace, pool=list(pool), deliberations=list(deliberations))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_processes_of_each_stage_give_the_traces_of_one(tmp_path: Path) -> None:
    processes = ["--set=think.processes=2", "--set=deliberate.processes=2"]
    generate(tmp_path, *processes, "--out=two", "--journal=of-two")
    generate(tmp_path, "--out=one", "--journal=of-one")
    one, two = (map(without_times, read_traces(tmp_path / name)) for name in ("one", "two"))
    assert list(one) == list(two)
    # Each process that asks writes a segment of its own.
    segments = {name: len(list((tmp_path / f"of-{name}").iterdir())) for name in ("one", "two")}
    assert segments == {"one": 2, "two": 4}
    configs = [(tmp_path / name / "config.yaml").read_text("utf-8") for name in ("one", "two")]
    assert "processes: 2" in configs[1] and "processes: 2" not in configs[0]


@pytest.mark.parametrize("stage", ["think", "deliberate"])
def test_a_served_model_has_slots_and_no_processes(stage: str) -> None:
    served = {"base_url": "http://127.0.0.1:9/v1", "tokenizer": "micro", "context": 2048}
    asked = RunConfig.model_validate(
        {"teacher": "some", "endpoint": served, stage: {"processes": 2}}
    )
    with pytest.raises(ConfigError, match=rf"{stage}\.processes .* endpoint\.concurrency"):
        resolve(asked)
