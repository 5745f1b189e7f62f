"""Candidate sets: which attempts at a problem stand together in one cache.

One pool gives several sets of different widths, no two of which show the same texts. They are drawn
by how many of their members are right, each number as likely as any other, because uniform draws
would hardly ever give the rare and instructive ones, such as one right attempt among wrong ones.
They depend on the pool, its problem and the seed alone. Only usable attempts with a verdict are
members; an undecided one counts as not right, as in ``heavy.voting``.

How often a set is deliberated rightly (``Success``) makes it a prompt of RL: it teaches where some
deliberations are right and some are not, for equal rewards tell nothing apart.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from heavydistill.heavy import voting
from heavydistill.schema import Deliberation, Generation, Stratum, Trajectory
from heavydistill.store.sets.set_rows import USED

# Draws for each set that is wanted. Narrow pools repeat themselves, so more draws find no more.
_DRAWS = 8

UNMEASURED, ALWAYS_RIGHT, NEVER_RIGHT = "unmeasured", "always_right", "never_right"
FEWEST_JUDGED = 2


@dataclass(frozen=True, slots=True)
class CandidateSet:
    """Some of the attempts at one problem; equal to another one that shows the same."""

    problem: str  # id of the problem
    members: tuple[str, ...] = field(compare=False)
    """Ids of the attempts, in the order of the pool, or of the cache of a run."""
    right: int  # how many of them are correct
    stratum: Stratum  # see ``heavy.voting.stratum``
    texts: str  # what a cache of it shows; see ``same_texts``

    @property
    def width(self) -> int:
        return len(self.members)

    @property
    def accuracy(self) -> float:
        """The share of members that are right."""
        return self.right / len(self.members)


def draw_sets(
    problem: str,
    pool: Sequence[Trajectory],
    *,
    widths: Sequence[int],
    most: int,
    seed: int,
    shown_already: Collection[str] = (),
) -> list[CandidateSet]:
    """Different candidate sets of one pool, in the order in which they were drawn.

    Args:
        problem: Id of the problem.
        pool: All trajectories of the problem, ids unique.
        widths: The widths to draw from; those that the pool cannot fill are passed over.
        most: Maximum number of sets.
        seed: Seed of the whole build.
        shown_already: What the sets that are there already show; see ``same_texts``.
    """
    members = [t for t in pool if t.unusable_because is None and t.verdict is not None]
    feasible = [width for width in sorted(set(widths)) if width <= len(members)]
    if not feasible or most < 1:
        return []
    rng = generator(seed, problem, "sets")
    sets: dict[str, CandidateSet] = {}
    for _ in range(_DRAWS * most):
        drawn = _draw(members, rng.choice(feasible), rng)
        if (texts := same_texts(drawn)) not in shown_already:
            sets.setdefault(texts, set_of(problem, drawn))
        if len(sets) == most:
            break
    return list(sets.values())


def set_of(problem: str, shown: Sequence[Generation]) -> CandidateSet:
    """These attempts at the problem of an id, as a set."""
    return CandidateSet(
        problem=problem,
        members=tuple(attempt.id for attempt in shown),
        right=sum(attempt.is_correct for attempt in shown),
        stratum=voting.stratum(shown),
        texts=same_texts(shown),
    )


def same_texts(shown: Iterable[Generation]) -> str:
    """The same for attempts that say the same, each text as often, whatever the order."""
    hashes = sorted(hashlib.sha256(attempt.answer_text.encode()).hexdigest() for attempt in shown)
    return hashlib.sha256("".join(hashes).encode()).hexdigest()[:32]


def generator(*parts: object) -> random.Random:
    """A generator that is the same for the same parts in every process."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return random.Random(int.from_bytes(digest))


def _draw(members: list[Trajectory], width: int, rng: random.Random) -> list[Trajectory]:
    right = [member for member in members if member.is_correct]
    others = [member for member in members if not member.is_correct]
    fewest, most = max(0, width - len(others)), min(width, len(right))
    count = rng.randint(fewest, most)
    ids = {t.id for t in (*rng.sample(right, count), *rng.sample(others, width - count))}
    return [member for member in members if member.id in ids]


@dataclass(frozen=True, slots=True)
class Success:
    """How often one set is deliberated rightly."""

    share: float | None  # of its judged deliberations, those that are right; None without any
    judged: int  # deliberations with a verdict that is not undecided
    label: str  # ``USED`` if it is a prompt of RL, else why it is none


def success_of(deliberations: Iterable[bool | None]) -> Success:
    """The success of one set, from ``is_right`` of each of its deliberations."""
    judged = [right for right in deliberations if right is not None]
    right = sum(judged)
    share = right / len(judged) if judged else None
    if len(judged) < FEWEST_JUDGED:
        return Success(share, len(judged), UNMEASURED)
    label = USED if 0 < right < len(judged) else ALWAYS_RIGHT if right else NEVER_RIGHT
    return Success(share, len(judged), label)


def is_right(deliberation: Deliberation) -> bool | None:
    """By its verdict; None if it failed, was cut off or is undecided, which tells nothing."""
    verdict = deliberation.verdict
    return None if verdict is None or verdict.label == "undecided" else verdict.is_correct
