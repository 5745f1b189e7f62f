"""Cards of the page, and the cells of their tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from heavydistill.metrics.intervals import FEW_PROBLEMS, FEW_WARNING, Interval
from heavydistill.report.page.markup import Html, joined, tag
from heavydistill.report.text import FEW_NOTE, marked, percent, points


def card(title: str, *parts: str, wide: bool = False) -> Html:
    """A part of a section, over its whole width or beside others."""
    return tag("article", tag("h3", title), *parts, class_="card wide" if wide else "card")


def scroll(inner: Html) -> Html:
    """A table that may be wider than a phone."""
    return tag("div", inner, class_="scroll")


def numbers(inner: Html, note: str = "") -> Html:
    """The table of a plot, folded, with what there is to say of it."""
    told = tag("p", note, class_="note") if note else ""
    return tag("details", tag("summary", "The numbers"), scroll(inner), told)


def share(value: Interval | None) -> str:
    """A share with its interval below."""
    if value is None:
        return "-"
    return joined([percent(value.mean), tag("small", ends(value))])


def difference(value: Interval | None) -> str:
    """Points with their interval below."""
    if value is None:
        return "-"
    told = f"{points(value.low)} to {points(value.high)}"
    return joined([points(value.mean), tag("small", told)])


def ends(value: Interval) -> str:
    """The interval of a share."""
    return f"{percent(value.low).rstrip('%')} to {percent(value.high)}"


def few_warning(problems: int) -> Iterator[Html]:
    """What is to be known of intervals over so few problems, if there are so few."""
    if problems < FEW_PROBLEMS:
        yield tag("p", FEW_WARNING, class_="note warning")


def few_note(sizes: Iterable[int]) -> Iterator[Html]:
    """What the mark of few problems says, below tables of so many each, if it is in them."""
    if any(marked("", size) for size in sizes):
        yield tag("p", FEW_NOTE, class_="note")
