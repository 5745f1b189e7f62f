"""``heavydistill publish`` against a stand-in of the Hub, over real HTTP."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import messages
import pytest
from hub_server import DROP, ORG
from huggingface_hub import constants
from model_folders import ADAPTER, FULL, MADE_HERE, TOKENIZER, contents, shard, write_model
from set_folders import write_sets

import heavydistill as hd

REPO = f"{ORG}/heavy-micro"
COMMAND = str(Path(sys.executable).parent / "heavydistill")
MADE: dict[str, Callable[[Path], Path]] = {
    "sets": lambda folder: write_sets(folder, runs=[MADE_HERE]),
    "full": write_model,
    "adapter": lambda folder: write_model(folder, lora={}),
    "shards": lambda folder: shard(write_model(folder)),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return MADE["sets"](tmp_path / "sets")


def test_a_folder_is_published_from_python(hub, folder):
    done = hd.publish(str(folder), {"repo_id": REPO, "private": True})
    assert done.is_new and done.is_private and hub.files(REPO).keys() >= {"manifest.json"}
    again = hd.publish(folder, hd.PublishOptions(repo_id=REPO))
    assert not again.is_new and again.commit == done.commit


@pytest.mark.parametrize("kind", ["sets", "full", "adapter"])
def test_what_arrives_is_what_the_dry_run_wrote(hub, publish, tmp_path, kind):
    folder = MADE[kind](tmp_path / "made")
    before = contents(folder)
    code, said = publish(folder, "--to", REPO, "--dry-run")
    copy = tmp_path / "made.dry-run"
    assert code == 0 and hub.received == [] and hub.repos == {}, said
    assert f"Nothing was sent. What would be sent is in {copy}" in " ".join(said.split())
    assert messages.is_in(said, "deletes_on_hub", files="nothing")
    shown = contents(copy)
    del shown[".heavydistill-dry-run"]
    printed = [line.split() for line in said.splitlines()]
    for name, content in shown.items():
        assert [name, f"{len(content):,}", "bytes"] in printed
    models = {"README.md", "training.json"} | TOKENIZER
    assert (
        shown.keys()
        >= {
            "sets": {"README.md", "manifest.json", "rl/train-00000-of-00001.parquet"},
            "full": models | FULL,
            "adapter": models | ADAPTER,
        }[kind]
    )
    code, said = publish(folder, "--to", REPO)
    assert code == 0, said
    assert hub.repos[REPO].kind == ("dataset" if kind == "sets" else "model")
    assert f"Published: {hub.url}/{'datasets/' * (kind == 'sets')}{REPO} (public)" in said
    assert hub.files(REPO) == shown and contents(folder) == before
    hub.received.clear()
    code, said = publish(folder, "--to", REPO)
    assert code == 0 and messages.is_in(said, "nothing_differs")
    assert hub.received == [] and hub.commits(REPO) == 1


def test_the_dry_run_needs_no_network_and_no_token(hub, publish, folder, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", "/nowhere")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for _ in range(2):  # the second one replaces the copy of the first
        code, said = publish(folder, "--to", REPO, "--dry-run")
        assert code == 0 and messages.is_in(
            " ".join(said.split()), "deletes_on_hub", files="unknown. There is no token"
        )
    assert hub.requests == []


@pytest.mark.parametrize("name", ["thesis.tex", "README.md"])
def test_the_dry_run_replaces_no_folder_that_it_did_not_make(hub, publish, folder, name):
    other = folder.with_name("sets.dry-run") / name
    if name == "thesis.tex":  # put into a copy that it made
        publish(folder, "--to", REPO, "--dry-run")
    other.parent.mkdir(exist_ok=True)
    other.write_text("mine")
    code, said = publish(folder, "--to", REPO, "--dry-run")
    assert code == 2 and messages.is_in(said, "no_copy_of_dry_run")
    assert other.read_text() == "mine"


def test_only_what_changed_is_sent_and_files_of_earlier_sets_go(hub, publish, folder, tmp_path):
    publish(folder, "--to", REPO)
    mine = {"paper.pdf": b"pdf", "plots/a.png": b"png"}
    hub.repos[REPO].branches["main"][-1].files.update(mine)
    fewer = write_sets(tmp_path / "fewer", runs=[MADE_HERE], without=("rl", "validation"))
    hub.received.clear()
    gone = "rl/validation-00000-of-00001.parquet"
    for branch in ("main", "new"):
        code, said = publish(fewer, "--to", REPO, "--dry-run", "--revision", branch)
        assert code == 0 and messages.is_in(said, "deletes_on_hub", files=gone)
    assert hub.received == [] and list(hub.repos[REPO].branches) == ["main"]
    code, said = publish(fewer, "--to", REPO)
    assert code == 0, said
    assert sorted(hub.received) == ["README.md", "manifest.json"]
    assert f"only an earlier publication had it: {gone}" in " ".join(said.split())
    assert gone not in hub.files(REPO) and hub.files(REPO).items() >= mine.items()
    assert hub.commits(REPO) == 2


def test_nothing_of_a_dataset_that_holds_something_else_is_deleted(hub, publish, folder):
    theirs = {"rl/test-00000-of-00001.parquet": b"theirs"}
    hub.add(REPO, theirs)
    code, said = publish(folder, "--to", REPO)
    assert code == 0 and "Deleted" not in said
    assert hub.files(REPO).items() >= theirs.items()


@pytest.mark.parametrize(
    ("kind", "fault"), [*(("sets", fault) for fault in (500, DROP, 429, 409)), ("full", DROP)]
)
def test_a_commit_that_fails_leaves_the_repository_as_it_was(hub, publish, tmp_path, kind, fault):
    publish(MADE[kind](tmp_path / "first"), "--to", REPO)
    before = hub.files(REPO)
    if kind == "sets":
        other = write_sets(tmp_path / "other", runs=[MADE_HERE], without=("rl", "train"))
    else:
        other = MADE["adapter"](tmp_path / "other")
    hub.plan = lambda method, path: fault if "/commit/" in path else None
    code, said = publish(other, "--to", REPO)
    assert code == 1 and messages.is_in(said, "repeat_upload"), said
    assert hub.files(REPO) == before
    hub.plan = lambda method, path: None
    assert publish(other, "--to", REPO)[0] == 0
    assert hub.files(REPO).keys() == contents(other).keys() | {"README.md"}


def test_an_error_that_repeating_does_not_cure_does_not_advise_to_repeat(
    hub, publish, folder, monkeypatch
):
    def breaking(*arguments: Any, **options: Any) -> None:
        raise ValueError("the file has no name")

    monkeypatch.setattr("huggingface_hub.HfApi.create_commit", breaking)
    code, said = publish(folder, "--to", REPO)
    assert code == 1 and "failed in huggingface_hub with ValueError: the file has no name" in said
    assert messages.is_in(said, "fix_upload") and not messages.is_in(said, "repeat_upload")


@pytest.mark.parametrize("kind", ["sets", "shards"])
@pytest.mark.parametrize("fault", [500, DROP])
def test_an_upload_that_is_broken_off_in_the_middle_is_finished_by_repeating(
    hub, publish, tmp_path, kind, fault
):
    folder = MADE[kind](tmp_path / "made")
    hub.plan = lambda method, path: fault if method == "PUT" and len(hub.large) == 2 else None
    code, said = publish(folder, "--to", REPO)
    assert code == 1 and messages.is_in(said, "repeat_upload"), said
    assert hub.commits(REPO) == 0 and hub.files(REPO) == {}
    arrived = set(hub.large)
    assert len(arrived) == 2
    hub.plan = lambda method, path: None
    hub.received.clear()
    code, _ = publish(folder, "--to", REPO)
    assert code == 0 and hub.commits(REPO) == 1
    assert not arrived & set(hub.received)
    assert hub.files(REPO).keys() == contents(folder).keys() | {"README.md"}


def test_private_sets_never_go_to_a_public_dataset(hub, publish, folder):
    hub.add(f"{ORG}/public")
    code, said = publish(folder, "--to", f"{ORG}/public", "--private")
    assert code == 2 and messages.is_in(said, "repository_is_public", repo=f"{ORG}/public")
    assert hub.received == [] and hub.files(f"{ORG}/public") == {}
    code, said = publish(folder, "--to", REPO, "--private")
    assert code == 0 and "(private)" in said and hub.repos[REPO].private
    code, said = publish(folder, "--to", REPO)
    assert code == 0 and "(private)" in said


@pytest.mark.parametrize("branch", ["v2", "try/v2"])
def test_a_branch_is_made_and_the_main_one_left_alone(hub, publish, folder, branch):
    for _ in range(2):
        code, said = publish(folder, "--to", REPO, "--revision", branch)
        assert code == 0 and f"/datasets/{REPO}/tree/{branch}" in said
    assert hub.files(REPO) == {} and hub.commits(REPO, branch) == 1
    card = hub.card(REPO, branch)
    assert f'rl = load_dataset("{REPO}", "rl", revision="{branch}")' in card


def test_a_change_by_somebody_else_meanwhile_is_not_overwritten(hub, publish, folder):
    hub.add(REPO)

    def plan(method: str, path: str) -> int | None:
        if "/preupload/" in path:
            commits = hub.repos[REPO].branches["main"]
            commits.append(type(commits[-1])(hub.new_sha(), {"theirs": b""}))
        return None

    hub.plan = plan
    code, said = publish(folder, "--to", REPO)
    assert code == 1 and "A commit has happened since" in said
    assert hub.files(REPO) == {"theirs": b""}


def test_a_commit_that_may_not_be_made_is_told(hub, publish, folder):
    hub.plan = lambda method, path: 403 if "/commit/" in path else None
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and messages.is_in(said, "hub_refuses", why="planned 403")


@pytest.mark.parametrize(
    ("environment", "part"),
    [
        ({"HF_TOKEN": None}, "There is no token for the Hub. Set HF_TOKEN"),
        ({"HF_TOKEN": "hf_AnotherTokenThatIsWrong"}, "Set HF_TOKEN to a valid token"),
        ({"ENDPOINT": "http://127.0.0.1:9"}, "127.0.0.1 cannot be reached"),
        ({"ENDPOINT": "huggingface.co"}, "HF_ENDPOINT is not an address"),
        ({"ENDPOINT": "http://me:PassOfTheHub@hub"}, "or contains a user or a password"),
        ({"HF_HUB_OFFLINE": True}, "unset the `HF_HUB_OFFLINE` environment variable"),
    ],
)
def test_what_is_wrong_with_the_environment_is_told_and_no_key(
    hub, publish, folder, monkeypatch, environment, part
):
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", "/nowhere")
    for name, value in environment.items():
        if name != "HF_TOKEN":
            monkeypatch.setattr(constants, name, value)
        elif value:
            monkeypatch.setenv(name, value)
        else:
            monkeypatch.delenv(name)
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and part in said
    assert "hf_Another" not in said and "PassOfTheHub" not in said
    assert "valid token" in part or hub.requests == []


@pytest.mark.parametrize("name", ["sets", "a/b/c", "org/bad--name", "org/", "org/sp ace", ""])
def test_a_malformed_name_is_refused_before_anything_is_read(hub, publish, tmp_path, name):
    code, said = publish(tmp_path / "nowhere", "--to", name)
    assert code == 2 and "Give ORG/NAME" in said and hub.requests == []


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--to", "others/sets"], "Use a token with write access"),
        *((["--to", REPO, "--license", i], "must be one of the known") for i in ("beerware", "")),
        *((["--to", REPO, "--revision", i], "Invalid reference name") for i in ("a b", "")),
    ],
)
def test_what_the_hub_refuses_is_told(hub, publish, folder, flags, part):
    code, said = publish(folder, *flags)
    assert code == 2 and part in said
    assert REPO not in hub.repos or hub.commits(REPO) == 0


def test_what_is_no_folder_of_the_kind_is_told_what_to_give(refused, tmp_path):
    model = write_model(tmp_path / "model")
    for given in (tmp_path, write_sets(model)):  # neither, and both
        assert messages.is_in(refused(given), "nothing_to_publish", folder=given)


def test_a_changed_file_is_refused(refused, folder):
    path = folder / "rl" / "train-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes() + b"x")
    assert messages.is_in(refused(folder), "file_not_of_manifest", file=path)
    path.unlink()
    refused(folder)


@pytest.mark.parametrize(
    ("kind", "left", "named"),
    [
        ("sets", "journal/1.segment rl/notes.txt", "journal, rl/notes.txt"),
        (
            "full",
            "checkpoint-10/model.safetensors checkpoint-10/optimizer.pt trainer_state.json "
            "evaluation/after/traces/a.parquet runs/events.out",
            "checkpoint-10, evaluation, runs, trainer_state.json",
        ),
    ],
)
def test_what_is_not_sent_is_named(hub, publish, tmp_path, kind, left, named):
    folder = MADE[kind](tmp_path / "made")
    for name in left.split():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"stays here")
    code, said = publish(folder, "--to", REPO)
    assert code == 0 and messages.is_in(said, "not_sent", folder=folder, files=named)
    assert b"stays here" not in hub.files(REPO).values()


def test_the_installed_command_obeys_its_environment_and_the_sets_load_from_there(
    elsewhere, folder
):
    load = (
        "from datasets import load_dataset\n"
        f"rl = load_dataset({REPO!r}, 'rl')\n"
        f"rows = load_dataset({REPO!r}, split='train')\n"
        "print(rl['validation'].num_rows, rows[0]['completion'][0]['reasoning_content'])"
    )
    elsewhere(COMMAND, "publish", str(folder), "--to", REPO, "--private")
    assert elsewhere(sys.executable, "-c", load).startswith("1 Attempt 1 is right")
