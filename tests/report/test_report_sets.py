"""The tables of a build."""

import io

import pytest
from rich.console import Console
from set_folders import ASKED, manifest

from heavydistill.config.sets import load_build_config
from heavydistill.report.sets import print_manifest
from heavydistill.store.sets.folder import TRAINED


@pytest.mark.parametrize("is_asked", [False, True])
def test_sets_without_a_deliberation_are_told_with_what_is_left_to_try(is_asked):
    printed = io.StringIO()
    console = Console(file=printed, width=200)
    build = load_build_config(None, {"runs": ["run"], "out": "sets"}).model_dump()
    tokens = {name: {} for name in TRAINED}
    told = manifest(
        build=build, tokens=tokens, undeliberated=3, unmeasured=4, asked=[ASKED] * is_asked
    )
    print_manifest(told, console)
    assert "3 more sets" in printed.getvalue()
    assert "4 candidate sets are no RL prompts" in printed.getvalue()
    assert ("--redeliberate requests them" in printed.getvalue()) != is_asked
    assert ("redeliberate.d or another --teacher" in printed.getvalue()) == is_asked
