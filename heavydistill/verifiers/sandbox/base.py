"""What every place for model-written programs offers, and what it says of a run.

A run is one start of ``python main.py`` in a working folder that holds the files given and nothing
else, with the standard library and no other package. What a run tells is what can be seen from
outside: how the process ended, what it wrote, the processor time it took. A program decides its
own exit status and output, so neither proves anything about what it computed.

Ends of a run, ``Ran.ended``:

    exit         it ended by itself, with ``exit_code``
    signal       it was ended by the signal ``exit_code``: it crashed, or killed itself
    cpu          it used more processor time than ``Limits.cpu_s``
    wall         it did not end within ``Limits.wall_s``, or computed nothing for 15 seconds where
                 that is looked at: it slept or waits for itself, or the machine is busy
    output       it wrote more than ``Limits.output_bytes`` to standard output or standard error
    files        it made more files than a working folder may hold
    unavailable  it did not run, or what became of it is not known; ``stderr`` says why

A program that asks for more memory than ``Limits.memory_mb`` is told so (``MemoryError`` in
Python), and ends as it likes.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Ended = Literal["exit", "signal", "cpu", "wall", "output", "files", "unavailable"]

LAUNCHER = Path(__file__).with_name("launcher.py").read_text(encoding="utf-8")
"""What runs in every sandbox before the program; one call is put behind it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may take."""

    cpu_s: float
    """Seconds of processor time over all threads; some hundredths, or up to a second, more."""
    wall_s: float
    """Seconds until it is killed. Generous: on a busy machine a good program waits."""
    memory_mb: int
    """MiB of address space, the interpreter included."""
    output_bytes: int
    """Most bytes of standard output, and as many of standard error."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a run."""

    ended: Ended
    exit_code: int = -1
    """Exit status, 0 to 255, or the number of the signal; -1 for the other ends."""
    stdout: bytes = b""
    """What it wrote, cut at ``Limits.output_bytes``; so is ``stderr``."""
    stderr: bytes = b""
    cpu_s: float = 0.0
    """Seconds of processor time, start included; 0.0 where nobody knows."""


class Sandbox(abc.ABC):
    """A place where programs can do no harm. It may be used from several threads."""

    @abc.abstractmethod
    def unavailable(self) -> str | None:
        """Why no program can run here and what to do about it; None if they can."""

    @abc.abstractmethod
    def run(self, files: Mapping[str, str], limits: Limits) -> Ran:
        """Runs ``main.py``. Never raises for what a program does, nor where none can run.

        Args:
            files: Name to text of the files beside it and of itself: plain names, valid Unicode.
        """


def unavailable(reason: str) -> Ran:
    """The run that did not happen."""
    return Ran("unavailable", stderr=reason.encode("utf-8", "replace"))
