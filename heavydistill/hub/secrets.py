"""Refuses to publish files that contain a key.

Keys are the values of environment variables with a name such as ``..._API_KEY``, ``..._TOKEN``,
``..._SECRET`` or ``..._PASSWORD`` (a number may follow), of variables named by a provider or a
configuration, and the token for the Hub. Every file is searched for keys before it is sent; in
weights, only the header is searched.

Not covered: values of fewer than eight characters, which are placeholders for servers without keys,
and keys that this process cannot read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from heavydistill.errors import PublishError
from heavydistill.models.profiles import PROVIDERS

_KEY_NAME = re.compile(
    r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE)S?(?:_?\d+)?$", re.IGNORECASE
)
_FEWEST_CHARACTERS = 8
_KEY_FIELD = "api_key_env"


def known_secrets(*trees: dict[str, Any]) -> dict[str, str]:
    """Return the API keys and tokens that this process can read, by the name of their variable.

    ``trees`` are manifests, records and configurations, which may name further variables.
    """
    from huggingface_hub import get_token

    names = {name for name in os.environ if _KEY_NAME.search(name)}
    names |= {provider.key_env for provider in PROVIDERS.values()}
    for tree in trees:
        leaves = (value for key, value in _leaves(tree) if key == _KEY_FIELD)
        names.update(value for value in leaves if isinstance(value, str))
    found = {name: os.environ.get(name, "").strip() for name in sorted(names)}
    found["the token for the Hub"] = (get_token() or "").strip()
    return {name: value for name, value in found.items() if len(value) >= _FEWEST_CHARACTERS}


def refuse_secrets(
    files: Mapping[str, Path | bytes], secrets: Mapping[str, str], remedy: str
) -> None:
    """Check that no file contains a key.

    Args:
        files: Paths in the repository, each with a local file or the content.
        secrets: Result of ``known_secrets``.
        remedy: Instruction for removing a key from files other than the card.

    Raises:
        PublishError: A file contains a key; names the file, the row or line and the variable.
    """
    for name, source in files.items():
        is_rows = isinstance(source, Path) and source.suffix == ".parquet"
        for variable, place in (_in_rows if is_rows else _in_text)(source, secrets):
            raise PublishError(
                f"The value of {variable} is in {name}, {place}; nothing was sent",
                "Revoke that key if others may have seen it. Remove it from the Notes of the card, "
                f"or {remedy}.",
            )


def _leaves(tree: Any, key: Any = None) -> Iterator[tuple[Any, Any]]:
    """Yield (key, value) of each value that is not a mapping or list."""
    if isinstance(tree, dict | list):
        for name, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from _leaves(value, name)
    else:
        yield key, tree


def _in_text(source: Path | bytes, secrets: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (variable, line) of each key in a text, or in the header of weights."""
    if isinstance(source, bytes):
        content = source
    elif source.suffix == ".safetensors":
        with source.open("rb") as file:
            content = file.read(int.from_bytes(file.read(8), "little"))
    else:
        content = source.read_bytes()
    for variable, value in secrets.items():
        before, found, _ = content.partition(value.encode())
        if found:
            line = before.count(b"\n") + 1
            yield variable, f"line {line}"


def _in_rows(source: Path | bytes, secrets: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (variable, row and column) of each key in a parquet file, read by row groups."""
    import pyarrow.parquet as pq

    first = 1
    with pq.ParquetFile(source) as file:
        for number in range(file.num_row_groups):
            group = file.read_row_group(number)
            for name, column in zip(group.column_names, group.columns, strict=True):
                # The texts of a column are contiguous in memory, so most can be searched without
                # unpacking.
                buffers = [buffer for chunk in column.chunks for buffer in chunk.buffers()]
                memory = [buffer.to_pybytes() for buffer in buffers if buffer]
                for variable, value in secrets.items():
                    if not any(value.encode() in part for part in memory):
                        continue
                    for row, cell in enumerate(column.to_pylist(), first):
                        if any(isinstance(t, str) and value in t for _, t in _leaves(cell)):
                            yield variable, f"row {row}, column {name}"
            first += group.num_rows
