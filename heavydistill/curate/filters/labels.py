"""Labels a response with the first reason to exclude it from training.

``set_rows.LABELS`` lists all labels in order. Those up to ``other_language`` are found here, from
the response and the attempts in its prompt; then those of plug-ins, which are their names. The
others need all responses of a build.

A deliberation works with the attempts if its thinking and answer together (``text.mentions``) do
one of these: name two or more attempts by number ("attempt 3", "the second and fourth
thinkers", 尝试3), say what several attempts conclude or that all are wrong ("most attempts
agree", 所有尝试都错了), or examine them ("comparing the attempts"). As a control, a build
reports how often attempts show the same signs, although their authors saw no other attempts.
The opposite fault is a copy: ``copied`` is the largest share of an answer's sequences of eight
words that occur in one attempt. What it says of the attempts may be false
(``text.checked_claims``), although its final answer is right. And its answer alone may speak of
them (a leak), although its reader saw none.

Not covered: a deliberation that uses the attempts without mentioning them; languages other than
English and Chinese; an answer copied from the thinking of an attempt.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from heavydistill import plugins
from heavydistill.config.sets import Filters
from heavydistill.metrics.counts import unanswered_because
from heavydistill.schema import Deliberation, Generation, Problem, Trajectory
from heavydistill.store.sets.set_rows import USED
from heavydistill.text.checked_claims import checked_claims
from heavydistill.text.languages import other_language
from heavydistill.text.leaks import leaks_reference
from heavydistill.text.mentions import named, speaks_of_attempts
from heavydistill.text.words import runs_of, words_of
from heavydistill.verifiers.final_answers import final_answers

RUN = 8
FEWEST_NAMED = 2


def spoken(generation: Generation) -> str:
    """Return thinking and answer of a response as one text."""
    return f"{generation.reasoning}\n\n{generation.answer_text}"


def uses_attempts(text: str, attempts: int, problem: str = "") -> bool:
    """Return whether the text of a deliberation refers to the attempts.

    ``attempts`` is the number of attempts. If the problem text itself mentions attempts, stronger
    signs are required.
    """
    mentioned = named(text, problem)
    in_cache = sum(1 <= number <= attempts for number in mentioned.numbers)
    return in_cache >= FEWEST_NAMED or mentioned.several


def copied(text: str, attempts: Iterable[str]) -> float:
    """Return the largest share (0 to 1) of the text's eight-word sequences found in one attempt.

    The share is 0 for a text of fewer than sixteen words other than numbers, because short answers
    are often alike, and so are right calculations.
    """
    words = words_of(text)
    if sum(not word.isdecimal() for word in words) < 2 * RUN:
        return 0.0
    runs = Counter(runs_of(words, RUN))
    held = (
        sum(runs[run] for run in runs.keys() & runs_of(_words_of_attempt(attempt), RUN))
        for attempt in attempts
    )
    return max(held, default=0) / runs.total()


# Cached because all deliberations on a problem are compared with the same attempts.
_words_of_attempt = lru_cache(maxsize=64)(words_of)


class ResponseSignals(NamedTuple):
    """What a deliberation makes of the attempts in its prompt."""

    uses_attempts: bool  # Whether it refers to them
    copied: float  # Largest share of its answer copied from one attempt, 0 to 1
    false_claims: int  # Number of claims that are false or contradict its own answer
    leaks_attempts: bool  # Whether its answer speaks of them


def look_at_deliberation(
    problem: Problem, shown: Sequence[Generation], deliberation: Deliberation, filters: Filters
) -> tuple[str, ResponseSignals]:
    """Examine a deliberation and the attempts in its prompt, given with full texts and in order.

    Returns (label: the first fault in ``set_rows.LABELS``, or ``USED``; signs).
    """
    signs = ResponseSignals(
        uses_attempts=uses_attempts(spoken(deliberation), len(shown), problem.transcript),
        copied=copied(deliberation.answer_text, [attempt.answer_text for attempt in shown]),
        false_claims=sum(each.is_false for each in checked_claims(deliberation, shown)),
        leaks_attempts=speaks_of_attempts(deliberation.answer_text, problem.transcript),
    )
    label = _unsound(problem, deliberation)
    if not label and filters.uses_attempts and not signs.uses_attempts:
        label = "ignores_attempts"
    if not label and filters.false_claims == "leave_out" and signs.false_claims:
        label = "false_claims"
    if not label and signs.copied >= filters.most_copied:
        label = "verbatim_copy"
    if not label and filters.leaks_attempts == "leave_out" and signs.leaks_attempts:
        label = "leaks_attempts"
    return label or _out_of_place(problem, shown, deliberation, filters), signs


def look_at_trajectory(
    problem: Problem, trajectory: Trajectory, filters: Filters, is_solution: bool = False
) -> str:
    """Return the label of an attempt; rules that compare it with other attempts do not apply.

    A worked solution may repeat the reference, which may be the solution itself.
    """
    label = _unsound(problem, trajectory)
    return label or _out_of_place(problem, (), trajectory, filters, may_leak=is_solution)


def fingerprint(generation: Generation) -> str:
    """Return a hash of thinking and answer that ignores whitespace, case and punctuation.

    Punctuation is as in Unicode: ``- * /`` are punctuation, ``+ = < > ^`` are not.
    """
    plain = unicodedata.normalize("NFKC", spoken(generation)).casefold().translate(_WITHOUT)
    return hashlib.sha256(plain.encode(errors="surrogatepass")).hexdigest()[:32]


def _unsound(problem: Problem, generation: Generation) -> str:
    """Return the label of a response that is incomplete or not correct; otherwise ``USED``."""
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


def _out_of_place(
    problem: Problem,
    shown: Sequence[Generation],
    generation: Generation,
    filters: Filters,
    may_leak: bool = False,
) -> str:
    """Return the label of a correct response that leaks the reference, changes the language or does
    not pass a plug-in."""
    texts = (generation.reasoning, generation.answer_text)
    read = [spoken(attempt) for attempt in shown]
    if not may_leak and leaks_reference(problem, texts, read):
        return "leaks_reference"
    if other_language(problem.transcript, *texts):
        return "other_language"
    for name in filters.more:
        own = plugins.get("filter", name)
        if not isinstance(passes := own(problem, generation, [*shown]), bool):
            raise own.fault(f"returned {type(passes).__name__}, not whether a response passes")
        if not passes:
            return name
    return USED


class _Without(dict[int, str | None]):
    """A translation table that removes whitespace and punctuation, filled on demand."""

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        is_text = unicodedata.category(character)[0] not in "PZC" and character != "`"
        return self.setdefault(code, character if is_text else None)


_WITHOUT = _Without()
