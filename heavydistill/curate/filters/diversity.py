"""In which order texts are taken so that the first few are as different as can be.

How alike two texts are is the Jaccard similarity of their runs of three words: the runs that both
hold, of those that either holds. A text of fewer words is one run.

Not covered: the same thought in other words, which counts as different.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from heavydistill.curate.filters.words import words_of

RUN = 3


def most_different(texts: Sequence[str], rng: random.Random) -> list[int]:
    """The positions of all texts, each next one as unlike those before it as there is.

    The first is drawn, because the text that is most unlike all others is often an odd one. The
    next is always the one whose nearest of those taken is farthest away; of several, one is drawn.
    The same texts and state of ``rng`` give the same order.
    """
    left = list(range(len(texts)))
    rng.shuffle(left)
    runs = _runs(texts)
    sizes = np.array([len(of_text) for of_text in runs])
    starts = np.cumsum(sizes) - sizes
    numbers, numbered = np.unique(
        np.concatenate([np.empty(0, np.int64), *runs]), return_inverse=True
    )
    nearest = np.zeros(len(texts))
    order: list[int] = []
    while left:
        taken = min(left, key=nearest.__getitem__)
        left.remove(taken)
        order.append(taken)
        is_there = np.zeros(len(numbers), dtype=np.int64)
        is_there[numbered[starts[taken] : starts[taken] + sizes[taken]]] = 1
        shared = np.add.reduceat(is_there[numbered], starts)
        nearest = np.maximum(nearest, shared / (sizes[taken] + sizes - shared))
    return order


def _runs(texts: Sequence[str]) -> list[np.ndarray]:
    """The runs of each text, each once, as numbers that are equal for equal runs."""
    indices: dict[str, int] = {}
    indexed = []
    for text in texts:
        words = [indices.setdefault(word, len(indices) + 1) for word in words_of(text)]
        indexed.append(np.array(words + [0] * (RUN - len(words)), dtype=np.int64))
    base = len(indices) + 1
    return [np.unique((words[:-2] * base + words[1:-1]) * base + words[2:]) for words in indexed]
