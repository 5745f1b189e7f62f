"""Batches of a step overlap, leave as they are done, and nothing that a step raises is lost.

``test_streaming`` has the same in a real pipeline.
"""

import queue
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from distilabel.constants import LAST_BATCH_SENT_FLAG
from distilabel.pipeline.batch import _Batch
from distilabel.pipeline.step_wrapper import _StepWrapperException

from heavydistill.config.models import Sampling
from heavydistill.errors import StoppedError, TeacherError
from heavydistill.models.request import Work
from heavydistill.run.flow import _LoadQueue
from heavydistill.run.llm import HeavyLLM
from heavydistill.run.worker import OverlappingWrapper


class Slow:
    """A step that takes as long as each row says, and watches how it is used."""

    def __init__(self, batches_in_flight: int) -> None:
        self.name = "slow"
        self.batches_in_flight = batches_in_flight
        self.error: Exception = ValueError("no seconds")
        self.threads: set[int] = set()
        self.most_at_once = self.now = 0
        self._lock = threading.Lock()
        self._logger = SimpleNamespace(info=lambda text: None, debug=lambda text: None)

    def process_applying_mappings(self, rows: list[dict[str, Any]]) -> Any:
        with self._lock:
            self.now += 1
            self.most_at_once = max(self.most_at_once, self.now)
            self.threads.add(threading.get_ident())
        for row in rows:
            if row["seconds"] is None:
                raise self.error
            time.sleep(row["seconds"])
        with self._lock:
            self.now -= 1
        yield rows


def wrapper_of(step: Slow, batches: list[Any]) -> OverlappingWrapper:
    wrapper = OverlappingWrapper.__new__(OverlappingWrapper)
    wrapper.step, wrapper.replica = step, 0  # type: ignore[assignment]
    wrapper.input_queue, wrapper.output_queue = queue.Queue(), queue.Queue()
    for batch in batches:
        wrapper.input_queue.put(batch)
    return wrapper


def batches(*seconds: float | None) -> list[_Batch]:
    last = len(seconds) - 1
    return [
        _Batch(
            seq_no=number,
            step_name="slow",
            last_batch=number == last,
            data=[[{"number": number, "seconds": wait}] if wait != -1 else []],
        )
        for number, wait in enumerate(seconds)
    ]


def sent(wrapper: OverlappingWrapper) -> list[_Batch]:
    wrapper._non_generator_process_loop()
    out = []
    while not wrapper.output_queue.empty():
        out.append(wrapper.output_queue.get())
    return out


def numbers(out: list[_Batch]) -> list[int]:
    return [row["number"] for batch in out for row in batch.data[0]]


def test_a_slow_batch_does_not_hold_back_the_others():
    out = sent(wrapper_of(Slow(4), batches(0.6, 0.0, 0.0, 0.0, 0.0, 0.2)))
    assert numbers(out)[-2:] == [5, 0] and sorted(numbers(out)) == list(range(6))


def test_no_more_are_in_flight_than_allowed():
    step = Slow(3)
    sent(wrapper_of(step, batches(*[0.1] * 12)))
    assert step.most_at_once == 3


def test_one_at_a_time_stays_in_order_and_in_its_thread():
    step = Slow(1)
    out = sent(wrapper_of(step, batches(0.1, 0.0, 0.05)))
    assert numbers(out) == [0, 1, 2] and step.threads == {threading.get_ident()}


def test_an_empty_batch_passes():
    out = sent(wrapper_of(Slow(2), batches(0.0, -1, 0.0)))
    assert sorted(numbers(out)) == [0, 2] and len(out) == 3


@pytest.mark.parametrize("in_flight", [1, 4])
def test_what_a_step_raises_ends_the_step(in_flight):
    # No last batch: the step would wait for more.
    wrapper = wrapper_of(Slow(in_flight), batches(0.0, None, 0.0)[:2])
    with pytest.raises(_StepWrapperException) as raised:
        wrapper._non_generator_process_loop()
    assert isinstance(raised.value.subprocess_exception, ValueError)


@pytest.mark.parametrize("kind", [StoppedError, TeacherError])
def test_a_step_that_has_to_stop_waits_for_what_is_in_flight(kind):
    drained: list[int] = []
    step = Slow(4)
    step.error = kind("The key is refused", "Set another.")
    step.llm = SimpleNamespace(is_drained=False, drain=lambda: drained.append(step.now))
    wrapper = wrapper_of(step, batches(0.8, 0.8, None))
    with pytest.raises(_StepWrapperException) as raised:
        wrapper._non_generator_process_loop()
    assert raised.value.subprocess_exception is step.error
    # Two were in flight when it was told to ask nothing more, and none when it ended; the one that
    # raised never left by itself.
    assert drained == [3] and step.now == 1


class Asked(HeavyLLM):
    """A model that is asked for one more sample whenever somebody looks."""

    @property
    def work(self) -> Work:
        looks.append(len(looks) + 1)
        return Work(looks[-1], 0, 0)


looks: list[int] = []


def test_the_run_is_told_what_a_model_is_asked_while_it_is_asked(monkeypatch):
    monkeypatch.setattr("heavydistill.run.worker._REPORT_S", 0.05)
    step = Slow(1)
    step.llm = Asked(teacher="micro", sampling=Sampling())
    wrapper = wrapper_of(step, batches(0.5))
    wrapper.load_queue = queue.Queue()
    sent(wrapper)
    told: list[tuple[str, int, Work]] = []
    wrapper.load_queue.put({"name": "slow", "status": "loaded"})
    wrapper.load_queue.put(None)
    reports = _LoadQueue(wrapper.load_queue, lambda *report: told.append(report))
    # What distilabel sees is what it knows.
    assert reports.get() == {"name": "slow", "status": "loaded"} and reports.get() is None
    assert told == [("slow", 0, Work(count, 0, 0)) for count in looks] and len(told) > 2


@pytest.mark.parametrize("end", [None, LAST_BATCH_SENT_FLAG])
def test_a_step_that_is_told_to_stop_finishes_what_it_has(end):
    out = sent(wrapper_of(Slow(4), [*batches(0.1, 0.0, 0.0)[:2], end]))
    assert sorted(numbers(out)) == [0, 1]
