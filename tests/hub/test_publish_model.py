"""What of a trained model is published, and what is refused before a training and after it."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import messages
import numpy as np
import pytest
from hub_server import ORG
from huggingface_hub import constants
from model_folders import (
    ADAPTER,
    COMMIT,
    ON_HUB,
    TOKENIZER,
    contents,
    record,
    sets,
    shard,
    write_model,
)
from safetensors.numpy import save_file
from set_folders import manifest
from students import MICRO

from heavydistill.errors import PublishError
from heavydistill.hub.options import PublishOptions
from heavydistill.hub.publish import check_before, publish_trained
from heavydistill.store.training_record import write_record

REPO = f"{ORG}/micro-deliberator"
KINDS = pytest.mark.parametrize("lora", [None, {}], ids=["full", "adapter"])
OWN = "name: {name}\ntokenizer: null\ncontext: 4096\nlicence: {licence}\n"
KEY = "sk-Aa1Bb2Cc3Dd4"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


def on_hub(name: str, revision: str = COMMIT) -> dict[str, Any]:
    """Changes of a record whose base model is on the Hub."""
    return {"base": ON_HUB.model_copy(update={"name": name, "revision": revision})}


def test_an_adapter_names_its_base_as_others_find_it_and_no_folder_of_here(hub, publish, tmp_path):
    folder = write_model(tmp_path / "model", lora={}, base=ON_HUB)
    here = json.loads((folder / "adapter_config.json").read_bytes())
    assert here["base_model_name_or_path"] == str(MICRO)
    assert publish(folder, "--to", REPO)[0] == 0
    there = json.loads(hub.files(REPO)["adapter_config.json"])
    assert there == here | {"base_model_name_or_path": ON_HUB.name, "revision": COMMIT}
    assert not [name for name, data in hub.files(REPO).items() if str(MICRO).encode() in data]


def test_files_of_an_earlier_model_go_and_others_stay(hub, publish, tmp_path):
    first = shard(write_model(tmp_path / "first"))
    names = {path.name for path in first.glob("model*.safetensors*")}
    assert publish(first, "--to", REPO)[0] == 0
    assert len(names) > 3 and names <= hub.files(REPO).keys()
    mine = {"model-q4.gguf": b"mine", "plots/a.png": b"mine"}
    hub.repos[REPO].branches["main"][-1].files.update(mine)
    code, said = publish(write_model(tmp_path / "second", lora={}), "--to", REPO)
    assert code == 0, said
    assert "had it: model.safetensors.index.json" in " ".join(said.split())
    there = hub.files(REPO).keys()
    assert there == ADAPTER | TOKENIZER | mine.keys() | {"README.md", "training.json"}


def test_on_a_branch_the_card_says_how_to_fetch_it(hub, publish, folder):
    code, said = publish(folder, "--to", REPO, "--revision", "v2", "--private")
    assert code == 0 and f"{hub.url}/{REPO}/tree/v2 (private)" in said
    card = hub.card(REPO, "v2")
    assert f"\nhf download {REPO} --revision v2 --local-dir micro-deliberator\n" in card
    assert 'AutoTokenizer.from_pretrained("micro-deliberator")' in card


@KINDS
def test_weights_that_are_cut_off_or_not_at_their_end_are_refused(refused, tmp_path, lora):
    folder = write_model(tmp_path / "model", lora=lora, result=None)
    assert messages.is_in(refused(folder), "training_not_ended", folder=folder)
    write_record(record(), folder)
    path = folder / ("model.safetensors" if lora is None else "adapter_model.safetensors")
    whole = path.read_bytes()
    for length in (len(whole) - 1, len(whole) // 2, 20, 4, 0):
        path.write_bytes(whole[:length])
        assert messages.is_in(refused(folder), "weights_incomplete", file=path), length
    path.unlink()
    assert messages.is_in(refused(folder), "no_weights", folder=folder)


def test_a_shard_that_is_missing_or_cut_off_or_another_one_is_refused(refused, folder):
    first, second, *_ = sorted(shard(folder).glob("model-*.safetensors"))
    for content, fault in (
        (first.read_bytes()[:-1], f"{first} is incomplete"),
        (second.read_bytes(), f"{first} lacks "),
    ):
        first.write_bytes(content)
        assert fault in refused(folder)
    first.unlink()
    assert messages.is_in(refused(folder), "index_names_missing", file=first.name)
    (folder / "model.safetensors.index.json").write_text("{}")
    assert messages.is_in(refused(folder), "no_index_of_weights")


def test_weights_without_values_or_of_two_trainings_are_refused(refused, folder, tmp_path):
    save_file({"a": np.ones(3), "b": np.ones((0, 4))}, folder / "model.safetensors")
    assert messages.is_in(refused(folder), "weights_without", tensor="b")
    other = write_model(tmp_path / "other", lora={})
    (other / "adapter_model.safetensors").rename(folder / "adapter_model.safetensors")
    assert messages.is_in(refused(folder), "weights_of_two")


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_what_loads_the_weights_must_be_there(refused, folder, name):
    (folder / name).unlink()
    assert f"{folder} lacks {name}" in refused(folder)


def test_a_key_is_found_in_every_text_and_in_what_weights_tell(refused, folder, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    write_record(record(arguments={"run_name": f"with {KEY}"}), folder)
    said = refused(folder)
    assert messages.is_in(said, "key_value_found", variable="WANDB_API_KEY") and KEY not in said
    assert "train again without it" in said
    write_record(record(), folder)
    template = folder / "chat_template.jinja"
    text = template.read_text()
    template.write_text(f"{{# {KEY} #}}{text}")
    assert "is in chat_template.jinja, line 1" in refused(folder)
    template.write_text(text)
    save_file({"a": np.ones(3)}, folder / "model.safetensors", metadata={"by": KEY})
    assert "is in model.safetensors" in refused(folder)


def test_terms_are_those_of_who_wrote_what_was_learnt(hub, publish, refused, tmp_path):
    models = {"thinker": ["someone/else"], "deliberator": ["openai/gpt-5"]}
    folder = write_model(tmp_path / "model", sets=[sets(manifest(models=models))])
    assert messages.is_in(refused(folder), "terms_of_service", model="openai/gpt-5")
    said = refused(folder, "--allow-restricted-terms")
    assert messages.is_in(said, "terms_unknown", model="someone/else")
    # A thinker learnt nothing from the deliberator of its sets.
    learnt = sets(manifest(models=models | {"thinker": ["micro"]}), role="thinker")
    folder = write_model(tmp_path / "thinker", role="thinker", sets=[learnt])
    assert publish(folder, "--to", REPO)[0] == 0
    assert "gpt-5" not in hub.card(REPO).partition("\n## Models")[2]


def test_a_base_model_whose_licence_is_unknown_needs_a_word_of_the_user(
    hub, publish, refused, tmp_path
):
    for name, revision in (("someone/small-3b", COMMIT), ("qwen3-8b", "00112233aabbccdd")):
        # A folder that only has the name of a known model is not taken for it.
        folder = write_model(tmp_path / revision, **on_hub(name, revision))
        assert messages.is_in(refused(folder), "licence_unknown", model=name)
    folder, profile = tmp_path / COMMIT, tmp_path / "small.yaml"
    profile.write_text(OWN.format(name="someone/small-3b", licence="MIT"))
    for flags, licence in (
        (("--allow-unknown-terms",), "other"),
        (("--license", "cc-by-4.0"), "cc-by-4.0"),
        (("--profile", profile), "mit"),
    ):
        code, said = publish(folder, "--to", REPO, *flags)
        assert code == 0, said
        assert f"\nlicense: {licence}\n" in hub.card(REPO)


def test_the_right_to_write_is_found_out_before_a_training(hub, folder, monkeypatch):
    begun = record(result=None)
    check_before(begun, folder, PublishOptions(repo_id=REPO, private=True))
    assert hub.repos[REPO].kind == "model" and hub.repos[REPO].private
    assert hub.commits(REPO) == 0
    check_before(begun, folder, PublishOptions(repo_id=REPO, revision="v2"))
    assert "v2" in hub.repos[REPO].branches
    hub.add("others/model", kind="model")
    hub.add(f"{ORG}/public", kind="model")
    there = list(hub.repos)
    unknown = begun.model_copy(update=on_hub("someone/small-3b"))
    other = PublishOptions(repo_id=f"{ORG}/other", revision="v2", private=True)
    flags = "--revision v2 --private"
    later = re.escape(f"`heavydistill publish {folder} --to {ORG}/other {flags}`")
    for asked, options, fault in (
        (begun, PublishOptions(repo_id="model"), "the owner is missing"),
        (begun, PublishOptions(repo_id="others/model"), "no right to write here"),
        (begun, PublishOptions(repo_id="others/new"), "the rights to create anything"),
        (begun, PublishOptions(repo_id=f"{ORG}/public", private=True), "exists and is public"),
        (unknown, other, f"someone/small-3b is not known.*{later}"),
    ):
        with pytest.raises(PublishError, match=fault):
            check_before(asked, folder, options)
    assert list(hub.repos) == there
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with messages.raises("hub_not_reached"):
        check_before(begun, folder, PublishOptions(repo_id=REPO))


def test_a_model_that_cannot_be_sent_after_its_training_is_said_to_be_there(hub, folder):
    done = publish_trained(folder, PublishOptions(repo_id=REPO))
    assert done.is_new and done.url == f"{hub.url}/{REPO}"
    later = f"`heavydistill publish {folder} --to {REPO}`"
    hub.plan = lambda method, path: 500 if "/commit/" in path else None
    write_record(record(max_length=97), folder)
    with messages.raises("upload_interrupted", fix=later):
        publish_trained(folder, PublishOptions(repo_id=REPO))
    write_record(record(result=None), folder)
    with messages.raises("training_not_ended", fix=later):
        publish_trained(folder, PublishOptions(repo_id=REPO))
    hub.plan = lambda method, path: 403
    write_record(record(max_length=98), folder)
    with messages.raises("hub_refuses_model", fix=later):
        publish_trained(folder, PublishOptions(repo_id=REPO))


@pytest.mark.slow
@KINDS
def test_what_was_published_is_used_as_its_card_says(hub, publish, elsewhere, tmp_path, lora):
    hub.add(f"{ORG}/base", contents(MICRO), kind="model")
    sha = hub.repos[f"{ORG}/base"].branches["main"][-1].sha
    folder = write_model(tmp_path / "model", lora=lora, **on_hub(f"{ORG}/base", revision=sha))
    code, said = publish(folder, "--to", REPO, "--license", "mit")
    assert code == 0, said
    card = hub.card(REPO)
    (program,) = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)
    program = program.replace('"..."', '"What is 2 + 3?"')
    assert "think" in elsewhere(sys.executable, "-c", program)
