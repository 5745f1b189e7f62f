"""Parquet files that can be opened, and whose rows cannot be read."""

from pathlib import Path

import pyarrow.parquet as pq


def damage(file: Path, column: str) -> Path:
    """Spoil a column, such as ``pool.list.element.id``, of the last group of rows.

    What a file is made of stands at its end, and is whole.
    """
    metadata = pq.read_metadata(file)
    group = metadata.row_group(metadata.num_row_groups - 1)
    chunks = map(group.column, range(group.num_columns))
    chunk = next(chunk for chunk in chunks if chunk.path_in_schema == column)
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    content = bytearray(file.read_bytes())
    for at in range(begin, begin + chunk.total_compressed_size):
        content[at] ^= 0xFF
    file.write_bytes(content)
    return file
