"""Every configuration that is shipped is valid and has its line in the README."""

from pathlib import Path

import pytest

from heavydistill.config import load_config
from heavydistill.teachers.complete import complete
from heavydistill.teachers.registry import shipped

CONFIGS = Path(__file__).parents[1] / "configs"
FILES = sorted((CONFIGS / "generate").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_configuration_is_valid_and_listed(path: Path) -> None:
    assert complete(load_config(path)).thinker
    assert f"({path.relative_to(CONFIGS)})" in (CONFIGS / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", shipped().values(), ids=lambda path: path.stem)
def test_profile_of_a_teacher_is_listed(path: Path) -> None:
    assert path.parent == CONFIGS / "teachers"
    assert f"({path.relative_to(CONFIGS)})" in (CONFIGS / "README.md").read_text(encoding="utf-8")


def test_there_are_configurations() -> None:
    assert FILES
