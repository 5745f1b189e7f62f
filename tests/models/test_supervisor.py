"""Nothing of a supervised command is left, however it ends and whatever it started."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heavydistill.models.vllm import supervisor

# A process that ignores SIGTERM, in a session of its own, left behind by who started it.
STUBBORN = """
import os, signal, subprocess, sys, time
child = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)'
middle = f'import subprocess, sys; subprocess.Popen([sys.executable, "-c", {child!r}, sys.argv[1]],'
middle += ' start_new_session=True)'
subprocess.run([sys.executable, '-c', middle, sys.argv[1]])
print('ready', flush=True)
"""
WAITS = STUBBORN + "time.sleep(600)\n"


def supervised(code: str, mark: str, grace_s: float = 0.5) -> subprocess.Popen[bytes]:
    """As in earnest but for the time that the command is given."""
    run = f"import sys; sys.path.insert(0, {str(Path(supervisor.__file__).parent)!r})\n"
    run += f"import supervisor; supervisor.GRACE_S = {grace_s}\n"
    run += "sys.exit(supervisor.main(sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-c", run, sys.executable, "-c", code, mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def alive(mark: str) -> int:
    lines = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            lines.append((folder / "cmdline").read_bytes())
        except OSError:
            continue
    return sum(mark.encode() in line for line in lines)


@pytest.fixture
def mark(tmp_path):
    return str(tmp_path)  # no other process has it


def ready(process: subprocess.Popen[bytes], mark: str) -> None:
    assert process.stdout and process.stdout.readline() == b"ready\n"
    assert alive(mark) == 3  # supervisor, command, and what the command left


@pytest.mark.parametrize("signum", [None, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_nothing_is_left_at_the_end_of_the_input_or_when_told(signum, mark):
    process = supervised(WAITS, mark)
    ready(process, mark)
    if signum:
        process.send_signal(signum)
        assert process.wait(timeout=300) == 128 + signal.SIGTERM
    else:
        process.communicate(timeout=300)
    assert alive(mark) == 0


def test_what_a_command_leaves_is_killed_at_once(mark):
    process = supervised(STUBBORN + "sys.exit(7)", mark, grace_s=600)
    assert process.wait(timeout=300) == 7
    assert alive(mark) == 0


def test_a_command_has_time_to_end_by_itself(mark):
    code = "import signal, sys, time\n"
    code += "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), sys.exit(3)))\n"
    code += "print('ready', flush=True)\ntime.sleep(600)"
    process = supervised(code, mark, grace_s=600)
    assert process.stdout and process.stdout.readline() == b"ready\n"
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=300) == 3 and time.monotonic() - started > 0.9


def test_the_signal_that_ended_a_command_is_told(mark):
    process = supervised("import os; os.kill(os.getpid(), 9)", mark)
    assert process.wait(timeout=300) == 128 + 9
