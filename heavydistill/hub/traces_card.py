"""The dataset card of the published traces of a run, with metadata for the Hub."""

from __future__ import annotations

from pathlib import Path

from heavydistill.hub.cards import render
from heavydistill.hub.dataset_card import address, figures_of, metadata
from heavydistill.hub.options import PublishOptions
from heavydistill.hub.run_traces import RunTraces
from heavydistill.hub.terms import authors_of, licence_of
from heavydistill.schema import Trace
from heavydistill.store.traces import TRACES_FOLDER


def traces_card(found: RunTraces, folder: Path, options: PublishOptions) -> str:
    """Return the card of a run's traces, with the notes of the card that is in the folder.

    Raises:
        ConfigError: A profile cannot be read, or the card in the folder is not UTF-8 text.
    """
    authors = authors_of(found, options.profiles)
    licence = licence_of(found, authors, options)
    title = f"Attempts by {', '.join(found.models['thinker'])}"
    if readers := ", ".join(found.models["deliberator"]):
        title += f", deliberations by {readers}"
    files = [{"split": "train", "path": f"{TRACES_FOLDER}/*.parquet"}]
    configs: list[dict[str, object]] = [{"config_name": "default", "data_files": files}]
    return render(
        "traces_card.md",
        folder,
        metadata=metadata(found, title, licence, found.problems.total(), configs),
        title=title,
        found=found,
        authors=authors,
        licence=licence,
        address=address(options),
        example=_example(found.first) if found.first else {},
        figures=figures_of(found),
        rejects=found.runs[0].summary.get("rejects", 0),
        missing=found.runs[0].summary.get("missing", 0),
    )


def _example(trace: Trace) -> dict[str, str]:
    """Return the texts of a trace for the example: problem, attempt and deliberation."""
    texts = {"problem.text": trace.problem.transcript, "problem.reference": trace.problem.reference}
    for name, samples in (("pool", trace.pool), ("deliberations", trace.deliberations)):
        for sample in samples[:1]:
            texts[f"{name}[0].reasoning"] = sample.reasoning
            texts[f"{name}[0].answer_text"] = sample.answer_text
            texts[f"{name}[0].verdict.label"] = sample.verdict.label if sample.verdict else ""
    return {name: value for name, value in texts.items() if value}
