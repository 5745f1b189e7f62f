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
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext


def start_server() -> ForkServerContext:
    """Start the server, if it does not run, without waiting for it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["heavydistill.pipeline.preloaded"])
    forkserver.ensure_running()
    # Else the end of this process is half a second of looking for cycles in what was loaded.
    atexit.register(gc.freeze)
    return context


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Load modules faster: none of what they bring is garbage, so nothing looks for it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
