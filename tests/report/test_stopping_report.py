"""Early stopping as it is printed: what is claimed, and the numbers beside it."""

import numpy as np
from rich.console import Console

from heavydistill.metrics.experiments.stopping import StoppingReport, StoppingRow, stopping_report
from heavydistill.report.experiments.adaptive import curve, gate, headline, lines, print_stopping


def reported(
    stop: float, heavy: float = 1.0, vote: float = 0.0, one: float = 0.0, n: int = 1400
) -> StoppingReport:
    """Of problems with two attempts and questions of 1,234 characters; prices are unknown."""
    values = [(vote, 1.0), (vote, 2.0), (one, 1.0), (stop, 2.0), (heavy, 4.0)]
    answers = np.array([(right, 0.25, tokens, np.nan, 1.5) for right, tokens in values])
    rows = [StoppingRow(f"p{number}", 2, 1234, answers) for number in range(n)]
    return stopping_report(rows, {"prompts": [], "verifiers": []})


def test_a_confirmed_rule_is_the_headline_with_its_bound():
    title, support = headline(reported(1.0))
    assert title == "Stopping where the first 2 attempts agree saves 50.0% of the tokens written"
    assert "700 others" in support and "bound of the loss +0.4." in support


def test_without_a_rule_the_least_loss_is_said():
    title, support = headline(reported(0.9))
    assert title == "No rule shown that saves tokens and loses at most 0.5 points"
    assert "Stopping where 2 agree loses 10.0 points over 700 problems" in support
    assert "too narrow" in headline(reported(0.9, n=20))[1]


def test_a_pair_below_its_vote_is_said():
    said = [*lines(reported(0.5, heavy=0.2, vote=0.7))]
    assert "Against the better of both: deliberation is right in 20.0%, the vote in 70.0%" in said
    assert any("below its vote" in line for line in said)
    assert not any("below its vote" in line for line in lines(reported(1.0)))


def test_a_gate_is_printed_with_its_loss_whether_it_may_be_used_or_not():
    assert gate(reported(1.0, one=1.0)) == (
        "Gate: one attempt at questions of at most 1,234 characters, and a stop where 2 agree at "
        "others, loses 0.0 points; bound +0.4. A service may use this gate"
    )
    assert gate(reported(0.9, one=0.8)).endswith(
        "and a deliberation at others, loses 20.0 points; bound +20.3. No gate is shown on both "
        "halves"
    )


def test_each_way_to_answer_has_a_row_and_what_is_unknown_a_dash(capsys):
    report = reported(0.8)
    rows = {line.label: line.cells for line in curve(report).lines}
    ways = ["vote of 1", "vote of 2", "stop if 2 agree", "deliberation on 2", "one if short"]
    assert [*rows] == ways
    assert rows["stop if 2 agree"][:5] == ["80.0%", "25.0%", "2", "-", "1.9"]
    print_stopping(report, Console(width=80))
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
