"""The verifiers that docs/examples has as files of a user's own."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from import_files import lines
from linear import assert_linear

from heavydistill.config.run import Problems, Verifying
from heavydistill.problems.loading import load_fit
from heavydistill.schema import Problem
from heavydistill.verifiers import registry
from heavydistill.verifiers.pool import VerdictPool

FOLDER = Path(__file__).parents[2] / "docs" / "examples"
OWN = [str(FOLDER / f"{name}.py") for name in ("json_schema", "regex", "sql")]
LIMIT_S = 60.0
SCHEMA = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 0}, "day": {"format": "date"}},
    "required": ["age"],
    "additionalProperties": False,
}
TOWNS = (
    "CREATE TABLE town (name TEXT, people INT); "
    "INSERT INTO town VALUES ('Bern', 130), ('Genf', 200), ('Chur', 40);"
)
FEWER = "CREATE TABLE town (name TEXT, people INT); INSERT INTO town VALUES ('Bern', 90);"
LARGE = "SELECT name FROM town WHERE people > 100"
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


@pytest.fixture(scope="module")
def examples(known_here_alone: None) -> Iterator[VerdictPool]:
    with VerdictPool(Verifying(own=OWN, workers=1, timeout_s=2.0)) as pool:
        yield pool


def problem(verifier: str, reference: str = "", **args: Any) -> Problem:
    return Problem(
        id="p", text="?", reference=reference, verifier=verifier, verifier_args=json.dumps(args)
    )


def said(pool: VerdictPool, posed: Problem, answer: str) -> str:
    verdict = pool.submit(posed, answer).result(LIMIT_S).verdict
    return f"{verdict.label} {verdict.reason}"


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ('{"age": 3}', "correct fits"),
        ('Here:\n```json\n{"age": 3, "day": "2026-11-28"}\n```\nDone.', "correct fits"),
        ('```\n{"age": 3}\n```', "correct fits"),
        ('```json\n{"age": 3}\n```\nso\n```json\n{"age": 3}\n```', "correct fits"),
        ('```python\nx = 1\n```\n```json\n{"age": 3}\n```', "correct fits"),
        ('{"age": -3}', "incorrect does_not_fit"), ('{"age": "3"}', "incorrect does_not_fit"),
        ('{"age": true}', "incorrect does_not_fit"), ("{}", "incorrect does_not_fit"),
        ("[]", "incorrect does_not_fit"),
        ('{"age": 3, "day": "28 November"}', "incorrect does_not_fit"),
        ('{"age": 3, "more": 1}', "incorrect does_not_fit"), ('{"age": 3,}', "incorrect not_json"),
        ('{"age": NaN}', "incorrect not_json"), ('{"age": -3, "age": 3}', "incorrect not_json"),
        ("The age is 3.", "incorrect no_json"),
        ('```json\n{"age": 3}\n```\nor\n```json\n{"age": 4}\n```', "undecided several_blocks"),
        ("[" * 50_000 + "]" * 50_000, "undecided too_deep"),
    ],
)  # fmt: skip
def test_json_that_fits_a_schema_is_right(examples, answer, verdict):
    pytest.importorskip("jsonschema")
    for schema in (SCHEMA, json.dumps(SCHEMA)):
        assert said(examples, problem("json_schema", schema=schema), answer) == verdict


@pytest.mark.parametrize(
    ("pattern", "answer", "verdict"),
    [
        (r"[A-Z]{2}\d{3}", r"It is \boxed{AB123}.", "correct matches"),
        (r"[A-Z]{2}\d{3}", "AB123\n", "correct matches"),
        (r"(?i)[A-Z]{2}\d{3}", "ab123", "correct matches"),
        (r"[A-Z]{2}\d{3}", "ab123", "incorrect does_not_match"),
        (r"[A-Z]{2}\d{3}", "AB1234", "incorrect does_not_match"),
        (r"[A-Z]{2}\d{3}", "It is AB123.", "incorrect does_not_match"),
        (r"(a+)+b", "a" * 60, "undecided timeout"),
    ],
)
def test_an_answer_that_a_pattern_describes_is_right(examples, pattern, answer, verdict):
    assert said(examples, problem("regex", pattern), answer) == verdict


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (LARGE, "correct same_rows"),
        (f"So:\n```sql\n{LARGE} ORDER BY name DESC;\n```", "correct same_rows"),
        ("```\nselect name as n from town where not people <= 100\n```", "correct same_rows"),
        (
            "WITH t AS (SELECT * FROM town) SELECT name FROM t WHERE people > 100",
            "correct same_rows",
        ),
        ("SELECT name FROM town WHERE people < 100", "incorrect other_rows"),
        ("SELECT name, people FROM town WHERE people > 100", "incorrect other_rows"),
        (f"{LARGE} UNION ALL {LARGE}", "incorrect other_rows"),
        ("SELECT 'Bern' UNION SELECT 'Genf'", "incorrect other_rows"),  # right on one database
        ("SELECT name FROM village", "incorrect failed"),
        ("SELECT name FRM town", "incorrect failed"),
        (f"{LARGE}; DROP TABLE town", "incorrect failed"),
        ("```sql\nDELETE FROM town\n```", "incorrect failed"),
        ("```sql\nATTACH '/tmp/x.db' AS x\n```", "incorrect failed"),
        ("```sql\nPRAGMA journal_mode\n```", "incorrect failed"),
        ("```sql\nVACUUM INTO '/tmp/x.db'\n```", "incorrect failed"),
        ("SELECT load_extension('/tmp/x')", "incorrect failed"),
        ("SELECT random()", "incorrect failed"),
        ("SELECT zeroblob(1000000000)", "incorrect failed"),
        ("SELECT 1 \0", "incorrect failed"),
        (ENDLESS, "incorrect too_slow"),
        ("The towns are Bern and Genf.", "incorrect no_query"),
        (f"```sql\n{LARGE}\n```\nor\n```sql\nSELECT 1\n```", "undecided several_queries"),
    ],
)
def test_a_query_with_the_same_rows_is_right(examples, answer, verdict):
    assert said(examples, problem("sql", LARGE, databases=[TOWNS, FEWER]), answer) == verdict


@pytest.mark.parametrize(("ordered", "reason"), [(True, "other_rows"), (False, "same_rows")])
def test_rows_are_compared_in_order_as_asked(examples, ordered, reason):
    posed = problem("sql", f"{LARGE} ORDER BY people", databases=TOWNS, ordered=ordered)
    assert said(examples, posed, f"{LARGE} ORDER BY people DESC").endswith(reason)
    assert said(examples, posed, f"{LARGE} ORDER BY people") == "correct same_rows"
    average = problem("sql", "SELECT sum(people) / 3.0 FROM town", databases=TOWNS, ordered=ordered)
    assert said(examples, average, "SELECT avg(people) FROM town") == "correct same_rows"


UNFIT: list[tuple[str, dict[str, Any], str]] = [
    (
        "json_schema",
        {"schema": {"type": "text"}},
        "is not a JSON schema, at type: 'text' is not valid",
    ),
    ("json_schema", {"schema": {"properties": {"a": 3}}}, "at properties/a"),
    ("json_schema", {"schema": "{"}, "schema is not JSON"),
    ("json_schema", {"schema": {}}, "there is no schema"),
    ("json_schema", {}, "there is no schema"),
    ("json_schema", {"schema": {"$ref": "https://example.com/a.json"}}, "put that into $defs"),
    ("json_schema", {"schema": {"items": {"$ref": "#/$defs/a"}}}, "refers to '#/$defs/a'"),
    ("regex", {"reference": "[a-"}, "no regular expression: unterminated character set"),
    ("regex", {"reference": ".*"}, "matches the empty text"),
    ("sql", {"reference": "SELEC 1", "databases": TOWNS}, "does not run: near"),
    ("sql", {"reference": LARGE, "databases": [TOWNS, "CREATE"]}, "database 2 does not run"),
    ("sql", {"reference": LARGE, "databases": FEWER}, "gives no rows in any database"),
    ("sql", {"reference": LARGE}, "there is no database"),
    ("sql", {"reference": LARGE, "databases": TOWNS, "ordered": "yes"}, "must be true or false"),
    ("sql", {"reference": "DELETE FROM town", "databases": TOWNS}, "not authorized"),
    ("sql", {"reference": LARGE, "databases": "ATTACH '/tmp/x.db' AS x"}, "not authorized"),
    ("sql", {"reference": ENDLESS, "databases": TOWNS}, "takes too long"),
]
FIT = {
    "json_schema": {"schema": {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": "null"}}}},
    "regex": {"reference": "a+"},
    "sql": {"reference": LARGE, "databases": TOWNS},
}


def test_what_cannot_judge_is_refused_row_by_row_before_the_run(known_here_alone, tmp_path):
    pytest.importorskip("jsonschema")
    rows = [
        {"text": "?", "verifier": verifier} | row
        for verifier, row in [*FIT.items(), *((name, row) for name, row, _ in UNFIT)]
    ]
    file = lines(tmp_path / "rows.jsonl", *rows)
    asked = Problems(source=str(file), unfit="leave_out")
    loaded = load_fit(asked, Verifying(own=OWN, workers=1))
    assert [problem.id for problem in loaded.problems] == ["rows:1", "rows:2", "rows:3"]
    for number, (_, row, says) in enumerate(UNFIT, len(FIT) + 1):
        assert f"rows.jsonl:{number}: " in loaded.unfit[number], row
        assert says in loaded.unfit[number], row


@pytest.mark.parametrize("verifier", ["json_schema", "regex", "sql"])
@pytest.mark.parametrize("piece", ["```", "```sql\n", "{", "\\boxed{", "a "])
def test_finding_the_answer_takes_linear_time(known_here_alone, verifier, piece):
    registry.load_own(OWN)
    posed = problem(verifier, "a")
    read = registry.get(verifier).extract
    assert_linear(lambda text: read(posed, text), lambda size: piece * (size // len(piece)))
