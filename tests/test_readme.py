"""What the README shows as code does what it says there."""

from __future__ import annotations

import re
from pathlib import Path

from heavydistill.config.run import Verifying
from heavydistill.schema import Problem
from heavydistill.verifiers.pool import VerdictPool

README = Path(__file__).parents[1] / "README.md"


def block(first_line: str) -> str:
    """The code block of the README that begins with that line."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (found,) = [text for text in blocks if text.startswith(first_line)]
    return str(found)


def test_the_pool_judges_as_shown(capsys):
    problem = Problem(id="p", text="2+3?", reference="5", verifier="math")
    exec(block("from heavydistill.verifiers.pool"), {"problem": problem})
    assert capsys.readouterr().out == "correct\n"


def test_the_verifier_of_ones_own_works_as_shown(tmp_path):
    file = tmp_path / "parity.py"
    file.write_text(block("# parity.py"))
    problem = Problem(id="p", text="Any even number?", reference="2", verifier="parity")
    with VerdictPool(Verifying(own=[str(file)])) as pool:
        answers = (r"\boxed{8}", r"\boxed{7}", r"\boxed{x}", "8")
        verdicts = [pool.judge(problem, answer).verdict for answer in answers]
    assert [verdict.reason for verdict in verdicts] == [
        "same_parity",
        "other_parity",
        "no_number",
        "no_answer",
    ]
    assert verdicts[0].verifier == "parity@1"
