"""The pass@k advantage: a thinker that is trained for the pool that a deliberator reads.

An extension of ours; the paper trained the deliberator alone. A deliberator needs one attempt that
is right, rather than every one, so a thinker is rewarded here for a pool of k attempts by the best
of them.

The advantage. Of a group of G answers with the rewards r_1 .. r_G let s_i be the mean, over all
sets of k of them that hold answer i, of the best reward in the set, and let rho be the mean of the
best reward over all sets of k. Then

    A_i = k (G - 1) / (G - k) * (s_i - rho),        1 <= k < G

is such that the mean of A_i times the gradient of log p(answer i) has the expectation
(G - 1) / G times the gradient of the expected best reward of k answers: of pass@k, where rewards
are 0 and 1. The factor (G - 1) / G is the one that the plain advantage, r_i - mean(r), has.

Why. The gradient of the mean over all sets of k is the sum over i of (k / G) s_i times the gradient
of log p(answer i). Nothing changes if u_i is subtracted from s_i, the mean over the sets that
answer i is not in, for u_i does not depend on answer i. And rho = (k / G) s_i + (1 - k / G) u_i,
so s_i - rho = (1 - k / G) (s_i - u_i).

So k = 1 is the plain advantage, groups whose rewards are equal have none, and it adds up to zero in
a group. With k = G there is only one set, and nothing to compare it with: it is refused.

The sets of k are those of arXiv 2508.10751 (Pass@k Training), which divides the advantage by the
standard deviation of the best reward, and so has the gradient of something else. Divided by that of
s_i, as GRPO does, it would be the same for every k.

Answers without a reward (undecided ones) belong to no set, and have no advantage; a group in which
k or fewer are left has none either, which is counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from heavydistill.train.grpo.trainer import RlTrainer

TOO_FEW = "pass_at_k/too_few"
"""Metric: share of the groups in which k or fewer answers have a reward."""


def advantages(rewards: Sequence[float], k: int) -> list[float]:
    """The advantages of a group's answers, of which those without a reward have NaN; k >= 1.

    They are 0 where there is no reward, and everywhere if k or fewer answers have one.
    """
    scored = sorted(
        (i for i, reward in enumerate(rewards) if not math.isnan(reward)), key=rewards.__getitem__
    )
    size = len(scored)
    found = [0.0] * len(rewards)
    if size <= k:
        return found
    best = _best_with([rewards[i] for i in scored], k)
    mean = math.fsum(best) / size
    for i, with_it in zip(scored, best, strict=True):
        found[i] = k * (size - 1) / (size - k) * (with_it - mean)
    return found


def _best_with(ascending: Sequence[float], k: int) -> list[float]:
    """s_i of each reward: the mean best reward of the sets of k that it is in.

    The best of a set is its last one in this order. Answer j is the last one of C(j, k - 1) sets;
    with it in the set, a later answer m is the last one of C(m - 1, k - 2).
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
    """Trains a thinker for a pool of k attempts.

    What is logged of rewards stays what the answers earned one by one. ``pass_at_k`` is below
    ``num_generations``, and rewards are not scaled (checked by ``config``).
    """

    def __init__(self, *, pass_at_k: int, **options: Any) -> None:
        self._k = pass_at_k
        super().__init__(**options)

    def _own_advantages(self, rewards: torch.Tensor) -> torch.Tensor | None:
        if self._k == 1:
            return None
        groups = rewards.view(-1, self.num_generations).tolist()
        few = sum(sum(map(math.isnan, group)) >= len(group) - self._k for group in groups)
        self._metrics["train"][TOO_FEW].append(few / len(groups))
        return rewards.new_tensor([each for group in groups for each in advantages(group, self._k)])
