"""``heavydistill teachers`` as a user sees it."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from heavydistill.models.profiles import ProfileFile
from heavydistill.models.registry import names, profile_of


@pytest.fixture
def run(call):
    return functools.partial(call, "teachers")


def test_every_teacher_has_a_line_that_is_not_folded(run):
    code, printed, _ = run()
    assert code == 0 and printed.isascii()
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    assert [line[0] for line in lines[2:]] == names()
    by_name = {line[0]: line[1:] for line in lines[2:]}
    assert by_name["glm-4.6"] == ["202,752", "MIT", "allowed", "8", "zai-org/GLM-4.6"]
    assert by_name["kimi-k2-thinking"][-5:-1] == ["allowed", "more", "than", "8"]
    assert by_name["gpt-5"] == ["400,000", "proprietary", "restricted", "hosted", "only", "-"]
    assert by_name["micro"][-3:] == ["none", "needed", "-"]


def test_no_name_is_folded_in_a_narrow_terminal():
    # In a process of its own, for rich keeps what it once thought of a terminal.
    done = subprocess.run(
        [sys.executable, "-c", "from heavydistill.cli.app import main; main()", "teachers"],
        env={**os.environ, "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    for name in names():
        assert f"\n{name} " in done.stdout
    assert "Hub id" not in done.stdout


def test_one_teacher_is_printed_as_a_profile_with_its_sources(run):
    code, printed, _ = run("deepseek-v3.2")
    assert code == 0
    assert ProfileFile.model_validate(yaml.safe_load(printed)) == profile_of("deepseek-v3.2")
    for part in (
        "# the card gives no length",
        "# openrouter: https://openrouter.ai/api/v1, key in OPENROUTER_API_KEY",
        "# 8 GPU(s): does not fit",
        "model card of deepseek-ai/DeepSeek-V3.2",
        "arXiv 2605.02396",
    ):
        assert part in printed, part
    assert "# 8 GPU(s): vllm serve " in run("glm-4.6")[1]


@pytest.mark.parametrize("name", names())
def test_each_can_be_printed(run, name):
    code, printed, _ = run(name)
    assert code == 0
    assert yaml.safe_load(printed)["name"] == name


def test_a_file_of_ones_own_is_printed_too(run, tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\ntokenizer: null\ncontext: 4096\nhub: org/mine\n", encoding="utf-8")
    code, printed, _ = run(str(file))
    assert code == 0
    assert printed == file.read_text(encoding="utf-8")


def test_an_unknown_name_names_the_nearest(run):
    code, _, said = run("glm4.6")
    assert code == 2
    assert "There is no profile 'glm4.6'. Did you mean glm-4.6?" in said


def test_a_bad_file_is_refused_with_its_key(run, tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\ntokenizer: null\ncontext: 4096\nhubb: org/mine\n", encoding="utf-8"
    )
    code, _, said = run(str(file))
    assert code == 2
    assert f"{file}: unknown key hubb. Did you mean hub?" in said
