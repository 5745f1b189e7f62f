"""Checks what a run needs on this machine: packages, GPUs, sandbox, disk, limits, the key.

The checks work even if all of these are missing; each missing item is reported. Secrets are never
shown.

Not covered: speed, and whether a model fits GPUs whose memory is not 80 GB.
"""

from __future__ import annotations

import importlib.metadata
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

from heavydistill.config.models import Endpoint, Sampling
from heavydistill.doctor import Finding, Result
from heavydistill.errors import ConfigError
from heavydistill.models.http.client import files_needed
from heavydistill.models.profiles import Profile, ProfileFile, provider_at, serve_command
from heavydistill.models.registry import open_engine
from heavydistill.models.request import Request, discard, user_turn
from heavydistill.models.resolve import REQUESTS_PER_REPLICA
from heavydistill.models.vllm.server import own_server, vllm
from heavydistill.sandbox import bubblewrap

_GIB = 1 << 30
_TIGHT_DISK, _NO_DISK = 10 * _GIB, 1 * _GIB
_TIGHT_SHARED = 1 * _GIB
_CLASS_GIB = 79  # Minimum memory of a GPU that counts as 80 GB
_COMMAND_S = 20.0
_INSTALL = "pip install -c constraints.txt"


def look(endpoint: Endpoint, folders: list[Path], teachers: list[ProfileFile]) -> list[Finding]:
    """Run all checks of this machine."""
    gpus = _gpus()
    return [
        *_packages(),
        _torch(gpus),
        *(_vllm(endpoint, teachers, gpus) if endpoint.start_vllm else ()),
        _sandbox(),
        *(_disk(folder) for folder in dict.fromkeys(map(_existing, folders))),
        # A server on this machine has a replica for each GPU at most.
        _open_files(REQUESTS_PER_REPLICA * len(gpus) if endpoint.start_vllm else endpoint.slots),
        *_key(endpoint),
    ]


def _packages() -> Iterator[Finding]:
    """Yield one finding for all packages in their declared ranges, and one per other package."""
    fitting = 0
    for requirement in map(Requirement, importlib.metadata.requires("heavydistill") or []):
        optional = requirement.marker is not None and not requirement.marker.evaluate({"extra": ""})
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            if optional:
                continue
            version = ""
        if version and requirement.specifier.contains(version, prereleases=True):
            fitting += 1
            continue
        text = f"{version or 'not installed'}, but {requirement.specifier} is declared"
        fix = f"{_INSTALL} '{requirement.name}{requirement.specifier}'"
        yield Finding(requirement.name, "warning" if optional else "failure", text, fix)
    yield Finding("packages", "ok", f"{fitting} are in the declared ranges")


def _gpus() -> list[tuple[str, int]]:
    """(name with driver, bytes of memory) of each NVIDIA GPU that the driver lists."""
    query = ["--query-gpu=name,driver_version,memory.total", "--format=csv,noheader,nounits"]
    try:
        command = ["nvidia-smi", *query]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = (line.split(", ") for line in shown.splitlines() if line.count(", ") == 2)
    return [
        (f"{name} (driver {driver})", int(memory) << 20)
        for name, driver, memory in rows
        if memory.strip().isdigit()
    ]


def _torch(gpus: list[tuple[str, int]]) -> Finding:
    import torch

    devices = [f"{name}, {memory / _GIB:.0f} GiB" for name, memory in gpus]
    if torch.cuda.is_available():
        return Finding("gpu", "ok", "; ".join(devices) or f"{torch.cuda.device_count()} by torch")
    if devices:
        text = f"torch {torch.__version__} cannot use {'; '.join(devices)}"
        fix = f"{_INSTALL} 'torch' from the index of its CUDA builds, and a driver for that CUDA."
        return Finding("gpu", "warning", text, fix)
    text = f"none; torch {torch.__version__} runs on {os.cpu_count()} CPU cores"
    return Finding("gpu", "ok", f"{text}: enough for micro and for endpoints")


def _vllm(
    endpoint: Endpoint, teachers: list[ProfileFile], gpus: list[tuple[str, int]]
) -> Iterator[Finding]:
    """Yield findings on ``--start-vllm``: the command, shared memory, a setup for each teacher."""
    try:
        yield Finding("vllm", "ok", vllm())
    except ConfigError as error:
        yield Finding("vllm", "failure", error.what, error.fix)
    folder = Path("/dev/shm")
    size = shutil.disk_usage(folder).total if folder.is_dir() else 0
    text, fix = f"{size / _GIB:.1f} GiB in {folder}", ""
    if size < _TIGHT_SHARED:
        text += ", too little for vLLM"
        fix = "In a container: docker run --shm-size=16g, or --ipc=host."
    yield Finding("shared memory", "failure" if fix else "ok", text, fix)
    for teacher in teachers:
        check = f"serve {teacher.name}"
        try:
            count = own_server(teacher).gpus
        except ConfigError as error:
            yield Finding(check, "failure", error.what, error.fix)
            continue
        smallest = min((memory for _, memory in gpus), default=0) / _GIB
        if count and smallest < _CLASS_GIB:
            text = f"the set-up is for {count} GPU(s) of 80 GB, and one here has {smallest:.0f} GiB"
            fix = "Lower max-model-len in a profile of your own if the server does not start."
            yield Finding(check, "warning", text, fix)
            continue
        command = " ".join(serve_command(teacher, count) or ())
        yield Finding(check, "ok", f"{f'{count} GPU(s)' if count else 'on the CPU'}: {command}")


def _sandbox() -> Finding:
    if fault := bubblewrap.fault():
        text = f"{fault[0]}; only checks that run a model's code need it"
        return Finding("sandbox", "warning", text, fault[1])
    return Finding("sandbox", "ok", "bubblewrap ran a program, cut off from this machine")


def _existing(folder: Path) -> Path:
    folder = folder.absolute()
    return next(place for place in (folder, *folder.parents) if place.is_dir())


def _disk(folder: Path) -> Finding:
    fix = "Make room, or name another folder with --out and --journal."
    if not os.access(folder, os.W_OK):
        return Finding(f"disk {folder}", "failure", "cannot be written", fix)
    free = shutil.disk_usage(folder).free
    result: Result = "failure" if free < _NO_DISK else "warning" if free < _TIGHT_DISK else "ok"
    text = f"{free / _GIB:.1f} GiB free"
    return Finding(f"disk {folder}", result, text, "" if result == "ok" else fix)


def _open_files(slots: int) -> Finding:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)  # a run raises the soft limit
    needed = files_needed(slots)
    if most == resource.RLIM_INFINITY:
        return Finding("open files", "ok", "no limit")
    if most >= needed:
        return Finding("open files", "ok", f"{most:,} at once")
    text = f"{most:,} at once, but the run may need {needed:,}"
    fix = f"ulimit -Hn {needed}, as root, or a smaller endpoint.concurrency"
    return Finding("open files", "failure", text, fix)


def _key(endpoint: Endpoint) -> Iterator[Finding]:
    if not endpoint.urls:
        return
    name, fix = endpoint.key_env, f"export {endpoint.key_env}=..."
    provider = provider_at(endpoint.urls[0])
    if endpoint.key:
        yield Finding(name, "ok", "set")
    elif provider:
        yield Finding(name, "failure", f"not set, but {provider} needs a key", fix)
    else:
        text = "not set, so no key is sent; a server of your own needs none"
        yield Finding(name, "ok", text, f"{fix} if it needs one")


def listen(profile: Profile, sampling: Sampling, prompt: str) -> Iterator[Finding]:
    """Load a local model and generate a response to one prompt.

    Raises:
        TeacherError: The model cannot be loaded.
    """
    started = time.perf_counter()
    engine = open_engine(profile, Endpoint())
    loaded = f"{profile.model} loads in {time.perf_counter() - started:.1f} s"
    yield Finding("checkpoint", "ok", loaded)
    (response,) = engine.generate([Request(user_turn(prompt), sampling, seed=0)], discard)
    engine.close()
    text = (
        f"{response.completion_tokens} tokens in {response.latency_s:.1f} s, "
        f"{len(response.reasoning)} characters of thinking, finish reason {response.finish_reason}"
    )
    if response.error:
        fix = "Correct the checkpoint or its profile."
        yield Finding("answer", "failure", response.error, fix)
    elif response.answer_text:
        yield Finding("answer", "ok", text)
    else:
        fix = "Some attempts end so. If most of a run's do, raise think.sampling.max_tokens."
        yield Finding("answer", "warning", f"{text}, no answer", fix)
