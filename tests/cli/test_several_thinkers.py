"""Runs with several thinkers: on the bundled models, and on a server for each."""

import json
import re
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from command_line import MICRO, run_command, served
from fake_server import completion, serving
from import_files import lines

from heavydistill.config.run import load_config
from heavydistill.models.resolve import resolve
from heavydistill.store.traces import read_traces

PROBLEMS = 6


def ended(*words: object, code: int = 0) -> str:
    done = run_command(*words)
    assert done.returncode == code, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


def test_the_bundled_models_share_the_attempts(tmp_path):
    thinkers = ["--thinker=micro=2,micro-student=1", "--deliberator=micro", "--d=1"]
    out = ["--limit=2", "--journal", tmp_path / "journal", "--out", tmp_path / "run"]
    printed = ended("generate", *thinkers, "--k=3", *out)
    assert "Models, M: micro " in printed and "Mixing is not compared" in printed
    for trace in read_traces(tmp_path / "run"):
        assert [each.index for each in trace.pool] == [0, 1, 2]
        assert [each.model for each in trace.pool] == ["micro", "micro", "micro-student"]
        assert len({each.seed for each in trace.pool}) == len({each.id for each in trace.pool}) == 3
        assert len(trace.caches[0].items) == 3 and "micro" not in trace.caches[0].prompt
    # Each model was asked what it is asked in a run of its own, so nothing is asked again.
    for model, k in (("micro", 2), ("micro-student", 1)):
        alone = [f"--teacher={model}", "--k=2", "--d=0", *out[:3], "--out", tmp_path / model]
        assert f"In the journal: {2 * k} of 4" in ended("generate", *alone, "--dry-run")
    assert "micro-student" in ended("show", tmp_path / "run")
    ended("report", tmp_path / "run")
    assert "Models of the attempts" in (tmp_path / "run.html").read_text(encoding="utf-8")


def answers(right: str) -> Any:
    """A model that solves the problems whose numbers are in ``right``."""

    def answer(body: dict[str, Any]) -> Any:
        number = re.search(r"rod (\d)", body["messages"][0]["content"])
        assert number
        return completion(rf"\boxed{{{number[1] if number[1] in right else 'no'}}}")

    return answer


def test_each_thinker_has_its_own_server_price_and_sampling(tmp_path):
    rows = (
        {"id": f"p{n}", "text": f"Which is rod {n}?", "reference": str(n), "verifier": "exact"}
        for n in range(PROBLEMS)
    )
    with ExitStack() as open_servers:
        shared, own = (open_servers.enter_context(serving(answers(r))) for r in ("0123", "2345"))
        settings = {
            "endpoint": {"base_url": own.base_url, "price_in": 0, "price_out": 1e6},
            "sampling": {"temperature": 0.5, "max_tokens": 99},
        }
        words = [
            "generate",
            *served(shared.base_url, "--price-in=0", "--price-out=0", "--thinker=served,other"),
            *("--k=6", "--d=1", "--problems", lines(tmp_path / "problems.jsonl", *rows)),
            *("--set", f"thinkers={json.dumps({'other': settings})}", "--out", tmp_path / "run"),
            *("--set", "think.sampling.max_tokens=300"),
        ]
        planned = ended(*words, "--dry-run")
        assert "K=6 trajectories (3 by served and 3 by other)" in planned
        assert re.search(r"thinking 18 .* 0\.00 .*served thinking 18 .* 18\.00 to .*other", planned)
        assert "Price: other: 0 USD per million prompt tokens, 1e+06 per million" in planned
        printed = ended(*words)
        asked = Counter((body["model"], body["temperature"]) for body in own.requests)
        assert asked == {("other", 0.5): 3 * PROBLEMS}
        assert {body["max_tokens"] for body in own.requests} == {99}
        assert len(shared.requests) == (3 + 1) * PROBLEMS
        repeated = ["generate", "--config", tmp_path / "run" / "config.yaml"]
        ended(*repeated, "--out", tmp_path / "again")
        assert len(own.requests) + len(shared.requests) == (3 + 3 + 1) * PROBLEMS
    # 4 of 6 problems each, 2 of them both: three of six attempts miss the others' once in 20 draws.
    assert "Models, M: served 66.7%, other 66.7%" in printed
    assert re.search(r"each at K=3: V [-+]?\d+\.\d .*, P \+30\.0 \(", printed)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    by_model = {each["name"]: each["usage"]["cost_usd"] for each in summary["mixing"]["models"]}
    assert by_model == {"served": 0.0, "other": 7.0 * 3 * PROBLEMS}
    assert summary["usage"]["thinking"]["cost_usd"] == 7.0 * 3 * PROBLEMS
    saved = load_config(tmp_path / "run" / "config.yaml")
    assert resolve(saved).config == saved
    for trace in read_traces(tmp_path / "again"):
        assert [each.model for each in trace.pool] == [*3 * ["served"], *3 * ["other"]]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--thinker=a,b,a"], "thinker names a twice"),
        (["--thinker=a=two,b"], "'a=two', which is not a model with a share"),
        (["--thinker=a,b,c", "--k=2"], "so c would write no trajectory"),
        (["--thinker=a,b", "--set=thinkers={c: {}}"], "the thinkers are a, b"),
        (["--set=cache.selection=each_model"], "all trajectories are by micro"),
        ([f"--thinker={MICRO},link"], "are both called teacher"),
    ],
)
def test_thinkers_that_cannot_share_are_refused(flags, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to(MICRO)
    assert said in ended("generate", *flags, "--teacher=micro", "--dry-run", code=2)


@pytest.mark.parametrize("verb", ["serve", "doctor"])
def test_other_commands_take_one_thinker(verb):
    told = ended(verb, "--thinker=micro,micro-student", "--deliberator=micro", code=2)
    assert "several thinkers" in told or "one thinker at a time" in told


def test_imported_models_are_compared_and_need_names(tmp_path):
    rows = [
        {"problem": f"What is {n}?", "gold": str(n), "solution": rf"\boxed{{{said}}}", "by": by}
        for n in range(3)
        for by, correct in (("strong", True), ("weak", n == 0))
        for said in [n if correct else 9] * 3
    ]
    for row in rows[-3:]:
        row["by"] = None
    columns = "text=problem,reference=gold,answers=solution,model=by"
    import_ = ["import", "--from=answers", f"--columns={columns}"]
    named = lines(tmp_path / "named.jsonl", *rows[:-6])
    printed = ended(*import_, named, "--out", tmp_path / "named", "--full")
    assert "Models, M: strong 100.0%, weak 50.0%" in printed
    assert "each at K=3: V " in printed
    assert "weak 50.0" in ended("show", tmp_path / "named")
    unnamed = lines(tmp_path / "unnamed.jsonl", *rows)
    said = "3 trajectories have no model's name"
    assert said in ended(*import_, unnamed, "--out", tmp_path / "unnamed")
    taken = ["generate", "--deliberator=micro", "--set=cache.selection=each_model", "--dry-run"]
    refused = ended(*taken, "--pools", tmp_path / "unnamed", code=2)
    assert "there are trajectories without a model's name" in refused
    ended(*taken, "--pools", tmp_path / "named", "--set=cache.width=2")
