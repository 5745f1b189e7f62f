import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from heavydistill.config.run import Problems, Verifying
from heavydistill.errors import ConfigError, ProblemsError
from heavydistill.problems import load, load_fit
from heavydistill.verifiers import registry
from heavydistill.verifiers.workers import Crew

OWN = str(Path(__file__).parents[1] / "verifiers" / "own_verifiers.py")
VERIFY = Verifying(own=[OWN], workers=2, timeout_s=1.0, memory_mb=1024)


@pytest.fixture(autouse=True)
def known_here_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    monkeypatch.setattr(registry, "_own", dict(registry._own))
    yield


def source(folder: Path, *references: object, **keys: object) -> Problems:
    path = folder / "set.jsonl"
    rows = ({"text": f"{n}?", "reference": each} for n, each in enumerate(references))
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return Problems(source=str(path), **({"verifier": "obedient"} | keys))


def test_unfit_rows_are_named_at_once_ten_of_them_and_the_others_counted(tmp_path):
    with pytest.raises(ProblemsError) as raised:
        load(source(tmp_path, "odd", "1", "", *["odd"] * 25), VERIFY)
    said = str(raised.value)
    assert "27 of 28 rows cannot be used" in said and "problems.unfit=leave_out" in said
    assert "set.jsonl:1: it is odd" in said and "set.jsonl:5: it is odd" in said
    assert "set.jsonl:3: the reference answer is empty" in said
    assert said.count("it is odd") == 9 and "and 17 more" in said


def test_one_unfit_row_is_the_message(tmp_path):
    with pytest.raises(ProblemsError, match=r"set.jsonl:2: it is odd; leave it out\. The verifier"):
        load(source(tmp_path, "1", "odd"), VERIFY)


def test_a_reference_on_which_its_verifier_hangs_is_unfit_and_costs_its_limit_alone(tmp_path):
    references = [str(n) for n in range(100)]
    references[30], references[60] = "hang", "crash"
    loaded = load_fit(source(tmp_path, *references, unfit="leave_out"), VERIFY)
    assert list(loaded.unfit) == [31, 61]
    assert "set.jsonl:31: the check of the reference took more than 3 s" in loaded.unfit[31]
    assert "ended its process" in loaded.unfit[61]
    assert [p.reference for p in loaded.problems] == [
        each for each in references if each.isdecimal()
    ]


def test_rows_that_are_left_out_keep_the_names_of_the_others(tmp_path):
    config = source(tmp_path, "1", "odd", None, "4", unfit="leave_out", limit=2)
    loaded = load_fit(config, VERIFY)
    assert [p.id for p in loaded.problems] == ["set:1", "set:4"]
    assert loaded.unfit.keys() == {2, 3}


def test_a_source_of_unfit_rows_alone_is_refused(tmp_path):
    with pytest.raises(ProblemsError, match="2 of 2 rows"):
        load(source(tmp_path, "odd", "odd", unfit="leave_out"), VERIFY)


def test_what_an_earlier_check_found_is_not_checked_again(tmp_path, monkeypatch):
    checked = []
    monkeypatch.setattr(Crew, "submit", lambda crew, *task: checked.append(task))
    config = source(tmp_path, "1", "hang", "sleep", "odd", unfit="leave_out")
    loaded = load_fit(config, VERIFY, known_unfit=[2])
    assert [p.reference for p in loaded.problems] == ["1", "sleep", "odd"]
    assert not checked


def test_progress_is_told_for_every_reference(tmp_path):
    told: list[tuple[int, int]] = []
    load_fit(source(tmp_path, "1", "2", "3"), VERIFY, on_checked=lambda *n: told.append(n))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_cheap_references_need_no_worker(tmp_path, monkeypatch):
    def none(self: object) -> bool:
        raise AssertionError("a worker was started")

    monkeypatch.setattr("heavydistill.verifiers.workers.Worker.start", none)
    assert len(load(source(tmp_path, "1", "2", verifier="exact"))) == 2


def test_a_file_of_one_s_own_that_is_not_there_is_said_before_the_rows(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere.py: No such file"):
        load(source(tmp_path, "odd"), Verifying(own=["nowhere.py"]))
