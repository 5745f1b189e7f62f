"""``heavydistill watch``: how far a run is, while it lasts; and the drawing of a run's status."""

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
from heavydistill.report.terminal import plain
from heavydistill.schema import OK

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from heavydistill.run.status import Status

_LOOKS_EVERY_S = 1.0
_PATIENCE_S = 10.0  # between two runs of an evaluation nobody writes for a moment
_NOT_ASKING = "sends no request now: references are checked, or a server is started"
_QUIET_S = 10.0  # after which a file is called old

Seen = tuple[str, "Status"]
"""Name of a run inside of an evaluation or a crossing, and its status."""


def watch(
    run: Annotated[
        Path, typer.Argument(help="Folder of a run or an evaluation, as --out names it.")
    ],
) -> None:
    """Show how far a run is: pace, requests in flight, failures, tokens, cost, time left, M@K.

    On a terminal the picture is kept up to date until the run ends; Ctrl-C leaves it, and the run
    goes on. Elsewhere it is one line. What is right so far is right of the problems that were
    quickest, so it does not estimate the end.
    """
    from rich.console import Console

    console = Console()
    seen = _look(run)
    if console.is_terminal and (seen or _is_begun(run)):
        seen = _follow(run, seen, console)
    elif seen:
        console.print(plain(line_of(*seen, seen[1].is_alive())), soft_wrap=True)
    elif _is_begun(run):
        console.print(plain(f"{run} has begun and {_NOT_ASKING}"), soft_wrap=True)
    else:
        _print_end(run, console)
    if seen and seen[1].is_alive() is False:
        raise typer.Exit(1)


def _look(run: Path) -> Seen | None:
    """``status.running``, which waits a moment for an evaluation that is between two runs."""
    from heavydistill.run.status import running
    from heavydistill.store.atomic import Workplace

    latest = time.monotonic() + _PATIENCE_S
    while not (seen := running(run)):
        if not Workplace(run).path.is_dir() or time.monotonic() > latest:
            return None
        time.sleep(_LOOKS_EVERY_S)
    return seen


def _is_begun(run: Path) -> bool:
    """Whether a process works on it, be it that it has not asked yet."""
    from heavydistill.store.atomic import Workplace

    return Workplace(run).is_claimed


def _follow(run: Path, seen: Seen | None, console: Console) -> Seen | None:
    """Keep a picture up to date until the run ends or is gone; then what it last was."""
    from rich.live import Live

    try:
        with Live(console=console, auto_refresh=False) as live:
            while seen or _is_begun(run):
                if seen:
                    is_alive = seen[1].is_alive()
                    live.update(picture_of(*seen, is_alive), refresh=True)
                    if is_alive is False:
                        return seen
                else:
                    live.update(plain(f"{run} {_NOT_ASKING}"), refresh=True)
                time.sleep(_LOOKS_EVERY_S)
                seen = _look(run)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    _print_end(run, console)
    return None


def line_of(which: str, status: Status, is_alive: bool | None = True) -> str:
    """A status in one line; ``which`` names the run inside of an evaluation.

    ``is_alive`` says whether its process is there; None where that is not known.
    """
    facts = [value for _, value in _facts(status) if value]
    return "; ".join(filter(None, [which, _life(status, is_alive), *facts]))


def picture_of(which: str, status: Status, is_alive: bool | None = True) -> RenderableType:
    """What ``line_of`` says as a table below a bar; arguments as there."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    facts = Table.grid(padding=(0, 2))
    for label, value in _facts(status):
        if value:
            facts.add_row(plain(label), plain(value))
    heading = ", ".join(filter(None, [which, _life(status, is_alive)]))
    who = " and ".join(dict.fromkeys(filter(None, [status.thinker, status.deliberator])))
    style = "bold red" if is_alive is False else "bold"
    return Group(
        plain(f"{heading}: K={status.k}, D={status.d}, {who}", style=style),
        ProgressBar(
            total=max(1, sum(stage.total for stage in status.stages)),
            completed=sum(stage.done for stage in status.stages),
            width=60,
        ),
        facts,
    )


def _life(status: Status, is_alive: bool | None) -> str:
    age = max(0.0, time.time() - status.told)
    lasts = _span(max(0.0, status.told - status.began))
    if is_alive is False:
        return f"the process is gone after {lasts}, last sign of life {_span(age)} ago"
    if age > _QUIET_S:
        place = "" if is_alive else f" on {status.host}"
        return f"no sign of life{place} for {_span(age)}"
    return f"{'running' if status.loaded else 'loading'} for {lasts}"


def _facts(status: Status) -> Iterator[tuple[str, str]]:
    """(label, text) of all that is known of a run; the text of what is not known is empty."""
    from heavydistill.metrics.summary import STRATA

    yield "finished", f"{status.finished:,} of {status.problems:,} problems finished"
    for stage in status.stages:
        parts = [f"{stage.name} {stage.done:,}/{stage.total:,}"]
        if stage.sent and stage.done < stage.total:
            parts.append(f"{stage.ended:,} of {stage.sent:,} samples")
        if stage.from_journal:
            parts.append(f"{stage.from_journal:,} from the journal")
        yield "stage", ", ".join(parts)
    pace = []
    if status.problems_per_minute:
        pace.append(f"{status.problems_per_minute:,.1f} problems a minute")
    if status.tokens_per_s:
        pace.append(f"{status.tokens_per_s:,.0f} tokens a second")
    if status.left_s is not None:
        pace.append(f"about {_span(status.left_s)} left")
    yield "pace", ", ".join(pace) or "time left unknown"
    requests = "" if status.requests is None else f"{status.requests:,} requests, "
    yield "in flight", f"{requests}{status.loaded - status.finished:,} problems begun"
    kinds: Counter[str] = Counter()
    for stage in status.stages:
        kinds.update(stage.failures)
    reasons = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
    if asked := sum(stage.asked for stage in status.stages):
        because = f" ({reasons})" if reasons else ""
        yield "failures", f"{kinds.total():,} of {asked:,} samples{because} failed or cut off"
    others = [f"{count:,} {name}" for name, count in status.statuses.items() if name != OK]
    yield "problems", ", ".join(others)
    if status.unanswered:
        counts = f"{status.unanswered:,} of {status.judged:,} finished samples"
        yield "unanswered", f"{counts} without a final answer"
    read = sum(stage.prompt_tokens for stage in status.stages)
    written = sum(stage.tokens for stage in status.stages)
    yield "tokens", f"{read:,} tokens read, {written:,} written"
    if status.usd is None:
        yield "cost", "price unknown"
    else:
        yield "cost", "free" if status.requests is None else f"{status.usd:,.2f} USD"
    means = [(f"M@{status.k}", status.mean_at_k), (f"HM@{status.d}", status.heavy_mean_at_d)]
    right = [f"{name} {percent(value)}" for name, value in means if value is not None]
    right += [f"{status.strata[name]:,} {name}" for name in STRATA if name in status.strata]
    yield "right", f"so far {', '.join(right)}" if right else ""


def _span(seconds: float) -> str:
    """As people say it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def _print_end(run: Path, console: Console) -> None:
    """The end state of a run, or of all of an evaluation.

    Raises:
        ConfigError: There is none.
        Exit: It was broken off, with code 1.
    """
    from heavydistill.store.atomic import Workplace

    places = {"": run, **{path.parent.name: path.parent for path in run.glob("*/summary.json")}}
    ended = {
        name: path for name, path in sorted(places.items()) if (path / "summary.json").is_file()
    }
    if not ended:
        raise ConfigError(
            f"There is no run {run}: it has no summary.json, and no run in progress has a status "
            f"in {Workplace(run).path}",
            "Give the folder that --out names, or that the run printed. A run is seen as soon as "
            "it sends requests: before, its references are checked and a server is started. One "
            "that was stopped before anything was finished leaves no folder.",
        )
    ends = [_end(path) for path in ended.values()]
    for name, (is_broken, figures) in zip(ended, ends, strict=True):
        shown = f"{run} ({name})" if name else str(run)
        how = "was broken off" if is_broken else "is finished"
        console.print(plain(f"{shown} {how}: {figures}"), soft_wrap=True)
    if any(is_broken for is_broken, _ in ends):
        raise typer.Exit(1)


def _end(folder: Path) -> tuple[bool, str]:
    """(whether problems are missing, what came out)."""
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        figures = [
            (f"M@{summary['k']}", summary["mean_at_k"]),
            (f"V@{summary['k']}", summary["vote_at_k"]),
            (f"P@{summary['k']}", summary["pass_at_k"]),
            (f"HM@{summary['d']}", summary["heavy_mean_at_d"]),
        ]
        shown = ", ".join(f"{name} {percent(value['mean'])}" for name, value in figures if value)
        stages = (summary["trajectories"], summary["deliberations"])
        lacks = {
            "problems missing": summary["missing"],
            "rows rejected": summary["rejects"],
            "requests failed": sum(stage["failed"] for stage in stages),
            # A run of an earlier version did not count them.
            "samples unanswered": sum(stage.get("unanswered") or 0 for stage in stages),
        }
        rest = "".join(f"; {count:,} {what}" for what, count in lacks.items() if count)
        return bool(summary["missing"]), f"{summary['problems']:,} problems; {shown}{rest}"
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{folder}/summary.json cannot be read: {type(error).__name__}: {error}",
            "Read it with the heavydistill that wrote it.",
        ) from error
