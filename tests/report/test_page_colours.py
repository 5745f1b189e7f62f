"""What is written in the page of a report can be read: WCAG AA asks for a contrast of 4.5."""

import itertools
import re

import pytest

from heavydistill.report.page.html import shipped

ENOUGH = 4.5
CSS = shipped("web", "page.css")
PAIRS = re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\);", CSS)
LIGHT, DARK = ({pair[0]: pair[place] for pair in PAIRS} for place in (1, 2))
WORDS = ("text", "soft", "accent", "blue", "green", "orange", "red", "purple", "grey")
GROUNDS = ("back", "card", "quiet", "chosen")


def brightness(colour: str) -> float:
    """Relative luminance of a colour as ``#rrggbb``."""
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return sum(weight * one for weight, one in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    darker, brighter = sorted((brightness(one), brightness(other)))
    return (brighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_every_text_can_be_told_from_its_ground(colours):
    bars = [name for name in colours if name.startswith("bar-")]
    pairs = [*itertools.product(WORDS, GROUNDS), ("text", "found")]
    pairs += [("inside", bar) for bar in bars]
    ratios = {pair: contrast(*(colours[name] for name in pair)) for pair in pairs}
    assert len(bars) == 10
    assert {pair: ratio for pair, ratio in ratios.items() if ratio < ENOUGH} == {}


def test_what_was_found_has_the_colour_of_text_wherever_it_stands():
    found = re.search(r"::highlight\(found\) \{([^}]*)\}", CSS)
    assert found and " color: var(--text);" in found[1]
