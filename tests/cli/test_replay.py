"""No verb runs Python files that the folder of a run names, unless its user says so."""

import json
import shutil
from pathlib import Path
from typing import Any

import messages
import pytest
import yaml
from plug_ins import forgotten

from heavydistill.config.run import load_config
from heavydistill.train.rollouts.resolve import run_of

FIXED = Path(__file__).parents[1] / "fixed_points"
RUN, SETS = Path("runs/served"), Path("sets")
CODE = """
from pathlib import Path
Path("ran").touch()
from heavydistill.verifiers.exact import Exact
class Mine(Exact):
    name = "mine"
"""


@pytest.fixture(autouse=True)
def shared(tmp_path, monkeypatch):
    """A run of somebody else, in the working directory, that names a file of its own."""
    folder = tmp_path / "fixed"
    shutil.copytree(FIXED, folder)
    monkeypatch.chdir(folder)
    own = RUN / "mine.py"
    own.write_text(CODE)
    tree = yaml.safe_load((RUN / "config.yaml").read_text())
    tree["verify"]["own"] = [str(own)]
    (RUN / "config.yaml").write_text(yaml.safe_dump(tree))
    manifest = json.loads((SETS / "manifest.json").read_text())
    manifest["runs"][0]["config"]["verify"] = tree["verify"]
    (SETS / "manifest.json").write_text(json.dumps(manifest))
    with forgotten():
        yield folder


def test_a_replay_runs_the_files_of_a_run_with_the_flag_alone(command, shared):
    code, told = command("replay", RUN, "--out", "again")
    assert code == 2 and not Path("ran").exists() and not Path("again").exists()
    file = f"{shared / RUN}/mine.py"
    assert messages.is_in(told, "files_would_be_executed", run=RUN, files=file)
    assert "add --run-verifiers" in told
    code, told = command("replay", RUN, "--out", "again", "--run-verifiers")
    assert code == 0, told
    assert Path("ran").exists() and Path("again").is_dir()


@pytest.mark.parametrize(
    "verb",
    ["generate", "generate --dry-run", "evaluate", "cross --thinkers model --deliberators model"],
)
def test_neither_does_a_verb_that_is_given_its_configuration(verb, command, shared):
    code, told = command(*verb.split(), "--config", RUN / "config.yaml", "--out", "again")
    assert code == 2 and not Path("ran").exists()
    assert f"--set 'verify.own=[{shared / RUN}/mine.py]'" in told


def test_whoever_names_the_files_may_use_the_configuration(command):
    flags = ("--config", RUN / "config.yaml", "--out", "again", f"--set=verify.own=[{RUN}/mine.py]")
    code, told = command("generate", "--dry-run", *flags)
    assert code == 0, told
    assert Path("ran").exists()


def test_neither_do_those_with_plug_ins_that_it_names(command, shared):
    tree = yaml.safe_load((RUN / "config.yaml").read_text())
    files = tree["plugins"] = tree["verify"].pop("own")
    (RUN / "config.yaml").write_text(yaml.safe_dump(tree))
    code, told = command("replay", RUN, "--out", "again")
    assert code == 2 and messages.is_in(told, "files_would_be_executed")
    given = ("generate", "--dry-run", "--config", RUN / "config.yaml", "--out", "again")
    code, told = command(*given, f"--set=verify.own=[{files[0]}]")
    assert code == 2 and f"name them yourself: --set 'plugins=[{shared / RUN}/mine.py]'" in told
    assert not Path("ran").exists()
    code, told = command(*given, "--plugin", files[0])
    assert code == 2 and Path("ran").exists() and "has the verifier mine" in told


def test_neither_does_a_training_that_asks_as_the_run_did():
    class Given:
        class config:
            run = str(RUN / "config.yaml")

    given: Any = Given()
    with messages.raises("files_would_be_executed"):
        run_of(given, None)
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", RUN),
        ("report", RUN, "--out", "page.html"),
        ("compare", RUN, RUN),
        ("build", RUN, "--student", "model", "--out", "built"),
        ("export", SETS, "--to", "trl", "--out", "exported"),
        ("generate", "--dry-run", "--pools", RUN, "--teacher", "micro", "--out", "again"),
        ("refilter", SETS, "--checkpoint", "model", "--out", "filtered", "--dry-run"),
        ("journal", "stats", "runs/journal"),
    ],
    ids=lambda arguments: " ".join(map(str, arguments[:2])),
)
def test_verbs_that_read_a_run_or_its_sets_run_nothing(arguments, command):
    code, told = command(*arguments)
    assert not Path("ran").exists()
    assert code == 0, told


def test_a_configuration_of_one_s_own_needs_no_leave(command):
    shutil.copyfile(RUN / "config.yaml", "mine.yaml")
    assert load_config(Path("mine.yaml")).verify.own
    code, told = command("generate", "--dry-run", "--config", "mine.yaml", "--out", "again")
    assert code == 0 and Path("ran").exists(), told
