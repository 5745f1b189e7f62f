"""Links in a folder that is published: what they lead to is sent only if it lies in the folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hub_server import ORG
from model_folders import write_model
from set_folders import write_sets

from heavydistill.store.sets.folder import RunUsed

REPO = f"{ORG}/linked"
GENERATED = RunUsed(name="run", traces=2, config={"problems": {"source": "micro"}}, summary={})
ROWS = "rl/train-00000-of-00001.parquet"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with what must not be sent."""
    folder = tmp_path / "out side"
    folder.mkdir()
    (folder / "secret").write_text("mine alone")
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    return write_sets(tmp_path / "sets", runs=[GENERATED])


def replace(path: Path, target: Path) -> None:
    """Put a link in place of a file or a folder."""
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


@pytest.mark.parametrize(
    "name", ["vocab.txt", "model.safetensors", "README.md", "training.json", "tokenizer.json"]
)
def test_a_link_in_a_model_that_leads_out_is_refused(hub, publish, model, outside, name):
    kept = outside / name
    if (model / name).exists():  # even its own file, elsewhere
        (model / name).rename(kept)
    else:
        kept.write_text("mine alone")
    replace(model / name, kept)
    for more in ([], ["--dry-run"]):
        code, said = publish(model, "--to", REPO, *more)
        assert code == 2 and hub.requests == []
        assert f"{model / name} is a link that leads out of the folder" in said
        assert f"`rm {model / name} && cp -r '{kept}' {model / name}`" in said
    assert not model.with_name("model.dry-run").exists()


def test_a_folder_of_a_model_that_leads_out_is_refused(hub, publish, model, outside):
    (outside / "evaluation.json").write_text("{}")
    replace(model / "evaluation", outside)
    code, said = publish(model, "--to", REPO)
    assert code == 2 and hub.requests == []
    assert f"{model / 'evaluation'} is a link that leads out of the folder, to '{outside}'" in said


@pytest.mark.parametrize("name", [ROWS, "rl", "manifest.json", "README.md"])
def test_a_link_in_sets_that_leads_out_is_refused(hub, publish, sets, outside, name):
    kept = outside / Path(name).name
    if (sets / name).exists():
        (sets / name).rename(kept)
    else:
        kept.write_text("mine alone")
    replace(sets / name, kept)
    code, said = publish(sets, "--to", REPO)
    assert code == 2 and hub.requests == []
    assert f"{sets / name} is a link that leads out of the folder" in said


@pytest.mark.parametrize("name", ["vocab.txt", "evaluation"])
def test_a_link_that_leads_nowhere_is_refused(hub, publish, model, name):
    replace(model / name, Path("gone"))
    code, said = publish(model, "--to", REPO)
    assert code == 2 and hub.requests == []
    assert f"{model / name} is a link to gone, which is not there" in said
    assert f"`rm {model / name}`" in said


def test_links_within_the_folder_are_followed_and_what_is_not_sent_may_lead_out(
    hub, publish, model, outside, tmp_path
):
    weights = (model / "model.safetensors").read_bytes()
    (model / "checkpoint-5").mkdir()
    (model / "model.safetensors").rename(model / "checkpoint-5" / "model.safetensors")
    replace(model / "model.safetensors", Path("checkpoint-5/model.safetensors"))
    replace(model / "logs", outside)
    latest = tmp_path / "latest"
    latest.symlink_to(model)
    code, said = publish(latest, "--to", REPO)
    assert code == 0, said
    assert hub.files(REPO)["model.safetensors"] == weights
    assert b"mine alone" not in b"".join(hub.files(REPO).values())


def test_a_snapshot_of_the_hubs_cache_is_sent_from_its_own_blobs_alone(
    hub, publish, model, outside, tmp_path
):
    repo = tmp_path / "models--org--name"
    snapshot, blobs = repo / "snapshots" / ("1" * 40), repo / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate(path for path in model.iterdir() if path.is_file()):
        file.rename(blobs / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    code, said = publish(snapshot, "--to", REPO)
    assert code == 0, said
    assert {"model.safetensors", "tokenizer.json"} <= hub.files(REPO).keys()
    sent = len(hub.requests)
    replace(snapshot / "tokenizer.json", outside / "secret")
    code, said = publish(snapshot, "--to", REPO)
    assert code == 2 and len(hub.requests) == sent
    assert f"{snapshot / 'tokenizer.json'} is a link that leads out" in said
