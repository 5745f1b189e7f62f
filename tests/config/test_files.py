"""Files that may be somebody else's: none keeps the reader waiting, none fills the memory."""

import os
from pathlib import Path

import messages
import pytest
from command_line import run_command

from heavydistill.config.files import json_of, new_file, text_in
from heavydistill.config.run import RunConfig
from heavydistill.config.yaml import load, read_yaml
from heavydistill.errors import ConfigError

BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    + ["teacher: *a11"]
)


def test_a_pipe_and_a_device_are_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with messages.raises("no_regular_file"):
            text_in(path)


def test_a_file_above_the_limit_is_refused_unread(tmp_path):
    with (tmp_path / "large").open("wb") as file:
        file.truncate(2**40)
    with messages.raises("file_too_large", size="16 MiB"):
        text_in(tmp_path / "large")


def test_json_of_any_depth_is_a_value_or_a_value_error():
    assert json_of('{"a": [1]}') == {"a": [1]}
    with messages.raises("json_too_deep"):
        json_of("[" * 200_000)


def test_a_link_in_the_place_of_the_new_file_keeps_its_target(tmp_path):
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / ".out.new").symlink_to(tmp_path / "theirs")
    with new_file(tmp_path / "out") as file:
        file.write(b"ours")
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert (tmp_path / "out").read_text() == "ours" and not (tmp_path / ".out.new").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("teacher: " + "[" * 20_000, "nested too deeply"),
        ("seed: " + "1" * 20_000, "is not YAML"),
        (BOMB, "more than 100,000 values"),
        ("teacher: &a [*a]", "more than 100,000 values"),
    ],
)
def test_yaml_that_would_fill_the_memory_ends_in_a_short_message(tmp_path, text, said):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said) as error:
        read_yaml(file)
    assert len(str(error.value)) < 1000


def test_a_message_shows_the_beginning_of_a_value(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("seed: " + "x" * 100_000)
    with pytest.raises(ConfigError) as error:
        load(RunConfig, file)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("value", ["[" * 20_000, "1" * 20_000])
def test_a_value_on_the_command_line_that_cannot_be_read_is_a_message(value):
    done = run_command("generate", f"--set=seed={value}", "--dry-run")
    assert done.returncode == 2 and len(done.stderr) < 1000
    assert messages.is_in(done.stderr, "value_not_yaml")


def test_a_name_that_is_not_utf8_is_refused_before_anything_is_asked():
    done = run_command("generate", "--out", "s\udcff", "--dry-run")
    assert done.returncode == 2 and "is not UTF-8" in done.stderr
