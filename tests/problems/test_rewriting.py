from pathlib import Path

import pytest

from heavydistill.config.run import Problems
from heavydistill.errors import ConfigError, ProblemsError
from heavydistill.plugins import load_files
from heavydistill.problems import load_fit

pytestmark = pytest.mark.usefixtures("known_here_alone")
MINE = """
from dataclasses import replace
from heavydistill.plugins import plugin

@plugin("rewrite", "mine")
def mine(problem, facts):
    {body}
"""
TO_MATH = (
    "return replace(problem, text='?', reference=REFERENCE, verifier='math', verifier_args='{}')"
)


def use(folder: Path, body: str) -> None:
    (folder / "mine.py").write_text(MINE.replace("{body}", body))
    load_files([str(folder / "mine.py")])


def rows(folder: Path, *texts: str) -> str:
    lines = (f'{{"text": "{text}", "answer": "1", "level": {len(text)}}}\n' for text in texts)
    (folder / "p.jsonl").write_text("".join(lines))
    return str(folder / "p.jsonl")


def test_only_problems_that_pass_are_used_and_the_others_are_counted(tmp_path):
    use(tmp_path, "return problem if '5' in problem.reference else None")
    loaded = load_fit(Problems(source="gym:chain_sum", size=6, rewrite="mine"))
    assert len(loaded.problems) == 6 and loaded.rejected > 0
    assert all("5" in problem.reference for problem in loaded.problems)
    numbers = [int(problem.id.rpartition(":")[2]) for problem in loaded.problems]
    assert loaded.rejected == numbers[-1] + 1 - 6
    assert {problem.verifier for problem in loaded.problems} == {"procedural"}
    limited = load_fit(Problems(source="gym:chain_sum", size=6, limit=2, rewrite="mine"))
    assert limited.problems == loaded.problems[:2]


def test_rows_of_a_file_are_changed_and_left_out_by_their_columns(tmp_path):
    use(tmp_path, "return replace(problem, text='Hm?') if facts['level'] > 2 else None")
    source = rows(tmp_path, "a", "abc", "abcd")
    loaded = load_fit(Problems(source=source, verifier="exact", limit=1, rewrite="mine"))
    assert [problem.id for problem in loaded.problems] == ["p:2"]
    assert loaded.problems[0].text == "Hm?" and loaded.rejected == 1


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return problem.text", "returned str, not a Problem or None"),
        ("return replace(problem, id='x')", "changed the id of chain_sum:0:0"),
        ("return replace(problem, text='1 + 1')", "set another verifier too"),
        (
            TO_MATH.replace("REFERENCE", r"'a\\nb'"),
            "3 of 3 problems cannot be judged; chain_sum:0:0",
        ),
        ("return None", r"Of the 1,500 first problems of chain_sum, only 0 .* left out 1,500"),
    ],
)
def test_what_a_function_must_not_do_is_said(tmp_path, body, says):
    use(tmp_path, body)
    with pytest.raises((ConfigError, ProblemsError), match=says):
        load_fit(Problems(source="gym:chain_sum", size=3, rewrite="mine"))


def test_a_file_of_which_nothing_is_left_is_refused(tmp_path):
    use(tmp_path, "return None")
    with pytest.raises(ProblemsError, match="mine left out all 2 problems"):
        load_fit(Problems(source=rows(tmp_path, "a", "b"), verifier="exact", rewrite="mine"))


def test_a_name_that_nobody_registered_is_refused():
    with pytest.raises(ConfigError, match=r"problems\.rewrite: there is no rewrite 'absent'"):
        load_fit(Problems(source="gym:chain_sum", rewrite="absent"))


def test_the_bundled_problems_are_not_rewritten():
    with pytest.raises(ProblemsError, match=r"problems\.rewrite has no effect"):
        load_fit(Problems(rewrite="mine"))
