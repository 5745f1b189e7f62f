"""What the command line makes is what it made: tests/golden/results, line by line."""

import difflib
import json
from collections import defaultdict
from collections.abc import Iterator

import pytest
import scenes
from rich.cells import cell_len

SHOWN = 12  # differences of a result


def grouped(names: list[str]) -> dict[str, list[str]]:
    """Results by the folder of the first two parts of their names."""
    groups = defaultdict(list)
    for name in names:
        groups["/".join(name.split("/")[:2])].append(name)
    return dict(groups)


STORED = scenes.names()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> scenes.Stage:
    return scenes.performed(tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("group", grouped(STORED))
def test_results_are_the_golden_ones(group, stage):
    complaints = []
    for name in grouped(STORED)[group]:
        if name not in stage.kept:
            complaints.append(f"{name}: not there")
            continue
        found = list(differences(scenes.read(scenes.stored(name)), stage.kept[name]))
        complaints += [f"{name}: {each}" for each in found[:SHOWN]]
        complaints += [f"{name}: {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    broken = [f"{scene} broke: {why}" for scene, why in stage.failed.items()]
    assert not complaints, "\n".join([*complaints, *broken])


def test_there_are_no_other_results(stage):
    assert not stage.failed
    assert sorted(stage.kept) == STORED


def test_80_columns_are_enough(stage: scenes.Stage) -> None:
    wide = [
        f"{command}: {line}"
        for command, printed in stage.printed.items()
        for line in printed.splitlines()
        if cell_len(line) > 80
    ]
    assert not wide, "\n".join(wide)


def differences(golden: str, made: str) -> Iterator[str]:
    """Where two results differ, by lines; a row has a line for each of its values."""
    if golden != made:
        olds, news = list(lines(golden)), list(lines(made))
        yield from difflib.unified_diff(olds, news, "golden", "made", n=0, lineterm="")
        if olds == news:
            yield "they differ in the ends of their lines or the form of their JSON"


def lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        try:
            yield from json.dumps(json.loads(line), indent=1, ensure_ascii=False).splitlines()
        except ValueError:
            yield line
