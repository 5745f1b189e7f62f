"""What doctor says of the machine, with the commands it asks replaced by scripts."""

import importlib.metadata
import importlib.util
import resource
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from heavydistill.config.models import Endpoint
from heavydistill.doctor import Finding, machine
from heavydistill.models.registry import profile_of
from heavydistill.sandbox import bubblewrap

URL = "http://localhost:1/v1"
H100 = "NVIDIA H100 80GB HBM3, 570.86, 81559"


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """An empty PATH, and a function that puts a command with a body there."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def add(name: str, body: str) -> None:
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        script.chmod(0o755)

    return add


def look(*names: str, folder: Path = Path("."), **endpoint: object) -> dict[str, Finding]:
    profiles = [profile_of(name) for name in names]
    findings = machine.look(Endpoint(**endpoint), [folder], profiles)
    by_check = {finding.check: finding for finding in findings}
    assert len(by_check) == len(findings)
    return by_check


def gpus(commands, *rows: str) -> None:
    listed = " ".join(f"'GPU {number}: {row}'" for number, row in enumerate(rows))
    queried = " ".join(f"'{row}'" for row in rows)
    body = f"[ \"$1\" = -L ] && printf '%s\\n' {listed} || printf '%s\\n' {queried}"
    commands("nvidia-smi", body)


def test_this_machine_has_what_the_tests_need(commands):
    found = look()
    assert found["packages"].result == "ok"
    assert "GiB free" in found[f"disk {Path.cwd()}"].text
    assert "none" in found["gpu"].text  # no nvidia-smi in an empty PATH


def test_a_package_out_of_its_range_or_missing_is_a_failure_with_the_command(monkeypatch):
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name == "pyarrow":
            return "12.0.1"
        if name in ("aiohttp", "vllm"):
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = look()
    assert found["pyarrow"].result == found["aiohttp"].result == "failure"
    assert "12.0.1, but >=21" in found["pyarrow"].text
    assert "pip install -c constraints.txt 'pyarrow>=21'" in found["pyarrow"].fix
    assert "not installed" in found["aiohttp"].text
    assert "vllm" not in found  # an extra that is not there is no fault


def test_a_vllm_that_is_too_new_for_trl_is_a_warning_with_the_range(monkeypatch):
    real = importlib.metadata.version
    new = {"vllm": "0.99.0"}
    monkeypatch.setattr(importlib.metadata, "version", lambda name: new.get(name) or real(name))
    vllm = look()["vllm"]
    assert vllm.result == "warning" and "0.99.0, but <=0.31.0,>=0.28" in vllm.text
    assert vllm.fix == "pip install -c constraints.txt 'vllm<=0.31.0,>=0.28'"


def test_gpus_that_torch_cannot_use_are_a_warning(commands):
    gpus(commands, H100)
    gpu = look()["gpu"]
    assert gpu.result == "warning"
    assert "NVIDIA H100 80GB HBM3 (driver 570.86), 80 GiB" in gpu.text


def test_serving_needs_vllm_and_gpus(commands, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = look("qwen3-8b", start_vllm=True)
    assert found["vllm"].result == "failure" and "[vllm]" in found["vllm"].fix
    assert found["serve qwen3-8b"].result == "failure"
    assert "vllm" not in look("qwen3-8b", base_url=URL)


def test_the_set_up_that_fits_the_gpus_is_named(commands):
    gpus(commands, *[H100] * 3)
    found = look("qwen3-8b", "glm-4.6", start_vllm=True)
    assert found["serve qwen3-8b"].result == "ok"
    assert "2 GPU(s): vllm serve Qwen/Qwen3-8B" in found["serve qwen3-8b"].text
    glm = found["serve glm-4.6"]
    assert glm.result == "failure" and "does not fit on the 3 GPU(s) of this machine" in glm.text
    gpus(commands, "NVIDIA L4, 570.86, 23034")
    assert look("qwen3-8b", start_vllm=True)["serve qwen3-8b"].result == "warning"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (None, "not installed"),
        ("echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1", "setting up uid map"),
    ],
)
def test_the_sandbox_is_started_and_not_only_looked_for(commands, monkeypatch, body, said):
    monkeypatch.setattr(bubblewrap, "_works", False)
    if body:
        commands("bwrap", body)
    sandbox = look()["sandbox"]
    assert (sandbox.result, said in sandbox.text) == ("warning", True), sandbox.text
    assert sandbox.fix
    monkeypatch.setattr(bubblewrap, "_works", True)
    assert look()["sandbox"].result == "ok"


def test_a_disk_without_room_is_a_failure(tmp_path, monkeypatch):
    full = SimpleNamespace(total=1 << 40, used=1 << 40, free=5 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: full)
    disk = look(folder=tmp_path / "runs" / "deep")[f"disk {tmp_path}"]
    assert disk.result == "failure" and "--out" in disk.fix


def test_a_small_limit_of_open_files_is_a_failure_with_the_number(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (512, 512))
    assert look()["open files"].result == "ok"
    files = look(base_url=f"{URL},{URL}", concurrency=256)["open files"]
    assert files.result == "failure" and "ulimit -Hn 1280" in files.fix


def test_secrets_are_looked_for_and_never_shown(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    found = look(base_url=URL, api_key_env="SOME_KEY")
    assert found["SOME_KEY"].text == "set"
    assert "secret" not in str(found)
    monkeypatch.delenv("SOME_KEY")
    assert "not set" in look(base_url=URL, api_key_env="SOME_KEY")["SOME_KEY"].text
    assert "SOME_KEY" not in look(api_key_env="SOME_KEY")
    hosted = look(base_url="https://openrouter.ai/api/v1", api_key_env="SOME_KEY")["SOME_KEY"]
    assert hosted.result == "failure" and "openrouter needs a key" in hosted.text
