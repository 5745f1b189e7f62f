"""Files that say which version they are."""

import json
from dataclasses import dataclass

import pytest
from messages import message

from heavydistill.config.versioned import read_versioned
from heavydistill.config.yaml import Section
from heavydistill.errors import ConfigError


class Model(Section):
    format: str
    rows: int


@dataclass(frozen=True)
class Data:
    format: str
    rows: int


@pytest.mark.parametrize("kind", [Model, Data])
def test_models_and_dataclasses_are_read(tmp_path, kind):
    path = tmp_path / "file.json"
    path.write_text(json.dumps({"format": "x/1", "rows": 3}), encoding="utf-8")
    read = read_versioned(path, kind, "x/1", what="x", missing="", other="")
    assert read == kind(format="x/1", rows=3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "holds no things: file.json cannot be read. Make one."),
        ("{", "holds no things: file.json cannot be read. Make one."),
        ("[]", message("other_format", file="file.json", format=None) + " 'x/2'. Make another."),
        ('{"format": "x/1", "rows": 3}', message("other_format", file="file.json", format="'x/1'")),
        ('{"format": "x/2", "rows": "many"}', "file.json: rows: "),
        ('{"format": "x/2"}', "file.json: rows: "),
    ],
)
def test_other_files_are_refused(tmp_path, text, said):
    path = tmp_path / "file.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        read_versioned(
            path, Model, "x/2", what="things", missing="Make one.", other="Make another."
        )
    assert said in str(raised.value)
