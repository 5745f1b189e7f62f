"""Installed packages that programs in the sandbox may import besides the standard library.

They are the packages of this process's environment, so that they fit the interpreter. ``FOLDER``
of the sandbox shows them read-only: all to an interpreter (``session``), and to a program only
those that it mentions, because a sandbox starts faster without them. A package that is not
installed is unknown to the programs.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

NAMES = ("numpy", "sympy")
FOLDER = "/packages"
ENVIRONMENT = {
    "PYTHONPATH": FOLDER,
    # A buffer for each core of the machine would use up the address space of a program.
    "OPENBLAS_NUM_THREADS": "1",
}


def mentioned(texts: Iterable[str]) -> list[str]:
    """Names of the packages that these texts mention."""
    return [name for name in NAMES if any(name in text for text in texts)]


@cache
def files_of(name: str) -> dict[str, Path]:
    """Maps the names in ``FOLDER`` to the folders and files of a package and of those it needs.

    Empty if the package is not installed.
    """
    try:
        package = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return {}
    tops = {file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "/")}
    paths = {top: Path(str(package.locate_file(top))) for top in sorted(tops)}
    for needed in package.requires or ():
        if "extra" not in needed:
            paths |= files_of(re.split(r"[^\w.-]", needed, maxsplit=1)[0])
    return paths
