"""The mixture: presets that select the candidate sets for training.

What a deliberator learns depends on the strata in its training data. Only hard sets would teach it
to distrust majorities; only easy sets would teach it to copy the vote. A preset defines which sets
are admitted, how wide they are, and how many sets a stratum may have relative to others.

    balanced    4 to 16 attempts, or as many as a run showed; all minority-right and tie; half as
                many majority-right; at most 5 % all-right; at most 10 % all-wrong, and those only
                with a correct deliberation
    agglm       AggLM (arXiv 2509.06870): 8 attempts; all sets whose vote is wrong or tied, and
                half as many whose vote is right
    pacore      PaCoRe (arXiv 2601.05593), its first stage: 16 to 24 attempts; some are right,
                fewer than 9 in 24, of code fewer than 15 in 24
    genselect   GenSelect (NVIDIA NeMo-Skills): 2 to 16 attempts of at least 4; some right, some
                wrong, no more right than wrong; at most 20,000 tokens
    heavyskill  HeavySkill (arXiv 2605.02396, appendix B): 8 or 16 attempts, of which at most 5 in
                8 are right
    natural     all sets, in their natural proportions: for GRPO on a student's own run, which
                then trains on the sets that it will meet in use. Easy sets do no harm there:
                prompts that are always answered correctly are left out of GRPO

Not covered: other rules of the sources, e.g. how GenSelect draws its widths.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from heavydistill.config.sets import BuildConfig
from heavydistill.curate.candidates import CandidateSet, generator
from heavydistill.schema import Stratum
from heavydistill.store.sets.set_rows import USED

NOT_ADMITTED, OVER_BOUND = "not_admitted", "over_bound"


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit of the mixture on the number of sets of some strata."""

    strata: frozenset[Stratum]  # Strata that are counted together
    share: float  # Maximum, as a share of the sets of the strata ``of``
    of: frozenset[Stratum] = frozenset()  # Strata of the base; empty: all sets that are kept


@dataclass(frozen=True, slots=True)
class Preset:
    """One preset of the mixture."""

    widths: tuple[int, ...]  # Numbers of attempts in a drawn set, ascending
    any_width: bool = False  # Whether sets of a run may have other widths too
    admits: Callable[[CandidateSet, str], bool] = lambda candidate, domain: True
    """Function of a set and its problem's domain: whether a set of allowed width may be used."""
    bounds: tuple[Bound, ...] = ()
    fewest_attempts: int = 2  # Minimum number of usable attempts in a pool
    most_tokens: int | None = None
    """Maximum number of tokens of a cache by the student's tokenizer; None for the student's
    context."""

    def takes(self, candidate: CandidateSet, domain: str) -> bool:
        """Return whether a set of a problem in this domain may be used."""
        return (self.any_width or candidate.width in self.widths) and self.admits(candidate, domain)


def preset_of(config: BuildConfig) -> Preset:
    """Return the preset of a build, with its widths replaced by ``sets.widths`` if given."""
    preset, widths = PRESETS[config.preset], config.sets.widths
    return replace(preset, widths=tuple(sorted(set(widths)))) if widths else preset


def mix(
    sets: Iterable[CandidateSet], preset: Preset, domains: Mapping[str, str], seed: int
) -> dict[CandidateSet, str]:
    """Label each distinct set ``USED``, ``NOT_ADMITTED`` or ``OVER_BOUND``.

    ``domains`` has the domains of the problems by id. If a stratum has too many sets, one set of
    each problem is kept before second sets of a problem; ties are drawn with the seed.
    """
    labels = dict.fromkeys(sets, NOT_ADMITTED)
    admitted: dict[Stratum, list[CandidateSet]] = defaultdict(list)
    for candidate in labels:
        if preset.takes(candidate, domains[candidate.problem]):
            admitted[candidate.stratum].append(candidate)
    room = _room({stratum: len(those) for stratum, those in admitted.items()}, preset.bounds)
    for stratum, those in admitted.items():
        for place, candidate in enumerate(_spread(those, seed)):
            labels[candidate] = USED if place < room[stratum] else OVER_BOUND
    return labels


def _room(there: Mapping[Stratum, int], bounds: Iterable[Bound]) -> dict[Stratum, int]:
    """Return the largest number of sets of each stratum that satisfies every bound.

    Removing sets lowers the base of other bounds, so this repeats until nothing changes.
    """
    room, moved = dict(there), True
    while moved:
        moved = False
        for bound in bounds:
            counted = [stratum for stratum in room if stratum in bound.strata]
            base = sum(n for stratum, n in room.items() if not bound.of or stratum in bound.of)
            excess = sum(room[s] for s in counted) - math.floor(bound.share * base)
            for stratum in sorted(counted, key=lambda s: -room[s]):
                if excess > 0 and room[stratum]:
                    taken = min(excess, room[stratum])
                    room[stratum], excess, moved = room[stratum] - taken, excess - taken, True
    return room


def _spread(sets: Sequence[CandidateSet], seed: int) -> list[CandidateSet]:
    """Return the sets in random order, all first sets of the problems before any second set."""
    rng = generator(seed, "mixture", sets[0].stratum)
    drawn = rng.sample(sets, len(sets))
    seen: Counter[str] = Counter()
    turns: list[tuple[int, int]] = []
    for number, candidate in enumerate(drawn):
        turns.append((seen[candidate.problem], number))
        seen[candidate.problem] += 1
    return [drawn[number] for _, number in sorted(turns)]


_WIDTHS = tuple(range(4, 17))
_HARD: frozenset[Stratum] = frozenset({"minority-right", "tie"})
PRESETS: dict[str, Preset] = {
    "balanced": Preset(
        widths=_WIDTHS,
        any_width=True,
        bounds=(
            Bound(frozenset({"majority-right"}), 0.5, of=_HARD),
            Bound(frozenset({"all-right"}), 0.05),
            Bound(frozenset({"all-wrong"}), 0.10),
        ),
    ),
    "agglm": Preset(
        widths=(8,),
        bounds=(Bound(frozenset({"majority-right", "all-right"}), 0.5, of=_HARD | {"all-wrong"}),),
    ),
    "pacore": Preset(
        widths=tuple(range(16, 25)),
        admits=lambda of, domain: 0 < of.accuracy < (15 if domain == "code" else 9) / 24,
    ),
    "genselect": Preset(
        widths=tuple(range(2, 17)),
        admits=lambda of, domain: 0 < of.right <= of.width - of.right,
        fewest_attempts=4,
        most_tokens=20_000,
    ),
    "natural": Preset(widths=_WIDTHS, any_width=True),
    "heavyskill": Preset(widths=(8, 16), admits=lambda of, domain: of.accuracy <= 0.625),
}
