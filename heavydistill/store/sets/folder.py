"""Where sets lie on disk: a folder of parquet files for each, as ``datasets`` and the Hub read it.

    DIR/NAME/SPLIT-00000-of-00001.parquet    NAME and SPLIT as in ``rows``; views have ``train``
    DIR/manifest.json                        see ``manifest``
    DIR/chat_template.jinja                  the student's, if it is not its own

Row groups are small, so that one row can be looked at without reading many. The same rows give
the same bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heavydistill.errors import ConfigError
from heavydistill.schema import arrow_schema, to_row
from heavydistill.store.traces import reading

if TYPE_CHECKING:
    import pyarrow.parquet as pq

VIEWS = ("problems", "trajectories", "caches", "deliberations")
TRAINED = ("sft_deliberator", "sft_thinker", "rl")
SETS = (*VIEWS, *TRAINED)
CHAT_TEMPLATE = "chat_template.jinja"
MANIFEST = "manifest.json"
_BUILD_AGAIN = "Build it again."

_GROUP_ROWS = 100
_GROUP_CHARACTERS = 16 * 2**20


class Writer:
    """Writes the rows of one split of one set, a group at a time.

    Args:
        file: Must not be there.
        kind: The dataclass of the rows.
    """

    def __init__(self, file: Path, kind: type) -> None:
        import pyarrow.parquet as pq

        self._schema = arrow_schema(kind)
        file.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")
        self._group: list[dict[str, Any]] = []
        self._characters = 0
        self.rows = 0

    def write(self, row: Any) -> None:
        """Add a row of the dataclass."""
        self.copy(to_row(row))

    def copy(self, row: dict[str, Any]) -> None:
        """Add a row as it is read from such a file."""
        self._group.append(row)
        self._characters += _characters(self._group[-1])
        self.rows += 1
        if len(self._group) == _GROUP_ROWS or self._characters >= _GROUP_CHARACTERS:
            self._flush()

    def close(self) -> None:
        """Write what is left."""
        if self._group:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa

        self._writer.write_table(pa.Table.from_pylist(self._group, self._schema))
        self._group, self._characters = [], 0


def file_of(folder: Path, name: str, split: str) -> Path:
    """The file of a split of a set; a split without rows has none."""
    return folder / name / f"{split}-00000-of-00001.parquet"


def splits_of(folder: Path, name: str) -> list[str]:
    """The splits of a set that are there, train first."""
    return [split for split in ("train", "validation") if file_of(folder, name, split).is_file()]


def files_of(folder: Path) -> dict[str, Path]:
    """The files of all sets, and the chat template if there is one, by their paths in the folder.

    ``manifest.json`` and the card are not among them.
    """
    rows = [file_of(folder, name, split) for name in SETS for split in splits_of(folder, name)]
    template = folder / CHAT_TEMPLATE
    there = [*rows, template] if template.is_file() else rows
    return {path.relative_to(folder).as_posix(): path for path in there}


def hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of each of these files."""
    found = {}
    for name, path in files_of(folder).items():
        with path.open("rb") as file:
            found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def read_rows(
    folder: Path, name: str, split: str = "train", columns: list[str] | None = None
) -> Iterator[dict[str, Any]]:
    """The rows of a split, a group in memory at a time; none if the split has no file.

    Args:
        folder: Of the sets.
        name: Of the set.
        split: Of it.
        columns: Those that are read, of a struct as ``verdict.label``; all if it is left out.

    Raises:
        ConfigError: The folder holds no sets, or the file cannot be read; raised by this call. Or
            rows are damaged, which shows where they stand.
    """
    if not (folder / MANIFEST).is_file():
        raise ConfigError(
            f"{folder} holds no sets: it has no {MANIFEST}",
            "Give the folder that `heavydistill build --out FOLDER` wrote.",
        )
    path = file_of(folder, name, split)
    return rows_of(path, columns) if path.is_file() else iter(())


def rows_of(file: Path, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a file, a group in memory at a time, with all columns or these.

    Raises:
        ConfigError: Likewise.
    """
    held = contextlib.ExitStack()
    return _rows(held.enter_context(reading(file, _BUILD_AGAIN)), columns, held)


def count_rows(file: Path) -> int:
    """How many rows a file has."""
    with reading(file, _BUILD_AGAIN) as opened:
        return int(opened.metadata.num_rows)


def _rows(
    file: pq.ParquetFile, columns: list[str] | None, held: contextlib.ExitStack
) -> Iterator[dict[str, Any]]:
    with held:
        for group in range(file.num_row_groups):
            yield from file.read_row_group(group, columns).to_pylist()


def _characters(value: Any) -> int:
    """How much text there is in a row."""
    if isinstance(value, str):
        return len(value)
    parts: Iterable[Any] = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    return sum(map(_characters, parts))
