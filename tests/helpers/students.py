"""Students with the chat templates of real models, for tests: small tokenizers, no weights."""

import importlib.util
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from heavydistill.schema import to_row

MICRO = Path(__file__).parents[2] / "heavydistill" / "micro" / "student"
# Ids of the control tokens of the micro models
PAD, TURN_BEGINS, TURN_ENDS = (
    token["id"] for token in json.loads((MICRO / "tokenizer.json").read_text())["added_tokens"][:3]
)
REASONING = "Attempt 1 is right: 2*3=6.\n\n    2 + 2 + 2 = 6\n\nAttempt 2 added."
ANSWER = "The product is\n\n\\boxed{6}."
QUESTION = "What is 2 * 3?\n==== Attempt 1\nIt is 6.\n==== Attempt 2\nIt is 5."

_MARKS = re.compile(r"<[|｜][^<>\s]*[|｜]>|<(?:start|end)_of_turn>|<\|?(?:turn|channel)\|?>")


def real_template(name: str) -> str:
    """A template of ``trl/chat_templates``; skips the test if TRL is not installed."""
    found = importlib.util.find_spec("trl")
    if found is None or not found.submodule_search_locations:
        pytest.skip("TRL, whose collection of chat templates this reads, is not installed")
    folder = Path(found.submodule_search_locations[0]) / "chat_templates"
    return (folder / f"{name}.jinja").read_text(encoding="utf-8")


def tokenizer_with(template: str | None, eos: str = "<|im_end|>") -> Any:
    """The micro student's tokenizer with another template and its marks.

    Two line breaks are one token, as in the tokenizers of most models.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MICRO)
    tokenizer.bos_token = "<s>"
    marks = {"<s>", eos, *_MARKS.findall(template or "")}
    tokenizer.add_tokens(sorted(marks), special_tokens=True)
    tokenizer.add_tokens(["\n\n"])
    tokenizer.eos_token = eos
    tokenizer.chat_template = template
    return tokenizer


def checkpoint(folder: Path, template: str | None, eos: str = "<|im_end|>") -> str:
    """A folder with such a tokenizer, as the name of a student."""
    tokenizer_with(template, eos).save_pretrained(folder)
    shutil.copy(MICRO / "config.json", folder)
    return str(folder)


def row_of(student: Any, reasoning: str = REASONING, answer: str = ANSWER) -> dict[str, Any]:
    """A row as a build makes it for the student."""
    return {
        "prompt": [to_row(turn) for turn in student.prompt(QUESTION)],
        "completion": [to_row(turn) for turn in student.completion(reasoning, answer)],
        "reasoning": reasoning,
        "answer_text": answer,
        "problem": "p_1",
        "generation": "d_1" if reasoning else "d_2",
    }
