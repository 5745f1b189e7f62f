"""No key leaves with what is published.

A key is what an environment variable holds whose name says so (``..._API_KEY``, ``..._TOKEN``,
``..._SECRET``, ``..._PASSWORD``, with or without a number), one that a provider or a configuration
names, and the token for the Hub, wherever it is kept. Its value is looked for in everything before
it leaves; in weights, only their header is text.

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

_KEY_NAME = re.compile(
    r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE)S?(?:_?\d+)?$", re.IGNORECASE
)
_FEWEST_CHARACTERS = 8
_KEY_FIELD = "api_key_env"


def known_secrets(*trees: dict[str, Any]) -> dict[str, str]:
    """The keys that this process can see: where each is kept, to its value.

    ``trees`` are manifests, records and configurations, which may name variables.
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
    files: Mapping[str, Path | bytes], secrets: Mapping[str, str], mend: str
) -> None:
    """Look for the keys in files that are about to be sent.

    Args:
        files: Path in the repository, to a file here or its content.
        secrets: Result of ``known_secrets``.
        mend: How a key is removed from files other than the card.

    Raises:
        PublishError: Names the file, row or line, and the variable, not the value.
    """
    for name, source in files.items():
        is_rows = isinstance(source, Path) and source.suffix == ".parquet"
        for variable, place in (_in_rows if is_rows else _in_text)(source, secrets):
            raise PublishError(
                f"The value of {variable} stands in {name}, {place}; nothing was sent",
                "Revoke that key if others may have seen it. Take it out of the Notes in the card, "
                f"or {mend}.",
            )


def _leaves(tree: Any, key: Any = None) -> Iterator[tuple[Any, Any]]:
    """(key, value) of each value that holds no others."""
    if isinstance(tree, dict | list):
        for name, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from _leaves(value, name)
    else:
        yield key, tree


def _in_text(source: Path | bytes, secrets: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(variable, line) of each key in a text; of weights, in what is told before they begin."""
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
    """(variable, row and column) of each key in a parquet file, a row group in memory at a time."""
    import pyarrow.parquet as pq

    first = 1
    with pq.ParquetFile(source) as file:
        for number in range(file.num_row_groups):
            group = file.read_row_group(number)
            for name, column in zip(group.column_names, group.columns, strict=True):
                # Texts lie in the memory of a column in a row, so most columns are never unpacked.
                buffers = [buffer for chunk in column.chunks for buffer in chunk.buffers()]
                memory = [buffer.to_pybytes() for buffer in buffers if buffer]
                for variable, value in secrets.items():
                    if not any(value.encode() in part for part in memory):
                        continue
                    for row, cell in enumerate(column.to_pylist(), first):
                        if any(isinstance(t, str) and value in t for _, t in _leaves(cell)):
                            yield variable, f"row {row}, column {name}"
            first += group.num_rows
