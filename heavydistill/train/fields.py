"""Names, types and help texts of a training's arguments, without importing TRL.

TRL's configurations have hundreds of fields, and importing them imports torch, which takes seconds.
The fields are therefore parsed from the source files of the installed packages. A mistyped flag is
reported at once, and there is no list of fields to keep up to date.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import inspect
import math
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any

from heavydistill.errors import ConfigError

_WORDS = dict.fromkeys(("yes", "true", "t", "y", "1"), True)
_WORDS |= dict.fromkeys(("no", "false", "f", "n", "0"), False)
_NUMBERS: dict[str, type[int] | type[float]] = {"int": int, "float": float}


@dataclass(frozen=True, slots=True)
class Argument:
    """A field of a configuration: a key of the YAML file and a flag of the command line."""

    name: str
    annotation: str  # Type of the field, as written in the source
    help: str = ""
    default: Any = None  # Default of the field; None if the source has no literal value
    choices: tuple[Any, ...] = ()  # Accepted values; empty if there is no fixed list
    nargs: str | None = None
    """Number of values of the flag, in argparse's notation; None for one value."""

    @property
    def kinds(self) -> set[str]:
        """Return the members of the type's union, without None."""
        return {kind.strip() for kind in self.annotation.split("|")} - {"None"}

    @property
    def is_switch(self) -> bool:
        """Return whether the field is boolean, so that its flag needs no value."""
        return "bool" in self.kinds

    @property
    def number(self) -> type[int] | type[float] | None:
        """Return int or float for a numeric field; None for other fields."""
        return _NUMBERS.get("|".join(self.kinds))

    def read(self, value: object) -> Any:
        """Convert a value from a flag or a file to the field's type.

        Raises:
            ValueError: The value does not fit; the message says why.
        """
        text = value.lower() if isinstance(value, str) else None
        # For a field that accepts text, such as report_to, "none" is an ordinary word.
        is_none = text in ("none", "null") and "None" in self.annotation
        if value is None or (is_none and "str" not in self.kinds):
            return None
        if self.choices and value not in self.choices:
            raise ValueError(f"is not one of {', '.join(map(str, self.choices))}")
        if self.is_switch and text is not None:
            if text not in _WORDS:
                raise ValueError("is neither true nor false")
            return _WORDS[text]
        if text is not None and self.kinds <= {"dict", "dict[str, bool]"}:
            raise ValueError("is not a mapping")
        if self.number:
            return self._read_number(self.number, value)
        return value

    def _read_number(self, kind: type[int] | type[float], value: Any) -> int | float:
        with contextlib.suppress(TypeError, ValueError):
            number = kind(value)
            if not isinstance(value, bool) and (isinstance(value, str) or number == value):
                return number
            if math.isnan(number):
                return number
        raise ValueError(f"is not a {'whole ' * (kind is int)}number")


def own_arguments(options: type[Any]) -> dict[str, Argument]:
    """Return the fields of one of our own dataclasses, by name."""
    # ``Field.type`` cannot be used: TRL's parser replaces it.
    types: dict[str, str] = {}
    for each in reversed(options.__mro__):
        types |= inspect.get_annotations(each)
    return {
        each.name: Argument(
            each.name,
            types[each.name],
            each.metadata.get("help", ""),
            None if each.default is dataclasses.MISSING else each.default,
            tuple(each.metadata.get("choices", ())),
            "+" if "list[" in types[each.name] else None,
        )
        for each in dataclasses.fields(options)
    }


@functools.cache
def arguments_of(module: str, name: str) -> dict[str, Argument]:
    """Return the fields of a dataclass that another package defines or exports, by name.

    Raises:
        ConfigError: The package is not installed.
    """
    module, node = _definition(module, name)
    arguments: dict[str, Argument] = {}
    for base in reversed(node.bases):
        arguments |= arguments_of(module, ast.unparse(base))
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            arguments |= _argument(module, line.target.id, line)
    return arguments


def _argument(module: str, name: str, line: ast.AnnAssign) -> dict[str, Argument]:
    """Return the field that a line of a dataclass defines; empty if it is not an init argument."""
    annotation, given, metadata = ast.unparse(line.annotation), {}, {}
    default = _literal(line.value)
    if isinstance(line.value, ast.Call):
        given = {part.arg: part.value for part in line.value.keywords}
        default = _literal(given.get("default"))
        if isinstance(pairs := given.get("metadata"), ast.Dict):
            metadata = {
                _literal(key): _literal(value)
                for key, value in zip(pairs.keys, pairs.values, strict=True)
            }
    if annotation.startswith("ClassVar") or _literal(given.get("init")) is False:
        return {}
    text = str(metadata.get("help") or "").replace("%%", "%")
    choices = metadata.get("choices") or _words(module, annotation)
    nargs = "+" if "list[" in annotation else metadata.get("nargs")
    return {name: Argument(name, annotation, text, default, tuple(choices), nargs)}


def _words(module: str, annotation: str) -> Iterator[object]:
    """Yield the values of the enumeration that is the first member of a type annotation."""
    first = annotation.partition("|")[0].strip()
    if first in ("None", "dict", "str", "bool", *_NUMBERS) or not first.isidentifier():
        return
    _, node = _definition(module, first)
    if any("Enum" in ast.unparse(base) for base in node.bases):
        for line in node.body:
            if isinstance(line, ast.Assign):
                yield _literal(line.value)


@functools.cache
def _definition(module: str, name: str) -> tuple[str, ast.ClassDef]:
    """Return the module that defines a class, and the class definition."""
    file, package = _file(module)
    tree = _tree(file)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return module, node
    for other in ast.walk(tree):
        if isinstance(other, ast.ImportFrom) and any(
            name == (alias.asname or alias.name) for alias in other.names
        ):
            source = resolve_name("." * other.level + (other.module or ""), package)
            return _definition(source, name)
    raise ConfigError(
        f"{module} of the installed packages defines no {name}",
        "Install versions that fit: pip install 'heavydistill[train]'.",
    )


def _file(module: str) -> tuple[Path, str]:
    """Return the source file of a module, and the package that its relative imports start from."""
    top, *rest = module.split(".")
    spec = find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"Training needs {top}, which is not installed",
            "Install it: pip install 'heavydistill[train]'.",
        )
    place = Path(spec.submodule_search_locations[0], *rest)
    if place.is_dir():
        return place / "__init__.py", module
    return place.with_suffix(".py"), module.rpartition(".")[0]


@functools.cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _literal(node: ast.expr | None) -> Any:
    """Return the value of a literal expression; None for any other expression."""
    with contextlib.suppress(ValueError):
        return ast.literal_eval(node) if node else None
    return None
