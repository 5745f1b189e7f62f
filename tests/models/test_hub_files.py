"""What is of the Hub is found, or reported at once: one request where the Hub does not answer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants
from loopback import Handler, listening

import heavydistill
from heavydistill.config.models import Endpoint
from heavydistill.errors import HeavydistillError, TeacherError
from heavydistill.models.hub_files import (
    file_in,
    has_chat_template,
    is_hub_id,
    obstacle,
    parameters_in,
)
from heavydistill.models.registry import profile_at
from heavydistill.models.tokenizer import ReaderTokenizer

# Asks for a tokenizer, a model and a data set of the Hub, and prints what each came to.
ASKS = """
import json
from heavydistill.config.models import Endpoint
from heavydistill.config.run import Problems
from heavydistill.models.hub_files import file_in
from heavydistill.models.tokenizer import ReaderTokenizer
from heavydistill.errors import HeavydistillError
from heavydistill.problems import load
from heavydistill.models.registry import profile_at

assert [file_in("org/cached", "config.json").read_text() for _ in range(2)] == ["{}", "{}"]
for ask in (
    lambda: ReaderTokenizer("org/none"),
    lambda: profile_at("org/none", Endpoint()),
    lambda: load(Problems(source="hub:org/none")),
):
    try:
        ask()
    except HeavydistillError as error:
        print(json.dumps([error.what, error.fix]))
"""


def test_a_hub_that_does_not_answer_is_asked_once_without_noise(tmp_path):
    cached = tmp_path / "hub" / "models--org--cached"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("abc", encoding="utf-8")
    (cached / "snapshots" / "abc").mkdir(parents=True)
    (cached / "snapshots" / "abc" / "config.json").write_text("{}", encoding="utf-8")
    asked = []

    class _Mute(Handler):
        def handle(self) -> None:  # closes the connection
            asked.append(self.client_address)

    with listening(_Mute) as url:
        root = url.removesuffix("/v1")
        environment = {**os.environ, "HF_ENDPOINT": root, "HF_HOME": str(tmp_path)}
        environment.pop("HF_HUB_OFFLINE", None)
        done = subprocess.run(
            [sys.executable, "-c", ASKS], capture_output=True, text=True, env=environment
        )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == 3, done.stderr
    for what, fix in told:
        assert f"{root} does not answer" in what
        assert "or connect to the Hub" in fix
    assert len(asked) == 1
    (warning,) = done.stderr.splitlines()
    assert warning.endswith("so models and tokenizers are taken from the Hub's cache.")


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


@pytest.mark.parametrize("ask", [ReaderTokenizer, lambda name: profile_at(name, Endpoint())])
def test_offline_the_fix_is_said_at_once(ask, offline):
    with pytest.raises(HeavydistillError) as refused:
        ask("org/none")
    assert all(map(is_hub_id, ("org/model", "org/Model-1.5_b", "gpt2")))
    assert obstacle() == "HF_HUB_OFFLINE is set" and obstacle() in refused.value.what
    assert "folder" in refused.value.fix and "unset HF_HUB_OFFLINE" in refused.value.fix


@pytest.mark.parametrize("name", ["./nowhere/model", "/nowhere/model", "a/b/c", "../x", "~/x"])
def test_a_path_is_never_looked_for_on_the_hub(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *a, **k: pytest.fail("asked"))
    assert not is_hub_id(name)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        file_in(name, "config.json")
    with pytest.raises(TeacherError, match=f"The model folder {name} does not exist"):
        profile_at(name, Endpoint())
    with pytest.raises(TeacherError, match="there is no folder"):
        ReaderTokenizer(name)
    with pytest.raises(TeacherError, match="is a file"):
        profile_at(__file__, Endpoint())


@pytest.mark.parametrize(
    ("files", "has"),
    [
        ({}, False),
        ({"tokenizer_config.json": "{}"}, False),
        ({"tokenizer_config.json": '{"chat_template": null}'}, False),
        ({"tokenizer_config.json": '{"chat_template": "{{ messages }}"}'}, True),
        ({"tokenizer_config.json": '{"chat_template": [{"name": "default"}]}'}, True),
        ({"chat_template.jinja": "{{ messages }}", "tokenizer_config.json": "{}"}, True),
        ({"tokenizer_config.json": "[" * 10**5}, False),
    ],
)
def test_a_chat_template_is_seen_in_the_files(tmp_path, files, has):
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert has_chat_template(tmp_path) is has


def test_weights_are_counted_without_loading_them(tmp_path):
    micro = Path(heavydistill.__file__).parent / "micro" / "student"
    assert 0.5e6 < parameters_in(micro) < 2e6
    assert parameters_in(tmp_path) == 0
    (tmp_path / "model.safetensors").write_bytes(b"\x04\x00\x00\x00\x00\x00\x00\x00none")
    assert parameters_in(tmp_path) == 0
