"""Processes of a training: accelerate's launcher, and the exit code of each process.

The launcher runs this module in a new process group. Its traceback is not printed below a message
of the training, it exits with the training's exit code, and signals reach all processes.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from heavydistill.config.yaml import read_yaml
from heavydistill.errors import ConfigError, HeavydistillError, UserError
from heavydistill.run import interrupts

FLAGS = {
    "num_processes": "Number of processes of all machines, one for each GPU.",
    "num_machines": "Number of machines.",
    "machine_rank": "Number of this machine, from 0.",
    "main_process_ip": "Address of machine 0.",
    "main_process_port": "Port of machine 0. [default: a free one, with a single machine]",
}
"""Flags that override the keys of the same names in accelerate's file."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def launch(file: Path, flags: Sequence[str], command: Sequence[str]) -> int:
    """Run ``heavydistill COMMAND`` in the processes of an accelerate file, and return the exit
    code.

    Raises:
        ConfigError: The file does not exist, or a launcher has started this process.
    """
    if is_launched():
        raise ConfigError(
            "--accelerate is given to a process that a launcher has started",
            "Leave out --accelerate, or `accelerate launch`.",
        )
    tree = read_yaml(file)
    is_free = tree.get("main_process_port") is None and "--main_process_port" not in flags
    if is_free and "--num_machines" not in flags and tree.get("num_machines") in (None, 1):
        flags = [*flags, "--main_process_port", "0"]
    launcher = [sys.executable, "-m", __name__, "--config_file", str(file), *flags]
    words = [*launcher, "--module", "heavydistill", *command]
    process = subprocess.Popen(words, process_group=0)

    def forward(signum: int, frame: FrameType | None) -> None:
        os.killpg(process.pid, signum)

    before = {signum: signal.getsignal(signum) for signum in _SIGNALS}
    for signum in [signum for signum in before if before[signum] is not signal.SIG_IGN]:
        signal.signal(signum, forward)
    code = process.wait()
    for signum, handler in before.items():
        signal.signal(signum, handler)
    return code if code >= 0 else 128 - code


def exit_code(
    script: Callable[[], None],
    goes_on: str = "--resume_from_checkpoint true continues from the last checkpoint.",
) -> int:
    """Run a training, print errors as messages, and return the exit code.

    With several processes, each message has the process number, because an error may occur on one
    machine only.
    """
    try:
        with interrupts.recognized():
            script()
    except UserError as error:
        return _print(f"Error: {error}", 2)
    except HeavydistillError as error:
        return _print(f"The training failed: {error}", 1)
    except KeyboardInterrupt:
        return _print(f"Interrupted. {goes_on}", 130)
    return 0


def is_launched() -> bool:
    """Return whether a launcher has started this process."""
    return bool(os.environ.keys() & {"RANK", "ACCELERATE_MIXED_PRECISION"})


def is_main() -> bool:
    """Return whether this is the main process of all machines."""
    return os.environ.get("RANK", "0") == "0"


def _print(message: str, code: int) -> int:
    several = os.environ.get("WORLD_SIZE", "1") != "1"
    process = f"[process {os.environ['RANK']}] " if several else ""
    # A single write, so that lines of several processes do not mix.
    sys.stderr.write(f"{process}{message}\n")
    sys.stderr.flush()
    return code


def main() -> int:
    """Launch processes as ``accelerate launch`` does, and return the exit code."""
    with interrupts.ending_at_once():
        from accelerate.commands.launch import launch_command, launch_command_parser
        from torch.distributed.elastic.multiprocessing.api import SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    logging.disable()  # the launcher's messages about signals and defaults
    try:
        launch_command(launch_command_parser().parse_args())
    except subprocess.CalledProcessError as error:
        return error.returncode
    except ChildFailedError as error:
        return int(error.get_first_failure()[1].exitcode)
    except SignalException as error:
        return 128 + int(error.sigval)
    except KeyboardInterrupt:
        return interrupts.INTERRUPTED
    except (ValueError, ImportError, OSError) as error:
        fix = "Correct --accelerate, or its flags."
        if "DeepSpeed" in str(error):
            fix = "Install it: pip install 'heavydistill[deepspeed]'."
        print(f"Error: {ConfigError(f'accelerate cannot start: {error}', fix)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
