"""Files as other tools and datasets write them, in ``files``; all of their content is our own."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from import_files import EGGS, GOLD, STAIRS, answers_row, boxed, config_of, lines

from heavydistill.curate.imports.import_pools import ImportedPool, ImportedPools, import_pools
from heavydistill.errors import ProblemsError

FILES = Path(__file__).parent / "files"
PAGES = "Tom reads 9 pages a day. How many pages does he read in 5 days?"
LEAVE_OUT = {"problems.unfit": "leave_out"}


def pools_of(format: str, *names: str, **keys: Any) -> ImportedPools:
    return ImportedPools(config_of(format, *(FILES / name for name in names), **keys))


def values(pool: ImportedPool, name: str) -> list[Any]:
    return [getattr(each, name) for each in pool.trajectories]


def asked(pools: ImportedPools) -> list[tuple[str, str]]:
    return [(problem.text, problem.reference) for problem in pools.problems]


ALL = [(EGGS, "42"), (STAIRS, "36"), (PAGES, "45")]


def test_results_of_a_batch_with_the_file_of_its_problems():
    names = ("batch_output.jsonl", "batch_problems.jsonl")
    pools = pools_of("batch", *names, **{"problems.columns.text": "question"})
    eggs, stairs, pages = pools
    assert asked(pools) == ALL and [each.id for each in pools.problems] == ["p1", "p2", "p3"]
    assert values(eggs, "answer_text") == [boxed(42), "", boxed(42), boxed(42), boxed(41)]
    assert values(eggs, "reasoning")[:2] == ["6 * 7", "6 * 7"]
    assert values(eggs, "finish_reason") == ["stop", "length", "stop", "stop", "stop"]
    assert values(eggs, "prompt_tokens") == [21, 22, 23, 21, 21]
    # The usage of two choices is that of both.
    assert values(eggs, "completion_tokens") == [19, 19, 19, -1, -1]
    assert values(stairs, "error") == [None, None, "It ended with 'batch_expired'."]
    assert values(pages, "error") == [None, None, "It ended with 'server_error'."]
    assert {name for pool in pools for name in values(pool, "model")} == {"small-3b", "unknown"}
    assert pools.without_answers == 3


def test_results_of_a_batch_need_their_problems(tmp_path):
    problems = (FILES / "batch_problems.jsonl").read_text(encoding="utf-8").splitlines()
    fewer = lines(tmp_path / "problems.jsonl", *problems[:2])
    files = (FILES / "batch_output.jsonl", fewer)
    keys = {"problems.columns.text": "question"}
    with pytest.raises(
        ProblemsError, match=r"(?s)columns id=COLUMN.*:7: no problem has the id p3-0"
    ):
        ImportedPools(config_of("batch", *files, **keys))
    pools = ImportedPools(config_of("batch", *files, **keys, **LEAVE_OUT))
    assert asked(pools) == ALL[:2] and pools.left_out["unreadable"].rows == 3
    twice = lines(tmp_path / "twice.jsonl", problems[0], problems[0])
    with pytest.raises(ProblemsError, match=r"twice\.jsonl:2: twice\.jsonl:1 has the same id"):
        ImportedPools(config_of("batch", files[0], twice, **keys))


def test_outputs_of_matharena_keep_author_tokens_and_label(tmp_path):
    pools = pools_of("matharena", "matharena.jsonl")
    eggs, stairs, _ = pools
    assert asked(pools) == ALL
    assert values(eggs, "answer_text") == [boxed(42), boxed(13), boxed(42)]
    assert values(eggs, "model") == ["Small 3B", "Large 70B", "Small 3B"]
    assert values(eggs, "prompt_tokens") == [30, 31, 32]
    assert values(eggs, "completion_tokens") == [20, 21, 22]
    assert [each.label for each in stairs.attempts] == [True, False, False]
    files = FILES / "matharena.jsonl"
    keys = {"problems.verifier": "math", "licence": "CC BY-NC-SA 4.0"}
    done = import_pools(config_of("matharena", files, out=str(tmp_path / "run"), **keys))
    assert done.labels["wrong"] == {"incorrect": 3, "correct": 1}
    assert (done.record["cost_usd"], done.record["costs_unknown"]) == (0.009, 0)
    assert done.summary.usage["thinking"].cost_usd == pytest.approx(0.009)
    assert done.record["licences"] == {"cc-by-nc-sa-4.0": 9}
    summary = json.loads((done.folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["licences"] == ["cc-by-nc-sa-4.0"]


def test_open_parallel_think():
    pools = pools_of("parallel-think", "parallel_think.jsonl")
    *maths, code = pools
    assert asked(pools)[:3] == ALL
    assert values(maths[1], "answer_text") == [boxed(36), boxed(36), boxed(15)]
    assert values(maths[1], "reasoning") == ["12 * 3"] * 3
    assert [each.label for each in maths[0].attempts] == [None] * 3
    assert values(code, "model") == ["small-3b", "large-70b"]
    assert [each.label for each in code.attempts] == [True, False]


def test_inputs_of_genselect_in_a_list_a_text_and_a_prompt():
    pools = pools_of("genselect", "genselect.jsonl")
    eggs, stairs, pages = pools
    assert asked(pools) == ALL
    assert values(eggs, "answer_text") == [boxed(42), boxed(13), boxed(42)]
    # Two texts show three solutions, one of them twice.
    worked = [f"12 * 3 = {n}\n{boxed(n)}" for n in (36, 34, 15)]
    assert values(stairs, "answer_text") == worked
    assert [each.label for each in stairs.attempts] == [True, False, False]
    assert pools.format.notes == {"solutions_repeated": 1}
    title = "I count.\nSolution 7: is no title here.\n"
    assert values(pages, "answer_text") == [title + boxed(n) for n in (45, 14, 45)]


def test_a_text_with_other_solutions_than_it_says_is_not_read(tmp_path):
    row = json.loads((FILES / "genselect.jsonl").read_text(encoding="utf-8").splitlines()[1])
    with pytest.raises(ProblemsError, match="num_solutions is 3, but the text has 2"):
        file = lines(tmp_path / "a.jsonl", row | {"num_solutions": 3})
        ImportedPools(config_of("genselect", file))


def test_nemotron_math_without_the_answers_that_used_tools():
    with pytest.raises(ProblemsError, match=r"jsonl:10: the answer has several turns"):
        pools_of("nemotron-math", "nemotron_math.jsonl")
    pools = pools_of("nemotron-math", "nemotron_math.jsonl", model="gpt-oss-120b", **LEAVE_OUT)
    eggs, *_ = pools
    assert asked(pools) == ALL
    assert values(eggs, "answer_text") == [boxed(42), boxed(13), boxed(42)]
    assert values(eggs, "reasoning") == ["6 * 7"] * 3
    assert values(eggs, "model") == ["gpt-oss-120b"] * 3
    assert pools.licences == {"cc-by-4.0": 6, "cc-by-sa-4.0": 3}


def zipped(folder: Path, header: str, compression: int) -> Path:
    """Write the log as a zip file; Zstandard (93), which ``zipfile`` does not know, by hand."""
    log = json.loads((FILES / "inspect.json").read_text(encoding="utf-8"))
    entries = {header: {"version": 2, "eval": log["eval"]}, "summaries.json": []}
    for sample in reversed(log["samples"]):
        entries[f"samples/{sample['id']}_epoch_{sample['epoch']}.json"] = sample
    content = io.BytesIO()
    kind = zipfile.ZIP_STORED if compression == 93 else compression
    with zipfile.ZipFile(content, "w", kind) as archive:
        for name, value in entries.items():
            text = json.dumps(value).encode()
            packed = pa.compress(text, codec="zstd", asbytes=True) if compression == 93 else text
            archive.writestr(name, packed)
        places = [entry.header_offset for entry in archive.infolist()]
    data = bytearray(content.getvalue())
    if compression == 93:
        for place in places:
            data[place + 8] = 93
        place = data.find(b"PK\x01\x02")
        while place >= 0:
            data[place + 10] = 93
            place = data.find(b"PK\x01\x02", place + 1)
    (folder / "own.eval").write_bytes(data)
    return folder / "own.eval"


@pytest.mark.parametrize(
    ("header", "compression"),
    [
        (None, 0),
        ("header.json", 93),
        ("_journal/start.json", zipfile.ZIP_DEFLATED),
        ("start.json", zipfile.ZIP_STORED),
    ],
)
def test_logs_of_inspect(header, compression, tmp_path):
    file = zipped(tmp_path, header, compression) if header else FILES / "inspect.json"
    pools = ImportedPools(config_of("inspect", file))
    by_text = {pool.problem.text.partition("\n")[0]: pool for pool in pools}
    eggs, choice = by_text[EGGS], by_text["Which number is even?"]
    assert (eggs.problem.reference, len(pools.problems)) == ("42", 3)
    assert values(eggs, "answer_text") == [boxed(42), boxed(13), boxed(42)]
    assert values(eggs, "reasoning") == ["6 * 7", "6 * 7", ""]
    assert values(eggs, "finish_reason") == ["length", "stop", "stop"]
    assert values(eggs, "prompt_tokens") == [30] * 3
    assert values(eggs, "completion_tokens") == [15] * 3
    assert values(eggs, "latency_s") == [1.5] * 3 and values(eggs, "model") == ["small-3b"] * 3
    assert [each.label for each in eggs.attempts] == [True, False, True]
    assert [each.cost_usd for each in eggs.attempts] == [0.002] * 3
    assert (choice.problem.verifier, choice.problem.reference) == ("choice", "B")
    assert values(choice, "model") == ["vllm/small-3b"] * 2
    # Two scorers differ; the second epoch failed.
    assert [each.is_label_unclear for each in choice.attempts] == [True, False]
    assert values(choice, "finish_reason") == ["stop", "error"]


@pytest.mark.parametrize(
    "content", [None, b"PK\x03\x04 and no more", b"{}", b"[1]", b'{"samples": 1}']
)
def test_what_is_no_log_of_inspect_is_refused(content, tmp_path):
    file = tmp_path / "log.eval"
    if content is None:
        zipped(tmp_path, "other.json", zipfile.ZIP_STORED).rename(file)
    else:
        file.write_bytes(content)
    with pytest.raises(ProblemsError, match=r"log\.eval cannot be read .*inspect log convert"):
        ImportedPools(config_of("inspect", file))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"target": ["4", "5"]}, "sample s, epoch 1: the sample has 2 targets"),
        ({"messages": [{"role": "assistant"}, {"role": "tool"}]}, "sample s, .* several turns"),
    ],
)
def test_a_sample_that_is_no_single_answer_is_not_read(changes, says, tmp_path):
    sample = {"id": "s", "epoch": 1, "input": "2 + 2?", "target": "4", "output": {}, **changes}
    file = tmp_path / "log.json"
    file.write_text(json.dumps({"eval": {"model": "m"}, "samples": [sample]}), encoding="utf-8")
    with pytest.raises(ProblemsError, match=says):
        ImportedPools(config_of("inspect", file))


def test_other_bodies_of_a_batch(tmp_path):
    problem = {"id": "a", "text": EGGS, "reference": "42"}

    def result(**body: Any) -> dict[str, Any]:
        response = {"status_code": 200, "body": {"model": "m", **body}}
        return {"custom_id": "a", "response": response, "error": None}

    plain = result(choices=[{"text": boxed(42), "finish_reason": "stop"}] * 2)
    (pool,) = ImportedPools(config_of("batch", lines(tmp_path / "a.jsonl", problem, plain)))
    assert values(pool, "answer_text") == [boxed(42)] * 2
    file = lines(tmp_path / "b.jsonl", problem, plain, result(data=[]))
    with pytest.raises(
        ProblemsError, match=r"b\.jsonl:3: the body of the response is no completion"
    ):
        ImportedPools(config_of("batch", file))


# --- What the user's own columns say of an answer.

BESIDE = {"author": ["a", "b"], "read": 7, "wrote": [3, 4], "ended": ["stop", "length"]}
NAMES = {"model": "author", "prompt_tokens": "read", "completion_tokens": "wrote"}
COLUMNS = {
    f"problems.columns.{field}": column
    for field, column in {**NAMES, "finish_reason": "ended", "cost": "usd", "label": "ok"}.items()
}


@pytest.mark.parametrize("pattern", [None, "reply_*"])
def test_columns_say_who_wrote_an_answer_and_with_how_many_tokens(pattern, tmp_path):
    row = {**answers_row(), **BESIDE, "usd": [0.5, None], "ok": [1, 0]}
    keys = {**GOLD, **COLUMNS}
    if pattern:
        row["reply_1"], row["reply_2"] = row.pop("answers")
        keys["problems.columns.answers"] = pattern
    (pool,) = ImportedPools(config_of("answers", lines(tmp_path / "a.jsonl", row), **keys))
    assert values(pool, "model") == ["a", "b"]
    assert (values(pool, "prompt_tokens"), values(pool, "completion_tokens")) == ([7, 7], [3, 4])
    assert values(pool, "finish_reason") == ["stop", "length"]
    assert [(each.label, each.cost_usd) for each in pool.attempts] == [(True, 0.5), (False, -1)]


def test_columns_of_one_answer_a_row(tmp_path):
    rows = [
        {"question": EGGS, "gold": 42, "said": boxed(n), "model": f"m{n}", "prompt_tokens": n}
        for n in (42, 13)
    ]
    keys = {**GOLD, "problems.columns.answers": "said"}
    pools = ImportedPools(config_of("answers", lines(tmp_path / "a.jsonl", *rows), **keys))
    (pool,) = pools
    assert values(pool, "model") == ["m42", "m13"] and values(pool, "prompt_tokens") == [42, 13]
    assert pools.format.beside == {"model": "model", "prompt_tokens": "prompt_tokens"}


def test_a_column_that_the_file_lacks_is_refused(tmp_path):
    keys = {**GOLD, "problems.columns.model": "author"}
    with pytest.raises(ProblemsError, match="has no column author"):
        ImportedPools(config_of("answers", lines(tmp_path / "a.jsonl", answers_row()), **keys))


def test_a_pattern_takes_no_column_beside_the_answers(tmp_path):
    row = {"question": EGGS, "answer": "42", "model_name": "m", "license": "mit", "cost": 1}
    row |= {"a_e": boxed(42), "b_e": boxed(13)}
    keys = {"problems.columns.answers": "*e*"}
    (pool,) = ImportedPools(config_of("answers", lines(tmp_path / "a.jsonl", row), **keys))
    assert values(pool, "model") == ["a_e", "b_e"] and pool.problem.reference == "42"
