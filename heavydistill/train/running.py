"""What the training scripts share around the training itself: exit codes, processes, evaluation."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from heavydistill.errors import HeavydistillError, RunError, UserError
from heavydistill.run import interrupts
from heavydistill.store.training_record import EVALUATION

_CLI = "from heavydistill.cli.app import main; main()"
# What a launcher tells its processes: a program that is started by one of them is not of them.
_OF_LAUNCH = re.compile(
    r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|LOCAL_WORLD_SIZE|ROLE_NAME|MASTER_(ADDR|PORT)|"
    r"(ACCELERATE|TORCHELASTIC|FSDP|TORCH_NCCL)_.*"
)


def exit_code(
    script: Callable[[], None],
    goes_on: str = "--resume_from_checkpoint true goes on from the last checkpoint.",
) -> int:
    """Run a script and turn what it raises into a message and an exit code.

    With several processes each says which one it is: what broke one of them may be on its
    machine alone.

    Args:
        script: To run.
        goes_on: How it goes on after Ctrl-C.
    """
    try:
        with interrupts.recognized():
            script()
    except UserError as error:
        return _say(f"Error: {error}", 2)
    except HeavydistillError as error:
        return _say(f"The training broke: {error}", 1)
    except KeyboardInterrupt:
        return _say(f"Interrupted. {goes_on}", 130)
    return 0


def is_main() -> bool:
    """Whether this is the first process of all machines."""
    return os.environ.get("RANK", "0") == "0"


def evaluate(config: Path, before: str, folder: Path) -> None:
    """Measure a trained model and what it was, by ``heavydistill evaluate``, in its own process.

    Args:
        config: Of the run.
        before: The base model.
        folder: Of the trained model; the evaluation becomes a folder in it.

    Raises:
        RunError: It did not end well; its message is on the terminal.
    """
    _free_memory()
    models = ["--thinker", str(folder), "--deliberator", str(folder), "--before", before]
    # One journal for all trainings in a place: the base is asked once.
    journal = ["--journal", str(folder.resolve().parent / "journal")]
    flags = ["--config", str(config), *models, "--out", str(folder / EVALUATION), *journal]
    environment = {
        name: text for name, text in os.environ.items() if not _OF_LAUNCH.fullmatch(name)
    }
    done = subprocess.run([sys.executable, "-c", _CLI, "evaluate", *flags], env=environment)
    if done.returncode:
        raise RunError(
            f"The model is in {folder}; its evaluation ended with exit code {done.returncode}",
            f"Repeat it: heavydistill evaluate {' '.join(flags)}",
        )


def _free_memory() -> None:
    """Give back what the training held of the GPU, which the other process needs."""
    import torch

    gc.collect()  # a trainer and its model refer to each other
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _say(message: str, code: int) -> int:
    several = os.environ.get("WORLD_SIZE", "1") != "1"
    process = f"[process {os.environ['RANK']}] " if several else ""
    # In one write, or the lines of processes that fail together run into each other.
    sys.stderr.write(f"{process}{message}\n")
    sys.stderr.flush()
    return code
