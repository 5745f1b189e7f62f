"""Candidate sets: which attempts at a problem stand together in one cache.

One pool gives several sets of different widths. No two of a problem show the same texts the same
number of times, whatever their order; the order is the cache's to shuffle. Sets are drawn by how
many of their members are right, each number as likely as any other, because uniform draws from a
pool would hardly ever give the rare and instructive ones, such as one right attempt among wrong
ones. They depend on the pool, its problem and the seed alone.

Only usable attempts with a verdict are ever members. One that the verifier left undecided is a
member like any other; it counts as not right, as in ``heavy.voting``.

Not covered: which of the sets are used (``presets``), and how a set becomes a prompt
(``heavy.cache``).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from heavydistill.heavy import voting
from heavydistill.schema import Generation, Stratum, Trajectory

# Draws for each set that is wanted. Narrow pools repeat themselves, so more draws find no more.
_DRAWS = 8


@dataclass(frozen=True, slots=True)
class CandidateSet:
    """Some of the attempts at one problem; equal to another one that shows the same.

    Attributes:
        problem: Id of the problem.
        members: Ids of the attempts, in the order of the pool, or of the cache of a run.
        right: How many of them are correct.
        stratum: Of the set; see ``heavy.voting.stratum``.
        texts: What a cache of it shows; see ``same_texts``.
    """

    problem: str
    members: tuple[str, ...] = field(compare=False)
    right: int
    stratum: Stratum
    texts: str

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
    taken: Collection[str] = (),
) -> list[CandidateSet]:
    """Different candidate sets of one pool.

    Args:
        problem: Id of the problem.
        pool: All trajectories of the problem, ids unique.
        widths: The widths to draw from; those that the pool cannot fill are passed over.
        most: Most sets.
        seed: Of the whole build.
        taken: What the sets that are there already show; see ``same_texts``.

    Returns:
        At most ``most`` sets, in the order in which they were drawn; none if too few attempts
        are usable for the smallest width.
    """
    members = [t for t in pool if t.unusable_because is None and t.verdict is not None]
    feasible = [width for width in sorted(set(widths)) if width <= len(members)]
    if not feasible or most < 1:
        return []
    rng = generator(seed, problem, "sets")
    found: dict[str, CandidateSet] = {}
    for _ in range(_DRAWS * most):
        drawn = _draw(members, rng.choice(feasible), rng)
        if (texts := same_texts(drawn)) not in taken:
            found.setdefault(texts, set_of(problem, drawn))
        if len(found) == most:
            break
    return list(found.values())


def set_of(problem: str, shown: Sequence[Generation]) -> CandidateSet:
    """These attempts at the problem of an id, as a set."""
    return CandidateSet(
        problem=problem,
        members=tuple(one.id for one in shown),
        right=sum(one.is_correct for one in shown),
        stratum=voting.stratum(shown),
        texts=same_texts(shown),
    )


def same_texts(shown: Iterable[Generation]) -> str:
    """The same for attempts that say the same, each text as often, whatever the order."""
    hashes = sorted(hashlib.sha256(one.answer_text.encode()).hexdigest() for one in shown)
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
