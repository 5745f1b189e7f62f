"""The script that merges adapters, as a user runs it, and what asks the folders."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from adapters import write_adapter, write_training
from command_line import run_command
from runs import build, write_run
from students import MICRO

from heavydistill.store.traces import read_traces

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "merge.py"


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, command)],
        env=os.environ | {"HF_HUB_OFFLINE": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=800,
    )


def merge(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, SCRIPT, *arguments, **environment)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("peft", reason="PEFT, which merges adapters, is not installed")
    return write_training(write_adapter(tmp_path_factory.mktemp("a") / "adapter", strength=0.005))


def test_the_help_holds_a_whole_command():
    told = merge("--help")
    assert told.returncode == 0
    assert "heavydistill merge --adapter out/deliberator --out out/merged" in told.stdout
    assert {"--adapter", "--out", "--base", "--dtype"} <= set(re.findall(r"--\w+", told.stdout))


def test_a_whole_model_is_nothing_to_merge(tmp_path):
    done = merge("--adapter", MICRO, "--out", tmp_path / "merged")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {MICRO} has a whole model")
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_an_adapter_thinks_and_deliberates(adapter, tmp_path):
    roles = (f"--thinker={adapter}", f"--deliberator={adapter}")
    out = tmp_path / "run"
    asked = run_command("generate", *roles, "--limit=1", "--k=4", "--d=1", f"--out={out}")
    assert asked.returncode == 0, asked.stderr
    (trace,) = read_traces(out)
    assert {one.model for one in (*trace.pool, *trace.deliberations)} == {adapter.name}
    assert trace.deliberations


@pytest.mark.slow
def test_who_is_killed_leaves_no_folder_and_the_next_one_makes_it(adapter, tmp_path):
    # The weights are there, and what they are has not been looked at.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal\n"
        "from heavydistill.train import merge as merging\n"
        "merging._look = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    out = tmp_path / "out" / "merged"
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    killed = merge("--adapter", adapter, "--out", out, PYTHONPATH=path)
    assert killed.returncode == -signal.SIGKILL
    assert not out.exists() and list(out.parent.rglob("model.safetensors"))
    done = merge("--adapter", adapter, "--out", out)
    assert done.returncode == 0, done.stderr
    assert f"{out}: {adapter} merged into {MICRO}, bfloat16" in done.stdout
    assert "Largest difference of a logit" in done.stdout
    assert [path.name for path in out.parent.iterdir()] == ["merged"]


def test_sets_are_built_for_an_adapter_as_for_its_base(adapter, tmp_path):
    run_folder = write_run(tmp_path / "run", problems=8)
    for_adapter = build(tmp_path / "adapted", run_folder, student=str(adapter))
    for_base = build(tmp_path / "base", run_folder, student=str(MICRO))
    assert for_adapter.student.template_sha256 == for_base.student.template_sha256
    assert for_adapter.files == for_base.files
