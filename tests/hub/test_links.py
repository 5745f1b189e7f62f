"""Links in a folder that is published: what they lead to is sent only if it lies in the folder."""

import shutil
from pathlib import Path

import messages
import pytest
from hub_server import ORG
from model_folders import MADE_HERE, write_model
from set_folders import write_sets

REPO = f"{ORG}/linked"


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


def replace(path: Path, target: Path) -> None:
    """Put a link in place of a file or a folder."""
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("model", "vocab.txt model.safetensors README.md training.json tokenizer.json evaluation"),
        ("sets", "rl/train-00000-of-00001.parquet rl manifest.json README.md"),
    ],
)
def test_a_link_that_leads_out_is_refused(refused, outside, tmp_path, kind, names):
    for number, name in enumerate(names.split()):
        folder = tmp_path / f"{kind}{number}"
        write_model(folder) if kind == "model" else write_sets(folder, runs=[MADE_HERE])
        kept = outside / str(number) / Path(name).name
        kept.parent.mkdir()
        if name == "evaluation":
            kept.mkdir()
            (kept / "evaluation.json").write_text("{}")
        elif (folder / name).exists():  # even its own file, elsewhere
            (folder / name).rename(kept)
        else:
            kept.write_text("mine alone")
        replace(folder / name, kept)
        for more in ([], ["--dry-run"]):
            said = refused(folder, *more)
            link = {"file": folder / name, "target": kept}
            assert messages.is_in(said, "link_to_elsewhere", **link)
            assert f"`rm {folder / name} && cp -r '{kept}' {folder / name}`" in said
        assert not folder.with_name(f"{folder.name}.dry-run").exists()


def test_a_link_that_leads_nowhere_is_refused(refused, model):
    replace(model / "vocab.txt", Path("gone"))
    said = refused(model)
    assert messages.is_in(said, "link_in_folder", file=model / "vocab.txt")


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
    assert messages.is_in(said, "link_in_folder", file=snapshot / "tokenizer.json")
