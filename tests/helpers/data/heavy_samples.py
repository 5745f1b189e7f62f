"""Rows and readers that the tests of the heavy core share."""

import re
from pathlib import Path
from typing import Any

from samples import cache_of, generation

import heavydistill
from heavydistill.heavy import prompts
from heavydistill.models.tokenizer import ReaderTokenizer
from heavydistill.schema import Cache, Deliberation, Label, Problem, Trajectory, Verdict


class CharReader:
    """One token a character."""

    name = "chars"
    control_tokens: tuple[str, ...] = ("<|turn|>", "<begin of turn>")

    def count(self, text: str) -> int:
        return len(text)

    def head(self, text: str, tokens: int) -> str:
        return text[:tokens]

    def tail(self, text: str, tokens: int) -> str:
        return text[max(0, len(text) - tokens) :]


class WordReader:
    """One token a word with the space before it: joined texts have fewer tokens than parts."""

    name = "words"
    control_tokens: tuple[str, ...] = ("<eot>",)

    def count(self, text: str) -> int:
        return len(self._words(text))

    def head(self, text: str, tokens: int) -> str:
        return "".join(self._words(text)[:tokens])

    def tail(self, text: str, tokens: int) -> str:
        words = self._words(text)
        return "".join(words[max(0, len(words) - tokens) :])

    def _words(self, text: str) -> list[str]:
        return re.findall(r"\s*\S+|\s+\Z", text)


BPE = ReaderTokenizer(str(Path(heavydistill.__file__).parent / "micro" / "student"))
"""Byte-level BPE: parts that are cut out of a text may have more tokens than in it."""
CONTROL_IDS = {BPE._tokenizer.token_to_id(token) for token in BPE.control_tokens}


def ids_of(text: str) -> set[int]:
    """The tokens of a text for ``BPE``."""
    return set(BPE._tokenizer.encode(text, add_special_tokens=False).ids)


CHARS = CharReader()
READERS = {"chars": CHARS, "words": WordReader(), "bpe": BPE}
BRIEF = prompts.load("deliberator", "brief", "en")


def problem(text: str = "What is 2 + 3?", id: str = "p1") -> Problem:
    return Problem(id=id, text=text, reference="5", verifier="exact")


def verdict(label: Label, extracted: str | None) -> Verdict:
    return Verdict(label=label, reason="test", extracted=extracted, verifier="test@1")


def trajectory(
    index: int = 0, extracted: str | None = "5", right: bool = False, **changes: Any
) -> Trajectory:
    return _generation(Trajectory, "t", index, extracted, right, changes)


def deliberation(
    index: int = 0, extracted: str | None = "5", right: bool = False, **changes: Any
) -> Deliberation:
    fields = {"cache": "c_1", "round": 1} | changes
    return _generation(Deliberation, "d", index, extracted, right, fields)


def pool_of(right: str, *others: str | None) -> list[Trajectory]:
    """A trajectory for each answer; those that answer ``right`` are correct."""
    return [trajectory(i, answer, answer == right) for i, answer in enumerate(others)]


def unusable() -> list[Trajectory]:
    return [
        trajectory(100, None, finish_reason="error", error="timed out", answer_text=""),
        trajectory(101, "5", finish_reason="length"),
        trajectory(102, None, answer_text=" \n "),
    ]


def _generation(
    kind: type, letter: str, index: int, extracted: str | None, right: bool, changes: dict[str, Any]
) -> Any:
    usual: dict[str, Any] = {"id": f"{letter}_{index:016d}", "index": index, "seed": index}
    usual |= {"reasoning": f"thought {index}", "prompt_tokens": 10, "latency_s": 0.1}
    usual["answer_text"] = f"Work {index}.\nThe answer is {extracted}."
    usual["verdict"] = verdict("correct" if right else "incorrect", extracted)
    return generation(kind, **usual | changes)


def build(pool: list[Trajectory], of: Problem | None = None, **changes: Any) -> Cache:
    """A cache of the whole pool without any cut, but for ``changes``."""
    usual = {"budget_tokens": 10**6, "reader": CHARS}
    return cache_of(of or problem(), pool, **usual | changes)
