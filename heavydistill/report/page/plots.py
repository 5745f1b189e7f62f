"""The plots of a run, as SVG that takes its colours from the page.

Every plot has a title for those who do not see it, and the page shows its numbers in a table
beside it. Colour is never the only mark: series differ in shape, dash or pattern too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
_CURVE_HEIGHT = 250
_BINS_TO_A_DOUBLING = 4
_LABEL_WIDTH = 7.5  # of a digit
_SHARES = (0, 0.25, 0.5, 0.75, 1)


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


@dataclass(frozen=True, slots=True)
class Dot:
    """A mark in the plot of accuracy over tokens."""

    mark: str  # shape and colour: "vote", "pass", "deliberation" or "control"
    name: str  # shown on hovering
    accuracy: Interval
    tokens: float  # written for one answer
    label: str = ""  # shown beside the mark
    outdone: bool = False
    """Whether another answer in the plot is as often right for fewer tokens; then the mark is
    hollow. Never true of "pass", which is no way to answer."""


def dot(point: Point) -> Dot:
    """A point of a curve among its others."""
    tokens = point.tokens["completion"].mean
    outdone = point.way != "pass" and not point.pareto["completion"]
    mark = "deliberation" if point.way == "heavy_vote" else point.way
    return Dot(mark, point_name(point), point.accuracy, tokens, outdone=outdone)


def curve_plot(dots: Sequence[Dot]) -> Markup:
    """Accuracy over written tokens, which double from one line of the grid to the next.

    A line joins the votes, and one those of which any is right.
    """
    tokens = [each.tokens for each in dots]
    low, high = math.log2(max(min(tokens), 1)) - 0.15, math.log2(max(max(tokens), 2)) + 0.15
    left, bottom = 44, _CURVE_HEIGHT

    def across(doublings: float) -> float:
        return left + (doublings - low) / (high - low) * (_WIDTH - left - 20)

    def up(share: float) -> float:
        return bottom - share * (bottom - 12)

    def mark(shown: Dot) -> Markup:
        x, y = across(math.log2(max(shown.tokens, 1))), up(shown.accuracy.mean)
        title = f"{shown.name}: {percent(shown.accuracy.mean)}, {shown.tokens:,.0f} tokens"
        kind = f"{shown.mark} outdone" if shown.outdone else shown.mark
        shape = {
            "vote": tag("circle", cx=x, cy=y, r=4.5, class_=kind),
            "pass": tag("rect", x=x - 4, y=y - 4, width=8, height=8, class_=kind),
            "deliberation": tag("path", d=f"M{x:.1f} {y - 8:.1f}l8 8l-8 8l-8-8z", class_=kind),
            "control": tag("path", d=f"M{x:.1f} {y - 7:.1f}l7 12h-14z", class_=kind),
        }[shown.mark]
        side, away = ("end", -9) if x > _WIDTH - 80 else ("start", 9)
        label = _text(x + away, y + 4, shown.label, side, "name") if shown.label else ""
        interval = _line(x, up(shown.accuracy.low), x, up(shown.accuracy.high), "interval")
        return tag("g", tag("title", title), interval, shape, label)

    parts = []
    for share in _SHARES:
        parts.append(_line(left, up(share), _WIDTH - 8, up(share), "grid"))
        parts.append(_text(left - 6, up(share) + 4, percent(share).replace(".0", ""), "end"))
    ticks = [(across(power), 2.0**power) for power in range(math.ceil(low), math.floor(high) + 1)]
    parts += _tick_labels(ticks, bottom)
    parts += [_line(x, 12, x, bottom, "grid") for x, _ in ticks]
    parts.append(_text(_WIDTH - 8, bottom + 32, "written tokens a problem", "end"))
    for way, dash in (("pass", "dashed"), ("vote", "solid")):
        joined = [each for each in dots if each.mark == way]
        corners = [(across(math.log2(max(d.tokens, 1))), up(d.accuracy.mean)) for d in joined]
        parts.append(_polyline(corners, f"curve {way} {dash}"))
        parts += map(mark, joined)
    parts += [mark(each) for each in dots if each.mark not in ("pass", "vote")]
    return _svg("Accuracy over tokens", _CURVE_HEIGHT + 40, parts)


def stacked_plot(
    title: str,
    rows: Sequence[tuple[str, dict[str, int]]],
    unit: str = "",
    *,
    room: int = 30,
    numbered: bool = False,
) -> Markup:
    """Rows of bars end to end, from (name, numbers by kind of bar), with the sum behind them.

    Args:
        title: Title for those who do not see the plot.
        rows: Numbers of each row.
        unit: Unit of the numbers, shown on hovering.
        room: Room for the sums.
        numbered: Whether the number stands in each bar that is wide enough, and sums are whole.
    """
    most = max((sum(numbers.values()) for _, numbers in rows), default=0) or 1
    parts = []
    for row, (name, numbers) in enumerate(rows):
        y, x = _ROW * row + 4.0, float(_LEFT)
        parts.append(_text(_LEFT - 8, y + 15, name, "end", "name"))
        for kind, number in numbers.items():
            width = (_WIDTH - _LEFT - _RIGHT - room) * number / most
            if number:
                parts.append(_bar(x, y, width, f"{name}, {kind}: {number:,}{unit}", kind))
            if numbered and width > _LABEL_WIDTH * len(f"{number:,}") + 4:
                parts.append(_text(x + width / 2, y + 15, f"{number:,}", "middle", "inside"))
            x += width
        whole = sum(numbers.values())
        parts.append(_text(x + 5, y + 15, f"{whole:,}" if numbered else _count(whole), "start"))
    return _svg(title, _ROW * len(rows) + 4, parts)


def lengths_plot(right: Counter[int], wrong: Counter[int], title: str) -> Markup:
    """How long right and other responses are, in tokens that double along the axis."""
    counts = {"right": Counter[int](), "wrong": Counter[int]()}  # by bin
    for name, lengths in (("right", right), ("wrong", wrong)):
        for tokens, count in lengths.items():
            counts[name][math.floor(_BINS_TO_A_DOUBLING * math.log2(tokens))] += count
    bins = sorted({*counts["right"], *counts["wrong"]})
    low, high, bottom, left = bins[0], bins[-1] + 1, 110.0, 12.0
    most = max(max(each.values(), default=0) for each in counts.values())

    def across(number: int) -> float:
        return left + (number - low) * (_WIDTH - left - _RIGHT) / (high - low)

    parts = [_line(left, bottom, _WIDTH - _RIGHT, bottom, "axis")]
    for name, binned in counts.items():
        corners = [(left, bottom)]
        for number in range(low, high):
            y = bottom - (bottom - 10) * binned[number] / most
            corners += [(across(number), y), (across(number + 1), y)]
        corners.append((across(high), bottom))
        parts.append(_polyline(corners, f"steps {name}"))
    edges = range(low, high + 1)
    ticks = [(across(n), float(round(2 ** (n / _BINS_TO_A_DOUBLING)))) for n in edges]
    parts += _tick_labels(ticks, bottom, gap=52, first="start")
    return _svg(title, bottom + _AXIS, parts)


def pattern_definitions() -> Markup:
    """An element that the page holds once, for all its plots."""
    size: dict[str, str | int] = {"width": 8, "height": 8, "patternUnits": "userSpaceOnUse"}
    patterns = (
        tag("pattern", tag("path", d=lines, class_="hatch"), id=f"over-{mark}", **size)
        for mark, lines in _PATTERNS.items()
    )
    return tag("svg", tag("defs", *patterns), width=0, height=0, class_="defs", aria_hidden="true")


# Lines of the pattern over each kind of bar; the others are plain.
_PATTERNS = {
    "rescued": "M0 8L8 0",
    "emergent": "M0 8L8 0M0 0L8 8",
    "overturned": "M0 0L8 8",
    "lost": "M4 0V8",
    "read": "M0 4H8",
}


def _bar(x: float, y: float, width: float, title: str, mark: str) -> Markup:
    box: dict[str, float] = {"x": x, "y": y, "width": width, "height": _ROW - 8}
    # The pattern over the fill tells bars apart without their colour.
    return tag(
        "g",
        tag("title", title),
        tag("rect", **box, class_=f"bar {mark}"),
        tag("rect", **box, fill=f"url(#over-{mark})") if mark in _PATTERNS else "",
    )


def _tick_labels(
    ticks: Sequence[tuple[float, float]], bottom: float, gap: int = 48, first: str = "middle"
) -> Iterator[Markup]:
    """Numbers below an axis, as far as there is room."""
    last = -math.inf
    for x, number in ticks:
        if x - last > gap:
            yield _text(x, bottom + 16, _count(number), first if last < 0 else "middle")
            last = x


def _svg(title: str, height: float, parts: Sequence[str]) -> Markup:
    box = f"0 0 {_WIDTH} {height:g}"
    return tag("svg", tag("title", title), *parts, viewBox=box, role="img", class_="plot")


def _polyline(corners: Sequence[tuple[float, float]], mark: str) -> Markup:
    return tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in corners), class_=mark)


def _line(x1: float, y1: float, x2: float, y2: float, mark: str) -> Markup:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=mark)


def _text(x: float, y: float, text: str, anchor: str, mark: str = "") -> Markup:
    return tag("text", text, x=x, y=y, text_anchor=anchor, class_=mark or None)


def _count(number: float) -> str:
    """Short: 1.2k, 34k, 5.6M."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if number >= size:
            short = number / size
            return f"{short:.1f}{unit}".replace(".0", "") if short < 10 else f"{short:.0f}{unit}"
    return f"{number:.0f}"
