"""Ctrl-C: as an exception where there is something to keep, as the end of the process elsewhere."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

INTERRUPTED = 130
"""The exit code."""


@contextlib.contextmanager
def as_exceptions() -> Iterator[Callable[[], None]]:
    """While this lasts SIGINT and SIGTERM raise KeyboardInterrupt with the name of the signal.

    Yields:
        What makes them ignored for the rest of it, so that none breaks off a clean-up.
    """

    def interrupt(signum: int, frame: Any) -> None:
        raise KeyboardInterrupt(signal.Signals(signum).name)

    def ignore() -> None:
        for signum in handlers:
            signal.signal(signum, signal.SIG_IGN)

    is_main = threading.current_thread() is threading.main_thread()
    signums = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    handlers = {signum: signal.signal(signum, interrupt) for signum in signums}
    try:
        yield ignore
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Keep Ctrl-C waiting while this lasts, and for good from the processes that are started."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def ending_at_once() -> Iterator[None]:
    """While this lasts, Ctrl-C ends the process with ``INTERRUPTED``; nothing is undone.

    For the loading of modules, where a KeyboardInterrupt is printed as a traceback or, in a library
    that guards its imports with a bare ``except``, lost. A handler of one's own, and SIGINT that is
    ignored as in a job of the background, stay as they are.
    """
    before = signal.getsignal(signal.SIGINT)
    is_ours = threading.current_thread() is threading.main_thread()
    is_ours = is_ours and before is signal.default_int_handler
    if is_ours:
        end_at_once()
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, before)


def end_at_once() -> None:
    """Let Ctrl-C end the process with ``INTERRUPTED`` from now on; nothing is undone."""
    signal.signal(signal.SIGINT, _end)


@contextlib.contextmanager
def recognized() -> Iterator[None]:
    """Let a Ctrl-C end this with a KeyboardInterrupt, whatever libraries make of it.

    One that reaches an import may come out as another exception (Python 3.11 wraps what
    ``__set_name__`` raises), or be lost in a bare ``except``. Ctrl-C that is ignored stays so.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came = False

    def note(signum: int, frame: Any) -> None:
        nonlocal came
        came = True
        before(signum, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    except Exception:
        if came:
            raise KeyboardInterrupt from None
        raise
    finally:
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Load modules faster: none of what they bring is garbage, so nothing looks for it.

    Ctrl-C ends it as ``recognized`` does.
    """
    was_on = gc.isenabled()
    gc.disable()
    # Else the end of this process is half a second of looking for cycles in what was loaded.
    atexit.register(gc.freeze)
    try:
        with recognized():
            yield
    finally:
        if was_on:
            gc.enable()


def _end(signum: int, frame: Any) -> None:
    with contextlib.suppress(Exception):  # the handler may interrupt a write to the same stream
        sys.stdout.flush()
    os.write(sys.stderr.fileno(), b"Interrupted.\n")
    os._exit(INTERRUPTED)
