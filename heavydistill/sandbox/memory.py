"""Memory of this machine, and how much of it is reserved for interpreters in the sandbox."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

_SHARE = 0.8
"""Share of the free memory that is reserved at most."""


def free_memory() -> int | None:
    """Return the bytes of memory that programs can still take on this machine, or within the limit
    of its container; None if the system does not say."""
    free = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = next(line for line in lines if line.startswith("MemAvailable:"))
        free.append(int(available.split()[1]) * 1024)
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit, used = ((group / f"memory.{name}").read_text() for name in ("max", "current"))
        free.append(int(limit) - int(used))
    return min(free, default=None)


class Reservations:
    """Memory that was promised to interpreters, so that all can use all of theirs. Thread-safe.

    Not covered: what other processes reserve.
    """

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._reserved_mb = self._total_mb = 0

    def room(self, each_mb: int) -> int:
        """Number of interpreters with ``each_mb`` MiB for which there is room."""
        with self._lock:
            return self._room(each_mb)

    def reserve(self, each_mb: int, *, waits: bool = False) -> bool:
        """Reserve memory for one interpreter if there is room; ``give_back`` it once.

        With ``waits``, wait for room while any is reserved.
        """
        with self._lock:
            while self._room(each_mb) < 1:
                if not (waits and self._reserved_mb):
                    return False
                self._lock.wait()
            self._reserved_mb += each_mb
            return True

    def give_back(self, each_mb: int) -> None:
        with self._lock:
            self._reserved_mb -= each_mb
            self._lock.notify_all()

    def _room(self, each_mb: int) -> int:
        # Later, the interpreters themselves use some of the memory.
        if not self._reserved_mb:
            free = free_memory()
            self._total_mb = 0 if free is None else int(_SHARE * free) >> 20
        return (self._total_mb - self._reserved_mb) // each_mb
