"""Texts of the reference pages, generated from where each thing is documented in the package."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FunctionType

from command_line import commands
from fields import columns, configuration, labels, training

import heavydistill
from heavydistill import errors
from heavydistill.models.request import Response
from heavydistill.run.status import Status
from heavydistill.schema import Trace, Turn
from heavydistill.store.segment import Record
from heavydistill.store.sets import set_rows
from heavydistill.store.sets.folder import Manifest
from heavydistill.store.training_record import TrainingRecord

REPOSITORY = Path(__file__).parents[2]


def benchmarks() -> str:
    """Text of benchmarks/README.md without its title, with links that hold for the page."""
    text = (REPOSITORY / "benchmarks" / "README.md").read_text(encoding="utf-8")
    _, _, body = text.partition("\n")
    return re.sub(r"\]\((?!\w+:|#)", "](../../benchmarks/", body).strip()


_PYTHON = {
    "Functions": "\n".join(
        f".. autofunction:: heavydistill.{name}"
        for name in heavydistill.__all__
        if isinstance(getattr(heavydistill, name), FunctionType)
    ),
    "Traces": """
.. autoclass:: heavydistill.Traces
   :members:
""",
    "Verifiers": """
.. autoclass:: heavydistill.Verifier
   :members:
.. autoclass:: heavydistill.Decision
   :members:
.. autoclass:: heavydistill.VerdictPool
   :members: judge, judge_all, submit, close
""",
    "Errors": "\n".join(
        f".. autoexception:: heavydistill.errors.{each.__name__}\n   :show-inheritance:"
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.HeavydistillError)
    ),
}


def python() -> str:
    """The public face, for autodoc."""
    parts = (
        f"## {title}\n\n```{{eval-rst}}\n{directives.strip()}\n```"
        for title, directives in _PYTHON.items()
    )
    return "\n\n".join(parts)


TEXTS: dict[str, Callable[[], str]] = {
    "benchmarks": benchmarks,
    "commands": commands,
    "python": python,
    **{
        f"{owner}-keys": partial(configuration, owner)
        for owner in ("run", "service", "build", "refilter", "import", "profile", "benchmark")
    },
    "sft-keys": partial(training, "sft"),
    "grpo-keys": partial(training, "grpo"),
    "distill-keys": partial(training, "distill"),
    "trace-columns": partial(columns, Trace),
    "turn-columns": partial(columns, Turn),
    "training-columns": partial(
        columns, set_rows.SftRow, set_rows.RlRow, set_rows.PairRow, set_rows.LabelledRow
    ),
    "view-columns": partial(
        columns,
        set_rows.ProblemRow,
        set_rows.TrajectoryRow,
        set_rows.CacheRow,
        set_rows.DeliberationRow,
        above=(Trace, set_rows.RlRow),
    ),
    "labels": labels,
    "manifest": partial(columns, Manifest),
    "training-record": partial(columns, TrainingRecord, above=(Manifest,)),
    "journal-line": partial(columns, Record, Response),
    "status": partial(columns, Status),
}
"""By the name in the comment `<!-- generated: NAME -->`."""
