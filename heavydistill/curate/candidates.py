"""Candidate sets: attempts at a problem that are shown together in one cache.

One pool gives several sets of different widths, no two of which show the same texts. The number of
right members is drawn first, each number equally likely, because uniform draws would hardly ever
give the rare and instructive sets, such as one right attempt among wrong ones. A draw depends only
on the pool, its problem and the seed. Members are usable attempts with a verdict; an undecided one
counts as not right, as in ``heavy.voting``.

A set is a prompt of RL if some of its deliberations are right and some are not (``Success``),
because equal rewards teach nothing.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from heavydistill.heavy import voting
from heavydistill.schema import Deliberation, Generation, Stratum, Trajectory
from heavydistill.store.sets.set_rows import USED

# Draws per wanted set. In narrow pools draws repeat, so more of them find no further sets.
_DRAWS = 8

UNMEASURED, ALWAYS_RIGHT, NEVER_RIGHT = "unmeasured", "always_right", "never_right"
FEWEST_JUDGED = 2


@dataclass(frozen=True, slots=True)
class CandidateSet:
    """Some of the attempts at one problem; sets that show the same texts are equal."""

    problem: str  # Id of the problem
    members: tuple[str, ...] = field(compare=False)
    """Ids of the attempts, in the order of the pool, or of the cache of a run."""
    right: int  # Number of correct members
    stratum: Stratum  # See ``heavy.voting.stratum``
    texts: str  # Hash of the texts that a cache of it shows; see ``same_texts``

    @property
    def width(self) -> int:
        return len(self.members)

    @property
    def accuracy(self) -> float:
        """Share of the members that are right."""
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
        pool: All trajectories of the problem, with unique ids.
        widths: Widths to draw from; widths that the pool cannot fill are ignored.
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
    """The set of these attempts; ``problem`` is the id of their problem."""
    return CandidateSet(
        problem=problem,
        members=tuple(attempt.id for attempt in shown),
        right=sum(attempt.is_correct for attempt in shown),
        stratum=voting.stratum(shown),
        texts=same_texts(shown),
    )


def same_texts(shown: Iterable[Generation]) -> str:
    """A hash of the answer texts that does not depend on their order."""
    hashes = sorted(hashlib.sha256(attempt.answer_text.encode()).hexdigest() for attempt in shown)
    return hashlib.sha256("".join(hashes).encode()).hexdigest()[:32]


def generator(*parts: object) -> random.Random:
    """A random generator seeded by ``parts``, the same in every process."""
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
    """Success of the deliberations on one set."""

    share: float | None  # Share of the judged deliberations that are right; None if none is judged
    judged: int  # Number of deliberations whose verdict is not undecided
    label: str  # ``USED`` if the set is a prompt of RL, else the reason why it is not


def success_of(deliberations: Iterable[bool | None]) -> Success:
    """The success of one set, given ``is_right`` of each of its deliberations."""
    judged = [right for right in deliberations if right is not None]
    right = sum(judged)
    share = right / len(judged) if judged else None
    if len(judged) < FEWEST_JUDGED:
        return Success(share, len(judged), UNMEASURED)
    label = USED if 0 < right < len(judged) else ALWAYS_RIGHT if right else NEVER_RIGHT
    return Success(share, len(judged), label)


def is_right(deliberation: Deliberation) -> bool | None:
    """Whether its verdict is correct; None if it failed, was cut off or is undecided."""
    verdict = deliberation.verdict
    return None if verdict is None or verdict.label == "undecided" else verdict.is_correct
