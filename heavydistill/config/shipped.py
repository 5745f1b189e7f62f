"""Files that come with heavydistill, from ``configs`` and ``data`` of the repository."""

from __future__ import annotations

import functools
from pathlib import Path


@functools.cache
def shipped(folder: str, suffix: str = ".yaml") -> dict[str, Path]:
    """Return the files of a folder such as ``configs/teachers``: name to path, sorted by name."""
    package = Path(__file__).parents[1]
    installed = package / "shipped" / folder  # location in a wheel
    root = installed if installed.is_dir() else package.parent / folder
    files = {str(file.relative_to(root).with_suffix("")): file for file in root.rglob(f"*{suffix}")}
    return dict(sorted(files.items()))
