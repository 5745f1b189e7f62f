import json
from pathlib import Path

import messages
import pytest
from import_files import lines

from heavydistill.config.run import Problems, Verifying
from heavydistill.errors import ProblemsError
from heavydistill.problems import load, load_fit
from heavydistill.verifiers.workers import WorkerPool

pytestmark = pytest.mark.usefixtures("known_here_alone")
OWN = str(Path(__file__).parents[1] / "verifiers" / "own_verifiers.py")
VERIFY = Verifying(own=[OWN], workers=2, timeout_s=1.0, memory_mb=1024)


def source(folder: Path, *references: object, **keys: object) -> Problems:
    rows = ({"text": f"{n}?", "reference": each} for n, each in enumerate(references))
    path = lines(folder / "set.jsonl", *rows)
    return Problems(source=str(path), **({"verifier": "obedient"} | keys))


def test_unfit_rows_are_named_at_once_ten_of_them_and_the_others_counted(tmp_path):
    with pytest.raises(ProblemsError) as raised:
        load(source(tmp_path, "odd", "1", "", *["odd"] * 25), VERIFY)
    said = str(raised.value)
    assert (
        messages.is_in(said, "rows_unfit", count=27, of="28 rows")
        and "problems.unfit=leave_out" in said
    )
    assert "set.jsonl:4, " in said and " and 23 more: it is odd" in said
    assert messages.is_in(said, "empty_reference", place="set.jsonl:3")
    assert said.count("it is odd") == 1


GSM8K = "He has 2 * 3 = <<2*3=6>>6 apples.\n#### 6"


@pytest.mark.parametrize(
    ("references", "marker"),
    [
        ([GSM8K, "One.\n\n#### 1,200\n"], "####"),
        (["12 less 9 is 3. #### 3", GSM8K], "####"),
        ([GSM8K, "7"], ""),
        ([GSM8K, "So it is\n#### 6\nor more."], ""),
        (["#### Answer\nIt is \\boxed{6}"], ""),
        (["6", "7"], ""),
    ],
)
def test_the_marker_of_gsm8k_is_used_if_every_reference_ends_with_it(tmp_path, references, marker):
    config = source(tmp_path, *references, verifier=None, unfit="leave_out")
    if GSM8K not in references or marker:
        loaded = load_fit(config)
        again = load_fit(config, known_unfit=loaded.unfit)
        assert (loaded.marker, loaded.problems) == (marker, again.problems)
        args = json.dumps({"marker": marker}) if marker else "{}"
        assert {problem.verifier_args for problem in loaded.problems} == {args}
        assert len(loaded.problems) == len(references)
    else:
        with messages.raises("reference_of_lines"):
            load_fit(config.model_copy(update={"unfit": "refuse"}))


def test_a_configured_marker_and_one_of_the_row_are_kept(tmp_path):
    own = load_fit(source(tmp_path, GSM8K, verifier=None, verifier_args={"marker": "# "}))
    assert own.marker == "" and own.problems[0].verifier_args == '{"marker": "# "}'
    other = {"text": "2?", "reference": "So\nA: 3", "verifier_args": {"marker": "A:"}}
    path = lines(tmp_path / "rows.jsonl", {"text": "1?", "reference": GSM8K}, other)
    mixed = load_fit(Problems(source=str(path)))
    assert [json.loads(each.verifier_args)["marker"] for each in mixed.problems] == ["####", "A:"]


def test_a_label_before_every_reference_is_proposed_as_a_flag_and_a_fault_is_said_once(tmp_path):
    references = [f"It is {n}.\nA: {n}" for n in range(40)]
    with pytest.raises(ProblemsError) as raised:
        load_fit(source(tmp_path, *references, verifier=None))
    assert raised.value.flags == """--verifier-args '{marker: "A:"}'"""
    said = str(raised.value)
    assert said.count("several lines") == 1 and "set.jsonl:3 and 37 more: " in said
    assert f"Add {raised.value.flags}." in said


def test_one_unfit_row_is_the_message(tmp_path):
    with messages.raises("no_answer_judged", row="set.jsonl:2", why="it is odd; leave it out"):
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
    with messages.raises("rows_unfit", count=2, of="2 rows"):
        load(source(tmp_path, "odd", "odd", unfit="leave_out"), VERIFY)


def test_what_an_earlier_check_found_is_not_checked_again(tmp_path, monkeypatch):
    checked = []
    monkeypatch.setattr(WorkerPool, "submit", lambda crew, *task: checked.append(task))
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
    with messages.raises("no_own_verifier", file=Path("nowhere.py").absolute(), why="No such file"):
        load(source(tmp_path, "odd"), Verifying(own=["nowhere.py"]))
