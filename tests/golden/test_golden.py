"""What the command line makes is what it made: tests/golden/results, line by line."""

from __future__ import annotations

import difflib
import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import scenes

pytestmark = pytest.mark.timeout(900)

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
def test_results_are_the_golden_ones(group: str, stage: scenes.Stage) -> None:
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


def test_there_are_no_other_results(stage: scenes.Stage) -> None:
    assert not stage.failed
    assert sorted(stage.kept) == STORED


def differences(golden: str, made: str) -> Iterator[str]:
    """Where two results differ: line and column of rows, lines of texts."""
    olds, news = golden.splitlines(), made.splitlines()
    if golden.startswith(("{", "[")) and golden != made:
        yield from parts(json.loads(golden), json.loads(made), "")
    elif len(olds) == len(news):
        for number, (old, new) in enumerate(zip(olds, news, strict=True), 1):
            if old != new:
                yield from (f"line {number}{each}" for each in columns(old, new))
    else:
        yield from difflib.unified_diff(olds, news, "golden", "made", n=0, lineterm="")
    if golden.split("\n") != made.split("\n") and olds == news:
        yield "the ends of lines differ"


def columns(old: str, new: str) -> Iterator[str]:
    try:
        yield from parts(json.loads(old), json.loads(new), " ")
    except ValueError:
        yield f": {old!r} became {new!r}"


def parts(old: Any, new: Any, place: str) -> Iterator[str]:
    """The paths at which two values differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        if list(old) != list(new):
            yield f"{place}: keys {list(old)} became {list(new)}"
        for key in old.keys() & new.keys():
            yield from parts(old[key], new[key], f"{place}.{key}")
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{place}: {len(old)} entries became {len(new)}"
        for number, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from parts(one, other, f"{place}[{number}]")
    elif repr(old) != repr(new):
        yield f"{place}: {old!r} became {new!r}"
