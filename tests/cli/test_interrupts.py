"""Ctrl-C at chosen moments of a start: exit code 130, no traceback, nothing left.

The moment is the first import of a module, in whichever process of the command that happens: it
sends SIGINT to the whole process group, as a terminal does. ``benchmarks/interrupts.py`` sweeps
over seconds instead.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run_command
from set_folders import write_sets

from heavydistill.run import interrupts
from heavydistill.run.interrupts import loading

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
GENERATE = [str(BIN / "heavydistill"), "generate", "--k=2", "--d=1", "--limit=4", "--out=run"]
EVALUATE = [str(BIN / "heavydistill"), "evaluate", "--thinker=micro", "--deliberator=micro"]
EVALUATE += ["--before=micro-student", "--k=2", "--d=1", "--limit=4", "--out=evaluation"]
SFT = [sys.executable, str(ROOT / "scripts" / "sft.py"), "--dataset_name=sets"]
SFT += [f"--config={ROOT / 'configs' / 'sft' / 'micro.yaml'}", "--role=thinker"]
INTERRUPTING = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPT_AT"]:
            try:
                open(os.environ["INTERRUPT_ONCE"], "x").close()
            except FileExistsError:
                return
            os.killpg(0, signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
"""


def interrupted(command: list[str], module: str, folder: Path) -> str:
    """What a command prints that is interrupted when a module is imported."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(INTERRUPTING, encoding="utf-8")
    once = folder / "sent"
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ
        | {"PYTHONPATH": str(folder / "site"), "INTERRUPT_AT": module, "INTERRUPT_ONCE": str(once)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=800,
        start_new_session=True,
    )
    assert once.exists(), f"{module} was not imported: {done.stdout}"
    assert done.returncode == 130 and done.stdout.count("Interrupted") == 1, done.stdout
    for trace in ("Traceback", "Exception ignored", "KeyboardInterrupt"):
        assert trace not in done.stdout, done.stdout
    return done.stdout


@pytest.mark.parametrize(
    ("command", "module"),
    [
        (GENERATE, "yaml"),  # before the command line is there
        (SFT, "pydantic"),
        (GENERATE, "heavydistill.run.runner"),
        *(
            pytest.param(command, module, marks=pytest.mark.slow)
            for command, module in (
                (GENERATE, "heavydistill.run.generate"),
                (GENERATE, "distilabel"),
                (GENERATE, "heavydistill.models.local.decoding"),  # a model of a step writes
                (EVALUATE, "heavydistill.experiments.evaluation"),
                (EVALUATE, "heavydistill.run.runner"),
                (SFT, "torch"),
                (SFT, "trl"),
            )
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value[1].rpartition("/")[2],
)
def test_an_interrupt_at_a_stage_of_a_start(command, module, tmp_path):
    write_sets(tmp_path / "sets")
    interrupted(command, module, tmp_path)
    assert not list(tmp_path.glob(".*.unfinished"))


def test_an_interrupt_while_the_command_line_is_made_from_its_verbs():
    code = (
        "import os, signal, sys, typer.main\n"
        "make = typer.main.get_command\n"
        "def interrupted(app):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return make(app)\n"
        "typer.main.get_command = interrupted\n"
        "from heavydistill.cli.app import main\n"
        "sys.argv = ['heavydistill', '--version']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")


def test_an_interrupt_of_a_check_is_told(monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("heavydistill.run.generate.check", interrupted)
    done = run_command("generate", "--limit=2")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")


@pytest.fixture
def restored():
    """Gives this process the default handler of Ctrl-C, and its own one back at the end."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_whoever_handles_ctrl_c_or_ignores_it_keeps_to_that(restored):
    for own in (signal.SIG_IGN, lambda signum, frame: None):
        signal.signal(signal.SIGINT, own)
        with interrupts.ending_at_once():
            assert signal.getsignal(signal.SIGINT) is own
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with interrupts.ending_at_once():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("is_ignored", [False, True])
def test_a_lost_terminal_is_an_interrupt_unless_the_command_was_started_with_nohup(is_ignored):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    try:
        expected = contextlib.nullcontext() if is_ignored else pytest.raises(KeyboardInterrupt)
        with expected, interrupts.as_exceptions():
            signal.raise_signal(signal.SIGHUP)
        handler = signal.SIG_IGN if is_ignored else signal.SIG_DFL
        assert signal.getsignal(signal.SIGHUP) is handler
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("lines", [1, 3])
def test_a_command_whose_output_nobody_reads_says_why_it_stops(tmp_path, lines):
    with subprocess.Popen(
        [GENERATE[0], "generate", "--dry-run"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        for _ in range(lines):
            command.stdout.readline()
        command.stdout.close()
        said = command.stderr.read()
    assert command.returncode == 1
    assert (
        said.startswith("Stopped, because the program that reads the output") and "> FILE" in said
    )


def test_an_interrupt_is_one_whatever_a_library_makes_of_it(restored):
    def wrapped() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise RuntimeError("Error calling __set_name__") from error

    def lost() -> None:
        with contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    for library in (wrapped, lost):
        with pytest.raises(KeyboardInterrupt), interrupts.recognized():
            library()
        with pytest.raises(KeyboardInterrupt), loading():
            library()
    with pytest.raises(ValueError, match="its own"), interrupts.recognized():
        raise ValueError("its own")
    with interrupts.recognized():
        pass
    assert signal.getsignal(signal.SIGINT) is before
