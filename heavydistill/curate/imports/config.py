"""The typed configuration of an import; ``import.json`` keeps it.

The keys under ``problems`` are those of a run of the same name and mean the same. Options of a
question are always shown in the order of the file, which is what its answers were given to.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from heavydistill.config.run import Verifying, assign
from heavydistill.config.yaml import Section, parse

FormatName = Literal["heavyskill", "pacore", "nemo", "answers"]


class ImportedProblems(Section):
    """What is a problem in the files, and how it is judged."""

    columns: dict[str, str] = Field(default_factory=dict)
    """Field to column: those of a run's ``problems.columns``, and ``answers`` (a column, or a
    pattern such as ``model_*`` for several), ``answer_text`` (key of the text where an answer is an
    object), ``labels`` and ``finish_reasons`` (lists beside a list of answers)."""
    verifier: str | None = None
    """Verifier of rows that name none and have no options; ``math`` if null."""
    verifier_args: dict[str, Any] = Field(default_factory=dict)
    """Its arguments for rows that bring none, e.g. ``{marker: "####"}``."""
    limit: int | None = Field(None, ge=1)
    """Take the first so many problems."""
    unfit: Literal["refuse", "leave_out"] = "refuse"
    """What becomes of files with rows that cannot be used: an error that lists them, or an import
    without them, which are counted and shown."""


class ImportConfig(Section):
    """One import."""

    files: list[str] = Field(min_length=1)
    """The files, of one format."""
    format: FormatName
    problems: ImportedProblems = ImportedProblems()
    model: str | None = Field(None, min_length=1)
    """Who wrote the answers, where the file does not say; null is ``unknown``."""
    verify: Verifying = Verifying()
    """How answers are judged, and verifiers of one's own."""
    out: str = Field(min_length=1)
    """Folder of the run, which must not be there or be empty."""


def import_config(values: dict[str, Any]) -> ImportConfig:
    """The configuration from dotted keys and their values.

    Raises:
        ConfigError: An unknown key or a bad value.
    """
    tree: dict[str, Any] = {}
    for dotted, value in values.items():
        assign(tree, dotted, value)
    return parse(ImportConfig, tree, "", "Correct the value on the command line.")
