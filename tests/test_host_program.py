"""A program that calls the package keeps its own hooks, logging and signal handlers."""

import subprocess
import sys

import pytest

# What belongs to the program is noted before the package is imported, and compared after a run.
HOST = """
import logging, signal, sys, threading

def hook(*raised):
    sys.__excepthook__(*raised)


def on_signal(signum, frame): ...

class Shell:  # what rich changes in IPython
    _showtraceback = showtraceback = showsyntaxerror = hook

shell = Shell()
__builtins__.get_ipython = lambda: shell
sys.excepthook = threading.excepthook = hook
signal.signal(signal.SIGINT, on_signal)
signal.signal(signal.SIGTERM, on_signal)
logging.getLogger().addHandler(logging.StreamHandler(sys.stderr))
logging.getLogger("filelock").setLevel(logging.CRITICAL)
logging.getLogger().setLevel(logging.ERROR)

def state():
    return {
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook),
        "shell": dict(vars(shell)),
        "root": (logging.getLogger().level, list(logging.getLogger().handlers)),
        "logger": logging.getLogger("filelock").level,
        "signals": {each: signal.getsignal(each) for each in signal.valid_signals()},
        "streams": (sys.stdout, sys.stderr),
    }

before = state()
import heavydistill as hd

seen = []
result = hd.generate(
    {"teacher": "micro", "problems": {"limit": 2}, "think.k": 2, "deliberate.d": 1, "out": "run"},
    on_status=seen.append,
)
assert result.is_complete and seen[-1].finished == 2
changed = [what for what, value in state().items() if value != before[what]]
assert not changed, changed
"""


@pytest.mark.slow
def test_a_run_leaves_the_hooks_logging_and_signals_of_its_program(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", HOST], capture_output=True, text=True, cwd=tmp_path, timeout=600
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
