"""Runs one program against all its tests, in the sandbox.

For every test the program starts again, in a new module and with the builtins, the recursion limit
and the standard streams as they were. Not reset, since one process serves all tests: what it
changed in imported modules, threads that it left running, and files in its folder.

Reports, by letter: ``B`` a test begins, with the milliseconds of processor time so far; then one of
``V`` the value (or, of a program that reads stdin, what it printed), ``E`` the exception as JSON
``[type, missing module]``, ``X`` it exited with a status that is not 0, ``S`` more processor time
than a test may take, ``N`` no value, ``L`` too large. ``P`` is a program that Python does not
compile, ``T`` no time left for this test.

The program shares the process with this code and may change it. It cannot learn what is right, so
whatever it reports is its answer.
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

from heavydistill.verifiers.code.inside.carry import NotAValue, TooLarge, decode, encode, report

_MODULE = "answer"
_leave = posix._exit
_MOST_SLOW = 2
_WIDEST = 6  # characters of JSON for one byte
_MOST_STACK = 64 << 20  # bytes; programs ask for more address space than they ever use
_AGAIN_S = 0.05  # seconds of processor time between two rings of the clock
_MOST_RINGS = 10
_KILL_S = 0.5  # of processor time, for the system to end a program that lets it
_CLOCK_PROCESS_CPUTIME_ID, _SIGEV_SIGNAL = 2, 0
# timer_create and timer_settime by number: older C libraries have them in a library of their own.
_TIMER_CALLS = {"x86_64": (222, 223), "aarch64": (107, 110)}


class Slow(BaseException):
    """A test has had its processor time."""


class Timer:
    """A signal to this process when it has used some more processor time, over all its threads.

    Measured as ``time.process_time`` is. Limits of the system and ``setitimer`` count in ticks, and
    on a busy machine some are another's.
    """

    def __init__(self, number: int) -> None:
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        create, self._settime = _TIMER_CALLS[posix.uname().machine]
        event = (ctypes.c_int * 16)(0, 0, number, _SIGEV_SIGNAL)  # struct sigevent
        self._id = ctypes.c_int()
        self._call(create, _CLOCK_PROCESS_CPUTIME_ID, event, ctypes.byref(self._id))

    def set(self, after_s: float, again_s: float = 0.0) -> None:
        """Send the signal after so many seconds, 0 for never, and again each ``again_s``."""
        parts = [divmod(int(seconds * 1e9), 10**9) for seconds in (again_s, after_s)]
        times = (ctypes.c_long * 4)(*parts[0], *parts[1])  # struct itimerspec
        self._call(self._settime, self._id, 0, times, None)

    def _call(self, *args: Any) -> None:
        if self._syscall(*args):
            raise OSError(ctypes.get_errno(), "a timer of processor time is refused")


class Clock:
    """Ends a test that had its processor time.

    At ``test_s`` by an exception, and everything if the program catches that. A loop within one
    call of the interpreter sees no exception, so that the system ends it, and everything, at
    ``end_s`` with SIGXCPU, and soon after with SIGKILL, which no program can ignore.

    A program that stops these timers on purpose has the time of all tests together.
    """

    def __init__(self, test_s: float, end_s: float, total_s: float) -> None:
        self._test_s, self._end_s, self._total_s = test_s, end_s, total_s
        self._rings = -1
        self._last_words: Callable[[], None] = lambda: None
        self._timers = [Timer(n) for n in (_signal.SIGPROF, _signal.SIGXCPU, _signal.SIGKILL)]

    def spent(self) -> bool:
        return time.process_time() >= self._total_s

    def start(self, last_words: Callable[[], None]) -> None:
        """Begin a test; ``last_words`` is called before everything ends."""
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
        # Those that the program may have set.
        _signal.setitimer(_signal.ITIMER_PROF, 0)
        _signal.alarm(0)

    def _ring(self, *_: object) -> None:
        if self._rings < 0:
            return
        self._rings += 1
        # Once: a second exception could hit the code around the program.
        if self._rings == 1:
            raise Slow
        if self._rings > _MOST_RINGS:
            self._last_words()
            _leave(0)


class Stage:
    """Where the program runs: the process as each test finds it."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self._builtins = dict(vars(builtins))
        self._recursion = sys.getrecursionlimit()
        self._nothing = posix.open("/dev/null", posix.O_RDWR)
        self._modules: list[Any] = []

    def module(self, name: str) -> dict[str, Any]:
        """The namespace of a new module; the process is as at its start."""
        there = vars(builtins)
        there.clear()
        there.update(self._builtins)
        if "/dev/stdin" in self.job["program"]:
            there["open"] = self._open
        sys.setrecursionlimit(self._recursion)
        sys.settrace(None)
        sys.setprofile(None)
        sys.argv[:] = ["main.py"]
        if "random" in self.job["program"]:
            import random

            random.seed(0)
        module = type(sys)(name)
        sys.modules[name] = module
        # A module that dies takes its namespace along.
        self._modules.append(module)
        return vars(module)

    def _open(self, file: Any, *args: Any, **kwargs: Any) -> Any:
        """``open``, for which ``/dev/stdin`` is the input of this test."""
        open_ = self._builtins["open"]
        if file == "/dev/stdin":
            return open_(0, *args, **kwargs, closefd=False)
        return open_(file, *args, **kwargs)

    def streams(self, stdin: int, stdout: int) -> None:
        """Put the standard streams on these file descriptors."""
        for target, source in enumerate((stdin, stdout, self._nothing)):
            posix.dup2(source, target)
        text: dict[str, Any] = {"encoding": "utf-8", "errors": "surrogateescape", "closefd": False}
        sys.stdin = sys.__stdin__ = self._builtins["open"](0, **text)  # type: ignore[misc]
        sys.stdout = sys.__stdout__ = self._builtins["open"](1, "w", **text)  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = self._builtins["open"](2, "w", **text)  # type: ignore[misc]

    def quiet(self) -> None:
        """Standard streams that bring nothing and take everything."""
        self.streams(self._nothing, self._nothing)


def perform(job: dict[str, Any]) -> None:
    """Run all tests of a job and report them.

    Args:
        job: ``token``; ``program``, its text; ``prelude`` and ``after``, run before and after it;
            ``kind`` and ``tests``; ``test_s``, ``end_s``, ``total_s`` (see ``Clock``); ``most``,
            characters of one value or bytes of one output.
    """
    token, channel = job["token"], posix.dup(1)
    # What the interpreter has when it starts with ``site``.
    vars(builtins).update(exit=_exit, quit=_exit)
    stage = Stage(job)
    clock = Clock(job["test_s"], job["end_s"], job["total_s"])
    stage.quiet()
    # ``os._exit``, which programs call at their end, ends the test and not the process.
    posix._exit = _exit
    if "os" in sys.modules:
        sys.modules["os"]._exit = _exit  # type: ignore[attr-defined]
    # Threads have a stack that fits in the memory, whatever programs ask for.
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
            # A program that loops does so in most tests. Its threads still run: nothing ends them.
            break
    _leave(0)


def _exit(status: Any = None) -> NoReturn:
    raise SystemExit(status)


def _timed(
    clock: Clock, one: Callable[[], tuple[str, bytes]], last_words: Callable[[], None]
) -> tuple[str, bytes]:
    """The report on one test, whatever the program does."""
    try:
        clock.start(last_words)
        try:
            return one()
        finally:
            clock.stop()
    except Slow:
        return "S", b""
    except SystemExit:
        return "X", b""
    except NotAValue:
        return "N", b""
    except TooLarge:
        return "L", b""
    except BaseException as error:
        return "E", _told(error)


def _told(error: BaseException) -> bytes:
    """The type of an exception, and the module that it misses, as JSON."""
    is_missing = isinstance(error, ModuleNotFoundError) and isinstance(error.name, str)
    missing = str(error.name)[:100] if is_missing else ""  # type: ignore[attr-defined]
    try:
        return encode([type(error).__name__[:100], missing], 2000).encode()
    except BaseException:
        return b'["l","?",""]'


def _one_call(stage: Stage, code: Any, test: dict[str, Any]) -> tuple[str, bytes]:
    """The value of one call, as a report."""
    there = stage.module(_MODULE)
    job = stage.job
    exec(job["prelude"], there)
    exec(code, there)
    exec(job["after"], there)
    if "source" in test:
        value = eval(test["source"], there)
    else:
        args, kwargs = decode(test["args"]), decode(test["kwargs"])
        value = _entry(there, test["entry"])(*args, **kwargs)
        if test.get("returns_args"):
            value = (value, args)
    return "V", encode(value, job["most"]).encode()


def _entry(there: dict[str, Any], path: str) -> Any:
    """The function of that name: of the module, or of an instance of ``Solution``."""
    first, _, method = path.partition(".")
    if method:
        return getattr(there[first](), method)
    if first not in there and "Solution" in there:
        return getattr(there["Solution"](), first)
    if first not in there:
        raise NameError(first)
    return there[first]


def _one_run(stage: Stage, code: Any, text: str) -> tuple[str, bytes]:
    """What the program prints when it reads ``text``, as a report."""
    stdin, stdout = _unnamed("in"), _unnamed("out")
    try:
        rest = text.encode()
        while rest:
            rest = rest[posix.write(stdin, rest) :]
        posix.lseek(stdin, 0, 0)
        stage.streams(stdin, stdout)
        _run_to_its_end(stage.module("__main__"), code)
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


def _run_to_its_end(there: dict[str, Any], code: Any) -> None:
    """Run the program and what the interpreter does at the end of one."""
    stdout = sys.stdout
    try:
        exec(code, there)
    except SystemExit as end:
        if end.code not in (None, 0):
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

    # Buffers that the program put around stdout are written when they go.
    gc.collect()
    stdout.flush()


def _unnamed(name: str) -> int:
    """A new file that no name leads to."""
    file = posix.open(name, posix.O_RDWR | posix.O_CREAT | posix.O_TRUNC, 0o600)
    posix.unlink(name)
    return file
