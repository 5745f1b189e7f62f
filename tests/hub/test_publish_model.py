"""``heavydistill publish`` of a trained model against a stand-in of the Hub, over real HTTP."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hub_server import DROP, ORG, TOKEN
from huggingface_hub import constants
from model_folders import COMMIT, record, sets, shard, write_model
from safetensors.numpy import save_file
from set_folders import manifest, write_sets
from students import MICRO

from heavydistill.errors import PublishError, RunError
from heavydistill.hub.options import PublishOptions
from heavydistill.hub.publish import check_before, publish_trained
from heavydistill.store.training_record import BaseModelUsed, write_record

REPO = f"{ORG}/micro-deliberator"
KINDS = pytest.mark.parametrize("lora", [None, {}], ids=["full", "adapter"])
TOKENIZER = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
FULL = {"model.safetensors", "config.json", "generation_config.json"}
ADAPTER = {"adapter_model.safetensors", "adapter_config.json"}
OWN = "name: {name}\ntokenizer: null\ncontext: 4096\nlicence: {licence}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def on_hub(name: str, revision: str = COMMIT) -> dict[str, Any]:
    """Changes of a record whose base model is on the Hub."""
    return {"base": BaseModelUsed(name=name, revision=revision, template_sha256="1" * 64)}


@KINDS
def test_what_arrives_is_what_the_dry_run_wrote(hub, publish, tmp_path, lora):
    folder = write_model(tmp_path / "model", lora=lora)
    before = contents(folder)
    code, said = publish(folder, "--to", REPO, "--dry-run")
    assert code == 0 and hub.requests == [], said
    copy = tmp_path / "model.dry-run"
    assert f"Nothing was sent. What would be is in {copy}" in said
    shown = contents(copy)
    weights = FULL if lora is None else ADAPTER
    assert shown.keys() == weights | TOKENIZER | {"README.md", "training.json"}
    code, said = publish(folder, "--to", REPO)
    assert code == 0, said
    assert hub.repos[REPO].kind == "model" and hub.commits(REPO) == 1
    assert hub.files(REPO) == shown
    assert contents(folder) == before
    assert f"Published: {hub.url}/{REPO} (public)" in said
    hub.received.clear()
    code, said = publish(folder, "--to", REPO)
    assert code == 0 and "Everything was there already, nothing was sent" in said
    assert hub.received == [] and hub.commits(REPO) == 1


def test_an_adapter_names_its_base_as_others_find_it_and_no_folder_of_here(hub, publish, tmp_path):
    folder = write_model(tmp_path / "model", lora={}, **on_hub("Qwen/Qwen3-8B"))
    here = json.loads((folder / "adapter_config.json").read_bytes())
    assert here["base_model_name_or_path"] == str(MICRO)
    assert publish(folder, "--to", REPO)[0] == 0
    there = json.loads(hub.files(REPO)["adapter_config.json"])
    named = {"base_model_name_or_path": "Qwen/Qwen3-8B", "revision": COMMIT}
    assert there == here | named
    assert not [name for name, data in hub.files(REPO).items() if str(MICRO).encode() in data]


def test_shards_go_with_their_index(hub, publish, folder):
    names = {path.name for path in shard(folder).glob("model-*.safetensors")}
    assert len(names) > 2
    assert publish(folder, "--to", REPO)[0] == 0
    assert names | {"model.safetensors.index.json"} <= hub.files(REPO).keys()


def test_files_of_an_earlier_model_go_and_others_stay(hub, publish, tmp_path):
    assert publish(shard(write_model(tmp_path / "first")), "--to", REPO)[0] == 0
    mine = {"model-q4.gguf": b"mine", "plots/a.png": b"mine"}
    hub.repos[REPO].branches["main"][-1].files.update(mine)
    code, said = publish(write_model(tmp_path / "second", lora={}), "--to", REPO)
    assert code == 0, said
    assert "Deleted there, of what was published before: model.safetensors.index.json" in said
    there = hub.files(REPO).keys()
    assert there == ADAPTER | TOKENIZER | mine.keys() | {"README.md", "training.json"}


def test_on_a_branch_the_card_says_how_to_fetch_it(hub, publish, folder):
    code, said = publish(folder, "--to", REPO, "--revision", "v2", "--private")
    assert code == 0 and f"{hub.url}/{REPO}/tree/v2 (private)" in said
    assert hub.files(REPO) == {} and hub.commits(REPO, "v2") == 1
    card = hub.files(REPO, "v2")["README.md"].decode()
    assert f"\nhf download {REPO} --revision v2 --local-dir micro-deliberator\n" in card
    assert 'AutoTokenizer.from_pretrained("micro-deliberator")' in card


@pytest.mark.parametrize("fault", [500, DROP])
def test_an_upload_that_is_broken_off_in_the_middle_is_finished_by_repeating(
    hub, publish, folder, fault
):
    shards = len(list(shard(folder).glob("model-*.safetensors")))

    def plan(method: str, path: str) -> int | None:
        return fault if method == "PUT" and len(hub.large) == 2 else None

    hub.plan = plan
    code, said = publish(folder, "--to", REPO)
    assert code == 1 and "Repeat the same command" in said, said
    assert hub.files(REPO) == {} and len(hub.large) == 2 < shards
    arrived = set(hub.large)
    hub.plan = lambda method, path: None
    hub.received.clear()
    code, _ = publish(folder, "--to", REPO)
    assert code == 0 and hub.commits(REPO) == 1
    assert len(hub.large) == shards and not arrived & set(hub.received)


def test_a_commit_that_fails_leaves_the_model_as_it_was(hub, publish, tmp_path, folder):
    publish(folder, "--to", REPO)
    before = hub.files(REPO)
    hub.plan = lambda method, path: DROP if "/commit/" in path else None
    code, _ = publish(write_model(tmp_path / "other", lora={}), "--to", REPO)
    assert code == 1 and hub.files(REPO) == before


@KINDS
def test_a_training_that_has_not_ended_is_refused(hub, publish, tmp_path, lora):
    folder = write_model(tmp_path / "model", lora=lora, result=None)
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and f"The training in {folder} has not ended" in said
    assert hub.requests == []


@KINDS
def test_weights_that_are_cut_off_are_refused(hub, publish, tmp_path, lora):
    folder = write_model(tmp_path / "model", lora=lora)
    path = folder / ("model.safetensors" if lora is None else "adapter_model.safetensors")
    whole = path.read_bytes()
    for length in (len(whole) - 1, len(whole) // 2, 20, 4, 0):
        path.write_bytes(whole[:length])
        code, said = publish(folder, "--to", REPO)
        assert code == 2 and f"{path} is not whole" in said, length
    path.unlink()
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and f"{folder} holds no weights" in said
    assert hub.requests == []


def test_a_shard_that_is_missing_or_cut_off_or_another_one_is_refused(hub, publish, folder):
    first, second, *_ = sorted(shard(folder).glob("model-*.safetensors"))
    whole = first.read_bytes()
    first.write_bytes(whole[:-1])
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and f"{first} is not whole" in said
    first.write_bytes(second.read_bytes())
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and f"{first} lacks " in said
    first.unlink()
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and f"names {first.name}, which is not there" in said
    (folder / "model.safetensors.index.json").write_text("{}")
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and "is no index of weights" in said
    assert hub.requests == []


def test_weights_without_values_are_refused(hub, publish, folder):
    import numpy as np

    save_file({"a": np.ones(3), "b": np.ones((0, 4))}, folder / "model.safetensors")
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and "has no values for b" in said


def test_an_adapter_beside_a_full_model_is_refused(hub, publish, tmp_path, folder):
    other = write_model(tmp_path / "other", lora={})
    (other / "adapter_model.safetensors").rename(folder / "adapter_model.safetensors")
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and "weights of a full model and of an adapter" in said


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_what_loads_the_weights_must_be_there(hub, publish, folder, name):
    (folder / name).unlink()
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and f"{folder} lacks {name}" in said


def test_checkpoints_states_logs_and_runs_stay_and_are_named(hub, publish, folder):
    left = (
        "checkpoint-10/model.safetensors",
        "checkpoint-10/optimizer.pt",
        "evaluation/after/traces/a.parquet",
        "runs/events.out",
        "trainer_state.json",
        "training_args.bin",
    )
    for name in left:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"stays here")
    code, said = publish(folder, "--to", REPO)
    assert code == 0
    named = "checkpoint-10, evaluation, runs, trainer_state.json, training_args.bin"
    assert f"Not sent, of what is in {folder}: {named}\n" in said
    assert b"stays here" not in hub.files(REPO).values()


def test_a_key_among_the_arguments_is_found(hub, publish, tmp_path, monkeypatch):
    key = "sk-Aa1Bb2Cc3Dd4"
    monkeypatch.setenv("WANDB_API_KEY", key)
    folder = write_model(tmp_path / "model", arguments={"run_name": f"with {key}"})
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and key not in said and hub.requests == []
    assert "The value of WANDB_API_KEY stands in README.md, line" in said
    assert "train again without it" in said


def test_a_key_is_found_in_every_text_and_in_what_weights_tell(hub, publish, folder, monkeypatch):
    key = "sk-Aa1Bb2Cc3Dd4"
    monkeypatch.setenv("WANDB_API_KEY", key)
    template = folder / "chat_template.jinja"
    text = template.read_text()
    template.write_text(f"{{# {key} #}}{text}")
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and "stands in chat_template.jinja, line 1" in said
    template.write_text(text)
    from safetensors.numpy import load_file

    shard_free = folder / "model.safetensors"
    import numpy as np

    save_file({"a": np.ones(3)}, shard_free, metadata={"by": key})
    assert load_file(shard_free)
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and "stands in model.safetensors" in said


def test_unknown_and_restricted_terms_of_who_wrote_the_rows_need_their_flags(
    hub, publish, tmp_path
):
    models = {"thinker": ["someone/else"], "deliberator": ["openai/gpt-5"]}
    folder = write_model(tmp_path / "model", sets=[sets(manifest(models=models))])
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and "openai/gpt-5: what the services write" in said
    code, said = publish(folder, "--to", REPO, "--allow-restricted-terms")
    assert code == 2 and "someone/else (no profile tells its terms)" in said
    assert hub.requests == []
    flags = ("--allow-restricted-terms", "--allow-unknown-terms")
    assert publish(folder, "--to", REPO, *flags)[0] == 0
    card = hub.files(REPO)["README.md"].decode()
    assert "\nlicense: other\n" in card and "`openai/gpt-5`" in card


def test_a_thinker_learnt_nothing_from_the_deliberator_of_its_sets(hub, publish, tmp_path):
    models = {"thinker": ["micro"], "deliberator": ["openai/gpt-5"]}
    learnt = sets(manifest(models=models), role="thinker")
    folder = write_model(tmp_path / "model", role="thinker", sets=[learnt])
    assert publish(folder, "--to", REPO)[0] == 0
    assert "gpt-5" not in hub.files(REPO)["README.md"].decode().partition("\n## Models")[2]


def test_a_base_model_whose_licence_is_unknown_needs_a_word_of_the_user(hub, publish, tmp_path):
    folder = write_model(tmp_path / "model", **on_hub("someone/small-3b"))
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and "The licence of the base model someone/small-3b is not known" in said
    assert hub.requests == []
    profile = tmp_path / "small.yaml"
    profile.write_text(OWN.format(name="someone/small-3b", licence="MIT"))
    for flags, licence in (
        (("--allow-unknown-terms",), "other"),
        (("--license", "cc-by-4.0"), "cc-by-4.0"),
        (("--profile", profile), "mit"),
    ):
        code, said = publish(folder, "--to", REPO, *flags)
        assert code == 0, said
        assert f"\nlicense: {licence}\n" in hub.files(REPO)["README.md"].decode()


def test_a_folder_that_only_has_the_name_of_a_known_model_is_not_taken_for_it(
    hub, publish, tmp_path
):
    folder = write_model(tmp_path / "model", **on_hub("qwen3-8b", revision="00112233aabbccdd"))
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and "The licence of the base model qwen3-8b is not known" in said


def test_what_is_no_folder_of_the_kind_is_told_what_to_give(hub, publish, tmp_path, folder):
    code, said = publish(tmp_path, "--to", REPO)
    assert code == 2 and "neither manifest.json nor training.json" in said
    checkpoint = folder / "checkpoint-30"
    checkpoint.mkdir()
    code, said = publish(checkpoint, "--to", REPO)
    assert code == 2 and f"Give the folder of the trained model, {folder}." in said
    write_sets(folder)
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and "holds sets (manifest.json) and a trained model" in said
    assert hub.requests == []


def test_the_right_to_write_is_found_out_before_a_training(hub, folder, monkeypatch):
    begun = record(result=None)
    check_before(begun, folder, PublishOptions(REPO, private=True))
    assert hub.repos[REPO].kind == "model" and hub.repos[REPO].private
    assert hub.commits(REPO) == 0
    check_before(begun, folder, PublishOptions(REPO, revision="v2"))
    assert "v2" in hub.repos[REPO].branches
    hub.add("others/model", kind="model")
    hub.add(f"{ORG}/public", kind="model")
    for options, fault in (
        (PublishOptions("model"), "does not say whose"),
        (PublishOptions("others/model"), "The token may not write to others/model"),
        (PublishOptions("others/new"), "The token may not write to others/new"),
        (PublishOptions(f"{ORG}/public", private=True), "is there already and is public"),
    ):
        with pytest.raises(PublishError, match=fault):
            check_before(begun, folder, options)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(PublishError, match="HF_HUB_OFFLINE"):
        check_before(begun, folder, PublishOptions(REPO))


def test_terms_are_found_out_before_a_training_too(hub, folder):
    begun = record(result=None)
    check_before(begun, folder, PublishOptions(REPO))
    assert REPO in hub.repos
    unknown = begun.model_copy(update=on_hub("someone/small-3b"))
    later = re.escape(f"`heavydistill publish {folder} --to {ORG}/other`")
    with pytest.raises(PublishError, match=f"someone/small-3b is not known.*{later}"):
        check_before(unknown, folder, PublishOptions(f"{ORG}/other"))
    with pytest.raises(PublishError, match="may not write"):
        check_before(begun, folder, PublishOptions("others/new"))
    assert list(hub.repos) == [REPO]


def test_a_model_that_cannot_be_sent_after_its_training_is_said_to_be_there(hub, folder):
    done = publish_trained(folder, PublishOptions(REPO))
    assert done.is_new and done.url == f"{hub.url}/{REPO}"
    later = re.escape(f"`heavydistill publish {folder} --to {REPO}`")
    hub.plan = lambda method, path: 500 if "/commit/" in path else None
    write_record(record(max_length=97), folder)
    with pytest.raises(RunError, match=f"The model is in .* send it with {later}"):
        publish_trained(folder, PublishOptions(REPO))
    write_record(record(result=None), folder)
    with pytest.raises(PublishError, match=f"has not ended.*{later}"):
        publish_trained(folder, PublishOptions(REPO))


@pytest.mark.slow
@KINDS
def test_what_was_published_is_used_as_its_card_says(hub, publish, tmp_path, lora):
    hub.add(f"{ORG}/base", contents(MICRO), kind="model")
    sha = hub.repos[f"{ORG}/base"].branches["main"][-1].sha
    folder = write_model(tmp_path / "model", lora=lora, **on_hub(f"{ORG}/base", revision=sha))
    code, said = publish(folder, "--to", REPO, "--license", "mit")
    assert code == 0, said
    (program,) = re.findall(
        r"```python\n(.*?)```", hub.files(REPO)["README.md"].decode(), flags=re.DOTALL
    )
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "HF_TOKEN": TOKEN,
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HOME": str(tmp_path / "home"),
    }
    done = subprocess.run(
        [sys.executable, "-c", program.replace('"..."', '"What is 2 + 3?"')],
        env=environment,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "think" in done.stdout
