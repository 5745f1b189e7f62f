"""Whether a deliberation worked with the attempts, or solved the problem as if it were alone.

Signs that it did, in its thinking and its answer together (``heavy.mentions``):

- it names two or more of the attempts by number ("attempt 3", "the second and fourth thinkers",
  "solution 2 forgets the sign", 尝试3), or one of them and the others
- it says of several together what they hold, that all of them are wrong, or that it examines
  them ("most attempts agree", "none of the attempts is right", "comparing the attempts",
  所有尝试都错了)

A blind solver shows none of them; how often attempts, which saw nothing of each other, show them
all the same is the control that a build reports beside the share of deliberations.

The opposite fault is a copy: ``copied`` is the largest share of the runs of eight words of an
answer that stand in a single attempt.

Not covered: a deliberation that uses the attempts without a word about them; languages other than
English and Chinese; an answer copied from the thinking of an attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from heavydistill.curate.filters.words import runs_of, words_of
from heavydistill.heavy.mentions import named
from heavydistill.schema import Generation

RUN = 8
FEWEST_NAMED = 2


def spoken(generation: Generation) -> str:
    """Thinking and answer of a response as one text."""
    return f"{generation.reasoning}\n\n{generation.answer_text}"


def uses_attempts(text: str, attempts: int, problem: str = "") -> bool:
    """Whether the text of a deliberation shows that it worked with so many attempts.

    Where the problem speaks of attempts, of other ones, a text needs stronger signs.
    """
    said = named(text, problem)
    there = sum(1 <= number <= attempts for number in said.numbers)
    return there >= FEWEST_NAMED or said.several


def copied(text: str, attempts: Iterable[str]) -> float:
    """The largest share of the text's runs of eight words that one attempt holds, 0 to 1.

    0 for a text of fewer than sixteen words: short answers are alike by their nature.
    """
    words = words_of(text)
    if len(words) < 2 * RUN:
        return 0.0
    runs = Counter(runs_of(words, RUN))
    held = (
        sum(runs[run] for run in runs.keys() & runs_of(_words_of_attempt(attempt), RUN))
        for attempt in attempts
    )
    return max(held, default=0) / runs.total()


# All deliberations on the sets of a problem are compared with the same attempts.
_words_of_attempt = lru_cache(maxsize=64)(words_of)
