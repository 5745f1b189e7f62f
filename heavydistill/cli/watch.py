"""``heavydistill watch``: how far a run is, while it lasts; and the lines that say it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heavydistill.errors import ConfigError
from heavydistill.report.grid import percent
from heavydistill.report.terminal import plain, print_lines
from heavydistill.schema import OK

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from heavydistill.run.status import Status

_LOOKS_EVERY_S = 1.0
_PATIENCE_S = 10.0  # between two runs of an evaluation nobody writes for a moment
_QUIET_S = 10.0  # after which a status is called old


# Name of a run inside of an evaluation, its status (None while it sends no request), and whether a
# process works on it.
_Seen = tuple[str, "Status | None", bool]


def watch(
    run: Annotated[Path, typer.Argument(help="Folder of a run or an evaluation, as in its --out.")],
) -> None:
    """Show the progress of a run: pace, failures, tokens, cost, time left, M@K.

    On a terminal it is updated until the run ends; Ctrl-C ends the display, not the run. Without a
    terminal it is printed once. M@K so far comes from the quickest problems and does not estimate
    the result.
    """
    from rich.console import Console

    console = Console()
    seen = _look(run)
    if seen and console.is_terminal:
        seen = _follow(run, seen, console)
    elif seen:
        print_lines(lines_of(*seen), console)
    if seen is None:
        _print_end(run, console)
    elif not seen[2]:
        raise typer.Exit(1)


def _look(run: Path) -> _Seen | None:
    """What goes on; waits a moment for an evaluation that is between two runs."""
    from heavydistill.run.status import running
    from heavydistill.store.atomic import Workplace

    latest = time.monotonic() + _PATIENCE_S
    while True:
        found, is_alive = running(run), Workplace(run).is_claimed
        if found and not is_alive:
            found = running(run)  # it has ended meanwhile, unless it was killed
        if found:
            return *found, is_alive
        if not is_alive:
            return None
        if time.monotonic() > latest:
            return str(run), None, True
        time.sleep(_LOOKS_EVERY_S)


def _follow(run: Path, seen: _Seen | None, console: Console) -> _Seen | None:
    """Keep a picture up to date until the run ends, or is seen to be killed."""
    from rich.live import Live

    try:
        with Live(console=console, auto_refresh=False) as live:
            while seen:
                live.update(picture_of(*seen), refresh=True)
                if not seen[2]:
                    break
                time.sleep(_LOOKS_EVERY_S)
                seen = _look(run)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    return seen


def picture_of(which: str, status: Status | None, is_alive: bool = True) -> RenderableType:
    """``lines_of`` with a bar below the first of them."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar

    heading, *lines = map(plain, lines_of(which, status, is_alive))
    stages = status.stages if status else []
    total, done = sum(stage.total for stage in stages), sum(stage.done for stage in stages)
    return Group(heading, ProgressBar(total=max(1, total), completed=done, width=60), *lines)


def line_of(status: Status) -> str:
    """How far a run is, in one line."""
    there, samples = status.samples
    lost = sum(sum(stage.failures.values()) for stage in status.stages)
    parts = [
        f"{_span(status.at - status.began)}: {status.finished:,}/{status.problems:,} problems",
        f"{there:,}/{samples:,} samples",
        f"{lost:,} lost" if lost else "",
        "" if status.left_s is None else f"{_span(status.left_s)} left",
    ]
    return ", ".join(filter(None, parts))


def lines_of(which: str, status: Status | None, is_alive: bool = True) -> list[str]:
    """All that is known of a run, for people; see ``_Seen``."""
    if not status:
        start = "references are checked, or a server is started"
        return [f"{which} has begun and sends no request now: {start}"]
    age, lasts = max(0.0, time.time() - status.at), _span(max(0.0, status.at - status.began))
    goes_on = "" if is_alive else "the same command goes on from the journal"
    if not is_alive:
        life = f"the process is gone after {lasts}, last sign of life {_span(age)} ago"
    elif age > _QUIET_S:
        life = f"no sign of life for {_span(age)}"
    else:
        life = f"{'running' if status.loaded else 'loading'} for {lasts}"
    return list(filter(None, [which, life, *_facts(status), goes_on]))


def _facts(status: Status) -> Iterator[str]:
    """What is not known is empty."""
    who = " and ".join(dict.fromkeys(filter(None, [status.thinker, status.deliberator])))
    yield f"{status.finished:,} of {status.problems:,} problems finished"
    for stage in status.stages:
        parts = [f"{stage.name} {stage.done:,}/{stage.total:,}"]
        if stage.ended and stage.done < stage.total:
            parts.append(f"{stage.ended:,} new samples")
        if stage.from_journal:
            parts.append(f"{stage.from_journal:,} from the journal")
        yield ", ".join(parts)
    pace = []
    if status.problems_per_minute:
        pace.append(f"{status.problems_per_minute:,.1f} problems a minute")
    if status.tokens_per_s:
        pace.append(f"{status.tokens_per_s:,.0f} tokens a second")
    left = "time left unknown" if status.left_s is None else f"about {_span(status.left_s)} left"
    yield ", ".join([*pace, left])
    requests = "" if status.requests is None else f"{status.requests:,} requests, "
    yield f"{requests}{status.loaded - status.finished:,} problems begun"
    failures: Counter[str] = Counter()
    for stage in status.stages:
        failures.update(stage.failures)
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in failures.most_common())
    if asked := sum(stage.asked for stage in status.stages):
        because = f" ({reasons})" if reasons else ""
        yield f"{failures.total():,} of {asked:,} samples{because} failed or cut off"
    yield ", ".join(f"{count:,} {name}" for name, count in status.statuses.items() if name != OK)
    read = sum(stage.prompt_tokens for stage in status.stages)
    written = sum(stage.completion_tokens for stage in status.stages)
    yield f"{read:,} tokens read, {written:,} written"
    if status.requests is None and status.spent_usd is not None:
        cost = "free"
    else:
        known = status.spent_usd is not None
        cost = f"{status.spent_usd:,.2f} USD" if known else "price unknown"
    if status.budget:
        cost += f", {status.spent_tokens:,} tokens of runs into the folder, budget {status.budget}"
    yield cost
    means = [(f"M@{status.k}", status.mean_at_k), (f"HM@{status.d}", status.heavy_mean_at_d)]
    right = ", ".join(f"{name} {percent(mean)}" for name, mean in means if mean is not None)
    yield f"so far {right}" if right else ""
    yield f"K={status.k}, D={status.d}, {who}"


def _span(seconds: float) -> str:
    """As people say it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def _print_end(run: Path, console: Console) -> None:
    """The end state of a run, or of all of an evaluation.

    Raises:
        ConfigError: There is no such run.
        Exit: The run was interrupted; code 1.
    """
    from heavydistill.store.atomic import Workplace

    files = [run / "summary.json", *sorted(run.glob("*/summary.json"))]
    if not (files := [file for file in files if file.is_file()]):
        raise ConfigError(
            f"There is no run {run}: neither a finished one with a summary.json, nor one in "
            f"progress with a status in {Workplace(run).path}",
            "Give the folder that --out named or the run printed. A run has a status once it sends "
            "requests, and leaves no folder if it is stopped before a problem is finished.",
        )
    lacking = 0
    for file in files:
        try:
            summary = json.loads(file.read_text(encoding="utf-8"))
            failed = summary["trajectories"]["failed"] + summary["deliberations"]["failed"]
            missing, total, rejects = summary["missing"], summary["problems"], summary["rejects"]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise ConfigError(
                f"{file} cannot be read: {type(error).__name__}: {error}",
                "Read it with the heavydistill that wrote it.",
            ) from error
        lacking += missing
        counts = {"problems missing": missing, "rows rejected": rejects, "requests failed": failed}
        rest = "".join(f", {count:,} {what}" for what, count in counts.items() if count)
        end = "was broken off" if missing else "is finished"
        console.print(plain(f"{file.parent} {end}: {total:,} problems{rest}"), soft_wrap=True)
    if lacking:
        raise typer.Exit(1)
