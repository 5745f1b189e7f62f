"""How a command ends that has made several runs: where they are, and what failed in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from heavydistill.run.generate import Finished


def end(
    what: str, folder: Path, journal: Path, finished: Mapping[str, Finished], console: Console
) -> None:
    """Say where it is; and if what failed is in the figures, that.

    Args:
        what: Has been made, e.g. ``Evaluation``.
        folder: Of it.
        journal: Of its runs.
        finished: Its runs, by the names of their folders.
        console: Where to.

    Raises:
        Exit: Something failed, with code 1.
    """
    runs = ", ".join(f"{folder}/{name}" for name in finished)
    lines = [f"{what}: {folder}, its runs: {runs}"]
    for name, each in finished.items():
        summary = each.summary
        failed = summary.deliberations.failed + summary.judging.failed
        # Those of a run whose pools were taken over are counted there.
        failed += summary.trajectories.failed if summary.usage["thinking"].requests else 0
        if failed or each.rejects:
            lines.append(
                f"Of the run {name}, {failed:,} request(s) and {each.rejects:,} row(s) failed, "
                "and count as wrong."
            )
    is_whole = len(lines) == 1
    if not is_whole:
        lines.append(
            f"Remove {folder} and give the same command to ask for them again; all else is in "
            f"{journal}."
        )
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if not is_whole:
        raise typer.Exit(1)
