"""JSON files with their version in ``format``; files of other versions are refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from heavydistill.config.files import json_of, new_file, text_in
from heavydistill.config.yaml import in_words
from heavydistill.errors import ConfigError

Kind = TypeVar("Kind")


def as_json(value: Any) -> str:
    """Return a dataclass or pydantic model as JSON text; equal values give equal texts."""
    tree = value.model_dump() if isinstance(value, BaseModel) else dataclasses.asdict(value)
    return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"


def write_versioned(value: object, path: Path) -> None:
    """Write a value as JSON, atomically."""
    with new_file(path) as file:
        file.write(as_json(value).encode("utf-8"))


def read_versioned(
    path: Path, kind: type[Kind], form: str, *, what: str, missing: str, other: str
) -> Kind:
    """Read a file as a pydantic model or dataclass.

    Args:
        path: The file.
        kind: Class of the result.
        form: Accepted value of ``format``.
        what: Description of the content that such a folder should have, for the message.
        missing: Fix if the file cannot be read.
        other: Fix if the file has another version or other content.

    Raises:
        ConfigError: The file cannot be read, or has another version or other content.
    """
    try:
        tree = json_of(text_in(path))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path.parent} holds no {what}: {path.name} cannot be read", missing
        ) from error
    format_number = tree.get("format") if isinstance(tree, dict) else None
    if format_number != form:
        raise ConfigError(
            f"{path} has the format {format_number!r}, but this heavydistill reads {form!r}", other
        )
    try:
        return TypeAdapter(kind).validate_python(tree)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{path}: {key}: {in_words(first['msg'])}", other) from error
