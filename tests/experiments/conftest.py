"""A checkpoint without a profile, for the experiments on what was trained."""

import shutil
from pathlib import Path

import pytest
from command_line import MICRO


@pytest.fixture
def trained(tmp_path: Path) -> str:
    return str(shutil.copytree(MICRO, tmp_path / "models" / "trained"))
