"""What is wrong with a response as something to learn from, as one label: the first that applies.

``rows.LABELS`` is all of them in their order. Those up to ``other_language`` are found here, from
the response and what it was shown; the others are a build's, which knows all responses. A response
without a label is used; none is left out without one.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from heavydistill.config.sets import Filters
from heavydistill.curate.filters.attention import copied, spoken, uses_attempts
from heavydistill.curate.filters.language import other_language
from heavydistill.curate.filters.leaks import leaks_reference
from heavydistill.metrics.counts import unanswered_because
from heavydistill.schema import Deliberation, Generation, Problem, Trajectory
from heavydistill.store.sets.rows import USED
from heavydistill.verifiers.finals import final_answers


@dataclass(frozen=True, slots=True)
class Looked:
    """What was found of a deliberation; the last two whatever its label."""

    label: str  # a code of ``rows.LABELS``, or ``rows.USED``
    uses_attempts: bool  # whether it works with the attempts
    copied: float  # the largest share of its answer that one attempt holds, 0 to 1


def look_at_deliberation(
    problem: Problem,
    shown: Sequence[Generation],
    deliberation: Deliberation,
    filters: Filters,
) -> Looked:
    """The first thing that is wrong with a deliberation, judged or not, and the signs behind it.

    ``shown`` are the attempts that it was shown, whole, in the order of its prompt.
    """
    uses = uses_attempts(spoken(deliberation), len(shown), problem.text)
    share = copied(deliberation.answer_text, [attempt.answer_text for attempt in shown])
    label = _unsound(problem, deliberation)
    if not label and filters.uses_attempts and not uses:
        label = "ignores_attempts"
    if not label and share >= filters.most_copied:
        label = "verbatim_copy"
    return Looked(label or _out_of_place(problem, shown, deliberation), uses, share)


def look_at_trajectory(problem: Problem, trajectory: Trajectory) -> str:
    """The label of an attempt, by the same rules but for those about other attempts."""
    return _unsound(problem, trajectory) or _out_of_place(problem, (), trajectory)


def fingerprint(generation: Generation) -> str:
    """The same for responses that differ only in blanks, case and punctuation, thinking included.

    Punctuation is what Unicode calls so, ``- * /`` with it; ``+ = < > ^`` are no punctuation.
    """
    plain = unicodedata.normalize("NFKC", spoken(generation)).casefold().translate(_WITHOUT)
    return hashlib.sha256(plain.encode(errors="surrogatepass")).hexdigest()[:32]


def _unsound(problem: Problem, generation: Generation) -> str:
    """Why a response is no right and whole one."""
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
    """Why a right response does not belong to its problem."""
    texts = (generation.reasoning, generation.answer_text)
    if leaks_reference(problem, texts, [spoken(attempt) for attempt in shown]):
        return "leaks_reference"
    return "other_language" if other_language(problem.text, *texts) else USED


class _Without(dict[int, str | None]):
    """What becomes of each character, filled as they come: nothing of blanks and punctuation."""

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        is_text = unicodedata.category(character)[0] not in "PZC" and character != "`"
        return self.setdefault(code, character if is_text else None)


_WITHOUT = _Without()
