"""The tables of controls and of a crossing."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable

import pytest
from rich.console import Console

from heavydistill.metrics.controls import CHAIN, CHOOSE, Answering, Control, Controlled
from heavydistill.metrics.counts import GenerationCounts
from heavydistill.metrics.crossing import Cell, Crossing, Thinker
from heavydistill.metrics.intervals import Interval
from heavydistill.report.comparison import print_controlled, print_crossing


def answering(tokens: float | None, all_tokens: float | None, unknown: int = 0) -> Answering:
    return Answering(
        accuracy=Interval(0.5, 0.4, 0.6),
        tokens=tokens,
        unknown_tokens=0,
        all_tokens=all_tokens,
        unknown_all_tokens=unknown,
        unasked=0,
        samples=10,
        cut_off=0,
        without_answer=0,
        unanswered=3,
    )


@pytest.fixture
def controlled() -> Controlled:
    added = Interval(0.05, 0.01, 0.1)
    return Controlled(
        heavydistill="0.1.0",
        prompts=["deliberator@1"],
        verifiers=["math@2"],
        problems=5,
        heavy=answering(2000, 5000),
        controls=[
            Control(name=CHAIN, answering=answering(500, 600), heavy_minus=added),
            Control(name=CHOOSE, answering=answering(1900, None, 5), heavy_minus=added),
        ],
        orders=None,
    )


def test_costs_stand_in_both_counts_with_the_share_of_the_heavy_answer(
    controlled: Controlled,
) -> None:
    file = io.StringIO()
    print_controlled(controlled, Console(width=80, file=file))
    text = file.getvalue()
    lines = [" ".join(line.split()) for line in text.splitlines()]
    for told in ("50.0% 2,000 5,000 100%", "50.0% 500 600 25% +5.0", "50.0% 1,900 unknown 95%"):
        assert any(told in line for line in lines), told
    assert "Of 10 answers (one long chain of the thinker): 3 with text but no final answer" in text
    assert "5 problem(s) whose tokens written and read are unknown" in text
    assert "controls are not matched in tokens" in " ".join(lines)


Printed = Callable[..., str]
SAMPLING = {"temperature": 1.0, "top_p": 0.95, "top_k": None, "min_p": 0.0, "max_tokens": 448}


def crossing(*most: int) -> Crossing:
    """Of one thinker, and deliberators with so many tokens each."""
    value = Interval(0.5, 0.4, 0.6)
    names = [f"reader-{number}" for number in range(len(most))]
    return Crossing(
        heavydistill="0.1.0",
        problems=40,
        k=4,
        d=2,
        rounds=1,
        prompts=["deliberator@1"],
        verifiers=["math@2"],
        sampling={
            "thinking": {"one": SAMPLING},
            "deliberating": {
                name: SAMPLING | {"max_tokens": count}
                for name, count in zip(names, most, strict=True)
            },
        },
        thinkers=[Thinker(name="one", mean_at_k=value, vote_at_k=value, pass_at_k=value)],
        cells=[
            Cell(
                thinker="one",
                deliberator=name,
                heavy_mean_at_d=value,
                heavy_pass_at_d=value,
                heavy_minus_vote=Interval(0.0, -0.1, 0.1),
                unasked=0,
            )
            for name in names
        ],
    )


def test_samples_without_a_final_answer_are_told_below_the_table() -> None:
    one = crossing(448, 448)
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


def test_models_are_called_by_their_whole_names(printed: Printed) -> None:
    """Square brackets are those of a name, and change nothing in how it is printed."""
    one = crossing(448)
    thinkers = [dataclasses.replace(one.thinkers[0], name=name) for name in ("a[v1]", "a[/b]")]
    cells = [
        dataclasses.replace(one.cells[0], thinker=thinker.name, deliberator="r[v2]")
        for thinker in thinkers
    ]
    text = printed(print_crossing, dataclasses.replace(one, thinkers=thinkers, cells=cells))
    assert "HM@2 r[v2]" in text
    named = [line.split()[0] for line in text.splitlines() if "50.0%" in line]
    assert named == ["a[v1]", "a[/b]"]


def test_deliberators_that_are_not_sampled_alike_are_named(printed: Printed) -> None:
    text = printed(print_crossing, crossing(448, 512))
    line = (
        "Not sampled alike, deliberating: reader-0: temperature 1, top_p 0.95, max_tokens 448; "
        "reader-1: temperature 1, top_p 0.95, max_tokens 512"
    )
    assert line in " ".join(text.split()) and "thinking" not in text
    assert "Not sampled alike" not in printed(print_crossing, crossing(448, 448))
