"""Ctrl-C and SIGTERM, as one kind of end."""

from __future__ import annotations

import signal
import threading
from typing import Any


def terminate_as_interrupt() -> dict[int, Any]:
    """Make SIGINT and SIGTERM a KeyboardInterrupt; returns the handlers that were there."""
    if threading.current_thread() is not threading.main_thread():
        return {}

    def interrupt(signum: int, frame: Any) -> None:
        raise KeyboardInterrupt(signal.Signals(signum).name)

    return {signum: signal.signal(signum, interrupt) for signum in (signal.SIGINT, signal.SIGTERM)}
