"""Tests that are packed as in LiveCodeBench are read, and never run."""

from __future__ import annotations

import base64
import json
import os
import pickle
import zlib
from pathlib import Path

import pytest
from coding import decision, fenced, problem
from hypothesis import given
from hypothesis import strategies as st
from sandboxing import need_sandbox

from heavydistill.verifiers.code import Code, formats

STDIN = [{"input": "2\n", "output": "4\n", "testtype": "stdin"}]
CALLS = [{"input": "[1, 2]\n3", "output": "6", "testtype": "functional"}]
JSON = st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=40), max_size=3), max_size=4)


def packing(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


@given(JSON, st.sampled_from(range(pickle.HIGHEST_PROTOCOL + 1)))
def test_what_was_packed_is_read_back(tests: list[dict[str, str]], protocol: int) -> None:
    text = json.dumps(tests, ensure_ascii=False)
    cell = base64.b64encode(zlib.compress(pickle.dumps(text, protocol))).decode()
    assert (
        formats.tests_in(cell, "x")
        == formats.tests_in(text, "x")
        == formats.tests_in(tests, "x")
        == tests
    )


class Intruder:
    """Its pickle is a program that writes a file."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("intruded",)


@pytest.mark.parametrize(
    ("cell", "complaint"),
    [
        (packing(Intruder()), "no pickle of one text"),
        (packing([json.dumps(STDIN)]), "no pickle of one text"),
        (packing(b"[]"), "no pickle of one text"),
        (packing("no JSON"), "no JSON text is in it"),
        (packing(json.dumps({"input": "2"})), "is a list of tests"),
        (base64.b64encode(b"not compressed").decode(), "neither JSON nor packed JSON"),
        ("eJx!", "neither JSON nor packed JSON"),
        (7, "is a list of tests"),
    ],
)
def test_anything_else_is_refused_and_not_run(
    cell: object, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fault = Code().check_reference(problem(public_test_cases=[], private_test_cases=cell))
    assert fault and complaint in fault and "private_test_cases" in fault
    assert not list(tmp_path.iterdir())


def test_what_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MOST_UNPACKED", 1000)
    bomb = packing(json.dumps([{"input": "0" * 10**6, "output": "0"}]))
    with pytest.raises(ValueError, match="unpacks to more than 1,000 bytes"):
        formats.tests_in(bomb, "private_test_cases")


def test_a_program_has_to_pass_public_and_private_tests() -> None:
    need_sandbox()
    asked = problem(
        public_test_cases=json.dumps(STDIN),
        private_test_cases=packing(json.dumps([{"input": "5\n", "output": "25\n"}])),
    )
    assert decision(asked, fenced("n = int(input()); print(n * n)")).label == "correct"
    half = decision(asked, fenced("n = int(input()); print(n + n)"))
    assert (half.label, half.reason, half.score) == ("incorrect", "different", 0.5)


def test_a_method_is_called_with_one_argument_a_line() -> None:
    need_sandbox()
    asked = problem(
        public_test_cases="[]",
        private_test_cases=packing(json.dumps(CALLS)),
        entry_point="Solution.total",
    )
    right = "class Solution:\n    def total(self, a, b):\n        return sum(a) + b"
    assert decision(asked, fenced(right)).label == "correct"
    assert decision(asked, fenced(right.replace("+", "-"))).label == "incorrect"


def test_no_tests_at_all_are_a_fault() -> None:
    asked = problem(public_test_cases="[]", private_test_cases="[]")
    assert "at least one test" in (Code().check_reference(asked) or "")
