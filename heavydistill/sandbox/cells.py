"""Runs in the sandbox as ``main.py``: executes cells of code one after another, in one namespace.

Standard input is one end of a pair of sockets. A request is the number of bytes of a cell, in four
bytes, and the cell. The answer is a line with the number of the cell, from 1, and how it ended:
``n`` (without an exception), ``e`` (with one) or ``m`` (out of memory). The line ``0 n`` says that
the interpreter is ready.

What a cell prints, the value of its last expression and its traceback go to standard output. Cells
find the null device as standard input, and standard output and error open, whatever earlier cells
did to them. They can reach the channel, as they can reach everything in this process: whoever reads
the answers trusts them no more than the output.
"""

from __future__ import annotations

import _ast
import contextlib
import linecache
import posix
import sys
import traceback
import types
from collections import deque
from typing import Any, TextIO

_CHANNEL, _OUTPUT = 100, 101  # descriptors that no cell gets by opening files
_ONLY_AST = 0x400
_FRAMES = 8


def serve() -> None:
    """Execute cells until the channel is closed."""
    posix.dup2(0, _CHANNEL)
    posix.dup2(1, _OUTPUT)
    posix.close(0)
    posix.open("/dev/null", posix.O_RDONLY)  # becomes 0
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    number, ended = 0, b"n"
    while True:
        posix.write(_CHANNEL, b"%d %s\n" % (number, ended))
        code = _received(int.from_bytes(_received(4), "big"))
        number += 1
        ended = _run(code, f"<cell {number}>", vars(main))


def _received(size: int) -> bytearray:
    data = bytearray()
    while len(data) < size:
        chunk = posix.read(_CHANNEL, size - len(data))
        if not chunk:
            posix._exit(0)
        data += chunk
    return data


def _run(code: bytearray, name: str, names: dict[str, Any]) -> bytes:
    """Execute a cell and return how it ended."""
    sys.stdout, sys.stderr = streams = _opened(1), _opened(2)
    ended, text = b"n", ""
    try:
        _execute(code.decode("utf-8", "surrogatepass"), name, names)
    except BaseException as error:
        ended = b"m" if isinstance(error, MemoryError) else b"e"
        text = _traceback(error)
    for stream in streams:
        with contextlib.suppress(OSError, ValueError):  # the cell has closed it
            stream.flush()
    left = text.encode("utf-8", "replace")
    while left:
        left = left[posix.write(_OUTPUT, left) :]
    return ended


def _opened(number: int) -> TextIO:
    """A stream that sends each line at once, so that a cell that is ended loses none."""
    posix.dup2(_OUTPUT, number)
    return open(number, "w", 1, "utf-8", closefd=False)


def _execute(code: str, name: str, names: dict[str, Any]) -> None:
    """Execute a cell, and print the value of its last expression unless it is None."""
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    tree = compile(code, name, "exec", _ONLY_AST, dont_inherit=True)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
    exec(compile(tree, name, "exec", dont_inherit=True), names)
    if last is not None:
        expression = _ast.Expression(last.value)
        sys.displayhook(eval(compile(expression, name, "eval", dont_inherit=True), names))


def _traceback(error: BaseException) -> str:
    """Format an exception with the last lines of cells that it passed, and no others."""
    try:
        frames = traceback.walk_tb(error.__traceback__)
        own = (each for each in frames if each[0].f_code.co_filename.startswith("<cell "))
        passed = traceback.StackSummary.extract(deque(own, _FRAMES)).format()
        lines = passed + traceback.format_exception_only(error)
    except BaseException:  # such as no memory
        return f"{type(error).__name__}\n"
    return "".join(["Traceback (most recent call last):\n"] * bool(passed) + lines)


if __name__ == "__main__":
    serve()
