"""What is printed of the step table and the step vote, of one run and of two."""

import dataclasses
import functools

import pytest
from summaries import comparison as invented_comparison
from summaries import summary as invented

from heavydistill.metrics.comparison import Change
from heavydistill.metrics.intervals import Interval
from heavydistill.metrics.steps import StepRow, StepVote
from heavydistill.metrics.summary import Summary
from heavydistill.report.comparison import as_markdown, print_comparison
from heavydistill.report.summary import print_summary

GAIN = Interval(0.244, 0.209, 0.279)


def row(written: float, plurality: float, problems: int = 191) -> StepRow:
    return StepRow(
        steps=2 * problems,
        problems=problems,
        written=Interval(written, written, written),
        plurality=Interval(plurality, plurality, plurality),
        picked=Interval(0.5, 0.5, 0.5),
        written_minus_plurality=GAIN,
    )


@pytest.fixture
def summary() -> Summary:
    return invented(
        steps={
            "unanimous_true": row(0.999, 1.0),
            "unanimous_false": row(0.48, 0.0, problems=25),
            "parting": row(0.962, 0.718),
        },
        step_vote=StepVote(problems=1200, accuracy=GAIN, heavy_minus=Interval(0.319, 0.259, 0.38)),
    )


def lines_of(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_a_run_has_two_lines_and_a_table(summary, printed):
    text = " ".join(printed(print_summary, summary).split())
    assert (
        "Steps, true values: 96.2% where attempts part (71.8% by copying most), 99.9% where" in text
    )
    assert "agree on a true value, 48.0% where they agree on a false value Step vote: 24.4%" in text
    assert "HM@4 - step vote +31.9 (+25.9 to +38.0) points" in text and "defined" not in text
    lines = lines_of(printed(functools.partial(print_summary, full=True), summary))
    assert "part 96.2% 71.8% 50.0% +24.4" in lines and "25 problems (few)" in " ".join(lines)
    some = dataclasses.replace(summary.step_vote, problems=1)
    text = printed(print_summary, dataclasses.replace(summary, step_vote=some))
    assert "over the 1 problem where it is defined" in " ".join(text.split())


def test_without_steps_this_is_said_once_and_only_with_all_tables(printed):
    text = " ".join(printed(functools.partial(print_summary, full=True), invented()).split())
    assert text.count("No step table: no two attempts of a cache have a step a op b = c") == 1
    assert "step" not in printed(print_summary, invented()).lower()
    nothing = dict.fromkeys(("heavy_mean_at_d", "heavy_pass_at_d", "heavy_minus_vote"))
    text = printed(functools.partial(print_summary, full=True), invented(**nothing))
    assert "step table" not in text, "nothing was deliberated"


def test_a_comparison_has_shares_and_differences(summary, printed):
    share, points = Change(GAIN, GAIN, GAIN), Change(None, GAIN, None)
    told = dataclasses.replace(
        invented_comparison(), steps={"parting": share, "heavy_minus_step_vote": points}
    )
    after = dataclasses.replace(told.after, summary=summary)
    text = printed(
        functools.partial(print_comparison, full=True), dataclasses.replace(told, after=after)
    )
    assert "After: Steps, true values: 96.2%" in text and "Before: Steps" not in text
    assert "part 24.4% 24.4% +24.4" in lines_of(text)
    assert "HM - step vote - +24.4 -" in lines_of(text)
    assert "| HM - step vote, paired by problem | - | +24.4 (+20.9 to +27.9) | - |" in as_markdown(
        told
    )
    assert "step vote" not in as_markdown(invented_comparison())
