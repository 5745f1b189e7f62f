"""The warning of unanswered samples: when it comes, and what it says can be done."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from summaries import group, summary

from heavydistill.metrics.counts import GenerationCounts, Usage
from heavydistill.metrics.summary import Summary
from heavydistill.report.summary import (
    marker_found,
    marker_value,
    print_summary,
    unanswered_warning,
)
from heavydistill.verifiers.markers import Shared

GENERAL = ["thinker.general.en@1", "deliberator.general.en@1"]
SHARED = Shared("A:", {"units": "required", "marker": "A:"}, 795, 800, 200, 198, 67)


def counted(unanswered: int) -> GenerationCounts:
    """Of 100 samples, 80 of which ended by themselves."""
    return GenerationCounts(100, 5, {}, 15, 0, 0, 0, {}, unanswered, {"no_answer": unanswered})


def of(trajectories: int, deliberations: int = 0, verifier: str = "math", **more: Any) -> Summary:
    return summary(
        trajectories=counted(trajectories),
        deliberations=counted(deliberations),
        by_verifier={verifier: group(100)},
        **more,
    )


def test_it_comes_above_thirty_per_cent_of_those_that_ended() -> None:
    assert unanswered_warning(of(24)) == []
    fact, remedy = unanswered_warning(of(25))
    assert fact == r"31.2% of the finished trajectories hold no final answer (no \boxed{})."
    assert remedy == (
        "Train the format first; or set the marker if the answers stand behind one: "
        "--set problems.verifier_args='{marker: \"Answer:\"}'"
    )
    facts = unanswered_warning(of(40, 60))[:-1]
    assert [fact.split(" hold")[0] for fact in facts] == [
        "50.0% of the finished trajectories",
        "75.0% of the finished deliberations",
    ]


@pytest.mark.parametrize(
    ("verifier", "form"),
    [("choice", "no letter of an option"), ("code", "no code block"), ("procedural", r"\boxed{}")],
)
def test_a_marker_is_offered_only_where_the_verifier_knows_one(verifier: str, form: str) -> None:
    fact, remedy = unanswered_warning(of(70, verifier=verifier))
    assert form in fact and remedy == "Train the format first"


def test_the_short_prompts_are_offered_where_most_are_unanswered_and_they_were_not_used() -> None:
    brief = "--set domain=brief"
    assert brief in unanswered_warning(of(41, prompts=GENERAL))[-1]
    assert brief not in unanswered_warning(of(40, prompts=GENERAL))[-1], "half of them is not most"
    for prompts in (["thinker.brief.en@1"], ["thinker.general.zh@1"], []):
        assert brief not in unanswered_warning(of(41, prompts=prompts))[-1]


def test_nothing_is_offered_that_would_not_change_the_pools_of_another_run() -> None:
    usage = {**summary().usage, "thinking": Usage(0, 0, 0, 0, 0, 0, 0)}
    told = unanswered_warning(of(70, 20, prompts=GENERAL, usage=usage))
    assert told[-1] == "Train the format first"
    told = unanswered_warning(of(70, 60, prompts=GENERAL, usage=usage))
    assert "domain=brief" in told[-1] and "marker" not in told[-1]


def test_the_table_ends_with_it_in_lines_that_can_be_copied() -> None:
    console = Console(record=True, width=80, file=io.StringIO())
    print_summary(of(70), console)
    fact, remedy = console.export_text().splitlines()[-2:]
    assert [fact, remedy] == unanswered_warning(of(70)) and len(remedy) > 80


def test_a_shared_marker_is_told_with_its_numbers_and_as_a_word_of_a_shell() -> None:
    assert marker_found(SHARED) == (
        "795 of the 800 unanswered answers that were read end in 'A:' and a value. Of 200 that "
        "were judged with this marker, 198 give an answer and 67 are right."
    )
    assert marker_value(SHARED) == """'{units: "required", marker: "A:"}'"""
