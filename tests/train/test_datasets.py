"""Where the rows are, and how many of each source are learnt."""

import functools
import shutil
from collections.abc import Iterator
from pathlib import Path

import hub_server
import pytest
from hub_server import HubServer
from huggingface_hub import constants
from hypothesis import given
from hypothesis import strategies as st
from set_folders import write_sets
from trainings import refusal

from heavydistill.train.datasets import SetSource, locate_source, shares

COUNTS = st.integers(1, 100_000)
FRACTIONS = st.floats(1e-3, 1)


@given(st.lists(st.tuples(COUNTS, FRACTIONS), min_size=1, max_size=6))
def test_shares_have_the_ratios_no_row_twice_and_use_one_source_up(sources):
    counts, fractions = zip(*sources, strict=True)
    taken = shares(counts, fractions)
    assert all(0 <= some <= count for some, count in zip(taken, counts, strict=True))
    assert any(some == count for some, count in zip(taken, counts, strict=True))
    size = min(count / part for count, part in zip(counts, fractions, strict=True))
    for some, part in zip(taken, fractions, strict=True):
        assert abs(some - part * size) <= 0.5 + 1e-6 * size


@given(st.lists(COUNTS, min_size=1, max_size=6))
def test_without_fractions_all_rows_are_taken(counts):
    assert shares(counts, [None] * len(counts)) == counts


refused = functools.partial(refusal, locate_source)


def test_a_folder_is_found_with_its_name_and_files(tmp_path):
    folder = write_sets(tmp_path / "sets")
    found = locate_source(SetSource(path=str(folder), role="deliberator"))
    assert (found.name, found.revision, found.template) == ("sets", "", "")
    train = found.file("deliberator", "train")
    assert train is not None and train.is_file()


def test_a_role_that_the_sets_lack_is_named_with_what_they_have(tmp_path):
    folder = write_sets(tmp_path / "sets", without=("sft_thinker", "train"))
    message = refused(SetSource(path=str(folder), role="thinker"))
    assert "has no rows to train a thinker: it has rows for a deliberator" in message


def test_a_place_that_is_none_is_named(tmp_path):
    assert "There is no folder nowhere/at/all" in refused(
        SetSource(path="nowhere/at/all", role="thinker")
    )
    (tmp_path / "empty").mkdir()
    assert "holds no sets" in refused(SetSource(path=str(tmp_path / "empty"), role="thinker"))
    folder = write_sets(tmp_path / "sets")
    assert "has no revision" in refused(
        SetSource(path=str(folder), role="thinker", revision="main")
    )


@pytest.mark.parametrize("change", ["other rows", "gone", "added"])
def test_a_file_that_was_changed_after_the_build_is_refused(tmp_path, change):
    folder = write_sets(tmp_path / "sets")
    rows = folder / "sft_thinker" / "train-00000-of-00001.parquet"
    validation = folder / "sft_thinker" / "validation-00000-of-00001.parquet"
    file = {"other rows": rows, "gone": validation, "added": folder / "chat_template.jinja"}[change]
    if change == "gone":
        file.unlink()
    else:
        shutil.copy(validation, file)
    message = refused(SetSource(path=str(folder), role="thinker"))
    assert f"{file.name} differs from manifest.json: it was changed, added or removed" in message
    if change != "added":
        assert locate_source(SetSource(path=str(folder), role="deliberator"))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A Hub with ``org/sets``, and an empty cache."""
    folder = write_sets(tmp_path / "sets")
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    with hub_server.serving(monkeypatch) as hub:
        template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        hub.add("org/sets", files)
        yield hub


def test_sets_of_the_hub_are_read_without_their_views_and_known_by_their_commit(hub, monkeypatch):
    commit = hub.repos["org/sets"].branches["main"][-1].sha
    found = locate_source(SetSource(path="org/sets", role="deliberator"))
    assert (found.name, found.revision) == ("org/sets", commit)
    there = {path.name for path in found.folder.iterdir()}
    assert there == {"manifest.json", "sft_deliberator"}
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert locate_source(SetSource(path="org/sets", role="deliberator")) == found


def test_a_revision_is_asked_for(hub):
    assert "org/sets" in refused(SetSource(path="org/sets", role="thinker", revision="nowhere"))
    found = locate_source(SetSource(path="org/sets", role="thinker", revision="main"))
    assert found.revision


def test_what_the_hub_does_not_give_is_said(hub, monkeypatch):
    message = refused(SetSource(path="org/other", role="thinker"))
    assert "There is no folder org/other, and no such dataset on the Hub" in message
    assert message.endswith("A private one needs HF_TOKEN.")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    message = refused(SetSource(path="org/sets", role="thinker"))
    assert "There is no folder org/sets" in message and "offline" in message.lower()


def test_what_is_only_in_part_in_the_cache_is_not_taken_for_all_of_it(hub, monkeypatch):
    locate_source(SetSource(path="org/sets", role="deliberator"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "cached snapshot" in refused(SetSource(path="org/sets", role="thinker"))
