"""The contract tests of plug-ins, on an example package that is installed, and on bad plug-ins."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from heavydistill.plugins import TAKES
from heavydistill.store.traces import read_traces

EXAMPLE = Path(__file__).parent / "example_plugins"
# What breaks the contract of its kind, and is only seen when it is called.
BAD = """
import itertools, os, random
from dataclasses import replace
from pathlib import Path
from heavydistill.curate.exports.export import ExportTarget
from heavydistill.heavy.pruning import Attempt
from heavydistill.plugins import plugin
from heavydistill.schema import Problem
from heavydistill.verifiers.exact import Exact

HERE = Path(__file__).parent
(HERE / "sft.yaml.jinja").write_text("")
(HERE / "README.md.jinja").write_text("")
(HERE / "ours.yaml").write_text("name: [")
count = itertools.count()

plugin("selection", "bad")(lambda pool, width, rng: random.sample(pool, 1))
plugin("pruning", "bad")(lambda attempt, tokens, reader: attempt.answer_text)
plugin("filter", "bad")(lambda problem, generation, attempts: next(count) % 2 == 0)
plugin("rewrite", "bad")(lambda problem, facts: replace(problem, text=f"{next(count)}?"))
plugin("source", "bad")(lambda args: [{"text": f"{next(count)}?", "reference": "1"}])
(HERE / "bad.md").write_text("{{problem}} {{nonsense}}")
plugin("prompt", "bad")(HERE / "bad.md")
plugin("teacher", "bad")(HERE / "ours.yaml")
plugin("exporter", "bad")(
    ExportTarget(
        title="bad",
        version="1",
        templates=HERE,
        sft_row=lambda row: {"at": next(count)},
        sft_command="bad",
    )
)

class Bad(Exact):
    name = "bad"
    runs_in = "worker"
    example = (Problem(id="p", text="?", reference="2", verifier="bad"), r"\\boxed{2}")
    def extract(self, problem, text):
        return text
    def decide(self, problem, candidate):
        if "<script>" in candidate:
            os._exit(1)
        return super().decide(problem, "2")
"""


def run(folder: Path, *words: str | Path, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run a module of Python in a folder."""
    return subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=900,
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder on the path into which pip has installed the example."""
    pytest.importorskip("pip")
    folder = tmp_path_factory.mktemp("example")
    shutil.copytree(EXAMPLE, folder / "source")
    how = ("--no-deps", "--no-build-isolation", "--no-index", "--target", folder / "site")
    done = run(folder, "pip", "install", *how, folder / "source")
    assert done.returncode == 0, done.stderr
    return str(folder / "site")


@pytest.mark.slow
def test_an_installed_package_keeps_the_contract_of_every_kind(installed, tmp_path):
    done = run(tmp_path, "pytest", "--pyargs", "heavydistill.contracts", "-q", path=installed)
    assert done.returncode == 0, done.stdout
    assert f"{1 + len(TAKES)} passed" in done.stdout and "skipped" not in done.stdout
    listed = run(tmp_path, "heavydistill", "plugins", path=installed)
    assert {
        kind for kind, _ in re.findall(r"^(\w+) +(acme\S+) +acme-heavy 1.0", listed.stdout, re.M)
    } == {*TAKES}


@pytest.mark.slow
def test_all_processes_of_a_run_find_the_plug_ins_of_packages_and_files(installed, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from heavydistill.plugins import plugin\n"
        "plugin('pruning', 'bare')(lambda each, *_: each.answer_text[slice(*each.final)])\n"
    )
    flags = [
        "--problems=acme_sums:4",
        "--verifier=acme_parity",
        "--k=4",
        "--d=1",
        "--plugin=mine.py",
    ]
    flags += ["--set=cache.selection=acme_shortest", "--set=cache.pruning=bare"]
    flags += ["--set=cache.width=2", "--processes=2", "--out=run", "--teacher=micro"]
    done = run(tmp_path, "heavydistill", "generate", *flags, path=installed)
    traces = list(read_traces(tmp_path / "run"))
    assert len(traces) == 4, done.stderr
    for trace in traces:
        assert trace.problem.origin == "acme_sums:4"
        assert {each.verdict.verifier for each in trace.pool if each.verdict} == {"acme_parity@1"}
        for cache in trace.caches:
            assert (cache.selection, {item.mode for item in cache.items}) == (
                "acme_shortest",
                {"bare"},
            )
    assert any(trace.caches for trace in traces)


@pytest.mark.slow
def test_a_plug_in_that_breaks_its_contract_fails_its_test(tmp_path):
    (tmp_path / "mine.py").write_text(BAD)
    (tmp_path / "test_mine.py").write_text(
        "from heavydistill.contracts import *\n"
        "from heavydistill.plugins import load_files\n"
        "load_files(['mine.py'])\n"
    )
    done = run(tmp_path, "pytest", "-q", "test_mine.py", "-p", "no:cacheprovider")
    failed = set(re.findall(r"^FAILED test_mine.py::test_(\w+)\[bad of ", done.stdout, re.M))
    assert failed == {*TAKES}, done.stdout
    assert "1 passed" in done.stdout  # nothing that is found at the import
    for told in (
        "another choice with the same random generator",
        "the pruning bad did not return",
        "False and then True|True and then False",
        "other problems when it is called again",
        "another problem when called again",
        "other files when it is called again",
        "ours.yaml is not YAML",
        "nonsense.*is no field",
        "worker_died on '<script>",
    ):
        assert re.search(told, done.stdout), told
