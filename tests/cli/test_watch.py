"""``heavydistill watch`` beside real runs, one that is killed, and none at all."""

import dataclasses
import functools
import json
import os
import pty
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import COMMAND, run_command, served, started
from fake_server import FakeServer, completion, serving
from problem_files import doubles
from runs import write_run

from heavydistill.config.run import RunConfig
from heavydistill.metrics.summary import summarize
from heavydistill.models.resolve import resolve
from heavydistill.run.status import STATUS, StatusWriter, running
from heavydistill.store.atomic import Workplace
from heavydistill.store.traces import read_traces

PROBLEMS, K, D = 40, 4, 2


@pytest.fixture
def call(call: Any) -> Any:
    return functools.partial(call, "watch")


@pytest.fixture
def may_end() -> threading.Event:
    """Until then a run waits for the last answers, however slowly it is watched."""
    return threading.Event()


@pytest.fixture
def slow_server(may_end) -> Iterator[FakeServer]:
    """Answers after a while, wrong now and then, and refuses the third problem."""

    def answer(body: dict[str, Any]) -> Any:
        asked = re.search(r"What is (\d+) ", body["messages"][-1]["content"])
        number = int(asked[1]) if asked else 0
        time.sleep(0.2) if number < 30 else may_end.wait(600)
        if number == 2:
            return 400, {"error": {"message": "refused"}}
        said = 2 * number + (body["seed"] % 4 == 0)
        return completion(f"\\boxed{{{said}}}", reasoning_content="so it is")

    with serving(answer) as server:
        yield server


def generate(server: FakeServer, out: Path) -> list[str]:
    problems = doubles(out.parent, PROBLEMS, start=0)
    return [
        *("generate", *served(server.base_url, f"--problems={problems}", f"--k={K}", f"--d={D}")),
        *("--price-in=1", "--price-out=2", "--set=endpoint.concurrency=4", f"--out={out}"),
        # Few problems at a time, so that some are finished while others wait.
        *("--set=endpoint.retries=0", "--set=endpoint.capabilities.n=1"),
    ]


def await_finished(out: Path, problems: int, process: subprocess.Popen[str]) -> None:
    """Wait until so many problems are told to be finished."""
    latest = time.monotonic() + 300
    while time.monotonic() < latest and process.poll() is None:
        found = running(out)
        if found and found[1].finished >= problems:
            return
        time.sleep(0.1)
    raise AssertionError(f"no {problems} problems were finished in time")


def test_a_run_is_watched_killed_and_goes_on(slow_server, may_end, tmp_path, call):
    out = tmp_path / "run"
    process = started(*generate(slow_server, out), stdout=subprocess.DEVNULL)
    await_finished(out, 3, process)
    code, printed, _ = call(out)
    assert code == 0 and printed.isascii() and max(map(len, printed.splitlines())) <= 80
    assert printed.startswith("running for ")
    assert re.search(rf"\n\d+ of {PROBLEMS} problems finished\nthinking \d+/{PROBLEMS}", printed)
    assert re.search(r"thinking \d+/40, \d+ new samples", printed)
    assert re.search(r"problems a minute, \d+ tokens a second, about .* left\n", printed)
    assert re.search(r"\n\d requests, \d+ problems begun\n", printed)
    assert re.search(r"\n\d+ of \d+ samples \(\d+ rejected\) failed or cut off\n", printed)
    assert re.search(r"\n0\.\d\d USD\nso far M@4 [\d.]+%, HM@2 [\d.]+%\nK=4, D=2, served", printed)
    watching = Terminal(COMMAND, "watch", str(out))
    watching.await_text("running for")
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    code, printed, _ = call(out)  # nobody has waited for the process yet
    process.wait()
    assert code == 1 and printed.startswith("the process is gone after ")
    assert watching.exit_code() == 1 and "the process is gone after" in watching.printed
    assert re.search(r"last sign of life \d+ s ago\n\d+ of 40 problems finished", printed)
    assert printed.endswith("\nthe same command goes on from the journal\n")
    may_end.set()
    again = run_command(*generate(slow_server, out))
    assert again.returncode == 1, again.stderr  # one problem has too few usable trajectories
    code, printed, _ = call(out)
    assert code == 0 and f"is finished: {PROBLEMS} problems, 4 requests failed" in " ".join(
        printed.split()
    )


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, *command: str) -> None:
        self.pid, self._screen = pty.fork()
        if not self.pid:
            os.environ.update(TERM="xterm-256color", COLUMNS="100", LINES="40")
            os.execv(command[0], command)
        self.printed = ""

    def await_text(self, text: str) -> None:
        latest = time.monotonic() + 300
        while text not in self.printed:
            assert time.monotonic() < latest, self.printed
            self._read(1.0)

    def press_ctrl_c(self) -> None:
        os.write(self._screen, b"\x03")

    def exit_code(self) -> int:
        """Reads to the end, so that the command is never held up by a full screen."""
        while self._read(60.0):
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self, seconds: float) -> bool:
        if not select.select([self._screen], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self._screen, 65_536)
        except OSError:  # the command has ended
            return False
        self.printed += piece.decode(errors="replace")
        return bool(piece)


def test_ctrl_c_leaves_the_watch_and_not_the_run(slow_server, may_end, tmp_path):
    out = tmp_path / "run"
    process = started(*generate(slow_server, out), stdout=subprocess.DEVNULL)
    await_finished(out, 1, process)
    first = Terminal(COMMAND, "watch", str(out))
    first.await_text("problems begun")
    first.press_ctrl_c()
    assert first.exit_code() == 130 and "Traceback" not in first.printed
    assert process.poll() is None
    second = Terminal(COMMAND, "watch", str(out))
    second.await_text("problems begun")
    may_end.set()
    assert second.exit_code() == 0
    assert process.wait(300) == 1 and (out / "summary.json").is_file()
    assert "is finished: 40 problems" in " ".join(second.printed.split())


def test_a_run_that_never_was_is_an_error(tmp_path, call):
    code, printed, told = call(tmp_path / "none")
    assert code == 2 and not printed and "There is no run" in told and ".none.unfinished" in told
    (tmp_path / "mine").mkdir()
    assert call(tmp_path / "mine")[0] == 2
    (tmp_path / "mine" / "summary.json").write_text("{}", encoding="utf-8")
    code, _, told = call(tmp_path / "mine")
    assert code == 2 and "cannot be read: KeyError" in told


def test_a_run_that_was_broken_off_is_not_finished(tmp_path, call):
    run = write_run(tmp_path / "run", 5)
    summary = dataclasses.asdict(summarize(read_traces(run)))
    text = json.dumps(summary | {"missing": 7, "rejects": 0})
    (run / "summary.json").write_text(text, encoding="utf-8")
    code, printed, _ = call(run)
    assert code == 1 and "was interrupted: 5 problems, 7 problems" in " ".join(printed.split())


def test_a_run_that_asks_nobody_just_now_is_no_error(tmp_path, call, monkeypatch):
    monkeypatch.setattr("heavydistill.cli.inspect._PATIENCE_S", 0.0)
    with Workplace(tmp_path / "run").claimed():
        code, printed, _ = call(tmp_path / "run")
    assert code == 0 and "has begun and sends no request now" in " ".join(printed.split())


@pytest.fixture
def quiet(tmp_path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A run whose status the test writes, and one to begin with."""
    place = Workplace(tmp_path / "run")
    with place.claimed():
        run = resolve(RunConfig(teacher="micro"))
        yield (
            place.path / STATUS,
            dataclasses.asdict(StatusWriter(tmp_path / "x", run, 10, False).status()),
        )


def test_silence_is_told(quiet, tmp_path, call):
    file, said = quiet
    said["at"] -= 60
    file.write_text(json.dumps(said), encoding="utf-8")
    code, printed, _ = call(tmp_path / "run")
    assert code == 0 and re.match("no sign of life for [6-9][0-9] s\n0 of 10", printed)


def test_names_are_printed_as_they_stand(quiet, tmp_path):
    file, said = quiet
    said |= {"thinker": "[red]x[/red]\x1b[2J", "deliberator": "[link=a]y"}
    file.write_text(json.dumps(said), encoding="utf-8")
    watching = Terminal(COMMAND, "watch", str(tmp_path / "run"))
    watching.await_text("time left unknown")
    watching.press_ctrl_c()
    assert watching.exit_code() == 130
    assert r"[red]x[/red]\x1b[2J and [link=a]y" in watching.printed
    assert "\x1b[2J" not in watching.printed
