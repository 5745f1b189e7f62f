"""Reads logs of inspect_ai into one row per epoch of a sample, without that library.

A log is a JSON document or a zip file with one JSON document per sample, which is compressed with
Zstandard or Deflate. Source: ``src/inspect_ai/log`` of UKGovernmentBEIS/inspect_ai.

Not covered: the hidden format in which a large sample is a folder of the zip file.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heavydistill.errors import ProblemsError
from heavydistill.problems.tables import TableRow

_HEADERS = ("header.json", "_journal/start.json", "start.json")  # by version of the format
_ZSTANDARD = 93  # number of the compression, which ``zipfile`` does not know
_FAULTS = (
    *(zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, OSError),
    *(ValueError, KeyError, TypeError, AttributeError),
)
_LENGTHS = 26  # offset of the lengths of name and extra field, before the data of an entry


def rows_of_log(file: Path) -> Iterator[TableRow]:
    """Yield the samples of a log, with the evaluated model as ``model``.

    Epochs are in their order. Raises ProblemsError if the file is no log.
    """
    try:
        is_zip = zipfile.is_zipfile(file)
        samples = _zipped(file) if is_zip else _samples(json.loads(file.read_bytes()))
        for number, sample in enumerate(samples, 1):
            where = f"{file.name}: sample {sample.get('id')}, epoch {sample.get('epoch')}"
            yield TableRow(where, number, sample)
    except _FAULTS as error:
        raise ProblemsError(
            f"{file.name} cannot be read as a log of inspect_ai: {error}",
            "Give a complete .eval or .json log; `inspect log convert --to json` writes one.",
        ) from error


def _samples(log: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for sample in log["samples"]:
        yield {**sample, "model": log["eval"]["model"]}


def _zipped(file: Path) -> Iterator[dict[str, Any]]:
    with zipfile.ZipFile(file) as archive, file.open("rb") as raw:
        entries = {entry.filename: entry for entry in archive.infolist()}
        header = next((name for name in _HEADERS if name in entries), _HEADERS[0])
        model = json.loads(_content(archive, raw, entries[header]))["eval"]["model"]
        names = [name for name in entries if name.startswith("samples/") and name.endswith(".json")]
        for name in sorted(names, key=_epoch):
            yield {**json.loads(_content(archive, raw, entries[name])), "model": model}


def _epoch(name: str) -> int:
    """Return the number in ``samples/ID_epoch_NUMBER.json``."""
    return int(name.removesuffix(".json").rpartition("_")[2])


def _content(archive: zipfile.ZipFile, raw: io.BufferedReader, entry: zipfile.ZipInfo) -> bytes:
    if entry.compress_type != _ZSTANDARD:
        return archive.read(entry)
    import pyarrow as pa

    raw.seek(entry.header_offset + _LENGTHS)
    raw.seek(sum(struct.unpack("<HH", raw.read(4))), io.SEEK_CUR)
    packed = pa.BufferReader(raw.read(entry.compress_size))
    content: bytes = pa.input_stream(packed, compression="zstd").read()
    return content
