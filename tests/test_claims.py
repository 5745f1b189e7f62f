"""Each claim of the default lane names a test that is there."""

import re
from pathlib import Path

import pytest
from claims import CLAIMS


@pytest.mark.parametrize("claim", CLAIMS)
def test_its_test_is_there_and_slow(claim):
    file, _, test = CLAIMS[claim].partition("::")
    text = (Path(__file__).parent / file).read_text(encoding="utf-8")
    name = test.partition("[")[0]
    head, found, _ = text.partition(f"def {name}(")
    assert found
    marks = head[head.rfind("\n\n\n") :] + "".join(re.findall(r"^pytestmark.*", text, re.MULTILINE))
    assert "pytest.mark.slow" in marks, "it is in the default lane anyway"
