"""Serializes a problem and its attempts into the single prompt that a deliberator reads.

The prompt consists of the opening of the prompt template, the problem, the attempts and the closing
of the template. Each block begins with a header line. The line begins with the fence, a run of
``=`` that is longer than any run in the problem and the attempts, so that no text of a user or a
model can imitate a header. No placeholder is filled after these texts are inserted.

For every reader and every text, ``build_cache`` guarantees: the prompt contains each selected
trajectory and each carried deliberation with its final answer; the whole prompt fits the token
budget in the reader's tokenizer; the order is random, determined by the seed, and stored; omitted
generations are listed with a reason.

Not covered: the chat template, whose tokens the caller subtracts from the budget. A very long run
of ``=`` in a text lengthens every header.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from heavydistill.errors import BudgetError
from heavydistill.heavy.prompts import Prompt, on_tools, thinker_prompt
from heavydistill.heavy.pruning import Reader, defuse, fit, mode_of, prepare, prune
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

_SHOWN = r"^(={4,}) Problem$.*?^\1 Attempt 1$.*?^\1 End of attempts$"
ANSWER_TOKENS = 32
"""Minimum room in a cache for the answer of each attempt."""


def build_cache(
    problem: Problem,
    generations: Sequence[Trajectory],
    *,
    round: int,
    seed: int,
    selection: str,
    width: int | None,
    pruning: str,
    budget_tokens: int,
    prompt: Prompt,
    reader: Reader,
    carried: Sequence[Deliberation] = (),
    order: int = 0,
    instead: Sequence[Trajectory] | None = None,
) -> Cache:
    """Build a cache: select trajectories, shuffle them, cut them to the budget and serialize them.

    Args:
        problem: The problem.
        generations: The problem's pool, with unique ids; unusable trajectories are left out, each
            with its reason.
        round: Number of the round, from 1.
        seed: Seed of the run. Selection and order depend on it, the problem's id and the round.
        selection: Strategy of ``selection.select``.
        width: Maximum number of trajectories; None selects all usable ones.
        pruning: Mode of ``pruning``.
        budget_tokens: Maximum number of tokens of the prompt, in the reader's tokenizer.
        prompt: Prompt template of the deliberator.
        reader: Tokenizer of the model that will read the prompt.
        carried: Deliberations of the previous round (arXiv 2605.02396, section 2.1). All usable
            ones are added to the selected trajectories as further attempts, and shuffled together
            with them; the others are listed with the reason for omitting them.
        order: Number of places by which the shuffled attempts are rotated.
        instead: Trajectories that are shown in the place of ``generations``, in the same order.

    Raises:
        BudgetError: The template, the problem and the final answers alone exceed the budget.
    """
    # Seeding with a digest gives the same order in every process.
    digest = hashlib.sha256("\x1f".join(map(str, (seed, problem.id, round))).encode()).digest()
    rng = random.Random(int.from_bytes(digest))
    chosen = select(selection, generations, width or len(generations), rng)
    shown: list[Generation] = [*chosen, *(d for d in carried if d.unusable_because is None)]
    rng.shuffle(shown)
    shown = [shown[(place + order) % len(shown)] for place in range(len(shown))]
    new = {old.id: each for old, each in zip(generations, instead or generations, strict=True)}
    shown = [new.get(generation.id, generation) for generation in shown]
    ids = {generation.id for generation in shown}
    left_out = [
        LeftOut(generation=g.id, reason=g.unusable_because or "not_selected")
        for g in (*new.values(), *carried)
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
    """Build ``cache`` again, with its attempts in their order, for another reader or budget.

    ``generations`` must include the generations of the cache; the pruning mode is kept. Raises
    BudgetError as ``build_cache``.
    """
    by_id = {generation.id: generation for generation in generations}
    shown = [by_id[item.generation] for item in cache.items]
    made = {name: getattr(cache, name) for name in ("round", "seed", "selection", "left_out")}
    return _cut(made, problem, shown, mode_of(cache.items[0]), budget_tokens, prompt, reader)


def _cut(
    made: Mapping[str, Any],
    problem: Problem,
    shown: Sequence[Generation],
    pruning: str,
    budget_tokens: int,
    prompt: Prompt,
    reader: Reader,
) -> Cache:
    """Build the cache of attempts in this order; ``made`` holds the fields on their selection."""
    attempts = [prepare(generation, pruning, reader) for generation in shown]
    if any(attempt.cells for attempt in attempts):
        prompt = on_tools(prompt, "executed")
    problem_text, defused = defuse(problem.text, reader.control_tokens)
    before = reader.count(problem.history_json)  # the fields in it outweigh the chat template

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
    cache = fit(build, lambda built: before + built.prompt_tokens, uncut, budget_tokens)
    if (needed := before + cache.prompt_tokens) > budget_tokens:
        raise BudgetError(
            f"Problem {problem.id}: the cache's budget of {budget_tokens} tokens does not hold the "
            f"problem and the final answers of {len(attempts)} attempts, which need "
            f"{needed} tokens",
            f"Set cache.budget_tokens to {needed} or more, or lower cache.width.",
        )
    return cache


def frame_tokens(problem: Problem, attempts: int, prompt: Prompt, reader: Reader) -> int:
    """Tokens of a problem's cache if its ``attempts`` attempts were empty: a lower bound."""
    problem_text, _ = defuse(problem.text, reader.control_tokens)
    text = serialize(problem_text, [""] * attempts, prompt)
    return reader.count(problem.history_json) + reader.count(text)


def attempts_that_fit(
    problem: Problem, k: int, budget_tokens: int, prompt: Prompt, reader: Reader
) -> tuple[int, int]:
    """(largest number of at most K attempts that a cache has room for, tokens that K need)."""

    def needed(attempts: int) -> int:
        return frame_tokens(problem, attempts, prompt, reader) + attempts * ANSWER_TOKENS

    whole = needed(k)
    if whole <= budget_tokens:
        return k, whole
    return next((n for n in range(k - 1, 0, -1) if needed(n) <= budget_tokens), 0), whole


def serialize(problem_text: str, attempts: Sequence[str], prompt: Prompt) -> str:
    """Build the prompt of a cache, with all texts unchanged; a thinker's and a skill's have no
    attempts."""
    if prompt.kind in ("thinker", "skill"):
        return thinker_prompt(problem_text, prompt)
    fence = prompt.fence([problem_text, *attempts])
    blocks = [f"{fence} Attempt {number}\n{text}" for number, text in enumerate(attempts, 1)]
    shown = "\n".join([*blocks, f"{fence} End of attempts"])
    return prompt.filled(fence=fence, problem=problem_text, attempts=shown)


def without_instructions(prompt: str) -> str | None:
    """The prompt of a cache as the wording ``none`` has it: header lines, problem and attempts.

    None if its wording does not show the attempts right behind the problem. Not covered:
    instructions between the two, which stay.
    """
    found = re.search(_SHOWN, prompt, re.MULTILINE | re.DOTALL)
    return found[0] if found else None


def blocks_of(cache: Cache) -> list[str] | None:
    """Split the prompt of a cache before its header lines; joined, the blocks give the prompt.

    The blocks are the opening, the problem, each attempt, and the closing. Returns None if
    ``serialize`` did not make the prompt, or its attempts do not match the items.
    """
    first = re.search(r"^(={4,}) Problem$", cache.prompt, re.MULTILINE)
    if not first:
        return None
    numbers = range(1, len(cache.items) + 1)
    headers = [f"Attempt {number}\n" for number in numbers] + ["End of attempts"]
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
