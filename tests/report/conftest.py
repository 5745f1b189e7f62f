"""A run to report, and what the tables of reports print."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import runs
from browsing import browsing
from rich.cells import cell_len
from rich.console import Console

from heavydistill.report.page.writer import write_report
from heavydistill.schema import Trace
from heavydistill.store.traces import TRACES_FOLDER, read_traces, write_traces

WIDTH = 80


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_run(tmp_path_factory.mktemp("runs") / "first", 12, k=4, d=2)


@pytest.fixture(scope="module")
def traces(run: Path) -> list[Trace]:
    return list(read_traces(run))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsing() as opened:
        yield opened


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """The report of a run of these traces."""

    def write(*traces: Trace) -> Path:
        write_traces(traces, tmp_path / "run" / TRACES_FOLDER)
        return write_report([tmp_path / "run"], tmp_path / "page.html").file

    return write


@pytest.fixture
def printed() -> Callable[..., str]:
    """What a print function writes to a file, 80 columns wide; no line may be wider."""

    def run(function: Callable[..., None], value: object, **options: object) -> str:
        console = Console(record=True, width=WIDTH, file=io.StringIO())
        function(value, console, **options)
        text = console.export_text()
        assert max(map(cell_len, text.splitlines())) <= WIDTH
        return text

    return run
