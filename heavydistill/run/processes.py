"""Where the processes of the steps come from: a fork server that has loaded what all of them need.

A plain fork deadlocks once torch has used its threads. The server needs a second or two to load;
whoever starts it before distilabel is loaded here waits for both only as long as for one, so this
module imports nothing large. What is put into the environment later does not reach the steps.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import multiprocessing
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext

from heavydistill.run import interrupts


def start_server() -> ForkServerContext:
    """Start the server, if it does not run, without waiting for it.

    Neither it nor any step hears the Ctrl-C of a terminal, which would reach them while they load:
    whoever started them does, and ends them.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["heavydistill.run.preloaded"])
    resource_tracker.ensure_running()  # the server starts it otherwise, and lets Ctrl-C through
    with interrupts.held():
        forkserver.ensure_running()
    # Else the end of this process is half a second of looking for cycles in what was loaded.
    atexit.register(gc.freeze)
    return context


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Load modules faster: none of what they bring is garbage, so nothing looks for it.

    Ctrl-C ends it as ``interrupts.recognized`` does.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        with interrupts.recognized():
            yield
    finally:
        if was_on:
            gc.enable()
