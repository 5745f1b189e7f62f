"""Candidate sets: attempts at a problem that are shown together in one cache.

One pool gives several sets of different widths; no two sets show the same texts. The number of
correct members is drawn first, uniformly over the possible numbers. Drawing members uniformly would
rarely give the most instructive sets, e.g. one correct attempt among wrong ones. A draw depends
only on the pool, its problem and the seed. Members are usable attempts with a verdict; an undecided
one counts as not correct, as in ``heavy.voting``.

A set is an RL prompt if some of its deliberations are correct and some are not (``Success``),
because equal rewards give no learning signal.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from heavydistill.heavy import voting
from heavydistill.schema import Generation, Stratum, Trajectory
from heavydistill.store.sets.set_rows import USED

# Number of draws per requested set. Small pools repeat draws, so more would find no new sets.
_DRAWS = 8

UNMEASURED, ALWAYS_RIGHT, NEVER_RIGHT = "unmeasured", "always_right", "never_right"
FEWEST_JUDGED = 2


@dataclass(frozen=True, slots=True)
class CandidateSet:
    """A selection of the attempts at one problem; sets that show the same texts are equal."""

    problem: str  # Id of the problem
    members: tuple[str, ...] = field(compare=False)
    """Ids of the attempts, in the order of the pool or of the run's cache."""
    right: int  # Number of correct members
    stratum: Stratum  # See ``heavy.voting.stratum``
    texts: str  # Hash of the texts shown in its cache; see ``same_texts``

    @property
    def width(self) -> int:
        return len(self.members)

    @property
    def accuracy(self) -> float:
        """Return the share of correct members."""
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
    """Draw distinct candidate sets from one pool, and return them in the order of drawing.

    Args:
        problem: Id of the problem.
        pool: All trajectories of the problem, with unique ids.
        widths: Widths to draw from; widths larger than the pool are ignored.
        most: Maximum number of sets.
        seed: Seed of the whole build.
        shown_already: Hashes of the texts of existing sets, which are not drawn again; see
            ``same_texts``.
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
    """Return the set of these attempts; ``problem`` is the problem's id."""
    return CandidateSet(
        problem=problem,
        members=tuple(attempt.id for attempt in shown),
        right=sum(attempt.is_correct for attempt in shown),
        stratum=voting.stratum(shown),
        texts=same_texts(shown),
    )


def same_texts(shown: Iterable[Generation]) -> str:
    """Return a hash of the answer texts that does not depend on their order."""
    hashes = sorted(hashlib.sha256(attempt.answer_text.encode()).hexdigest() for attempt in shown)
    return hashlib.sha256("".join(hashes).encode()).hexdigest()[:32]


def generator(*parts: object) -> random.Random:
    """Return a random generator seeded by ``parts``, identical in every process."""
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
    """The success rate of the deliberations on one set."""

    share: float | None  # Share of correct ones among those judged; None if none is judged
    judged: int  # Number of deliberations whose verdict is not undecided
    label: str  # ``USED`` for an RL prompt; otherwise the reason for not being one


def success_of(deliberations: Iterable[bool | None]) -> Success:
    """Return the success rate of one set, given ``right`` of each of its deliberations."""
    judged = [right for right in deliberations if right is not None]
    right = sum(judged)
    share = right / len(judged) if judged else None
    if len(judged) < FEWEST_JUDGED:
        return Success(share, len(judged), UNMEASURED)
    label = USED if 0 < right < len(judged) else ALWAYS_RIGHT if right else NEVER_RIGHT
    return Success(share, len(judged), label)
