r"""What became of the samples of each stage: the table, and a warning where many are unanswered.

The warning names what a final answer looks like to the verifiers of the run (a ``\boxed{}``, the
letter of an option, a block of code) and what can be done.

A marker that the answers share (``verifiers.markers``) is shown as the value of an option.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console

from heavydistill.metrics.counts import COLUMNS, GenerationCounts, unanswered_facts
from heavydistill.metrics.summary import Summary
from heavydistill.report.text import plain, print_table, table

if TYPE_CHECKING:
    from heavydistill.verifiers.markers import Shared

_MOST = 0.5
_WITH_MARKER = ("math", "exact")


def print_samples(samples: Mapping[str, GenerationCounts], console: Console) -> None:
    """Print how many samples of each name came to nothing."""
    rows = table(console, "Samples", "all", *COLUMNS)
    for name, counts in samples.items():
        rows.add_row(plain(name), *counts.cells)
    print_table(rows, console)


def print_unanswered(summary: Summary, console: Console, *, of: str = "") -> None:
    """Print the warning, if there is one.

    Args:
        summary: The run's.
        console: Where it is printed.
        of: Name of the run, where several are shown together.
    """
    for line in unanswered_warning(summary):
        shown = f"{of}: {line}" if of else line
        console.print(plain(shown, style="bold red"), soft_wrap=True)


def unanswered_warning(summary: Summary) -> list[str]:
    """The stages of a run with many unanswered samples, and then what can be done about them."""
    facts = list(unanswered_facts(summary.samples, summary.by_verifier))
    return [*facts, _remedy(summary)] if facts else []


def marker_found(shared: Shared) -> str:
    """What was found out about a marker."""
    return (
        f"{shared.count:,} of the {shared.of:,} unanswered answers that were read end in "
        f"{shared.marker!r} and a value. Of {shared.judged:,} that were judged with this marker, "
        f"{shared.answers:,} give an answer and {shared.right:,} are right."
    )


def marker_value(shared: Shared) -> str:
    """The arguments of the verifier with the marker, as one word of a shell."""
    pairs = (
        f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in shared.arguments.items()
    )
    return shlex.quote(f"{{{', '.join(pairs)}}}")


def _remedy(summary: Summary) -> str:
    """What can be done; where the pools are those of another run, only about deliberations."""
    took_pools = bool(summary.trajectories.total) and not summary.usage["thinking"].requests
    asked = [summary.deliberations] if took_pools else summary.samples.values()
    ways = ["train the format first"]
    if not took_pools and any(name in _WITH_MARKER for name in summary.by_verifier):
        ways.append(
            "set the marker if the answers stand behind one: "
            "--set problems.verifier_args='{marker: \"Answer:\"}'"
        )
    is_general = any(".general.en@" in prompt for prompt in summary.prompts)
    if is_general and max(counts.unanswered_share for counts in asked) > _MOST:
        ways.append("ask in the short prompts, which small models follow: --set domain=brief")
    told = "; or ".join(ways)
    return f"{told[0].upper()}{told[1:]}"
