"""Files of answers are read by their content, whole or a row again."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from import_files import document, lines, parquet

from heavydistill.curate.imports.files import rows_of
from heavydistill.errors import ProblemsError

ROWS = [{"n": number, "text": "é" * number} for number in range(1, 6)]


def written(kind: str, folder: Path) -> Path:
    if kind == "parquet":
        return parquet(folder / "rows.parquet", ROWS)
    if kind == "array":
        return document(folder / "rows.json", ROWS)
    return lines(folder / "rows.jsonl", *ROWS)


@pytest.mark.parametrize("kind", ["parquet", "array", "lines"])
def test_the_name_of_a_file_does_not_say_what_it_is(kind: str, tmp_path: Path) -> None:
    path = written(kind, tmp_path).rename(tmp_path / "rows.txt")
    rows = list(rows_of(path))
    assert [row.values for row in rows] == ROWS
    assert [row.number for row in rows] == [1, 2, 3, 4, 5]


def test_lines_keep_their_numbers_where_some_are_blank(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"n": 1}\n\n   \n{"n": 2}')
    assert [(row.number, row.where, row.values) for row in rows_of(path)] == [
        (1, "rows.jsonl:1", {"n": 1}),
        (4, "rows.jsonl:4", {"n": 2}),
    ]


@pytest.mark.parametrize("text", [json.dumps(ROWS[0], indent=2), '{"n": 1,\n "text": "é"}'])
def test_one_object_over_several_lines_is_one_row(text: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(text, encoding="utf-8")
    assert [row.values for row in rows_of(path)] == [{"n": 1, "text": "é"}]


def test_parquet_that_is_broken_in_the_middle_is_named(tmp_path: Path) -> None:
    path = parquet(tmp_path / "rows.parquet", [{"text": str(n) * 999} for n in range(9)])
    content = bytearray(path.read_bytes())
    content[20:400] = b"\xff" * 380
    path.write_bytes(content)
    with pytest.raises(ProblemsError, match=r"rows\.parquet is broken parquet"):
        list(rows_of(path))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"n": 1}\n{"n": 2\n', r"rows\.jsonl:2 is not JSON"),
        (b'{"n": 1\n{"n": 2}\n', r"rows\.jsonl:1 is not JSON"),
        (b'{"n": 1}\n[1]\n', r"rows\.jsonl:2 holds list, not an object"),
        (b'{"n": 1}\n{"n": "\xff"}\n', r"rows\.jsonl:2 is not UTF-8"),
        (b'[{"n": 1},\n{"n": 2},\n', r"rows\.jsonl:3 is not JSON"),
        (b'[{"n": 1}, 7]', r"rows\.jsonl: row 2 holds int, not an object"),
        (b'{\n "n": 1\n "m": 2}', r"rows\.jsonl:3 is not JSON"),
        (b'[{"n": NaN}]', r"rows\.jsonl is not JSON: NaN"),
        (gzip.compress(b'{"n": 1}', mtime=0), r"rows\.jsonl is compressed.*Unpack"),
        (b"PAR1 and then nothing", r"rows\.jsonl is broken parquet"),
        (b"question,answer\n1,2\n", r"rows\.jsonl:1 is not JSON"),
    ],
)
def test_a_broken_file_is_named_with_the_line(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(ProblemsError, match=says):
        list(rows_of(path))


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProblemsError, match=r"none\.jsonl: No such file"):
        next(rows_of(tmp_path / "none.jsonl"))
