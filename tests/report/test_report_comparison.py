from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from heavydistill.metrics.comparison import Change, Comparison, Measured, Model
from heavydistill.metrics.intervals import Interval
from heavydistill.metrics.summary import GenerationCounts
from heavydistill.report.comparison import print_comparison

Printed = Callable[..., str]
SAMPLING = {"temperature": 1.0, "top_p": 0.95, "top_k": 10, "min_p": 0.0, "max_tokens": 448}


def measured(name: str, truncated: int) -> Measured:
    model = Model(name, "abc")
    return Measured(
        thinker=model,
        deliberator=model,
        prompts=[],
        verifiers=[],
        trajectories=GenerationCounts(8000, 0, {}, truncated, 0, 0, 0, {}),
        deliberations=GenerationCounts(4000, 0, {}, 0, 0, 0, 0, {}),
        statuses={"ok": 1000},
    )


@pytest.fixture
def comparison() -> Comparison:
    no_change = Change(Interval(0.54, 0.52, 0.56), Interval(0.54, 0.52, 0.56), Interval(0, 0, 0))
    config: dict[str, Any] = {
        "domain": "brief",
        "language": "en",
        "think": {"sampling": SAMPLING | {"max_tokens": 192}},
        "deliberate": {"sampling": SAMPLING},
    }
    return Comparison(
        heavydistill="0.1.0",
        versions={},
        problems=1000,
        k=8,
        d=4,
        rounds=1,
        config=config,
        before=measured("base", 17),
        after=measured("trained", 3),
        mean_at_k=dataclasses.replace(no_change, difference=Interval(-0.03, -0.05, -0.01)),
        vote_at_k=no_change,
        pass_at_k=no_change,
        heavy_mean_at_d=Change(
            Interval(0.536, 0.512, 0.56), Interval(0.75, 0.7, 0.8), Interval(0.214, 0.19, 0.24)
        ),
        heavy_pass_at_d=no_change,
        heavy_minus_vote=Change(
            Interval(-0.08, -0.1, -0.07), Interval(0.2, 0.17, 0.22), Interval(0.28, 0.25, 0.3)
        ),
    )


def lines_of(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_each_metric_stands_before_and_after_with_points_and_intervals(
    comparison: Comparison, printed: Printed
) -> None:
    lines = lines_of(printed(print_comparison, comparison))
    at = lines.index("M@8 54.0% 54.0% -3.0")
    assert lines[at + 1] == "the thinker's own pass@1 52.0 to 56.0 52.0 to 56.0 -5.0 to -1.0"
    at = lines.index("HM@4 53.6% 75.0% +21.4")
    assert lines[at + 1] == "a deliberation is right 51.2 to 56.0 70.0 to 80.0 +19.0 to +24.0"
    at = lines.index("HM@4 - V@8 -8.0 +20.0 +28.0")
    assert lines[at + 1].endswith("-10.0 to -7.0 +17.0 to +22.0 +25.0 to +30.0")


def test_what_the_intervals_show_is_said(comparison: Comparison, printed: Printed) -> None:
    text = printed(print_comparison, comparison)
    assert "Better: HM@4, HM@4 - V@8\n" in text
    assert "Worse: M@8\n" in text
    assert "No difference shown: V@8, P@8, HP@4\n" in text
    assert "too narrow" not in text
    few = dataclasses.replace(comparison, problems=29)
    assert "Fewer than 30 problems" in printed(print_comparison, few)


def test_who_was_asked_and_how_is_said(comparison: Comparison, printed: Printed) -> None:
    text = printed(print_comparison, comparison)
    assert "1,000 problems, K=8 trajectories, D=4 deliberations, 1 round" in text
    assert "Before: trajectories by base, deliberations by base" in text
    assert "After: trajectories by trained, deliberations by trained" in text
    assert "prompts brief (en)" in text
    assert "thinking: temperature 1, top_p 0.95, top_k 10, max_tokens 192" in text
    assert "deliberating: temperature 1, top_p 0.95, top_k 10, max_tokens 448" in text
    lines = lines_of(text)
    assert "trajectories before 8,000 0 17 0 0 0" in lines
    assert "trajectories after 8,000 0 3 0 0 0" in lines


def test_pools_of_another_run_have_no_thinker(comparison: Comparison, printed: Printed) -> None:
    assert comparison.before
    told = dataclasses.replace(
        comparison,
        before=dataclasses.replace(comparison.before, thinker=None),
        after=dataclasses.replace(comparison.after, thinker=None),
    )
    text = printed(print_comparison, told)
    assert "After: trajectories by another run, deliberations by trained" in text
    assert "thinking:" not in text
