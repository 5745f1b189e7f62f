"""A clock for the client's event loop on which a busy machine is no silent server."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from heavydistill.models.http import transport

_TURN_S = 0.05


@contextlib.contextmanager
def fair_clock() -> Iterator[None]:
    """While the block runs, the time between two turns of the client's loop is at most 50 ms.

    Time-outs and pauses are as long as ever where the machine is idle. Where this process gets no
    processor for a while, or is stopped, its clock all but stands still.
    """
    loop: Any = transport.loop()
    select, now, seen = loop._selector.select, time.monotonic(), time.monotonic()

    def clock() -> float:
        nonlocal now, seen
        seen, before = time.monotonic(), seen
        now += min(max(0.0, seen - before), _TURN_S)
        return now

    def short(timeout: float | None = None) -> Any:
        return select(_TURN_S / 2 if timeout is None else min(timeout, _TURN_S / 2))

    loop.time, loop._selector.select = clock, short
    try:
        yield
    finally:
        del loop.time, loop._selector.select
