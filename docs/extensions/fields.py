"""Tables of keys and columns, from the classes that define them.

A field is documented in the source of its class: by the string below it or the comment behind it.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import io
import itertools
import json
import textwrap
import tokenize
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel

from heavydistill.cli.training import options_of
from heavydistill.config.models import Sampling, SamplingChoice
from heavydistill.config.run import RunConfig
from heavydistill.config.serve import ServeConfig
from heavydistill.config.sets import BuildConfig, ImportConfig, RefilterConfig
from heavydistill.models.profiles import ProfileFile
from heavydistill.problems.benchmarks import Benchmark
from heavydistill.store.sets.set_rows import LABELS
from heavydistill.train.arguments import REFUSED
from heavydistill.train.fields import own_arguments

# The classes of files that people write: what such a file belongs to, and the class.
_FILES: dict[str, type[BaseModel]] = {
    "run": RunConfig,
    "service": ServeConfig,
    "build": BuildConfig,
    "refilter": RefilterConfig,
    "import": ImportConfig,
    "profile": ProfileFile,
    "benchmark": Benchmark,
}
_SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
NAMES = {
    **{str: "string", int: "integer", float: "number", bool: "boolean"},
    **{type(None): "null", dict: "mapping"},
}
_CONFIGURED = ("Key", "Type", "Default", "Meaning")


@dataclasses.dataclass(frozen=True)
class Key:
    """A field of a class, as the tables show it."""

    name: str
    hint: Any
    default: Any  # MISSING where a value must be given
    text: str
    bounds: tuple[str, ...] = ()


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def configuration(owner: str) -> str:
    """Tables of the keys of a file: those at its top level, then those of each section."""
    return "\n\n".join(_tables(owner, _FILES[owner]))


def columns(*kinds: type[Any], above: Collection[type[Any]] = ()) -> str:
    """Tables of the columns of rows, and below them those of the types that stand in them.

    Types that are shown ``above`` on the page, or stand in one that is, have their table there.
    """
    shown, parts = set(_with_parts(above)), []
    for kind in _with_parts(kinds):
        if kind not in shown:
            rows = (
                (f"`{key.name}`", _type(key.hint, _class_link), _text(key)) for key in _keys(kind)
            )
            parts += [f"### {kind.__name__}", _doc(kind), table(("Name", "Type", "Meaning"), rows)]
    return "\n\n".join(parts)


def _with_parts(kinds: Iterable[type[Any]]) -> list[type[Any]]:
    """The classes, then those that stand in their fields, each once."""
    found = list(kinds)
    for kind in found:
        for key in _keys(kind):
            found += [part for part in _classes_in(key.hint) if part not in found]
    return found


def labels() -> str:
    """The labels of rows that are not learnt from."""
    return table(("Label", "Meaning"), ((f"`{code}`", text) for code, text in LABELS))


def training(script: str) -> str:
    """Tables of the keys of a training that are ours, and of those of TRL that are refused."""
    options = options_of(script)
    hints = typing.get_type_hints(options)
    rows = (
        (
            f"`{key.name}`",
            _words(key.choices) or _type(hints[key.name]),
            _json(key.default),
            key.help,
        )
        for key in own_arguments(options).values()
    )
    refused = {**REFUSED, **options.refused}
    whys = ((f"`{name}`", f"{why[:1].upper()}{why[1:]}.") for name, (_, why) in refused.items())
    tables = table(_CONFIGURED, rows), table(("Key of TRL", "Why it cannot be set"), whys)
    return "\n\n".join(tables)


def _tables(owner: str, section: type[BaseModel], at: str = "") -> Iterator[str]:
    rows, below = [], []
    above = [base for base in section.__mro__[1:] if base in _FILES.values()]
    inherited = {name for base in above for name in base.model_fields}
    for key in _keys(section):
        if key.name in inherited:
            continue
        dotted = f"{at}{key.name}"
        for part in _classes_in(key.hint):
            if _places()[part] == (owner, dotted):
                below.append((part, dotted))
        kind = ", ".join([_type(key.hint, _section_link), *key.bounds])
        rows.append((f"`{dotted}`", kind, _default(key), _text(key)))
    yield table(_CONFIGURED, rows)
    for part, dotted in below:
        yield f"### {_heading(owner, dotted)}"
        yield _doc(part)
        yield from _tables(owner, part, f"{dotted}.")


@functools.cache
def _places() -> dict[type[BaseModel], tuple[str, str]]:
    """Where each section is shown: the file and key in which it comes first."""
    found: dict[type[BaseModel], tuple[str, str]] = {}

    def visit(owner: str, section: type[BaseModel], at: str) -> None:
        for key in _keys(section):
            for part in _classes_in(key.hint):
                if part not in found:
                    found[part] = owner, f"{at}{key.name}"
                    visit(owner, part, f"{at}{key.name}.")

    for owner, section in _FILES.items():
        visit(owner, section, "")
    return found


def _heading(owner: str, dotted: str) -> str:
    return f"`{dotted}` of a {owner}".replace("a import", "an import")


def _section_link(section: type[BaseModel]) -> str:
    return f"[section](#{_slug(_heading(*_places()[section]))})"


def _class_link(kind: type[Any]) -> str:
    return f"[{kind.__name__}](#{_slug(kind.__name__)})"


def _slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    kept = "".join(each for each in heading.lower() if each.isalnum() or each in "-_ ")
    return kept.replace(" ", "-")


def _keys(kind: type[Any]) -> Iterator[Key]:
    """The fields of a dataclass or of a pydantic model."""
    hints, texts = typing.get_type_hints(kind, include_extras=True), _texts(kind)
    missing = dataclasses.MISSING
    if issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            text = field.description or texts.get(name) or ""
            if kind is Sampling:  # documented where a user sets it
                text = SamplingChoice.model_fields[name].description or ""
                text = text.replace(" (default: the profile's)", "")
            default = (
                missing if field.is_required() else field.get_default(call_default_factory=True)
            )
            yield Key(name, hints[name], default, _plain(text), (*_bounds(field.metadata),))
    else:
        for each in dataclasses.fields(kind):
            default = each.default if each.default_factory is missing else each.default_factory()
            yield Key(each.name, hints[each.name], default, _plain(texts.get(each.name, "")))


@functools.cache
def _texts(kind: type[Any]) -> dict[str, str]:
    """Texts of fields by name: the string below a field, or the comment at the end of its line."""
    found: dict[str, str] = {}
    for base in reversed(
        [each for each in kind.__mro__ if each.__module__.startswith("heavydistill")]
    ):
        source = textwrap.dedent(inspect.getsource(base))
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        comments = {each.start[0]: each.string for each in tokens if each.type == tokenize.COMMENT}
        (node,) = ast.parse(source).body
        assert isinstance(node, ast.ClassDef)
        for line, after in zip(node.body, [*node.body[1:], None], strict=True):
            if not (isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)):
                continue
            text = comments.get(line.end_lineno or 0, "").removeprefix("# ")
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text = str(after.value.value)
            found[line.target.id] = text
    return found


def _text(key: Key) -> str:
    """The text of a field, or that of the class that stands in it."""
    return key.text or next(map(_doc, _classes_in(key.hint)), "")


def _doc(kind: type[Any]) -> str:
    return _plain(inspect.cleandoc(kind.__doc__ or ""))


def _plain(text: str) -> str:
    """A text of the source as Markdown: a sentence on one line, code between single backticks."""
    text = " ".join(text.split()).replace("``", "`")
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", ":")) or not text else ".")


def _classes_in(hint: Any) -> Iterator[type[Any]]:
    """The classes with fields that stand in a type."""
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, BaseModel)):
        yield hint
    for part in typing.get_args(hint):
        yield from _classes_in(part)


def _type(hint: Any, link: Callable[[type[Any]], str] = str) -> str:
    """A type in words; a class with fields is a link to its table."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _type(arguments[0], link)
    if origin is Literal:
        return _words(arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(part, link) for part in arguments)
    if origin in (list, tuple):
        return f"list of {_type(arguments[0], link)}"
    if origin is dict:
        return f"mapping to {_type(arguments[1], link)}"
    if hint in NAMES:
        return NAMES[hint]
    if hint in (Any, object):
        return "any"
    if isinstance(hint, type) and next(_classes_in(hint), None):
        return link(hint)
    raise TypeError(f"{hint!r} has no name for a reader yet; add it to fields._type.")


def _bounds(metadata: Iterable[Any]) -> Iterator[str]:
    for limit, (name, sign) in itertools.product(metadata, _SIGNS.items()):
        if (value := getattr(limit, name, None)) is not None:
            yield f"{sign} {value:,}"


def _default(key: Key) -> str:
    if key.default is dataclasses.MISSING:
        return "required"
    if isinstance(key.default, BaseModel):
        return ""
    return _json(key.default)


def _json(value: Any) -> str:
    return f"`{json.dumps(value)}`"


def _words(words: Iterable[Any]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
