"""Files and their rows, whatever the files are called."""

import gzip
import json

import messages
import pytest
from damaging import damage
from import_files import document, lines, parquet
from messages import message

from heavydistill.errors import ProblemsError
from heavydistill.problems.tables import read_file, rows_of

ROWS = [{"n": number, "text": "é" * number} for number in range(1, 6)]


@pytest.mark.parametrize("write", [parquet, document, lambda path, rows: lines(path, *rows)])
def test_the_name_of_a_file_does_not_say_what_it_is(write, tmp_path):
    rows = read_file(write(tmp_path / "rows.txt", ROWS)).rows
    assert [row.values for row in rows] == ROWS
    assert [row.number for row in rows] == [1, 2, 3, 4, 5]


def test_lines_keep_their_numbers_where_some_are_blank(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"n": 1}\r\n\n   \n{"n": 2}')
    assert [(row.number, row.where, row.values) for row in rows_of(path, "it")] == [
        (1, "it:1", {"n": 1}),
        (4, "it:4", {"n": 2}),
    ]


def test_one_object_over_several_lines_is_one_row(tmp_path):
    path = document(tmp_path / "result.json", ROWS[0])
    assert [row.values for row in read_file(path).rows] == ROWS[:1]


def test_parquet_that_is_broken_in_the_middle_is_named(tmp_path):
    path = parquet(tmp_path / "rows.parquet", [{"text": str(n) * 999} for n in range(9)])
    with messages.raises("source_no_parquet", file=path):
        read_file(damage(path, "text"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"n": 1}\n{"n": 2\n', message("line_no_json", place="rows.jsonl:2")),
        (b'{"n": 1\n{"n": 2}\n', message("line_no_json", place="rows.jsonl:1")),
        (b'{"n": 1}\n[1]\n', r"rows\.jsonl:2 holds list, not an object"),
        (b'{"n": 1}\n{"n": "\xff"}\n', r"rows\.jsonl:2 is not UTF-8"),
        (b'{"n": 1}\n' + b"[" * 100_000, message("line_no_json", place="rows.jsonl:2")),
        (b'[{"n": 1},\n{"n": 2},\n', message("line_no_json", place="rows.jsonl:3")),
        (b'[{"n": 1}, 7]', r"rows\.jsonl: row 2 holds int, not an object"),
        (b'{\n "n": 1\n "m": 2}', message("line_no_json", place="rows.jsonl:3")),
        (b'[{"n": NaN}]', r"rows\.jsonl is not JSON: NaN"),
        (gzip.compress(b'{"n": 1}', mtime=0), r"rows\.jsonl is compressed.*Unpack"),
        (b"PAR1 and then nothing", message("source_no_parquet", file="rows.jsonl")),
        (b"question,answer\n1,2\n", message("line_no_json", place="rows.jsonl:1")),
        (json.dumps([]).encode(), message("source_without_rows", source="rows.jsonl")),
        (b"\n\n", message("source_without_rows", source="rows.jsonl")),
    ],
)
def test_a_broken_file_is_named_with_the_line(content, says, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(ProblemsError, match=says):
        read_file(path)
