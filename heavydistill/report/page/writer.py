"""Writes the report as one HTML file, which gets its final name when it is complete.

    head       policy and style
    body       the metrics of each run, and the frame of the viewer
    indices    data for the list and the filters of each run, as JSON
    scripts    KaTeX and the scripts in ``web``
    chunks     the traces of each run

Traces are read once and written one by one; only their entries in the list stay in memory. Jinja2
renders everything else from ``web/page.html`` and escapes every value. The policy of the page
allows the scripts and the style of the page by their hashes, and nothing else.

A chunk is a JSON list of traces, deflated (RFC 1951, without a header) and in base64, in a script
element of a type that browsers do not execute. A chunk ends when its JSON has
``_CHUNK_CHARACTERS``, so that unpacking it is quick.

Not covered: deliberations that use an attempt without naming it or giving its answer; see
``text.mentions``.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import json
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from markupsafe import Markup

import heavydistill
from heavydistill.config.files import new_file
from heavydistill.errors import ConfigError
from heavydistill.heavy.cache import blocks_of
from heavydistill.metrics.counts import unanswered_because
from heavydistill.metrics.problem_figures import family_of
from heavydistill.report.page.html import shipped
from heavydistill.report.page.plots import pattern_definitions
from heavydistill.report.page.runs import SIDES, ReportedRun, RunFigures, figures, find, name_of
from heavydistill.report.page.sections import environment, of_all, of_folder, of_run
from heavydistill.report.trace import texts_of
from heavydistill.schema import FAILED, Deliberation, Generation, Problem, Trace, to_row
from heavydistill.store.traces import read_files, writing
from heavydistill.text.checked_claims import attempts_by_cache, checked_claims
from heavydistill.text.extraction import WITH_MARKER, marker_of, reference_answer
from heavydistill.text.mentions import named
from heavydistill.text.words import parts_at

SCRIPTS = ("dom", "data", "maths", "text", "search", "list", "response", "trace", "app")
"""Names of the files in ``web`` that form the page's script, in order."""
_GENERATOR = '<meta name="generator" content="heavydistill'
_HEAD_BYTES = 2000
STATES = ("correct", "incorrect", "unanswered", "undecided", "unjudged", "failed")
"""Categories in which responses are counted. An unanswered response is not counted by its
verdict; a failed response may also be counted by its verdict."""
_CLAIMED = {True: "true", False: "false", None: "unknown"}
_REASON = 60  # maximum characters of a reason in the filter
_SNIPPET = 160  # maximum characters of a problem in the list
_BEGINNING = 640  # maximum length of a common beginning that is cut off
_LEAST_CUT, _MOST_ALIKE = 32, 32
_CHUNK_CHARACTERS = 400_000
_TYPE = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """A written report, with its runs and their metrics."""

    file: Path
    runs: list[ReportedRun]
    figures: list[RunFigures]


def write_report(
    folders: str | Path | Sequence[str | Path], out: str | Path | None = None
) -> WrittenReport:
    """Write the report of runs and evaluations: one HTML file that needs no network.

    Args:
        folders: Folders of runs, evaluations and crossings, or a single one.
        out: File to write (default: beside the first folder); an earlier report is replaced.

    Raises:
        ConfigError: A folder has no run, a finished run without verdicts, or one of another
            schema version; or ``out`` exists and is not a report.
        RunError: A run has no traces, or the disk is full or fails; no file is written.
    """
    given = [folders] if isinstance(folders, str | Path) else folders
    places = [Path(folder) for folder in given]
    out = Path(out or f"{places[0].absolute()}.html")
    _refuse_others(out)
    sources: list[ReportedRun] = []
    seen: Counter[str] = Counter()
    for source in (source for folder in places for source in find(folder)):
        seen[source.name] += 1
        more = seen[source.name]  # runs with equal names are numbered
        name = f"{source.name} ({more})" if more > 1 else source.name
        sources.append(dataclasses.replace(source, name=name))
    together = [section for folder in places for section in of_folder(folder)]
    with contextlib.ExitStack() as held, writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        chunks = held.enter_context(tempfile.TemporaryFile(dir=out.parent))
        read = [_read(number, source, chunks) for number, source in enumerate(sources)]
        all_figures = [run_figures for run_figures, _ in read]
        together += of_all(sources, all_figures)
        sections = list(map(of_run, range(len(sources)), sources, all_figures))
        chunks.seek(0)
        with new_file(out) as file:
            _write(file, sources, together, sections, [index for _, index in read], chunks)
    return WrittenReport(out, sources, all_figures)


def script() -> str:
    """Return the script of the page, without KaTeX."""
    parts = (shipped("web", f"{name}.js") for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{"".join(parts)}}})();\n'


def _read(number: int, source: ReportedRun, file: IO[bytes]) -> tuple[RunFigures, Markup]:
    """Write the traces of a run to the file; return the run's metrics and its index."""
    chunks = Chunks(file, number)
    entries: list[dict[str, Any]] = []

    def noted(traces: Iterable[Trace]) -> Iterator[Trace]:
        for trace in traces:
            row = whole(trace)
            entries.append({**entry(trace, row), "at": chunks.add(row)})
            yield trace

    run_figures = figures(source, noted(read_files(source.files)))
    chunks.close()
    for entry_of, text in zip(entries, differing([one["text"] for one in entries]), strict=True):
        entry_of["text"] = text
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
    together: Iterable[Markup],
    sections: Iterable[Markup],
    indices: Sequence[Markup],
    chunks: IO[bytes],
) -> None:
    katex = f"/*! KaTeX\n{shipped('katex', 'LICENSE')}*/\n{shipped('katex', 'katex.min.js')}"
    scripts, style = [katex, script()], shipped("web", "page.css")
    after = f" / {SIDES[-1]}"
    page = (
        environment()
        .get_template("page.html")
        .render(
            policy=_policy(scripts, style),
            version=heavydistill.__version__,
            style=Markup(style),
            patterns=pattern_definitions(),
            runs=sources,
            # Of an evaluation, the run after.
            first=next((n for n, run in enumerate(sources) if run.name.endswith(after)), 0),
            together=together,
            sections=sections,
            indices=indices,
            scripts=list(map(Markup, scripts)),
        )
    )
    file.write(page.encode())
    shutil.copyfileobj(chunks, file)  # the traces may be larger than the memory
    file.write(b"</body>\n</html>\n")


def _policy(scripts: Sequence[str], style: str) -> str:
    """Return the content security policy of the page."""
    *allowed, styled = (
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in (*scripts, style)
    )
    return (
        f"default-src 'none'; script-src {' '.join(allowed)}; style-src {styled}; "
        "base-uri 'none'; form-action 'none'"
    )


def _refuse_others(out: Path) -> None:
    """Raise a ConfigError if the path exists and is not a report."""
    if not out.exists():
        return
    if out.is_file():
        with out.open("rb") as file:
            if _GENERATOR.encode() in file.read(_HEAD_BYTES):
                return
    raise ConfigError(
        f"--out: {out} exists and is not a report", "Give another file, or remove this one."
    )


def entry(trace: Trace, row: dict[str, Any]) -> dict[str, object]:
    """Return the data of a trace for the list and filters; counts are ordered as in ``STATES``.

    ``row`` is the trace as ``whole`` returns it.
    """
    tokens = (one.completion_tokens for one in (*trace.pool, *trace.deliberations))
    known = [count for count in tokens if count >= 0]
    claims = [claim for answer in row["deliberations"] for claim in answer["claims"]]
    return {
        "id": trace.problem.id,
        "text": " ".join(trace.problem.text[: 2 * _BEGINNING].split())[:_BEGINNING],
        "crc": zlib.crc32(trace.problem.transcript.encode()),  # tells equal ids apart
        "stratum": trace.stratum,
        "outcome": trace.outcome,
        "status": "failed" if trace.status.startswith(FAILED) else trace.status,
        "verifier": trace.problem.verifier,
        "family": family_of(trace.problem),
        "pool": _counts(trace.pool),
        "deliberations": _counts(trace.deliberations),
        "k": len(trace.pool),
        "d": len(trace.deliberations),
        "written": sum(known) if known else -1,
        "reasons": {"pool": _reasons(trace.pool), "deliberations": _reasons(trace.deliberations)},
        "claims": sorted({_CLAIMED[claim["is_true"]] for claim in claims})
        + ["contradiction"] * any(claim["contradicts"] for claim in claims),
    }


def differing(texts: Sequence[str]) -> list[str]:
    """Return the texts from where they differ, each cut to the length that a list shows.

    A beginning shared by a tenth of the texts (at least 2, at most 32) is replaced by an ellipsis.
    """
    alike = min(max(2, len(texts) // 10), _MOST_ALIKE)
    order = sorted(range(len(texts)), key=texts.__getitem__)
    cuts = [0] * len(texts)
    for first in range(len(texts) - alike + 1):
        group = order[first : first + alike]
        one, other = texts[group[0]], texts[group[-1]]
        if (cut := one.rfind(" ", 0, parts_at(one, other)) + 1) >= _LEAST_CUT:
            for place in group:
                cuts[place] = max(cuts[place], cut)
    return [
        f"\u2026 {text[cut:]}"[:_SNIPPET] if cut else text[:_SNIPPET]
        for text, cut in zip(texts, cuts, strict=True)
    ]


def whole(trace: Trace) -> dict[str, object]:
    """Return a trace as JSON, with the derived fields for the viewer."""
    responses = (*trace.pool, *trace.deliberations)
    attempts = attempts_by_cache(trace)
    row = to_row(trace)
    row["problem"]["text"] = trace.problem.transcript
    row["problem"]["compared"] = _compared(trace.problem)
    for response, shown in zip(responses, (*row["pool"], *row["deliberations"]), strict=True):
        for key in ("model", "served_model"):
            shown[key] = name_of(shown[key])
        shown["unanswered"] = unanswered_because(response) is not None
        shown["texts"] = list(texts_of(response))
        for key in ("reasoning", "answer_text", "turns_json"):
            del shown[key]
    for cache, shown in zip(trace.caches, row["caches"], strict=True):
        shown["blocks"] = blocks_of(cache)
        shown["reader"] = name_of(cache.reader)
        if shown["blocks"]:
            del shown["prompt"]
    for answer, shown in zip(trace.deliberations, row["deliberations"], strict=True):
        read = attempts.get(answer.cache, [])
        shown["uses"] = _uses(answer, read, trace.problem.text)
        shown["claims"] = [
            {
                "id": each.attempt.id,
                "says": each.claim.says,
                "quote": each.claim.quote,
                "is_true": each.is_true,
                "contradicts": each.is_contradiction,
            }
            for each in checked_claims(answer, read)
        ]
    return row


def _counts(generations: Sequence[Generation]) -> list[int]:
    counts: Counter[str] = Counter()
    for generation in generations:
        verdict = generation.verdict
        if generation.finish_reason == "error":
            counts["failed"] += 1
        elif verdict is None:
            counts["unjudged"] += 1
        if verdict:
            counts["unanswered" if unanswered_because(generation) else verdict.label] += 1
    return [counts[state] for state in STATES]


def _reasons(generations: Sequence[Generation]) -> list[str]:
    """Return why responses have their verdicts or none, sorted: the filter's values."""
    reasons = set()
    for generation in generations:
        if generation.finish_reason == "length":
            reasons.add("truncated")
        elif generation.failure:
            reasons.add(generation.failure)
        elif generation.verdict:
            reasons.add(generation.verdict.reason[:_REASON])
    return sorted(reasons)


def _compared(problem: Problem) -> str:
    """Return the part of a reference that answers are compared with; empty if it is the whole."""
    if problem.verifier not in WITH_MARKER:
        return ""
    try:
        answer = reference_answer(problem.reference, marker_of(problem))
    except ValueError:
        return ""
    return "" if answer == problem.reference.strip() else answer


def _uses(
    deliberation: Deliberation, attempts: Sequence[Generation], problem: str
) -> dict[str, Any]:
    """Return ids of attempts in the cache: those with the same answer, and those mentioned."""
    mentioned = named(f"{deliberation.reasoning}\n\n{deliberation.answer_text}", problem)
    answer = deliberation.extracted
    same = [each.id for each in attempts if answer is not None and each.extracted == answer]
    return {
        "same": same,
        "named": [
            each.id for number, each in enumerate(attempts, 1) if number in mentioned.numbers
        ],
        "several": mentioned.several,
    }


class Chunks:
    """Writes the traces of one run in chunks, each an element of the page.

    Args:
        file: Binary file for the chunks.
        run: Number of the run, which is part of the ids of the elements.
    """

    def __init__(self, file: IO[bytes], run: int) -> None:
        self._file = file
        self._run = run
        self._rows: list[str] = []
        self._characters = 0
        self.count = 0  # number of chunks started

    def add(self, row: dict[str, Any]) -> tuple[int, int]:
        """Add a trace; return (number of its chunk, position in the chunk)."""
        text = json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        if not self._rows:
            self.count += 1
        place = self.count - 1, len(self._rows)
        self._rows.append(text)
        self._characters += len(text)
        if self._characters >= _CHUNK_CHARACTERS:
            self.close()
        return place

    def close(self) -> None:
        """Write the traces added since the last chunk."""
        if not self._rows:
            return
        packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        packed = packer.compress(f"[{','.join(self._rows)}]".encode()) + packer.flush()
        name = f"chunk-{self._run}-{self.count - 1}"
        self._file.write(f'<script type="{_TYPE}" id="{name}">'.encode())
        self._file.write(base64.b64encode(packed))
        self._file.write(b"</script>\n")
        self._rows, self._characters = [], 0


def json_element(name: str, value: object) -> str:
    """Return a script element with JSON, which browsers do not execute.

    ``<`` is escaped, so that no text can end the element or open a comment.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>\n'
