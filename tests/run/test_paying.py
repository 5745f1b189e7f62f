"""Whose the account of a run is: the folder's, whatever is asked in it and wherever it is moved."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import messages
import pytest
import yaml
from rich.console import Console

from heavydistill.cli.plan import print_plan
from heavydistill.config.run import RunConfig, dump_config, load_config
from heavydistill.errors import ConfigError
from heavydistill.models.ledger import Cost, Ledger, account_of, balance_of, found_account, spent_in
from heavydistill.models.resolve import ResolvedRun, resolve
from heavydistill.run.generate import check
from heavydistill.run.recipe.pipeline import paying

FIXED = Path(__file__).parents[1] / "fixed_points"
OTHERWISE: dict[str, Any] = {
    "think.k": 16,
    "deliberate.d": 7,
    "problems.limit": 3,
    "seed": 5,
    "think.sampling.max_tokens": 99,
    "verify.timeout_s": 9,
    "endpoint.timeout_s": 9,
    "teacher": "another",
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def config(out: str = "runs/glm", journal: str = "runs/journal", **keys: Any) -> RunConfig:
    served = {"endpoint.base_url": "http://localhost:1/v1", "teacher": "served"}
    return load_config(None, {**served, "out": out, "journal": journal, **keys})


def resolved(config: RunConfig) -> ResolvedRun:
    """The run of a configuration, which is asked for as it stands."""
    return dataclasses.replace(resolve(config), config=config)


def spend(run: RunConfig, tokens: int) -> None:
    with paying(resolved(run)):
        ledger = Ledger(account_of(run))
        assert ledger.reserve(Cost(tokens))
        ledger.settle(Cost(tokens), Cost(tokens))
        ledger.close()


def spent(run: RunConfig) -> float:
    """What a plan says, and then what a run finds."""
    told = balance_of(found_account(run)).spent_tokens
    with paying(resolved(run)):
        assert balance_of(account_of(run)).spent_tokens == told
    return told


def write(run: RunConfig) -> None:
    """The folder of a run, as far as accounts look at it."""
    folder = Path(run.out or "")
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(dump_config(run))


@pytest.mark.parametrize("key", OTHERWISE)
def test_whatever_is_asked_the_account_is_that_of_the_folder(key):
    spend(config(), 100)
    assert spent(config(**{key: OTHERWISE[key]})) == 100
    assert spent(config(out="runs/other")) == 0


def test_there_is_one_account_however_the_folder_is_named(tmp_path):
    spend(config(), 100)
    (tmp_path / "way").symlink_to("runs")
    for out in ("./runs/x/../glm", str(tmp_path / "runs" / "glm"), "way/glm"):
        assert spent(config(out=out)) == 100
    (account,) = Path("runs/journal").glob("*.ledger")
    assert account.name.startswith("glm-")


def test_a_folder_that_was_removed_has_its_account_still():
    write(config())
    spend(config(), 100)
    shutil.rmtree("runs/glm")
    assert spent(config(**{"think.k": 16})) == 100


def moved(*pairs: tuple[str, str]) -> None:
    for old, new in pairs:
        Path(new).parent.mkdir(parents=True, exist_ok=True)
        Path(old).rename(new)


@pytest.mark.parametrize(
    ("move", "out", "journal"),
    [
        ([("runs", "elsewhere")], "elsewhere/glm", "elsewhere/journal"),
        ([("runs/glm", "done/old")], "done/old", "runs/journal"),
        ([("runs/glm", "done/old")], "done/old", "done/journal"),
        ([("runs/journal", "big/journal")], "runs/glm", "big/journal"),
        ([("runs/glm", "a/b/c"), ("runs/journal", "d")], "a/b/c", "d"),
        ([], "runs/glm", "fresh"),
    ],
)
def test_an_account_follows_its_folder(move, out, journal):
    write(config())
    spend(config(), 100)
    moved(*move)
    for key in ({}, {"think.k": 16}):
        assert spent(config(out, journal, **key)) == 100
    spend(config(out, journal), 11)
    assert spent(config(out, journal)) == 111


def test_a_copy_of_a_folder_has_an_account_of_its_own():
    write(config())
    spend(config(), 100)
    shutil.copytree("runs/glm", "runs/copy")
    assert spent(config("runs/copy")) == 0
    assert spent(config()) == 100


@pytest.fixture
def fixed(monkeypatch):
    """Finished runs, in the working directory."""
    shutil.copytree(FIXED, "fixed")
    monkeypatch.chdir("fixed")
    return lambda name: load_config(Path(name) / "config.yaml")


def test_two_runs_into_a_folder_at_once_are_refused_and_so_is_the_same_run_twice():
    with paying(resolved(config())):
        with messages.raises("account_in_use"):
            paying(resolved(config(**{"think.k": 16}))).__enter__()
        with messages.raises("same_run_in_progress"):
            paying(resolved(config(out="runs/other"))).__enter__()
        with paying(resolved(config(out="runs/other", **{"think.k": 16}))):
            pass
    with paying(resolved(config())):
        pass


def test_what_was_in_flight_at_a_kill_is_not_left():
    run = config()
    with paying(resolved(run)):
        Ledger(account_of(run)).reserve(Cost(300))
    assert spent_in(run) == spent_in(config(**{"think.k": 16})) == Cost(300, 0.0)


def test_a_plan_and_a_dry_run_print_what_is_left(fixed, capsys):
    run = fixed("runs/served")
    plan = check(load_config(None, {**run.model_dump(), "out": "new", "budget": "5ktok"}), False)
    spend(plan.config.model_copy(update={"seed": 9}), 100)
    for more, left in ((0, 4900), (4950, 0)):
        if more:
            spend(plan.config, more)
        for in_full in (False, True):
            print_plan(plan, Console(width=400), in_full)
            told = (
                f"Runs into new have spent {5050 if more else 100:,} of 5,000 tokens; {left:,} are"
            )
            assert told in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "goes_on"),
    [
        *(({key: OTHERWISE[key]}, True) for key in list(OTHERWISE)[:6]),
        ({"deliberate.sampling.max_tokens": 1000}, True),
        ({"language": "zh"}, False),
        ({"cache.width": 3}, False),
        ({"deliberate.d": 1, "domain": "code"}, False),
        ({"problems.limit": 6}, False),  # the same
    ],
)
def test_a_finished_run_makes_way_for_one_that_asks_for_more_and_for_no_other(
    fixed, change, goes_on
):
    summary = Path("runs/served/summary.json")
    text = summary.read_text().replace('"failed": 1', '"failed": 0')
    summary.write_text(text)
    saved = Path("runs/served/config.yaml")
    tree = yaml.safe_load(saved.read_text())
    tree["problems"]["limit"] = 6
    tree["cache"]["budget_tokens"] = None
    saved.write_text(dump_config(check(load_config(None, {**tree, "out": "x"}), False).config))
    given = load_config(saved, {**change, "out": "runs/served", "cache.budget_tokens": None})
    if goes_on:
        assert check(given, asks=False).changed.keys() >= change.keys()
    else:
        with pytest.raises(ConfigError, match=r"holds a (finished )?run") as caught:
            check(given, asks=False)
        named = "a run that differs in" in caught.value.what
        assert named == (change != {"problems.limit": 6})
