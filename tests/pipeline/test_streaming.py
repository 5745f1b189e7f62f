"""Rows flow through a real pipeline: bounded, overtaking, and whole."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from distilabel.steps import StepResources
from streaming_steps import Loses, Numbers, Wait

from heavydistill.errors import RunError
from heavydistill.pipeline.compat import HeavyPipeline

SCHEMA = pa.schema([("number", pa.int64())])
TWO = StepResources(replicas=2)


class Flow:
    """What passed each step, in order."""

    def __init__(self) -> None:
        self.left: dict[str, list[int]] = {}
        self.most_inside = 0

    def on_batch(self, step: str, rows: list[dict[str, Any]]) -> None:
        self.left.setdefault(step, []).extend(row["number"] for row in rows)
        inside = len(self.left.get("load", [])) - len(self.left.get("last", []))
        self.most_inside = max(self.most_inside, inside)


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


def test_a_step_that_drops_rows_does_not_stop_the_others():
    def steps() -> Any:
        return (
            Loses(name="first", input_batch_size=8),
            Wait(name="last", seconds=0.0, input_batch_size=4),
        )

    _, rows = flow_of(40, 64, steps)
    assert rows == [n for n in range(40) if not 8 <= n < 16]


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
from heavydistill.pipeline.compat import HeavyPipeline
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
from heavydistill.pipeline.compat import HeavyPipeline
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
