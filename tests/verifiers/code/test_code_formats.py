"""Tests as data sets hold them; those that are packed as in LiveCodeBench are never run."""

import base64
import json
import os
import pickle
import zlib

import pytest
from coding import decision, fenced, problem
from hypothesis import given
from hypothesis import strategies as st
from sandboxing import need_sandbox

from heavydistill.config.run import Verifying
from heavydistill.verifiers.code import Code, formats
from heavydistill.verifiers.code.formats import IoTests, Rehearsable, task_of

pytestmark = pytest.mark.usefixtures("nothing_left")
RUN = {"input": "2\n", "output": "4\n"}
CALL = {"args": [2], "expected": 4}
CHECK = "def check(candidate):\n    assert candidate(2) == 4\n"


@pytest.mark.parametrize(
    ("args", "kind"),
    [
        ({"tests": [RUN]}, IoTests), ({"tests": json.dumps([RUN])}, IoTests),
        ({"tests": [RUN], "compare": "tokens", "prompt": None}, IoTests),
        ({"tests": [CALL], "entry_point": "f"}, IoTests),
        ({"tests": [CALL], "entry_point": "Solution.f"}, IoTests),
        ({"tests": [{"input": "2\n[3]", "output": "4"}], "entry_point": "f"}, IoTests),
        ({"tests": [{"input": "", "output": "4"}], "entry_point": "f"}, IoTests),
        ({"asserts": ["assert f(2) == 4"]}, IoTests),
        ({"asserts": ["assert f(2) == 4", "assert f(3) == 9, 'three'"]}, IoTests),
        ({"asserts": '["assert f(2) == 4"]'}, IoTests),
        ({"test_list": ["assert f(2) == 4"], "test_imports": [], "test_setup_code": ""},
         IoTests),
        ({"asserts": ["assert f(2) == 4"], "imports": ["import math", "import re"]}, IoTests),
        ({"asserts": ["assert f(t) == 4"], "setup": "t = 2"}, IoTests),
        ({"asserts": ["assert f(2) == t"], "setup": "t = 2"}, Rehearsable),
        ({"asserts": ["assert isinstance(f(2), int)"]}, Rehearsable),
        ({"test": CHECK, "entry_point": "f"}, IoTests),
        ({"test": "METADATA = {}\n" + CHECK, "entry_point": "f"}, IoTests),
        ({"test": CHECK + "    assert True, 'x'\n", "entry_point": "f"}, IoTests),
        (
            {"test": CHECK + "    for i in range(3):\n        candidate(i)\n", "entry_point": "f"},
            Rehearsable,
        ),
        ({"test": CHECK.replace("2", "helped(2)"), "entry_point": "f"}, Rehearsable),
        ({"asserts": ["assert queue(2) == 4"]}, IoTests),
        ({"test": "import math\n" + CHECK, "entry_point": "f"}, Rehearsable),
    ],
)  # fmt: skip
def test_tests_of_every_format_are_read(args, kind):
    assert isinstance(task_of(problem(**args)).tests, kind)
    assert Code().check_reference(problem(**args)) is None


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({}, "one of tests, asserts"),
        ({"tests": [RUN], "asserts": ["assert f(2)"]}, "tests and asserts"),
        ({"cases": [RUN]}, "'cases'"),
        ({"asserts": ["assert f(2)"], "test_list": ["assert f(2)"]}, "twice"),
        ({"public_test_cases": "[]", "private_test_cases": "[]"}, "at least one test"),
        ({"tests": []}, "at least one"), ({"tests": {}}, "at least one"),
        ({"tests": "[{"}, "JSON text"), ({"tests": "[" * 100_000}, "JSON text"),
        ({"tests": ["2"]}, "test 1 in tests must be an object"), ({"tests": [RUN] * 5001}, "5,001"),
        ({"tests": [RUN, {"input": "2"}]}, "test 2 needs output"),
        ({"tests": [{"input": 2, "output": "4"}]}, "test 1 needs input"),
        ({"tests": [{"input": "\ud800", "output": "4"}]}, "half a character"),
        ({"tests": [CALL]}, "entry_point"),
        ({"tests": [RUN], "compare": "fuzzy"}, "compare must be lines or tokens"),
        ({"tests": [RUN], "equality": "loose"}, "equality must be strict or python"),
        ({"tests": [RUN], "tolerance": "1e-6"}, "tolerance must be a number"),
        ({"tests": [RUN], "tolerance": True}, "tolerance must be a number"),
        ({"tests": [RUN], "tolerance": 1}, "tolerance must be a number"),
        ({"tests": [CALL], "entry_point": "f", "tolerance": -1}, "tolerance must be a number"),
        ({"asserts": ["assert f(2) == 4"], "tolerance": 0.1}, "tolerance applies to tests only"),
        ({"tests": [CALL], "entry_point": "a b"}, "entry_point must name"),
        ({"tests": [CALL], "entry_point": "import"}, "entry_point must name"),
        ({"tests": [CALL], "entry_point": 3}, "entry_point must name"),
        ({"tests": [{"args": 2, "expected": 4}], "entry_point": "f"}, "args, a list"),
        ({"tests": [{"args": [2]}], "entry_point": "f"}, "test 1 needs"),
        ({"tests": [{"input": "[1", "output": "4"}], "entry_point": "f"}, "JSON value"),
        ({"tests": [{"input": "1", "output": "x"}], "entry_point": "f"}, "JSON value"),
        ({"tests": [{"args": ["a" * 16_000_000], "expected": 1}], "entry_point": "f"}, "too large"),
        ({"asserts": ["f(2) == 4"]}, "not an assert statement"),
        ({"asserts": ["assert f(2) =="]}, "assertion 1 is not valid Python"),
        ({"asserts": ["assert f(2) == 4", "\0"]}, "assertion 2 is not valid Python"),
        ({"asserts": ["assert " + "(" * 5000]}, "not valid Python"),
        ({"asserts": [""]}, "not an assert statement"),
        ({"asserts": ["assert 1 == 1"]}, "call no function"),
        ({"asserts": ["assert f(2)"], "imports": "import pandas as pd"}, "imports pandas"),
        ({"asserts": ["assert f(2)"], "imports": 5}, "imports in verifier_args"),
        ({"tests": [RUN], "setup": "x = 1"}, "setup in verifier_args"),
        ({"tests": [CALL], "entry_point": "f", "compare": "lines"}, "compare in verifier_args"),
        ({"test": CHECK}, "entry_point must name"),
        ({"test": "def test(): pass", "entry_point": "f"}, "must define check"),
        ({"test": "def check(: pass", "entry_point": "f"}, "test is not valid Python"),
        ({"test": "import pandas\n" + CHECK, "entry_point": "f"}, "imports pandas"),
        ({"tests": [RUN], "judged_like": "codeforces"}, "judged_like must be livecodebench"),
        ({"tests": [RUN], "judged_like": "livecodebench", "tolerance": 0}, "leave tolerance out"),
        ({"asserts": ["assert f(2)"], "judged_like": "livecodebench"}, "leave asserts out"),
    ],
)  # fmt: skip
def test_malformed_tests_are_refused_with_what_is_wrong(args, says):
    fault = Code().check_reference(problem(**args))
    assert fault is not None
    assert says in fault


def test_the_text_of_the_problem_is_the_prompt_if_it_holds_the_function():
    prompt = 'def f(x):\n    """Square x."""\n'
    args = {"test": CHECK, "entry_point": "f"}
    assert task_of(problem(prompt, **args)).prompt == prompt
    assert task_of(problem("Write f.", **args)).prompt == ""
    assert task_of(problem("Write f.", **args, prompt=prompt)).prompt == prompt


def test_more_tests_may_take_more_time():
    few, many = ({"tests": [RUN] * count} for count in (1, 5))
    limits = [Code().limit_s(problem(**args), Verifying()) for args in (few, many)]
    assert limits[0] < limits[1] < 300


STDIN = [{"input": "2\n", "output": "4\n", "testtype": "stdin"}]
SQUARED = [{"input": "5\n", "output": "25\n"}]
CALLS = [{"input": "[1, 2]\n3", "output": "6", "testtype": "functional"}]
JSON = st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=40), max_size=3), max_size=4)


def packing(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


@given(JSON, st.sampled_from(range(pickle.HIGHEST_PROTOCOL + 1)))
def test_what_was_packed_is_read_back(tests, protocol):
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
        (packing(Intruder()), "not the pickle of one text"),
        (packing([json.dumps(STDIN)]), "not the pickle of one text"),
        (packing(b"[]"), "the pickle of one text"), (packing("no JSON"), "does not contain JSON"),
        (packing(json.dumps({"input": "2"})), "must be a list of tests"),
        (base64.b64encode(b"not compressed").decode(), "neither JSON nor packed JSON"),
        ("eJx!", "neither JSON nor packed JSON"), (7, "must be a list of tests"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_and_not_run(cell, complaint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fault = Code().check_reference(problem(public_test_cases=[], private_test_cases=cell))
    assert fault and complaint in fault and "private_test_cases" in fault
    assert not list(tmp_path.iterdir())


def test_what_unpacks_to_too_much_is_refused(monkeypatch):
    monkeypatch.setattr(formats, "MOST_UNPACKED", 1000)
    bomb = packing(json.dumps([{"input": "0" * 10**6, "output": "0"}]))
    with pytest.raises(ValueError, match="unpacks to more than 1,000 bytes"):
        formats.tests_in(bomb, "private_test_cases")


TOTAL = "class Solution:\n    def total(self, a, b):\n        return sum(a) + b"


@pytest.mark.parametrize(
    ("tests", "program", "decided"),
    [
        ((STDIN, SQUARED), "n = int(input()); print(n * n)", ("correct", "passed", 1.0)),
        ((STDIN, SQUARED), "n = int(input()); print(n + n)", ("incorrect", "different", 0.5)),
        (([], CALLS), TOTAL, ("correct", "passed", 1.0)),
        (([], CALLS), TOTAL.replace("+", "-"), ("incorrect", "different", 0.0)),
    ],
)
def test_a_program_has_to_pass_public_and_private_tests(tests, program, decided):
    need_sandbox()
    public, private = map(json.dumps, tests)
    entry = {"entry_point": "Solution.total"} if program.startswith("class") else {}
    asked = problem(public_test_cases=public, private_test_cases=packing(private), **entry)
    found = decision(asked, fenced(program))
    assert (found.label, found.reason, found.score) == decided
