"""``heavydistill report`` as a user runs it."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest
import runs
from command_line import run_command
from damaging import damage

from heavydistill.store.traces import TRACES_FOLDER, read_traces, write_traces


def report(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command("report", *arguments)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_run(tmp_path_factory.mktemp("runs") / "first", 6, k=4, d=2)


def test_the_page_lies_beside_the_run_unless_it_is_named(run: Path) -> None:
    done = report(str(run))
    assert done.returncode == 0, done.stderr
    page = run.with_name("first.html")
    assert "first: 6 problems" in done.stdout and str(page) in done.stdout
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("fault", ["no run", "version", "damaged", "no verdicts", "taken"])
def test_bad_input_is_refused_with_what_is_missing(run: Path, tmp_path: Path, fault: str) -> None:
    traces, folder = list(read_traces(run)), tmp_path / "bad"
    out, said = tmp_path / "page.html", ""
    if fault == "no run":
        folder.mkdir()
        said = "no traces/*.parquet"
    elif fault == "version":
        other = [dataclasses.replace(trace, schema_version="999") for trace in traces]
        write_traces(other, folder / TRACES_FOLDER)
        said = "schema version '999'"
    elif fault == "damaged":
        write_traces(traces, folder / TRACES_FOLDER)
        file = damage(next((folder / TRACES_FOLDER).iterdir()), "pool.list.element.reasoning")
        said = f"{file} cannot be read as parquet"
    elif fault == "no verdicts":
        pools = [[dataclasses.replace(t, verdict=None) for t in trace.pool] for trace in traces]
        bare = (
            dataclasses.replace(trace, pool=pool, deliberations=[])
            for trace, pool in zip(traces, pools, strict=True)
        )
        write_traces(bare, folder / TRACES_FOLDER)
        said = "has no verdicts"
    else:
        folder, said = run, "is no report"
        out.write_text("mine")
    done = report(str(run), str(folder), "--out", str(out))
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert fault == "taken" or not out.exists()
