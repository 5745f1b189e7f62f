"""Workers end with their owner, however that ends, and an interrupt leaves a pool whole."""

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from verdict_pools import LIMIT_S, OWN, SETTINGS, ends, problem, said, worker

from heavydistill.verifiers import workers
from heavydistill.verifiers.pool import VerdictPool

pytestmark = pytest.mark.usefixtures("known_here_alone")


SCRIPT = """
from heavydistill.config.run import Verifying
from heavydistill.schema import Problem
from heavydistill.verifiers.pool import VerdictPool

print("begins")
pool = VerdictPool(Verifying(own=[{own!r}], workers=2, timeout_s=60))
posed = Problem(id="p", text="?", reference="7", verifier="obedient")
print(pool.judge(posed, "7").verdict.label, *(
    pool.submit(Problem(id="p", text=str(n), reference="7", verifier="obedient"), "pid")
    .result().verdict.extracted for n in range(9)
), flush=True)
"""


def script(folder: Path, ending: str = "") -> subprocess.Popen[str]:
    path = folder / "unguarded.py"
    path.write_text(SCRIPT.format(own=OWN) + ending)
    return subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=folder,
    )


def test_a_script_without_a_guard_needs_none_and_need_not_close(tmp_path):
    out, err = script(tmp_path).communicate(timeout=LIMIT_S)
    begins, verdict = out.splitlines()
    assert (begins, verdict.split()[0], err) == ("begins", "correct", "")
    assert all(ends(int(pid)) for pid in verdict.split()[1:])


STUCK = """
for n in range(2):
    pool.submit(Problem(id="p", text="stuck", reference=str(n), verifier="obedient"), "hang in C")
print("stuck", flush=True)
"""


def stuck(folder: Path, then: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A script that does this once its workers are stuck, and their processes."""
    running = script(folder, f"{STUCK}\nimport time\n{then}")
    assert running.stdout
    running.stdout.readline()
    pids = [int(pid) for pid in running.stdout.readline().split()[1:]]
    assert running.stdout.readline() == "stuck\n"
    return running, pids


def test_workers_end_with_an_owner_that_is_killed(tmp_path):
    running, pids = stuck(tmp_path, "time.sleep(600)")
    time.sleep(0.5)
    running.kill()
    _, err = running.communicate(timeout=LIMIT_S)
    assert pids and all(ends(pid) for pid in pids)
    assert not err, "it left something to the system"


def test_an_interrupt_of_the_terminal_says_nothing_and_hangs_nothing(tmp_path):
    # Naps: Python looks for an interrupt before it goes to sleep and then lets others run, so that
    # one which comes in between waits for the end of the sleep.
    running, pids = stuck(tmp_path, "while True:\n    time.sleep(0.05)")
    os.killpg(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=LIMIT_S)
    assert all(ends(pid) for pid in pids)
    assert err.count("Traceback") == 1 and err.rstrip().endswith("KeyboardInterrupt"), err


def interrupted(call: Callable[[], object], at: int) -> bool:
    """Interrupt a call where Python looks for interrupts the n-th time; whether it came so far."""
    places = 0

    def look(frame: FrameType, event: str, arg: object) -> None:
        nonlocal places
        if event in ("call", "c_return"):  # a function begins, one of C has ended
            places += 1
            if places == at:
                raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def test_an_interrupt_anywhere_in_a_call_leaves_the_pool_as_good_as_new(pool):
    assert said(pool, "7") == ("correct", "told")
    at = 1
    while interrupted(functools.partial(pool.submit, problem(text=str(at)), "7"), at):
        assert said(pool, "7", text=str(at)) == ("correct", "told"), at
        at += 1
    assert at > 50
    assert len({worker(pool) for _ in range(4)}) <= 2
    before = time.monotonic()
    pool.close()
    assert time.monotonic() - before < LIMIT_S / 2


def test_a_future_that_an_interrupt_left_locked_does_not_hold_up_the_end(monkeypatch):
    monkeypatch.setattr(workers, "_MOST_CLOSE_S", 1.0)
    pool = VerdictPool(SETTINGS)
    said(pool, "7")
    future = pool.submit(problem(text="locked"), "hang")
    future._condition.acquire()
    time.sleep(0.5)
    before = time.monotonic()
    with pytest.warns(RuntimeWarning, match="they end with this process"):
        pool.close()
    assert time.monotonic() - before < LIMIT_S / 2
    future._condition.release()
