"""The figures of a run as the terminal prints them, and its warning of unanswered samples."""

import dataclasses
import functools
import io
from typing import Any

import messages
import pytest
from messages import message
from rich.console import Console
from summaries import group
from summaries import summary as invented

from heavydistill.metrics.counts import GenerationCounts, Judging, Usage
from heavydistill.metrics.intervals import Interval
from heavydistill.metrics.summary import Rate, Summary
from heavydistill.models.tokenizer import ESTIMATED
from heavydistill.report.grid import part
from heavydistill.report.summary import (
    headline,
    marker_found,
    marker_value,
    print_summary,
    unanswered_warning,
)
from heavydistill.verifiers.markers import CommonMarker

tables = functools.partial(print_summary, full=True)


@pytest.fixture
def summary() -> Summary:
    return invented()


def _line(text: str, start: str) -> str:
    lines = (" ".join(line.split()) for line in text.splitlines())
    (line,) = [line for line in lines if line.startswith(start)]
    return line


def test_a_result_is_ten_lines_with_what_was_lost_and_what_it_took(summary, printed):
    text = printed(print_summary, summary)
    lines = text.splitlines()
    assert len(lines) <= 14 and max(map(len, lines)) <= 80
    assert lines[0] == "Deliberation beats the vote: 53.1% right against 47.5%"
    assert "Lost: 11 failed, 22 truncated, 120 unanswered" in text
    assert "Failed requests: 8 overloaded, 3 timeout" in text
    assert "Claims: on 97.1% of attempts, 68.3% true (balanced); 12.5% self-contr" in text
    assert "Took: 14,400 samples, 130,456 tokens read and 12,353,678 written" in text
    one_sided = dataclasses.replace(summary, claim_balanced_accuracy=None)
    assert "Claims: on 97.1% of attempts; 12.5% self-contr" in printed(print_summary, one_sided)


def test_what_a_reply_says_of_its_server_is_told(summary, printed):
    counts = dataclasses.replace(
        summary.trajectories,
        failures={"answer_in_thinking": 3},
        answered_by={"DeepInfra glm-4.6": 60, "Novita glm-4.6": 20},
        unknown_finish_reasons={"odd": 2},
    )
    text = " ".join(
        printed(print_summary, dataclasses.replace(summary, trajectories=counts)).split()
    )
    assert "In 3 responses the final answer came in the field of the thinking" in text
    assert "--reasoning-parser of this model" in text
    assert "DeepInfra glm-4.6 75.0%, Novita glm-4.6 25.0%" in text
    assert "a final answer, but a finish reason that is not known: 2 odd" in text


def test_caches_whose_tokens_are_estimated_are_marked(printed):
    text = " ".join(printed(tables, invented(readers={"m": 20, ESTIMATED: 1170})).split())
    assert "tokens of 1,170 of 1,190 caches are estimated, one for each UTF-8 byte" in text
    assert "estimated" not in printed(tables, invented(readers={"m": 1190}))


@pytest.mark.parametrize(
    ("difference", "numbers", "reading"),
    [
        (Interval(0.0561, 0.0123, 0.0999), "+5.6 +1.2 to +10.0", "better than the vote"),
        (Interval(0.02, 0.0, 0.04), "+2.0 0.0 to +4.0", "no difference shown"),
        (Interval(-0.05, -0.09, -0.01), "-5.0 -9.0 to -1.0", "worse than the vote"),
    ],
)
def test_the_difference_to_the_vote_is_read_in_words(
    summary, printed, difference, numbers, reading
):
    text = printed(tables, dataclasses.replace(summary, heavy_minus_vote=difference))
    assert _line(text, "HM@4 - V@8") == f"HM@4 - V@8 {numbers} {reading}"


def test_what_is_not_there_is_a_dash_or_nothing(summary, printed):
    text = printed(tables, summary)
    assert text.isascii() and text.endswith("Prompts thinker.brief.en@1; verdicts by math@2.\n")
    assert "Prompts unknown;" in printed(tables, dataclasses.replace(summary, prompts=[]))
    assert _line(text, "emergent").startswith("emergent - 0 of 0")
    assert _line(text, "thinking") == "thinking 9,600 123,456 - 12,345,678 12.35"
    assert _line(text, "deliberating") == "deliberating 4,800 7,000 6,000 8,000 -"
    assert "Unanswered trajectories: 87 no_answer, 33 empty" in text
    assert "Undecided deliberations" not in text and "Unanswered deliberations" not in text
    assert not messages.is_in(text, "no_final_answer"), "1 % of them"
    assert "Round" not in text and "A judge" not in text
    made = dataclasses.replace(summary, claim_coverage=None, claim_balanced_accuracy=None)
    assert _line(text, "self-contradictions").startswith("self-contradictions 12.5% 10.0% to")
    assert "claims made" in text and "claims made" not in printed(tables, made)
    assert "Claims:" not in printed(print_summary, made)


@pytest.mark.parametrize(
    ("cached", "unknown", "said"),
    [(0, 0, "4.20"), (9, 0, "at most 4.20"), (0, 1, "at least 4.20"), (9, 1, "about 4.20")],
)
def test_a_cost_says_which_way_it_may_be_off(summary, printed, cached, unknown, said):
    used = Usage(10, 100, cached, 200, unknown, 0, unknown, 4.2)
    text = printed(tables, dataclasses.replace(summary, usage={"thinking": used}))
    assert _line(text, "thinking").endswith(f" 200 {said}")
    if not unknown:  # where cached tokens have a price, the cost is exact
        used = dataclasses.replace(used, has_cached_price=True)
        text = printed(tables, dataclasses.replace(summary, usage={"thinking": used}))
        assert _line(text, "thinking").endswith(" 200 4.20")


def test_a_run_without_deliberations_says_so(printed):
    nothing = dict.fromkeys(("heavy_mean_at_d", "heavy_pass_at_d", "heavy_minus_vote"))
    small = dataclasses.replace(group(5), **nothing)
    groups = {"by_family": {"a": small, "b": small}, "by_stratum": {"tie": small}}
    gone = {"heavy_minus_mean": None, "rounds": 0, "d": 0, "curve": None, "per_round": []}
    without = invented(**nothing, **groups, **gone)
    text = printed(tables, without)
    assert messages.is_in(text, "no_deliberation") and "HM@" not in text
    assert _line(text, "Source") == "Source M@8 V@8 P@8" and "HM - V" not in text
    assert "takes the tokens" not in text
    assert "too narrow" not in text
    assert "too narrow" in printed(tables, dataclasses.replace(without, problems=29))


def test_groups_of_few_problems_are_marked(summary, printed):
    text = printed(tables, summary)
    assert "(few)" not in text
    assert "The vote defines the strata: in pools of K, HM - V is" in " ".join(text.split())
    # A rate's own interval holds for few problems too.
    rare = dataclasses.replace(summary, emergent=Rate(9, 9, 1.0, Interval(1.0, 0.7, 1.0)))
    assert "(few)" not in printed(tables, rare)
    groups = {"a": group(29), "b": group(30)}
    text = printed(tables, dataclasses.replace(summary, by_family=groups))
    assert _line(text, "29 problems").startswith("29 problems (few) 38-42")
    assert "30 problems (few)" not in text
    assert text.count("(few): fewer than 30 problems") == 1


def test_a_terminal_gets_lines_and_colour(summary):
    file = io.StringIO()
    console = Console(width=80, file=file, force_terminal=True, color_system="standard")
    tables(summary, console)
    text = file.getvalue()
    assert "\N{BOX DRAWINGS LIGHT HORIZONTAL}" in text
    assert "\x1b[32mbetter than the vote" in text


def test_what_a_judge_decided_is_said(summary, printed):
    verdicts = {"asked": 12, "correct": 7, "incorrect": 2, "undecided": 3, "failed": 1}
    votes = {"votes": 1_036, "invalid_votes": 4, "failed_votes": 2}
    judging = Judging(**verdicts, **votes, judges={"org/critic@0123456789ab": 12})
    text = " ".join(printed(tables, dataclasses.replace(summary, judging=judging)).split())
    assert messages.is_in(text, "judge_decided", decided=9, open=12)
    assert "3 are still undecided" in text
    assert "Its votes: 1,036, of which 4 were not a verdict and 2 failed" in text
    assert "Judge: org/critic@0123456789ab, asked about 12" in text
    assert messages.is_in(text, "asks_verdicts_again", count=1)


def test_what_the_tokens_of_a_deliberation_are_worth_is_said(summary, printed):
    text = " ".join(printed(tables, summary).split())
    assert (
        "HM@4 takes the tokens written of 6.0 votes, which are right in 47.0% (40.0 to 54.0); "
        "HM@4 minus that: +6.0 (+1.0 to +11.0) points"
    ) in text
    assert (
        "HM@4 takes the tokens written and read of 8.4 votes; to compare, pools need 9 "
        "trajectories, and have 8"
    ) in text
    assert "Left out of this comparison: 10 with fewer than 8 trajectories" in text
    assert "Left out of tokens written and read: 3, whose tokens are not all known" in text


def test_kinds_strata_and_the_curve_are_shown_where_they_are_asked_for(summary, printed):
    assert "chain_sum" not in printed(print_summary, summary)
    text = printed(tables, summary)
    assert _line(text, "chain_sum") == "chain_sum 40.0 50.0 70.0 60.0 65.0 +10.0"
    assert _line(text, "300 problems") == "300 problems 38-42 47-53 67-73 57-63 62-68 +4 to +15"
    assert "Verifier" not in text  # of one alone, it is what stands above
    assert _line(text, "vote of 1") == "vote of 1 42.0% 38.0% to 47.0% 42.0% 1,000 * 2,000 *"
    assert _line(text, "deliberation on 4").endswith("49.0% to 58.0% 6,000 * 12,000")
    told = _line(text, "vote of 2 delib.")
    assert told.endswith("51.0% to 60.0% 7,000 * 14,000")


GENERAL = ["thinker.general.en@1", "deliberator.general.en@1"]
SHARED = CommonMarker("A:", 795, 800, 200, 198, 67)


def answered(unanswered: int) -> GenerationCounts:
    """Of 100 samples, 80 of which ended by themselves."""
    return GenerationCounts(
        100, 5, {}, 15, 0, 0, 0, {}, unanswered, {"no_answer": unanswered}, decided=80 - unanswered
    )


def of(trajectories: int, deliberations: int = 0, verifier: str = "math", **more: Any) -> Summary:
    return invented(
        trajectories=answered(trajectories),
        deliberations=answered(deliberations),
        by_verifier={verifier: group(100)},
        **more,
    )


MARKER = (
    "; or set the marker if the answers stand behind one: --verifier-args '{marker: \"Answer:\"}'"
)
BRIEF = "; or ask in the short prompts, which small models follow: --set domain=brief"
TOOK_POOLS = {**invented().usage, "thinking": Usage(0, 0, 0, 0, 0, 0, 0)}


@pytest.mark.parametrize(
    ("told", "remedy"),
    [
        (of(25), MARKER),
        *((of(70, verifier=name), "") for name in ("choice", "code", "procedural")),
        (of(41, prompts=GENERAL), MARKER + BRIEF),
        *((of(41, prompts=p), MARKER) for p in (["thinker.brief.en@1"], ["thinker.general.zh@1"])),
        # Pools of another run stay as they are.
        (of(70, usage=TOOK_POOLS), ""),
        (of(70, 60, prompts=GENERAL, usage=TOOK_POOLS), BRIEF),
    ],
)
def test_only_what_would_help_is_offered(told, remedy):
    assert unanswered_warning(told, is_student=True)[-1] == f"Train the format first{remedy}"


def test_the_format_of_a_model_that_nobody_trains_is_not_to_be_trained():
    assert unanswered_warning(of(41, prompts=GENERAL))[-1] == (
        "Set the marker if the answers stand behind one: --verifier-args '{marker: \"Answer:\"}'; "
        "or name a verifier that reads this form: --verifier NAME; or ask in the short prompts, "
        "which small models follow: --set domain=brief"
    )
    assert unanswered_warning(of(80, 80))[-1].endswith(
        "--verifier NAME; or teach the form to weights of yours with worked solutions: "
        "heavydistill import FILE --from solutions, then build and sft"
    )
    told = unanswered_warning(of(70, usage=TOOK_POOLS))
    assert len(told) == 1 and messages.is_in(told[0], "no_final_answer")


@pytest.mark.parametrize(
    ("counts", "is_unread"),
    [((80, 80), True), ((80, 79), False), ((79, 80), False), ((0, 0), False)],
)
def test_a_run_of_which_no_answer_could_be_read_has_no_headline_of_its_vote(counts, is_unread):
    summary = of(*counts)
    assert summary.is_unread == is_unread
    title, support = headline(summary)
    assert (title == message("no_answer_read")) == is_unread
    unread = "Unread: 80 of 80 trajectories (80 no_answer), 80 of 80 deliberations (80 no_answer)"
    assert (support == unread) == is_unread


def test_a_shared_marker_is_told_with_its_numbers_and_as_a_word_of_a_shell():
    assert marker_found(SHARED) == (
        "795 of the 800 unanswered answers that were read end in 'A:' and a value. Of 200 that "
        "were judged with this marker, 198 give an answer and 67 are right."
    )
    assert marker_value(SHARED) == """{marker: "A:"}"""


@pytest.mark.parametrize(
    ("count", "whole", "text"),
    [
        (2_639, 2_640, "2,639 of 2,640 (over 99.9%)"),
        (2_640, 2_640, "2,640 of 2,640 (100.0%)"),
        (1, 2_640, "1 of 2,640 (under 0.1%)"),
        (0, 2_640, "0 of 2,640 (0.0%)"),
        (1, 3, "1 of 3 (33.3%)"),
        (0, 0, "0 of 0 (-)"),
    ],
)
def test_a_part_is_100_per_cent_only_if_it_is_all(count, whole, text):
    assert part(count, whole) == text
