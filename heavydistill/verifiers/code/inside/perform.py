"""Runs one program against all its tests, in the sandbox.

For every test the program starts again, in a new module and with the original builtins, recursion
limit and standard streams. All tests run in one process, so changes in imported modules, running
threads and files in the working folder are not reset.

Reports, by letter: ``B`` a test begins, with the milliseconds of processor time so far; then one of
``V`` the value (for a program that reads stdin, the printed text), ``E`` the exception as JSON
``[type, missing module]``, ``X`` an exit with a refused status, ``S`` too much processor time,
``N`` a value that cannot be encoded, ``L`` a value or output that is too large. ``P`` means that
the program does not compile, ``T`` that no time is left for this test.

The program shares the process with this code and may change it. It cannot learn the expected
values, so a forged report is just another answer.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # without the enums of signal
import _thread
import builtins
import ctypes
import posix
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from heavydistill.verifiers.code.inside.serialize import (
    EncodeError,
    TooLarge,
    decode,
    encode,
    report,
)

_MODULE = "answer"
_leave = posix._exit
_MOST_SLOW = 2
_WIDEST = 6  # maximum JSON characters per byte of text
_MOST_STACK = 64 << 20  # bytes; programs reserve more address space than they use
_AGAIN_S = 0.05  # seconds of processor time between two signals of the timer
_MOST_RINGS = 10
_KILL_S = 0.5  # seconds of processor time that a program has after SIGXCPU
_CLOCK_PROCESS_CPUTIME_ID, _SIGEV_SIGNAL = 2, 0
# Called by syscall number, because older C libraries have these functions in a separate library.
_TIMER_CALLS = {"x86_64": (222, 223), "aarch64": (107, 110)}


class CpuTimeExceeded(BaseException):
    """A test has used up its processor time."""


class Timer:
    """Sends a signal to this process after a given processor time of all its threads.

    The time is measured as by ``time.process_time``. System limits and ``setitimer`` count in
    ticks, which on a busy machine may include the time of other processes.
    """

    def __init__(self, number: int) -> None:
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        create, self._settime = _TIMER_CALLS[posix.uname().machine]
        event = (ctypes.c_int * 16)(0, 0, number, _SIGEV_SIGNAL)  # struct sigevent
        self._id = ctypes.c_int()
        self._call(create, _CLOCK_PROCESS_CPUTIME_ID, event, ctypes.byref(self._id))

    def set(self, after_s: float, again_s: float = 0.0) -> None:
        """Send the signal after ``after_s`` seconds (0: never), then every ``again_s`` seconds."""
        parts = [divmod(int(seconds * 1e9), 10**9) for seconds in (again_s, after_s)]
        times = (ctypes.c_long * 4)(*parts[0], *parts[1])  # struct itimerspec
        self._call(self._settime, self._id, 0, times, None)

    def _call(self, *args: object) -> None:
        if self._syscall(*args):
            raise OSError(ctypes.get_errno(), "a timer of processor time is refused")


class Clock:
    """Ends a test that has used up its processor time.

    At ``test_s`` it raises an exception, and ends the process if the program catches that. A long
    call into C code cannot be interrupted by an exception, so the system ends the process at
    ``end_s`` with SIGXCPU, and soon after with SIGKILL, which cannot be ignored.

    A program that stops these timers on purpose can use the processor time of all tests together.
    """

    def __init__(self, test_s: float, end_s: float, total_s: float) -> None:
        self._test_s, self._end_s, self._total_s = test_s, end_s, total_s
        self._rings = -1
        self._last_words: Callable[[], None] = lambda: None
        self._timers = [Timer(n) for n in (_signal.SIGPROF, _signal.SIGXCPU, _signal.SIGKILL)]

    def spent(self) -> bool:
        return time.process_time() >= self._total_s

    def start(self, last_words: Callable[[], None]) -> None:
        """Start the clock for a test; ``last_words`` is called before the process ends."""
        self._rings, self._last_words = 0, last_words
        _signal.signal(_signal.SIGPROF, self._ring)
        ring, end, kill = self._timers
        kill.set(self._end_s + _KILL_S)
        end.set(self._end_s)
        ring.set(self._test_s, _AGAIN_S)

    def stop(self) -> None:
        self._rings = -1
        for timer in self._timers:
            timer.set(0)
        # The program may have changed the signal handlers.
        _signal.setitimer(_signal.ITIMER_PROF, 0)
        _signal.alarm(0)

    def _ring(self, *_: object) -> None:
        if self._rings < 0:
            return
        self._rings += 1
        # Raised only once, because a second exception could hit the code around the program.
        if self._rings == 1:
            raise CpuTimeExceeded
        if self._rings > _MOST_RINGS:
            self._last_words()
            _leave(0)


class Stage:
    """Saved state of the process, restored at the beginning of each test."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self._builtins = dict(vars(builtins))
        self._recursion = sys.getrecursionlimit()
        self._nothing = posix.open("/dev/null", posix.O_RDWR)
        self._modules: list[object] = []

    def module(self, name: str) -> dict[str, Any]:
        """Reset the process and return the namespace of a new module."""
        names = vars(builtins)
        names.clear()
        names.update(self._builtins)
        if "/dev/stdin" in self.job["program"]:
            names["open"] = self._open
        sys.setrecursionlimit(self._recursion)
        sys.settrace(None)
        sys.setprofile(None)
        sys.argv[:] = ["main.py"]
        if "random" in self.job["program"] or "random" in self.job["prelude"]:
            import random

            random.seed(0)
        module = type(sys)(name)
        sys.modules[name] = module
        # A module clears its namespace when it is garbage-collected.
        self._modules.append(module)
        return vars(module)

    def _open(self, file: object, *args: object, **kwargs: object) -> object:
        """Replacement for ``open``: ``/dev/stdin`` opens the input of this test."""
        open_ = self._builtins["open"]
        if file == "/dev/stdin":
            return open_(0, *args, **kwargs, closefd=False)
        return open_(file, *args, **kwargs)

    def streams(self, stdin: int, stdout: int) -> None:
        """Connect the standard streams to these file descriptors."""
        for target, source in enumerate((stdin, stdout, self._nothing)):
            posix.dup2(source, target)
        text: dict[str, Any] = {"encoding": "utf-8", "errors": "surrogateescape", "closefd": False}
        sys.stdin = sys.__stdin__ = self._builtins["open"](0, **text)  # type: ignore[misc]
        sys.stdout = sys.__stdout__ = self._builtins["open"](1, "w", **text)  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = self._builtins["open"](2, "w", **text)  # type: ignore[misc]

    def quiet(self) -> None:
        """Make standard input empty and discard standard output and error."""
        self.streams(self._nothing, self._nothing)


def perform(job: dict[str, Any]) -> None:
    """Run all tests of a job and report them.

    Args:
        job: ``token``; ``program``, the source; ``prelude`` and ``after``, code run before and
            after it; ``kind`` and ``tests``; ``any_status``, whether a program that reads stdin
            may end with any exit status; ``test_s``, ``end_s``, ``total_s`` (see ``Clock``);
            ``most``, maximum characters of a value or bytes of an output.
    """
    token, channel = job["token"], posix.dup(1)
    # The interpreter defines these builtins only when it starts with ``site``.
    vars(builtins).update(exit=_exit, quit=_exit)
    stage = Stage(job)
    clock = Clock(job["test_s"], job["end_s"], job["total_s"])
    stage.quiet()
    # Programs may end with ``os._exit``; this makes it end the test instead of the process.
    posix._exit = _exit
    if "os" in sys.modules:
        sys.modules["os"]._exit = _exit  # type: ignore[attr-defined]
    # Thread stacks then fit in the memory limit, whatever size programs request.
    of_threads = _thread.stack_size
    _thread.stack_size = lambda size=0: of_threads(min(size, _MOST_STACK))
    try:
        code = compile(job["program"], "<answer>", "exec", dont_inherit=True)
    except BaseException as error:
        report(channel, token, 0, "P", _told(error))
        return
    one = _one_run if job["kind"] == "stdio" else _one_call
    slow = 0
    for index, test in enumerate(job["tests"]):
        if clock.spent():
            report(channel, token, index, "T")
            break
        report(channel, token, index, "B", b"%d" % (1000 * time.process_time()))
        letter, payload = _timed(
            clock,
            lambda test=test: one(stage, code, test),  # type: ignore[misc]
            lambda index=index: report(channel, token, index, "S"),  # type: ignore[misc]
        )
        stage.quiet()
        report(channel, token, index, letter, payload)
        slow += letter == "S"
        if slow == _MOST_SLOW or (letter == "S" and _thread._count()):
            # A program that loops in one test does so in most tests, and its threads cannot be
            # stopped.
            break
    _leave(0)


def _exit(status: object = None) -> NoReturn:
    raise SystemExit(status)


def _timed(
    clock: Clock, one: Callable[[], tuple[str, bytes]], last_words: Callable[[], None]
) -> tuple[str, bytes]:
    """Run one test and return its report, whatever the program does."""
    try:
        clock.start(last_words)
        try:
            return one()
        finally:
            clock.stop()
    except CpuTimeExceeded:
        return "S", b""
    except SystemExit:
        return "X", b""
    except EncodeError:
        return "N", b""
    except TooLarge:
        return "L", b""
    except BaseException as error:
        return "E", _told(error)


def _told(error: BaseException) -> bytes:
    """The type of an exception and the missing module, if any, as JSON."""
    is_missing = isinstance(error, ModuleNotFoundError) and isinstance(error.name, str)
    missing = str(error.name)[:100] if is_missing else ""  # type: ignore[attr-defined]
    try:
        return encode([type(error).__name__[:100], missing], 2000).encode()
    except BaseException:
        return b'["l","?",""]'


def _one_call(stage: Stage, code: Any, test: dict[str, Any]) -> tuple[str, bytes]:
    """Run one call and return its report."""
    module = stage.module(_MODULE)
    job = stage.job
    exec(job["prelude"], module)
    exec(code, module)
    exec(job["after"], module)
    if "source" in test:
        value = eval(test["source"], module)
    else:
        args, kwargs = decode(test["args"]), decode(test["kwargs"])
        value = _entry(module, test["entry"])(*args, **kwargs)
        if test.get("returns_args"):
            value = (value, args)
    return "V", encode(value, job["most"]).encode()


def _entry(there: dict[str, Any], path: str) -> Any:
    """The function named ``path`` in the module, or in an instance of ``Solution``."""
    first, _, method = path.partition(".")
    if method:
        return getattr(there[first](), method)
    if first not in there and "Solution" in there:
        return getattr(there["Solution"](), first)
    if first not in there:
        raise NameError(first)
    return there[first]


def _one_run(stage: Stage, code: Any, text: str) -> tuple[str, bytes]:
    """Run the program with ``text`` as standard input and return the report."""
    stdin, stdout = _unnamed("in"), _unnamed("out")
    try:
        rest = text.encode()
        while rest:
            rest = rest[posix.write(stdin, rest) :]
        posix.lseek(stdin, 0, 0)
        stage.streams(stdin, stdout)
        _run_to_its_end(stage.module("__main__"), code, stage.job)
        size, printed = posix.fstat(stdout).st_size, b""
        if size > stage.job["most"]:
            return "L", b""
        while part := posix.pread(stdout, size - len(printed), len(printed)):
            printed += part
        text = printed.decode("utf-8", "surrogateescape")
        return "V", encode(text, _WIDEST * size + 2).encode()
    finally:
        posix.close(stdin)
        posix.close(stdout)


def _run_to_its_end(there: dict[str, Any], code: Any, job: dict[str, Any]) -> None:
    """Run the program, then everything that the interpreter does at exit."""
    stdout = sys.stdout
    exec(job["prelude"], there)
    try:
        exec(code, there)
    except SystemExit as end:
        if end.code not in (None, 0) and not job["any_status"]:
            raise
    threading = sys.modules.get("threading")
    if threading is not None:
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and not thread.daemon:
                thread.join()
    if "atexit" in sys.modules:
        sys.modules["atexit"]._run_exitfuncs()
    sys.stdout.flush()
    there.clear()
    import gc

    # Wrappers that the program put around stdout are flushed when they are garbage-collected.
    gc.collect()
    stdout.flush()


def _unnamed(name: str) -> int:
    """Create a file without a name and return its descriptor."""
    file = posix.open(name, posix.O_RDWR | posix.O_CREAT | posix.O_TRUNC, 0o600)
    posix.unlink(name)
    return file
