"""The plots of runs as SVG; colours come from the page's style.

Every plot has a title for screen readers, and the page shows its numbers in a table next to it.
Series also differ in shape, dashes or hatching, never in colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from heavydistill.metrics.curve import Point
from heavydistill.metrics.intervals import Interval
from heavydistill.report.grid import percent
from heavydistill.report.page.html import tag
from heavydistill.report.summary import point_name

_WIDTH = 440
_LEFT, _RIGHT = 174, 22  # margins of plots with named rows
_ROW, _BAR = 30, 22
_AXIS = 42  # height of an axis with its title
_CURVE_LEFT, _CURVE_RIGHT, _CURVE_TOP, _CURVE_HEIGHT = 44, 14, 28, 270
_TICK_GAP = 48  # gap between the numbers below an axis
_NAME_LENGTH = 20  # maximum characters of a row's name
_DIGIT_WIDTH = 7.5
_STEPS = (5, 10, 25)  # per cent from one tick to the next
_MOST_STEPS = 6
_COLOURS = 5  # classes c0, c1, ... of series; "pass" has another class
_HATCHES = {
    "rescued": "M0 8L8 0",
    "emergent": "M0 8L8 0M0 0L8 8",
    "overturned": "M0 0L8 8",
    "lost": "M4 0V8",
    "majority-right": "M0 8L8 0",
    "tie": "M4 0V8",
    "minority-right": "M0 0L8 8",
    "read": "M0 8L8 0",
}


class Series(NamedTuple):
    """Points that are joined by one line."""

    name: str  # name of the run; empty if the plot has one run
    way: str  # "vote", "pass" or "deliberation": the shape of the marks
    colour: str  # CSS class of the colour
    points: list[Point]


def shares_plot(title: str, axis: str, named: Sequence[tuple[str, Interval]]) -> Markup:
    bottom, ticks = _ROW * len(named), _ticks(value.low for _, value in named)

    def at(share: float) -> float:
        first = ticks[0] / 100
        return _LEFT + (share - first) / (1 - first) * (_WIDTH - _LEFT - _RIGHT)

    parts = []
    for tick in ticks:
        parts.append(_line(at(tick / 100), 0, at(tick / 100), bottom, "grid"))
        parts.append(_text(at(tick / 100), bottom + 16, f"{tick}%", "middle"))
    parts.append(_text(_WIDTH - 8, bottom + 34, axis, "end"))
    for number, (name, value) in enumerate(named):
        y = _ROW * (number + 0.5)
        parts.append(_text(_LEFT - 8, y + 4, name, "end", "name"))
        parts.append(_line(at(value.low), y, at(value.high), y, "interval c0"))
        parts += [_line(at(x), y - 5, at(x), y + 5, "interval c0") for x in (value.low, value.high)]
        parts.append(_mark("vote", at(value.mean), y, "c0"))
    return _svg(title, bottom + _AXIS, parts)


def curve_plot(runs: Mapping[str, Sequence[Point]]) -> Markup:
    """Plot accuracy over generated tokens, on a logarithmic axis with a grid line per doubling.

    A mark is hollow if another way to answer has at least this accuracy with fewer tokens. Several
    runs share the axes, each in a different colour and without the pass@k curve.
    """
    series = list(_series(runs))
    points = [point for each in series for point in each.points]
    doublings = [_doubling(point) for point in points]
    low, high = min(doublings) - 0.15, max(1, *doublings) + 0.15
    ticks = _ticks(point.accuracy.low for point in points)
    first, right = ticks[0] / 100, _WIDTH - _CURVE_RIGHT

    def across(doubling: float) -> float:
        return _CURVE_LEFT + (doubling - low) / (high - low) * (right - _CURVE_LEFT)

    def up(share: float) -> float:
        height = _CURVE_HEIGHT - _CURVE_TOP
        return _CURVE_HEIGHT - (share - first) / (1 - first) * height

    begins = f", axis begins at {ticks[0]}%" if ticks[0] else ""
    parts = [_text(0, 10, f"Right answers, with 95% intervals{begins}", "start")]
    for tick in ticks:
        y = up(tick / 100)
        parts.append(_line(_CURVE_LEFT, y, right, y, "grid"))
        parts.append(_text(_CURVE_LEFT - 6, y + 4, f"{tick}%", "end"))
    labelled = -math.inf  # position of the last number
    for power in range(math.ceil(low), math.floor(high) + 1):
        x = across(power)
        parts.append(_line(x, _CURVE_TOP, x, _CURVE_HEIGHT, "grid"))
        if x - labelled > _TICK_GAP:
            parts.append(_text(x, _CURVE_HEIGHT + 16, _short(2.0**power), "middle"))
            labelled = x
    parts.append(_text(right, _CURVE_HEIGHT + 34, "Tokens written per problem, doubling", "end"))
    marks = []
    for name, way, colour, of_way in series:
        places = [(across(_doubling(p)), up(p.accuracy.mean)) for p in of_way]
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(tag("polyline", points=corners, class_=f"curve {colour}"))
        for (x, y), point in zip(places, of_way, strict=True):
            hollow = "" if way == "pass" or point.pareto["completion"] else " outdone"
            hint = f"{name}: {_hint(point)}" if name else _hint(point)
            ranges = up(point.accuracy.low), up(point.accuracy.high)
            interval = _line(x, ranges[0], x, ranges[1], f"interval {colour}")
            mark = _mark(way, x, y, colour + hollow)
            marks.append(tag("g", tag("title", hint), interval, mark))
    return _svg("Accuracy over tokens", _CURVE_HEIGHT + _AXIS, [*parts, *marks])


def run_colour(number: int) -> str:
    """Return the CSS class of the colour of a run by its number among several."""
    return f"c{number % _COLOURS}"


def _series(runs: Mapping[str, Sequence[Point]]) -> Iterator[Series]:
    alone = len(runs) == 1
    for number, (run, points) in enumerate(runs.items()):
        name = "" if alone else run
        votes, passes = ([p for p in points if p.way == way] for way in ("vote", "pass"))
        heavy = [p for p in points if p.way not in ("vote", "pass")]
        if alone and passes:
            yield Series(name, "pass", "pass", passes)
        if votes:
            yield Series(name, "vote", run_colour(number), votes)
        if heavy:
            yield Series(name, "deliberation", run_colour(number + alone), heavy)


def _doubling(point: Point) -> float:
    return math.log2(max(point.tokens["completion"].mean, 1))


def _hint(point: Point) -> str:
    tokens = point.tokens["completion"].mean
    return f"{point_name(point)}: {percent(point.accuracy.mean)}, {tokens:,.0f} tokens"


def _mark(way: str, x: float, y: float, classes: str) -> Markup:
    if way == "pass":
        return tag("rect", x=x - 4, y=y - 4, width=8, height=8, class_="mark pass")
    if way == "vote":
        return tag("circle", cx=x, cy=y, r=4.5, class_=f"mark vote {classes}")
    corners = f"M{x:.1f} {y - 6.5:.1f}l6.5 6.5l-6.5 6.5l-6.5-6.5z"
    return tag("path", d=corners, class_=f"mark deliberation {classes}")


def stacked_plot(
    title: str, rows: Sequence[tuple[str, Mapping[str, int]]], *, shares: bool = False
) -> Markup:
    """Plot rows of stacked bars, with the sum at the end of each.

    A bar that is alone in its row is the sum, so its number is shown once.

    Args:
        title: Title for screen readers.
        rows: Name of each row, and the numbers by kind of bar.
        shares: Whether all rows are equally long and show per cents, as for several runs.
    """
    most = max((sum(numbers.values()) for _, numbers in rows), default=0) or 1
    room = _WIDTH - _LEFT - _RIGHT - _DIGIT_WIDTH * len(f"{most:,}")
    parts = []
    for row, (name, numbers) in enumerate(rows):
        y, x, whole = _ROW * row + 4.0, float(_LEFT), sum(numbers.values()) or 1
        parts.append(_text(_LEFT - 8, y + 15, _cut(name, _NAME_LENGTH), "end", "name"))
        for kind, number in numbers.items():
            shown = f"{number / whole:.0%}" if shares else f"{number:,}"
            width = room * number / (whole if shares else most)
            if number:
                parts.append(_bar(x, y, width, _BAR, kind, f"{name}, {kind}: {number:,}"))
            is_sum = number == whole and not shares
            if width > _DIGIT_WIDTH * len(shown) + 4 and not is_sum:
                parts.append(_text(x + width / 2, y + 15, shown, "middle", "inside"))
            x += width
        parts.append(_text(x + 5, y + 15, f"{sum(numbers.values()):,}", "start"))
    return _svg(title, _ROW * len(rows) + 4, parts)


def key(mark: str, colour: str = "") -> Markup:
    """Return the symbol of a mark in a legend; ``colour`` is the CSS class of a series."""
    shapes = {
        "vote": [_mark("vote", 8, 6, colour)],
        "pass": [_mark("pass", 8, 6, "")],
        "deliberation": [_mark("deliberation", 8, 6, colour)],
        "line": [_line(0, 6, 24, 6, f"curve {colour}")],
        "outdone": [_mark("vote", 5, 6, "outdone"), _mark("deliberation", 17, 6, "outdone")],
        "filled": [_mark("vote", 5, 6, ""), _mark("deliberation", 17, 6, "")],
    }
    shape = shapes.get(mark) or [_bar(0, 0, 16, 12, mark, "")]
    width = 24 if len(shape) > 1 or mark == "line" else 16
    box = f"0 0 {width} 12"
    return tag("svg", *shape, viewBox=box, width=width, class_="plot key", aria_hidden="true")


def pattern_definitions() -> Markup:
    """Return an element with the fill patterns, which a page needs once for all its plots."""
    size: dict[str, str | int] = {"width": 8, "height": 8, "patternUnits": "userSpaceOnUse"}
    patterns = (
        tag("pattern", tag("path", d=lines, class_="hatch"), id=f"over-{kind}", **size)
        for kind, lines in _HATCHES.items()
    )
    return tag("svg", tag("defs", *patterns), width=0, height=0, class_="defs", aria_hidden="true")


def _bar(x: float, y: float, width: float, height: float, kind: str, title: str) -> Markup:
    box: dict[str, float] = {"x": x, "y": y, "width": width, "height": height}
    return tag(
        "g",
        tag("title", title) if title else "",
        tag("rect", **box, class_=f"bar {kind}"),
        tag("rect", **box, fill=f"url(#over-{kind})") if kind in _HATCHES else "",
    )


def _ticks(lows: Iterable[float]) -> list[int]:
    """Return tick values in per cent, from a multiple of the step below all shares up to 100."""
    lowest = int(100 * min(lows, default=0))
    starts = ((step, min(lowest // step * step, 100 - step)) for step in _STEPS)
    step, start = next(
        (step, start)
        for step, start in starts
        if step == _STEPS[-1] or (100 - start) // step <= _MOST_STEPS
    )
    return list(range(start, 101, step))


def _svg(title: str, height: float, parts: Sequence[str]) -> Markup:
    box = f"0 0 {_WIDTH} {height:g}"
    return tag("svg", tag("title", title), *parts, viewBox=box, role="img", class_="plot")


def _line(x1: float, y1: float, x2: float, y2: float, mark: str) -> Markup:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=mark)


def _text(x: float, y: float, text: str, anchor: str, mark: str = "") -> Markup:
    return tag("text", text, x=x, y=y, text_anchor=anchor, class_=mark or None)


def _cut(name: str, length: int) -> str:
    """Return the name, or only its end if it is too long; names in one folder differ at the end."""
    return name if len(name) <= length else f"\u2026{name[1 - length :]}"


def _short(number: float) -> str:
    """Format a number in a few characters: 512, 1.2k, 34k, 5.6M."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if number >= size:
            short = number / size
            return f"{short:.1f}{unit}".replace(".0", "") if short < 10 else f"{short:.0f}{unit}"
    return f"{number:.0f}"
