"""The public face: each name is loaded on use, and on its page."""

from pathlib import Path

import pytest

import heavydistill as hd
from heavydistill.errors import ConfigError

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "python.md"


def test_each_name_is_loaded_on_use_and_documented():
    page = PAGE.read_text(encoding="utf-8")
    for name in hd.__all__:
        assert getattr(hd, name).__name__ == name
        assert f"`hd.{name}" in page
    with pytest.raises(AttributeError, match="no attribute 'generat'"):
        _ = hd.generat


def test_the_functions_raise_errors_with_a_fix(tmp_path):
    with pytest.raises(ConfigError, match="is not the folder of"):
        hd.load_traces(tmp_path / "none")
    with pytest.raises(ConfigError, match="No such file"):
        hd.generate(hd.load_config(tmp_path / "none.yaml"))
