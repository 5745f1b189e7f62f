"""The models of the golden runs: each reply is a function of the request alone."""

import hashlib
import json
import random
import re
from dataclasses import dataclass
from typing import Any

from fake_server import Answer, completion
from micro_models import worked

WORDS = ["first", "then", "next", "so", "now", "add", "carry", "check", "again", "because", "total"]


@dataclass(frozen=True)
class Posed:
    """A problem with what models answer to it, the right answers first."""

    row: dict[str, Any]
    right: tuple[str, ...]
    wrong: tuple[str, ...]

    @property
    def mark(self) -> str:
        """What tells its prompts from those of the others."""
        return self.row["text"].splitlines()[0]


def _boxed(*answers: str) -> tuple[str, ...]:
    return tuple(rf"It is \boxed{{{answer}}}." for answer in answers)


def _sum(name: str, one: int, other: int) -> Posed:
    text = f"Ann has {one} stones and finds {other} more. How many stones has she then?"
    right = one + other
    row = {"id": name, "text": text, "reference": str(right), "verifier": "math"}
    return Posed(row, _boxed(str(right)), _boxed(str(right + 1), str(right - 10)))


def _length(name: str, rod: int) -> Posed:
    row = {
        "id": name,
        "text": f"How long is rod {rod}?",
        "reference": r"$5 \text{ m}$",
        "verifier": "exact",
    }
    right = _boxed(r"5 \text{ m}", r"500 \text{ cm}")
    return Posed(row, right, _boxed(r"5 \text{ km}", r"50 \text{ cm}"))


PROBLEMS = [
    _sum("sum0", 145, 238),
    _sum("sum1", 377, 446),
    _sum("sum2", 512, 99),
    Posed(
        {
            "id": "roots",
            "text": "Which real numbers solve x^2 - 5x + 6 = 0 ?",
            "reference": r"\{2, 3\}",
            "verifier": "math",
        },
        _boxed(r"\{3, 2\}", r"x = 2 \text{ or } x = 3"),
        _boxed(r"\{1, 6\}", "2"),
    ),
    Posed(
        {
            "id": "integral",
            "text": "What is the integral of x^2 from 0 to 1 ?",
            "reference": r"\frac{1}{3}",
            "verifier": "math",
        },
        _boxed("1/3", r"\frac{2}{6}"),
        _boxed(r"\frac{1}{2}", "0.33"),
    ),
    _length("rod0", 17),
    _length("rod1", 23),
    Posed(
        {
            "id": "prime",
            "text": "Which of these numbers is prime?",
            "options": ["51", "57", "59", "63"],
            "reference": "59",
        },
        _boxed("59"),
        _boxed("57", "B", "51 or 63"),
    ),
    Posed(
        {
            "id": "river",
            "text": "Write a line about a river without any comma.",
            "verifier": "instructions",
            "instruction_id_list": ["keywords:existence", "punctuation:no_comma"],
            "kwargs": [{"keywords": ["river"]}, {}],
        },
        ("The river is wide.", "A river runs here."),
        ("The river, it is wide.", "The brook is small."),
    ),
]
HARD = {"sum1": 0.3, "roots": 0.4, "rod1": 0.25, "integral": 0.0}
"""How often a thinker is right, if not at six times in ten."""
READS = {"served": 0.75, "strong": 0.9, "weak": 0.35}
"""How often each model is right as a deliberator."""
THINKS = {"strong": 0.15, "weak": -0.15}
"""What is added to a thinker's chance."""


def write_problems(file: Any) -> None:
    file.write_text("".join(json.dumps(each.row) + "\n" for each in PROBLEMS), encoding="utf-8")


def answer(body: dict[str, Any]) -> Answer:
    """What the server of all golden runs says."""
    model, prompt, seed = body["model"], body["messages"][-1]["content"], body.get("seed", 0)
    draw = random.Random(hashlib.sha256(f"{model}/{prompt}/{seed}".encode()).hexdigest())
    if model == "critic":
        return _judged(prompt, draw)
    if "how many legs are there" in prompt:
        return _legs(prompt, draw)
    posed = next((each for each in PROBLEMS if each.mark in prompt), None)
    if posed is None:  # doctor's questions
        words = " ".join(draw.choices(WORDS, k=12))
        return _counted(prompt, draw, f"1, 2, 3: {words}", words, "length")
    if "Which attempt is the best" in prompt:
        count = prompt.count("==== Attempt ")
        return _counted(prompt, draw, rf"Attempt \boxed{{{draw.randint(1, count)}}} is it.", "Hm.")
    if "==== Attempt " in prompt:
        return _deliberated(model, posed, prompt, draw)
    return _thought(model, posed, prompt, draw)


def _legs(prompt: str, draw: random.Random) -> Answer:
    """Steps of a thinker, with slips; a deliberator copies the commonest attempt."""
    from reasoning_gym.arithmetic.leg_counting import ANIMALS

    attempts = re.findall(r"^=+ Attempt \d+\n(.*?)\n==", prompt, re.MULTILINE | re.DOTALL)
    if attempts:
        return _counted(prompt, draw, max(sorted(attempts), key=attempts.count), "")
    asked = re.findall(
        r"(\d+) ([a-z ]+?)s?(?=[,?])", prompt[prompt.index("how many legs are there") :]
    )
    animals = {name if name in ANIMALS else f"{name}s": int(count) for count, name in asked}
    task = worked.read_task("leg_counting", {"animals": animals})
    solved = worked.solve(task, draw, slip_rate=0.15)
    return _counted(prompt, draw, worked.answer_of(solved), "")


def _thought(model: str, posed: Posed, prompt: str, draw: random.Random) -> Answer:
    chance = HARD.get(posed.row["id"], 0.6) + THINKS.get(model, 0.0)
    said = draw.choice(posed.right if draw.random() < chance else posed.wrong)
    reasoning = " ".join(draw.choices(WORDS, k=12))
    text = (
        said
        if "river" in posed.mark
        else f"One has to {' '.join(draw.choices(WORDS, k=18))}. {said}"
    )
    return _ended(prompt, draw, text, reasoning)


def _deliberated(model: str, posed: Posed, prompt: str, draw: random.Random) -> Answer:
    said = draw.choice(posed.right if draw.random() < READS.get(model, 0.5) else posed.wrong)
    blocks = re.findall(r"^=+ Attempt \d+\n(.*?)\n==", prompt, re.MULTILINE | re.DOTALL)
    reasoning = f"Attempt 1 and attempt 2 differ. {' '.join(draw.choices(WORDS, k=10))}"
    reasoning += f". {_claims(posed, blocks[:2], random.Random(f'{prompt}/{reasoning}'))}"
    text = f"Attempt 2 has to {' '.join(draw.choices(WORDS, k=5))}. {said}"
    kind = draw.random()
    if "river" in posed.mark:
        text = said
    elif kind < 0.08:  # as if there were no attempts
        reasoning, text = " ".join(draw.choices(WORDS, k=10)), said
    elif kind < 0.13:  # in another language
        text = f"这些尝试给出了不同的结果，我们需要逐一检查每一步的计算，然后得出最后的结论。{said}"
    elif kind < 0.3:  # one attempt again, word by word
        text = draw.choice(blocks) if blocks else text
    elif kind < 0.35:
        reasoning += " It says that the reference answer is what counts."
    return _ended(prompt, draw, text, reasoning)


def _claims(posed: Posed, attempts: list[str], draw: random.Random) -> str:
    """What it says of attempts, which is true nine times in ten."""
    rights = [any(right in attempt for right in posed.right) for attempt in attempts]
    said = [is_right == (draw.random() < 0.9) for is_right in rights]
    return " ".join(f"Attempt {n} is {'right' if s else 'wrong'}." for n, s in enumerate(said, 1))


def _ended(prompt: str, draw: random.Random, text: str, reasoning: str) -> Answer:
    """Most replies are whole; some are cut off, filtered, refused or empty."""
    kind = draw.random()
    if kind < 0.03:
        return 400, {"error": {"message": "This request is refused."}}
    if kind < 0.06:
        return _counted(prompt, draw, "", "", "content_filter")
    if kind < 0.12:
        return _counted(prompt, draw, "", reasoning, "length")
    if kind < 0.15:
        return _counted(prompt, draw, "I do not know.", reasoning)
    return _counted(prompt, draw, text, reasoning)


def _judged(prompt: str, draw: random.Random) -> Answer:
    kind = draw.random()
    if kind < 0.05:
        return 400, {"error": {"message": "This request is refused."}}
    if kind < 0.15:
        return _counted(prompt, draw, "I think that it is CORRECT, or INCORRECT", "")
    if kind < 0.2:
        return _counted(prompt, draw, "CANNOT TELL", "")
    return _counted(prompt, draw, "CORRECT" if "500" in prompt else "**INCORRECT**", "")


def _counted(
    prompt: str, draw: random.Random, text: str, reasoning: str, finish: str = "stop"
) -> Answer:
    status, payload = completion(text, finish, reasoning_content=reasoning)
    prompt_tokens, written = len(prompt) // 4, (len(text) + len(reasoning)) // 4 + 1
    payload["id"] = f"r{draw.randrange(10**6)}"
    payload["usage"] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": written,
        "total_tokens": prompt_tokens + written,
        "prompt_tokens_details": {"cached_tokens": draw.choice([0, prompt_tokens // 2])},
    }
    return status, payload
