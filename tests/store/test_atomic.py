"""How the folder of a run gets its name: whole at every moment, whoever is killed in between."""

import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
from pathlib import Path

import messages
import pytest

from heavydistill.config.run import load_config
from heavydistill.run.generate import check
from heavydistill.store.atomic import Workplace, recover

CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.unlink", "shutil.rmtree", "open"}
FILES = ("config.yaml", "traces/a", "traces/b")


def write(folder: Path, content: str) -> None:
    """A run from its beginning to its end."""
    place = Workplace(folder)
    with place.claimed():
        (place.path / "rows").mkdir()
        (place.path / "rows" / "1").write_text(content)
        (place.new / "traces").mkdir(parents=True)
        for name in FILES:
            (place.new / name).write_text(content)
        place.publish()


def whole(folder: Path) -> set[str]:
    """The one content of all files of a folder."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    assert sorted(files) == sorted(FILES)
    (content,) = {path.read_text() for path in files.values()}
    return {content}


def _killed_before(change: int, folder: Path) -> None:
    seen = 0

    def hook(event: str, _: object) -> None:
        nonlocal seen
        if event in CHANGES:
            seen += 1
            if seen == change:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    write(folder, "new")


def test_a_kill_at_any_moment_leaves_a_whole_folder_to_the_next_start(tmp_path):
    folder, change, nameless = tmp_path / "run", 0, 0
    while True:
        change += 1
        shutil.rmtree(folder, ignore_errors=True)
        write(folder, "old")
        process = multiprocessing.get_context("fork").Process(
            target=_killed_before, args=(change, folder)
        )
        process.start()
        process.join()
        nameless += not folder.exists()
        assert not folder.exists() or whole(folder) <= {"old", "new"}
        recover(folder)
        assert whole(folder) <= {"old", "new"}
        write(folder, "next")  # whatever is left does not stand in the way
        assert whole(folder) == {"next"}
        assert os.listdir(tmp_path) == ["run"]
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    assert change > 20 and nameless == 1  # between the two renames


def test_an_interrupt_between_the_renames_loses_no_folder(tmp_path, monkeypatch):
    folder, renames = tmp_path / "run", 0
    write(folder, "old")
    rename = Path.rename

    def interrupted(path: Path, target: Path) -> Path:
        nonlocal renames
        renames += 1
        if renames == 2:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(folder, "new")
    assert whole(folder) == {"new"} and os.listdir(tmp_path) == ["run"]


def test_a_folder_has_one_writer_at_a_time(tmp_path):
    folder = tmp_path / "run"
    with Workplace(folder).claimed():
        with messages.raises("out_contended", out=folder), Workplace(folder).claimed():
            pass
        assert Workplace(folder).is_claimed and not Workplace(tmp_path / "other").is_claimed
        with Workplace(tmp_path / "other").claimed():
            pass
    assert not Workplace(folder).is_claimed
    write(folder, "later")
    assert whole(folder) == {"later"}


def test_a_run_that_breaks_leaves_the_old_folder_and_nothing_else(tmp_path):
    folder = tmp_path / "run"
    write(folder, "old")
    place = Workplace(folder)
    with contextlib.suppress(RuntimeError), place.claimed():
        place.new.mkdir()
        (place.new / "half").write_text("")
        raise RuntimeError
    assert whole(folder) == {"old"} and os.listdir(tmp_path) == ["run"]


def test_an_empty_folder_is_taken(tmp_path):
    (tmp_path / "run").mkdir()
    write(tmp_path / "run", "new")
    assert whole(tmp_path / "run") == {"new"}


@pytest.mark.parametrize("out", ["/", "/proc"])
def test_a_folder_where_a_disk_begins_cannot_be_replaced(out):
    with messages.raises("out_is_mount", out=out):
        check(load_config(overrides={"out": out}))


def test_a_place_that_cannot_be_written_is_said_before_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "run"
    with messages.raises("out_unwritable", why="Not a directory"), Workplace(out).claimed():
        pass


def test_a_link_in_the_place_of_the_hidden_folder_is_refused_and_its_target_is_whole(tmp_path):
    theirs = tmp_path / "theirs"
    (theirs / "deep").mkdir(parents=True)
    (theirs / "deep" / "file").write_text("theirs")
    (tmp_path / ".run.unfinished").symlink_to(theirs)
    with messages.raises("out_is_link"):
        write(tmp_path / "run", "ours")
    assert (theirs / "deep" / "file").read_text() == "theirs"
    assert not (theirs / "lock").exists()


def test_a_link_inside_the_hidden_folder_is_removed_and_its_target_is_whole(tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "file").write_text("theirs")
    (tmp_path / ".run.unfinished").mkdir()
    (tmp_path / ".run.unfinished" / "rows").symlink_to(theirs)
    write(tmp_path / "run", "ours")
    assert whole(tmp_path / "run") == {"ours"}
    assert (theirs / "file").read_text() == "theirs"
