"""Rows flow through a pipeline in this process: bounded, overtaking, whole, and loud at its end."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import distilabel.pipeline.base as base
import messages
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distilabel.models.llms.base import LLM
from distilabel.steps import StepInput, StepResources
from marked import eventually
from streaming_steps import Doubles, FailsToLoad, Gathers, Keeps, Numbers, OfNumbers, Wait

from heavydistill.config.models import Sampling
from heavydistill.errors import RunError, StoppedError, TeacherError
from heavydistill.run import runner as module
from heavydistill.run.recipe.distilabel import SUPPORTED
from heavydistill.run.recipe.llm import HeavyLLM
from heavydistill.run.runner import HeavyPipeline

SCHEMA = pa.schema([("number", pa.int64())])
PRIVATE = {"_set_runtime_parameters"}


def test_one_private_part_of_distilabel_is_touched():
    inherited = {name for name in dir(base.BasePipeline) if name.startswith("_")}
    words = set(Path(module.__file__).read_text(encoding="utf-8").replace("(", " ").split())
    used = {word.rpartition(".")[2] for word in words if "._" in word}
    assert {name for name in used & inherited if not name.startswith("__")} == PRIVATE
    own = {name for name in vars(HeavyPipeline) if name.startswith("_")}
    assert {name for name in own & inherited if not name.startswith("__")} <= {"_abc_impl"}
    assert SUPPORTED == "1.5.3"


class Passing:
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


made: list[HeavyPipeline] = []


@pytest.fixture(autouse=True)
def no_pipeline_stays() -> Iterator[None]:
    yield
    while made:
        made.pop().discard()


def pipeline_of(count: int, steps: list[Callable[[], Any]], window: int = 24) -> HeavyPipeline:
    """A chain of steps after one that loads so many numbers."""
    with HeavyPipeline("flow", SCHEMA, window=window) as pipeline:
        last: Any = Numbers(name="load", count=count, batch_size=8)
        for make in steps:
            last = last >> make()
    made.append(pipeline)
    return pipeline


def rows_of(pipeline: HeavyPipeline) -> list[int]:
    """What it has left on disk, in order."""
    files = sorted(pipeline.leaf_files.glob("*.parquet"))
    return [number for file in files for number in pq.read_table(file)["number"].to_pylist()]


def test_a_second_run_leaves_its_own_rows_alone_and_a_given_folder_stays(tmp_path):
    pipeline = pipeline_of(8, [wait("last")])
    for _ in range(2):
        pipeline.run_to_files()
        assert rows_of(pipeline) == list(range(8))
    pipeline.keep_in(tmp_path)
    pipeline.discard()
    assert tmp_path.is_dir()


def ran(count: int, window: int, *steps: Callable[[], Any]) -> tuple[Passing, list[int]]:
    """(what passed, the rows) of a pipeline."""
    passing, pipeline = Passing(), pipeline_of(count, list(steps), window)
    pipeline.on_batch = passing.on_batch
    pipeline.run_to_files()
    return passing, rows_of(pipeline)


def wait(name: str, seconds: float = 0.0, size: int = 1, at_once: int = 1) -> Callable[[], Wait]:
    return lambda: Wait(
        name=name, seconds=seconds, input_batch_size=size, batches_in_flight=at_once
    )


def test_however_many_rows_there_are_a_window_of_them_is_inside():
    passing, rows = ran(400, 24, wait("first"), wait("last", 0.002))
    assert sorted(rows) == list(range(400))
    assert passing.most_inside <= 24 + 8


def test_no_thread_of_a_run_is_left():
    before = set(threading.enumerate())
    ran(40, 24, wait("first", at_once=8), wait("last"))
    assert eventually(lambda: set(threading.enumerate()) <= before, 60)


class Overtaken(OfNumbers):
    """Keeps row 0 until 21 others have overtaken it in both steps."""

    batches_in_flight: int = 8

    def process(self, inputs: StepInput) -> Iterator[list[dict[str, Any]]]:
        if inputs[0]["number"] == 0:
            assert eventually(lambda: len(answered) > 20, 60)
        yield inputs


class Notes(OfNumbers):
    def process(self, inputs: StepInput) -> Iterator[list[dict[str, Any]]]:
        answered.extend(row["number"] for row in inputs)
        yield inputs


def test_rows_overtake_a_slow_one_in_every_step():
    answered.clear()
    _, rows = ran(
        60,
        32,
        lambda: Overtaken(name="first", input_batch_size=1),
        lambda: Notes(name="last", input_batch_size=1),
    )
    assert sorted(rows) == list(range(60))
    assert answered.index(0) > 20


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
    _, rows = ran(
        400,
        24,
        lambda: Keeps(name="keeps", only=list(kept), input_batch_size=4),
        lambda: Keeps(name="again", only=list(kept), input_batch_size=8),
        wait("last", size=4),
    )
    assert sorted(rows) == list(kept)


def test_rows_that_are_dropped_make_room_for_others_at_once():
    only = list(range(1, 400, 2))
    passing, rows = ran(
        400, 24, lambda: Keeps(name="first", only=only, input_batch_size=1), wait("last", 0.01)
    )
    assert sorted(rows) == only
    assert passing.waiting_from(100) >= 12  # without them, no more than a batch would be inside


def test_rows_that_a_step_adds_count_too():
    passing, rows = ran(
        100, 24, lambda: Doubles(name="first", input_batch_size=1), wait("last", 0.01)
    )
    assert sorted(rows) == list(range(200))
    assert passing.waiting_from(0) <= 2 * (24 + 8)


def test_a_step_that_takes_more_rows_than_the_window_gets_them():
    assert sorted(ran(120, 8, wait("first"), wait("last", size=50))[1]) == list(range(120))


def test_a_step_may_take_all_rows_at_once():
    assert ran(60, 8, wait("first"), lambda: Gathers(name="last"))[1] == list(range(60))


class Watched(OfNumbers):
    """Notes its threads, and how many batches it has at once."""

    batches_in_flight: int = 1

    def load(self) -> None:
        super().load()
        self._logger.debug("loaded")
        seen.update(threads={threading.get_ident()}, now=0, most=0)

    def process(self, inputs: StepInput) -> Iterator[list[dict[str, Any]]]:
        with lock:
            seen["now"] += 1
            seen["most"] = max(seen["most"], seen["now"])
            seen["threads"].add(threading.get_ident())
        seen["together"].wait(60)  # breaks unless as many as allowed are here at once
        with lock:
            seen["now"] -= 1
        yield inputs


seen: dict[str, Any] = {}
lock = threading.Lock()


@pytest.mark.parametrize("at_once", [1, 3])
def test_no_more_batches_are_in_flight_than_allowed_and_one_at_a_time_has_one_thread(at_once):
    first = lambda: Watched(name="first", input_batch_size=1, batches_in_flight=at_once)  # noqa: E731
    seen["together"] = threading.Barrier(at_once)
    _, rows = ran(39, 24, first)
    assert seen["most"] == at_once and len(seen["threads"]) == at_once
    assert sorted(rows) == list(range(39)) and (at_once > 1 or rows == list(range(39)))


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (lambda: [wait("a")(), wait("b")()], "'a', 'b' run side by side"),
        (
            lambda: Wait(name="a", seconds=0.0, resources=StepResources(replicas=2)),
            "asks for 2 replicas.*--processes",
        ),
    ],
)
def test_what_is_no_chain_is_refused(steps, message):
    with HeavyPipeline("branches", SCHEMA) as pipeline:
        Numbers(name="load", count=4, batch_size=4) >> steps()
    made.append(pipeline)
    with pytest.raises(RunError, match=message):
        pipeline.run_to_files()


class Raises(OfNumbers):
    """Breaks at row 3."""

    batches_in_flight: int = 1

    def process(self, inputs: StepInput) -> Iterator[list[dict[str, Any]]]:
        if any(row["number"] == 3 for row in inputs):
            raise ValueError("out of luck")
        yield inputs


@pytest.mark.parametrize("at_once", [1, 4])
def test_what_a_step_raises_ends_the_run_with_its_error(at_once):
    raises = lambda: Raises(name="first", input_batch_size=1, batches_in_flight=at_once)  # noqa: E731
    pipeline = pipeline_of(400, [raises, wait("last")])
    with messages.raises("step_failed", step="first", why="ValueError: out of luck") as raised:
        pipeline.run_to_files()
    assert "in process" in raised.value.fix, "the traceback is there"


class StopsAt(OfNumbers):
    """Stops the run at row 0; the other row is lost meanwhile, as if it was not asked for."""

    batches_in_flight: int = 2

    def process(self, inputs: StepInput) -> Iterator[list[dict[str, Any]]]:
        if inputs[0]["number"] == 0:
            raise StoppedError("The budget is used up", "Give more.")
        assert seen["stopping"].wait(60)
        yield []


def test_a_run_whose_last_rows_are_lost_while_it_stops_ends_with_the_stop(monkeypatch):
    seen["stopping"], fail = threading.Event(), module._Flow._fail

    def slowly(flow: Any, error: BaseException, step: Any) -> None:
        seen["stopping"].set()
        if flow.over.wait(0.5):  # nobody but this thread may end the run
            time.sleep(0.5)
        fail(flow, error, step)

    monkeypatch.setattr(module._Flow, "_fail", slowly)
    with pytest.raises(StoppedError, match="used up"):
        pipeline_of(2, [lambda: StopsAt(name="first", input_batch_size=1)]).run_to_files()


def test_a_step_that_cannot_be_loaded_ends_the_run_before_a_row_is_loaded():
    passing = Passing()
    pipeline = pipeline_of(4, [wait("first"), lambda: FailsToLoad(name="last")])
    pipeline.on_batch = passing.on_batch
    with messages.raises("step_failed", step="last", why="OSError: no weights on this node"):
        pipeline.run_to_files()
    assert not passing.left


def test_what_a_callback_or_a_watch_raises_ends_the_run():
    def broken(step: str, rows: list[Any]) -> None:
        raise OSError("no bar")

    pipeline = pipeline_of(400, [wait("first", 0.01)])
    pipeline.on_batch = broken
    with messages.raises("step_failed", step="load", why="OSError: no bar"):
        pipeline.run_to_files()
    pipeline.on_batch = None
    pipeline.watch = lambda: RunError("The server ended", "Start it.")
    with pytest.raises(RunError, match="The server ended"):
        pipeline.run_to_files()


class Model(HeavyLLM):
    """Answers row by row until it is drained; row 5 may not be asked."""

    def load(self) -> None: ...

    def unload(self) -> None:
        events.append("unloaded")

    def drain(self) -> None:
        events.append(f"drained with {len(asked) - len(answered)} in flight")

    @property
    def in_process(self) -> bool:
        return False


class Asks(OfNumbers):
    """Asks a model for a while."""

    llm: LLM
    batches_in_flight: int = 4
    error: str = ""
    seconds: float = 0.15

    def unload(self) -> None:
        super().unload()
        self.llm.unload()

    def process(self, inputs: StepInput) -> Iterator[list[dict[str, Any]]]:
        number = inputs[0]["number"]
        asked.append(number)
        if number == 5 and self.error:
            raise {"stopped": StoppedError, "refused": TeacherError}[self.error]("No more", "Pay.")
        is_over.wait(self.seconds)
        answered.append(number)
        yield inputs


is_over = threading.Event()
asked: list[int] = []
answered: list[int] = []
events: list[str] = []


@pytest.fixture
def asking():
    for noted in (asked, answered, events, is_over):
        noted.clear()

    def make(error: str = "", seconds: float = 0.15, last: Any = None) -> HeavyPipeline:
        keys = {"error": error, "seconds": seconds, "input_batch_size": 1}
        llm = Model(teacher="micro", sampling=Sampling())
        asks = lambda: Asks(name="first", llm=llm, **keys)  # noqa: E731
        return pipeline_of(400, [asks, last or wait("last")])

    yield make
    is_over.set()


@pytest.mark.parametrize(("error", "kind"), [("stopped", StoppedError), ("refused", TeacherError)])
def test_a_step_that_has_to_stop_waits_for_what_is_in_flight(asking, error, kind):
    pipeline = asking(error)
    with pytest.raises(kind, match="No more"):
        pipeline.run_to_files()
    assert sorted(answered) == sorted(set(asked) - {5}) and len(asked) < 20
    assert events[0].startswith("drained with") and events[-1] == "unloaded"
    assert sorted(rows_of(pipeline)) == sorted(answered), "what was answered goes on to the end"


class FailsAt(OfNumbers):
    """Asks no model and raises at some rows, which leave it one at a time."""

    at: list[int]
    full: bool = True

    def process(self, inputs: StepInput) -> Iterator[list[dict[str, Any]]]:
        if inputs[0]["number"] in self.at:
            raise StoppedError("The disk is full", "Make room.") if self.full else OSError("broken")
        yield inputs


def test_a_step_without_a_model_that_fails_goes_on_with_what_was_in_flight(asking):
    pipeline = asking("", last=lambda: FailsAt(name="last", at=[1, 2], input_batch_size=1))
    with pytest.raises(StoppedError, match="The disk is full"):
        pipeline.run_to_files()
    assert sorted(answered) == sorted(asked)
    assert sorted(rows_of(pipeline)) == sorted(set(answered) - {1, 2})


def test_what_fails_after_ctrl_c_is_said_and_waits_for_nothing(asking):
    late = lambda: FailsAt(name="last", at=[4, 5, 6, 7], full=False, input_batch_size=1)  # noqa: E731
    pipeline = asking("", last=late)

    def interrupt(step: str, rows: list[dict[str, Any]]) -> None:
        if step == "last" and rows[0]["number"] == 3:
            os.kill(os.getpid(), signal.SIGINT)

    pipeline.on_batch = interrupt
    with messages.raises("step_failed", step="last", why="OSError: broken"):
        pipeline.run_to_files()


def test_ctrl_c_waits_for_what_is_in_flight_and_keeps_what_was_finished(asking, capsys):
    pipeline = asking("")

    def interrupt(step: str, rows: list[dict[str, Any]]) -> None:
        if step == "last" and rows[0]["number"] == 3:
            os.kill(os.getpid(), signal.SIGINT)

    before = [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)]
    pipeline.on_batch = interrupt
    with pytest.raises(KeyboardInterrupt):
        pipeline.run_to_files()
    said = capsys.readouterr().out
    assert said.startswith("Warning: Waiting for the requests in flight, which are already billed.")
    assert max(map(len, said.splitlines())) <= 80
    assert sorted(answered) == sorted(asked) and len(asked) < 20
    assert 3 in rows_of(pipeline) and events[-1] == "unloaded"
    assert [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize("signals", [["SIGTERM"], ["SIGINT", "SIGINT"]])
def test_sigterm_and_a_second_ctrl_c_wait_for_no_request(asking, signals, caplog, monkeypatch):
    monkeypatch.setattr(module, "_GRACE_S", 0.5)
    pipeline = asking("", 600.0)

    def send() -> None:
        for number, name in enumerate(signals):
            assert not number or eventually(lambda: "Waiting for the req" in caplog.text, 300)
            os.kill(os.getpid(), getattr(signal, name))

    def interrupt(step: str, rows: list[dict[str, Any]]) -> None:
        if step == "load" and not threads:
            threads.append(threading.Timer(0.1, send))
            threads[0].start()

    threads: list[threading.Timer] = []
    pipeline.on_batch = interrupt
    with pytest.raises(KeyboardInterrupt):
        pipeline.run_to_files()
    # The model gave up what it was asked while its step still waited.
    assert events[-1] == "unloaded" and not rows_of(pipeline)


BROKEN_OFF = """
import os, signal
import pyarrow as pa
from heavydistill.run import runner
from heavydistill.run.runner import HeavyPipeline
from streaming_steps import Numbers, Wait

if __name__ == "__main__":
    runner._GRACE_S = 0.5
    def interrupt(step, rows):
        if step == "first":
            os.kill(os.getpid(), signal.SIGINT)

    schema = pa.schema([("number", pa.int64()), ("text", pa.string())])
    with HeavyPipeline("large", schema, interrupt) as pipeline:
        first = Wait(name="first", seconds=0.0, input_batch_size=1)
        last = Wait(name="last", seconds=600.0, input_batch_size=1)
        Numbers(name="load", count=200, batch_size=50, text="x" * 200_000) >> first >> last
    try:
        pipeline.run()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def test_a_process_ends_although_a_step_hangs(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(BROKEN_OFF)
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), str(here.parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr
