"""The step table and the step vote of a run as a grid and as lines, and their changes.

Not covered: computing the numbers (``metrics.steps``).
"""

from __future__ import annotations

from collections.abc import Iterator

from heavydistill.metrics.summary import Summary
from heavydistill.report.grid import (
    Grid,
    Line,
    bracketed,
    counted,
    difference,
    marked,
    percent,
    share,
)

NAMES = {
    "unanimous_true": ("agree, true value", "the attempts have one value, which is true"),
    "unanimous_false": ("agree, false value", "they have one value, which is false"),
    "parting": ("part", "they have several values, one of which is true"),
    "parting_minus_plurality": ("part: written - most", "over copying the value of most attempts"),
    "step_vote": ("step vote", "at each step the value of most attempts, no arithmetic"),
    "heavy_minus_step_vote": ("HM - step vote", "paired by problem"),
}
"""Name and meaning of the rows of the step table, and of the other figures of a comparison."""
NOTE = (
    "Steps a op b = c that two or more attempts of a cache have with the same operands: share of "
    "true values that deliberations write, and that copying the value of most attempts, or of any "
    "one, would write."
)
_NO_STEPS = "No step table: no two attempts of a cache have a step a op b = c in common."


def table(summary: Summary) -> Grid:
    """Return the step table; no rows if there are no such steps."""
    rows = []
    for key, row in summary.steps.items():
        shares = [share(each) for each in (row.written, row.plurality, row.picked)]
        note = marked(
            f"{counted(row.steps, 'step')}, {counted(row.problems, 'problem')}", row.problems
        )
        rows.append(Line(NAMES[key][0], [*shares, difference(row.written_minus_plurality)], note))
    return Grid(["Attempts", "Written", "Most", "Any one", "Written - most"], rows, [NOTE])


def lines(summary: Summary) -> Iterator[str]:
    """Yield the step table on one line, and the step vote on another, if there are any."""
    table = summary.steps
    said = []
    if parts := table.get("parting"):
        against = f"{percent(parts.plurality.mean)} by copying most"
        said.append(f"{percent(parts.written.mean)} where attempts part ({against})")
    for key, name in (("unanimous_true", "true"), ("unanimous_false", "false")):
        if row := table.get(key):
            said.append(f"{percent(row.written.mean)} where they agree on a {name} value")
    if said:
        yield f"Steps, true values: {', '.join(said)}"
    if vote := summary.step_vote:
        over = bracketed(vote.heavy_minus, signed=True)
        some = f", over the {counted(vote.problems, 'problem')} where it is defined"
        of = "" if vote.problems == summary.problems else some
        yield (
            f"Step vote: {percent(vote.accuracy.mean)} right; HM@{summary.d} - step vote {over} "
            f"points{of}"
        )


def missing(summary: Summary) -> list[str]:
    """Return the sentence that there is no step table, if there are deliberations but no steps."""
    return [_NO_STEPS] if summary.heavy_mean_at_d and not summary.steps else []
