"""What this machine has to serve a teacher with: its GPUs, and vLLM."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

from heavydistill.errors import ConfigError
from heavydistill.models.profile_files import ProfileFile, Setup

_INSTALL = "pip install -c constraints.txt -e '.[vllm]'"


def gpus() -> int:
    """How many GPUs a process that is started from here sees.

    They are those of NVIDIA's driver that ``CUDA_VISIBLE_DEVICES`` leaves. CUDA is not touched, for
    that would take memory of each GPU. Other makers' GPUs are not counted.

    Raises:
        ConfigError: The driver does not answer.
    """
    if not shutil.which("nvidia-smi"):
        return 0
    asked = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    if asked.returncode:
        raise ConfigError(
            f"The GPUs cannot be counted: nvidia-smi -L ended with code {asked.returncode}: "
            f"{(asked.stdout + asked.stderr).strip()}",
            "Mend the driver, or ask another server with --endpoint.",
        )
    listed = [line for line in asked.stdout.splitlines() if line.startswith("GPU ")]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return len(listed)

    def is_there(device: str) -> bool:
        if device.isdigit():
            return int(device) < len(listed)
        return device.startswith(("GPU-", "MIG-")) and device in asked.stdout

    # CUDA stops at the first that is not there.
    return len(list(itertools.takewhile(is_there, map(str.strip, visible.split(",")))))


def largest_setup(profile: ProfileFile) -> tuple[int, Setup]:
    """The set-up of a profile that uses most of this machine's GPUs, and their number.

    Raises:
        ConfigError: The profile has none at all, or none that fits; the message says why.
    """
    if not profile.vllm:
        why, fix = _not_served(profile)
        raise ConfigError(f"The model {profile.name} cannot be served here: {why}", fix)
    here = gpus()
    elsewhere = "ask a server that has it with --endpoint"
    if not here:
        raise ConfigError(
            "--start-vllm needs a GPU, and none is seen here: nvidia-smi lists none, "
            "or CUDA_VISIBLE_DEVICES hides them",
            f"Use a machine with GPUs, or {elsewhere}.",
        )
    setups = {count: setup for count, setup in profile.vllm.gpus.items() if setup}
    fitting = [count for count in setups if count <= here]
    if not fitting:
        needs = f"it needs {min(setups)}" if setups else f"nor {max(profile.vllm.gpus)}"
        raise ConfigError(
            f"The model {profile.name} does not fit the {here} GPU(s) seen here, {needs}: "
            f"{profile.vllm.why_null}",
            f"Use more GPUs, name a profile of your own with a set-up that fits, or {elsewhere}.",
        )
    return max(fitting), setups[max(fitting)]


def _not_served(profile: ProfileFile) -> tuple[str, str]:
    """(why vLLM cannot be started with it, what to do)."""
    if profile.folder:
        return "it runs in this process", "Leave --start-vllm out; nothing else is needed."
    if not profile.hub:
        return "its maker alone serves it", "Ask the maker's server with --endpoint."
    return (
        "its profile does not say how",
        "Add the key vllm to the profile, as those in configs/teachers have it, or start a server "
        "yourself and name it with --endpoint.",
    )


def vllm() -> str:
    """Path of the command ``vllm``: on the search path, or beside this Python.

    Raises:
        ConfigError: There is none.
    """
    beside = str(Path(sys.executable).parent)
    found = shutil.which("vllm") or shutil.which("vllm", path=beside)
    if not found:
        raise ConfigError(
            "--start-vllm starts vLLM, and there is no command vllm",
            f"Install it ({_INSTALL}), or start a server elsewhere and name it with --endpoint.",
        )
    return found
