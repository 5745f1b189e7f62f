"""Public benchmarks by name, each a YAML file in ``configs/benchmarks``.

A file gives the source of the problems, the columns of the fields, the verifier, and the paper's
numbers of attempts and deliberations. It is a preset: the user's configuration and flags take
precedence over each of its keys, so that ``--problems FILE`` reads a file of the same layout in
place of the Hub's dataset.

Not covered: a user's own benchmarks, which are ordinary configurations; prompts of other harnesses.
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
    """Content of a file in ``configs/benchmarks``; facts without a source are omitted."""

    name: str = Field(min_length=1)  # name of the file and of the benchmark for ``--benchmark``
    title: str = Field(min_length=1)  # full name
    size: int | None = Field(default=None, ge=1)  # number of problems
    problems: Problems
    settings: dict[str, Any] = Field(default_factory=dict)
    """Further configuration keys for a run: the paper's settings for this benchmark (arXiv
    2605.02396, section 3.1, tables 1 and 2), or its general settings if the paper did not use this
    benchmark."""
    gated: bool = False
    """Whether a download from the Hub needs accepted terms and a token."""
    licence: str = ""  # licence of the dataset: SPDX id or name
    citation: str = ""  # authors and paper
    source: str = Field(min_length=1)  # source of Hub id, split, columns and licence
    notes: str = ""  # differences from other evaluations of the benchmark

    @property
    def preset(self) -> dict[str, Any]:
        """The configuration keys that the benchmark sets, as in a configuration file."""
        return {"problems": self.problems.model_dump(exclude_unset=True), **self.settings}

    @property
    def verifier(self) -> str:
        """Name of the verifier of the benchmark's rows."""
        has_options = "options" in self.problems.columns or self.problems.shape == "gpqa"
        return OPTIONS_VERIFIER if has_options else self.problems.verifier or DEFAULT_VERIFIER


def preset_of(names: str) -> dict[str, Any]:
    """The configuration keys of a benchmark, or of several, whose names are separated by commas.

    Raises ConfigError if there is no such benchmark, or one is named twice.
    """
    chosen = [benchmark(name.strip()) for name in names.split(",")]
    listed = [each.name for each in chosen]
    if len(listed) == 1:
        return chosen[0].preset
    if len({*listed}) < len(listed):
        raise ConfigError(f"--benchmark {names} names one twice", "Name each once.")
    unfit = {"unfit": "leave_out"} if any(b.problems.unfit == "leave_out" for b in chosen) else {}
    # All files have the paper's settings.
    problems = {"source": f"benchmark:{','.join(listed)}", **unfit}
    return {"problems": problems, **chosen[0].settings}


def benchmark(name: str) -> Benchmark:
    """The benchmark with this name. Raises ConfigError with the list of names if there is none."""
    files = shipped("configs/benchmarks")
    if name not in files:
        listed = choices(name.lower(), files, "Benchmarks")
        raise ConfigError(
            f"There is no benchmark {name!r}", f"{listed} Any other dataset is read by --problems."
        )
    return parse(Benchmark, read_yaml(files[name]), files[name])
