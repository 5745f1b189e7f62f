"""Phases in a row, with scripts that stand in for the training and for merging."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from set_folders import write_sets
from trainings import RECORD as UNENDED

from heavydistill.errors import ConfigError, RunError
from heavydistill.store.training_record import Alarm, Result
from heavydistill.train.grpo import phases

ROOT = Path(__file__).parents[3]
DONE = Result(steps=3, epochs=1.0, train_loss=0.1, tokens=9, seconds=1.0, peak_memory_gib=None)

# Writes what a training writes, and a line into ``calls`` of the working folder; what it does
# stands in ``behaviour``, by the name of the phase's folder.
GRPO = """
import json, os, sys, time
from pathlib import Path
import yaml
from heavydistill.store.training_record import Ends, TrainingRecord, write_record
from heavydistill.train.checkpoints import mark_whole
keys = yaml.safe_load(Path(sys.argv[sys.argv.index("--config") + 1]).read_text())
folder = Path(keys["output_dir"])
behaviour = json.loads(Path("behaviour").read_text()).get(folder.name, "")
flags = sys.argv[sys.argv.index("--config") + 2 :]
called = {"keys": keys, "flags": flags, "world": os.environ.get("WORLD_SIZE", "1")}
with open("calls", "a") as file:
    file.write(json.dumps(called) + "\\n")
if "--dry_run" in flags:
    sys.exit(behaviour == "cannot")
folder.mkdir(exist_ok=True)
if os.environ.get("RANK", "0") != "0" and behaviour != "hang":
    sys.exit()
record = TrainingRecord.model_validate_json(Path("record").read_text())
write_record(record.model_copy(update={"result": None}), folder)
checkpoint = folder / "checkpoint-1"
if behaviour == "break":
    checkpoint.mkdir()
    (checkpoint / "state").write_text("1")
    mark_whole(checkpoint)
    sys.exit(3)
if behaviour == "break early":
    checkpoint.mkdir()
    sys.exit(3)
if behaviour == "hang":
    Path("hanging").touch()
    time.sleep(600)
name = "adapter_config.json" if behaviour == "adapter" else "config.json"
(folder / name).write_text("{}")
alarms = json.loads(Path("alarms").read_text()) if behaviour == "stop" else []
rollouts = {"verdict/cut_off": Ends(first=1, last=1)} if behaviour == "learn nothing" else {}
result = record.result.model_copy(update={"alarms": alarms, "rollouts": rollouts})
write_record(record.model_copy(update={"result": result}), folder)
sys.exit(bool(rollouts))
"""
MERGE = """
import sys
from pathlib import Path
out = Path(sys.argv[sys.argv.index("--out") + 1])
out.mkdir()
(out / "config.json").write_text("{}")
"""


class Place:
    """A working folder with such scripts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "scripts").mkdir()
        (folder / "scripts" / "grpo.py").write_text(GRPO)
        (folder / "scripts" / "merge.py").write_text(MERGE)
        (folder / "record").write_text(
            UNENDED.model_copy(update={"result": DONE}).model_dump_json()
        )
        stopped = Alarm(guard="length", step=2, value=1.0, bound=2.0, action="stop")
        (folder / "alarms").write_text(json.dumps([stopped.model_dump()]))
        (folder / "one.yaml").write_text("learning_rate: 0.1\noutput_dir: elsewhere\n")
        self.behaves()
        self.write()

    def behaves(self, **behaviour: str) -> None:
        renamed = {
            key.removeprefix("_").replace("_", "-"): value for key, value in behaviour.items()
        }
        (self.folder / "behaviour").write_text(json.dumps(renamed))

    def write(self, **changes: Any) -> Path:
        usual = {
            "model_name_or_path": "base",
            "output_dir": "out",
            "launch": [
                *("--config_file", str(ROOT / "configs" / "accelerate" / "cpu2.yaml")),
                *("--main_process_port", "0"),
            ],
            "phases": [
                {"name": "thinker", "config": "one.yaml"},
                {"name": "deliberator", "config": "one.yaml", "keys": {"learning_rate": 0.2}},
            ],
        }
        path = self.folder / "phases.yaml"
        path.write_text(yaml.safe_dump({**usual, **changes}))
        return path

    def run(self, dry_run: bool = False) -> Path:
        return phases.run(Path("phases.yaml"), Path("scripts"), dry_run)

    @property
    def calls(self) -> list[dict[str, Any]]:
        """What the training was called with since the last look."""
        file = self.folder / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return Place(tmp_path)


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the launcher, whose imports take most of the time."""

    def training(file: Path, given: Any, scripts: Path, more: list[str]) -> list[str]:
        return [sys.executable, str(scripts / "grpo.py"), "--config", str(file), *more]

    monkeypatch.setattr(phases, "_training", training)


@pytest.mark.slow
def test_each_phase_is_launched_with_the_flags_of_the_file(place: Place) -> None:
    assert place.run() == Path("out/02-deliberator")
    assert [call["world"] for call in place.calls] == ["2"] * 4


def test_each_phase_begins_with_what_the_last_one_left(place: Place, direct: None) -> None:
    place.write(rounds=2)
    assert place.run() == Path("out/04-deliberator")
    calls = place.calls
    assert [call["keys"]["model_name_or_path"] for call in calls] == [
        "base",
        "out/01-thinker",
        "out/02-deliberator",
        "out/03-thinker",
    ]
    assert [call["keys"]["learning_rate"] for call in calls] == [0.1, 0.2, 0.1, 0.2]
    assert all(call["flags"] == [] for call in calls)
    assert place.run() == Path("out/04-deliberator") and place.calls == []


def test_a_phase_that_broke_goes_on_and_what_is_done_is_not_done_again(
    place: Place, direct: None
) -> None:
    place.behaves(_02_deliberator="break")
    with pytest.raises(RunError, match="Phase 2 of 2, 02-deliberator ended with exit code 3"):
        place.run()
    assert len(place.calls) == 2
    place.behaves()
    place.run()
    (call,) = place.calls
    assert call["keys"]["model_name_or_path"] == "out/01-thinker"
    assert call["flags"] == ["--resume_from_checkpoint", "true"]


def test_what_a_check_or_a_refilter_finds_the_user_can_mend(place: Place, direct: None) -> None:
    place.behaves(_02_deliberator="cannot")
    with pytest.raises(ConfigError, match="Phase 2 of 2, 02-deliberator ended with exit code 1"):
        place.run(dry_run=True)
    sets = write_sets(place.folder / "sets")
    asked = {"name": "own", "config": "one.yaml", "keys": {"dataset_name": str(sets)}}
    place.write(phases=[{**asked, "refilter": {"d": 0}}])
    with pytest.raises(ConfigError, match="Phase 1 of 1, 01-own: its refilter ended with exit co"):
        place.run()


def test_a_phase_that_learnt_nothing_is_not_done(place: Place, direct: None) -> None:
    place.behaves(_01_thinker="learn nothing")
    with pytest.raises(RunError, match="Phase 1 of 2, 01-thinker ended with exit code 1"):
        place.run()
    for dry_run in (True, False):
        with pytest.raises(RunError, match=r"01-thinker learnt nothing.*Remove out/01-thinker"):
            place.run(dry_run=dry_run)
    place.behaves()
    shutil.rmtree("out/01-thinker")
    assert place.run() == Path("out/02-deliberator")


def test_a_phase_with_nothing_to_go_on_from_begins_anew(place: Place, direct: None) -> None:
    place.behaves(_01_thinker="break early")
    with pytest.raises(RunError):
        place.run()
    place.behaves()
    place.run()
    assert [call["flags"] for call in place.calls] == [[], [], []]


def test_an_adapter_is_merged_before_the_next_phase(place: Place, direct: None) -> None:
    place.behaves(_01_thinker="adapter", _02_deliberator="adapter")
    assert place.run() == Path("out/02-deliberator-merged")
    assert place.calls[1]["keys"]["model_name_or_path"] == "out/01-thinker-merged"
    assert place.run() == Path("out/02-deliberator-merged") and place.calls == []
    shutil.rmtree("out/02-deliberator-merged")
    assert place.run(dry_run=True) == Path("out/01-thinker-merged")
    assert not Path("out/02-deliberator-merged").exists()


def test_a_phase_that_a_guard_stopped_is_the_last_one(
    place: Place, direct: None, capsys: Any
) -> None:
    place.behaves(_01_thinker="stop")
    for times in (1, 0):
        assert place.run() == Path("out/01-thinker") and len(place.calls) == times
        assert "a guard stopped it, so no other phase follows" in capsys.readouterr().out


def test_a_phase_that_is_done_cannot_become_another_one(place: Place, direct: None) -> None:
    place.run()
    (place.folder / "one.yaml").write_text("learning_rate: 0.3\n")
    with pytest.raises(ConfigError, match=r"01-thinker is done with learning_rate 0\.1, and now"):
        place.run()


def test_prompts_are_made_anew_for_the_model_before_the_phase(
    place: Place, direct: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = write_sets(place.folder / "sets")
    called = place.folder / "refilters"
    cli = (
        "import sys, shutil\nfrom pathlib import Path\n"
        f"open({str(called)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
        "out = Path(sys.argv[sys.argv.index('--out') + 1])\n"
        "'--dry-run' in sys.argv or shutil.copytree(sys.argv[2], out)\n"
    )
    monkeypatch.setattr(phases, "_CLI", cli)
    keys = {"dataset_name": str(sets), "eval_strategy": "steps"}
    two = [
        {"name": "bound", "config": "one.yaml", "keys": {**keys, "max_accuracy": 0.375}},
        {"name": "own", "config": "one.yaml", "keys": keys, "refilter": {"d": 4}},
    ]
    place.write(phases=two)
    place.run(dry_run=True)
    assert not (place.folder / "out").exists()
    checked = place.calls
    assert [call["keys"]["dataset_name"] for call in checked] == [str(sets)] * 2
    assert all(call["flags"] == ["--dry_run", "true"] for call in checked)
    place.run()
    first, second = place.calls
    assert first["keys"]["dataset_name"] == str(sets) and "held_out_from" not in first["keys"]
    assert second["keys"]["dataset_name"] == "out/02-own-sets"
    assert second["keys"]["held_out_from"] == str(sets)
    where = f"refilter {sets} --checkpoint {{}} --out out/02-own-sets --set d=4"
    assert called.read_text().splitlines() == [
        f"{where.format('base')} --dry-run",
        where.format("out/01-bound"),
    ]
    two[1]["refilter"] = {"d": 8}
    place.write(phases=two)
    with pytest.raises(ConfigError, match="02-own-refilter is done with d 4, and now it is 8"):
        place.run()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"phases": []}, "phases: List should have at least 1 item"),
        ({"round": 2}, "Did you mean rounds"),
        (
            {"phases": [{"name": "a/b", "config": "one.yaml"}]},
            "name: must begin with a letter or digit",
        ),
        ({"phases": [{"name": "a", "config": "none.yaml"}]}, "none.yaml: No such file"),
        ({"phases": [{"name": "a", "config": "one.yaml"}] * 2}, "two of them have one name"),
        (
            {"phases": [{"name": "a", "config": "one.yaml", "keys": {"output_dir": "x"}}]},
            "output_dir is not for a phase",
        ),
        (
            {"phases": [{"name": "a", "config": "one.yaml", "refilter": {}}]},
            "no sets to refilter in None",
        ),
        (
            {"phases": [{"name": "a", "config": "one.yaml", "refilter": {"out": "x"}}]},
            "refilter.out follows from the phase",
        ),
    ],
)
def test_a_file_that_cannot_be_carried_out_is_refused_before_anything_is_done(
    place: Place, changes: dict[str, Any], said: str
) -> None:
    place.write(**changes)
    with pytest.raises(ConfigError, match=said):
        place.run()
    assert not (place.folder / "out").exists() and place.calls == []


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_phase_and_all_of_its_processes(
    place: Place, how: signal.Signals
) -> None:
    place.behaves(_01_thinker="hang")
    code = (
        "import sys\nfrom pathlib import Path\nfrom heavydistill.train.grpo import phases\n"
        "from heavydistill.train.running import exit_code\n"
        "sys.exit(exit_code(lambda: phases.run(Path('phases.yaml'), Path('scripts'))))"
    )
    mark = {"HEAVYDISTILL_TEST_MARK": str(place.folder)}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **mark},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not (place.folder / "hanging").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(how)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    left = [
        path
        for path in Path("/proc").glob("[0-9]*/environ")
        if str(place.folder).encode() in _read(path)
    ]
    assert not left


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
