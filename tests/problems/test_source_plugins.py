import re
from pathlib import Path

import messages
import pytest

from heavydistill.config.run import Problems
from heavydistill.errors import ConfigError, ProblemsError
from heavydistill.plugins import load_files
from heavydistill.problems import load

pytestmark = pytest.mark.usefixtures("known_here_alone")
SUMS = """
from heavydistill.plugins import plugin

@plugin("source", "sums")
def sums(args):
    for number in range(int(args)):
        yield {"question": f"{number} + 1 =", "answer": str(number + 1)}
"""


def use(folder: Path, text: str = SUMS) -> str:
    (folder / "mine.py").write_text(text)
    load_files([str(folder / "mine.py")])
    return str(folder / "mine.py")


def test_rows_of_a_plug_in_are_read_as_those_of_a_file(tmp_path):
    use(tmp_path)
    problems = load(Problems(source="sums:9", limit=3, verifier="exact"))
    assert [(each.text, each.reference) for each in problems] == [
        ("0 + 1 =", "1"),
        ("1 + 1 =", "2"),
        ("2 + 1 =", "3"),
    ]
    assert [each.id for each in problems] == ["sums:1", "sums:2", "sums:3"]
    assert {(each.verifier, each.origin) for each in problems} == {("exact", "sums:9")}


def test_paths_in_the_arguments_stay_out_of_the_rows(tmp_path):
    use(tmp_path, SUMS.replace("int(args)", "2"))
    (first, _) = load(Problems(source=f"sums:{tmp_path}/some.db", verifier="exact"))
    assert first.source == "sums:some.db:1"


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("int('x')", "mine.py: the source sums failed: ValueError: .*mine.py:7"),
        ("5", "mine.py: the source sums gave int as row 1, not a dict of columns"),
        ("{'answer': '1'}", "sums:2:1"),
    ],
)
def test_a_source_that_fails_is_named_with_the_place(tmp_path, row, told):
    line = 'yield {"question": f"{number} + 1 =", "answer": str(number + 1)}'
    use(tmp_path, SUMS.replace(line, f"yield {row}"))
    with pytest.raises((ConfigError, ProblemsError), match=told):
        load(Problems(source="sums:2"))


def test_an_unknown_source_is_refused_with_the_names_that_there_are(tmp_path):
    use(tmp_path)
    with pytest.raises(ProblemsError) as raised:
        load(Problems(source="summs:9"))
    assert re.search("'summs:9' is not a source .* gym:FAMILY, sums:ARGS", str(raised.value))
    with messages.raises("source_without_rows", source="sums:0"):
        load(Problems(source="sums:0"))
