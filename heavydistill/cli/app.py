"""Entry point of the command line.

Exit codes: 0 success; 1 incomplete result or failure; 2 an error that the user can fix; 130
interrupted. An interruption must never print a traceback, so this module imports only
``interrupts`` before it handles Ctrl-C.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import logging
import os
import shlex
import stat
import sys
import warnings
from collections.abc import Sequence

from heavydistill.run import interrupts

_LIBRARIES = (
    *("accelerate", "bitsandbytes", "datasets", "deepspeed", "kernels", "peft"),
    *("torch", "transformers", "trl"),
)


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line; turn exceptions into a message and an exit code.

    ``words`` are the command-line arguments (default: those of the process).
    """
    with interrupts.ending_at_once():
        from heavydistill.cli.verbs import app
        from heavydistill.errors import HeavydistillError, UserError
    _quiet_libraries()
    given = sys.argv[1:] if words is None else list(words)
    is_piped = _is_piped()
    # During interpreter exit, Ctrl-C ends the process at once: nothing is left to lose.
    atexit.register(interrupts.end_at_once)
    try:
        _refuse_undecodable(given)
        with interrupts.recognized():
            app(given, prog_name="heavydistill")
    except SystemExit as end:
        # What typer makes of an interrupt that no verb handled, without a word.
        if isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):
            _say("Interrupted.")
        if is_piped and not _is_piped():  # rich replaces a pipe that nobody reads any more
            _say(
                "Stopped, because the program that reads the output (such as head) has ended. "
                "Send the output to a file (> FILE) to let the command finish."
            )
        raise
    except KeyboardInterrupt:
        _say("Interrupted.")
        sys.exit(interrupts.INTERRUPTED)
    except UserError as error:
        _say(f"Error: {error}")
        if error.flags:
            _say(f"The command: {shlex.join(['heavydistill', *given])} {error.flags}")
        sys.exit(2)
    except HeavydistillError as error:
        _say(f"The run broke: {error}")
        sys.exit(1)
    except OSError as error:
        if error.errno != errno.ENOSPC:  # all other places are reported where they are written
            raise
        _say("Error: The output cannot be written: no space is left. Write it to another place.")
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "can't start new thread" not in str(error):
            raise
        _say(
            "Error: The memory or the number of threads that this process may have is used up. "
            "Raise `ulimit -v` and `ulimit -u`, or lower endpoint.concurrency and --processes; "
            "responses in the journal are kept."
        )
        sys.exit(1)


def _refuse_undecodable(words: Sequence[str]) -> None:
    """Raise ConfigError if a command-line argument is not UTF-8, as rows and records must be."""
    from heavydistill.errors import ConfigError

    for word in words:
        if any(0xD800 <= ord(character) <= 0xDFFF for character in word):
            shown = word.encode("utf-8", "backslashreplace").decode()
            raise ConfigError(
                f"The argument {shown} is not UTF-8", "Rename the file or folder, e.g. with mv."
            )


def _quiet_libraries() -> None:
    """Hide progress bars, advice and deprecation warnings of libraries, unless the user asks.

    Call this before they are imported; TRANSFORMERS_VERBOSITY and PYTHONWARNINGS show them again.
    """
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("DATASETS_VERBOSITY", "error")
    if os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error") == "error":
        for name in _LIBRARIES:
            logging.getLogger(name).setLevel(logging.ERROR)
        # A filter, because importing DeepSpeed resets the logger's level.
        logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)
    if not sys.warnoptions:
        warnings.filterwarnings("ignore", module=rf"({'|'.join(_LIBRARIES)})(\.|$)")


def _is_piped() -> bool:
    """Whether the output of this process goes into a pipe."""
    with contextlib.suppress(OSError):
        return stat.S_ISFIFO(os.fstat(1).st_mode)
    return False


def _say(message: str) -> None:
    print(message, file=sys.stderr)
