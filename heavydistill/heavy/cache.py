"""Serializes a problem and attempts at it into the one prompt that a deliberator reads.

The prompt is the opening of the wording, the problem, the attempts, the closing. Each block
opens with a header line that begins with the fence, a run of ``=`` that is longer than any run in
the problem or the attempts, so nothing that a user or a model wrote can pose as a header, and no
placeholder is filled after their text is in.

``build_cache`` holds, for every reader and every text: each selected trajectory and each carried
deliberation is there with its final answer; the prompt has at most its budget of tokens in the
reader's tokenizer, as measured on the whole prompt; the order is random, given by the seed, and
stored; what is not there is listed with a reason.

Not covered: the chat template and its tokens, which the caller takes off the budget. A very long
run of ``=`` is paid for in every header.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from heavydistill.config.run import Pruning, Selection
from heavydistill.errors import BudgetError
from heavydistill.heavy.prompts import FENCE_SLOT, Prompt
from heavydistill.heavy.pruning import Reader, defuse, fit, prepare, prune
from heavydistill.heavy.selection import select
from heavydistill.schema import (
    Cache,
    Deliberation,
    Generation,
    LeftOut,
    Problem,
    Trajectory,
    content_id,
)

_SHORTEST_FENCE = 4


def build_cache(
    problem: Problem,
    generations: Sequence[Trajectory],
    *,
    round: int,
    seed: int,
    selection: Selection,
    width: int | None,
    pruning: Pruning,
    budget_tokens: int,
    prompt: Prompt,
    reader: Reader,
    carried: Sequence[Deliberation] = (),
    order: int = 0,
) -> Cache:
    """Select, shuffle, cut and serialize.

    Args:
        problem: The problem.
        generations: The problem's pool, with unique ids; unusable trajectories are left out, each
            with its reason.
        round: Number of the round, from 1.
        seed: Seed of the run. Selection and order depend on it, the problem's id and the round.
        selection: Strategy of ``selection.select``.
        width: Maximum number of trajectories; None takes all usable ones.
        pruning: Mode of ``pruning``.
        budget_tokens: Maximum number of tokens of the prompt, in the reader's tokenizer.
        prompt: The deliberator's wording.
        reader: Tokenizer of the model that will read the prompt.
        carried: Earlier deliberations (see the function ``carried``). All usable ones are further
            attempts, kept beside the selected trajectories and shuffled in with them.
        order: Places by which the shuffled attempts are moved round.

    Raises:
        BudgetError: The wording, the problem and the final answers alone are over the budget.
    """
    # The same for the same run, problem and round in every process.
    digest = hashlib.sha256("\x1f".join(map(str, (seed, problem.id, round))).encode()).digest()
    rng = random.Random(int.from_bytes(digest))
    chosen = select(selection, generations, width or len(generations), rng)
    shown: list[Generation] = [*chosen, *(d for d in carried if d.unusable_because is None)]
    rng.shuffle(shown)
    shown = [shown[(place + order) % len(shown)] for place in range(len(shown))]
    ids = {generation.id for generation in shown}
    left_out = [
        LeftOut(generation=g.id, reason=g.unusable_because or "not_selected")
        for g in (*generations, *carried)
        if g.id not in ids
    ]
    made = {"round": round, "seed": seed, "selection": selection, "left_out": left_out}
    return _cut(made, problem, shown, pruning, budget_tokens, prompt, reader)


def recut(
    problem: Problem,
    cache: Cache,
    generations: Sequence[Generation],
    *,
    budget_tokens: int,
    prompt: Prompt,
    reader: Reader,
) -> Cache:
    """The same attempts in the same order, cut for another reader or a smaller budget.

    ``generations`` are those that it shows, and any others; its mode of pruning stays. Raises
    BudgetError as ``build_cache`` does.
    """
    by_id = {generation.id: generation for generation in generations}
    shown = [by_id[item.generation] for item in cache.items]
    pruning = cast(Pruning, cache.items[0].mode)
    made = {name: getattr(cache, name) for name in ("round", "seed", "selection", "left_out")}
    return _cut(made, problem, shown, pruning, budget_tokens, prompt, reader)


def _cut(
    made: Mapping[str, Any],
    problem: Problem,
    shown: Sequence[Generation],
    pruning: Pruning,
    budget_tokens: int,
    prompt: Prompt,
    reader: Reader,
) -> Cache:
    """The cache with these attempts in this order; ``made`` says how it came to them."""
    attempts = [prepare(generation, pruning, reader) for generation in shown]
    problem_text, defused = defuse(problem.text, reader.control_tokens)

    def build(room: int) -> Cache:
        pruned = prune(attempts, room, reader)
        text = serialize(problem_text, [text for text, _ in pruned], prompt)
        return Cache(
            id=content_id("c", text),
            prompt_version=prompt.version,
            reader=reader.name,
            budget_tokens=budget_tokens,
            prompt_tokens=reader.count(text),
            defused=defused,
            items=[item for _, item in pruned],
            prompt=text,
            **made,
        )

    uncut = sum(attempt.tokens for attempt in attempts)
    cache = fit(build, lambda built: built.prompt_tokens, uncut, budget_tokens)
    if cache.prompt_tokens > budget_tokens:
        raise BudgetError(
            f"Problem {problem.id}: the cache's budget of {budget_tokens} tokens does not hold the "
            f"problem and the final answers of {len(attempts)} attempts, which need "
            f"{cache.prompt_tokens} tokens",
            f"Set cache.budget_tokens to {cache.prompt_tokens} or more, or lower cache.width.",
        )
    return cache


def frame_tokens(problem: Problem, attempts: int, prompt: Prompt, reader: Reader) -> int:
    """Tokens of a cache of so many empty attempts: less than any cache of the problem needs."""
    problem_text, _ = defuse(problem.text, reader.control_tokens)
    return reader.count(serialize(problem_text, [""] * attempts, prompt))


def serialize(problem_text: str, attempts: Sequence[str], prompt: Prompt) -> str:
    """The whole user message. The texts stand in it as they are."""
    fence = fence_for([problem_text, *attempts])
    parts = [prompt.opening.replace(FENCE_SLOT, fence), f"{fence} Problem", problem_text]
    for number, text in enumerate(attempts, 1):
        parts += [f"{fence} Attempt {number}", text]
    return "\n".join([*parts, f"{fence} End of attempts", prompt.closing])


def blocks_of(cache: Cache) -> list[str] | None:
    """The prompt of a cache cut before its header lines; joined, the blocks are the prompt again.

    These are the opening, the problem, each attempt, and the end with the closing. None if the
    prompt is not of the form of ``serialize``, or its attempts are not those of the items.
    """
    first = re.search(r"^(={4,}) Problem$", cache.prompt, re.MULTILINE)
    if not first:
        return None
    numbers = range(1, len(cache.items) + 1)
    headers = [f"Attempt {number}\n" for number in numbers] + ["End of attempts\n"]
    cuts = [0, first.start()]
    for header in headers:
        at = cache.prompt.find(f"\n{first[1]} {header}", cuts[-1])
        if at < 0:
            return None
        cuts.append(at + 1)
    blocks = [cache.prompt[a:b] for a, b in itertools.pairwise([*cuts, len(cache.prompt)])]
    texts = (block.partition("\n")[2][:-1] for block in blocks[2:-1])
    hashes = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    return blocks if hashes == [item.sha256 for item in cache.items] else None


def fence_for(texts: Sequence[str]) -> str:
    """A run of ``=``, at least 4, longer than any in the texts."""
    longest = max((len(run) for text in texts for run in re.findall("=+", text)), default=0)
    return "=" * max(_SHORTEST_FENCE, longest + 1)


def carried(deliberations: Sequence[Deliberation], round: int) -> list[Deliberation]:
    """The deliberations that a round (from 1) reads beside the trajectories: the round before's.

    They stand in its cache as further attempts (arXiv 2605.02396, section 2.1). Unusable ones are
    among them: ``build_cache`` lists why it leaves them out.
    """
    return [deliberation for deliberation in deliberations if deliberation.round == round - 1]
