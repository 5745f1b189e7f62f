"""Which attempts a text names, and whether it speaks of several of them together.

What single sentences say is read by ``mentions`` and ``chinese_mentions``; this weighs all that
was found in one text.

Not covered: what a text makes of the attempts that it names; languages other than English and
Chinese.
"""

from __future__ import annotations

from dataclasses import dataclass

from heavydistill.heavy.chinese_mentions import chinese_mentions
from heavydistill.heavy.mentions import mentions


@dataclass(frozen=True, slots=True)
class Named:
    """What a text says of attempts.

    Attributes:
        numbers: Of the attempts that it names, as they are numbered in the cache, from 1. They may
            be ones that are not there.
        several: Whether it speaks of several attempts together.
    """

    numbers: frozenset[int]
    several: bool


def named(text: str, problem: str = "") -> Named:
    """What a text of any length says of attempts.

    Args:
        text: Thinking and answer of a response.
        problem: What the problem says. Where that speaks of attempts, of other ones, a text needs
            stronger signs.
    """
    found = [*mentions(text, problem), *chinese_mentions(text, problem)]
    cited, own = (
        {(one.noun, number) for one in found if one.kind == kind for number in one.numbers}
        for kind in ("cited", "own")
    )
    # A text that speaks of an attempt of its own by a number does so again.
    numbers = frozenset(number for _, number in cited - own)
    return Named(numbers, any(one.kind == "several" for one in found))
