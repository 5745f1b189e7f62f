"""Ctrl-C, SIGTERM and the loss of the terminal (SIGHUP).

Each is an exception if there is something to save, otherwise the end of the process.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

INTERRUPTED = 130
"""Exit code of an interrupted command."""
OF_A_TERMINAL = {signal.SIGINT, signal.SIGHUP}
"""Signals that a terminal sends to all processes of a command."""


@contextlib.contextmanager
def as_exceptions() -> Iterator[Callable[[], None]]:
    """Let SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt with the name of the signal.

    SIGHUP stays ignored if it is, as under nohup.

    Yields:
        Function that makes the process ignore the signals, so that they do not interrupt cleanup.
    """

    def interrupt(signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGHUP:
            _leave_lost_terminal()
        raise KeyboardInterrupt(signal.Signals(signum).name)

    def ignore() -> None:
        for signum in handlers:
            signal.signal(signum, signal.SIG_IGN)

    is_main = threading.current_thread() is threading.main_thread()
    signums = [signal.SIGINT, signal.SIGTERM] if is_main else []
    if is_main and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signums.append(signal.SIGHUP)
    handlers = {signum: signal.signal(signum, interrupt) for signum in signums}
    try:
        yield ignore
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Delay Ctrl-C and SIGHUP until the block ends; processes started in it never receive them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OF_A_TERMINAL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def ending_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process with exit code ``INTERRUPTED``, without cleanup.

    Use it while modules are imported: there a KeyboardInterrupt is printed as a traceback, or lost
    in a bare ``except`` of a library. A different handler stays in place, and an ignored SIGINT, as
    in background jobs, stays ignored.
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
    """From now on, let Ctrl-C end the process with exit code ``INTERRUPTED``, without cleanup."""
    signal.signal(signal.SIGINT, _end)


@contextlib.contextmanager
def recognized() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end of the block if Ctrl-C was pressed in it.

    During an import it may become another exception (Python 3.11 wraps what ``__set_name__``
    raises) or be lost in a bare ``except``. An ignored Ctrl-C stays ignored.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came = False

    def note(signum: int, frame: FrameType | None) -> None:
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
    """Turn off garbage collection to speed up imports; Ctrl-C is handled as in ``recognized``."""
    was_on = gc.isenabled()
    gc.disable()
    # Otherwise the process spends half a second at exit on cycles in the loaded modules.
    atexit.register(gc.freeze)
    try:
        with recognized():
            yield
    finally:
        if was_on:
            gc.enable()


def _leave_lost_terminal() -> None:
    """Discard what is printed to a terminal that is gone: writing to it is an error."""
    for stream in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(stream).st_mode) and not os.isatty(stream):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream)
                os.close(null)


def _end(signum: int, frame: FrameType | None) -> None:
    with contextlib.suppress(Exception):  # the handler may interrupt a write to the same stream
        sys.stdout.flush()
    os.write(sys.stderr.fileno(), b"Interrupted.\n")
    os._exit(INTERRUPTED)
