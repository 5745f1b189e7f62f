"""``heavydistill generate --pools``: deliberation on trajectories that are there already."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import run_command
from fake_server import FakeServer, completion, serving
from pool_folders import pool_folder, pool_of

from heavydistill.store.traces import read_traces

COMMAND = str(Path(sys.executable).parent / "heavydistill")
MICRO = str(Path(__file__).parents[2] / "heavydistill" / "micro" / "teacher")
TRACES = "traces/train-00000-of-00001.parquet"


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments)


def ran(*arguments: str) -> str:
    done = command(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def on_server(server: FakeServer, pools: Path, out: Path, *flags: str) -> list[str]:
    return [
        "generate",
        "--deliberator=served",
        f"--endpoint={server.base_url}",
        f"--tokenizer={MICRO}",
        f"--pools={pools}",
        f"--out={out}",
        "--d=2",
        "--set=endpoint.retries=0",
        *flags,
    ]


def is_deliberation(request: dict[str, Any]) -> bool:
    return "==== Attempt" in request["messages"][0]["content"]


@pytest.fixture(scope="module")
def student_run(tmp_path_factory):
    """The student thinks, the teacher deliberates."""
    out = tmp_path_factory.mktemp("runs") / "student"
    models = ["--thinker=micro-student", "--deliberator=micro"]
    ran("generate", *models, "--limit=3", "--k=8", "--d=2", f"--out={out}")
    return out


def test_a_teacher_deliberates_on_what_the_student_wrote(student_run):
    traces = list(read_traces(student_run))
    assert len(traces) == 3
    assert {t.model for trace in traces for t in trace.pool} == {"micro-student"}
    assert {d.model for trace in traces for d in trace.deliberations} == {"micro"}
    for trace in traces:
        (cache,) = trace.caches
        assert {item.generation for item in cache.items} == {t.id for t in trace.pool}
        assert len(trace.deliberations) == 2 and all(d.verdict for d in trace.deliberations)


def test_the_same_pools_and_deliberator_give_the_same_run_and_ask_nobody(student_run, tmp_path):
    flags = [f"--pools={student_run}", f"--journal={student_run.parent / 'journal'}", "--d=2"]
    told = ran("generate", *flags, "--deliberator=micro", f"--out={tmp_path}/run")
    assert "K=8 trajectories by micro-student" in told
    assert "Already billed, from the journal: 6 of 6 in deliberating" in told
    assert (tmp_path / "run" / TRACES).read_bytes() == (student_run / TRACES).read_bytes()
    usage = json.loads((tmp_path / "run" / "summary.json").read_text())["usage"]
    assert usage["thinking"]["requests"] == usage["thinking"]["completion"] == 0
    assert usage["deliberating"]["requests"] == 6


@pytest.fixture
def pools(tmp_path):
    """Of 6 problems, the last has one usable trajectory; verdicts of the first are an old one's
    and those of the second are missing."""
    traces = [pool_of(n, [f"{n}", "0", f"{n}"]) for n in range(1, 6)] + [pool_of(6, ["6", "", ""])]
    for index, verifier in enumerate(("exact@0", None)):
        pool = [
            dataclasses.replace(
                t,
                verdict=verifier
                and t.verdict
                and dataclasses.replace(t.verdict, label="undecided", verifier=verifier),
            )
            for t in traces[index].pool
        ]
        traces[index] = dataclasses.replace(traces[index], pool=pool)
    return pool_folder(tmp_path / "pools", traces)


def test_pools_of_an_import_are_deliberated_and_nobody_is_asked_to_think(pools, tmp_path):
    (pools / "import.json").write_text("{}")
    out = tmp_path / "run"
    with serving(lambda body: completion("\\boxed{3}", reasoning_content="so")) as server:
        done = command(*on_server(server, pools, out, "--price-in=1", "--price-out=1"))
        assert done.returncode == 1, "one problem has too few usable trajectories"
        assert "fewer than 2 usable" in done.stdout
        assert len(server.requests) == 5 * 2 and all(map(is_deliberation, server.requests))
        again = tmp_path / "again"
        replayed = command("replay", str(out), f"--out={again}")
        assert replayed.returncode == 1
        # Nothing is lacking that could be asked again.
        repeated = command(*on_server(server, pools, out, "--price-in=1", "--price-out=1"))
        assert repeated.returncode == 2 and "is not empty" in repeated.stderr
        assert len(server.requests) == 10
    assert (out / TRACES).read_bytes() == (again / TRACES).read_bytes()
    assert (out / "summary.json").read_text() == (again / "summary.json").read_text()
    for told in (done.stdout, replayed.stdout):
        assert "Judged again: 3 trajectories" in told and "Judged now: 3 trajectories" in told
    theirs, ours = list(read_traces(pools)), list(read_traces(out))
    assert [trace.problem for trace in ours] == [trace.problem for trace in theirs]
    assert [t.answer_text for trace in ours for t in trace.pool] == [
        t.answer_text for trace in theirs for t in trace.pool
    ]
    assert {trace.thinker_prompt_version for trace in ours} == {"thinker.of-another"}
    labels = [[t.verdict.label for t in trace.pool if t.verdict] for trace in ours]
    assert labels[:5] == [["correct", "incorrect", "correct"]] * 5
    assert [trace.status for trace in ours] == ["ok"] * 5 + ["too_few_usable"]
    assert [trace.outcome for trace in ours[:3]] == ["overturned", "overturned", "kept"]
    usage = json.loads((out / "summary.json").read_text())["usage"]
    assert (usage["thinking"]["requests"], usage["thinking"]["cost_usd"]) == (0, 0.0)
    assert usage["deliberating"]["cost_usd"] == pytest.approx(10 * 18 / 1e6)


def test_a_dry_run_tells_of_deliberations_alone_and_ask_nobody(pools, tmp_path):
    with serving(lambda body: completion("no")) as server:
        _, *flags = on_server(server, pools, tmp_path / "run", "--limit=4")
        dry = ran("generate", *flags, "--dry-run")
        assert not server.requests
    unfolded = " ".join(dry.split())
    assert "4 problems, K=3 trajectories by somebody" in unfolded
    assert "deliberating 8 " in unfolded and "thinking" not in dry
    assert f"pools: {pools}" in dry and "first prompt" not in dry
    assert not (tmp_path / "run").exists()


def test_an_interrupted_run_goes_on_with_the_same_command(tmp_path):
    pools = pool_folder(tmp_path / "many", [pool_of(n, [f"{n}", "0"]) for n in range(40)])

    def unhurried(body: dict[str, Any]) -> Any:
        time.sleep(1.0)
        return completion("\\boxed{1}")

    with serving(unhurried) as server:
        flags = on_server(server, pools, tmp_path / "run", "--set=endpoint.concurrency=8")
        process = subprocess.Popen(
            [COMMAND, *flags], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        while len(server.requests) < 24:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == 130 and "same command goes on" in printed
        assert len(server.requests) < 80
        ran(*flags)
        assert len(server.requests) == 80 and all(map(is_deliberation, server.requests))
    assert [trace.problem.id for trace in read_traces(tmp_path / "run")] == [
        f"p{n}" for n in range(40)
    ]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--pools={folder}/none"], "not the folder of a finished run"),
        (["--pools={pools}", "--thinker=micro"], "thinker has no effect with pools"),
        (["--pools={pools}", "--problems=gym:gcd"], "problems (but for its limit) has no effect"),
        (["--pools={pools}", "--k=8"], "cache.width"),
        (["--pools={pools}", "--out={pools}"], "is not empty"),
    ],
)
def test_contradictions_are_told_before_anything_is_done(flags, said, pools, tmp_path, call):
    before = (pools / TRACES).read_bytes()
    given = [flag.format(folder=tmp_path, pools=pools) for flag in flags]
    code, _, message = call("generate", "--deliberator=micro", f"--out={tmp_path}/run", *given)
    assert code == 2
    assert said in message and "Traceback" not in message
    assert not (tmp_path / "run").exists()
    assert (pools / TRACES).read_bytes() == before
