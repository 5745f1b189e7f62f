"""The sets of ``also``, which use wrong responses too: pairs, labelled responses, critiques.

They follow the rows for SFT: a prompt without such a row has none here. The right responses are
those with a row for SFT, except deliberations with a false claim. The others are finished, have a
final answer, and are called incorrect by the verifier (kind ``wrong``); or they are right
deliberations with a false claim about an attempt (kind ``false_claim``).

Pairs of one prompt are disjoint, and those of the most similar lengths are made first, so that a
preference for the chosen response is not one for its length.

A critique has the answer text of an attempt in its prompt, as a cache has. It says whether the
attempt is right, and of a wrong one the first step of arithmetic (``text.steps``) that is false.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import median
from typing import Any

from heavydistill.config.sets import FurtherSet
from heavydistill.curate.build_state import GenerationNote
from heavydistill.heavy.prompts import critic_prompt
from heavydistill.heavy.pruning import defuse
from heavydistill.schema import Generation, Problem
from heavydistill.store.sets.folder import PairCounts
from heavydistill.store.sets.set_rows import (
    USED,
    Kind,
    LabelledRow,
    PairRow,
    SftRow,
    ThoughtfulLabelledRow,
    ThoughtfulPairRow,
    ThoughtfulSftRow,
)
from heavydistill.text.steps import first_false_step

MakeRow = Callable[[str, Generation], SftRow | str]
"""Makes the row for SFT of a prompt and a response, or returns the label that says why not."""

_FAULTY = "false_claims", USED  # labels of right deliberations with a false claim


def kind_of(known: GenerationNote) -> Kind | None:
    """Return what a response is an example of; None if it is none."""
    if known.label == "not_correct":
        return "wrong"
    if known.signs and known.signs.false_claims:
        return "false_claim" if known.right and known.label in _FAULTY else None
    return "right" if known.label == USED else None


@dataclass(frozen=True, slots=True)
class Responses:
    """The responses to one prompt of a role."""

    role: str
    prompt: str
    problem: Problem
    given: Sequence[tuple[Generation, GenerationNote]]
    rows: Mapping[str, SftRow]  # Rows for SFT, by id of the response
    most: int  # Maximum number of rows for SFT, and of wrong responses in ``unpaired``
    make: MakeRow


class ContrastRows:
    """Makes the rows of further sets; ``write`` is called with the name of a set and a row."""

    def __init__(
        self, also: Sequence[FurtherSet], write: Callable[[str, SftRow | PairRow], object]
    ) -> None:
        self._also, self._write = also, write
        self._seen: set[tuple[str, str]] = set()  # Problems and texts of responses that are wrong
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._ratios: dict[str, list[float]] = defaultdict(list)

    @property
    def pairs(self) -> dict[str, PairCounts]:
        """Return the counts of pairs by role; empty if no pairs were asked for."""
        roles = ("deliberator", "thinker") if "preferences" in self._also else ()
        medians = {role: round(median(ratios), 3) for role, ratios in self._ratios.items()}
        return {
            role: PairCounts(**self._counts[role], length_ratio=medians.get(role)) for role in roles
        }

    def add(self, found: Responses, language: str = "") -> None:
        """Write the rows of one prompt; with a language, critiques of the responses too."""
        right = [each for each, known in found.given if kind_of(known) == "right"]
        if not self._also or not right:
            return
        wrong = self._distinct(found)
        if "preferences" in self._also:
            self._add_pairs(found, right, wrong)
        if "unpaired" in self._also:
            made = ((found.make(found.prompt, each), kind) for each, kind in wrong)
            labelled = (_labelled(row, kind) for row, kind in made if isinstance(row, SftRow))
            for row in (
                *(_labelled(found.rows[each.id], "right") for each in right),
                *itertools.islice(labelled, found.most),
            ):
                self._write(f"unpaired_{found.role}", row)
        if "critiques" in self._also and language:
            for each in (*right, *(each for each, _ in wrong[: found.most])):
                critique = found.make(_asked(found.problem, each, language), _critique(each))
                if isinstance(critique, SftRow):
                    critique = replace(critique, role="critic")
                    kind: Kind = "right" if each.is_correct else "wrong"
                    self._write("critiques", _labelled(critique, kind))

    def _distinct(self, found: Responses) -> list[tuple[Generation, Kind]]:
        """Return the responses of other kinds than ``right``, those that say the same once."""
        wrong: list[tuple[Generation, Kind]] = []
        for each, known in found.given:
            key, kind = (found.problem.id, known.fingerprint), kind_of(known)
            if kind and kind != "right" and key not in self._seen:
                self._seen.add(key)
                wrong.append((each, kind))
        return wrong

    def _add_pairs(
        self,
        found: Responses,
        right: Sequence[Generation],
        wrong: Sequence[tuple[Generation, Kind]],
    ) -> None:
        counts, used = self._counts[found.role], set[str]()
        for chosen, (other, kind) in sorted(itertools.product(right, wrong), key=_difference):
            if not used.isdisjoint((chosen.id, other.id)):
                continue
            used.add(other.id)
            rejected = found.make(found.prompt, other)
            if isinstance(rejected, str):
                counts["unfit"] += 1
                continue
            used.add(chosen.id)
            counts[kind] += 1
            row = _pair(found.rows[chosen.id], rejected, kind)
            self._ratios[found.role].append(row.length_ratio)
            self._write(f"preferences_{found.role}", row)
        counts["alone"] += sum(each.id not in used for each in right)


def _difference(pair: tuple[Generation, tuple[Generation, Kind]]) -> float:
    """Return how different the lengths of two responses are: the ratio, as a distance."""
    chosen, (other, _) = pair
    one, two = (len(each.reasoning) + len(each.answer_text) for each in (chosen, other))
    return abs(math.log(one / two))


def _pair(chosen: SftRow, rejected: SftRow, kind: Kind) -> PairRow:
    make = ThoughtfulPairRow if isinstance(chosen, ThoughtfulSftRow) else PairRow
    lengths = chosen.completion_tokens, rejected.completion_tokens
    own: dict[str, Any] = {
        "chosen": chosen.completion,
        "rejected": rejected.completion,
        "rejected_generation": rejected.generation,
        "kind": kind,
        "length_ratio": lengths[0] / lengths[1],
        "completion_tokens": max(lengths),
    }
    names = [each.name for each in fields(make) if each.name not in own]
    return make(**own, **{name: getattr(chosen, name) for name in names})


def _labelled(row: SftRow, kind: Kind) -> LabelledRow:
    make = ThoughtfulLabelledRow if isinstance(row, ThoughtfulSftRow) else LabelledRow
    own = {each.name: getattr(row, each.name) for each in fields(row)}
    return make(**own, label=kind == "right", kind=kind)


def _asked(problem: Problem, attempt: Generation, language: str) -> str:
    """Return the prompt of a critique."""
    texts = {"problem": problem.text, "attempt": attempt.answer_text}
    texts = {name: defuse(text, ())[0].strip() for name, text in texts.items()}
    prompt = critic_prompt(language)
    return prompt.filled(**texts, fence=prompt.fence(texts.values()))


def _critique(attempt: Generation) -> Generation:
    """Return what is true of an attempt, as if it was a response of nobody."""
    verdict = "CORRECT" if attempt.is_correct else "INCORRECT"
    if not attempt.is_correct and (step := first_false_step(attempt.answer_text)):
        verdict = f"First wrong step: {step}\n\n{verdict}"
    return replace(attempt, reasoning="", answer_text=verdict, model="")
