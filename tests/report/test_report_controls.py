"""The table of controls: what each way achieves, and what it costs in both counts."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from heavydistill.metrics.controls import CHAIN, CHOOSE, Answering, Control, Controlled
from heavydistill.metrics.intervals import Interval
from heavydistill.report.controls import print_controlled


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
