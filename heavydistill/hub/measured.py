"""The part of a model's card that tells how it did before and after, if it was measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from heavydistill.metrics.comparison import COMPARISON, Change, Comparison, read_comparison
from heavydistill.metrics.counts import COLUMNS, unanswered_facts
from heavydistill.metrics.intervals import FEW_PROBLEMS, FEW_WARNING
from heavydistill.report.grid import UNKNOWN, count
from heavydistill.report.markdown import at, code, interval, table, text
from heavydistill.store.training_record import EVALUATION

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

FIGURES = f"{EVALUATION}/{COMPARISON}"


def comparison_in(folder: Path) -> Comparison | None:
    """The comparison in the folder of a trained model; None if it was not measured.

    Raises:
        ConfigError: It is of another version.
    """
    path = folder / FIGURES
    return read_comparison(path) if path.is_file() else None


def sections(comparison: Comparison) -> Iterator[str]:
    """Heading and what follows it."""
    yield "## Evaluation"
    yield " ".join(_how(comparison))
    is_change = comparison.before is not None
    head = ("Metric", "What it says", "Before", "After", "Difference, points")
    rows = [
        (text(name), text(meaning), *_cells(change, is_share="-" not in name))
        for name, meaning, change in comparison.metrics
    ]
    columns = range(len(head)) if is_change else (0, 1, 3)
    yield table([head[i] for i in columns], [[row[i] for i in columns] for row in rows])
    yield (
        "In brackets: 95% intervals, bootstrapped over problems"
        + ("; a difference is paired by problem." if is_change else ".")
        + (f" {FEW_WARNING}" if comparison.problems < FEW_PROBLEMS else "")
    )
    yield from _samples(comparison)


def _samples(comparison: Comparison) -> Iterator[str]:
    """What became of the answers, and where many hold no final answer."""
    rows, warnings = [], []
    for run in filter(None, (comparison.before, comparison.after)):
        samples = run.summary.samples
        rows += [(text(f"{stage} {run.name}"), *counts.cells) for stage, counts in samples.items()]
        facts = unanswered_facts(samples, run.summary.by_verifier)
        warnings += [text(f"{run.name.capitalize()}: {fact}") for fact in facts]
    yield table(("Answers", "All", *(name.capitalize() for name in COLUMNS)), rows)
    yield from warnings


def results(comparison: Comparison, role: str) -> list[EvalResult]:
    """The shares after, as the Hub lists them: as what this model does, and no other one.

    Args:
        comparison: It.
        role: That the model learnt.
    """
    from huggingface_hub import EvalResult

    source = _source(comparison)
    did_both = comparison.after.thinker == comparison.after.deliberator
    return [
        EvalResult(
            task_type="text-generation",
            dataset_type=source.removeprefix("hub:"),
            dataset_name=source.removeprefix("hub:"),
            metric_type="accuracy",
            metric_name=f"{name} ({meaning})",
            metric_value=round(change.after.mean, 4),
        )
        for name, meaning, change in comparison.metrics
        if "-" not in name
        and (did_both or role == ("deliberator" if name.startswith("H") else "thinker"))
    ]


def _how(comparison: Comparison) -> Iterator[str]:
    asked, summary = comparison.config, comparison.after.summary
    yield (
        f"{count(comparison.problems)} problems of {code(_source(comparison))}, "
        f"{summary.k} trajectories of each and {summary.d} deliberations of each cache, in "
        f"{summary.rounds} {'round' if summary.rounds == 1 else 'rounds'}, with prompts "
        f"{code(asked.get('domain') or UNKNOWN)} and seed {asked.get('seed', UNKNOWN)}."
    )
    if left_out := comparison.after.left_out:
        rows = "row" if left_out == 1 else "rows"
        yield f"{count(left_out)} {rows} of it cannot be judged, and are left out."
    for when, run in (("Before", comparison.before), ("After", comparison.after)):
        if run:
            thinker = code(run.thinker.name) if run.thinker else "another run"
            by = code(run.deliberator.name) if run.deliberator else "nobody"
            yield f"{when}: trajectories by {thinker}, deliberations by {by}."
    yield f"Judged by {', '.join(map(code, summary.verifiers)) or UNKNOWN}."


def _source(comparison: Comparison) -> str:
    return str(at(comparison.config, "problems.source") or "another run")


def _cells(change: Change, *, is_share: bool) -> list[str]:
    """Before, after and difference."""
    values = ((change.before, is_share), (change.after, is_share), (change.difference, False))
    return [
        interval(dataclasses.asdict(value), signed=not share) if value else UNKNOWN
        for value, share in values
    ]
