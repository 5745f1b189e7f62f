"""The table of a crossing; that of controls is among those of the page and the golden ones."""

from __future__ import annotations

import dataclasses
import io

from rich.console import Console

from heavydistill.metrics.counts import GenerationCounts
from heavydistill.metrics.crossing import Cell, Crossing, Thinker
from heavydistill.metrics.intervals import Interval
from heavydistill.report.comparison import print_crossing


def crossing(readers: int) -> Crossing:
    """Of one thinker and so many deliberators."""
    value = Interval(0.5, 0.4, 0.6)
    cell = Cell(
        thinker="one",
        deliberator="",
        heavy_mean_at_d=value,
        heavy_pass_at_d=value,
        heavy_minus_vote=Interval(0.0, -0.1, 0.1),
        unasked=0,
    )
    return Crossing(
        heavydistill="0.1.0",
        problems=40,
        k=4,
        d=2,
        rounds=1,
        prompts=["deliberator@1"],
        verifiers=["math@2"],
        sampling={},
        thinkers=[Thinker(name="one", mean_at_k=value, vote_at_k=value, pass_at_k=value)],
        cells=[dataclasses.replace(cell, deliberator=f"reader-{n}") for n in range(readers)],
    )


def test_samples_without_a_final_answer_are_told_below_the_table():
    one = crossing(2)
    counts = GenerationCounts(160, 0, {}, 10, 0, 0, 0, {}, 30)
    thinkers = [dataclasses.replace(one.thinkers[0], samples=counts)]
    cells = [dataclasses.replace(one.cells[0], samples=counts), one.cells[1]]
    told = dataclasses.replace(one, thinkers=thinkers, cells=cells)
    file = io.StringIO()
    print_crossing(told, Console(width=80, file=file))
    assert [line for line in file.getvalue().splitlines() if line.startswith("Without")] == [
        "Without a final answer, trajectories of one: 30 of 150 that ended (20.0%), which count as "
        "wrong",
        "Without a final answer, deliberations of reader-0 on one: 30 of 150 that ended (20.0%), "
        "which count as wrong",
    ], "and nothing of the file's other cell, which does not say"


def test_models_are_called_by_their_whole_names(printed):
    """Square brackets are those of a name, and change nothing in how it is printed."""
    one = crossing(1)
    thinkers = [dataclasses.replace(one.thinkers[0], name=name) for name in ("a[v1]", "a[/b]")]
    cells = [
        dataclasses.replace(one.cells[0], thinker=thinker.name, deliberator="r[v2]")
        for thinker in thinkers
    ]
    text = printed(print_crossing, dataclasses.replace(one, thinkers=thinkers, cells=cells))
    assert "HM@2 r[v2]" in text
    named = [line.split()[0] for line in text.splitlines() if "50.0%" in line]
    assert named == ["a[v1]", "a[/b]"]
