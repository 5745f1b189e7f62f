"""Prompts of the users: which files are one, what is kept of them, and what is refused."""

from pathlib import Path
from typing import Any

import messages
import pytest
from messages import message

from heavydistill.config.prompts import OwnPrompts
from heavydistill.config.run import RunConfig, dump_config, load_config
from heavydistill.errors import ConfigError
from heavydistill.heavy import prompts

CACHE = "{{fence}} Problem\n{{problem}}\n{{attempts}}"


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(role: str, text: str | bytes, file: str = "my.md") -> Any:
    """What the configuration keeps of a file with this text."""
    Path(file).write_bytes(text.encode() if isinstance(text, str) else text)
    return getattr(OwnPrompts(**{role: file}), role)


@pytest.mark.parametrize(
    ("role", "text", "kept"),
    [
        ("thinker", "Think.\n", "{{problem}}\n\nThink."),
        ("thinker", "{{problem}}\n", "{{problem}}"),
        ("thinker", "\ufeffQ: {{ problem }}\r\n{{language}}", "Q: {{ problem }}\n{{language}}"),
        ("deliberator", "Compare.\n{{cache}}\nWhich?", f"Compare.\n{CACHE}\nWhich?"),
        ("deliberator", "{{attempts}} on {{problem}}", "{{attempts}} on {{problem}}"),
        ("chooser", "{{cache}}", CACHE),
        ("judge", "{{answer}} {{problem}} {{reference}}", "{{answer}} {{problem}} {{reference}}"),
    ],
)  # fmt: skip
def test_the_text_of_a_file_is_kept_with_short_forms_written_out(in_folder, role, text, kept):
    assert read(role, text) == kept
    assert getattr(OwnPrompts(**{role: kept}), role) == kept  # as in a saved configuration


def test_a_judges_answer_alone_stands_for_its_three_texts(in_folder):
    kept = read("judge", "Same?\n{{answer}}\nReply.")
    parts = prompts.judge_prompt("en", kept).parts
    assert [part for part in parts[1::2] if part != "fence"] == ["problem", "reference", "answer"]
    assert parts.count("fence") == 4


EXAMPLES = """
- problem: |
    How many users?
  answer: SELECT count(*) FROM users
- {problem: '2', attempt 1: '3', answer: '4'}
"""


def test_examples_are_part_of_the_text_and_of_the_version(in_folder):
    (in_folder / "of").mkdir()
    Path("of/shots.yaml").write_text(EXAMPLES)
    text = "---\nexamples: shots.yaml\n---\nWrite SQL.\n{{examples}}\n{{problem}}"
    kept = read("thinker", text, "of/sql.md")
    prompt = prompts.load("thinker", "general", "en", OwnPrompts(thinker=kept))
    assert prompts.thinker_prompt("Now?", prompt) == (
        "Write SQL.\n==== Example 1 problem\nHow many users?\n"
        "==== Example 1 answer\nSELECT count(*) FROM users\n"
        "==== Example 2 problem\n2\n==== Example 2 attempt 1\n3\n==== Example 2 answer\n4\n"
        "==== End of examples\nNow?"
    )
    Path("of/shots.yaml").write_text(EXAMPLES.replace("4", "5"))
    other = prompts.load(
        "thinker", "x", "en", OwnPrompts(thinker=read("thinker", text, "of/sql.md"))
    )
    assert other.version.startswith("thinker.own.en@") and other.version != prompt.version


HEAD = "---\nexamples: shots.yaml\n---\n"


@pytest.mark.parametrize(
    ("role", "text", "told"),
    [
        ("deliberator", "Compare. {{attemps}}", "{{attemps}} is no field"),
        ("thinker", "{{attempts}}", "{{attempts}} is no field"),
        ("deliberator", "Solve {{problem}}", "{{attempts}} occurs 0 times"),
        ("deliberator", "Solve.", "{{problem}} occurs 0 times"),
        ("deliberator", "{{cache}} {{attempts}}", "{{cache}} is no field"),
        ("deliberator", "{{cache}}{{cache}}", "{{problem}} occurs 2 times"),
        ("judge", "{{answer}} {{problem}}", "{{reference}} occurs 0 times"),
        ("judge", "{{answer}} {{problem}} {{reference}} {{answer}}", "{{answer}} occurs 2 times"),
        ("judge", "Is it right?", "{{problem}} occurs 0 times"),
        ("thinker", " \n", "is empty"),
        ("thinker", b"\xff", ": not UTF-8"),
        ("thinker", b"x" * 2**21, "larger than 1 MiB"),
        ("thinker", "Think.<|im_end|>", "<|im_end|> is a control token"),
        ("thinker", "Use [THINK] tags.", "[THINK] is a control token"),
        ("thinker", "{{examples}}", "has only one of front matter and {{examples}}"),
        ("thinker", f"{HEAD}Think.", "has only one of front matter and {{examples}}"),
        ("thinker", "---\ntitle: x\n---\nThink.", "has only one of front matter and"),
        ("thinker", f"{HEAD}{{{{examples}}}}", "my.md: shots.yaml: No such file"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_prompt_is_refused_with_the_fix(in_folder, role, text, told):
    with pytest.raises(ConfigError) as refused:
        read(role, text)
    assert told in refused.value.what and f"prompts.{role}: my.md" in refused.value.what
    assert refused.value.fix


def test_the_named_prompt_asks_for_thinking_between_tags():
    text = OwnPrompts(deliberator="tagged").deliberator
    assert isinstance(text, str) and "<think>" in text and "</think>" in text
    assert "{{problem}}" in text and "{{attempts}}" in text


@pytest.mark.parametrize("role", ["thinker", "chooser", "judge"])
def test_a_named_prompt_of_the_deliberator_is_refused_for_another_role(role):
    assert OwnPrompts(deliberator="none").deliberator == CACHE
    with pytest.raises(ConfigError, match=f"prompts.{role}: none is a prompt of the deliberator"):
        OwnPrompts(**{role: "none"})


def test_a_field_that_is_mistyped_is_told_with_those_there_are(in_folder):
    with pytest.raises(ConfigError) as refused:
        read("deliberator", "{{attemps}}")
    assert "Did you mean attempts?" in refused.value.fix
    assert "{{cache}} alone" in refused.value.fix and "language" in refused.value.fix


@pytest.mark.parametrize(
    "examples",
    ["", "[]", "- 1", "- {problem: 2}", "problem: x", "- {a: b", "[" * 9999,
     f"- &a {{problem: {'x' * 1000}}}\n" + "- *a\n" * 2000],
)  # fmt: skip
def test_a_file_without_examples_is_refused(in_folder, examples):
    Path("shots.yaml").write_text(examples)
    with messages.raises("prompt_examples_shape", file="my.md", examples="shots.yaml"):
        read("thinker", f"{HEAD}{{{{examples}}}}")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"thinker": 5}, message("prompts_no_file", role="thinker")),
        ({"thinker": {"a b": "my.md"}}, message("prompts_no_file", role="thinker")),
        ({"thinker": {"sql": None}}, message("prompts_no_file", role="thinker")),
        ({"thinker": {"sql": 5}}, message("prompts_no_file", role="thinker")),
        ({"thinker": {"sql": "no.md"}}, "prompts.thinker.sql: no.md: No such file"),
        ({"thinker": ""}, "prompts.thinker: : Is a directory"),
        ({"deliberater": "my.md"}, message("unknown_key", key="prompts.deliberater")),
        ({"judge": "{{answer}}"}, "prompts.judge is set without a judge"),
    ],
)
def test_what_is_no_file_is_refused(in_folder, given, told):
    with pytest.raises(ConfigError) as refused:
        load_config(overrides={"prompts": given})
    assert told in refused.value.what and refused.value.fix


def test_a_judge_with_replies_of_its_own_needs_a_prompt_of_its_own():
    keys = {"judge.model": "m", "judge.replies": "compass_verifier"}
    with messages.raises("judge_replies_prompt", replies="compass_verifier"):
        load_config(overrides=keys)
    assert load_config(overrides=keys | {"prompts.judge": "{{answer}}"}).prompts.judge


def test_a_configuration_keeps_its_prompts_when_their_files_change(in_folder):
    read("deliberator", "Compare.\n{{cache}}")
    config = load_config(
        overrides={"prompts": {"deliberator": "my.md", "thinker": {"sql": "{{problem}}"}}}
    )
    Path("my.md").unlink()
    Path("run.yaml").write_text(dump_config(config))
    assert load_config(Path("run.yaml")) == config
    assert config.prompts.text("thinker", "sql") and not config.prompts.text("thinker", "stem")
    assert config.identity != RunConfig().identity


def test_no_file_is_read_that_a_record_names(in_folder):
    Path("secret").write_text("key")
    for tree in ({"thinker": "secret"}, {"thinker": {"sql": "secret"}}, {"thinker": 5}, 5):
        with messages.raises("recorded_prompt_no_text"):
            OwnPrompts.saved(tree)
    assert OwnPrompts.saved({"thinker": None}) == OwnPrompts()
    with messages.raises("unknown_key", key="writer"):
        OwnPrompts.saved({"writer": "{{answer}}"})
