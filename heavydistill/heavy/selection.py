"""Selects the trajectories of a pool for a cache.

Only usable trajectories are selected (``Generation.unusable_because`` is None). Answers are
compared by their ``extracted`` string; a trajectory without an extracted answer ("unparsed") equals
no other. A selection depends only on the pool and the random generator, which also breaks ties. The
order of the result has no meaning, because the cache shuffles it.

Not covered: duplicate wordings, and judgements of quality.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain, zip_longest
from typing import TypeVar

from heavydistill import plugins
from heavydistill.schema import Generation

_G = TypeVar("_G", bound=Generation)


def select(strategy: str, pool: Sequence[_G], width: int, rng: random.Random) -> list[_G]:
    """Select ``width`` usable trajectories of the pool, or all of them if there are fewer.

    The functions below implement the strategies; only ``group_one`` and plug-ins may select fewer.
    All random choices use ``rng``. Raises ConfigError if a plug-in fails or selects others.
    """
    usable = [generation for generation in pool if generation.unusable_because is None]
    rng.shuffle(usable)
    if strategy in _STRATEGIES or not usable:
        return _STRATEGIES.get(strategy, _random)(usable, width, rng)
    own = plugins.get("selection", strategy)
    chosen: list[_G] = own([*usable], width, rng)
    known = {id(generation) for generation in usable}
    ids = {id(generation) for generation in chosen} if isinstance(chosen, list) else set()
    if not ids or len(ids) < len(chosen) or len(ids) > width or not ids <= known:
        raise own.fault(f"did not return a list of 1 to {width} different attempts of the pool")
    return chosen


def _random(shuffled: list[_G], width: int, rng: random.Random) -> list[_G]:
    """Draw ``width`` trajectories uniformly, without replacement."""
    return shuffled[:width]


def _max_answer_num(shuffled: list[_G], width: int, rng: random.Random) -> list[_G]:
    """Take trajectories by the frequency of their answer, the most frequent first, unparsed last.

    This is the paper's strategy. It reveals the majority to the deliberator: if the majority is
    wrong, the right attempts are omitted first, which removes minority-right cases from training
    data.
    """
    groups = _by_answer(shuffled)
    groups.sort(key=lambda group: -len(group) if group[0].extracted is not None else 1)
    return list(chain.from_iterable(groups))[:width]


def _max_diversity(shuffled: list[_G], width: int, rng: random.Random) -> list[_G]:
    """Take one trajectory of each answer, then a second one of each, and so on."""
    return _in_turns(_by_answer(shuffled), width, rng)


def _each_model(shuffled: list[_G], width: int, rng: random.Random) -> list[_G]:
    """Take one trajectory of each model, then a second one of each, and so on."""
    models: dict[str, list[_G]] = defaultdict(list)
    for generation in shuffled:
        models[generation.model].append(generation)
    return _in_turns(list(models.values()), width, rng)


def _max_length(shuffled: list[_G], width: int, rng: random.Random) -> list[_G]:
    """Take the longest trajectories, reasoning and answer text together.

    Length is in completion tokens, or in characters if the tokens of any usable trajectory are
    unknown.
    """
    known = all(generation.completion_tokens >= 0 for generation in shuffled)

    def length(generation: _G) -> int:
        if known:
            return generation.completion_tokens
        return len(generation.reasoning) + len(generation.answer_text)

    return sorted(shuffled, key=length, reverse=True)[:width]


def _group_one(shuffled: list[_G], width: int, rng: random.Random) -> list[_G]:
    """Take one trajectory of each distinct answer, which may be fewer than ``width``."""
    groups = _by_answer(shuffled)
    rng.shuffle(groups)
    return [group[0] for group in groups][:width]


def _stratified(shuffled: list[_G], width: int, rng: random.Random) -> list[_G]:
    """Keep the share of right trajectories the same as in the usable pool, as far as possible.

    The strategy reads verdicts, so use it for training data and not for evaluations. A share
    half-way between two numbers of right trajectories is rounded at random.
    """
    right = [generation for generation in shuffled if generation.is_correct]
    others = [generation for generation in shuffled if not generation.is_correct]
    total = max(1, len(shuffled))
    width = min(width, total)
    count, rest = divmod(width * len(right), total)
    count += 2 * rest > total or (2 * rest == total and rng.random() < 0.5)
    return right[:count] + others[: width - count]


def _in_turns(groups: list[list[_G]], width: int, rng: random.Random) -> list[_G]:
    """Take one trajectory of each group in random order, then a second one of each, and so on."""
    rng.shuffle(groups)
    turns = zip_longest(*groups)
    return [each for turn in turns for each in turn if each is not None][:width]


def _by_answer(shuffled: list[_G]) -> list[list[_G]]:
    """Group trajectories by answer, in order of first appearance; each unparsed one is a group."""
    groups: dict[object, list[_G]] = defaultdict(list)
    for number, generation in enumerate(shuffled):
        answer = generation.extracted
        groups[number if answer is None else answer].append(generation)
    return list(groups.values())


_STRATEGIES: dict[str, Callable[[list[_G], int, random.Random], list[_G]]] = {
    "random": _random,
    "max_answer_num": _max_answer_num,
    "max_diversity": _max_diversity,
    "each_model": _each_model,
    "max_length": _max_length,
    "group_one": _group_one,
    "stratified": _stratified,
}
