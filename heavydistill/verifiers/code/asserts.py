"""Splits an assertion into a call, which runs in the sandbox, and the expected value.

``assert f(2) == 4`` becomes the call ``f(2)`` and the value 4, which is compared outside the
sandbox with the value of the call. An assertion can be split if it is an equality between

    a call      of a name that the program must define, e.g. ``f(2)`` or ``Stack().pop()``, with or
                without builtins such as ``sorted``, ``set`` or ``len`` around it
    a constant  literals, and ``float("inf")``, ``set([1, 2])`` and similar

All other assertions, such as those with ``<``, ``not`` or ``math.isclose``, are run by
``rehearsal``.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Collection, Sequence

from heavydistill.verifiers.code.inside.serialize import EncodeError, TooLarge
from heavydistill.verifiers.code.values import Tree, tree_of

_MAKERS: dict[str, Callable[..., object]] = {
    kind.__name__: kind for kind in (float, set, frozenset, list, tuple, dict)
}
# Builtins that may be applied to a call and are sent to the sandbox with it. None returns a
# boolean, because an object of the program could fake a boolean result.
_AROUND = {
    *("list", "tuple", "set", "frozenset", "dict", "sorted", "len", "str", "repr", "int", "float"),
    *("sum", "min", "max", "abs", "round", "next", "iter", "reversed"),
}
_WITH_SETTING = {"round", "int", "sum", "next"}


def split(test: ast.expr, program: Collection[str]) -> tuple[str, Tree] | None:
    """Split the expression of an assertion into (source of the call, expected value).

    None if the expression does not have this form. ``program`` are the names that the program
    defines.
    """
    match test:
        case ast.Compare(left, [ast.Eq()], [right]):
            call, value = (left, right) if _is_call(left, program) else (right, left)
        case _:
            return None
    if not _is_call(call, program):
        return None
    try:
        return ast.unparse(call), tree_of(_constant(value))
    except (ValueError, TypeError, RecursionError, MemoryError, EncodeError, TooLarge):
        return None


def _constant(node: ast.expr) -> object:
    """Evaluate a constant expression; raises an exception, often ``ValueError``, for others."""
    if isinstance(node, ast.Call) and _name(node.func) in _MAKERS and not node.keywords:
        return _MAKERS[_name(node.func)](*map(_constant, node.args))
    return ast.literal_eval(node)


def _is_call(node: ast.expr, program: Collection[str]) -> bool:
    """Whether an expression calls the program and does not test the result itself."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute):
        # A method of an instance that is created here, of a class that the program defines.
        made = _name(node.func.value.func) if isinstance(node.func.value, ast.Call) else ""
        return made[:1].isupper() and made in program
    name = _name(node.func)
    if name in program or name not in _AROUND or not node.args:
        return name in program
    settings = [*node.args[1:], *(word.value for word in node.keywords)]
    return (
        _is_call(node.args[0], program)
        and (len(node.args) == 1 or name in _WITH_SETTING)
        and all(isinstance(each, ast.Lambda | ast.Name | ast.Constant) for each in settings)
    )


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def program_names(trees: Sequence[ast.AST], own: Collection[str]) -> list[str]:
    """Names that the tests call and do not define, so that the program must define them.

    ``own`` are the names that the tests define.
    """
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = [(node.func.id, node) for node in calls if isinstance(node.func, ast.Name)]
    elsewhere = {*vars(builtins), *own, "isclose"}
    names = [name for name, _ in called if name not in elsewhere]
    if not names:
        # A builtin called without another call in its arguments: the program may define that name.
        innermost = [name for name, call in called if not _calls_in(call)]
        names = [name for name in innermost if name not in own]
    return list(dict.fromkeys(names))


def _calls_in(call: ast.Call) -> list[ast.AST]:
    return [part for part in ast.walk(call) if isinstance(part, ast.Call) and part is not call]
