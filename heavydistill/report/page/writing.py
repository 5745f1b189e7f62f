"""Writes the report: one HTML file, which appears under its name when all of it is there.

    head       the policy, the style
    body       the figures of each run, the frame of the viewer
    indices    of each run what its list and filters need, as JSON
    scripts    KaTeX and ours
    chunks     of each run its traces (see ``chunks``), behind all that shows them

Traces are read once and written as they come; of each its entry in the list stays in memory.
The policy of the page allows the scripts and the style that are in it, by their hashes, and nothing
else: no address, no other script, no style or script in an attribute.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import IO, Any

import heavydistill
from heavydistill.errors import ConfigError
from heavydistill.report.page import overview, together
from heavydistill.report.page.chunks import Chunks, json_element
from heavydistill.report.page.entries import entry, whole
from heavydistill.report.page.figures import Figures, figures
from heavydistill.report.page.markup import Html, joined, tag
from heavydistill.report.page.plots import pattern_definitions
from heavydistill.report.page.sources import Source, find
from heavydistill.schema import Trace
from heavydistill.store.traces import read_files, writing

SCRIPTS = ("dom", "data", "maths", "text", "search", "list", "response", "trace", "app")
"""In ``web``, in the order in which they stand in the page, as one script."""
_GENERATOR = '<meta name="generator" content="heavydistill'
_HEAD_BYTES = 2000
_FILES = resources.files("heavydistill.report.page")


@dataclass(frozen=True, slots=True)
class Written:
    """What is in a report.

    Attributes:
        file: Where it is.
        runs: In their order.
        figures: Of each run.
    """

    file: Path
    runs: list[Source]
    figures: list[Figures]


def write_report(folders: Sequence[Path], out: Path) -> Written:
    """Report runs and evaluations.

    Args:
        folders: Of them.
        out: The file; one that an earlier call wrote is replaced.

    Raises:
        ConfigError: A folder holds no run, or a whole one without verdicts, or one of another
            schema version; or ``out`` is something else than a report.
        RunError: A run has no traces, or the disk is full or fails. There is no new file.
    """
    _refuse_others(out)
    sources = _distinct([source for folder in folders for source in find(folder)])
    of_several = [together.of_folder(folder) for folder in folders]
    with contextlib.ExitStack() as held, writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        chunks = held.enter_context(tempfile.TemporaryFile(dir=out.parent))
        told, indices = [], []
        for number, source in enumerate(sources):
            of_run, index = _read(number, source, chunks)
            told.append(of_run)
            indices.append(index)
        chunks.seek(0)
        with _appearing(out) as file:
            _write(file, sources, told, of_several, indices, chunks)
    return Written(out, sources, told)


def script() -> str:
    """Our scripts as one."""
    parts = (shipped("web", f"{name}.js") for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{"".join(parts)}}})();\n'


def _read(number: int, source: Source, file: IO[bytes]) -> tuple[Figures, str]:
    """The figures of a run and its index; its traces go into the file."""
    chunks = Chunks(file, number)
    entries: list[dict[str, Any]] = []

    def noted(traces: Iterable[Trace]) -> Iterator[Trace]:
        for trace in traces:
            entries.append({**entry(trace), "at": chunks.add(whole(trace))})
            yield trace

    of_run = figures(source, noted(read_files(source.files)))
    chunks.close()
    index = {
        "name": source.name,
        "unfinished": source.unfinished,
        "chunks": chunks.count,
        "entries": entries,
    }
    return of_run, json_element(f"index-{number}", index)


def _write(
    file: IO[bytes],
    sources: Sequence[Source],
    told: Sequence[Figures],
    of_several: Sequence[Html],
    indices: Sequence[str],
    chunks: IO[bytes],
) -> None:
    katex = f"/*! KaTeX\n{shipped('katex', 'LICENSE')}*/\n{shipped('katex', 'katex.min.js')}"
    style, ours = shipped("web", "page.css"), script()
    sections = (
        overview.of_run(number, source, one)
        for number, (source, one) in enumerate(zip(sources, told, strict=True))
    )
    slots = {
        "policy": _policy([katex, ours], style),
        "version": heavydistill.__version__,
        "title": tag("title", f"{', '.join(source.name for source in sources)} - heavydistill"),
        "style": f"<style>{style}</style>",
        "patterns": pattern_definitions(),
        "runs": joined(
            tag("option", source.label, value=str(number)) for number, source in enumerate(sources)
        ),
        "summaries": joined([overview.of_all(sources, told), *of_several, *sections]),
        "indices": "".join(indices),
        "scripts": f"<script>{katex}</script>\n<script>{ours}</script>\n",
    }
    # What stands between two slots and what fills them alternate, so no text can name a slot.
    for number, part in enumerate(re.split(r"\{\{(\w+)\}\}", shipped("web", "page.html"))):
        if number % 2 and part == "chunks":
            shutil.copyfileobj(chunks, file)
        else:
            file.write((slots[part] if number % 2 else part).encode())


def _policy(scripts: Sequence[str], style: str) -> Html:
    """What the page may do."""
    allowed = " ".join(map(_hash, scripts))
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return tag("meta", http_equiv="Content-Security-Policy", content=policy)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def shipped(folder: str, name: str) -> str:
    """A file that comes with this package: of ``web`` or of ``katex``."""
    return (_FILES / folder / name).read_text(encoding="utf-8")


def _distinct(sources: list[Source]) -> list[Source]:
    """With a number behind names that several have."""
    seen: Counter[str] = Counter()
    distinct = []
    for source in sources:
        seen[source.name] += 1
        more = seen[source.name]
        name = f"{source.name} ({more})" if more > 1 else source.name
        distinct.append(dataclasses.replace(source, name=name))
    return distinct


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


@contextlib.contextmanager
def _appearing(out: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name when this ends well, and is gone when it does not."""
    unfinished = out.with_name(f".{out.name}.unfinished")
    try:
        with unfinished.open("wb") as file:
            yield file
        unfinished.replace(out)
    finally:
        unfinished.unlink(missing_ok=True)
