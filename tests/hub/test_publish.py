"""``heavydistill publish`` against a stand-in of the Hub, over real HTTP."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hub_server import DROP, ORG, TOKEN
from huggingface_hub import constants
from set_folders import write_sets

from heavydistill.store.sets.folder import RunUsed

REPO = f"{ORG}/heavy-micro"
COMMAND = str(Path(sys.executable).parent / "heavydistill")
GENERATED = RunUsed(name="run", traces=2, config={"problems": {"source": "micro"}}, summary={})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_sets(tmp_path / "sets", runs=[GENERATED])


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_what_arrives_is_what_the_dry_run_wrote(hub, publish, folder):
    before = contents(folder)
    code, said = publish(folder, "--to", REPO, "--dry-run")
    assert code == 0 and hub.requests == []
    copy = folder.with_name("sets.dry-run")
    assert f"Nothing was sent. What would be is in {copy}" in said
    shown = contents(copy)
    assert {"README.md", "manifest.json", "rl/train-00000-of-00001.parquet"} <= shown.keys()
    for name, content in shown.items():
        assert any(
            line.split() == [name, f"{len(content):,}", "bytes"] for line in said.split("\n")
        )
    code, said = publish(folder, "--to", REPO)
    assert code == 0, said
    assert hub.files(REPO) == shown
    assert contents(folder) == before
    assert f"Published: {hub.url}/datasets/{REPO} (public)" in said
    assert hub.commits(REPO) == 1


def test_the_dry_run_needs_no_network_and_no_token(hub, publish, folder, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", "/nowhere")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for _ in range(2):  # the second one replaces the copy of the first
        assert publish(folder, "--to", REPO, "--dry-run")[0] == 0
    assert hub.requests == []


def test_a_dry_run_removes_nothing_that_is_not_its_own(hub, publish, folder):
    other = folder.with_name("sets.dry-run")
    other.mkdir()
    (other / "thesis.tex").write_text("mine")
    code, said = publish(folder, "--to", REPO, "--dry-run")
    assert code == 2 and "is in the way" in said
    assert (other / "thesis.tex").read_text() == "mine"


def test_a_second_identical_publish_sends_nothing(hub, publish, folder):
    publish(folder, "--to", REPO)
    hub.received.clear()
    code, said = publish(folder, "--to", REPO)
    assert code == 0 and "Everything was there already, nothing was sent" in said
    assert hub.received == [] and hub.commits(REPO) == 1


def test_only_what_changed_is_sent_and_files_of_earlier_sets_go(hub, publish, folder, tmp_path):
    publish(folder, "--to", REPO)
    mine = {"paper.pdf": b"pdf", "plots/a.png": b"png"}
    hub.repos[REPO].branches["main"][-1].files.update(mine)
    fewer = write_sets(tmp_path / "fewer", runs=[GENERATED], without=("rl", "validation"))
    hub.received.clear()
    code, said = publish(fewer, "--to", REPO)
    assert code == 0, said
    assert sorted(hub.received) == ["README.md", "manifest.json"]
    gone = "rl/validation-00000-of-00001.parquet"
    assert f"Deleted there, of what was published before: {gone}" in said
    assert gone not in hub.files(REPO) and hub.files(REPO).items() >= mine.items()
    assert hub.commits(REPO) == 2


def test_nothing_of_a_dataset_that_holds_something_else_is_deleted(hub, publish, folder):
    theirs = {"rl/test-00000-of-00001.parquet": b"theirs"}
    hub.add(REPO, theirs)
    code, said = publish(folder, "--to", REPO)
    assert code == 0 and "Deleted" not in said
    assert hub.files(REPO).items() >= theirs.items()


@pytest.mark.parametrize("fault", [500, DROP, 429])
def test_a_commit_that_fails_leaves_the_dataset_as_it_was(hub, publish, folder, tmp_path, fault):
    publish(folder, "--to", REPO)
    before = hub.files(REPO)
    other = write_sets(tmp_path / "other", runs=[GENERATED], without=("rl", "train"))
    hub.plan = lambda method, path: fault if "/commit/" in path else None
    code, said = publish(other, "--to", REPO)
    assert code == 1 and "Repeat the same command" in said, said
    assert hub.files(REPO) == before
    hub.plan = lambda method, path: None
    code, _ = publish(other, "--to", REPO)
    assert code == 0 and hub.files(REPO).keys() == before.keys() - {
        "rl/train-00000-of-00001.parquet"
    }


@pytest.mark.parametrize("fault", [500, DROP])
def test_an_upload_that_is_broken_off_in_the_middle_is_finished_by_repeating(
    hub, publish, folder, fault
):
    puts = Counter()

    def plan(method: str, path: str) -> int | None:
        puts[path] += method == "PUT"
        return fault if method == "PUT" and len(hub.large) == 3 else None

    hub.plan = plan
    code, said = publish(folder, "--to", REPO)
    assert code == 1 and "Repeat the same command" in said, said
    assert hub.commits(REPO) == 0 and hub.files(REPO) == {}
    arrived = set(hub.large)
    assert len(arrived) == 3
    hub.plan = lambda method, path: None
    hub.received.clear()
    code, _ = publish(folder, "--to", REPO)
    assert code == 0 and hub.commits(REPO) == 1
    assert not arrived & set(hub.received)
    assert hub.files(REPO).keys() == contents(folder).keys() | {"README.md"}


def test_a_private_dataset_is_made_private(hub, publish, folder):
    code, said = publish(folder, "--to", REPO, "--private")
    assert code == 0 and "(private)" in said
    assert hub.repos[REPO].private


def test_private_sets_never_go_to_a_public_dataset(hub, publish, folder):
    hub.add(REPO)
    code, said = publish(folder, "--to", REPO, "--private")
    assert code == 2 and f"{REPO} is there already and is public" in said
    assert hub.received == [] and hub.files(REPO) == {}


def test_a_private_dataset_stays_private(hub, publish, folder):
    hub.add(REPO, private=True)
    code, said = publish(folder, "--to", REPO)
    assert code == 0 and "(private)" in said


def test_a_branch_is_made_and_the_main_one_left_alone(hub, publish, folder):
    for _ in range(2):
        code, said = publish(folder, "--to", REPO, "--revision", "v2")
        assert code == 0 and f"/datasets/{REPO}/tree/v2" in said
    assert hub.files(REPO) == {} and hub.commits(REPO, "v2") == 1
    card = hub.files(REPO, "v2")["README.md"].decode()
    assert f'rl = load_dataset("{REPO}", "rl", revision="v2")' in card


def test_the_name_of_a_branch_may_have_a_slash(hub, publish, folder):
    for _ in range(2):
        assert publish(folder, "--to", REPO, "--revision", "try/v2")[0] == 0
    assert hub.commits(REPO, "try/v2") == 1 and hub.files(REPO) == {}


def test_a_change_by_somebody_else_meanwhile_is_not_overwritten(hub, publish, folder):
    hub.add(REPO)

    def plan(method: str, path: str) -> int | None:
        if "/preupload/" in path:
            commits = hub.repos[REPO].branches["main"]
            commits.append(type(commits[-1])(hub.new_sha(), {"theirs": b""}))
        return None

    hub.plan = plan
    code, said = publish(folder, "--to", REPO)
    assert code == 1 and "was changed by somebody else" in said and "(412)" in said
    assert hub.files(REPO) == {"theirs": b""}


def test_a_conflict_at_the_commit_asks_for_the_same_command(hub, publish, folder):
    hub.plan = lambda method, path: 409 if "/commit/" in path else None
    code, said = publish(folder, "--to", REPO)
    assert code == 1 and "(409)" in said and "Repeat the same command" in said


def test_a_token_that_is_not_accepted_is_the_users_to_mend(hub, publish, folder, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_AnotherTokenThatIsWrong")
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and "does not accept the token (401)" in said
    assert "hf_AnotherTokenThatIsWrong" not in said


def test_no_token_is_said_before_anything_is_asked(hub, publish, folder, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", "/nowhere")
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and "There is no token for the Hub. Set HF_TOKEN" in said
    assert hub.requests == []


def test_a_token_without_the_right_is_told_where(hub, publish, folder):
    code, said = publish(folder, "--to", "others/sets")
    assert code == 2 and "The token may not write to others/sets (403" in said
    hub.plan = lambda method, path: 403 if "/commit/" in path else None
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and f"The token may not write to {REPO} (403" in said


def test_a_licence_that_the_hub_does_not_know_is_told(hub, publish, folder):
    code, said = publish(folder, "--to", REPO, "--license", "beerware")
    assert code == 2 and '"license" must be one of the known ones' in said
    assert hub.commits(REPO) == 0


@pytest.mark.parametrize("licence", ["MIT", "", "cc by"])
def test_a_malformed_licence_is_refused_here(hub, publish, folder, licence):
    code, said = publish(folder, "--to", REPO, "--license", licence)
    assert code == 2 and f"{licence!r} is no licence" in said and "small letters" in said
    assert hub.requests == []


def test_the_licence_that_is_chosen_is_on_the_card(hub, publish, folder):
    assert publish(folder, "--to", REPO, "--license", "cc-by-4.0")[0] == 0
    assert "\nlicense: cc-by-4.0\n" in hub.files(REPO)["README.md"].decode()


def test_a_branch_with_a_bad_name_is_told(hub, publish, folder):
    code, said = publish(folder, "--to", REPO, "--revision", "a b")
    assert code == 2 and "Invalid reference name a b" in said


@pytest.mark.parametrize("name", ["sets", "a/b/c", "org/bad--name", "org/", "org/sp ace", ""])
def test_a_malformed_name_is_refused_before_anything_is_read(hub, publish, folder, name):
    code, said = publish(folder / "nowhere", "--to", name)
    assert code == 2 and "Give ORG/NAME" in said
    assert hub.requests == []


def test_an_address_where_nobody_listens_is_told(publish, folder, hub, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and "127.0.0.1 cannot be reached" in said and "HF_ENDPOINT" in said
    monkeypatch.setattr(constants, "ENDPOINT", "huggingface.co")
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and "HF_ENDPOINT is no address" in said


def test_a_password_in_the_address_is_refused_and_not_printed(publish, folder, hub, monkeypatch):
    with_password = hub.url.replace("://", "://me:PassOfTheHub@")
    monkeypatch.setattr(constants, "ENDPOINT", with_password)
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and "HF_ENDPOINT has a user or a password in it" in said
    assert "PassOfTheHub" not in said and hub.requests == []


def test_an_empty_name_of_a_branch_is_not_taken_for_the_main_one(publish, folder, hub):
    code, said = publish(folder, "--to", REPO, "--revision", "")
    assert code == 2 and "The name of the branch is empty" in said
    assert hub.requests == []


def test_offline_is_said_with_what_works_offline(hub, publish, folder, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and "HF_HUB_OFFLINE is set" in said and "--dry-run" in said
    assert hub.requests == []


def test_a_run_is_refused_with_the_way_to_sets(hub, publish, tmp_path):
    (tmp_path / "run" / "traces").mkdir(parents=True)
    code, said = publish(tmp_path / "run", "--to", REPO)
    assert code == 2 and "is a run, and what is published are sets and trained models" in said
    assert "heavydistill build" in said


def test_a_folder_without_sets_is_refused(hub, publish, tmp_path):
    code, said = publish(tmp_path, "--to", REPO)
    assert code == 2 and "holds no sets" in said


def test_a_changed_file_is_refused(hub, publish, folder):
    path = folder / "rl" / "train-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes() + b"x")
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and f"{path} is not what manifest.json says" in said
    path.unlink()
    assert publish(folder, "--to", REPO)[0] == 2
    assert hub.requests == []


def test_what_is_not_sent_is_named(hub, publish, folder):
    (folder / "journal").mkdir()
    (folder / "journal" / "1.segment").write_text("private")
    (folder / "rl" / "notes.txt").write_text("private")
    code, said = publish(folder, "--to", REPO)
    assert code == 0 and f"Not sent, of what is in {folder}: journal, rl/notes.txt" in said
    assert b"private" not in hub.files(REPO).values()


def test_the_installed_command_obeys_its_environment_and_the_sets_load_from_there(
    hub, folder, tmp_path
):
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "HF_TOKEN": TOKEN,
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HOME": str(tmp_path / "home"),
    }
    environment.pop("TRANSFORMERS_OFFLINE", None)
    done = subprocess.run(
        [COMMAND, "publish", str(folder), "--to", REPO, "--private"],
        env=environment,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert TOKEN not in done.stdout + done.stderr
    load = (
        "from datasets import load_dataset\n"
        f"rl = load_dataset({REPO!r}, 'rl')\n"
        f"rows = load_dataset({REPO!r}, split='train')\n"
        "print(rl['validation'].num_rows, rows[0]['completion'][0]['reasoning_content'])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", load], env=environment, capture_output=True, text=True, cwd=tmp_path
    )
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.strip().startswith("1 Attempt 1 is right")
    shutil.rmtree(tmp_path / "home")
