"""The rules of LiveCodeBench's own grader, for problems with ``"judged_like": "livecodebench"``.

Before every program, also one that reads stdin, the grader imports names (``running.prelude``) and
raises two limits of the interpreter. A program that reads stdin may end with any exit status, and a
method may be written without its class. Outputs agree line by line, without blanks around a line or
the whole, if two lines are the same text or the same decimal numbers, of any notation. A returned
value agrees if Python calls it equal to the expected one, so that 1.0 or True stands for 1; a tuple
stands for a list, but not inside another value. Nothing is rounded.

Not reproduced: what its replacements of standard input and output and its way to start a program
break, differently in its versions (``for line in sys.stdin``, ``sys.stdout.buffer``, ``global``,
``os._exit``). Such a program runs here as on a contest site.

Source: lcb_runner/evaluation in LiveCodeBench/LiveCodeBench, commit 28fef95.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from heavydistill.verifiers.code.values import Tree, likeness

LIMITS = "import sys\nsys.setrecursionlimit(50000)\nsys.set_int_max_str_digits(50000)\n"
"""Code that raises the limits of recursion and of the digits of an integer."""


def outputs_agree(given: str, wanted: str) -> bool:
    """Whether a program printed what a test expects."""
    ours, theirs = (text.strip().split("\n") for text in (given, wanted))
    return len(ours) == len(theirs) and all(map(_lines_agree, ours, theirs))


def _lines_agree(given: str, wanted: str) -> bool:
    if given.strip() == wanted.strip():
        return True
    try:
        return _numbers(given) == _numbers(wanted)
    except InvalidOperation:
        return False


def _numbers(line: str) -> list[Decimal]:
    return list(map(Decimal, line.split()))


def values_agree(given: Tree, wanted: Tree) -> bool:
    """Whether a returned value is the expected one; raises the exceptions of ``likeness``."""
    if isinstance(given, list) and given[:1] == ["t"]:
        given = ["l", *given[1:]]
    return likeness(given, wanted) in ("same", "alike")
