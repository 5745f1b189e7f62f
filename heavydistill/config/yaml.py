"""Strict YAML: reads a file as a typed section; an error lists every fault with line and fix.

All files that a user writes are read here: configurations, profiles of teachers, capabilities of
endpoints. An unknown key is an error that names the nearest valid key.
"""

from __future__ import annotations

import contextlib
import difflib
import re
import reprlib
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic.fields import FieldInfo

from heavydistill.config.files import text_in
from heavydistill.errors import ConfigError

_S = TypeVar("_S", bound=BaseModel)


_SENTENCE_ENDS = re.compile(r"(?<!e\.g)\.\s+(?=[A-Z`])")
_WORDS = {
    "Value error, ": "",
    "Field required": "is missing",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "more than",
    "a valid integer": "a whole number",
    "a valid boolean": "true or false",
    "a valid": "a",
    "a string": "a text",
    " after validation": "",
}


_MOST_VALUES = 100_000  # of a file; shipped configurations have fewer than 100


class _WithheldError(ValueError):
    """An error about a value that no message may show."""


class Section(BaseModel):
    """Base of the sections of configuration files: frozen; unknown keys are errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        # A traceback must not show an API key that was put in the wrong place.
        hide_input_in_errors=True,
    )

    def __init__(self, /, **values: object) -> None:
        """Raises ConfigError, as ``parse`` does."""
        with contextlib.suppress(ValidationError):
            super().__init__(**values)
            return
        parse(type(self), values)

    # Otherwise pydantic would call it for sections inside others, which would then fail one by one.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="before")
    @classmethod
    def _without_empty_sections(cls, tree: object) -> object:
        """Treat a section whose keys are all commented out as one with its defaults."""
        if not isinstance(tree, dict):
            return tree
        fields = cls.model_fields.items()
        sections = {key for key, info in fields if section_in(info.annotation)}
        return {k: value for k, value in tree.items() if value is not None or k not in sections}


def form(pattern: str, words: str, may_hold_a_key: bool = False) -> BeforeValidator:
    """Return metadata for a field whose text must match a pattern as a whole.

    If the text does not match, the message is ``words``, e.g. ``must be a number``. The message
    shows the text unless it ``may_hold_a_key``.
    """

    def check(value: object) -> object:
        if isinstance(value, str) and re.fullmatch(pattern, value):
            return value
        raise _WithheldError(words) if may_hold_a_key else ValueError(words)

    return BeforeValidator(check)


def load(
    section: type[_S],
    path: str | Path | None = None,
    overrides: Mapping[str, object] | None = None,
    preset: Mapping[str, object] | None = None,
) -> _S:
    """Read a section from a file and dotted keys.

    ``overrides`` (e.g. ``{"think.k": 16}``) take precedence over the file, and the file over
    ``preset``, which has keys as in a file. A key that ends with a dot is a section, which is added
    with its defaults unless it is there.

    Raises:
        ConfigError: The file does not exist or is not YAML, keys are unknown, or values are
            invalid or contradict each other.
    """
    path = Path(path) if path else None
    tree = _over(dict(preset or {}), read_yaml(path) if path else {})
    for dotted, value in (overrides or {}).items():
        inner, (*parents, last) = tree, str(dotted).split(".")
        for parent in parents:
            below = {} if inner.get(parent) is None else inner[parent]
            if not isinstance(below, dict):
                raise ConfigError(
                    f"{dotted} cannot be set, because {parent} has a value in place of keys",
                    f"Write {parent} as a section with keys{f' in {path}' if path else ''}.",
                )
            inner[parent] = dict(below)  # a copy, because it may be the caller's
            inner = inner[parent]
        if last:
            inner[last] = value
    return parse(section, tree, path or "", given=overrides or {})


def as_section(section: type[_S], given: _S | Mapping[str, object]) -> _S:
    """Return a configuration that is given as a section, or as the ``overrides`` of ``load``.

    Raises:
        ConfigError: As ``load`` raises, or ``given`` is neither of them.
    """
    if isinstance(given, section):
        return given
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"{type(given).__name__} is not a {section.__name__}",
            f"Give a {section.__name__}, or a mapping such as {{'out': 'FOLDER'}}.",
        )
    return load(section, overrides=given)


def _over(preset: object, tree: object) -> Any:
    """Return ``tree`` with missing keys filled in from ``preset``."""
    if not isinstance(preset, dict) or not isinstance(tree, dict):
        return preset if tree is None else tree
    both = preset | tree
    return both | {key: _over(preset[key], tree[key]) for key in preset.keys() & tree.keys()}


def parse(
    section: type[_S],
    tree: dict[str, Any],
    where: Path | str = "",
    fix: str = "Correct the value.",
    given: Container[str] = (),
) -> _S:
    """Validate a mapping as a section.

    Args:
        section: Class of the section.
        tree: Keys and values.
        where: File that the mapping is from, or text that begins the message, e.g. ``verify: ``.
        fix: Fix for an invalid value.
        given: Dotted keys that were given on the command line.

    Raises:
        ConfigError: Keys are unknown or values are invalid; lists all of them, with the nearest
            valid key.
    """
    try:
        return section.model_validate(tree)
    except ValidationError as error:
        validation = error.errors()
    root = _composed(where) if isinstance(where, Path) else None
    faults = []
    for fault in validation:
        is_given = ".".join(map(str, fault["loc"])) in given
        line = 0 if is_given else _line(root, fault["loc"])
        faults.append((line, *_explained(section, fault)))
    # A required key that is only mistyped is reported as one fault.
    meant = {suggestion for _, _, suggestion in faults}
    faults = [each for each in faults if f"Did you mean {each[1].split(' ')[0]}?" not in meant]
    raise error_of(faults, "" if len(faults) == 1 and is_given else where, fix)


def error_of(
    faults: Sequence[tuple[int, str, str]], where: Path | str, fix: str = "Correct the value."
) -> ConfigError:
    """Return one error for all faults of a mapping: (line or 0, what is wrong, fix or empty)."""
    if len(faults) == 1:
        ((line, what, suggestion),) = faults
        at = f"{where}: " if isinstance(where, Path) else where
        at = f"{where}, line {line}: " if line else at
        return ConfigError(f"{at}{what}", suggestion or fix)
    lines = [
        f"\n  {f'line {line}: ' * bool(line)}{what}. {suggestion}".rstrip()
        for line, what, suggestion in sorted(faults)
    ]
    of = f" in {where}".rstrip(": ") if where else ""
    return ConfigError(f"{len(faults)} keys{of} are wrong", f"Correct them:{''.join(lines)}")


def line_of(path: Path, *place: str | int) -> int:
    """Return the line of a key in a YAML file; 0 if unknown."""
    return _line(_composed(path), place)


def _explained(section: type[BaseModel], fault: Any) -> tuple[str, str]:
    """Return what is wrong, and the fix; the fix is empty if unknown."""
    key, given = ".".join(map(str, fault["loc"])), fault["input"]
    inner = _section_at(section, fault["loc"])
    if fault["type"] == "extra_forbidden":
        return f"unknown key {key}", _nearest(section, inner, key)
    field = _field_at(section, fault["loc"])
    if fault["type"] == "dict_type" and field and not section_in(field.annotation):
        what = f"{key} takes names and values, not {_shown(given)}"
        return what, f"Write {{NAME: VALUE}}. {documented(field)}"
    if fault["type"] in ("model_type", "dict_type"):
        what = f"{key} takes keys, not {_shown(given)}"
        return what, f"Keys here: {', '.join(inner.model_fields)}."
    if fault["type"] == "missing":
        return f"{key} is missing", f"Give {key}."
    if given is None and ":" in key:
        return f"{key} is a key without a value", "Write a space behind the colon."
    error = fault.get("ctx", {}).get("error")
    what, *rest = re.split(r"(?<!e\.g)\. ", in_words(fault["msg"]), maxsplit=1)
    what = f"{key}: {what}" if key else what
    is_shown = key and not isinstance(given, dict) and not isinstance(error, _WithheldError)
    fix = "".join(rest) or (first_sentence(field.description or "") if field else "")
    return what + (f" (got {reprlib.repr(given)})" if is_shown else ""), fix


def documented(field: FieldInfo) -> str:
    """Return the documentation of a key as one paragraph."""
    return " ".join((field.description or "").split()).replace("``", "`")


def first_sentence(text: str) -> str:
    """Return the first sentence of a description, as printed by help; empty for an empty text."""
    first = _SENTENCE_ENDS.split(" ".join(text.split()))[0]
    return f"{first.removesuffix('.')}.".replace("``", "`") if first else ""


def _shown(value: object) -> str:
    """Return a value for a message; not a text, which may be an address with an API key."""
    return "a text" if isinstance(value, str) else reprlib.repr(value)


def _field_at(root: type[BaseModel], place: Sequence[str | int]) -> FieldInfo | None:
    """Return the field on a path of keys; None if the path does not end at a field."""
    return _section_at(root, place[:-1]).model_fields.get(str(place[-1])) if place else None


def in_words(message: str) -> str:
    """Rephrase a pydantic message as ``must ...``, in plain words."""
    text = re.sub(r"^\w+ should (be|have|match)", r"must \1", message.split(", unable to")[0])
    for theirs, ours in _WORDS.items():
        text = text.replace(theirs, ours)
    return text


def _composed(path: Path) -> yaml.Node | None:
    return yaml.compose(text_in(path), Loader=yaml.SafeLoader)


def _line(node: yaml.Node | None, place: Sequence[str | int]) -> int:
    """Return the line of a key, or of the innermost section that lacks the key; 0 if unknown."""
    line = 0
    for part in place:
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        inner = {name.value: (name, value) for name, value in pairs}
        if isinstance(node, yaml.SequenceNode):
            inner = {str(number): (each, each) for number, each in enumerate(node.value)}
        if str(part) not in inner:
            break
        name, node = inner[str(part)]
        line = name.start_mark.line + 1
    return line


def parse_yaml(text: str) -> Any:
    """The value of a YAML text.

    Raises:
        yaml.YAMLError: The text is not YAML.
        ValueError: The text is nested too deeply, has a number of too many digits, or grows to too
            many values by its aliases.
    """
    try:
        tree = yaml.load(text, Loader=_Loader)
        size = _size(tree, {})
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if size > _MOST_VALUES:
        raise ValueError(f"its aliases make more than {_MOST_VALUES:,} values of it")
    return tree


def _size(tree: object, known: dict[int, int]) -> int:
    """Number of values in a tree, with aliases expanded; ``known`` has sizes of parts by id."""
    if not isinstance(tree, dict | list):
        return 1
    if id(tree) not in known:
        known[id(tree)] = _MOST_VALUES  # a part that contains itself has no end
        parts = tree.values() if isinstance(tree, dict) else tree
        known[id(tree)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(tree)]


class _Loader(yaml.SafeLoader):
    """A YAML loader that refuses a key that occurs twice in one mapping."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        names = [name.value for name, _ in node.value]
        for index, (name, _) in enumerate(node.value):
            if name.value in names[:index]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {name.value} occurs twice", name.start_mark
                )
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping at the top level of a YAML file; empty for an empty file.

    Raises:
        ConfigError: The file does not exist, is not YAML, or has no mapping.
    """
    try:
        tree = parse_yaml(text_in(path))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", "Give the path of a YAML file.") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        if error.context and error.context_mark:
            line += f"{error.context} that begins in line {error.context_mark.line + 1}, "
        # The message does not quote the line, which may contain an API key.
        raise ConfigError(
            f"{path} is not YAML: {line}{error.problem}",
            "Correct that line: `key: value`, indented with spaces.",
        ) from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path} is not YAML: {error}", "Give a text file in UTF-8.") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(
            f"{path} holds no mapping",
            "Write lines of `key: value`, with a space behind the colon.",
        )
    return tree


def _nearest(root: type[BaseModel], section: type[BaseModel], unknown: str) -> str:
    """Return a suggestion for a key that a section does not have."""
    above, _, name = unknown.rpartition(".")
    at = f"{above}." if above else ""
    keys = dict.fromkeys([*all_keys(section, at), *all_keys(root)])
    near = difflib.get_close_matches(unknown, keys, n=1, cutoff=0.75)
    last = {dotted.rpartition(".")[2]: dotted for dotted in reversed(keys)}
    near = near or [last[n] for n in difflib.get_close_matches(name, last, n=1, cutoff=0.75)]
    return f"Did you mean {near[0]}?" if near else f"Keys here: {', '.join(section.model_fields)}."


def _section_at(root: type[BaseModel], place: Sequence[str | int]) -> type[BaseModel]:
    """Return the innermost section on a path of keys; keys of mapping entries are skipped."""
    section = root
    for part in place:
        if info := section.model_fields.get(str(part)):
            section = section_in(info.annotation) or section
    return section


def section_in(annotation: object) -> type[BaseModel] | None:
    """Return the section class in a field's type, alone or as part of a union or container."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(section_in, get_args(annotation))), None)


def sections(section: type[BaseModel], at: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield (dotted prefix, section) of a section and its subsections, the section first."""
    yield at, section
    for name, info in section.model_fields.items():
        child = section_in(info.annotation)
        if child and get_origin(info.annotation) is not dict:
            yield from sections(child, f"{at}{name}.")


def all_keys(section: type[BaseModel], at: str = "") -> Iterator[str]:
    """Yield the dotted keys of a section and its subsections; sections are keys too."""
    for place, inner in sections(section, at):
        yield from (f"{place}{name}" for name in inner.model_fields)
