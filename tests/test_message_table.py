"""The table of messages: each is used, and its text stands nowhere else."""

import ast
import re
from pathlib import Path

import messages
import pytest

TESTS = Path(__file__).parent


def _texts_of_tests() -> dict[str, set[str]]:
    """Each string that stands in a test, with the files."""
    texts: dict[str, set[str]] = {}
    for file in TESTS.rglob("*.py"):
        if "fixed_points" not in file.parts:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    texts.setdefault(node.value, set()).add(str(file.relative_to(TESTS)))
    return texts


def test_each_message_is_used_and_no_test_copies_its_text():
    texts = _texts_of_tests()
    unused = sorted(messages.MESSAGES.keys() - texts.keys())
    assert unused == [], "no test is about them"
    everything = "\0".join(texts)
    copies = [
        (name, literal, *sorted(file for text in texts if literal in text for file in texts[text]))
        for name, message in messages.MESSAGES.items()
        for literal in re.split(r"\{\w+\}", message.text)
        if len(literal.split()) > 3 and literal in everything
    ]
    assert copies == [], "these tests name the message instead"


@pytest.mark.parametrize(
    ("said", "fields", "is_there"),
    [
        ("a/b is no table. Make it anew", {"file": "a/b"}, True),
        ("a/b is\n  no table. Make \\\n it anew", {}, True),
        ("other is no table. Make it anew", {"file": "a/b"}, False),
        ("a/b is no table.", {}, False),
        ("Make it anew. a/b is no table.", {}, False),
    ],
)
def test_a_message_is_found_with_its_fields_and_its_fix(said, fields, is_there, monkeypatch):
    message = messages.Message("ConfigError", "{file} is no table", "Make it anew")
    monkeypatch.setitem(messages.MESSAGES, "mine", message)
    assert messages.is_in(said, "mine", **fields) == is_there


def test_an_error_of_another_class_or_text_is_not_the_message(monkeypatch):
    message = messages.Message("LookupError", "{key} is unknown")
    monkeypatch.setitem(messages.MESSAGES, "mine", message)
    with messages.raises("mine", key="k"):
        raise LookupError("k is unknown")
    for error in (KeyError("k is unknown"), LookupError("l is unknown")):
        with pytest.raises(AssertionError), messages.raises("mine", key="k"):
            raise error
