"""Strict YAML: a mapping of a file as a typed section, and every fault with its place and its fix.

Whatever a user writes is read by this: configurations of runs, profiles of teachers, what was
found out about an endpoint. A key that no field has is an error that names the nearest valid key.

A name of an earlier version on the command line is an error that says the new one. A file keeps
opening: what its old keys say is carried over, with a warning unless they only repeat an old
default, as the files that runs save do.
"""

from __future__ import annotations

import difflib
import logging
import re
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from heavydistill.errors import ConfigError

_S = TypeVar("_S", bound=BaseModel)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Retired:
    """What became of a name."""

    instead: str
    """What to write now, as a sentence."""
    new: str | None = None
    """Key that took its place in the same section."""
    default: Any = None
    """Value that files of an earlier version hold where nothing was chosen."""


RETIRED = {
    "endpoint.serve": Retired("Write endpoint.start_vllm.", "start_vllm", False),
    "think.processes": Retired("Write processes, or give --processes N.", None, 1),
    "deliberate.processes": Retired("Write processes, or give --processes N.", None, 1),
    "--serve": Retired("Write --start-vllm."),
    "plan": Retired("Give generate the same flags and --dry-run."),
    "journal compact": Retired("Leave the files as they are; a run reads as many as there are."),
}
"""Keys as ``section.key``, flags with their dashes, verbs as they are typed."""


class _WithheldError(ValueError):
    """A value that no message may show."""


class Section(BaseModel):
    """A mapping of a file: frozen, and a key that no field has is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        # A traceback must not show a key that was put in the wrong place.
        hide_input_in_errors=True,
    )


def form(pattern: str, words: str, may_hold_a_key: bool = False) -> BeforeValidator:
    """Metadata of a field whose text must match a pattern as a whole.

    The message of a misfit is ``words``, e.g. ``must be a number``, and shows the text unless it
    ``may_hold_a_key``.
    """

    def check(value: object) -> object:
        if isinstance(value, str) and re.fullmatch(pattern, value):
            return value
        raise _WithheldError(words) if may_hold_a_key else ValueError(words)

    return BeforeValidator(check)


def parse(section: type[_S], tree: dict[str, Any], where: str, fix: str = "") -> _S:
    """A mapping, whose null sections are removed in place, as a section.

    ``where`` stands before every fault, e.g. the file and a colon; it is empty for the command line
    alone. ``fix`` is that of a bad value.

    Raises:
        ConfigError: An unknown key, which the nearest valid key follows, or a bad value.
    """
    in_file = " in the file or" if where else ""
    wins = "; the command line wins" if where else ""
    fix = fix or f"Correct the value{in_file} on the command line{wins}."
    _refuse_unknown(section, section, tree, where)
    try:
        return section.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        withheld = isinstance(first.get("ctx", {}).get("error"), _WithheldError)
        is_shown = key and first["type"] != "missing" and not withheld
        given = f" (got {first['input']!r})" if is_shown else ""
        raise ConfigError(f"{where}{f'{key}: ' if key else ''}{message}{given}", fix) from error


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping at the top level of a YAML file; an empty file is an empty one.

    Raises:
        ConfigError: No such file, not YAML, or no mapping.
    """
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", "Give the path of a YAML file.") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        # The line itself may hold a key.
        raise ConfigError(f"{path} is not YAML: {line}{error.problem}", "Fix the file.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {error}", "Fix the file.") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} holds no mapping", "Write keys and values at the top level.")
    return tree


def _refuse_unknown(
    root: type[BaseModel], section: type[BaseModel], tree: dict[str, Any], where: str, at: str = ""
) -> None:
    """Raise for the first key that no field has, with the nearest key there is."""
    for key, value in list(tree.items()):
        if key not in section.model_fields:
            # Whatever section its own section is in.
            if retired := RETIRED.get(".".join(f"{at}{key}".split(".")[-2:])):
                raise ConfigError(f"{where}{at}{key} does not exist any more", retired.instead)
            keys = dict.fromkeys([*_all_keys(section, at), *_all_keys(root)])
            near = difflib.get_close_matches(f"{at}{key}", keys, n=1, cutoff=0.5)
            near = near or [dotted for dotted in keys if dotted.endswith(f".{key}")][:1]
            siblings = ", ".join(section.model_fields)
            raise ConfigError(
                f"{where}unknown key {at}{key}",
                f"Did you mean {near[0]}?" if near else f"Keys here: {siblings}.",
            )
        info = section.model_fields[key]
        child, is_named = _child(info.annotation)
        if child is None:
            continue
        if value is None:  # a section whose keys are all commented out
            if not info.is_required():
                del tree[key]
            continue
        if not isinstance(value, dict):
            names = "one for each name" if is_named else ", ".join(child.model_fields)
            # A text may be an address with a key in it.
            given = "a text" if isinstance(value, str) else repr(value)
            raise ConfigError(f"{where}{at}{key} takes keys, not {given}", f"Keys here: {names}.")
        for name, entry in value.items() if is_named else [("", value)]:
            if isinstance(entry, dict):
                inside = f"{at}{key}.{name}." if is_named else f"{at}{key}."
                _refuse_unknown(root, child, entry, where, inside)


def _child(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """(the section that a field holds, whether it holds one under each of several names)."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    if get_origin(annotation) is dict:
        return _child(get_args(annotation)[1])[0], True
    if get_origin(annotation) in (Union, UnionType):
        children = (_child(choice) for choice in get_args(annotation))
        return next((child for child in children if child[0]), (None, False))
    return None, False


def _all_keys(section: type[BaseModel], at: str = "") -> list[str]:
    keys = []
    for name, info in section.model_fields.items():
        child, is_named = _child(info.annotation)
        keys.append(f"{at}{name}")
        if child and not is_named:
            keys += _all_keys(child, f"{at}{name}.")
    return keys


def carried_over(tree: dict[str, Any], where: str = "", section: str = "") -> dict[str, Any]:
    """A mapping of a file with today's names in place of those of earlier versions.

    ``where`` stands before a warning, ``section`` is the name of the section that the mapping is.
    """
    now: dict[str, Any] = {}
    for key, value in tree.items():
        known = RETIRED.get(f"{section}.{key}")
        if isinstance(value, dict):
            now[key] = carried_over(value, where, key)
        elif not known:
            now[key] = value
        elif value != known.default:
            _log.warning("%s%s.%s does not exist any more. %s", where, section, key, known.instead)
            if known.new:
                now[known.new] = value
    return now
