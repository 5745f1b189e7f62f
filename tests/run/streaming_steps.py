"""Steps for tests of the flow of rows."""

import time
from collections.abc import Iterator
from typing import Any

from distilabel.steps import GeneratorStep, GlobalStep, Step, StepInput

Row = dict[str, Any]


class Numbers(GeneratorStep):
    """Rows with a number, and a text if they are to be large."""

    count: int
    text: str = ""

    @property
    def outputs(self) -> list[str]:
        return ["number"]

    def process(self, offset: int = 0) -> Iterator[tuple[list[Row], bool]]:
        for start in range(offset, self.count, self.batch_size):
            numbers = range(start, min(self.count, start + self.batch_size))
            rows = [{"number": n} | ({"text": self.text} if self.text else {}) for n in numbers]
            yield rows, numbers.stop == self.count


class OfNumbers(Step):
    """Takes and gives rows with a number."""

    @property
    def inputs(self) -> list[str]:
        return ["number"]

    @property
    def outputs(self) -> list[str]:
        return ["number"]


class Wait(OfNumbers):
    """Passes rows on after a while; row 0 takes as long as a hundred others."""

    seconds: float
    batches_in_flight: int = 1

    def process(self, inputs: StepInput) -> Iterator[list[Row]]:
        for row in inputs:
            time.sleep(self.seconds * (100 if row["number"] == 0 else 1))
        yield inputs


class Keeps(OfNumbers):
    """Passes on what is asked for alone; whoever comes after it must not see an empty batch."""

    only: list[int]

    def process(self, inputs: StepInput) -> Iterator[list[Row]]:
        assert inputs
        yield [row for row in inputs if row["number"] in self.only]


class Doubles(OfNumbers):
    """Makes two rows of each."""

    def process(self, inputs: StepInput) -> Iterator[list[Row]]:
        yield [{"number": 2 * row["number"] + odd} for row in inputs for odd in (0, 1)]


class Gathers(GlobalStep):
    """Takes all rows at once, in their order."""

    @property
    def inputs(self) -> list[str]:
        return ["number"]

    @property
    def outputs(self) -> list[str]:
        return ["number"]

    def process(self, inputs: StepInput) -> Iterator[list[Row]]:
        yield sorted(inputs, key=lambda row: row["number"])


class FailsToLoad(OfNumbers):
    """Has nothing to work with."""

    def load(self) -> None:
        super().load()
        raise OSError("no weights on this node")

    def process(self, inputs: StepInput) -> Iterator[list[Row]]:
        yield inputs
