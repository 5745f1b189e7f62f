"""Thinkers that run code, over real HTTP and in the real sandbox."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import run_command, started
from fake_server import Answer, FakeServer, completion, serving

from heavydistill.schema import Trajectory
from heavydistill.store.traces import read_traces

Body = dict[str, Any]
MODEL = "caller"
FLAGS = ("--tools", "python", "--d", "0", "--k", "2", "--set", "endpoint.context=100000")
SERVER = ("--set", "endpoint.capabilities.tools=server")
FENCE = ("--set", "endpoint.capabilities.tools=fence")
ROUNDS = 50


def call(code: str, id: str = "c", name: str = "python") -> Body:
    arguments = json.dumps({"code": code})
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: Body, content: str = "") -> Answer:
    return completion(content, "tool_calls", tool_calls=[*calls])


def results(body: Body) -> list[str]:
    return [turn["content"] for turn in body["messages"] if turn["role"] == "tool"]


def counting(body: Body) -> Answer:
    """Adds one in each round, in the state of the interpreter, and answers with the sum."""
    if len(done := results(body)) == ROUNDS:
        return completion(f"\\boxed{{{done[-1]}}}")
    return calling(call("x = 1; x" if not done else "x += 1; x", f"c{len(done)}"))


def arguments(folder: Path, server: FakeServer, *more: object, name: str = "run") -> list[object]:
    file = folder / "problems.jsonl"
    file.write_text(json.dumps({"text": "How many?", "reference": str(ROUNDS)}) + "\n")
    at = ("--teacher", MODEL, "--endpoint", server.base_url, "--problems", file)
    return ["generate", *at, *FLAGS, "--out", folder / name, *more]


def pool(folder: Path, name: str = "run") -> list[Trajectory]:
    (trace,) = read_traces(folder / name)
    return trace.pool


def calling_server(answer: Callable[[Body], Answer]) -> Any:
    return serving(answer, (200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]}))


def content_of(one: Trajectory) -> object:
    """A trajectory without times, which differ from run to run."""
    turns = [(turn.role, turn.text, turn.calls, turn.result_of, turn.error) for turn in one.turns]
    return one.id, one.answer_text, one.seed, one.completion_tokens, turns


def test_a_kill_in_the_middle_of_fifty_rounds_and_a_replay_cost_nothing_twice(
    tmp_path: Path,
) -> None:
    with calling_server(counting) as server:
        whole = run_command(*arguments(tmp_path, server, *SERVER, "--journal", tmp_path / "other"))
        assert whole.returncode == 0, whole.stdout
        asked = len(server.requests)
        assert asked == 2 * (ROUNDS + 1)
        expected = [*map(content_of, pool(tmp_path))]
        assert [one.answer_text for one in pool(tmp_path)] == [f"\\boxed{{{ROUNDS}}}"] * 2
        assert {one.stopped for one in pool(tmp_path)} == {"answer"}

        killed = started(*arguments(tmp_path, server, *SERVER, name="killed"))
        while len(server.requests) < asked + ROUNDS:
            time.sleep(0.01)
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        again = run_command(*arguments(tmp_path, server, *SERVER, name="killed"))
        assert again.returncode == 0, again.stdout
        assert len(server.requests) <= 2 * asked + 2  # those in flight at the kill
        assert [*map(content_of, pool(tmp_path, "killed"))] == expected
    replayed = run_command("replay", tmp_path / "killed", "--out", tmp_path / "replayed")
    assert replayed.returncode == 0, replayed.stdout
    assert pool(tmp_path, "replayed") == pool(tmp_path, "killed")


ERRORS = [
    call("1 / 0", "a"),
    call("open", "b", name="browser"),
    {"id": "c", "type": "function", "function": {"name": "python", "arguments": "not json"}},
    call("import os; os._exit(3)", "d"),
    call("while True: pass", "e"),
]


def erring(body: Body) -> Answer:
    """Makes every error in turn, then two calls beside content, then answers."""
    done = len(results(body))
    if done < len(ERRORS):
        return calling(ERRORS[done])
    if done == len(ERRORS):
        return calling(call("y = 7; y", "f"), call("y + 1", "f"), content="Two at once.")
    return completion("\\boxed{50}")


def test_faulty_calls_are_answered_as_typed_errors_and_calls_beside_text_are_run(
    tmp_path: Path,
) -> None:
    with calling_server(erring) as server:
        limits = ("--set", "think.tools.python.seconds=1")
        done = run_command(*arguments(tmp_path, server, *SERVER, *limits))
    assert done.returncode == 0, done.stdout
    first, _ = pool(tmp_path)
    told = [turn for turn in first.turns if turn.role == "tool"]
    kinds = ["exception", "unknown_tool", "bad_arguments", "closed", "timeout", None, None]
    assert [turn.error for turn in told] == kinds
    assert [turn.text for turn in told[-2:]] == ["7", "8"]
    assert "ZeroDivisionError" in told[0].text and "only tool is python" in told[1].text
    assert first.reasoning == "Two at once." and first.answer_text == "\\boxed{50}"
    sent = server.requests[-1]["messages"]
    assert [turn["role"] for turn in sent[-3:]] == ["assistant", "tool", "tool"]
    told = "Errors of tools: 2 exception, 2 unknown_tool, 2 bad_arguments, 2 closed, 2 timeout"
    run_command("report", tmp_path / "run")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    for text in (done.stdout, run_command("show", tmp_path / "run").stdout, page):
        assert "Tools: 2 of 2 trajectories ran code" in text and told in " ".join(text.split())


def fencing(body: Body) -> Answer:
    """Writes a block, and invents its output, as a server does that ignores ``stop``."""
    outputs = [turn["content"] for turn in body["messages"][1:] if turn["role"] == "user"]
    if not outputs:
        return completion("I compute.\n```python\nx = 49\n```\n```output\n12\n```\n\\boxed{12}")
    if len(outputs) == 1:
        return completion("```python\nx + 1\n```")
    return completion(f"It is \\boxed{{{outputs[1].splitlines()[1]}}}.")


def test_a_model_without_tool_calls_writes_blocks(tmp_path: Path) -> None:
    with calling_server(fencing) as server:
        done = run_command(*arguments(tmp_path, server, *FENCE))
    assert done.returncode == 0, done.stdout
    first, _ = pool(tmp_path)
    assert first.is_correct and first.answer_text == "It is \\boxed{50}."
    assert "boxed{12}" not in first.turns_json
    asked = server.requests[-1]
    assert asked["stop"] == ["\n```output"] and "tools" not in asked
    assert "```output; then stop" in asked["messages"][0]["content"]
    assert asked["messages"][1]["content"] == "I compute.\n```python\nx = 49\n```"
    assert asked["messages"][-1]["content"] == "```output\n50\n```"


def test_a_model_that_calls_no_tool_is_told_of(tmp_path: Path) -> None:
    with calling_server(lambda _: completion("\\boxed{50}")) as server:
        done = run_command(*arguments(tmp_path, server, *SERVER))
    assert "Tools: none of 2 trajectories ran code" in done.stdout


def sleeping(body: Body) -> Answer:
    return calling(call("import time; time.sleep(1.1)"))


LIMITS = {
    "rounds": (counting, "think.tools.python.rounds=3", 3),
    "tokens": (counting, "think.sampling.max_tokens=21", 3),  # each response has 7
    "time": (sleeping, "think.tools.python={seconds: 1, total_seconds: 1}", 1),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_trajectory_ends_at_each_limit_and_is_not_shown(tmp_path: Path, limit: str) -> None:
    answer, assignment, rounds = LIMITS[limit]
    with calling_server(answer) as server:
        done = run_command(*arguments(tmp_path, server, *SERVER, "--set", assignment))
    assert done.returncode == 0, done.stdout
    first, _ = pool(tmp_path)
    assert (first.stopped, first.unusable_because) == (limit, "truncated")
    assert sum(turn.role == "tool" and turn.error != "rounds" for turn in first.turns) == rounds


@pytest.mark.parametrize(
    ("answer", "way"),
    [(counting, "server"), (fencing, "fence"), (lambda _: completion("7"), "none")],
)
def test_doctor_finds_how_a_model_calls_tools_and_the_run_obeys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[[Body], Answer], way: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with calling_server(answer) as server:
        words = arguments(tmp_path, server)
        run_command("doctor", *words[1:])
        (file,) = (tmp_path / "heavydistill" / "capabilities").iterdir()
        assert f"tools: {way}\n" in file.read_text()
        done = run_command(*words)
    assert done.returncode == (2 if way == "none" else 0), done.stdout + done.stderr


def test_a_restarted_interpreter_that_prints_something_else_is_recorded(tmp_path: Path) -> None:
    is_down = True

    def drawing(body: Body) -> Answer:
        done = results(body)
        if done and is_down:
            return 400, {"error": {"message": "no"}}
        if len(done) == 2:
            return completion("\\boxed{50}")
        return calling(call("import random; random.random()" if not done else "2 + 2"))

    with calling_server(drawing) as server:
        words = arguments(tmp_path, server, *SERVER, "--set", "endpoint.retries=0")
        run_command(*words)
        assert {one.failure for one in pool(tmp_path)} == {"rejected"}
        is_down = False
        again = run_command(*words)
    assert "2 nondeterministic" in again.stdout, again.stdout
    first, _ = pool(tmp_path)
    assert [turn.error for turn in first.turns if turn.role == "tool"] == [None, "nondeterministic"]


def test_what_cannot_work_is_said_before_the_run(tmp_path: Path) -> None:
    with calling_server(counting) as server:
        for more, said in {
            (): "doctor",
            ("--set", "endpoint.capabilities.tools=none"): "calls no tools",
            ("--set", "think.tools.python.rounds=0"): "at least 1",
            ("--set", "think.tools.python.total_seconds=1"): "less than seconds",
            (*SERVER, "--set", "verify.sandbox.memory_mb=99999999"): "memory",
            (*SERVER, "--batch"): "a batch takes hours",
            (*SERVER, "--thinker", "caller,other"): "only one could run code",
        }.items():
            done = run_command(*arguments(tmp_path, server, *more))
            assert done.returncode == 2 and said in done.stdout + done.stderr, done
        assert not server.requests
