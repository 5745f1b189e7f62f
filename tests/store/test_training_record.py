"""The record of a training: what is written is read, and nothing else."""

import json

import pytest
from trainings import RECORD, RESULT

from heavydistill.errors import ConfigError
from heavydistill.store.training_record import read_record, write_record


@pytest.mark.parametrize("record", [RECORD, RECORD.model_copy(update={"result": RESULT})])
def test_a_record_is_read_as_it_was_written(tmp_path, record):
    write_record(RECORD, tmp_path)
    first = (tmp_path / "training.json").read_bytes()
    write_record(RECORD, tmp_path)
    assert (tmp_path / "training.json").read_bytes() == first
    write_record(record, tmp_path)
    assert read_record(tmp_path) == record
    assert [path.name for path in tmp_path.iterdir()] == ["training.json"]
    assert "größer" in (tmp_path / "training.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "heavydistill-training/0"}, "has the format 'heavydistill-training/0'"),
        ({"method": "magic"}, "method: "),
        ({"stray": 1}, "stray: "),
        ({"max_length": None}, "max_length: "),
    ],
)
def test_another_format_or_a_fault_is_named(tmp_path, change, message):
    write_record(RECORD, tmp_path)
    path = tmp_path / "training.json"
    tree = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**tree, **change}), encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        read_record(tmp_path)
    assert message in str(raised.value) and "Train again." in str(raised.value)


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_folder_without_a_record_is_none_of_ours(tmp_path, content):
    if content:
        (tmp_path / "training.json").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"holds no training|has the format None"):
        read_record(tmp_path)
