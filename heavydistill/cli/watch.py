"""``heavydistill watch``: how far a run is, while it lasts."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heavydistill.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from heavydistill.run.status import Seen, StageStatus, Status

_LOOKS_EVERY_S = 1.0
# Between two runs of an evaluation nobody writes for a moment.
_PATIENCE_S = 10.0
_NOT_ASKING = "it asks nobody just now: references are checked, or a server is started"
_QUIET_S = 10.0  # after which a file is called old


def watch(
    run: Annotated[
        Path, typer.Argument(help="Folder of a run or an evaluation, as --out names it.")
    ],
) -> None:
    """Show how far a run is: pace, what is in flight, failures, tokens, cost, time left, M@K.

    On a terminal the picture is kept up to date until the run ends; Ctrl-C leaves it, and the run
    goes on. Elsewhere it is one line. What is right so far is right of the problems that were
    quickest, so it is no estimate of the end.
    """
    from rich.console import Console

    from heavydistill.report.terminal import plain

    console = Console()
    seen = _look(run)
    if console.is_terminal and (seen or _is_begun(run)):
        seen = _follow(run, seen, console)
    elif seen:
        _print_line(seen, console)
    elif _is_begun(run):
        console.print(plain(f"{run} has begun; {_NOT_ASKING}"), soft_wrap=True)
    else:
        _print_end(run, console)
    if seen and seen.is_alive is False:
        raise typer.Exit(1)


def _look(run: Path) -> Seen | None:
    """As of ``status.running``; it waits a moment for an evaluation that is between two runs."""
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

    from heavydistill.report.terminal import plain

    try:
        with Live(console=console, auto_refresh=False) as live:
            while seen or _is_begun(run):
                shown = _picture(seen) if seen else plain(f"{run}: {_NOT_ASKING}")
                live.update(shown, refresh=True)
                if seen and seen.is_alive is False:
                    return seen
                time.sleep(_LOOKS_EVERY_S)
                seen = _look(run)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    _print_end(run, console)
    return None


def _print_line(seen: Seen, console: Console) -> None:
    from heavydistill.report.terminal import plain

    parts = [seen.which, *_told(seen)]
    console.print(plain("; ".join(part for part in parts if part)), soft_wrap=True)


def _told(seen: Seen) -> Iterator[str]:
    """What is known, in a few words each."""
    status = seen.status
    yield _life(seen)
    yield f"{status.finished:,} of {status.problems:,} problems finished"
    for stage in status.stages:
        beside = "".join(f", {part}" for part in _samples(stage))
        yield f"{stage.name} {stage.done:,}/{stage.total:,}{beside}"
    yield _pace(status)
    yield _in_flight(status)
    yield f"{_failures(status)} failed or cut off"
    if status.unanswered:
        yield f"{_unanswered(status)} without a final answer"
    yield _tokens(status)
    yield _cost(status)
    strata = ", ".join(f"{count:,} {name}" for name, count in _strata(status))
    if right := ", ".join(part for part in (_right(status), strata) if part):
        yield f"so far {right}"


def _picture(seen: Seen) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    from heavydistill.report.terminal import plain

    status = seen.status
    bars = Table.grid(padding=(0, 2))
    for stage in status.stages:
        bars.add_row(
            plain(stage.name),
            ProgressBar(total=max(1, stage.total), completed=stage.done, width=30),
            plain(f"{stage.done:,}/{stage.total:,}"),
            plain(", ".join(_samples(stage))),
        )
    facts = Table.grid(padding=(0, 2))
    heading = ", ".join(part for part in (seen.which, _life(seen)) if part)
    who = " and ".join(dict.fromkeys(name for name in (status.thinker, status.deliberator) if name))
    rows = [
        ("finished", f"{status.finished:,} of {status.problems:,} problems"),
        ("of them", ", ".join(f"{count:,} {name}" for name, count in status.statuses.items())),
        ("pace", _pace(status)),
        ("in flight", _in_flight(status)),
        ("failures", _failures(status)),
        ("unanswered", _unanswered(status)),
        ("tokens", _tokens(status)),
        ("cost", _cost(status)),
        ("right so far", _right(status)),
    ]
    for label, value in rows:
        if value:
            facts.add_row(label, plain(value))
    strata = Table(box=box.SIMPLE_HEAD, show_edge=False)
    if status.strata:
        strata.add_column("Stratum so far")
        strata.add_column("Problems", justify="right")
        for name, count in _strata(status):
            strata.add_row(name, f"{count:,}")
    style = "bold red" if seen.is_alive is False else "bold"
    title = plain(f"{heading}: K={status.k}, D={status.d}, {who}", style=style)
    return Group(title, bars, facts, *([strata] if status.strata else []))


def _samples(stage: StageStatus) -> Iterator[str]:
    """Of a stage, beside the problems that have left it."""
    if stage.sent and stage.done < stage.total:
        yield f"{stage.ended:,} of {stage.sent:,} samples"
    if stage.from_journal:
        yield f"{stage.from_journal:,} from the journal"


def _life(seen: Seen) -> str:
    status = seen.status
    age = max(0.0, time.time() - status.told)
    lasts = _span(max(0.0, status.told - status.began))
    if seen.is_alive is False:
        return f"the process is gone after {lasts}, last sign of life {_span(age)} ago"
    if age > _QUIET_S:
        place = "" if seen.is_alive else f" on {status.host}"
        return f"no sign of life{place} for {_span(age)}"
    what = "running" if status.loaded else "loading"
    return f"{what} for {lasts}"


def _pace(status: Status) -> str:
    parts = []
    if status.problems_per_minute:
        parts.append(f"{status.problems_per_minute:,.1f} problems a minute")
    if status.tokens_per_s:
        parts.append(f"{status.tokens_per_s:,.0f} tokens a second")
    if status.left_s is not None:
        parts.append(f"about {_span(status.left_s)} left")
    return ", ".join(parts) or "time left unknown"


def _in_flight(status: Status) -> str:
    inside = f"{status.loaded - status.finished:,} problems begun"
    return inside if status.requests is None else f"{status.requests:,} requests, {inside}"


def _failures(status: Status) -> str:
    kinds: Counter[str] = Counter()
    for stage in status.stages:
        kinds.update(stage.failures)
    asked = sum(stage.asked for stage in status.stages)
    reasons = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
    of = f"{kinds.total():,} of {asked:,} samples"
    return f"{of} ({reasons})" if reasons else of


def _unanswered(status: Status) -> str:
    if not status.unanswered:
        return ""
    return f"{status.unanswered:,} of {status.judged:,} finished samples"


def _tokens(status: Status) -> str:
    prompt = sum(stage.prompt_tokens for stage in status.stages)
    written = sum(stage.completion_tokens for stage in status.stages)
    return f"{prompt:,} tokens read, {written:,} written"


def _cost(status: Status) -> str:
    if status.usd is None:
        return "price unknown"
    return f"{status.usd:,.2f} USD" if status.requests is not None else "nothing to pay"


def _right(status: Status) -> str:
    from heavydistill.report.grid import percent

    parts = [(f"M@{status.k}", status.mean_at_k), (f"HM@{status.d}", status.heavy_mean_at_d)]
    return ", ".join(f"{name} {percent(value)}" for name, value in parts if value is not None)


def _strata(status: Status) -> list[tuple[str, int]]:
    from heavydistill.metrics.summary import STRATA

    return [(name, status.strata[name]) for name in STRATA if name in status.strata]


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
    from heavydistill.report.terminal import plain
    from heavydistill.store.atomic import Workplace

    places = {"": run, **{path.parent.name: path.parent for path in run.glob("*/summary.json")}}
    ended = {
        name: path for name, path in sorted(places.items()) if (path / "summary.json").is_file()
    }
    if not ended:
        raise ConfigError(
            f"There is no run {run}: it has no summary.json, and no run that lasts tells in "
            f"{Workplace(run).path} how far it is",
            "Give the folder that --out names, or that the run printed. A run is seen as soon as "
            "it asks: before, its references are checked and a server is started. One that was "
            "stopped before anything was finished leaves no folder.",
        )
    ends = [_end(path) for path in ended.values()]
    for name, (is_broken, told) in zip(ended, ends, strict=True):
        shown = f"{run} ({name})" if name else str(run)
        how = "was broken off" if is_broken else "is finished"
        console.print(plain(f"{shown} {how}: {told}"), soft_wrap=True)
    if any(is_broken for is_broken, _ in ends):
        raise typer.Exit(1)


def _end(folder: Path) -> tuple[bool, str]:
    """(whether problems are missing, what came out)."""
    from heavydistill.report.grid import percent

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
        failed = sum(stage["failed"] for stage in stages)
        # A run of an earlier version did not count them.
        unanswered = sum(stage.get("unanswered") or 0 for stage in stages)
        lacks = {
            "problems missing": summary["missing"],
            "rows rejected": summary["rejects"],
            "requests failed": failed,
            "samples unanswered": unanswered,
        }
        rest = "".join(f"; {count:,} {what}" for what, count in lacks.items() if count)
        return bool(summary["missing"]), f"{summary['problems']:,} problems; {shown}{rest}"
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{folder}/summary.json cannot be read: {type(error).__name__}: {error}",
            "Read it with the heavydistill that wrote it.",
        ) from error
