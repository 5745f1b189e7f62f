"""A progress bar for runs that are started in a notebook."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from heavydistill.run.status import OnStatus, Status


@contextlib.contextmanager
def bar_of(name: str, on_status: OnStatus | None = None) -> Iterator[OnStatus | None]:
    """Yield ``on_status``; in a notebook, if it is None, a function that updates a bar."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if on_status or not hasattr(shell, "kernel"):  # IPython in a terminal has no kernel
        yield on_status
        return
    from tqdm.auto import tqdm

    bars: list[tqdm] = []

    def update(status: Status) -> None:
        done, total = status.samples
        if not bars:  # a bar cannot change its total
            bars.append(held.enter_context(tqdm(desc=name, total=total, unit="sample")))
        bars[0].n = done
        bars[0].set_postfix_str(f"{status.finished:,} of {status.problems:,} problems")

    with contextlib.ExitStack() as held:
        yield update
