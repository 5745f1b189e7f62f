"""The exceptions of this package:

    HeavydistillError            base class of all exceptions below
    |- UserError                 the user can fix it: exit code 2, no traceback
    |  |- ConfigError            a verb, flag, key or value of the command line or a file
    |  |  `- MissingModelError   a model that must be named
    |  |- ProblemsError          the problem file, its columns or its rows
    |  |- TeacherError           a model that cannot be found or loaded
    |  |- JournalError           a journal that cannot be used
    |  |- PublishError           sets or a model that cannot or may not be published there
    |  `- BudgetError            a token budget that is too small for the prompt
    `- RunError                  the run failed: exit code 1; the message says what is kept
       `- StoppedError           the run ended early on purpose; requests in flight are kept too

Every message says what is wrong and where, and ends with the fix. The failure of a single request
or row is not an error but a record with a reason (see ``schema``).
"""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_PLACE = {errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG}


CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters, except tabs and newlines: they move the cursor, change colours or reorder a
line (bidirectional marks and overrides)."""
# Escape sequences for colours and cursor movements, then for terminal titles and links, which end
# with a bell or ESC \.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\x9d]*(?:\x07|\x1b\\|\x9c)"
)


def encodable(text: str) -> str:
    """Join halves of characters (surrogates), which pieces of JSON may end and begin with.

    A half without the other one, which files cannot store, becomes ``?``.
    """
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return joined.encode("utf-8", "replace").decode("utf-8")


def printable(text: str) -> str:
    """Remove escape sequences and control characters, except tabs and newlines."""
    return CONTROL.sub("", _SEQUENCE.sub("", encodable(text)))


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return a question with the most similar name, then a blank; empty if no name is similar."""
    near = difflib.get_close_matches(name, [*known], n=1, cutoff=cutoff)
    return f"Did you mean {near[0]}? " if near else ""


class HeavydistillError(Exception):
    """Base class of all exceptions that this package raises on purpose.

    Args:
        what: What is wrong and where (file and line, flag or key).
        fix: What the user should do, as a command if possible.
    """

    def __init__(self, what: str, fix: str) -> None:
        # Both texts are printed and may quote a server, a file or a model.
        self.what, self.fix = printable(what), printable(fix)
        super().__init__(f"{self.what.rstrip('.')}. {self.fix}")

    def __reduce__(self) -> tuple[type, tuple[str, ...]]:
        # Errors are sent between processes; by default, pickle would keep only the joined message.
        return type(self), (self.what, self.fix)


class UserError(HeavydistillError):
    """An error that the user can fix before any money or time is spent.

    With ``flags``, if there are any, the same command works.
    """

    def __init__(self, what: str, fix: str, flags: str = "") -> None:
        super().__init__(what, fix)
        self.flags = printable(flags)

    def __reduce__(self) -> tuple[type, tuple[str, ...]]:
        return type(self), (self.what, self.fix, self.flags)


class ConfigError(UserError):
    """A flag or a key of a configuration or profile is unknown, contradictory or impossible."""


class ImpossibleControlError(ConfigError):
    """A control of an evaluation is not possible on any of its problems."""


class MissingModelError(ConfigError):
    """A model is not specified, and the micro model would be used by default."""


class ProblemsError(UserError):
    """A problem source cannot be read, or one of its rows cannot be used."""


class TeacherError(UserError):
    """A model cannot be found, loaded or reached."""


class JournalError(UserError):
    """A journal cannot be opened, or was written by another version."""


class PublishError(UserError):
    """Sets or a model cannot be published, or their terms forbid it."""


class BudgetError(UserError):
    """The token budget of a cache is smaller than the part of its prompt that cannot be cut."""


class RunError(HeavydistillError):
    """The run could not be finished; the message says what was saved."""


class StoppedError(RunError):
    """The run ended early on purpose, after all requests in flight were answered and saved."""


def remedy(fault: OSError, other: str) -> str:
    """The fix for a path that cannot be written; the text ends without a full stop.

    Args:
        fault: Error of the operating system.
        other: Description of another path, e.g. ``another --out``.
    """
    number = fault.errno
    if number is None and (match := re.search(r"\[errno (\d+)\]", str(fault))):  # raised by pyarrow
        number = int(match[1])
    if number in _NO_PLACE:
        return f"Give {other}"
    if number in _FULL:
        first = "Make room there"
    elif number in _FORBIDDEN:
        first = "Allow this user to write there"
    else:
        first = "Check the disk"
    return f"{first}, or give {other}"
