"""No secret is sent: the values of keys are looked for in everything before it leaves.

A key is what an environment variable holds whose name says so (``..._API_KEY``, ``..._TOKEN``,
``..._SECRET``, ``..._PASSWORD``, with or without a number), one that a provider or a configuration
names, and the token for the Hub, wherever it is kept.

Of weights, only their header is text.

Not covered: values of fewer than eight characters, which are stand-ins for servers that want no
key, and keys that this process cannot see.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from heavydistill.errors import PublishError
from heavydistill.models.profiles import PROVIDERS

_TELLING = re.compile(
    r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE)S?(?:_?\d+)?$", re.IGNORECASE
)
_FEWEST_CHARACTERS = 8
_NAMES = "api_key_env"


def known_secrets(*trees: dict[str, Any]) -> dict[str, str]:
    """The keys that this process can see: where each is kept, to its value.

    Args:
        trees: Manifests, records and configurations that go along; they may name variables.
    """
    from huggingface_hub import get_token

    names = {name for name in os.environ if _TELLING.search(name)}
    names |= {provider.key_env for provider in PROVIDERS.values()}
    names |= {name for tree in trees for name in _named(tree)}
    found = {name: os.environ.get(name, "") for name in sorted(names)}
    found["the token for the Hub"] = get_token() or ""
    return {
        name: value.strip()
        for name, value in found.items()
        if len(value.strip()) >= _FEWEST_CHARACTERS
    }


def refuse_secrets(
    files: Mapping[str, Path | bytes], secrets: Mapping[str, str], mend: str
) -> None:
    """Look for the keys in files that are about to be sent.

    Args:
        files: Path in the repository, to a file here or its content.
        secrets: From ``known_secrets``.
        mend: How a key gets out of them, other than out of the card.

    Raises:
        PublishError: One is there; it names file, row or line, and the variable, not the value.
    """
    for name, source in files.items():
        hits = (
            _in_rows(source, secrets)
            if isinstance(source, Path) and source.suffix == ".parquet"
            else _in_text(_text(source), secrets)
        )
        if hit := next(hits, None):
            variable, place = hit
            raise PublishError(
                f"The value of {variable} stands in {name}, {place}; nothing was sent",
                "Revoke that key if others may have seen it. Take it out of the Notes in the card, "
                f"or {mend}.",
            )


def _named(tree: Any) -> Iterator[str]:
    """The variables that a configuration says its keys are in."""
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if key == _NAMES and isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            yield from _named(value)


def _text(source: Path | bytes) -> bytes:
    """What is text in a file: of weights, what is told of them before they begin."""
    if isinstance(source, bytes):
        return source
    if source.suffix != ".safetensors":
        return source.read_bytes()
    with source.open("rb") as file:
        return file.read(int.from_bytes(file.read(8), "little"))


def _in_text(content: bytes, secrets: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(variable, line) of each key in a text."""
    for variable, value in secrets.items():
        before, found, _ = content.partition(value.encode())
        if found:
            line = before.count(b"\n") + 1
            yield variable, f"line {line}"


def _in_rows(path: Path, secrets: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(variable, row and column) of each key in a parquet file, a row group in memory at a time."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        first = 1
        for number in range(file.num_row_groups):
            group = file.read_row_group(number)
            for name, column in zip(group.column_names, group.columns, strict=True):
                for variable in _suspects(column, secrets):
                    for row, cell in enumerate(column.to_pylist(), first):
                        if any(secrets[variable] in text for text in _texts(cell)):
                            yield variable, f"row {row}, column {name}"
            first += group.num_rows


def _suspects(column: Any, secrets: Mapping[str, str]) -> list[str]:
    """The variables whose values are in the memory of a column, where its texts lie in a row."""
    buffers = [buffer for chunk in column.chunks for buffer in chunk.buffers() if buffer]
    memory = [buffer.to_pybytes() for buffer in buffers]
    return [name for name, value in secrets.items() if any(value.encode() in m for m in memory)]


def _texts(cell: Any) -> Iterator[str]:
    if isinstance(cell, str):
        yield cell
    elif isinstance(cell, dict | list):
        for part in cell.values() if isinstance(cell, dict) else cell:
            yield from _texts(part)
