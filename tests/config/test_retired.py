"""Names of earlier versions: an error where they are typed, and no obstacle in a file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from heavydistill.cli.app import main
from heavydistill.config.run import load_config
from heavydistill.config.sets import load_build_config
from heavydistill.config.yaml import RETIRED
from heavydistill.errors import ConfigError


def ended(*words: str) -> int:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["heavydistill", *words])
        with pytest.raises(SystemExit) as end:
            main()
    return int(end.value.code or 0)


@pytest.mark.parametrize("name", [name for name in RETIRED if "." not in name])
def test_an_old_flag_or_verb_says_the_new_one(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["generate", name] if name.startswith("--") else [name, "--teacher=glm-4.6"]
    assert ended(*words) == 2
    assert (
        f"Error: {name} does not exist any more. {RETIRED[name].instead}" in capsys.readouterr().err
    )
    assert ended("--help") == 0 and f" {name} " not in capsys.readouterr().out


@pytest.mark.parametrize("key", [name for name in RETIRED if "." in name])
def test_an_old_key_says_the_new_one(key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(None, {key: RETIRED[key].default})
    assert refused.value.what == f"{key} does not exist any more"
    assert refused.value.fix == RETIRED[key].instead


@pytest.mark.parametrize(("text", "warnings"), [("false", 0), ("true", 1)])
def test_a_file_of_an_earlier_version_opens(
    text: str, warnings: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"endpoint: {{serve: {text}}}\n", encoding="utf-8")
    assert load_config(file).endpoint.start_vllm == (text == "true")
    keys = f"runs: [a]\nout: b\nredeliberate:\n  endpoint: {{serve: {text}}}\n"
    file.write_text(keys, encoding="utf-8")
    section = load_build_config(file, {}).redeliberate
    assert section and section.endpoint
    assert section.endpoint.start_vllm == (text == "true")
    assert len(caplog.records) == 2 * warnings
    if warnings:
        assert caplog.messages[0] == (
            f"{file}: endpoint.serve does not exist any more. Write endpoint.start_vllm."
        )
