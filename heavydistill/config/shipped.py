"""Files that come with heavydistill, from ``configs`` and ``data`` of the repository."""

from __future__ import annotations

import functools
from pathlib import Path

from heavydistill.errors import ConfigError, did_you_mean


@functools.cache
def shipped(folder: str, suffix: str = ".yaml") -> dict[str, Path]:
    """Return the files of a folder such as ``configs/teachers``: name to path, sorted by name."""
    package = Path(__file__).parents[1]
    installed = package / "shipped" / folder  # location in a wheel
    root = installed if installed.is_dir() else package.parent / folder
    files = {str(file.relative_to(root).with_suffix("")): file for file in root.rglob(f"*{suffix}")}
    return dict(sorted(files.items()))


def shipped_file(kind: str, name: str) -> Path:
    """Return the file at path ``name``, or the file of this name in ``configs/KIND``.

    Raises:
        ConfigError: There is neither.
    """
    path, files = Path(name), shipped(f"configs/{kind}")
    if path.is_file():
        return path
    if name in files:
        return files[name]
    near = did_you_mean(path.stem, files)
    raise ConfigError(
        f"{name}: No such file, and no shipped file has that name",
        f"{near}Give the path of a YAML file, or one of {', '.join(files)}.",
    )
