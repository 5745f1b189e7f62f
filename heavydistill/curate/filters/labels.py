"""Labels a response with the first reason why it must not be learnt from.

``set_rows.LABELS`` lists all labels in their order. Those up to ``other_language`` are found here,
from the response and the attempts that it was shown; the others need all responses of a build.

A deliberation works with the attempts if its thinking and answer together (``heavy.mentions``) name
two or more of them by number ("attempt 3", "the second and fourth thinkers", 尝试3), or say of
several together what they hold, that all are wrong, or that it examines them ("most attempts
agree", "comparing the attempts", 所有尝试都错了). As a control a build reports how often attempts,
which saw no other attempts, show the same signs. The opposite fault is a copy: ``copied`` is the
largest share of an answer's runs of eight words that occur in one attempt.

Not covered: a deliberation that uses the attempts without mentioning them; languages other than
English and Chinese; an answer copied from the thinking of an attempt.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from heavydistill.config.sets import Filters
from heavydistill.curate.filters.language import other_language
from heavydistill.curate.filters.leaks import leaks_reference
from heavydistill.curate.filters.words import runs_of, words_of
from heavydistill.heavy.mentions import named
from heavydistill.metrics.counts import unanswered_because
from heavydistill.schema import Deliberation, Generation, Problem, Trajectory
from heavydistill.store.sets.set_rows import USED
from heavydistill.verifiers.finals import final_answers

RUN = 8
FEWEST_NAMED = 2


def spoken(generation: Generation) -> str:
    """Thinking and answer of a response as one text."""
    return f"{generation.reasoning}\n\n{generation.answer_text}"


def uses_attempts(text: str, attempts: int, problem: str = "") -> bool:
    """Whether the text of a deliberation shows that it worked with the attempts.

    ``attempts`` is their number. If the problem itself speaks of attempts, the text needs stronger
    signs.
    """
    said = named(text, problem)
    there = sum(1 <= number <= attempts for number in said.numbers)
    return there >= FEWEST_NAMED or said.several


def copied(text: str, attempts: Iterable[str]) -> float:
    """The largest share of the text's runs of eight words that one attempt holds, 0 to 1.

    It is 0 for a text of fewer than sixteen words, because short answers are naturally alike.
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


# Cached because all deliberations on a problem are compared with the same attempts.
_words_of_attempt = lru_cache(maxsize=64)(words_of)


def look_at_deliberation(
    problem: Problem, shown: Sequence[Generation], deliberation: Deliberation, filters: Filters
) -> tuple[str, bool, float]:
    """Examine a deliberation and the attempts that it was shown, uncut and in order.

    Returns:
        (code of ``set_rows.LABELS`` of the first fault, or ``USED``; whether it works with the
        attempts; largest share of its answer that one attempt holds, 0 to 1)
    """
    uses = uses_attempts(spoken(deliberation), len(shown), problem.text)
    share = copied(deliberation.answer_text, [attempt.answer_text for attempt in shown])
    label = _unsound(problem, deliberation)
    if not label and filters.uses_attempts and not uses:
        label = "ignores_attempts"
    if not label and share >= filters.most_copied:
        label = "verbatim_copy"
    return label or _out_of_place(problem, shown, deliberation), uses, share


def look_at_trajectory(problem: Problem, trajectory: Trajectory) -> str:
    """The label of an attempt, by the same rules except those about other attempts."""
    return _unsound(problem, trajectory) or _out_of_place(problem, (), trajectory)


def fingerprint(generation: Generation) -> str:
    """A hash of thinking and answer that ignores blanks, case and punctuation.

    Punctuation is as in Unicode: ``- * /`` are punctuation, ``+ = < > ^`` are not.
    """
    plain = unicodedata.normalize("NFKC", spoken(generation)).casefold().translate(_WITHOUT)
    return hashlib.sha256(plain.encode(errors="surrogatepass")).hexdigest()[:32]


def _unsound(problem: Problem, generation: Generation) -> str:
    """The label of a response that is not complete and correct; else ``USED``."""
    if generation.unusable_because:
        return "unfinished"
    if unanswered_because(generation):
        return "no_final_answer"
    label = generation.verdict.label if generation.verdict else "undecided"
    if label != "correct":
        return "undecided" if label == "undecided" else "not_correct"
    finals = final_answers(problem, generation.answer_text)
    if finals is None or finals == 1:
        return USED
    return "several_final_answers" if finals else "no_final_answer"


def _out_of_place(problem: Problem, shown: Sequence[Generation], generation: Generation) -> str:
    """The label of a correct response that leaks the reference or changes the language."""
    texts = (generation.reasoning, generation.answer_text)
    if leaks_reference(problem, texts, [spoken(attempt) for attempt in shown]):
        return "leaks_reference"
    return "other_language" if other_language(problem.text, *texts) else USED


class _Without(dict[int, str | None]):
    """A translation table that removes blanks and punctuation, filled on demand."""

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        is_text = unicodedata.category(character)[0] not in "PZC" and character != "`"
        return self.setdefault(code, character if is_text else None)


_WITHOUT = _Without()
