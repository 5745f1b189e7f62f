"""A served model that never writes a box: what the run says of it, and that its advice works."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_server import FakeServer, completion, serving
from import_files import lines

MICRO = Path(__file__).parents[2] / "heavydistill" / "micro" / "teacher"


@pytest.fixture
def run(call: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    def printed(*arguments: object) -> str:
        code, out, _ = call(*arguments)
        assert not code
        return out

    return printed


def test_a_run_without_boxes_names_the_marker_and_the_short_prompts(
    run: Callable[..., str], tmp_path: Path
) -> None:
    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        asked = re.search(r"What is (\d) \+ 2", body["messages"][0]["content"])
        assert asked
        return completion(f"I add them.\nAnswer: {int(asked[1]) + 2}")

    problems = [{"text": f"What is {n} + 2?", "reference": str(n + 2)} for n in range(4)]
    file = lines(tmp_path / "problems.jsonl", *problems)

    def generate(server: FakeServer, out: str, *more: str) -> str:
        return run(
            "generate",
            "--teacher=served",
            f"--endpoint={server.base_url}",
            f"--tokenizer={MICRO}",
            f"--problems={file}",
            f"--out={tmp_path / out}",
            "--k=2",
            "--d=1",
            *more,
        )

    with serving(answer) as server:
        said = generate(server, "raw")
        asked = len(server.requests)
        assert r"100.0% of the finished trajectories hold no final answer (no \boxed{})." in said
        assert r"100.0% of the finished deliberations hold no final answer" in said
        assert "--set domain=brief" in said
        assert "12 of the 12 unanswered answers that were read end in 'Answer:'" in said
        assert "samples unanswered" in run("watch", tmp_path / "raw")
        (proposed,) = [line for line in said.splitlines() if line.startswith("To judge by")]
        marked = generate(server, "marked", *shlex.split(proposed)[-2:])
        assert len(server.requests) == asked, "all of it was in the journal"
    assert "no final answer" not in marked and "To judge by" not in marked
    summary = json.loads((tmp_path / "marked" / "summary.json").read_text(encoding="utf-8"))
    assert summary["mean_at_k"]["mean"] == 1.0 and summary["trajectories"]["unanswered"] == 0
    raw = json.loads((tmp_path / "raw" / "summary.json").read_text(encoding="utf-8"))
    assert raw["mean_at_k"]["mean"] == 0.0 and raw["trajectories"]["unanswered"] == 8
    assert raw["deliberations"]["unanswered_because"] == {"no_answer": 4}
