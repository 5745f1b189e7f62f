"""The public face: each name is loaded on use, completes, and is on its page."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import messages
import pytest
from runs import build, write_run

import heavydistill as hd
from heavydistill.errors import ConfigError
from heavydistill.report.status import bar_of
from heavydistill.run.status import StageStatus, Status

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "python.md"
# What a misspelt key of each configuration is told, however the configuration is given.
MISSPELT = {
    "the constructor of a run": lambda: hd.RunConfig(techer="micro"),
    "a mapping for a run": lambda: hd.generate({"techer": "micro"}),
    "a mapping for an evaluation": lambda: hd.evaluate({"techer": "micro"}),
    "a file's keys": lambda: hd.load_config(overrides={"techer": "micro"}),
}


def test_each_name_is_loaded_on_use_and_documented():
    page = PAGE.read_text(encoding="utf-8")
    for name in hd.__all__:
        assert getattr(hd, name).__name__.removeprefix("heavydistill.") == name
        assert re.search(rf"`hd\.{name}\b", page), name
    with pytest.raises(AttributeError, match="no attribute 'generat'"):
        _ = hd.generat


def test_completion_shows_the_names_and_nothing_else():
    assert [*dir(hd)] == sorted([*hd.__all__, "__version__"])
    assert hd.__all__ == sorted(hd.__all__)


def test_the_functions_raise_errors_with_a_fix(tmp_path):
    with messages.raises("no_finished_run", folder=tmp_path / "none"):
        hd.load_traces(tmp_path / "none")
    with messages.raises(
        "file_unreadable", file=tmp_path / "none.yaml", why="No such file or directory"
    ):
        hd.generate(hd.load_config(tmp_path / "none.yaml"))


@pytest.mark.parametrize("given", MISSPELT)
def test_a_misspelt_key_is_named_with_the_right_one(given):
    with pytest.raises(ConfigError) as caught:
        MISSPELT[given]()
    assert str(caught.value) == "unknown key techer. Did you mean teacher?"


@pytest.mark.parametrize("call", [hd.generate, hd.evaluate, hd.build_sets, hd.import_pools])
def test_a_path_is_no_configuration(call):
    with messages.raises("no_configuration", type="str"):
        call("run.yaml")


def test_a_mapping_of_the_caller_is_not_changed():
    given = {"problems": {"limit": 2}, "problems.size": 0}
    with messages.raises("below_least", key="problems.size", least=1):
        hd.generate(given)
    assert given == {"problems": {"limit": 2}, "problems.size": 0}


def test_trainings_and_publications_take_plain_arguments(tmp_path):
    with messages.raises("no_flag", flag="--learnin_rate"):
        hd.sft(model_name_or_path="micro-student", learnin_rate=1.0)
    with pytest.raises(ConfigError, match=r"--mode: 'dream'"):
        hd.grpo(model_name_or_path="micro-student", mode="dream")
    with messages.raises("unknown_key", key="repo"):
        hd.publish(tmp_path, {"repo": "org/name"})
    with messages.raises("nothing_to_publish"):
        hd.publish(tmp_path, {"repo_id": "org/name"})
    with messages.raises("no_adapter"):
        hd.merge(tmp_path, tmp_path / "out")


def test_folders_may_be_texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, thinker in (("a", "teacher"), ("b", "other")):
        write_run(tmp_path / name, 6, k=4, thinker=thinker)
    assert hd.compare("a", "b").problems == 6
    assert hd.write_report("a").file == tmp_path / "a.html"
    assert hd.write_report(["a", "b"], "both.html").file.is_file()
    build(tmp_path / "sets", tmp_path / "a")
    assert hd.export("sets", "trl", "exported").rows["sft_deliberator"]["train"]


def test_one_answer_is_judged():
    problem = hd.Problem(id="p", text="What is 12 + 7?", reference="19", verifier="math")
    assert hd.judge(problem, r"It is \boxed{19}.").is_correct
    assert hd.judge(problem, r"It is \boxed{18}.").label == "incorrect"
    unknown = hd.Problem(id="p", text="?", reference="1", verifier="maths")
    with messages.raises("no_verifier", verifier="maths", nearest="math"):
        hd.judge(unknown, "1")
    unfit = hd.Problem(id="p", text="?", reference="[", verifier="math")
    with messages.raises("problem_unfit", problem="p"):
        hd.judge(unfit, "1")


def status_of(received: int) -> Status:
    stage = StageStatus(name="thinking", problems=2, per_problem=3, received=received)
    return Status(thinker="a", deliberator="b", k=3, d=0, problems=2, stages=[stage], finished=1)


@pytest.fixture
def notebook(monkeypatch):
    """What IPython has inside a notebook, where `tqdm.auto` lacks widgets and writes text."""
    shell = SimpleNamespace(kernel=object(), config={"IPKernelApp": {}})
    module = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", module)
    return shell


def test_a_notebook_shows_a_bar(notebook, capsys):
    with bar_of("first") as shows:
        shows(status_of(2))
        shows(status_of(6))
    shown = capsys.readouterr()
    assert not shown.out
    assert re.search(r"first: 100%.* 6/6 .*1 of 2 problems", shown.err)


def test_no_other_program_does(notebook, capsys):
    with bar_of("first", print) as shows:
        assert shows is print
    del notebook.kernel  # IPython in a terminal
    with bar_of("first") as shows:
        assert shows is None
    assert capsys.readouterr() == ("", "")
