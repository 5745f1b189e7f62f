"""The public face: each name is loaded on use, and docs/reference/python.md shows what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import heavydistill as hd
from heavydistill.errors import ConfigError

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "python.md"


def test_each_name_is_loaded_on_use_and_documented() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in hd.__all__:
        assert getattr(hd, name).__name__ == name
        assert f"`hd.{name}" in page
    with pytest.raises(AttributeError, match="no attribute 'generat'"):
        _ = hd.generat


def test_the_functions_raise_errors_with_a_fix(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not the folder of"):
        hd.load_traces(tmp_path / "none")
    with pytest.raises(ConfigError, match="No such file"):
        hd.generate(hd.load_config(tmp_path / "none.yaml"))


def test_the_program_of_the_page_prints_what_it_prints_and_nothing_else(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "program.py"], capture_output=True, text=True, cwd=tmp_path, timeout=240
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    *traces, mean, sets = done.stdout.splitlines()
    assert len(traces) == 8 and re.fullmatch(r"HM@D [01]\.\d\d", mean)
    assert sets.startswith("{'sft_deliberator': ")
    assert len(list(hd.load_traces(tmp_path / "runs/first"))) == 8
