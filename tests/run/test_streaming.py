"""Rows flow through a real pipeline: bounded, overtaking, and whole."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distilabel.steps import StepResources
from streaming_steps import Doubles, Gathers, Keeps, Numbers, Wait

from heavydistill.errors import RunError
from heavydistill.run.compat import HeavyPipeline

SCHEMA = pa.schema([("number", pa.int64())])
TWO = StepResources(replicas=2)


class Flow:
    """What passed each step, in order."""

    def __init__(self) -> None:
        self.left: dict[str, list[int]] = {}
        self.most_inside = 0
        self.waiting: list[tuple[int, int]] = []

    def on_batch(self, step: str, rows: list[dict[str, Any]]) -> None:
        self.left.setdefault(step, []).extend(row["number"] for row in rows)
        inside = len(self.left.get("load", [])) - len(self.left.get("last", []))
        self.most_inside = max(self.most_inside, inside)
        through = len(self.left.get("first", []))
        self.waiting.append((through, through - len(self.left.get("last", []))))

    def waiting_from(self, through: int) -> int:
        """Most rows between both steps at any time since so many had left the first one."""
        return max(waiting for seen, waiting in self.waiting if seen >= through)


def flow_of(count: int, window: int, steps: Callable[[], Any]) -> tuple[Flow, list[int]]:
    """(what passed, the rows) of a pipeline whose first and last step ``steps`` makes."""
    flow = Flow()
    with HeavyPipeline("flow", SCHEMA, flow.on_batch, window) as pipeline:
        first, last = steps()
        Numbers(name="load", count=count, batch_size=8) >> first >> last
    rows = pipeline.run()["default"]["train"]["number"]
    pipeline.discard()
    return flow, list(rows)


def test_however_many_rows_there_are_a_window_of_them_is_inside():
    def steps() -> Any:
        return (
            Wait(name="first", seconds=0.0, input_batch_size=1),
            Wait(name="last", seconds=0.002, input_batch_size=1),
        )

    flow, rows = flow_of(400, 24, steps)
    assert sorted(rows) == list(range(400))
    assert flow.most_inside <= 24 + 8


def test_rows_overtake_a_slow_one_in_every_step():
    def steps() -> Any:
        return (
            Wait(name="first", seconds=0.01, input_batch_size=1, batches_in_flight=8),
            Wait(name="last", seconds=0.0, input_batch_size=1),
        )

    flow, rows = flow_of(60, 32, steps)
    assert sorted(rows) == list(range(60))
    assert flow.left["last"].index(0) > 20


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(range(0, 400, 2), id="half"),
        pytest.param(range(100), id="nothing of the end"),
        pytest.param(range(396, 400), id="nothing but the end"),
        pytest.param([], id="nothing"),
    ],
)
def test_a_step_that_drops_rows_does_not_stop_the_others(kept):
    with HeavyPipeline("drops", SCHEMA, window=24) as pipeline:
        load = Numbers(name="load", count=400, batch_size=8)
        keeps = Keeps(name="keeps", only=list(kept), input_batch_size=4)
        again = Keeps(name="again", only=list(kept), input_batch_size=8)
        load >> keeps >> again >> Wait(name="last", seconds=0.0, input_batch_size=4)
    pipeline.run_to_files()
    files = pipeline.leaf_files.glob("*.parquet")
    rows = [row for file in files for row in pq.read_table(file)["number"].to_pylist()]
    pipeline.discard()
    assert sorted(rows) == list(kept)


def test_rows_that_are_dropped_make_room_for_others_at_once():
    def steps() -> Any:
        return (
            Keeps(name="first", only=list(range(1, 400, 2)), input_batch_size=1),
            Wait(name="last", seconds=0.01, input_batch_size=1),
        )

    flow, rows = flow_of(400, 24, steps)
    assert sorted(rows) == list(range(1, 400, 2))
    assert flow.waiting_from(100) >= 12  # without them, no more than a batch would be inside


def test_rows_that_a_step_adds_count_too():
    def steps() -> Any:
        return (
            Doubles(name="first", input_batch_size=1),
            Wait(name="last", seconds=0.01, input_batch_size=1),
        )

    flow, rows = flow_of(100, 24, steps)
    assert sorted(rows) == list(range(200))
    assert flow.waiting_from(0) <= 2 * (24 + 8)


def test_a_step_that_takes_more_rows_than_the_window_gets_them():
    def steps() -> Any:
        return (
            Wait(name="first", seconds=0.0, input_batch_size=1),
            Wait(name="last", seconds=0.0, input_batch_size=50),
        )

    assert sorted(flow_of(120, 8, steps)[1]) == list(range(120))


def test_a_step_may_take_all_rows_at_once():
    def steps() -> Any:
        return Wait(name="first", seconds=0.0, input_batch_size=1), Gathers(name="last")

    assert flow_of(60, 8, steps)[1] == list(range(60))


def test_replicas_of_a_step_share_its_rows():
    def steps() -> Any:
        return (
            Wait(name="first", seconds=0.001, input_batch_size=1, resources=TWO),
            Wait(name="last", seconds=0.001, input_batch_size=2, resources=TWO),
        )

    _, rows = flow_of(60, 32, steps)
    assert sorted(rows) == list(range(60))


def test_steps_that_join_are_refused():
    with HeavyPipeline("join", SCHEMA) as pipeline:
        load = Numbers(name="load", count=4, batch_size=4)
        first, second = Wait(name="first", seconds=0.0), Wait(name="second", seconds=0.0)
        load >> [first, second] >> Wait(name="last", seconds=0.0)
    with pytest.raises(RunError, match="several steps before it"):
        pipeline.run()
    pipeline.discard()


BROKEN_OFF = """
import os, signal, sys, threading
import pyarrow as pa
from heavydistill.run.compat import HeavyPipeline
from streaming_steps import Numbers, Wait

if __name__ == "__main__":
    def interrupt(step, rows):
        if step == "first":
            os.kill(os.getpid(), signal.SIGINT)

    schema = pa.schema([("number", pa.int64()), ("text", pa.string())])
    with HeavyPipeline("large", schema, interrupt) as pipeline:
        first = Wait(name="first", seconds=0.0, input_batch_size=1)
        last = Wait(name="last", seconds=1.0, input_batch_size=1)
        Numbers(name="load", count=200, batch_size=50, text="x" * 200_000) >> first >> last
    try:
        pipeline.run()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


DIES_WRITING = """
import sys
import pyarrow as pa
from heavydistill.errors import RunError
from heavydistill.run.compat import HeavyPipeline
from streaming_steps import DiesWriting, Numbers

if __name__ == "__main__":
    with HeavyPipeline("dies", pa.schema([("number", pa.int64())])) as pipeline:
        dies = DiesWriting(name="first", by_signal=sys.argv[1] == "killed")
        Numbers(name="load", count=20, batch_size=2) >> dies
    try:
        pipeline.run()
    except RunError as error:
        print(error, flush=True)
"""


def ended(folder: Path, script: str, *arguments: str) -> str:
    """What a program prints that uses our steps and comes to its end."""
    path = folder / "program.py"
    path.write_text(script)
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), str(here.parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(path), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_run_with_large_rows_ends_when_it_is_interrupted(tmp_path):
    # Rows that wait for a step fill its pipe; nobody reads it any more when the step is gone.
    assert "interrupted" in ended(tmp_path, BROKEN_OFF)


@pytest.mark.parametrize(
    ("how", "said"), [("killed", "ended with code -9"), ("raised", "out of luck")]
)
def test_a_run_ends_when_a_process_dies_in_the_midst_of_writing_to_a_queue(tmp_path, how, said):
    # The right to write is lost with it: to the log, to what has loaded and to the rows.
    assert said in ended(tmp_path, DIES_WRITING, how)
