"""The interface of sandboxes for model-written programs, and the result of a run.

A run starts ``python main.py`` once, in a working folder that contains only the given files, with
the standard library and the packages of ``packages``. The result is what can be observed from
outside: how the process ended, its output and its processor time. A program controls its own exit
status and output, so neither proves anything about what it computed.

Ends of a run, ``SandboxResult.ended``:

    exit         the program ended by itself, with ``exit_code``
    signal       the signal with number ``exit_code`` ended it: it crashed, or killed itself
    cpu          it exceeded the processor time ``Limits.cpu_s``
    wall         it did not end within ``Limits.wall_s``, or used no processor time for 15 seconds
                 (if the sandbox measures that): it slept, is in a deadlock, or the machine is busy
    output       it wrote more than ``Limits.output_bytes`` to standard output or standard error
    files        it created more files than the working folder allows
    unavailable  it did not run, or its end is unknown; ``stderr`` has the reason

A program that requests more memory than ``Limits.memory_mb`` gets an error (``MemoryError`` in
Python), which it may handle.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Ended = Literal["exit", "signal", "cpu", "wall", "output", "files", "unavailable"]

LAUNCHER = Path(__file__).with_name("launcher.py").read_text(encoding="utf-8")
"""Source of the launcher, which runs before the program; a call of ``start`` is appended."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one run, from ``verify.sandbox`` of a configuration (``verifiers.code.running``).

    ``launcher`` enforces those of the processor and memory, ``bubblewrap`` time and output.
    """

    cpu_s: float
    """Limit of the processor time of all threads, in seconds; may be exceeded by up to a second."""
    wall_s: float
    """Seconds until the program is killed; generous, because a busy machine delays programs."""
    memory_mb: int  # Limit of the address space in MiB, including the interpreter
    output_bytes: int
    """Maximum number of bytes of standard output; the same limit applies to standard error."""


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """Result of a run."""

    ended: Ended
    exit_code: int = -1
    """Exit status (0 to 255) or signal number; -1 if the run ended in another way."""
    stdout: bytes = b""
    """Standard output, cut at ``Limits.output_bytes``; ``stderr`` is cut in the same way."""
    stderr: bytes = b""
    cpu_s: float = 0.0  # Processor time in seconds, including the start; 0.0 if unknown


class Sandbox(abc.ABC):
    """An environment in which programs cannot do harm. Thread-safe."""

    @abc.abstractmethod
    def unavailable(self) -> str | None:
        """Why no program can run in this sandbox, and the fix; None if programs can run."""

    @abc.abstractmethod
    def run(self, files: Mapping[str, str], limits: Limits) -> SandboxResult:
        """Run ``main.py`` of ``files``. Never raises, whatever happens, even if no program can run.

        Args:
            files: Maps file names to their contents, including ``main.py``; plain names, valid
                Unicode.
        """


def unavailable(reason: str) -> SandboxResult:
    """The result of a run that could not start."""
    return SandboxResult("unavailable", stderr=reason.encode("utf-8", "replace"))
