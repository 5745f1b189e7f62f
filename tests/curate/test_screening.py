from __future__ import annotations

import json

from generations import problem

from heavydistill.curate.filters.contamination import Screen

ONE, OTHER = "What is twelve minus seven?", "Which fish can fly?"


def test_two_files_of_one_name_are_counted_apart(tmp_path):
    files = []
    for folder, text in (("one", ONE), ("other", OTHER)):
        (tmp_path / folder).mkdir()
        files.append(tmp_path / folder / "exam.jsonl")
        files[-1].write_text(json.dumps({"text": text}))
    screen = Screen([str(file) for file in files])
    assert screen.look("a", problem(OTHER)) == ("contaminated", "exam: same_text")
    assert screen.look("b", problem("How many hens are there?")) == ("", "")
    assert [(used.name, used.hits) for used in screen.used] == [
        ("exam", {}),
        ("exam", {"same_text": 1}),
    ]
    assert screen.used[0].texts_sha256 != screen.used[1].texts_sha256
