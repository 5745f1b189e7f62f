"""What a dataset may say about its answers: the keys of ``verifier_args`` for ``math``.

``marker``   text such as ``####``, ``A:`` or ``答案``: where there is no box, what follows the last
             one on its line is the answer, in responses and references
``units``    ``optional`` (default): a unit may be missing, but two units must agree;
             ``required``: an answer without the unit of its reference is incorrect
``percent``  ``number``: 5% is 5; ``fraction``: 5% is 0.05. Without it an answer that differs from
             its reference in a percent sign is undecided, unless the problem asks for percents:
             then it is ``number``
``ordered``  true: the order of a list such as ``1, 2`` counts; false (default): it does not.
             The order of tuples always counts
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Literal

from heavydistill.verifiers.extraction import marker_in

_VALUES = {"units": ("optional", "required"), "percent": ("number", "fraction")}


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one problem; the fields are the keys above."""

    marker: str | None = None
    units: Literal["optional", "required"] = "optional"
    percent: Literal["number", "fraction"] | None = None
    ordered: bool = False


@functools.lru_cache(maxsize=1024)
def read(verifier_args: str) -> Arguments:
    """The arguments in a JSON object.

    Raises:
        ValueError: It is none, or holds an unknown key or a value that its key does not take.
    """
    args = json.loads(verifier_args)
    known = Arguments.__slots__
    if not isinstance(args, dict) or args.keys() - set(known):
        keys = ", ".join(known)
        raise ValueError(f"verifier_args of math may hold {keys} and nothing else: {verifier_args}")
    marker_in(args)
    for key, values in _VALUES.items():
        if key in args and args[key] not in values:
            takes = " or ".join(values)
            raise ValueError(f'"{key}" in verifier_args takes {takes}, not {args[key]!r}')
    if not isinstance(args.get("ordered", False), bool):
        raise ValueError(f'"ordered" in verifier_args takes true or false, not {args["ordered"]!r}')
    return Arguments(**args)
