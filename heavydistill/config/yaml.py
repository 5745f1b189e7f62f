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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

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

    @model_validator(mode="before")
    @classmethod
    def _without_empty_sections(cls, tree: Any) -> Any:
        """A section whose keys are all commented out has its defaults."""
        if not isinstance(tree, dict):
            return tree
        fields = cls.model_fields.items()
        sections = {key for key, info in fields if section_in(info.annotation)}
        return {k: value for k, value in tree.items() if value is not None or k not in sections}


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
    """A mapping as a section.

    ``where`` stands before every fault, e.g. the file and a colon; it is empty for the command line
    alone. ``fix`` is that of a bad value.

    Raises:
        ConfigError: An unknown key, which the nearest valid key follows, or a bad value.
    """
    in_file = " in the file or" if where else ""
    wins = "; the command line wins" if where else ""
    fix = fix or f"Correct the value{in_file} on the command line{wins}."
    try:
        return section.model_validate(tree, context={"is_of_today": True})
    except ValidationError as error:
        first = min(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
        key, given = ".".join(str(part) for part in first["loc"]), first["input"]
        inner = _section_at(section, first["loc"])
        if first["type"] == "extra_forbidden":
            # Whatever section its own section is in.
            retired = RETIRED.get(".".join(key.split(".")[-2:]))
            what = f"{key} does not exist any more" if retired else f"unknown key {key}"
            fix = retired.instead if retired else _nearest(section, inner, key)
        elif first["type"] in ("model_type", "dict_type"):
            # A text may be an address with a key in it.
            what = f"{key} takes keys, not {'a text' if isinstance(given, str) else repr(given)}"
            fix = f"Keys here: {', '.join(inner.model_fields)}."
        else:
            withheld = isinstance(first.get("ctx", {}).get("error"), _WithheldError)
            is_shown = key and first["type"] != "missing" and not withheld
            what = f"{key}: " if key else ""
            what += first["msg"].removeprefix("Value error, ")
            what += f" (got {given!r})" if is_shown else ""
        raise ConfigError(f"{where}{what}", fix) from error


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


def _nearest(root: type[BaseModel], section: type[BaseModel], unknown: str) -> str:
    """What to write in place of a key that a section does not have."""
    above, _, name = unknown.rpartition(".")
    at = f"{above}." if above else ""
    keys = dict.fromkeys([*_all_keys(section, at), *_all_keys(root)])
    near = difflib.get_close_matches(unknown, keys, n=1, cutoff=0.5)
    near = near or [dotted for dotted in keys if dotted.endswith(f".{name}")][:1]
    return f"Did you mean {near[0]}?" if near else f"Keys here: {', '.join(section.model_fields)}."


def _section_at(root: type[BaseModel], place: Sequence[str | int]) -> type[BaseModel]:
    """The innermost section on the way to a place; names of entries are no sections."""
    section = root
    for part in place:
        if info := section.model_fields.get(str(part)):
            section = section_in(info.annotation) or section
    return section


def section_in(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds, alone or among other things."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(section_in, get_args(annotation))), None)


def sections(section: type[BaseModel], at: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """(place, section) of a section and of all in it; a place is empty or ends with a dot."""
    yield at, section
    for name, info in section.model_fields.items():
        child = section_in(info.annotation)
        if child and get_origin(info.annotation) is not dict:
            yield from sections(child, f"{at}{name}.")


def _all_keys(section: type[BaseModel], at: str = "") -> Iterator[str]:
    for place, inner in sections(section, at):
        yield from (f"{place}{name}" for name in inner.model_fields)


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
