"""The programs of the Python page pass type checkers that have none of our settings."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from documentation import ROOT, blocks_of

# Strict, and without pydantic's plugin. What the package imports from these takes mypy a minute.
MYPY = """
[mypy]
strict = true
[mypy-torch.*,transformers.*,trl.*,accelerate.*,datasets.*,distilabel.*,ray.*]
follow_imports = skip
ignore_missing_imports = true
"""
CONFIGURED = """
import heavydistill as hd

hd.generate(hd.RunConfig())
hd.evaluate(hd.RunConfig(teacher="micro"), controls=["alone", "garbled"])
hd.build_sets(hd.BuildConfig(runs=["runs/first"], seed=1))
hd.import_pools(hd.ImportConfig(files=["a.jsonl"], format="nemo", out="runs/a"))
hd.publish("sets/first", hd.PublishOptions(repo_id="org/name"))
"""
"""Every key has its default."""
WRONG = """
import heavydistill as hd

hd.RunConfig(techer="micro")
hd.generate(hd.RunConfig()).folders
"""
"""A program in which a checker must find two faults."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs of the page and those above, and settings of both checkers."""
    folder = tmp_path_factory.mktemp("programs")
    page = ROOT / "docs" / "reference" / "python.md"
    blocks = [block for block in blocks_of(page) if block.language == "python"]
    for number, block in enumerate(blocks):
        (folder / (block.saved_as or f"program_{number}.py")).write_text(block.text, "utf-8")
    (folder / "configured.py").write_text(CONFIGURED, "utf-8")
    (folder / "wrong.py").write_text(WRONG, "utf-8")
    (folder / "mypy.ini").write_text(MYPY, "utf-8")
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict"}), "utf-8")
    return folder


def faults(programs: Path, *command: str) -> list[str]:
    """The lines of a checker that name a fault."""
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=programs, capture_output=True, text=True, timeout=800
    )
    return [line for line in done.stdout.splitlines() if "error: " in line or "error -" in line]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [("mypy", "--cache-dir", "cache", "."), ("pyright", "--pythonpath", sys.executable)],
    ids=["mypy", "pyright"],
)
def test_the_programs_of_the_page_have_the_types_that_they_use(programs, command):
    found = faults(programs, *command)
    assert {line.partition(":")[0].rpartition("/")[2] for line in found} == {"wrong.py"}, found
    assert any("techer" in line for line in found) and any("folders" in line for line in found)
