"""Rows flow through a real pipeline: bounded, overtaking, and whole."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from streaming_steps import Loses, Numbers, Wait

from heavydistill.pipeline.compat import HeavyPipeline

SCHEMA = pa.schema([("number", pa.int64())])


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
    assert flow.left["last"].index(0) > 40


def test_a_step_that_drops_rows_does_not_stop_the_others():
    def steps() -> Any:
        return (
            Loses(name="first", input_batch_size=8),
            Wait(name="last", seconds=0.0, input_batch_size=4),
        )

    _, rows = flow_of(40, 64, steps)
    assert rows == [n for n in range(40) if not 8 <= n < 16]
