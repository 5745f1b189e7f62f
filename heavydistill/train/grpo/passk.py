"""The pass@k advantage, which trains a thinker to produce good pools for a deliberator.

This is our extension; the paper trains only the deliberator. A deliberator needs one correct
attempt in the pool, so a pool of k attempts gets the reward of its best attempt.

The advantage. For a group of G answers with the rewards r_1 .. r_G let s_i be the mean, over all
sets of k answers that contain answer i, of the best reward in the set, and let rho be the mean of
the best reward over all sets of k. Then

    A_i = k (G - 1) / (G - k) * (s_i - rho),        1 <= k < G

makes the mean of A_i times the gradient of log p(answer i) an estimate of (G - 1) / G times the
gradient of the expected best reward of k answers, which is pass@k if rewards are 0 and 1. The plain
advantage, r_i - mean(r), has the same factor (G - 1) / G.

Proof. The gradient of the mean over all sets of k is the sum over i of (k / G) s_i times the
gradient of log p(answer i). Subtracting from s_i the mean u_i over the sets without answer i does
not change the expectation, because u_i does not depend on answer i. And rho = (k / G) s_i + (1 - k
/ G) u_i, so s_i - rho = (1 - k / G) (s_i - u_i).

With k = 1 this is the plain advantage; equal rewards give 0, and a group sums to 0. With k = G
there is only one set and nothing to compare it with, so k = G is refused.

arXiv 2508.10751 (Pass@k Training) uses the same sets but divides the advantage by the standard
deviation of the best reward, which changes the gradient. Dividing by the standard deviation of s_i,
as in GRPO, would give the same advantage for every k.

Answers without a reward (undecided ones) are in no set and have no advantage. A group with at most
k rewarded answers has no advantages, and is counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from heavydistill.train.grpo.trainer import RlTrainer

TOO_FEW = "pass_at_k/too_few"
"""Name of a metric: share of the groups with at most k rewarded answers."""


def advantages(rewards: Sequence[float], k: int) -> list[float]:
    """Return the advantages of a group's answers; k >= 1. A NaN in ``rewards`` means no reward.

    An answer without a reward has advantage 0; with at most k rewarded answers, all have 0.
    """
    scored = sorted(
        (i for i, reward in enumerate(rewards) if not math.isnan(reward)), key=rewards.__getitem__
    )
    size = len(scored)
    values = [0.0] * len(rewards)
    if size <= k:
        return values
    best = _best_with([rewards[i] for i in scored], k)
    mean = math.fsum(best) / size
    for i, with_it in zip(scored, best, strict=True):
        values[i] = k * (size - 1) / (size - k) * (with_it - mean)
    return values


def _best_with(ascending: Sequence[float], k: int) -> list[float]:
    """Return s_i for each reward: the mean best reward of the sets of k that contain answer i.

    With rewards in ascending order, the best answer of a set is its last one. Answer j is the last
    of C(j, k - 1) sets; a later answer m is the last of C(m - 1, k - 2) sets that contain j.
    """
    sets = math.comb(len(ascending) - 1, k - 1)
    best = [0.0] * len(ascending)
    of_later = 0.0
    for j in reversed(range(len(ascending))):
        best[j] = (ascending[j] * math.comb(j, k - 1) + of_later) / sets
        if k > 1 and j > 0:
            of_later += ascending[j] * math.comb(j - 1, k - 2)
    return best


class ThinkerTrainer(RlTrainer):
    """Trains a thinker with the pass@k advantage.

    The log shows the rewards of single answers. ``pass_at_k`` must be below ``num_generations``,
    and rewards are not scaled (``options`` checks both).
    """

    def __init__(self, *, pass_at_k: int, **options: object) -> None:
        self._k = pass_at_k
        super().__init__(**options)

    def _own_advantages(self, rewards: torch.Tensor) -> torch.Tensor | None:
        if self._k == 1:
            return None
        groups = rewards.view(-1, self.num_generations).tolist()
        few = sum(sum(map(math.isnan, group)) >= len(group) - self._k for group in groups)
        self._metrics["train"][TOO_FEW].append(few / len(groups))
        return rewards.new_tensor([each for group in groups for each in advantages(group, self._k)])
