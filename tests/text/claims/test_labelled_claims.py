"""The labelled deliberations are what their README says; no message shows a text of them."""

import json
import re
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
ROWS = {
    name: [json.loads(line) for line in (HERE / f"{name}.jsonl").read_text("utf-8").splitlines()]
    for name in ("seen", "unseen", "fresh", "heldout", "hard")
}
ALL = [row for rows in ROWS.values() for row in rows]
KEYS = ["id", "kind", "language", "problem", "attempts", "reasoning_text", "answer_text", "claims"]


def test_ids_are_unique_and_name_file_and_kind():
    ids = [row["id"] for row in ALL]
    assert len(set(ids)) == len(ids) == 322
    assert [
        row["id"]
        for name, rows in ROWS.items()
        for row in rows
        if not re.fullmatch(rf"{name}-{row['kind']}-\d\d", row["id"])
    ] == []


def test_each_claim_has_an_attempt_of_the_cache_and_words_of_the_text():
    assert [row["id"] for row in ALL if not _is_sound(row)] == []


def test_counts_are_those_of_the_readme():
    counts = {}
    for name, rows in ROWS.items():
        for kind, language in sorted({(row["kind"], row["language"]) for row in rows}):
            group = [row for row in rows if (row["kind"], row["language"]) == (kind, language)]
            says = Counter(claim["says"] for row in group for claim in row["claims"])
            attempts = sum(len(row["attempts"]) for row in group)
            silent = sum(not row["claims"] for row in group)
            sums = (len(group), attempts, says["right"], says["wrong"], silent)
            counts[name, kind, language] = sums
    table = re.findall(
        r"^\| (\w+) \| (micro|prose) \| (en|zh) \|((?: \d+ \|)+)$",
        (HERE / "README.md").read_text("utf-8"),
        re.MULTILINE,
    )
    stated = {(a, b, c): tuple(map(int, re.findall(r"\d+", rest))) for a, b, c, rest in table}
    assert counts == stated


def test_no_problem_is_in_two_files():
    problems = [{row["problem"] for row in rows} for rows in ROWS.values()]
    assert sum(map(len, problems)) == len(set().union(*problems))


def _is_sound(row):
    attempts = [claim["attempt"] for claim in row["claims"]]
    return (
        list(row) == KEYS
        and all(row["attempts"])
        and attempts == sorted(set(attempts) & set(range(1, len(row["attempts"]) + 1)))
        and all(
            list(claim) == ["attempt", "says", "quote"]
            and claim["says"] in ("right", "wrong")
            and claim["quote"].strip()
            and any(claim["quote"] in row[part] for part in ("reasoning_text", "answer_text"))
            for claim in row["claims"]
        )
    )
