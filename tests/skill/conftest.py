"""An exported skill and a foreign one."""

import shutil
from pathlib import Path

import pytest

from heavydistill.skill.export import export_skill

FOREIGN = """\
---
name: other
description: Use it for sums.
---

# Sums

Add the numbers. See [the notes](references/notes.md).
"""


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The skill with all wordings; not to be changed."""
    return export_skill(
        tmp_path_factory.mktemp("skills"), ["general", "stem", "code"], ["en", "zh"]
    )


@pytest.fixture
def ours(exported: Path, tmp_path: Path) -> Path:
    """A copy of the exported skill."""
    return Path(shutil.copytree(exported, tmp_path / exported.name))


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A skill that heavydistill did not write, with nothing to refuse."""
    folder = tmp_path / "other"
    (folder / "references").mkdir(parents=True)
    (folder / "SKILL.md").write_text(FOREIGN, encoding="utf-8")
    (folder / "references/notes.md").write_text("Carry the one.\n", encoding="utf-8")
    return folder
