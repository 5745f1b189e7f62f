import json
import os
import shlex
import subprocess
import sys
import types
from pathlib import Path

import messages
import pytest
from import_files import lines, parquet
from judging import judged
from messages import message

from heavydistill.config.run import Problems
from heavydistill.errors import ProblemsError
from heavydistill.problems import load
from heavydistill.verifiers.pool import VerdictPool

ROOT = Path(__file__).parents[2]
GOOD = {"id": "a", "text": "1+1?", "reference": "2"}
INSTRUCTED = {
    "text": "Write without commas.",
    "verifier": "instructions",
    "instruction_id_list": ["punctuation:no_comma"],
    "kwargs": [{"num_words": None}],
}


@pytest.fixture
def write(tmp_path):
    return lambda *rows: str(lines(tmp_path / "set.jsonl", *rows))


def load_file(path: str, **keys):
    return load(Problems(source=path, **keys))


def test_a_file_with_our_own_columns_becomes_problems(write):
    (problem,) = load_file(
        write(GOOD | {"verifier_args": {"marker": "####"}, "domain": "stem", "level": 5})
    )
    assert (problem.id, problem.text, problem.reference) == ("a", "1+1?", "2")
    assert (problem.verifier, problem.domain) == ("math", "stem")
    assert json.loads(problem.verifier_args) == {"marker": "####"}
    assert problem.source == "set.jsonl:1"


def test_columns_of_other_names_are_mapped(write):
    path = write({"nr": 7, "task": "1+1?", "gold": 2, "args": '{"marker": "A:"}'})
    columns = {"id": "nr", "text": "task", "reference": "gold", "verifier_args": "args"}
    (problem,) = load_file(path, columns=columns)
    assert (problem.id, problem.text, problem.reference) == ("7", "1+1?", "2")
    assert json.loads(problem.verifier_args) == {"marker": "A:"}


def test_well_known_names_are_found_and_two_texts_are_refused(write):
    (problem,) = load_file(write({"problem": "1+1?", "answer": "2", "solution": "one more"}))
    assert (problem.text, problem.reference) == ("1+1?", "2")
    two = write({"text": "Read this.", "question": "1+1?", "answer": "2"})
    with messages.raises("two_columns_for", columns="text and question", field="text"):
        load_file(two)
    (problem,) = load_file(two, columns={"text": "question"})
    assert problem.text == "1+1?"
    (problem,) = load_file(write({"text": "1+1?", "question": "1+1?", "answer": "2"}))
    assert problem.text == "1+1?"


def test_rows_without_ids_are_named_after_file_and_line(write):
    row = {"text": "1+1?", "reference": "2"}
    assert [p.id for p in load_file(write(row, "", row))] == ["set:1", "set:3"]


def test_the_verifier_of_the_run_is_for_rows_that_name_none(write):
    path = write(GOOD, GOOD | {"id": "b", "verifier": None})
    assert {p.verifier for p in load_file(path, verifier="exact")} == {"exact"}
    with messages.raises("no_verifier", verifier="exakt", nearest="exact"):
        load_file(path, verifier="exakt")


def test_only_as_many_rows_are_read_as_the_limit_takes(write):
    file = write(GOOD, GOOD | {"id": "b"}, "{")
    assert [p.id for p in load_file(file, limit=2)] == ["a", "b"]
    with messages.raises("line_no_json", place="set.jsonl:3"):
        load_file(file, limit=3)
    # Where rows may be left out, it is not known before how many the limit needs.
    with messages.raises("line_no_json", place="set.jsonl:3"):
        load_file(file, limit=2, unfit="leave_out")


def test_a_small_parquet_file_of_many_rows_is_not_unpacked_beyond_the_limit(tmp_path, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    many = 3_000_000
    columns = {"text": pa.array(["2*3?"]).take([0]), "reference": pa.array(["6"])}
    table = pa.table({name: pa.DictionaryArray.from_arrays(pa.nulls(many, "int32").fill_null(0), c)
                      for name, c in columns.items()})  # fmt: skip
    pq.write_table(table, tmp_path / "bomb.parquet")
    assert (tmp_path / "bomb.parquet").stat().st_size < 100_000
    unpacked = []
    whole = pq.ParquetFile.iter_batches

    def counted(self, *arguments, **named):
        for batch in whole(self, *arguments, **named):
            unpacked.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    problems = load(Problems(source=str(tmp_path / "bomb.parquet"), verifier="math", limit=4))
    assert len(problems) == 4 and sum(unpacked) < 1000


def test_a_line_without_an_end_is_refused(tmp_path):
    with (tmp_path / "p.jsonl").open("wb") as file:
        file.write(b'{"text": "')
        file.truncate(2**36)
    with messages.raises("line_too_long", place="p.jsonl:1"):
        load(Problems(source=str(tmp_path / "p.jsonl")))


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_device_is_refused_and_not_waited_for(tmp_path, kind):
    path = tmp_path / "p.jsonl"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    with messages.raises("source_no_regular_file"):
        load(Problems(source=str(path)))


def test_arguments_that_are_nested_without_end_are_a_fault_of_their_row(write):
    with messages.raises("args_no_object", place="set.jsonl:1") as error:
        load_file(write(GOOD | {"verifier_args": "[" * 100_000}))
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (GOOD | {"id": ""}, "set.jsonl:2: the id is empty"),
        ({"text": "?", "reference": "2"}, message("no_column", row="set.jsonl:2", column="'id'")),
        (GOOD, message("id_twice", row="set.jsonl:2: ", id="a", first=".*set.jsonl:1")),
        (GOOD | {"id": "b", "text": " "}, message("empty_text", place="set.jsonl:2")),
        (GOOD | {"id": "b", "text": ["hi"]}, "set.jsonl:2: column 'text' holds list"),
        (GOOD | {"id": "b", "text": "\ud800"}, "set.jsonl:2: .*lone surrogate"),
        (GOOD | {"id": "b", "reference": None}, message("empty_reference", place="set.jsonl:2")),
        (GOOD | {"id": "b", "reference": True}, "set.jsonl:2: column 'reference' holds bool"),
        ({"id": "b", "text": "?"}, message("no_column", row="set.jsonl:2", column="'reference'")),
        (
            GOOD | {"id": "b", "reference": "a\nb"},
            'set.jsonl:2: .* several lines.*"marker": "####"',
        ),
        (GOOD | {"id": "b", "verifier": "exakt"}, message("no_verifier", verifier="exakt")),
        (GOOD | {"id": "b", "verifier_args": "[]"}, message("args_no_object", place="set.jsonl:2")),
        (GOOD | {"id": "b", "verifier_args": "{"}, message("args_no_object", place="set.jsonl:2")),
        (GOOD | {"id": "b", "verifier_args": {"maker": 1}}, "set.jsonl:2: verifier_args of math"),
        (
            INSTRUCTED | {"id": "b", "instruction_id_list": ["length_constraints:number_words"]},
            "set.jsonl:2: kwargs of .*: num_words is missing",
        ),
        (
            {"id": "b", "text": "Add.", "verifier": "code", "verifier_args": {"tests": ["f()"]}},
            "set.jsonl:2: test 1 in tests",
        ),
    ],
)
def test_a_bad_row_is_an_error_that_names_file_and_line(write, row, says):
    with pytest.raises(ProblemsError, match=says):
        load_file(write(GOOD, row))


@pytest.mark.parametrize(
    ("row", "columns", "says"),
    [
        (GOOD, {"text": "txt"}, message("no_column", row="set.jsonl:1", column="'txt'")),
        (GOOD, {"txet": "text"}, r"problems.columns.txet.*Did you mean text\?"),
        (
            {"reference": "2", "task": "?"},
            {},
            "no column for the text.*--set problems.columns.text=COLUMN.*Columns there: .*task",
        ),
        (
            {"text": "?", "solution": "2"},
            {},
            message("no_column_for", place="set.jsonl:1", field="reference"),
        ),
        (
            {"question": "?", "prompt": "?", "answer": "2"},
            {},
            message("two_columns_for", columns="question and prompt", field="text"),
        ),
    ],
)
def test_a_column_that_cannot_be_found_is_an_error(write, row, columns, says):
    with pytest.raises(ProblemsError, match=says):
        load_file(write(row), columns=columns)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("set.txt", "'set.txt' is not a source.*hub:ORG/NAME"),
        ("hub:sums", "hub:sums is not hub:ORG/NAME"),
        ("hub:org/a/b", "is not hub:ORG"),
    ],
)
def test_a_source_that_is_not_there_is_an_error(source, says):
    with pytest.raises(ProblemsError, match=says):
        load_file(source)


def test_a_key_without_effect_is_an_error(write):
    with messages.raises("key_without_effect", key="problems.gym"):
        load_file(write(GOOD), gym={"chain_sum": {}})
    with messages.raises("key_without_effect", key="problems.columns"):
        load(Problems(columns={"text": "question"}))
    with messages.raises("key_without_effect", key="problems.keep_option_order"):
        load(Problems(keep_option_order=True))


def test_a_parquet_file_is_read_by_row(tmp_path):
    path, rows = tmp_path / "sums.parquet", [("1+1?", 2), ("2+2?", 4), (None, 4)]
    rows = [{"question": text, "answer": answer} for text, answer in rows]
    problems = load_file(str(parquet(path, rows[:2])))
    assert [(p.id, p.reference) for p in problems] == [("sums:1", "2"), ("sums:2", "4")]
    with messages.raises("empty_text", place="sums.parquet: row 2"):
        load_file(str(parquet(path, rows[::2])))


def hub(monkeypatch, load_dataset):
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))


def test_a_hub_dataset_is_read_by_split(monkeypatch):
    def load_dataset(name, subset, split):
        assert (name, subset, split) == ("org/sums", "main", "test")
        return [{"question": "1+1?", "answer": "2"}]

    hub(monkeypatch, load_dataset)
    (problem,) = load(Problems(source="hub:org/sums", subset="main", split="test"))
    assert (problem.id, problem.source) == ("sums:1", "hub:org/sums/test:1")


def test_a_hub_that_does_not_answer_is_an_error_with_the_fix(monkeypatch):
    def load_dataset(name, subset, split):
        raise ConnectionError("no route")

    hub(monkeypatch, load_dataset)
    with messages.raises("hub_not_cached", name="hub:org/sums"):
        load(Problems(source="hub:org/sums"))
    monkeypatch.setattr("heavydistill.problems.tables.obstacle", str)
    with messages.raises("hub_failed", name="hub:org/sums", split="train", why="ConnectionError"):
        load(Problems(source="hub:org/sums"))


def test_a_table_that_is_not_read_comes_with_the_command_that_converts_it(tmp_path):
    table = tmp_path / "my sums.tsv"
    table.write_text("text\treference\n1+1?\t2\n", encoding="utf-8")
    with messages.raises("table_of_another_kind") as refused:
        load(Problems(source=str(table)))
    program, flag, code = shlex.split(refused.value.fix.split("`")[1])
    assert (program, flag) == ("python", "-c")
    subprocess.run([sys.executable, flag, code], check=True)
    (problem,) = load(Problems(source=str(table.with_suffix(".jsonl"))))
    assert (problem.text, problem.reference) == ("1+1?", "2")


def test_the_sample_file_loads_and_its_references_verify():
    problems = load_file(str(ROOT / "data" / "problems.sample.jsonl"))
    assert len(problems) == 12
    for problem in problems:
        verdict = judged(problem, f"\\boxed{{{problem.reference}}}")
        assert verdict.is_correct, problem.id


def test_what_a_verifier_reads_from_columns_becomes_its_arguments(write):
    (problem,) = load_file(write(INSTRUCTED))
    assert problem.reference == ""
    assert json.loads(problem.verifier_args) == {
        "instruction_id_list": ["punctuation:no_comma"],
        "kwargs": [{"num_words": None}],
    }
    (problem,) = load_file(write(INSTRUCTED), verifier_args={"mode": "loose"})
    assert json.loads(problem.verifier_args)["mode"] == "loose"
    (problem,) = load_file(write(GOOD | {"kwargs": [{"a": 1}]}))
    assert problem.verifier_args == "{}"  # another verifier reads no such column
    named = INSTRUCTED | {"verifier_args": {"instruction_id_list": ["startend:quotation"]}}
    (problem,) = load_file(write(named))
    assert json.loads(problem.verifier_args)["instruction_id_list"] == ["startend:quotation"]


def test_a_missing_space_after_the_colon_of_an_argument_is_reported_once(write):
    with messages.raises("no_space_after_colon", key="problems.verifier_args", fix='{marker: "#"}'):
        load_file(write(GOOD), verifier_args={'marker:"#"': None})


def test_only_a_verifier_that_needs_no_reference_may_do_without(write):
    with messages.raises("no_column_for", place="set.jsonl:2", field="reference"):
        load_file(write(INSTRUCTED, {"text": "1+1?"}))
    with messages.raises("empty_reference", place="set.jsonl:2"):
        load_file(write(INSTRUCTED | {"reference": None}, {"text": "1+1?", "reference": None}))


def test_the_instructions_of_the_sample_can_be_judged():
    problems = load_file(str(ROOT / "data" / "instructions.sample.jsonl"))
    assert len(problems) == 6
    letter = "<<Heater>>\nDear [landlord] please mend it. [name] [date]\nP.S. It is cold."
    assert judged(problems[-1], letter).is_correct
    assert judged(problems[-1], letter.replace("<<", "<")).label == "incorrect"


def test_a_row_without_a_domain_has_that_of_its_verifier(write):
    code = {
        "text": "Add.",
        "verifier": "code",
        "verifier_args": {"test_list": ["assert f(1) == 1"]},
    }
    told = {"text": "Write.", "verifier": "instructions"} | {
        "verifier_args": {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    }
    rows = [code, code | {"domain": "stem"}, told, {"text": "1+1?", "reference": "2"}]
    problems = load_file(write(*rows))
    assert [problem.domain for problem in problems] == ["code", "stem", "general", ""]


@pytest.mark.parametrize("unfit", ["refuse", "leave_out"])
def test_a_marker_that_all_rows_lack_is_found_in_a_sample_of_them(tmp_path, unfit, monkeypatch):
    checked: list[int] = []
    check = VerdictPool.check_references

    def counted(self, problems, on_done=None):
        checked.append(len(problems))
        return check(self, problems, on_done)

    monkeypatch.setattr(VerdictPool, "check_references", counted)
    rows = [{"text": f"{n}?", "reference": f"First {n}.\nThen\nA: {n}"} for n in range(660)]
    file = lines(tmp_path / "p.jsonl", *rows)
    with messages.raises("sample_unfit", count=33) as raised:
        load(Problems(source=str(file), unfit=unfit, verifier="math"))
    assert checked == [33] and "marker" in raised.value.flags
