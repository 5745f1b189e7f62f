"""Traces that nobody generated, as many as are wanted and as long as real ones.

A problem is a sum in words. Its pool holds 0 to K right attempts, and wrong ones that agree or do
not, so that every stratum occurs; some deliberations are right, some work with the attempts.
Everything is drawn from the number of the problem.
"""

from __future__ import annotations

import functools
import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from heavydistill.config.run import RunConfig, Think, dump_config
from heavydistill.heavy import prompts, voting
from heavydistill.heavy.cache import build_cache
from heavydistill.models.tokenizer import ReaderTokenizer
from heavydistill.schema import Deliberation, Problem, Trace, Trajectory, Verdict, content_id
from heavydistill.store.traces import TRACES_FOLDER, write_traces

MICRO_STUDENT = Path(__file__).parents[1] / "heavydistill" / "micro" / "student"
CONTEXT = 32_768
REASONING, ANSWER = 600, 250  # characters
NAMES = ("Amara", "Bao", "Chidi", "Dana", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas")
SHOPS = ("bakery", "garden", "workshop", "bookshop", "mill", "kitchen", "studio")
GOODS = ("loaves", "lamps", "chairs", "maps", "baskets", "candles", "kites", "jars", "clocks")
COSTS = ("the rent", "new tools", "the repair of a window", "flour and salt", "a week of help")
REMARKS = (
    "To be sure of the product, {a} times {b} can be taken apart into tens and ones.",
    "The {goods} bring in money, while {cost} takes some of it away again.",
    "Adding {a} and {b} in the other order must give the same, and it does.",
    "It would be easy to forget {cost} here, so I write it down at once.",
    "If the price were {b} dollars more, the result would grow by {a} times as much.",
    "Rounding {a} up to the next hundred shows that the size of the result is about right.",
    "Nothing is said about a discount on the {goods}, so each of them costs the same.",
    "So far there are {a} dollars on one side of the account and {b} on the other.",
)


def write_student(folder: Path) -> Path:
    """The tokenizer and template of the micro student, as of a model with a longer context."""
    folder.mkdir(parents=True)
    for name in ("tokenizer.json", "chat_template.jinja"):
        shutil.copy(MICRO_STUDENT / name, folder)
    for name, key in (
        ("config.json", "max_position_embeddings"),
        ("tokenizer_config.json", "model_max_length"),
    ):
        known = json.loads((MICRO_STUDENT / name).read_text(encoding="utf-8"))
        (folder / name).write_text(json.dumps(known | {key: CONTEXT}), encoding="utf-8")
    return folder


def write_run(folder: Path, count: int, k: int, d: int, reasoning: int = REASONING) -> Counter[str]:
    """A run of so many traces, whose responses think for so many characters.

    Returns:
        How many pools there are of each stratum.
    """
    strata: Counter[str] = Counter()
    reader = ReaderTokenizer(str(MICRO_STUDENT))

    def traces() -> Iterator[Trace]:
        for number in range(count):
            made = trace(number, k, d, reader, reasoning)
            strata[str(made.stratum)] += 1
            yield made

    write_traces(traces(), folder / TRACES_FOLDER)
    config = dump_config(RunConfig(think=Think(k=k)))
    (folder / "config.yaml").write_text(config, encoding="utf-8")
    return strata


def trace(
    number: int, k: int, d: int, reader: ReaderTokenizer, reasoning: int = REASONING
) -> Trace:
    """One problem with K attempts, a cache of all of them, and D deliberations on it."""
    rng = random.Random(f"trace {number}")
    problem, answer = _problem(number, rng)
    right = rng.randint(0, k)
    slip = rng.randint(1, 90)
    slips = [0] * right + [
        rng.choice((slip, slip, rng.randint(100, 900))) for _ in range(k - right)
    ]
    rng.shuffle(slips)
    pool = [
        Trajectory(**_written(problem, "t", index, answer, answer + off, "", rng, reasoning))
        for index, off in enumerate(slips)
    ]
    cache = build_cache(
        problem,
        pool,
        round=1,
        seed=number,
        selection="random",
        width=None,
        pruning="answer_only",
        budget_tokens=CONTEXT // 2,
        prompt=prompts.load("deliberator", "general", "en"),
        reader=reader,
    )
    deliberations = []
    for index in range(d):
        said = answer if rng.random() < 0.25 + 0.6 * right / k else answer + slip
        worked = rng.random() < 0.8
        opening = "Attempt 1 and attempt 2 do not take the same way to it. " if worked else ""
        written = _written(problem, "d", index, answer, said, opening, rng, reasoning)
        deliberations.append(Deliberation(**written, cache=cache.id, round=1))
    return Trace(
        problem=problem,
        pool=pool,
        caches=[cache],
        deliberations=deliberations,
        stratum=voting.stratum(pool),
        outcome=voting.outcome(pool, deliberations),
        thinker_prompt_version=prompts.load("thinker", "general", "en").version,
    )


def _problem(number: int, rng: random.Random) -> tuple[Problem, int]:
    name, goods, others = rng.choice(NAMES), *rng.sample(GOODS, 2)
    a, b, c, e = (rng.randint(11, 999) for _ in range(4))
    text = (
        f"{name} owns a {rng.choice(SHOPS)}. Last month {name} sold {a} {goods} for {b} dollars "
        f"each and {c} {others} for {e} dollars each, and paid {number} dollars for "
        f"{rng.choice(COSTS)}. How many dollars were left of what came in?"
    )
    answer = a * b + c * e - number
    return Problem(id=f"p{number}", text=text, reference=str(answer), verifier="math"), answer


def _written(
    problem: Problem,
    kind: str,
    index: int,
    answer: int,
    said: int,
    opening: str,
    rng: random.Random,
    characters: int,
) -> dict[str, object]:
    """The fields of an attempt or deliberation that gives the answer ``said``."""
    verdict = Verdict(
        label="correct" if said == answer else "incorrect",
        reason="equal" if said == answer else "different",
        extracted=str(said),
        verifier="math@2",
    )
    reasoning = opening + _remarks(characters, rng)
    answer_text = f"{_remarks(ANSWER, rng)} What is left is \\boxed{{{said}}} dollars."
    return {
        "id": content_id(kind, problem.id, index, reasoning),
        "index": index,
        "model": "inventor",
        "seed": rng.getrandbits(31),
        "reasoning": reasoning,
        "answer_text": answer_text,
        "finish_reason": "stop",
        "error": None,
        "verdict": verdict,
        "prompt_tokens": 200,
        "completion_tokens": (len(reasoning) + len(answer_text)) // 4,
        "latency_s": 1.0,
        "request_id": "",
    }


def _remarks(characters: int, rng: random.Random) -> str:
    """Drawn sentences of about so many characters."""
    return " ".join(rng.choices(_bank(), k=characters // 72))  # their mean length


@functools.cache
def _bank() -> list[str]:
    """Remarks with all sorts of numbers."""
    rng = random.Random("remarks")
    return [
        rng.choice(REMARKS).format(
            a=rng.randint(11, 999),
            b=rng.randint(11, 999),
            goods=rng.choice(GOODS),
            cost=rng.choice(COSTS),
        )
        for _ in range(5000)
    ]
