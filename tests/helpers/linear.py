"""Whether reading a long text takes time that grows with its length, and no faster."""

import functools
import time
from collections.abc import Callable


def cpu_s(call: Callable[[], object]) -> float:
    """The least CPU time of two calls: what else the machine does makes calls longer only."""
    taken = []
    for _ in range(2):
        begun = time.process_time()
        call()
        taken.append(time.process_time() - begun)
    return min(taken)


def assert_linear(read: Callable[[str], object], text_of: Callable[[int], str]) -> None:
    """A long text takes about four times as long as a quarter of it, not sixteen times.

    Args:
        read: What is called with a text.
        text_of: A text of about so many characters.
    """
    short, long = (functools.partial(read, text_of(size)) for size in (50_000, 200_000))
    once, four = cpu_s(short), cpu_s(long)
    assert four < 8 * once + 0.1, f"{once:.3f} s for a quarter, {four:.3f} s for the whole"
