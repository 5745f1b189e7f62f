"""The model that is trained: its tokenizer, its template, and what does not fit the sets."""

import json
import shutil
from pathlib import Path
from typing import Any

import messages
import pytest
from runs import build, write_run
from students import MICRO, TURN_ENDS
from trainings import refusal, sft_arguments
from transformers import AutoTokenizer

from heavydistill.train.base_model import BaseCheckpoint, load_base
from heavydistill.train.datasets import locate_source
from heavydistill.train.sft.train import prepare

TEMPLATE = (MICRO / "chat_template.jinja").read_text(encoding="utf-8")


def copied(folder: Path) -> Path:
    """The micro student, to be changed."""
    shutil.copytree(MICRO, folder)
    return folder


def refused(sets: Path, model: Path | str, out: Path, **keys: Any) -> str:
    return refusal(prepare, sft_arguments(sets, out, model_name_or_path=model, **keys))


def loaded(sets: Path | None, out: Path, **keys: Any) -> BaseCheckpoint:
    wanted = sft_arguments(sets, out, **keys)
    return load_base(wanted, [locate_source(source) for source in wanted.config.sources])


def test_a_profile_a_folder_and_its_tokenizer(sets, tmp_path):
    student = copied(tmp_path / "base")
    (tmp_path / "base" / "weights.txt").write_text("not a weight", encoding="utf-8")
    by_name, by_path = loaded(sets, tmp_path), loaded(sets, tmp_path, model_name_or_path=student)
    assert (by_name.name, by_path.name) == ("micro-student", "base")
    assert by_name.revision == by_path.revision
    assert by_name.chat.template == by_path.chat.template == TEMPLATE
    assert by_name.tokenizer.chat_template == TEMPLATE
    assert by_name.context == by_path.context == 2048


def test_a_model_that_is_none(sets, tmp_path):
    assert "The model 'nobody' cannot be loaded" in refused(sets, "nobody", tmp_path)
    (tmp_path / "empty").mkdir()
    message = refused(sets, tmp_path / "empty", tmp_path / "out")
    assert "config.json is not there. Give a folder with a transformers checkpoint" in message


def test_an_adapter_is_to_be_merged_first(sets, tmp_path):
    adapter = copied(tmp_path / "adapter")
    (adapter / "adapter_config.json").write_text("{}", encoding="utf-8")
    message = refused(sets, adapter, tmp_path / "out")
    assert "is an adapter" in message and "Merge it first" in message


@pytest.mark.parametrize(
    ("model_type", "architecture", "message"),
    [
        ("t5", "T5ForConditionalGeneration", "does not continue a text"),
        ("blip", "BlipForConditionalGeneration", "does not continue a text"),
        ("kosmos-2", "Kosmos2ForConditionalGeneration", "the text tower of this vision-language"),
        ("llama", "LlamaModel", "names LlamaModel, which does not write text"),
        ("llama", None, "names no class"),
    ],
)
def test_a_model_that_cannot_learn_text_is_refused_before_its_weights_are_loaded(
    sets, tmp_path, model_type, architecture, message
):
    from transformers import AutoConfig

    base = copied(tmp_path / "base")
    (base / "model.safetensors").unlink()
    config = AutoConfig.for_model(model_type)
    config.architectures = architecture and [architecture]
    config.save_pretrained(base)
    said = refused(sets, base, tmp_path / "out")
    assert "cannot be trained: " in said and message in said
    assert "Give a causal language model, or Qwen3.5, Qwen3.6 or Gemma 4." in said


@pytest.mark.parametrize(("pad", "taken"), [(0, 0), (None, TURN_ENDS), (10**6, TURN_ENDS)])
def test_a_tokenizer_without_a_pad_token_gets_that_of_the_models_settings(
    sets, tmp_path, pad, taken
):
    base = copied(tmp_path / "base")
    named = json.loads((base / "tokenizer_config.json").read_text(encoding="utf-8"))
    named["pad_token"] = None
    (base / "tokenizer_config.json").write_text(json.dumps(named), encoding="utf-8")
    settings = {"eos_token_id": TURN_ENDS, "pad_token_id": pad}
    (base / "generation_config.json").write_text(json.dumps(settings), encoding="utf-8")
    found = loaded(sets, tmp_path / "out", model_name_or_path=base)
    assert found.tokenizer.pad_token_id == taken


def test_a_checkpoint_of_another_tokenizer_is_refused(sets, tmp_path):
    base = copied(tmp_path / "base")
    tree = json.loads((base / "tokenizer.json").read_text(encoding="utf-8"))
    tree["model"]["merges"] = tree["model"]["merges"][:20]
    (base / "tokenizer.json").write_text(json.dumps(tree), encoding="utf-8")
    message = refused(sets, base, tmp_path / "out")
    assert "rows lose or change tokens in training" in message and " other_tokenizer" in message
    assert "problem p_" in message and "generation " in message
    assert "but the build counted" in message


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(sets, tmp_path):
    base = copied(tmp_path / "base")
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.add_tokens([f"<|more_{number}|>" for number in range(2000)], special_tokens=True)
    tokenizer.save_pretrained(base)
    assert "the tokenizer belongs to another model" in refused(sets, base, tmp_path / "out")


def test_a_template_without_a_generation_prompt_is_refused(sets, tmp_path):
    template = tmp_path / "silent.jinja"
    template.write_text(
        "{% for message in messages %}{{ '<|' + message.role + '|>' }}{{ message.content }}"
        "{{ eos_token }}{% endfor %}",
        encoding="utf-8",
    )
    base = copied(tmp_path / "base")
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokens = ["<|user|>", "<|assistant|>"]
    tokenizer.add_tokens([one for one in tokens if one not in tokenizer.get_vocab()], True)
    tokenizer.save_pretrained(base)
    message = refused(sets, base, tmp_path / "out", chat_template_path=template)
    assert "does not end prompts with the answer's header '<|assistant|>'" in message
    assert "--chat_template_path FILE" in message


def test_sets_for_another_template_are_refused(sets, tmp_path):
    base = copied(tmp_path / "base")
    (base / "chat_template.jinja").write_text(TEMPLATE + "\n", encoding="utf-8")
    message = refused(sets, base, tmp_path / "out")
    assert "was built for micro-student" in message and "another chat template" in message


@pytest.fixture
def own_template(tmp_path: Path) -> Path:
    """Sets with a template of their own."""
    template = tmp_path / "own.jinja"
    template.write_text(TEMPLATE + "{# own #}", encoding="utf-8")
    run = write_run(tmp_path / "runs" / "sums", 12, k=4, words=4)
    build(tmp_path / "own", run, chat_template=str(template), validation=0)
    return tmp_path / "own"


def test_the_template_beside_the_sets_is_learnt(own_template, tmp_path):
    base = loaded(own_template, tmp_path / "out")
    assert base.chat.template == base.tokenizer.chat_template == TEMPLATE + "{# own #}"


def test_sets_with_different_templates_are_refused(sets, own_template, tmp_path):
    config = tmp_path / "train.yaml"
    config.write_text(
        f"datasets:\n- {{path: {sets}, role: thinker}}\n"
        f"- {{path: {own_template}, role: thinker}}\n",
        encoding="utf-8",
    )
    with messages.raises("other_templates", names="own, sets"):
        loaded(None, tmp_path / "out", config=config, role=None)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.jinja", None, "No such file"),
        ("own.jinja", b"\xff\xfe\x00", "cannot be read"),
        ("own.jinja", b"{% for %}", "is not valid Jinja"),
        ("own.jinja", b"", "is empty"),
    ],
)
def test_a_template_file_that_is_none(sets, tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert message in refused(sets, "micro-student", tmp_path, chat_template_path=path)
