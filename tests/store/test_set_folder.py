import json

import messages
import pytest
from set_folders import manifest, write_sets

from heavydistill.errors import ConfigError
from heavydistill.store.sets.folder import (
    MANIFEST,
    SETS,
    Writer,
    count_rows,
    file_of,
    read_manifest,
    read_rows,
    splits_of,
)
from heavydistill.store.sets.set_rows import Message


def test_rows_are_read_as_they_were_written(tmp_path):
    file = file_of(tmp_path, "sft_thinker", "train")
    writer = Writer(file, Message)
    for number in range(250):
        writer.write(Message(role="user", content=f"{number}"))
    writer.close()
    (tmp_path / MANIFEST).write_text("{}", encoding="utf-8")
    assert writer.rows == count_rows(file) == 250
    read = [row["content"] for row in read_rows(tmp_path, "sft_thinker")]
    assert read == [str(number) for number in range(250)]


def test_groups_of_rows_are_small(tmp_path):
    import pyarrow.parquet as pq

    file = tmp_path / "long.parquet"
    writer = Writer(file, Message)
    for _ in range(6):
        writer.write(Message(role="user", content="x" * 6 * 2**20))
    writer.close()
    assert pq.ParquetFile(file).num_row_groups == 2


def test_the_manifest_is_read_as_it_was_written_with_the_hashes_of_the_files(tmp_path):
    read = read_manifest(write_sets(tmp_path / "sets"))
    assert read.model_copy(update={"files": {}}) == manifest()
    assert len(read.files) == sum(len(splits_of(tmp_path / "sets", name)) for name in SETS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "holds no sets"),
        ("{", "cannot be read"),
        (json.dumps({"format": "heavydistill-sets/0"}), "has the format 'heavydistill-sets/0'"),
        (json.dumps({"format": "heavydistill-sets/1"}), "heavydistill: is missing"),
    ],
)
def test_what_is_no_folder_of_sets_is_refused(tmp_path, text, message):
    if text is not None:
        (tmp_path / MANIFEST).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        read_manifest(tmp_path)


def test_rows_are_read_from_folders_of_sets_alone(tmp_path):
    with messages.raises("holds_no_sets", folder=tmp_path):
        read_rows(tmp_path, "rl")
    folder = write_sets(tmp_path / "sets")
    file_of(folder, "rl", "train").write_bytes(b"PAR1 cut off")
    with messages.raises("set_no_parquet", file=file_of(folder, "rl", "train")):
        next(read_rows(folder, "rl"))
