"""Programs and tests that import packages besides the standard library."""

import json

import pytest
from coding import decision, fenced, problem
from sandboxing import ran

from heavydistill.sandbox import packages

pytestmark = pytest.mark.usefixtures("works", "nothing_left")
USES_NUMPY = "import numpy as np\ndef f(x): return np.int64(x) ** 2"
ROOM = {"memory_mb": 512, "test_s": 6.0, "total_s": 20.0}


def test_a_package_that_is_not_installed_is_missing(monkeypatch):
    verdict = decision(problem(asserts=["assert f(3) == 9"]), fenced(USES_NUMPY), **ROOM)
    assert (verdict.label, verdict.reason) == ("correct", "passed")
    assert packages.files_of("a-package-of-nobody") == {}
    monkeypatch.setattr(packages, "files_of", lambda name: {})
    verdict = decision(problem(asserts=["assert f(3) == 9"]), fenced(USES_NUMPY), **ROOM)
    assert (verdict.label, verdict.reason) == ("undecided", "missing_module")
    first = json.loads(verdict.evidence)["first"]
    assert first["detail"] == "numpy" and "pip install numpy" in first["fix"]
    assert ran("import numpy").stderr.endswith(b"No module named 'numpy'\n")


@pytest.mark.parametrize(("value", "label"), [("x / 3", "correct"), ("x / 2", "incorrect")])
def test_tests_may_use_numpy(value, label):
    test = (
        "import numpy as np\n"
        "def check(candidate):\n"
        "    for given, wanted in [(3, 1.0), (1, 1 / 3)]:\n"
        "        out = candidate(given)\n"
        "        assert abs(out - wanted) < 1e-6, np.array([wanted])\n"
    )
    verdict = decision(
        problem(test=test, entry_point="f"), fenced(f"def f(x): return {value}"), **ROOM
    )
    assert verdict.label == label
