from __future__ import annotations

import json
from typing import Any

import pytest
from coding import problem

from heavydistill.verifiers.code import Code
from heavydistill.verifiers.code.formats import Called, Rehearsable, Runs, task_of

RUN = {"input": "2\n", "output": "4\n"}
CALL = {"args": [2], "expected": 4}
CHECK = "def check(candidate):\n    assert candidate(2) == 4\n"


@pytest.mark.parametrize(
    ("args", "kind"),
    [
        ({"tests": [RUN]}, Runs), ({"tests": json.dumps([RUN])}, Runs),
        ({"tests": [RUN], "compare": "tokens", "prompt": None}, Runs),
        ({"tests": [CALL], "entry_point": "f"}, Called),
        ({"tests": [CALL], "entry_point": "Solution.f"}, Called),
        ({"tests": [{"input": "2\n[3]", "output": "4"}], "entry_point": "f"}, Called),
        ({"tests": [{"input": "", "output": "4"}], "entry_point": "f"}, Called),
        ({"asserts": ["assert f(2) == 4"]}, Called),
        ({"asserts": ["assert f(2) == 4", "assert f(3) == 9, 'three'"]}, Called),
        ({"asserts": '["assert f(2) == 4"]'}, Called),
        ({"test_list": ["assert f(2) == 4"], "test_imports": [], "test_setup_code": ""}, Called),
        ({"asserts": ["assert f(2) == 4"], "imports": ["import math", "import re"]}, Called),
        ({"asserts": ["assert f(t) == 4"], "setup": "t = 2"}, Called),
        ({"asserts": ["assert f(2) == t"], "setup": "t = 2"}, Rehearsable),
        ({"asserts": ["assert isinstance(f(2), int)"]}, Rehearsable),
        ({"test": CHECK, "entry_point": "f"}, Called),
        ({"test": "METADATA = {}\n" + CHECK, "entry_point": "f"}, Called),
        ({"test": CHECK + "    assert True, 'x'\n", "entry_point": "f"}, Called),
        (
            {"test": CHECK + "    for i in range(3):\n        candidate(i)\n", "entry_point": "f"},
            Rehearsable,
        ),
        ({"test": CHECK.replace("2", "helped(2)"), "entry_point": "f"}, Rehearsable),
        ({"asserts": ["assert queue(2) == 4"]}, Called),
        ({"test": "import math\n" + CHECK, "entry_point": "f"}, Rehearsable),
    ],
)  # fmt: skip
def test_tests_of_every_format_are_read(args: dict[str, Any], kind: type) -> None:
    assert isinstance(task_of(problem(**args)).tests, kind)
    assert Code().check_reference(problem(**args)) is None


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({}, "one of tests, asserts"),
        ({"tests": [RUN], "asserts": ["assert f(2)"]}, "tests and asserts"),
        ({"cases": [RUN]}, "'cases'"),
        ({"asserts": ["assert f(2)"], "test_list": ["assert f(2)"]}, "twice"),
        ({"tests": []}, "at least one"),
        ({"tests": {}}, "at least one"),
        ({"tests": "[{"}, "JSON text"),
        ({"tests": "[" * 100_000}, "JSON text"),
        ({"tests": ["2"]}, "test 1 in tests must be an object"),
        ({"tests": [RUN] * 5001}, "5,001"),
        ({"tests": [RUN, {"input": "2"}]}, "test 2 needs output"),
        ({"tests": [{"input": 2, "output": "4"}]}, "test 1 needs input"),
        ({"tests": [{"input": "\ud800", "output": "4"}]}, "half a character"),
        ({"tests": [CALL]}, "entry_point"),
        ({"tests": [RUN], "compare": "fuzzy"}, "compare is lines or tokens"),
        ({"tests": [RUN], "equality": "loose"}, "equality is strict or python"),
        ({"tests": [RUN], "tolerance": "1e-6"}, "tolerance is a number"),
        ({"tests": [RUN], "tolerance": True}, "tolerance is a number"),
        ({"tests": [RUN], "tolerance": 1}, "tolerance is a number"),
        ({"tests": [CALL], "entry_point": "f", "tolerance": -1}, "tolerance is a number"),
        ({"asserts": ["assert f(2) == 4"], "tolerance": 0.1}, "tolerance is for tests"),
        ({"tests": [CALL], "entry_point": "a b"}, "entry_point names"),
        ({"tests": [CALL], "entry_point": "import"}, "entry_point names"),
        ({"tests": [CALL], "entry_point": 3}, "entry_point names"),
        ({"tests": [{"args": 2, "expected": 4}], "entry_point": "f"}, "args, a list"),
        ({"tests": [{"args": [2]}], "entry_point": "f"}, "test 1 needs"),
        ({"tests": [{"input": "[1", "output": "4"}], "entry_point": "f"}, "JSON value"),
        ({"tests": [{"input": "1", "output": "x"}], "entry_point": "f"}, "JSON value"),
        ({"tests": [{"args": ["a" * 16_000_000], "expected": 1}], "entry_point": "f"}, "too large"),
        ({"asserts": ["f(2) == 4"]}, "no assert statement"),
        ({"asserts": ["assert f(2) =="]}, "assertion 1 is no Python"),
        ({"asserts": ["assert f(2) == 4", "\0"]}, "assertion 2 is no Python"),
        ({"asserts": ["assert " + "(" * 5000]}, "no Python"),
        ({"asserts": [""]}, "no assert statement"),
        ({"asserts": ["assert 1 == 1"]}, "call no function"),
        ({"asserts": ["assert f(2)"], "imports": "import numpy as np"}, "imports numpy"),
        ({"asserts": ["assert f(2)"], "imports": 5}, "imports in verifier_args"),
        ({"tests": [RUN], "setup": "x = 1"}, "setup in verifier_args"),
        ({"tests": [CALL], "entry_point": "f", "compare": "lines"}, "compare in verifier_args"),
        ({"test": CHECK}, "entry_point names"),
        ({"test": "def test(): pass", "entry_point": "f"}, "must define check"),
        ({"test": "def check(: pass", "entry_point": "f"}, "test is no Python"),
        ({"test": "import numpy\n" + CHECK, "entry_point": "f"}, "imports numpy"),
    ],
)
def test_malformed_tests_are_refused_with_what_is_wrong(args: dict[str, Any], says: str) -> None:
    fault = Code().check_reference(problem(**args))
    assert fault is not None
    assert says in fault


def test_the_text_of_the_problem_is_the_prompt_if_it_holds_the_function() -> None:
    prompt = 'def f(x):\n    """Square x."""\n'
    args = {"test": CHECK, "entry_point": "f"}
    assert task_of(problem(prompt, **args)).prompt == prompt
    assert task_of(problem("Write f.", **args)).prompt == ""
    assert task_of(problem("Write f.", **args, prompt=prompt)).prompt == prompt


def test_more_tests_may_take_more_time() -> None:
    from heavydistill.config.run import Verifying

    few, many = ({"tests": [RUN] * count} for count in (1, 5))
    limits = [Code().limit_s(problem(**args), Verifying()) for args in (few, many)]
    assert limits[0] < limits[1] < 300
