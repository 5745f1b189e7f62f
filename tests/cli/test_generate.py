"""``heavydistill generate`` and ``show`` as a user runs them."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import marked
import pytest
from command_line import run_command
from fake_server import FakeServer, completion, serving
from import_files import lines
from marked import MARK, eventually

from heavydistill.metrics.summary import summarize
from heavydistill.store.traces import read_traces

COMMAND = str(Path(sys.executable).parent / "heavydistill")
MICRO = str(Path(__file__).parents[2] / "heavydistill" / "micro" / "teacher")
GRACE_S = 20.0


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments)


def write_problems(path: Path, count: int = 4) -> Path:
    lines = [
        {"id": f"p{n}", "text": f"What is {n} + {n}?", "reference": str(2 * n)}
        for n in range(1, count + 1)
    ]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def of_server(url: str, problems: Path, out: Path) -> list[str]:
    return [
        "generate",
        "--teacher=served",
        f"--endpoint={url}",
        f"--tokenizer={MICRO}",
        f"--problems={problems}",
        f"--out={out}",
        "--k=3",
        "--d=2",
        "--set=endpoint.retries=0",
    ]


@pytest.fixture(scope="module")
def micro_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "micro"
    done = command("generate", "--limit=6", "--k=4", "--d=2", "--rounds=2", f"--out={out}")
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def test_the_micro_teacher_thinks_and_deliberates(micro_run, tmp_path):
    from datasets import load_dataset

    out, printed = micro_run
    traces = list(read_traces(out))
    assert len(traces) == 6
    for trace in traces:
        assert len(trace.pool) == 4
        assert [cache.round for cache in trace.caches] == [1, 2]
        assert len(trace.deliberations) == 4
        assert trace.stratum and trace.outcome
    assert "M@4" in printed and "HM@2" in printed and str(out) in printed
    saved = json.loads((out / "summary.json").read_text())
    assert saved["mean_at_k"]["mean"] == summarize(traces).mean_at_k.mean
    assert saved["statuses"] == {"ok": 6}
    dataset = load_dataset(str(out / "traces"), split="train", cache_dir=str(tmp_path))
    assert dataset.num_rows == 6
    assert dataset[0]["pool"][0]["verdict"]["verifier"].startswith("procedural@")
    problem = traces[1].problem
    shown = command("show", str(out), "--problem", problem.id)
    assert shown.returncode == 0
    assert problem.id in shown.stdout and problem.reference in shown.stdout
    assert command("show", str(out), "--problem", "none").returncode == 2


def test_the_saved_configuration_repeats_the_run(micro_run, tmp_path):
    out, _ = micro_run
    again = tmp_path / "again"
    done = command("generate", f"--config={out}/config.yaml", f"--out={again}")
    assert done.returncode == 0, done.stderr

    def texts(run: Path) -> list[list[str]]:
        return [[g.answer_text for g in (*t.pool, *t.deliberations)] for t in read_traces(run)]

    assert texts(again) == texts(out)


def test_dry_run_asks_nobody_and_writes_nothing(tmp_path):
    with serving(lambda body: completion("no")) as server:
        problems, out = write_problems(tmp_path / "p.jsonl"), tmp_path / "run"
        done = command(*of_server(server.base_url, problems, out), "--dry-run")
    assert done.returncode == 0 and not server.requests and not out.exists()
    told = " ".join(done.stdout.split())
    assert "thinking 12 " in told and "deliberating 8 " in told
    assert "What is 1 + 1?" in done.stdout


def test_failures_of_an_endpoint_are_records(tmp_path):
    """p1 is fine, p2 is refused always, p3 is cut off once, p4 returns its thinking apart."""

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        text = body["messages"][0]["content"]
        if "What is 2 + 2?" in text:
            return 400, {"error": {"message": "refused"}}
        if "What is 3 + 3?" in text and body["seed"] == min(seeds.setdefault(3, [body["seed"]])):
            return completion("half of", "length")
        if "What is 4 + 4?" in text:
            return completion("\\boxed{8}", reasoning_content="four and four")
        return completion(
            f"<think>hm</think>\\boxed{{{2 * int(text.split()[2])}}}"
            if "is 1" in text
            else "\\boxed{6}"
        )

    seeds: dict[int, list[int]] = {}
    out = tmp_path / "run"
    with serving(answer) as server:
        done = command(*of_server(server.base_url, write_problems(tmp_path / "p.jsonl"), out))
    traces = {trace.problem.id: trace for trace in read_traces(out)}
    assert done.returncode == 1, "one problem had no usable trajectory"
    assert "fewer than 2 usable" in done.stdout
    assert traces["p2"].status == "too_few_usable"
    assert all("refused" in (t.error or "") for t in traces["p2"].pool)
    assert sum(t.finish_reason == "length" for t in traces["p3"].pool) == 1
    assert traces["p3"].status == "ok" and len(traces["p3"].deliberations) == 2
    assert {t.reasoning for t in traces["p4"].pool} == {"four and four"}
    assert all(t.is_correct for t in traces["p4"].pool)
    # K means K: three requests with three seeds for each problem's thinking.
    thinking = [r for r in server.requests if "==== Attempt" not in r["messages"][0]["content"]]
    assert len(thinking) == 12
    assert len({(r["messages"][0]["content"], r["seed"]) for r in thinking}) == 12


LONG = json.dumps({"id": "a", "text": "x " * 4000, "reference": "1"})


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--problems=absent.jsonl"], "absent.jsonl"),
        (["--k=1"], "think.k"),
        (["--set=think.kk=4"], "Did you mean think.k?"),
        (["--teacher=micor"], "Did you mean micro"),
        (["--set=cache.budget_tokens=20"], "cache.budget_tokens"),
        (["--set=cache.budget_tokens=100000"], "cache.budget_tokens"),
        (["--problems=long.jsonl"], "problem a"),
    ],
)
def test_bad_input_is_told_before_anything_is_done(flags, said, tmp_path, call, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("long.jsonl").write_text(LONG)
    code, _, message = call("generate", "--out=run", *flags)
    assert code == 2
    assert said in message and "Traceback" not in message
    assert not Path("run").exists()


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    done = command("generate", f"--out={tmp_path}")
    assert done.returncode == 2 and "not empty" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


class Running:
    """A run against a server that never answers; its processes carry a mark."""

    def __init__(self, url: str, folder: Path, problems: int = 4) -> None:
        self.mark = uuid.uuid4().hex
        self.out = folder / "run"
        self.process = subprocess.Popen(
            [COMMAND, *of_server(url, write_problems(folder / "p.jsonl", problems), self.out)],
            env={**os.environ, MARK: self.mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def interrupt_again(self) -> None:
        """Ctrl-C while the run waits for the requests in flight."""
        time.sleep(3)
        self.process.send_signal(signal.SIGINT)

    def alive(self) -> list[int]:
        return marked.alive(self.mark)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_run(signum, tmp_path):
    with serving(lambda body: time.sleep(300) or completion("late")) as server:  # type: ignore[func-returns-value]
        run = Running(server.base_url, tmp_path)
        assert eventually(lambda: len(server.requests) > 0, 120), "the run has begun to ask"
        assert run.alive()
        run.process.send_signal(signum)
        if signum is signal.SIGINT:
            run.interrupt_again()
        printed, _ = run.process.communicate(timeout=GRACE_S)
        assert eventually(lambda: not run.alive(), GRACE_S), run.alive()
    assert not run.out.exists()
    if signum is not signal.SIGKILL:
        assert run.process.returncode == 130
        assert "Interrupted: nothing was finished" in printed and "Traceback" not in printed


def test_what_was_finished_before_an_interrupt_is_kept(tmp_path):
    """Of 20 problems, 16 are answered and the others hang."""

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        text = body["messages"][0]["content"]
        if any(f"What is {n} + {n}?" in text for n in range(17, 21)):
            time.sleep(300)
        return completion("\\boxed{2}")

    def deliberations() -> int:
        return sum("==== Attempt" in r["messages"][0]["content"] for r in server.requests)

    with serving(answer) as server:
        run = Running(server.base_url, tmp_path, problems=20)
        assert eventually(lambda: deliberations() == 32, 120), "the 16 have come through"
        time.sleep(5)
        run.process.send_signal(signal.SIGINT)
        run.interrupt_again()
        printed, _ = run.process.communicate(timeout=GRACE_S)
    assert run.process.returncode == 130
    assert f"what was finished is in {run.out}" in printed
    assert len(list(read_traces(run.out))) == 16
    assert json.loads((run.out / "summary.json").read_text())["missing"] == 4


OWN = Path(__file__).parents[1] / "verifiers" / "own_verifiers.py"


@pytest.mark.slow
def test_a_verifier_of_one_s_own_judges_in_workers_and_unfit_rows_are_left_out(tmp_path):
    references = ["2", "odd", "hang", "2", ""]
    rows = ({"text": f"What is {n}?", "reference": each} for n, each in enumerate(references))
    problems, out = tmp_path / "p.jsonl", tmp_path / "run"
    problems.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "mine.py").write_text(OWN.read_text(encoding="utf-8"), encoding="utf-8")
    settings = ["problems.verifier=obedient", "verify.timeout_s=1", "verify.workers=2"]
    answers = iter(["2", "hang", "crash"] * 100)
    with serving(lambda body: completion(next(answers), reasoning_content="so")) as server:
        flags = of_server(server.base_url, problems, out)
        flags += [f"--set={each}" for each in (*settings, f"verify.own=[{tmp_path}/mine.py]")]
        refused = command(*flags)
        assert refused.returncode == 2 and "3 of 5 rows cannot be used" in refused.stderr
        assert not server.requests
        done = command(*flags, "--set=problems.unfit=leave_out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Left out: 3 row(s)" in done.stdout and "p.jsonl:2: it is odd" in done.stdout
    traces = list(read_traces(out))
    assert [trace.problem.id for trace in traces] == ["p:1", "p:4"]
    found = {
        (g.answer_text, g.verdict.label, g.verdict.reason)
        for trace in traces
        for g in (*trace.pool, *trace.deliberations)
        if g.verdict
    }
    assert found == {
        ("2", "correct", "told"),
        ("hang", "undecided", "timeout"),
        ("crash", "undecided", "worker_died"),
    }
    summary = json.loads((out / "summary.json").read_text())
    assert summary["left_out"] == 3
    assert set(summary["trajectories"]["undecided_because"]) == {"timeout", "worker_died"}
    assert "Undecided trajectories: " in done.stdout
    again = ("replay", str(out), "--out", str(tmp_path / "again"))
    assert "add --run-verifiers" in command(*again).stderr
    replayed = command(*again, "--run-verifiers")
    assert replayed.returncode == 0, replayed.stderr
    assert list(read_traces(tmp_path / "again")) == traces


def test_a_verifier_that_cannot_judge_here_is_said_before_anything_is_asked(tmp_path):
    mine, problems = tmp_path / "mine.py", write_problems(tmp_path / "p.jsonl")
    mine.write_text(
        "from heavydistill.verifiers.exact import Exact\n"
        "class Absent(Exact):\n"
        "    name = 'absent'\n"
        "    def unavailable(self, config):\n"
        "        return 'it needs a sandbox; apt-get install one'\n"
    )
    flags = [f"--problems={problems}", "--set=problems.verifier=absent", f"--out={tmp_path}/run"]
    done = command("generate", "--dry-run", *flags, f"--set=verify.own=[{mine}]")
    assert done.returncode == 0, done.stderr
    assert "Warning: The verifier absent cannot judge here: it needs a sandbox" in done.stdout
    (tmp_path / "broken.py").write_text("1/0")
    broken = command("generate", "--dry-run", *flags, f"--set=verify.own=[{tmp_path}/broken.py]")
    assert broken.returncode == 2 and "ZeroDivisionError" in broken.stderr
    assert "Traceback" not in broken.stderr


ROOT = Path(__file__).parents[2]
RIGHT = ("12:15", "59", "3/28", "rythm", "No blip is a blap.", "all of the above", "Friday", "6")


def test_a_run_judges_letters_in_the_order_that_was_shown(tmp_path):
    """The server finds the right text among the options that it is shown, and hedges once."""

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        shown = re.findall(r"^([A-E])\) (.*)$", body["messages"][0]["content"], re.MULTILINE)
        letter = next(letter for letter, text in shown if text in RIGHT)
        if "Friday" in dict(shown).values():
            return completion("Answer: A or B")
        return completion(f"<think>hm</think>The answer is **({letter})**.")

    out = tmp_path / "run"
    with serving(answer) as server:
        done = run_command(
            *("generate", "--teacher=served", f"--endpoint={server.base_url}"),
            *(f"--tokenizer={MICRO}", f"--problems={ROOT / 'data' / 'choice.sample.jsonl'}"),
            *(f"--out={out}", "--k=2", "--d=1"),
        )
    assert done.returncode == 0, done.stderr
    assert (
        "Options in the order of the dataset, which they or the text speak of: 1 of 8"
        in done.stdout
    )
    traces = {trace.problem.id: trace for trace in read_traces(out)}
    assert len(traces) == 8
    for name, trace in traces.items():
        verdicts = [generation.verdict for generation in (*trace.pool, *trace.deliberations)]
        reasons = {verdict.reason for verdict in verdicts if verdict}
        assert reasons == ({"hedged"} if name == "choice-7" else {"equal"}), name
    orders = [json.loads(trace.problem.verifier_args)["order"] for trace in traces.values()]
    assert any(order != sorted(order) for order in orders)
    assert json.loads((out / "summary.json").read_text())["option_orders_kept"] == 1


@pytest.fixture
def printed_by(call):
    def printed(*arguments: object) -> str:
        code, out, _ = call(*arguments)
        assert not code
        return out

    return printed


def test_a_run_without_boxes_names_the_marker_and_the_short_prompts(printed_by, tmp_path):
    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        asked = re.search(r"What is (\d) \+ 2", body["messages"][0]["content"])
        assert asked
        return completion(f"I add them.\nAnswer: {int(asked[1]) + 2}")

    problems = [{"text": f"What is {n} + 2?", "reference": str(n + 2)} for n in range(4)]
    file = lines(tmp_path / "problems.jsonl", *problems)

    def generate(server: FakeServer, out: str, *more: str) -> str:
        return printed_by(
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
        (proposed,) = [line for line in said.splitlines() if line.startswith("To judge by")]
        marked = generate(server, "marked", *shlex.split(proposed)[-2:])
        assert len(server.requests) == asked, "all of it was in the journal"
    assert "no final answer" not in marked and "To judge by" not in marked
    summary = json.loads((tmp_path / "marked" / "summary.json").read_text(encoding="utf-8"))
    assert summary["mean_at_k"]["mean"] == 1.0 and summary["trajectories"]["unanswered"] == 0
    raw = json.loads((tmp_path / "raw" / "summary.json").read_text(encoding="utf-8"))
    assert raw["mean_at_k"]["mean"] == 0.0 and raw["trajectories"]["unanswered"] == 8
    assert raw["deliberations"]["unanswered_because"] == {"no_answer": 4}
