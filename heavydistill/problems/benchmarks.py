"""Public benchmarks by name, each a YAML file in ``configs/benchmarks``.

A file gives the source of the problems, the columns of the fields, the verifier, and the paper's
numbers of attempts and deliberations. It is a preset: the user's configuration and flags take
precedence over each of its keys, so that ``--problems FILE`` reads a file of the same layout in
place of the Hub's dataset.

Not covered: own benchmarks, which are ordinary configurations; prompts of other harnesses.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from heavydistill.config.run import Problems
from heavydistill.config.shipped import shipped
from heavydistill.config.yaml import Section, parse, read_yaml
from heavydistill.errors import ConfigError
from heavydistill.problems.columns import DEFAULT_VERIFIER, OPTIONS_VERIFIER
from heavydistill.problems.tables import choices


class Benchmark(Section):
    """Content of a file in ``configs/benchmarks``, without facts that no source states."""

    name: str = Field(min_length=1)  # of its file, and what ``--benchmark`` calls it
    title: str = Field(min_length=1)  # full name
    size: int | None = Field(None, ge=1)  # number of problems
    problems: Problems
    settings: dict[str, Any] = Field(default_factory=dict)
    """Further keys of a run: the paper's for this benchmark (arXiv 2605.02396, section 3.1, tables
    1 and 2), or those it has for all, if it did not measure this one."""
    gated: bool = False
    """Whether a download from the Hub needs accepted terms and a token."""
    licence: str = ""  # of the dataset: SPDX id, or the name it has
    citation: str = ""  # who made it, and the paper
    source: str = Field(min_length=1)  # where Hub id, split, columns and licence stand
    notes: str = ""  # what differs from how others measure it

    @property
    def preset(self) -> dict[str, Any]:
        """The keys of a run that the benchmark sets, as in a configuration file."""
        return {"problems": self.problems.model_dump(exclude_unset=True), **self.settings}

    @property
    def verifier(self) -> str:
        """Name of the verifier of its rows."""
        has_options = "options" in self.problems.columns or self.problems.shape == "gpqa"
        return OPTIONS_VERIFIER if has_options else self.problems.verifier or DEFAULT_VERIFIER


def benchmark(name: str) -> Benchmark:
    """The benchmark of that name. Raises ConfigError if there is none, with a list."""
    files = shipped("configs/benchmarks")
    if name not in files:
        listed = choices(name.lower(), files, "Benchmarks")
        raise ConfigError(
            f"There is no benchmark {name!r}", f"{listed} Any other dataset is read by --problems."
        )
    return parse(Benchmark, read_yaml(files[name]), files[name])
