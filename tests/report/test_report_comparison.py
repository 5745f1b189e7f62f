"""What is printed of a comparison and of a crossing; tables of controls: the page, golden ones."""

import dataclasses
import functools
import io
from typing import Any

import pytest
from messages import message
from rich.console import Console
from summaries import comparison as invented
from summaries import group, summary

from heavydistill.metrics.comparison import Change, Comparison, Model
from heavydistill.metrics.counts import GenerationCounts
from heavydistill.metrics.experiments.crossing import Cell, Crossing, Thinker
from heavydistill.metrics.intervals import Interval, Pairs
from heavydistill.report.comparison import as_markdown, print_comparison, print_crossing

tables = functools.partial(print_comparison, full=True)


@pytest.fixture
def comparison() -> Comparison:
    return invented()


def changed(comparison: Comparison, *sides: str, **fields: Any) -> Comparison:
    """With other fields of one side or of both."""
    new = {name: dataclasses.replace(getattr(comparison, name), **fields) for name in sides}
    return dataclasses.replace(comparison, **new)


def change(*percents: float) -> Change:
    return Change(*(Interval(*[value / 100] * 3) for value in percents))


def lines_of(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_what_the_intervals_and_tokens_show_is_said(comparison, printed):
    few = dataclasses.replace(comparison, problems=29)
    words = ("Better: HM@4{}, HM@4 - V@8{}", "Worse: M@8{}", "No difference shown: V@8{}, P@8{}")
    figures = (" +21.4 (+19.0 to +24.0)", " +28.0 (+25.0 to +30.0)", " -3.0 (-5.0 to -1.0)")
    said = "|".join(words).format(*figures, *[" 0.0 (0.0 to 0.0)"] * 2).split("|")
    for show, readings in (
        (lambda told: printed(tables, told), said),
        (as_markdown, [word.replace("{}", "") for word in words]),
    ):
        text = show(comparison)
        assert all(each in " ".join(text.split()) for each in readings)
        assert "After: HM@4 takes the tokens written of 6.0 votes" in " ".join(text.split())
        assert "too narrow" not in text and "too narrow" in show(few)
    assert "first deliberation 500 36 250 214 < 0.001" in lines_of(printed(tables, comparison))
    assert "| 250 | 214 | &lt; 0.001 |" in as_markdown(comparison)


def test_a_gain_of_the_thinker_is_not_called_one_of_the_deliberation(comparison, printed):
    """Deliberations are right more often after, and so is the vote; an SFT run measured these."""
    figures = {
        "heavy_mean_at_d": ((35.7, 29.7, 41.3), (57.0, 50.0, 63.7), (21.3, 13.7, 28.7)),
        "vote_at_k": ((49.8, 41.8, 57.9), (67.0, 59.3, 74.3), (17.2, 7.9, 26.4)),
        "heavy_minus_vote": ((-14.1, -22.1, -6.2), (-10.0, -16.3, -3.9), (4.1, -5.7, 13.8)),
    }
    told = {
        name: Change(*(Interval(*(figure / 100 for figure in figures)) for figures in change))
        for name, change in figures.items()
    }
    text = " ".join(printed(print_comparison, dataclasses.replace(comparison, **told)).split())
    assert text.startswith(
        "No difference shown: deliberation against the model's own vote, 35.7% right against 49.8% "
        "before, 57.0% right against 67.0% after +4.1 points, 95% interval -5.7 to +13.8"
    )
    frozen = dataclasses.replace(invented(), **told)
    told |= {"mean_at_k": change(36.8, 55.1, 18.2), "frozen": frozen}
    told["frozen_steps"] = {"heavy_minus_step_vote": told["heavy_minus_vote"]}
    shown = dataclasses.replace(comparison, **told)
    gained = "The thinker gained +18.2, the vote +17.2, the deliberation +21.3 points"
    on_same = "On the attempts of the run before: 35.7% right before, 57.0% after; over their vote "
    on_same += "-14.1 before, -10.0 (-16.3 to -3.9) after"
    for text in (printed(print_comparison, shown), as_markdown(shown)):
        assert gained in " ".join(text.split()) and on_same in " ".join(text.split())
        assert "Deliberation is better" not in text
    rows = lines_of(printed(tables, shown))
    at = next(n for n, row in enumerate(rows) if row.startswith("On the attempts of before"))
    assert "HM@4 35.7% 57.0% +21.3" in rows[at:]
    assert "HM@4 - V@8 -14.1 -10.0 +4.1" in rows[at:]
    assert "HM - step vote -14.1 -10.0 +4.1" in rows[at:]
    assert "On the attempts of" not in printed(tables, comparison)
    alone = dict.fromkeys(figures, None) | {"vote_at_k": told["vote_at_k"]}
    text = printed(print_comparison, dataclasses.replace(comparison, **alone))
    assert text.startswith("The thinker is worse: ")


def test_claims_have_a_table_with_points_and_a_line_for_each_run(comparison, printed):
    text = printed(print_comparison, comparison)
    for name in ("before", "after"):
        assert f"Claims, {name}: on 97.1% of attempts, 68.3% true (balanced)" in text
    assert "true claims, balanced 55.0% 95.0% +40.0" in lines_of(printed(tables, comparison))
    line = "| true claims, balanced, 50% is a guess | 55.0% (50.0 to 60.0) | 95.0% (90.0 to 97.0) |"
    assert f"{line} +40.0 (+37.0 to +43.0) |" in as_markdown(comparison)
    silent = dataclasses.replace(comparison, claim_balanced_accuracy=None)
    assert "true claims" not in as_markdown(silent)


def test_who_was_asked_and_how_is_said(comparison, printed):
    text = printed(tables, comparison)
    assert "1,000 problems, K=8 trajectories, D=4 deliberations, 1 round" in text
    assert "prompts brief (en)" in text
    assert "thinking: temperature 1, top_p 0.95, top_k 10, max_tokens 192" in text
    assert "deliberating: temperature 1, top_p 0.95, top_k 10, max_tokens 448" in text
    lines = lines_of(text)
    assert "deliberations, 4,000 0 0 0 0 0" in lines


def test_rows_that_cannot_be_judged_are_told_where_any_were_left_out(comparison, printed):
    assert "left out" not in printed(tables, comparison)
    told = changed(comparison, "after", left_out=1234)
    assert "Rows left out - 1,234" in lines_of(printed(tables, told))
    assert "| Rows left out | - | 1,234 |" in as_markdown(told)


def test_attempts_that_a_run_took_from_another_have_no_thinker_and_no_sampling(comparison, printed):
    text = printed(tables, changed(comparison, "before", "after", thinker=None))
    assert "Thinker of another run of another run" in lines_of(text)
    assert "thinking:" not in text
    told = changed(comparison, "after", thinker=None)
    for text in (printed(tables, told), as_markdown(told)):
        assert "thinking: not compared, because the run after has pools of another run" in text
        assert "thinking: temperature" not in text and "deliberating: temperature" in text


def test_what_ran_the_models_is_said_in_both(comparison, printed):
    told = dataclasses.replace(comparison, versions={"torch": "2.1", "distilabel": "1.5"})
    line = "Compared by heavydistill 0.1.0; the models ran with torch 2.1, distilabel 1.5."
    assert printed(tables, told).endswith(f"{line}\n") and line in as_markdown(told)
    unknown = "Compared by heavydistill 0.1.0.\n"
    assert printed(tables, comparison).endswith(unknown)
    assert as_markdown(comparison).endswith(unknown)


def test_sizes_that_differ_and_votes_that_are_not_paired_are_told(comparison, printed):
    told = changed(comparison, "before", summary=summary(k=4))
    told = dataclasses.replace(told, vote_pairs=None)
    assert told.names[:2] == ["M@4/8", "V@4"] and told.names[3] == "HM@4"
    lines = lines_of(printed(tables, told))
    assert "vote - - - - -" in lines and "not paired: K=4 and K=8" in " ".join(lines)
    text = as_markdown(told)
    assert "K=4/8 trajectories, D=4 deliberations" in text
    assert "| vote, not paired: K=4 and K=8 | - |" in text
    few = Pairs(both=500, only_before=40, only_after=60, neither=388, p_value=0.0569)
    row = "| vote, without 12 problems of more than 8 trajectories | 500 |"
    assert row in as_markdown(dataclasses.replace(comparison, vote_pairs=few))


def test_groups_and_strata_of_few_problems_are_marked(comparison, printed):
    assert "(few)" not in printed(tables, comparison)
    (first,) = summary().places
    rare = summary(by_stratum={"tie": group(12)}, places=[dataclasses.replace(first, problems=17)])
    families = dict(comparison.by_family)
    families["chain_sum"] = dataclasses.replace(families["chain_sum"], problems=29)
    told = dataclasses.replace(changed(comparison, "before", summary=rare), by_family=families)
    for text in (" ".join(printed(tables, told).split()), as_markdown(told)):
        for size in ("12", "17 problems", "29 problems"):
            assert f"{size} (few)" in text, size
        assert text.count("(few): fewer than 30 problems") == 1
        assert "in pools of K, HM - V is at most 0 where that is right" in text
    # Where nothing was deliberated, nothing is said of what that adds.
    alone = summary(by_stratum={"tie": dataclasses.replace(group(40), heavy_minus_vote=None)})
    text = as_markdown(changed(comparison, "before", "after", summary=alone))
    assert "| tie | 40 | - | 40 | - |" in text and "The vote defines" not in text


def test_many_unanswered_ones_are_told_of_each_run(comparison):
    assert "no final answer" not in as_markdown(comparison)
    many = GenerationCounts(1000, 0, {}, 200, 0, 0, 0, {}, 480, {"no_answer": 480}, decided=320)
    told = changed(comparison, "after", summary=summary(deliberations=many))
    unanswered = {"share": "60.0%", "of": "deliberations", "why": ""}
    said = f"After: {message('no_final_answer', **unanswered)}"
    console = Console(record=True, width=200, file=io.StringIO())
    print_comparison(told, console)
    text = console.export_text()
    assert said in text and "Before: " not in text.partition("Compared by")[2]
    assert said in as_markdown(told)
    assert "| deliberations, after | 1,000 | 0 | 200 | 480 | 0 | 0 |" in as_markdown(told)


def test_names_of_others_are_neither_markup_nor_cells(comparison, printed):
    evil = Model("a|b [red]<script>\n# Title", "")
    told = changed(comparison, "after", thinker=evil)
    text = as_markdown(told)
    assert "<script>" not in text and "\n# Title" not in text and "a\\|b" in text
    assert "[red]" in printed(tables, told)


def test_models_of_a_crossing_are_called_by_their_whole_names(printed):
    """Square brackets are those of a name, and change nothing in how it is printed."""
    value = Interval(0.5, 0.4, 0.6)
    names, figures = ("a[v1]", "a[/b]"), {"heavy_mean_at_d": value, "heavy_pass_at_d": value}
    figures |= {"heavy_minus_vote": Interval(0.0, -0.1, 0.1)}
    rates = {"mean_at_k": value, "vote_at_k": value, "pass_at_k": value}
    samples = GenerationCounts(8, 0, {}, 0, 0, 0, 0, {}, decided=8)
    crossing = Crossing(
        heavydistill="0.1.0",
        problems=40,
        k=4,
        d=2,
        rounds=1,
        prompts=["deliberator@1"],
        verifiers=["math@2"],
        sampling={},
        thinkers=[Thinker(name=name, **rates, samples=samples) for name in names],
        cells=[
            Cell(thinker=name, deliberator="r[v2]", **figures, unasked=0, samples=samples)
            for name in names
        ],
    )
    text = printed(print_crossing, crossing)
    assert "HM@2 r[v2]" in text
    named = [line.split()[0] for line in text.splitlines() if "50.0%" in line]
    assert named == list(names)
