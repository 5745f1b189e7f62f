"""Pools of workers with the verifier of ``own_verifiers``, and what they say, for tests."""

import time
from pathlib import Path

from heavydistill.config.run import Verifying
from heavydistill.schema import Problem
from heavydistill.verifiers.pool import VerdictPool

OWN = str(Path(__file__).parent / "own_verifiers.py")
SETTINGS = Verifying(own=[OWN], workers=2, timeout_s=1.0, memory_mb=1024)
LIMIT_S = 60.0  # of any wait, on a busy machine


def problem(reference: str = "7", verifier: str = "obedient", **fields: str) -> Problem:
    posed = {"id": "p", "text": "?", "reference": reference, "verifier": verifier}
    return Problem(**(posed | fields))


def said(pool: VerdictPool, answer: str, **fields: str) -> tuple[str, str]:
    verdict = pool.submit(problem(**fields), answer).result(LIMIT_S).verdict
    return verdict.label, verdict.reason


def worker(pool: VerdictPool, of: str = "obedient") -> int:
    """The process of a worker."""
    posed = problem(verifier=of, text=str(time.monotonic_ns()))
    return int(pool.submit(posed, "pid").result(LIMIT_S).verdict.extracted or 0)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def ends(pid: int) -> bool:
    deadline = time.monotonic() + LIMIT_S
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_alive(pid)
