"""Verifiers of a user's own, as ``verify.own`` names them: one that does to its worker what the
response says, and one that cannot be prepared."""

import ctypes
import os
import sys
import time

from heavydistill.config.run import Verifying
from heavydistill.schema import Problem
from heavydistill.verifiers.base import Decision, Verifier


class OddlyMade(Exception):
    """As some libraries have them: it cannot be made again from what it was made of."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)


def hang() -> None:
    while True:
        pass


def eat() -> None:
    eaten = []
    while True:
        eaten.append(bytes(10**8))


def oddly() -> None:
    raise OddlyMade("a", "b")


def nested() -> None:
    def deeper(depth: int) -> int:
        return deeper(depth + 1) + 1

    deeper(0)


def flood() -> None:
    os.write(1, b"x" * 10**7)
    os.write(2, b"x" * 10**7)
    print("x" * 10**6, file=sys.stderr, flush=True)


DEEDS = {
    "hang": hang, "hang in C": lambda: 9**9**9, "crash": lambda: ctypes.string_at(0),
    "abort": os.abort, "be killed": lambda: os.kill(os.getpid(), 9),
    "want much at once": lambda: bytes(10**12), "want ever more": eat,
    "raise": lambda: {}["nothing"], "raise oddly": oddly, "leave": sys.exit, "recurse": nested,
    "flood": flood, "read": lambda: sys.stdin.read(), "sleep": lambda: time.sleep(0.3),
}  # fmt: skip
# For those that are to be told from what the text says.
STRANGE = {
    "say nothing": None,
    "say much": Decision("correct", "equal", evidence="x" * 10**7),
    "say a number": Decision("correct", "equal", extracted=7),  # type: ignore[arg-type]
    "say perhaps": Decision("perhaps", "equal"),  # type: ignore[arg-type]
    "say half": Decision("correct", "equal", extracted="\ud800"),
}


class Obedient(Verifier):
    """Correct is the reference; what is a deed is done first."""

    name = "obedient"
    version = "1"

    def extract(self, problem: Problem, text: str) -> str | Decision:
        return text.strip()

    def decide(self, problem: Problem, candidate: str) -> Decision:
        if candidate in DEEDS:
            DEEDS[candidate]()
        if candidate in STRANGE:
            return STRANGE[candidate]  # type: ignore[return-value]
        if candidate == "pid":
            return Decision("correct", "pid", str(os.getpid()))
        if candidate == "environment":
            return Decision("correct", "threads", os.environ.get("OMP_NUM_THREADS"))
        is_right = candidate == problem.reference
        return Decision("correct" if is_right else "incorrect", "told", candidate)

    def check_reference(self, problem: Problem) -> str | None:
        if problem.reference in DEEDS:
            DEEDS[problem.reference]()
        return "it is odd; leave it out" if problem.reference == "odd" else None

    def limit_s(self, problem: Problem, config: Verifying) -> float:
        return float("nan") if problem.verifier_args == "[]" else config.timeout_s


class Slow(Obedient):
    """Takes longer to prepare than a verdict may take."""

    name = "slow"

    def prepare(self, config: Verifying) -> None:
        time.sleep(1.5)


class Unprepared(Obedient):
    name = "unprepared"

    def prepare(self, config: Verifying) -> None:
        raise ImportError("it needs what is not here")


class Stillborn(Obedient):
    name = "stillborn"

    def prepare(self, config: Verifying) -> None:
        os.abort()


class Endless(Obedient):
    name = "endless"

    def prepare(self, config: Verifying) -> None:
        hang()


class Hasty(Obedient):
    """Gives no label, from either of its methods, in the run's own process."""

    name = "hasty"
    runs_in = "here"

    def extract(self, problem: Problem, text: str) -> str | Decision:
        return Decision(text, "told") if text == "7" else text  # type: ignore[arg-type]

    def decide(self, problem: Problem, candidate: str) -> Decision:
        return Decision(candidate, "told")  # type: ignore[arg-type]
