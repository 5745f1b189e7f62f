"""The plots of a run, as SVG that takes its colours from the page.

Every plot has a title for those who do not see it, and the page shows its numbers in a table
beside it. Colour is never the only mark: series differ in shape, dash or pattern too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from heavydistill.metrics.curve import Point
from heavydistill.metrics.intervals import Interval
from heavydistill.report.grid import percent
from heavydistill.report.page.html import tag
from heavydistill.report.summary import point_name

_WIDTH = 440
_LEFT, _RIGHT = 104, 20  # of plots whose rows are named on the left
_ROW = 30
_AXIS = 22  # below a plot
_CURVE_LEFT, _CURVE_HEIGHT = 44, 250
_TICK_GAP = 48  # between the numbers below an axis
_SUM_WIDTH = 30
_DIGIT_WIDTH = 7.5
_SHARES = (0, 0.25, 0.5, 0.75, 1)
# Lines of the pattern over each kind of bar, which tells bars apart without their colour.
_PATTERNS = {
    "rescued": "M0 8L8 0",
    "emergent": "M0 8L8 0M0 0L8 8",
    "overturned": "M0 0L8 8",
    "lost": "M4 0V8",
}


def shares_plot(title: str, named: Sequence[tuple[str, Interval]]) -> Markup:
    """Shares with their intervals, one a row."""
    bottom = _ROW * len(named)

    def at(share: float) -> float:
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    parts = []
    for share in _SHARES:
        parts.append(_line(at(share), 0, at(share), bottom, "grid"))
        parts.append(_text(at(share), bottom + 16, f"{share:.0%}", "middle"))
    for number, (name, value) in enumerate(named):
        y = _ROW * (number + 0.5)
        parts += [
            _text(_LEFT - 8, y + 4, name, "end", "name"),
            _line(at(value.low), y, at(value.high), y, "interval"),
            _line(at(value.low), y - 5, at(value.low), y + 5, "interval"),
            _line(at(value.high), y - 5, at(value.high), y + 5, "interval"),
            tag("circle", cx=at(value.mean), cy=y, r=5, class_="dot"),
        ]
    return _svg(title, bottom + _AXIS, parts)


def curve_plot(points: Sequence[Point]) -> Markup:
    """Accuracy over written tokens, which double from one line of the grid to the next.

    A line joins the votes, and one those of which any is right. A mark is hollow where another way
    to answer is as often right for fewer tokens.
    """
    points = sorted(points, key=lambda point: point.way != "pass")  # all others are drawn over it
    doublings = [math.log2(max(point.tokens["completion"].mean, 1)) for point in points]
    low, high = min(doublings) - 0.15, max(1, *doublings) + 0.15

    def across(doubling: float) -> float:
        return _CURVE_LEFT + (doubling - low) / (high - low) * (_WIDTH - _CURVE_LEFT - 20)

    def up(share: float) -> float:
        return _CURVE_HEIGHT - share * (_CURVE_HEIGHT - 12)

    parts = []
    for share in _SHARES:
        parts.append(_line(_CURVE_LEFT, up(share), _WIDTH - 8, up(share), "grid"))
        parts.append(_text(_CURVE_LEFT - 6, up(share) + 4, f"{share:.0%}", "end"))
    labelled = -math.inf  # where the last number stands
    for power in range(math.ceil(low), math.floor(high) + 1):
        x = across(power)
        parts.append(_line(x, 12, x, _CURVE_HEIGHT, "grid"))
        if x - labelled > _TICK_GAP:
            parts.append(_text(x, _CURVE_HEIGHT + 16, _short(2.0**power), "middle"))
            labelled = x
    parts.append(_text(_WIDTH - 8, _CURVE_HEIGHT + 32, "written tokens a problem", "end"))
    places = [(across(x), up(p.accuracy.mean)) for x, p in zip(doublings, points, strict=True)]
    for way in ("pass", "vote"):
        joined = [at for at, point in zip(places, points, strict=True) if point.way == way]
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in joined)
        parts.append(tag("polyline", points=corners, class_=f"curve {way}"))
    for (x, y), point in zip(places, points, strict=True):
        interval = _line(x, up(point.accuracy.low), x, up(point.accuracy.high), "interval")
        parts.append(tag("g", tag("title", _hint(point)), interval, _mark(point, x, y)))
    return _svg("Accuracy over tokens", _CURVE_HEIGHT + 40, parts)


def _hint(point: Point) -> str:
    tokens = point.tokens["completion"].mean
    return f"{point_name(point)}: {percent(point.accuracy.mean)}, {tokens:,.0f} tokens"


def _mark(point: Point, x: float, y: float) -> Markup:
    if point.way == "pass":  # no way to answer, so nothing outdoes it
        return tag("rect", x=x - 4, y=y - 4, width=8, height=8, class_="pass")
    outdone = "" if point.pareto["completion"] else " outdone"
    if point.way == "vote":
        return tag("circle", cx=x, cy=y, r=4.5, class_=f"vote{outdone}")
    return tag("path", d=f"M{x:.1f} {y - 8:.1f}l8 8l-8 8l-8-8z", class_=f"deliberation{outdone}")


def stacked_plot(title: str, rows: Sequence[tuple[str, dict[str, int]]]) -> Markup:
    """Rows of bars end to end, from (name, numbers by kind of bar), with the sum behind them."""
    most = max((sum(numbers.values()) for _, numbers in rows), default=0) or 1
    parts = []
    for row, (name, numbers) in enumerate(rows):
        y, x = _ROW * row + 4.0, float(_LEFT)
        parts.append(_text(_LEFT - 8, y + 15, name, "end", "name"))
        for kind, number in numbers.items():
            width = (_WIDTH - _LEFT - _RIGHT - _SUM_WIDTH) * number / most
            if number:
                parts.append(_bar(x, y, width, f"{name}, {kind}: {number:,}", kind))
            if width > _DIGIT_WIDTH * len(f"{number:,}") + 4:
                parts.append(_text(x + width / 2, y + 15, f"{number:,}", "middle", "inside"))
            x += width
        parts.append(_text(x + 5, y + 15, f"{sum(numbers.values()):,}", "start"))
    return _svg(title, _ROW * len(rows) + 4, parts)


def pattern_definitions() -> Markup:
    """An element that the page holds once, for all its plots."""
    size: dict[str, str | int] = {"width": 8, "height": 8, "patternUnits": "userSpaceOnUse"}
    patterns = (
        tag("pattern", tag("path", d=lines, class_="hatch"), id=f"over-{mark}", **size)
        for mark, lines in _PATTERNS.items()
    )
    return tag("svg", tag("defs", *patterns), width=0, height=0, class_="defs", aria_hidden="true")


def _bar(x: float, y: float, width: float, title: str, mark: str) -> Markup:
    box: dict[str, float] = {"x": x, "y": y, "width": width, "height": _ROW - 8}
    return tag(
        "g",
        tag("title", title),
        tag("rect", **box, class_=f"bar {mark}"),
        tag("rect", **box, fill=f"url(#over-{mark})") if mark in _PATTERNS else "",
    )


def _svg(title: str, height: float, parts: Sequence[str]) -> Markup:
    box = f"0 0 {_WIDTH} {height:g}"
    return tag("svg", tag("title", title), *parts, viewBox=box, role="img", class_="plot")


def _line(x1: float, y1: float, x2: float, y2: float, mark: str) -> Markup:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=mark)


def _text(x: float, y: float, text: str, anchor: str, mark: str = "") -> Markup:
    return tag("text", text, x=x, y=y, text_anchor=anchor, class_=mark or None)


def _short(number: float) -> str:
    """A number in a few characters: 512, 1.2k, 34k, 5.6M."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if number >= size:
            short = number / size
            return f"{short:.1f}{unit}".replace(".0", "") if short < 10 else f"{short:.0f}{unit}"
    return f"{number:.0f}"
