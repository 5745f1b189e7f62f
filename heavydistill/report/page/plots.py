"""The plots of a run, as SVG that takes its colours from the page.

Every plot has a title for those who do not see it, and the page shows its numbers in a table
beside it. Colour is never the only mark: series differ in shape, dash or pattern too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median_low

from markupsafe import Markup

from heavydistill.metrics.curve import Point
from heavydistill.metrics.intervals import Interval
from heavydistill.metrics.summary import NO_LABEL, OUTCOMES, STRATA, Rate, Summary
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


def metrics_plot(named: Sequence[tuple[str, Interval]]) -> Markup:
    """Shares with their intervals, one a row."""
    height = _ROW * len(named) + _AXIS
    parts = [_share_grid(_ROW * len(named))]
    for number, (name, value) in enumerate(named):
        y = _ROW * (number + 0.5)
        parts += [
            _text(_LEFT - 8, y + 4, name, "end", "name"),
            _line(_x(value.low), y, _x(value.high), y, "interval"),
            _line(_x(value.low), y - 5, _x(value.low), y + 5, "interval"),
            _line(_x(value.high), y - 5, _x(value.high), y + 5, "interval"),
            tag("circle", cx=_x(value.mean), cy=y, r=5, class_="dot"),
        ]
    return _svg("Metrics with 95 % intervals", height, parts)


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

    def at(one: Dot, share: float) -> tuple[float, float]:
        x = left + (math.log2(max(one.tokens, 1)) - low) / (high - low) * (_WIDTH - left - 20)
        return x, bottom - share * (bottom - 12)

    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = bottom - share * (bottom - 12)
        parts += [
            _line(left, y, _WIDTH - 8, y, "grid"),
            _text(left - 6, y + 4, percent(share).replace(".0", ""), "end"),
        ]
    last = -math.inf
    for power in range(math.ceil(low), math.floor(high) + 1):
        x = left + (power - low) / (high - low) * (_WIDTH - left - 20)
        if x - last > 48:
            parts.append(_text(x, bottom + 16, _count(2**power), "middle"))
            last = x
        parts.append(_line(x, 12, x, bottom, "grid"))
    parts.append(_text(_WIDTH - 8, bottom + 32, "written tokens a problem", "end"))
    for mark, shape in (("pass", "dashed"), ("vote", "solid")):
        joined = [each for each in dots if each.mark == mark]
        path = " ".join("{:.1f},{:.1f}".format(*at(each, each.accuracy.mean)) for each in joined)
        parts.append(tag("polyline", points=path, class_=f"curve {mark} {shape}"))
        parts += [_mark(each, at) for each in joined]
    parts += [_mark(each, at) for each in dots if each.mark not in ("pass", "vote")]
    return _svg("Accuracy over tokens", _CURVE_HEIGHT + 40, parts)


def strata_plot(summary: Summary) -> Markup:
    """Problems of each stratum, parted by what deliberation made of the vote."""
    outcomes = [*OUTCOMES, NO_LABEL]
    shown = [name for name in (*STRATA, NO_LABEL) if summary.strata[name]]
    most = max(summary.strata[name] for name in shown)
    parts = []
    for number, stratum in enumerate(shown):
        y, x = _ROW * number + 4.0, float(_LEFT)
        parts.append(_text(_LEFT - 8, y + 15, stratum, "end", "name"))
        for outcome in outcomes:
            count = summary.outcomes_by_stratum[stratum][outcome]
            width = (_WIDTH - _LEFT - _RIGHT - 30) * count / most
            if count:
                parts.append(_bar(x, y, width, f"{stratum}, {outcome}: {count:,}", outcome))
                if width > _LABEL_WIDTH * len(f"{count:,}") + 4:
                    parts.append(_text(x + width / 2, y + 15, f"{count:,}", "middle", "inside"))
            x += width
        parts.append(_text(x + 5, y + 15, f"{summary.strata[stratum]:,}", "start"))
    return _svg("Strata and outcomes", _ROW * len(shown) + 4, parts)


def rates_plot(rates: Sequence[tuple[str, Rate]]) -> Markup:
    """Shares of problems, one a row."""
    parts = [_share_grid(_ROW * len(rates))]
    for number, (name, rate) in enumerate(rates):
        y = _ROW * number + 4
        share = rate.share or 0.0
        parts += [
            _text(_LEFT - 8, y + 15, name, "end", "name"),
            _bar(_LEFT, y, _x(share) - _LEFT, f"{name}: {percent(rate.share)}", name),
            _text(_x(share) + 5, y + 15, percent(rate.share), "start", "value")
            if share < 0.85
            else _text(_x(share) - 5, y + 15, percent(rate.share), "end", "inside"),
        ]
    return _svg("Rescue and regress", _ROW * len(rates) + _AXIS, parts)


def lengths_plot(right: Counter[int], wrong: Counter[int], title: str) -> Markup:
    """How long right and other responses are, in tokens that double along the axis."""
    bins = sorted({_bin(tokens) for tokens in (*right, *wrong)})
    low, high, height, left = bins[0], bins[-1] + 1, 110.0, 12.0
    counts = {name: _binned(one) for name, one in (("right", right), ("wrong", wrong))}
    most = max(max(each.values(), default=0) for each in counts.values())
    step = (_WIDTH - left - _RIGHT) / (high - low)
    parts = [_line(left, height, _WIDTH - _RIGHT, height, "axis")]
    for name, one in counts.items():
        corners = [(left, height)]
        for number in range(low, high):
            y = height - (height - 10) * one[number] / most
            x = left + (number - low) * step
            corners += [(x, y), (x + step, y)]
        corners.append((left + (high - low) * step, height))
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        parts.append(tag("polyline", points=path, class_=f"steps {name}"))
    last = -math.inf
    for number in range(low, high + 1):
        x = left + (number - low) * step
        if x - last > 52:
            edge = 2 ** (number / _BINS_TO_A_DOUBLING)
            parts.append(
                _text(x, height + 16, _count(round(edge)), "start" if x == left else "middle")
            )
            last = x
    return _svg(title, height + _AXIS, parts)


def usage_plot(summary: Summary) -> Markup:
    """Tokens read and written by each stage."""
    most = max((used.prompt + used.completion for used in summary.usage.values()), default=0) or 1
    parts = []
    for number, (stage, used) in enumerate(summary.usage.items()):
        y, x = _ROW * number + 4.0, float(_LEFT)
        parts.append(_text(_LEFT - 8, y + 15, stage, "end", "name"))
        for name, tokens in (("read", used.prompt), ("written", used.completion)):
            width = (_WIDTH - _LEFT - _RIGHT - 40) * tokens / most
            parts.append(_bar(x, y, width, f"{stage}, {name}: {tokens:,} tokens", name))
            x += width
        parts.append(_text(x + 5, y + 15, _count(used.prompt + used.completion), "start"))
    return _svg("Tokens by stage", _ROW * len(summary.usage) + 4, parts)


def quartiles(lengths: Counter[int]) -> tuple[int, int, int] | None:
    """Lower quartile, median, upper quartile; None if there is nothing."""
    ordered = sorted(lengths.elements())
    if not ordered:
        return None
    half = len(ordered) // 2
    lower, upper = ordered[:half] or ordered, ordered[-half:] or ordered
    return median_low(lower), median_low(ordered), median_low(upper)


def _svg(title: str, height: float, parts: Sequence[str]) -> Markup:
    return tag(
        "svg",
        tag("title", title),
        *parts,
        viewBox=f"0 0 {_WIDTH} {height:g}",
        role="img",
        class_="plot",
    )


def _share_grid(bottom: float) -> Markup:
    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts += [
            _line(_x(share), 0, _x(share), bottom, "grid"),
            _text(_x(share), bottom + 16, f"{share:.0%}", "middle"),
        ]
    return Markup("").join(parts)


def _mark(shown: Dot, at: Callable[[Dot, float], tuple[float, float]]) -> Markup:
    """A dot with its interval, and its name on hovering."""
    x, y = at(shown, shown.accuracy.mean)
    _, low = at(shown, shown.accuracy.low)
    _, high = at(shown, shown.accuracy.high)
    title = f"{shown.name}: {percent(shown.accuracy.mean)}, {shown.tokens:,.0f} tokens"
    kind = f"{shown.mark} outdone" if shown.outdone else shown.mark
    shape = {
        "vote": tag("circle", cx=x, cy=y, r=4.5, class_=kind),
        "pass": tag("rect", x=x - 4, y=y - 4, width=8, height=8, class_=kind),
        "deliberation": tag("path", d=f"M{x:.1f} {y - 8:.1f}l8 8l-8 8l-8-8z", class_=kind),
        "control": tag("path", d=f"M{x:.1f} {y - 7:.1f}l7 12h-14z", class_=kind),
    }[shown.mark]
    side = ("end", -9) if x > _WIDTH - 80 else ("start", 9)
    label = _text(x + side[1], y + 4, shown.label, side[0], "name") if shown.label else ""
    return tag("g", tag("title", title), _line(x, low, x, high, "interval"), shape, label)


def _bar(x: float, y: float, width: float, title: str, mark: str) -> Markup:
    box: dict[str, float] = {"x": x, "y": y, "width": width, "height": _ROW - 8}
    # The pattern over the fill tells bars apart without their colour.
    return tag(
        "g",
        tag("title", title),
        tag("rect", **box, class_=f"bar {mark}"),
        tag("rect", **box, fill=f"url(#over-{mark})") if mark in PATTERNS else "",
    )


PATTERNS = {
    "rescued": "M0 8L8 0",
    "emergent": "M0 8L8 0M0 0L8 8",
    "overturned": "M0 0L8 8",
    "lost": "M4 0V8",
    "regress": "M0 0L8 8",
    "rescue": "M0 8L8 0",
    "read": "M0 4H8",
}
"""Lines of the pattern over each kind of bar; the others are plain."""


def pattern_definitions() -> Markup:
    """An element that the page holds once, for all its plots."""
    patterns = (
        tag(
            "pattern",
            tag("path", d=lines, class_="hatch"),
            id=f"over-{mark}",
            width=8,
            height=8,
            patternUnits="userSpaceOnUse",
        )
        for mark, lines in PATTERNS.items()
    )
    return tag("svg", tag("defs", *patterns), width=0, height=0, class_="defs", aria_hidden="true")


def _bin(tokens: int) -> int:
    return math.floor(_BINS_TO_A_DOUBLING * math.log2(tokens))


def _binned(lengths: Counter[int]) -> Counter[int]:
    binned: Counter[int] = Counter()
    for tokens, count in lengths.items():
        binned[_bin(tokens)] += count
    return binned


def _x(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


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
