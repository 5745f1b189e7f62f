"""JSON files that say in ``format`` of which version they are, and are not read as another one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from heavydistill.config.yaml import in_words
from heavydistill.errors import ConfigError

Kind = TypeVar("Kind")


def as_json(value: Any) -> str:
    """A dataclass or pydantic model with a ``format`` as text; equal ones give the same text."""
    tree = value.model_dump() if isinstance(value, BaseModel) else dataclasses.asdict(value)
    return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"


def write_versioned(value: Any, path: Path) -> None:
    """Write it as JSON, in one piece."""
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.write_text(as_json(value), encoding="utf-8")
    unfinished.replace(path)


def read_versioned(
    path: Path, kind: type[Kind], form: str, *, what: str, missing: str, other: str
) -> Kind:
    """The content of a file as a pydantic model or dataclass.

    ``form`` is the ``format`` that is read, ``what`` what such a folder holds; ``missing`` is the
    fix if there is no such file, ``other`` if it has another version or holds something else.

    Raises:
        ConfigError: One of these.
    """
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path.parent} holds no {what}: {path.name} cannot be read", missing
        ) from error
    found = tree.get("format") if isinstance(tree, dict) else None
    if found != form:
        raise ConfigError(
            f"{path} has the format {found!r}, and this heavydistill reads {form!r}", other
        )
    try:
        return TypeAdapter(kind).validate_python(tree)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{path}: {key}: {in_words(first['msg'])}", other) from error
