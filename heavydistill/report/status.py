"""A run in progress: on one line, as lines, as lines with a bar, and as a bar in a notebook."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from heavydistill.report.grid import listed, percent
from heavydistill.report.terminal import plain
from heavydistill.schema import OK

if TYPE_CHECKING:
    from rich.console import RenderableType

    from heavydistill.run.status import OnStatus, Status

_QUIET_S = 10.0  # age in seconds from which a status is called old


def picture_of(which: str, status: Status | None, is_alive: bool = True) -> RenderableType:
    """Return ``lines_of`` with a progress bar below the first line."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.progress_bar import ProgressBar

    heading, *lines = map(plain, lines_of(which, status, is_alive))
    stages = status.stages if status else []
    total, done = sum(stage.problems for stage in stages), sum(stage.done for stage in stages)
    bar = ProgressBar(total=max(1, total), completed=done, width=60)
    return Group(heading, Padding(bar), *lines)  # padded, because a bar does not end its line


def line_of(status: Status) -> str:
    """Return the progress of a run on one line."""
    answered, samples = status.samples
    lost = sum(sum(stage.failures.values()) for stage in status.stages)
    written = sum(stage.written_tokens for stage in status.stages)
    parts = [
        f"{span(status.at - status.began)}: {status.finished:,}/{status.problems:,} problems",
        f"{answered:,}/{samples:,} samples",
        f"{lost:,} lost" if lost else "",
        f"{written:,} tokens written" if written else "",
        "" if status.left_s is None else f"{span(status.left_s)} left",
        status.waits_for,
    ]
    return ", ".join(filter(None, parts))


def lines_of(which: str, status: Status | None, is_alive: bool = True) -> list[str]:
    """Return all known facts about a run as lines.

    Args:
        which: Name of the run inside an evaluation.
        status: Status of the run; None while it sends no request.
        is_alive: Whether a process works on it.
    """
    if not status:
        why = "references are checked, or a server is started"
        return [f"{which} has begun and sends no request now: {why}"]
    age, lasts = max(0.0, time.time() - status.at), span(status.at - status.began)
    life = f"{'running' if status.loaded else 'loading'} for {lasts}"
    if not is_alive:
        life = f"the process is gone after {lasts}, last sign of life {span(age)} ago"
    elif age > _QUIET_S:
        life = f"no sign of life for {span(age)}"
    goes_on = "" if is_alive else "the same command goes on from the journal"
    return list(filter(None, [which, life, *_facts(status), goes_on]))


def _facts(status: Status) -> Iterator[str]:
    """Yield a line for each subject; the line is empty if nothing is known."""
    yield f"{status.finished:,} of {status.problems:,} problems finished"
    yield status.waits_for and f"waits for {status.waits_for}"
    for stage in status.stages:
        new = stage.received if stage.done < stage.problems else 0
        more = listed({"new samples": new, "from the journal": stage.from_journal})
        yield f"{stage.name} {stage.done:,}/{stage.problems:,}{more and f', {more}'}"
    left = "time left unknown" if status.left_s is None else f"about {span(status.left_s)} left"
    minute, second = status.problems_per_minute, status.tokens_per_s
    paces = [f"{minute:,.1f} problems a minute"] if minute else []
    paces += [f"{second:,.0f} tokens a second"] if second else []
    yield ", ".join([*paces, left])
    requests = "" if status.requests is None else f"{status.requests:,} requests, "
    yield f"{requests}{status.loaded - status.finished:,} problems begun"
    failures = sum((Counter(stage.failures) for stage in status.stages), Counter[str]())
    if samples := sum(stage.finished for stage in status.stages):
        reasons = f" ({listed(dict(failures.most_common()))})" if failures else ""
        yield f"{failures.total():,} of {samples:,} samples{reasons} failed or cut off"
    yield listed({name: count for name, count in status.statuses.items() if name != OK})
    read = sum(stage.prompt_tokens for stage in status.stages)
    written = sum(max(stage.completion_tokens, stage.written_tokens) for stage in status.stages)
    yield f"{read:,} tokens read, {written:,} written"
    cost = "price unknown" if status.spent_usd is None else f"{status.spent_usd:,.2f} USD"
    if status.budget:
        cost += f", {status.spent_tokens:,} tokens of runs into the folder, budget {status.budget}"
    yield cost
    means = {f"M@{status.k}": status.mean_at_k, f"HM@{status.d}": status.heavy_mean_at_d}
    right = ", ".join(f"{name} {percent(mean)}" for name, mean in means.items() if mean is not None)
    yield f"so far {right}" if right else ""
    models = " and ".join(dict.fromkeys(filter(None, [status.thinker, status.deliberator])))
    yield f"K={status.k}, D={status.d}, {models}"


def span(seconds: float) -> str:
    """Format a time in seconds for display."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


@contextlib.contextmanager
def bar_of(name: str, on_status: OnStatus | None = None) -> Iterator[OnStatus | None]:
    """Yield ``on_status``; in a notebook, if it is None, a function that updates a bar."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if on_status or not hasattr(shell, "kernel"):  # IPython in a terminal has no kernel
        yield on_status
        return
    from tqdm.auto import tqdm

    bars: list[tqdm] = []

    def update(status: Status) -> None:
        done, total = status.samples
        if not bars:  # a bar cannot change its total
            bars.append(held.enter_context(tqdm(desc=name, total=total, unit="sample")))
        bars[0].n = done
        bars[0].set_postfix_str(f"{status.finished:,} of {status.problems:,} problems")

    with contextlib.ExitStack() as held:
        yield update
