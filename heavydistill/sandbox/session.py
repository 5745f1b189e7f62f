"""A Python interpreter in the sandbox that keeps its state from cell to cell: a tool of thinkers.

``open_session`` starts an interpreter, confined as ``bubblewrap`` confines programs, with the
packages of ``packages`` and a folder of its own in memory. ``Session.run`` executes a cell in it,
as a notebook does: variables, imports and functions last, the value of a last expression is
printed, and tracebacks have the lines of cells alone. Time between cells counts for nothing.

How a cell ended, ``CellResult.error``:

    None         without an exception
    exception    with an exception, SyntaxError and SystemExit among them
    memory       with MemoryError
    timeout      it used more processor time than ``SessionLimits.cpu_s`` or than the session has,
                 or more than ``wall_s`` seconds
    closed       the interpreter ended: it crashed or ended itself, created too many files, or its
                 cell wrote to the channel of the answers; or it had ended for good before

After ``timeout`` and ``closed`` the interpreter is gone, with its variables and files; the output
says so, and the next cell runs in a new one. After the others it goes on.

A cell can do anything to its own interpreter and its output. So its output proves nothing, and a
session belongs to one model and one conversation.

Not covered: SandboxFusion, whose server keeps no state between requests; IPython's magics and
``await`` outside of functions; programs with several processes.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from heavydistill.config.run import PythonTool, Sandboxing
from heavydistill.errors import ConfigError
from heavydistill.sandbox import bubblewrap
from heavydistill.sandbox.memory import Reservations
from heavydistill.sandbox.packages import NAMES

CellError = Literal["exception", "memory", "timeout", "closed"]

_CELLS = Path(__file__).with_name("cells.py").read_text(encoding="utf-8")
_CHUNK = 1 << 16
_LARGEST_PIPE = 1 << 20
_START_S = 60.0
_PAUSE_S = 0.002
_ERRORS: dict[bytes, CellError | None] = {b"n": None, b"e": "exception", b"m": "memory"}
_BESIDE_MB = 20
"""Memory of an interpreter's files and of its launcher."""
_reserved = Reservations()


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits of an interpreter."""

    cpu_s: float = 10.0
    """Processor time of a cell, in seconds; may be exceeded by up to a second."""
    total_cpu_s: float = 300.0  # Processor time of the session in seconds, including starts
    wall_s: float = 60.0
    """Seconds until a cell is ended; generous, because a busy machine delays cells."""
    memory_mb: int = 512  # Limit of the address space in MiB, including the interpreter
    output_bytes: int = 4000
    """Maximum number of bytes of a cell's output; of a longer one, the middle is left out."""

    @classmethod
    def of(cls, tool: PythonTool, sandboxing: Sandboxing) -> SessionLimits:
        """The limits of the interpreter of a trajectory."""
        return cls(
            cpu_s=tool.seconds,
            total_cpu_s=tool.total_seconds,
            wall_s=max(60.0, 6 * tool.seconds),
            memory_mb=sandboxing.memory_mb,
            output_bytes=tool.output,
        )


@dataclass(frozen=True, slots=True)
class CellResult:
    """What came of a cell."""

    output: str
    """Printed text, the value of the last expression and the traceback, as in a notebook."""
    error: CellError | None
    seconds: float
    truncated: bool  # Whether a part of the output was left out


def require_sessions(
    limits: SessionLimits, count: int = 1, sandboxing: Sandboxing | None = None
) -> None:
    """Raise ConfigError unless ``count`` more sessions can be open at once in this process."""
    if sandboxing is not None and sandboxing.backend == "sandbox_fusion":
        raise ConfigError(
            "A SandboxFusion server keeps no state between requests, and an interpreter for tools "
            "keeps its variables",
            "Leave out verify.sandbox.backend and verify.sandbox.url: tools run in the sandbox of "
            "this machine.",
        )
    if fault := bubblewrap.fault():
        raise ConfigError(*fault)
    if count > (room := room_for_sessions(limits)):
        raise _no_room(limits, count, room)


def room_for_sessions(limits: SessionLimits) -> int:
    """Number of further sessions for which this machine has memory."""
    return _reserved.room(limits.memory_mb + _BESIDE_MB)


def open_session(
    limits: SessionLimits, sandboxing: Sandboxing | None = None, *, waits: bool = False
) -> Session:
    """Start an interpreter; use the session as a context manager, or ``close`` it.

    With ``waits``, wait until other sessions have given back the memory for it.

    Raises:
        ConfigError: There is no sandbox, no memory for one more session, or the start failed.
    """
    require_sessions(limits, 0, sandboxing)
    if not _reserved.reserve(limits.memory_mb + _BESIDE_MB, waits=waits):
        raise _no_room(limits, 1, 0)
    try:
        return Session(limits)
    except BaseException:
        _reserved.give_back(limits.memory_mb + _BESIDE_MB)
        raise


def _no_room(limits: SessionLimits, count: int, room: int) -> ConfigError:
    return ConfigError(
        f"The free memory has room for {room} more interpreters with {limits.memory_mb} MiB each, "
        f"and {count} are needed",
        "Run fewer trajectories at once, give an interpreter less memory, or end other programs.",
    )


class Session:
    """An interpreter for one conversation and one thread at a time; see ``open_session``."""

    def __init__(self, limits: SessionLimits) -> None:
        self._limits = limits
        self._left_s = limits.total_cpu_s
        self._is_closed = False
        self._interpreter: _Interpreter | None = None
        try:
            self._interpreter = self._running()
        except _Ended as ended:
            raise ConfigError(str(ended), "Run fewer programs at once.") from None

    def run(self, code: str) -> CellResult:
        """Execute a cell; never raises because of what it does."""
        begun, output = time.monotonic(), _Output(self._limits.output_bytes)
        error: CellError | None
        try:
            error, note = self._running().execute(code, output), ""
        except _Ended as ended:
            error, note = ended.error, f"[{ended}]\n"
        finally:
            self._count()
        text = output.text()
        note = "\n" * bool(note and text and not text.endswith("\n")) + note
        return CellResult(text + note, error, time.monotonic() - begun, output.left_out > 0)

    def close(self) -> None:
        """End the interpreter, and wait until nothing of it is left."""
        if not self._is_closed:
            self._is_closed = True
            try:
                if self._interpreter is not None:
                    self._interpreter.end(_Output(0))
            finally:  # only now is its memory free
                _reserved.give_back(self._limits.memory_mb + _BESIDE_MB)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _running(self) -> _Interpreter:
        """The interpreter, started if there is none; _Ended if it cannot be."""
        if self._is_closed:
            raise _Ended("closed", "The session is closed.")
        if self._left_s <= 0:
            used = f"{self._limits.total_cpu_s:g} s of processor time"
            raise _Ended("closed", f"No cell can run any more: {used} are used.")
        if self._interpreter is None:
            self._interpreter = _Interpreter(self._limits, self._left_s)
        return self._interpreter

    def _count(self) -> None:
        if self._interpreter is not None and self._interpreter.has_ended:
            self._left_s -= self._interpreter.used_s
            self._interpreter = None


class _Ended(Exception):
    """The interpreter has ended; the message says why."""

    def __init__(self, error: CellError, why: str) -> None:
        super().__init__(why)
        self.error = error


class _Interpreter:
    """A process that executes ``cells`` in the sandbox; _Ended if it does not start.

    Three files of this process are open for it: its output, a socket to it, and one to its
    launcher.
    """

    def __init__(self, limits: SessionLimits, cpu_s: float) -> None:
        self._limits = limits
        self._cell = 0  # number of the cell whose answer is awaited
        self._reports = b""
        self.has_ended, self.used_s, self._code = False, 0.0, 0
        launch = {"cpu_s": cpu_s, "cell_s": limits.cpu_s, "memory_bytes": limits.memory_mb << 20}
        output = _Output(_CHUNK)
        try:
            with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
                pairs = socket.socketpair(), socket.socketpair()
                self._launcher, self._channel = (ours.enter_context(end) for end, _ in pairs)
                told, channel = (theirs.enter_context(end) for _, end in pairs)
                reads, writes = os.pipe()
                self._output = ours.enter_context(os.fdopen(reads, "rb", buffering=0))
                os.set_blocking(reads, False)
                theirs.enter_context(os.fdopen(writes, "wb", buffering=0))
                streams = (channel.fileno(), writes, writes)
                self._process = bubblewrap.start_program(
                    {"main.py": _CELLS}, NAMES, launch, streams, told.fileno(), told.fileno()
                )
                self._files = ours.pop_all()
        except OSError as error:
            raise _Ended("closed", f"The sandbox cannot be started: {error}.") from None
        self._channel.settimeout(limits.wall_s)
        self._poll = select.poll()
        for file in (self._launcher, self._channel, self._output):
            self._poll.register(file, select.POLLIN)
        try:
            self._answer(output, time.monotonic() + _START_S)
        except _Ended:
            why = output.text().strip() or "the interpreter does not answer"
            raise _Ended("closed", f"The sandbox cannot be started: {why}.") from None
        except BaseException:
            self.end(output)
            raise

    def execute(self, code: str, output: _Output) -> CellError | None:
        """Execute a cell; _Ended if the interpreter ends, which it does at a limit."""
        until = time.monotonic() + self._limits.wall_s
        data = code.encode("utf-8", "surrogatepass")
        self._cell += 1
        try:
            with contextlib.suppress(OSError):  # it has ended, or does not read
                self._launcher.send(b"c")
                self._channel.sendall(len(data).to_bytes(4, "big") + data)
            return self._answer(output, until)
        except BaseException:  # after an interrupt too, what it does is unknown
            self.end(output)
            raise

    def end(self, output: _Output) -> None:
        """End the process, and wait until nothing of it is left."""
        if self.has_ended:
            return
        self.has_ended = True
        with self._files:
            self._channel.close()
            ends = os.pidfd_open(self._process.pid)
            self._code, self.used_s = bubblewrap.end_program(self._process, self._launcher, ends)
            self._read_rest(output)

    def _answer(self, output: _Output, until: float) -> CellError | None:
        """Wait for the answer to the cell, and return its error; _Ended if there is none."""
        answer = self._await(output, until)
        for letter, error in _ERRORS.items():
            if answer == b"%d %s\n" % (self._cell, letter):
                self._read_rest(output)
                return error
        self.end(output)
        error, reason = self._reason(answer)
        raise _Ended(error, f"{reason} The interpreter was ended, and its variables are lost.")

    def _await(self, output: _Output, until: float) -> bytes | None:
        """Read until the answer, until the launcher ends (returns nothing), or ``until`` (None)."""
        while (left := until - time.monotonic()) > 0:
            ready = dict(self._poll.poll(left * 1000))
            if self._output.fileno() in ready:
                output.add(os.read(self._output.fileno(), _CHUNK))
                if output.left_out:  # a flood; reading it costs processor time here as well
                    time.sleep(_PAUSE_S)
            if self._launcher.fileno() in ready:
                report = _received(self._launcher)
                self._reports += report
                if not report:
                    return b""
            if self._channel.fileno() in ready:
                if answer := _received(self._channel):
                    return answer
                self._poll.unregister(self._channel)
        return None

    def _read_rest(self, output: _Output) -> None:
        """Read what the pipe holds, but not what threads of the cell go on to write."""
        with contextlib.suppress(BlockingIOError):
            output.add(os.read(self._output.fileno(), _LARGEST_PIPE))

    def _reason(self, answer: bytes | None) -> tuple[CellError, str]:
        """Why the interpreter has ended, after this instead of an answer."""
        limits, lines = self._limits, self._reports.splitlines()
        if answer is None:
            return "timeout", f"The cell took more than {limits.wall_s:g} s."
        if answer:
            return "closed", "A cell wrote to the channel of the interpreter."
        if b"cell" in lines:
            return "timeout", f"A cell used more than {limits.cpu_s:g} s of processor time."
        if b"cpu" in lines:
            return "timeout", f"The cells used {limits.total_cpu_s:g} s of processor time."
        if b"files" in lines:
            return "closed", "The cells created too many files."
        if self._code > 128:
            return "closed", f"Signal {self._code - 128} ended the interpreter."
        return "closed", f"The interpreter exited with status {self._code}."


def _received(end: socket.socket) -> bytes:
    """What has arrived; nothing if the other end is closed."""
    try:
        return end.recv(_CHUNK)
    except ConnectionResetError:  # and had not read all that was sent to it
        return b""


class _Output:
    """Output of a cell: the first and the last bytes of it."""

    def __init__(self, most: int) -> None:
        self._first, self._last = bytearray(), bytearray()
        self._most_last = most // 2
        self._most_first = most - self._most_last
        self.left_out = 0

    def add(self, chunk: bytes) -> None:
        room = self._most_first - len(self._first)
        self._first += chunk[:room]
        self._last += chunk[room:]
        if (excess := len(self._last) - self._most_last) > 0:
            del self._last[:excess]
            self.left_out += excess

    def text(self) -> str:
        """The output, with a line in place of what is left out."""
        if not self.left_out:
            return (self._first + self._last).decode("utf-8", "replace")
        # A character may be cut in two.
        first = self._first.decode("utf-8", "replace").rstrip("\ufffd")
        last = self._last.decode("utf-8", "replace").lstrip("\ufffd")
        return f"{first}\n[{self.left_out} bytes left out]\n{last}"
