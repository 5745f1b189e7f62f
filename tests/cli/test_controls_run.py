"""Controls and crossings as a user runs them, with models that answer over real HTTP."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_line import run_command
from fake_server import Answer, completion, serving

import heavydistill
from heavydistill.config.run import load_config
from heavydistill.metrics.controls import CONTROLS, read_controlled
from heavydistill.metrics.crossing import CROSSING, read_crossing
from heavydistill.store.traces import read_traces

MICRO = Path(heavydistill.__file__).parent / "micro" / "teacher"


def answer(body: dict[str, Any]) -> Answer:
    """Models that think of an attempt by chance, and read caches each in its own way.

    As a chooser a model names the attempt that is right, if there is one; as a deliberator the one
    called ``first`` takes over what stands first, and any other one finds out what is right.
    """
    prompt = body["messages"][0]["content"]
    right = int(prompt.partition("What is ")[2].partition(" ")[0]) * 2
    attempts = prompt.split("==== Attempt ")[1:]
    if "Which attempt is the best" in prompt:
        named = [each for each in attempts if f"{{{right}}}" in each]
        return completion(rf"\boxed{{{named[0].split()[0]}}}" if named else "none of them")
    if attempts:
        first = attempts[0].partition("boxed{")[2].partition("}")[0]
        return completion(rf"\boxed{{{first if body['model'] == 'first' else right}}}")
    return completion(rf"\boxed{{{right + body['seed'] % 2}}}")


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    lines = [
        {"id": f"p{n}", "text": f"What is {n} + {n}?", "reference": f"{2 * n}"}
        for n in range(1, 13)
    ]
    file = tmp_path / "problems.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return file


def run(verb: str, url: str, problems: Path, *more: str) -> subprocess.CompletedProcess[str]:
    asked = [f"--endpoint={url}", f"--tokenizer={MICRO}", f"--problems={problems}", "--seed=3"]
    sizes = ["--k=3", "--d=2", "--set=cache.budget_tokens=900", "--set=endpoint.context=2048"]
    lengths = ["--set=think.sampling.max_tokens=64", "--set=deliberate.sampling.max_tokens=64"]
    return run_command(verb, *asked, *sizes, *lengths, *more)


@pytest.mark.timeout(600)
def test_an_evaluation_is_held_against_its_controls(problems: Path, tmp_path: Path) -> None:
    out = tmp_path / "x"
    asked = ["--teacher=first", "--controls=all", "--orders=3", f"--out={out}"]
    with serving(answer) as server:
        done = run("evaluate", server.base_url, problems, *asked)
    assert done.returncode == 0, done.stdout + done.stderr
    told = read_controlled(out / CONTROLS)
    assert [control.name for control in told.controls] == ["alone", "chain", "choose"]
    alone, chain, choose = (control.answering for control in told.controls)
    assert (alone.samples, chain.samples, choose.samples) == (24, 24, 24)
    assert told.heavy.tokens == 3 * 7 + 7 and alone.tokens == chain.tokens == 7

    # Whoever can name the right attempt is right whenever there is one.
    pools = {trace.problem.id: trace.pool for trace in read_traces(out / "after")}
    found = [any(one.is_correct for one in pool) for pool in pools.values()]
    assert 0 < sum(found) < len(found)
    assert choose.accuracy.mean == pytest.approx(sum(found) / len(found))
    assert choose.without_answer == 2 * (len(found) - sum(found))
    for trace in read_traces(out / "choose"):
        assert trace.pool == pools[trace.problem.id]
        assert all("boxed" in one.reasoning for one in trace.deliberations if one.is_correct)

    # Whoever takes over what stands first does something else in every other order.
    assert told.orders and told.orders.within and told.orders.within.mean == 0
    caches = [list(read_traces(out / name)) for name in ("after", "order-1", "order-2")]
    for orders in zip(*caches, strict=True):
        shown = [[item.generation for item in trace.caches[0].items] for trace in orders]
        assert shown[1] == [*shown[0][1:], shown[0][0]] and shown[2] == [*shown[1][1:], shown[1][0]]
    assert told.orders.flips and told.orders.flips.mean > 0
    assert load_config(out / "order-1" / "config.yaml").pools == str(out / "after")
    printed = " ".join(done.stdout.split())
    assert "3 orders of the same attempts" in printed and "Heavy adds" in printed
    assert "without an answer" in printed and "first answers alone, without attempts" in printed


@pytest.mark.timeout(600)
def test_every_thinker_is_crossed_with_every_deliberator(problems: Path, tmp_path: Path) -> None:
    out = tmp_path / "x"
    asked = ["--thinkers=first,other", "--deliberators=first,other", f"--out={out}"]
    with serving(answer) as server:
        done = run("cross", server.base_url, problems, *asked)
        thought = [body for body in server.requests if "Attempt" not in str(body["messages"])]
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(thought) == 2 * 12 * 3  # not again for the second deliberator
    table = read_crossing(out / CROSSING)
    means = {(c.thinker, c.deliberator): c.heavy_mean_at_d.mean for c in table.cells}
    assert means["first", "other"] == means["other", "other"] == 1.0
    assert means["first", "first"] < 1 and means["other", "first"] < 1
    printed = " ".join(done.stdout.split())
    assert "HM@2" in printed and f"Crossing: {out}" in printed
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == [
        "first+first",
        "first+other",
        "other+first",
        "other+other",
    ]


@pytest.mark.timeout(600)
def test_trajectories_alone_are_deliberated_later(problems: Path, tmp_path: Path) -> None:
    first, later = tmp_path / "first", tmp_path / "later"
    with serving(answer) as server:
        asked = "--teacher=other", "--d=0", f"--out={first}"
        done = run("generate", server.base_url, problems, *asked)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "no deliberations" in done.stdout and "HM@" not in done.stdout
        assert len(server.requests) == 36
        traces = list(read_traces(first))
        assert all(not trace.caches and not trace.deliberations for trace in traces)
        assert all(trace.stratum and len(trace.pool) == 3 for trace in traces)
        command = ["generate", f"--pools={first}", "--teacher=other", "--d=2"]
        command += [f"--endpoint={server.base_url}", f"--tokenizer={MICRO}", f"--out={later}"]
        command += ["--set=deliberate.sampling.max_tokens=64", "--set=endpoint.context=2048"]
        done = run_command(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    deliberated = list(read_traces(later))
    assert [trace.pool for trace in deliberated] == [trace.pool for trace in traces]
    assert all(one.is_correct for trace in deliberated for one in trace.deliberations)


def test_a_crossing_is_announced_with_the_names_of_its_models(
    problems: Path, tmp_path: Path
) -> None:
    """Square brackets are those of a name, which is not read as markup."""
    asked = ["--thinkers=x[v1],x[v2]", "--deliberators=r[v2]", f"--out={tmp_path / 'x'}"]
    done = run("cross", "http://localhost:9/v1", problems, *asked, "--dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "plan: x[v1] " in done.stdout and "plan: x[v2] " in done.stdout


def test_controls_that_are_not_are_refused(problems: Path, tmp_path: Path) -> None:
    done = run("evaluate", "http://localhost:9/v1", problems, "--teacher=x", "--controls=lone")
    assert done.returncode == 2 and "Choose of alone, chain, choose" in done.stderr
    done = run("cross", "http://localhost:9/v1", problems, "--thinkers=,", "--deliberators=x")
    assert done.returncode == 2 and "--thinkers names nobody" in done.stderr
