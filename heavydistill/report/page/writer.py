"""Writes the report: one HTML file, which appears under its name when all of it is there.

    head       the policy, the style
    body       the figures of each run, the frame of the viewer
    indices    what the list and the filters of each run need, as JSON
    scripts    KaTeX and ours
    chunks     the traces of each run (see ``traces``), behind all that shows them

Traces are read once and written as they come; only their entries in the list stay in memory. All
but the traces is rendered from ``web/page.html`` by Jinja2, which escapes every value.
The policy of the page allows the scripts and the style that are in it, by their hashes, and nothing
else: no address, no other script, no style or script in an attribute.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from markupsafe import Markup

import heavydistill
from heavydistill.errors import ConfigError
from heavydistill.report.page.html import environment, shipped
from heavydistill.report.page.plots import pattern_definitions
from heavydistill.report.page.runs import ReportedRun, RunFigures, figures, find
from heavydistill.report.page.sections import PageSection, of_all, of_folder, of_run
from heavydistill.report.page.traces import Chunks, entry, json_element, whole
from heavydistill.schema import Trace
from heavydistill.store.traces import read_files, writing

SCRIPTS = ("dom", "data", "maths", "text", "search", "list", "response", "trace", "app")
"""In ``web``, in the order in which they stand in the page, as one script."""
_GENERATOR = '<meta name="generator" content="heavydistill'
_HEAD_BYTES = 2000


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """A report that was written, with its runs and the figures of each."""

    file: Path
    runs: list[ReportedRun]
    figures: list[RunFigures]


def write_report(folders: Sequence[Path], out: Path) -> WrittenReport:
    """Report runs and evaluations.

    Args:
        folders: Folders of runs, evaluations and crossings.
        out: The file; one that an earlier call wrote is replaced.

    Raises:
        ConfigError: A folder holds no run, or a whole one without verdicts, or one of another
            schema version; or ``out`` is something else than a report.
        RunError: A run has no traces, or the disk is full or fails. There is no new file.
    """
    _refuse_others(out)
    sources: list[ReportedRun] = []
    seen: Counter[str] = Counter()
    for source in (source for folder in folders for source in find(folder)):
        seen[source.name] += 1
        more = seen[source.name]  # a number tells runs of one name apart
        name = f"{source.name} ({more})" if more > 1 else source.name
        sources.append(dataclasses.replace(source, name=name))
    together = [section for folder in folders for section in of_folder(folder)]
    unfinished = out.with_name(f".{out.name}.unfinished")
    with contextlib.ExitStack() as held, writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        chunks = held.enter_context(tempfile.TemporaryFile(dir=out.parent))
        read = [_read(number, source, chunks) for number, source in enumerate(sources)]
        all_figures = [run_figures for run_figures, _ in read]
        sections = [*of_all(sources, all_figures), *together]
        sections += map(of_run, range(len(sources)), sources, all_figures)
        chunks.seek(0)
        held.callback(unfinished.unlink, missing_ok=True)
        with unfinished.open("wb") as file:
            _write(file, sources, sections, [index for _, index in read], chunks)
        unfinished.replace(out)
    return WrittenReport(out, sources, all_figures)


def script() -> str:
    """Our scripts as one."""
    parts = (shipped("web", f"{name}.js") for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{"".join(parts)}}})();\n'


def _read(number: int, source: ReportedRun, file: IO[bytes]) -> tuple[RunFigures, Markup]:
    """The figures of a run and the index of its traces, which go into the file."""
    chunks = Chunks(file, number)
    entries: list[dict[str, Any]] = []

    def noted(traces: Iterable[Trace]) -> Iterator[Trace]:
        for trace in traces:
            entries.append({**entry(trace), "at": chunks.add(whole(trace))})
            yield trace

    run_figures = figures(source, noted(read_files(source.files)))
    chunks.close()
    index = {
        "name": source.name,
        "unfinished": source.unfinished,
        "chunks": chunks.count,
        "entries": entries,
    }
    return run_figures, Markup(json_element(f"index-{number}", index))


def _write(
    file: IO[bytes],
    sources: Sequence[ReportedRun],
    sections: Iterable[PageSection],
    indices: Sequence[Markup],
    chunks: IO[bytes],
) -> None:
    katex = f"/*! KaTeX\n{shipped('katex', 'LICENSE')}*/\n{shipped('katex', 'katex.min.js')}"
    scripts, style = [katex, script()], shipped("web", "page.css")
    page = (
        environment()
        .get_template("page.html")
        .render(
            policy=_policy(scripts, style),
            version=heavydistill.__version__,
            names=[source.name for source in sources],
            style=Markup(style),
            patterns=pattern_definitions(),
            labels=[source.label for source in sources],
            sections=sections,
            indices=indices,
            scripts=list(map(Markup, scripts)),
        )
    )
    file.write(page.encode())
    shutil.copyfileobj(chunks, file)  # there may be more of them than fits into memory
    file.write(b"</body>\n</html>\n")


def _policy(scripts: Sequence[str], style: str) -> str:
    """What the page may do."""
    *allowed, styled = (
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in (*scripts, style)
    )
    return (
        f"default-src 'none'; script-src {' '.join(allowed)}; style-src {styled}; "
        "base-uri 'none'; form-action 'none'"
    )


def _refuse_others(out: Path) -> None:
    """Refuse a name that something has which is no report."""
    if not out.exists():
        return
    if out.is_file():
        with out.open("rb") as file:
            if _GENERATOR.encode() in file.read(_HEAD_BYTES):
                return
    raise ConfigError(
        f"--out: {out} exists and is no report", "Name another file, or remove this one."
    )
