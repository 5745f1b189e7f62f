"""scripts/phases.py: which commands it runs, in which order, and where it goes on."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import messages
import pytest
import yaml
from marked import MARK, alive, eventually
from set_folders import write_sets
from trainings import RECORD, ROOT, main

from heavydistill.store.training_record import Alarm, Result

SCRIPT = ROOT / "scripts" / "phases.py"
CONFIGS = ROOT / "configs" / "grpo"
FILES = sorted((CONFIGS / "phases").glob("*.yaml"))
DONE = Result(steps=1, epochs=1.0, train_loss=0.1, tokens=1, seconds=1.0, peak_memory_gib=None)
# In place of every command: it writes down how it was called and leaves what the real one would.
STUB = """
import json, shutil, sys, time
from pathlib import Path
import yaml
from heavydistill.store.training_record import TrainingRecord, write_record
from heavydistill.train.checkpoints import mark_whole

given = sys.argv[1:]
flag = lambda name: given[given.index(name) + 1]
with open("calls", "a") as calls:
    calls.write(json.dumps(given) + "\\n")
if given[0] == "--adapter":
    Path(flag("--out")).mkdir()
elif given[0] == "refilter":
    shutil.copytree(given[1], flag("--out"))
else:
    keys = yaml.safe_load(Path(flag("--config")).read_text())
    folder = Path(keys["output_dir"])
    folder.mkdir(parents=True, exist_ok=True)
    behaviour = json.loads(Path("behaviour").read_text()).get(folder.name, "")
    record = TrainingRecord.model_validate_json(Path("record").read_text())
    if behaviour == "hang":
        Path("hanging").touch()
        time.sleep(600)
    if behaviour == "break":
        write_record(record.model_copy(update={"result": None}), folder)
        (folder / "checkpoint-1").mkdir()
        (folder / "checkpoint-1" / "state").write_text("1")
        mark_whole(folder / "checkpoint-1")
        sys.exit(3)
    (folder / f"{'adapter_' * (behaviour == 'adapter')}config.json").write_text("{}")
    if behaviour.startswith("loses"):
        bound = float(behaviour.split()[1])
        rollouts = {"eval_none_loses_at_most": {"first": 1.0, "last": bound}}
        result = record.result.model_copy(update={"rollouts": rollouts})
        record = record.model_copy(update={"result": result})
    if behaviour == "stop":
        alarm = json.loads(Path("alarm").read_text())
        record = record.model_copy(
            update={"result": record.result.model_copy(update={"alarms": [alarm]})}
        )
    write_record(record, folder)
"""


class Place:
    """A working folder in which the script runs stubs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        record = RECORD.model_copy(update={"result": DONE})
        (folder / "record").write_text(record.model_dump_json(), "utf-8")
        alarm = Alarm(guard="length", step=2, value=1.0, bound=2.0, action="stop")
        (folder / "alarm").write_text(alarm.model_dump_json(), "utf-8")
        (folder / "one.yaml").write_text("learning_rate: 0.1\noutput_dir: elsewhere\n", "utf-8")
        (folder / "stub.py").write_text(STUB, "utf-8")
        (folder / "merge.py").write_text(STUB, "utf-8")
        self.behaves()
        self.write()

    def behaves(self, **behaviour: str) -> None:
        by_folder = {name[1:].replace("_", "-", 1): how for name, how in behaviour.items()}
        (self.folder / "behaviour").write_text(json.dumps(by_folder), "utf-8")

    def write(self, **changes: Any) -> None:
        usual = {
            "model_name_or_path": "base",
            "output_dir": "out",
            "phases": [
                {"name": "thinker", "config": "one.yaml"},
                {"name": "deliberator", "config": "one.yaml", "keys": {"learning_rate": 0.2}},
            ],
        }
        (self.folder / "phases.yaml").write_text(yaml.safe_dump({**usual, **changes}), "utf-8")

    def run(self, *flags: str) -> int:
        """The exit code; the commands are stubs."""
        script = self.folder / "phases.py"
        text = SCRIPT.read_text(encoding="utf-8")
        stub = f"[sys.executable, {str(self.folder / 'stub.py')!r}]"
        for name in ("CLI", "LAUNCH"):
            at = text.index(f"\n{name} = ")
            text = f"{text[:at]}\n{name} = {stub}{text[text.index(chr(10), at + 1) :]}"
        script.write_text(text, "utf-8")
        return main(["--config", "phases.yaml", *flags], script)

    @property
    def calls(self) -> list[list[str]]:
        """What was called since the last look."""
        file = self.folder / "calls"
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]

    def keys(self, phase: str) -> dict[str, Any]:
        return yaml.safe_load((self.folder / "out" / f"{phase}.yaml").read_text("utf-8"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return Place(tmp_path)


def test_each_phase_begins_with_what_the_last_one_left(place, capsys):
    place.write(rounds=2, launch=["--num_processes", "2"])
    assert place.run() == 0
    names = ["01-thinker", "02-deliberator", "03-thinker", "04-deliberator"]
    given = [place.keys(name) for name in names]
    models = ["base", "out/01-thinker", "out/02-deliberator", "out/03-thinker"]
    assert [keys["model_name_or_path"] for keys in given] == models
    assert [keys["learning_rate"] for keys in given] == [0.1, 0.2, 0.1, 0.2]
    grpo = str(place.folder / "grpo.py")
    assert place.calls == [
        ["--num_processes", "2", grpo, "--config", f"out/{name}.yaml"] for name in names
    ]
    assert place.run() == 0 and place.calls == []
    assert "The model is in out/04-deliberator" in capsys.readouterr().out


def test_a_phase_that_broke_goes_on_and_what_is_done_is_not_done_again(place, capsys):
    place.behaves(_02_deliberator="break")
    assert place.run() == 1 and len(place.calls) == 2
    assert "This command ended with exit code 3" in capsys.readouterr().err
    place.behaves()
    assert place.run() == 0
    (call,) = place.calls
    assert call[-2:] == ["--resume_from_checkpoint", "true"]


def test_an_adapter_is_merged_before_the_next_phase(place):
    place.behaves(_01_thinker="adapter", _02_deliberator="adapter")
    assert place.run() == 0
    assert place.keys("02-deliberator")["model_name_or_path"] == "out/01-thinker-merged"
    merges = [call for call in place.calls if "--adapter" in call]
    folders = ["out/01-thinker", "out/02-deliberator"]
    assert merges == [["--adapter", folder, "--out", f"{folder}-merged"] for folder in folders]


def test_a_phase_that_a_guard_stopped_is_the_last_one(place, capsys):
    place.behaves(_01_thinker="stop")
    for times in (1, 0):
        assert place.run() == 0 and len(place.calls) == times
        assert messages.is_in(capsys.readouterr().out, "guard_stopped", training="out/01-thinker")


def test_a_phase_is_repeated_until_the_bound_of_the_loss_is_below_the_margin(place, capsys):
    mixed = {"name": "mixed", "config": "one.yaml", "keys": {"held_out_none": True}}
    place.write(
        phases=[{**mixed, "step_down": 0.03, "most": 2}, {"name": "none", "config": "one.yaml"}]
    )
    place.behaves(_01_mixed="loses 0.031", _02_mixed="loses 0.029")
    assert place.run() == 0 and len(place.calls) == 3
    assert place.keys("03-none")["model_name_or_path"] == "out/02-mixed"
    assert "at most 3.1 points of HM, the margin is 3: mixed again" in capsys.readouterr().out
    assert place.run() == 0 and place.calls == []  # what was measured decides again
    place.write(output_dir="other", phases=[{**mixed, "step_down": 0.01, "most": 2}])
    assert place.run() == 1
    assert "not below the margin of 1, after 2 times mixed" in capsys.readouterr().err
    place.write(phases=[{"name": "a", "config": "one.yaml", "step_down": 0.03}])
    assert place.run() == 2
    assert "does not measure HM without instructions" in capsys.readouterr().err


def test_a_phase_that_is_done_cannot_become_another_one(place, capsys):
    assert place.run() == 0
    (place.folder / "one.yaml").write_text("learning_rate: 0.3\n", "utf-8")
    assert place.run() == 2
    assert "out/01-thinker was trained with other keys" in capsys.readouterr().err


def test_prompts_are_made_anew_for_the_model_before_the_phase(place, capsys):
    sets = str(write_sets(place.folder / "sets"))
    keys, evaluated = {"dataset_name": sets}, {"eval_strategy": "steps"}
    place.write(
        phases=[
            {"name": "bound", "config": "one.yaml", "keys": {**keys, "max_accuracy": 0.375}},
            {"name": "own", "config": "one.yaml", "keys": keys, "refilter": {"d": 4}},
            {
                "name": "seen",
                "config": "one.yaml",
                "keys": {**keys, **evaluated},
                "refilter": {"d": 4},
            },
        ]
    )
    assert place.run("--dry_run") == 0
    shown = capsys.readouterr().out
    assert f"refilter {sets} --checkpoint out/01-bound --out out/02-own-sets --set d=4" in shown
    assert place.calls == [] and not (place.folder / "out").exists()
    assert place.run() == 0
    refilter = ["refilter", sets, "--checkpoint", "out/01-bound", "--out", "out/02-own-sets"]
    assert place.calls[1] == [*refilter, "--set", "d=4"]
    assert place.keys("01-bound")["dataset_name"] == sets
    own, seen = place.keys("02-own"), place.keys("03-seen")
    assert own["dataset_name"] == "out/02-own-sets" and "held_out_from" not in own
    assert (seen["dataset_name"], seen["held_out_from"]) == ("out/03-seen-sets", sets)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"phases": []}, "phases: must have at least 1 item"),
        ({"round": 2}, "Did you mean rounds"),
        ({"phases": [{"name": "a", "config": "none.yaml"}]}, "none.yaml: No such file"),
    ],
)
def test_a_file_that_cannot_be_carried_out_ends_with_2(place, changes, message, capsys):
    place.write(**changes)
    assert place.run() == 2
    assert message in capsys.readouterr().err
    assert not (place.folder / "out").exists() and place.calls == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_shipped_phases_are_trainings_and_listed(file, monkeypatch, capsys):
    from heavydistill.train.grpo.train import parse

    monkeypatch.chdir(ROOT)
    text = file.read_text(encoding="utf-8")
    assert text.startswith(f"# python scripts/phases.py --config {file.relative_to(ROOT)}\n")
    assert main(["--config", str(file), "--dry_run"], SCRIPT) == 0
    assert capsys.readouterr().out.count("scripts/grpo.py") == len(
        yaml.safe_load(text)["phases"]
    ) * (yaml.safe_load(text).get("rounds", 1))
    for phase in yaml.safe_load(text)["phases"]:
        flags = [f"--{key}={value}" for key, value in phase["keys"].items()]
        given = ["--config", phase["config"], "--model_name_or_path", "m", *flags]
        config = parse([*given, "--use_cpu", "true", "--use_vllm", "false"]).config
        assert config.max_steps == 100 and (config.dataset_name or config.held_out_from)
    assert f"](phases/{file.name})" in (CONFIGS / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_phase_and_its_processes(place, how):
    place.behaves(_01_thinker="hang")
    place.run("--dry_run")
    process = subprocess.Popen(
        [sys.executable, "phases.py", "--config", "phases.yaml"],
        env={**os.environ, MARK: str(place.folder)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert eventually((place.folder / "hanging").exists, 300)
    process.send_signal(how)
    _, shown = process.communicate(timeout=300)
    assert process.returncode == 130, shown
    assert not alive(str(place.folder))
