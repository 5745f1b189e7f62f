"""Where sets lie on disk: a folder of parquet files for each, as ``datasets`` and the Hub read it.

    DIR/NAME/SPLIT-00000-of-00001.parquet    NAME and SPLIT as in ``set_rows``; views have ``train``
    DIR/manifest.json                        see ``manifest``
    DIR/chat_template.jinja                  the student's, if it is not its own

Row groups are small, so that one row can be looked at without reading many. The same rows give
the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from heavydistill.config.versioned import read_versioned, write_versioned
from heavydistill.config.yaml import Section
from heavydistill.errors import ConfigError
from heavydistill.store.traces import Writer as Writer
from heavydistill.store.traces import count_rows as count_rows
from heavydistill.store.traces import rows_in

VIEWS = ("problems", "trajectories", "caches", "deliberations")
TRAINED = ("sft_deliberator", "sft_thinker", "rl")
SETS = (*VIEWS, *TRAINED)
CHAT_TEMPLATE = "chat_template.jinja"
MANIFEST = "manifest.json"
FORMAT = "heavydistill-sets/1"


def file_of(folder: Path, name: str, split: str) -> Path:
    """The file of a split of a set; a split without rows has none."""
    return folder / name / f"{split}-00000-of-00001.parquet"


def splits_of(folder: Path, name: str) -> list[str]:
    """The splits of a set that are there, train first."""
    return [split for split in ("train", "validation") if file_of(folder, name, split).is_file()]


def files_of(folder: Path) -> dict[str, Path]:
    """The files of all sets, and the chat template if there is one, by their paths in the folder.

    ``manifest.json`` and the card are not among them.
    """
    rows = [file_of(folder, name, split) for name in SETS for split in splits_of(folder, name)]
    template = folder / CHAT_TEMPLATE
    there = [*rows, template] if template.is_file() else rows
    return {path.relative_to(folder).as_posix(): path for path in there}


def hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of each of these files."""
    found = {}
    for name, path in files_of(folder).items():
        with path.open("rb") as file:
            found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def read_rows(
    folder: Path, name: str, split: str = "train", columns: list[str] | None = None
) -> Iterator[dict[str, Any]]:
    """The rows of a split, a group in memory at a time; none if the split has no file.

    ``columns`` names those that are read, of a struct as ``verdict.label``; None reads all.

    Raises:
        ConfigError: The folder holds no sets, which is raised by this call; or the file cannot be
            read, or rows are damaged, which shows where they stand.
    """
    if not (folder / MANIFEST).is_file():
        raise ConfigError(
            f"{folder} holds no sets: it has no {MANIFEST}",
            "Give the folder that `heavydistill build --out FOLDER` wrote.",
        )
    path = file_of(folder, name, split)
    return rows_in(path, columns, "Build it again.") if path.is_file() else iter(())


class StudentUsed(Section):
    """For whom the rows are."""

    name: str
    form: str  # where thinking stands, ``field`` or ``inline``; see ``chat.student``
    template_sha256: str
    opens_thinking: bool = False  # whether a prompt ends with an open think tag
    mended: list[str] = Field(default_factory=list)  # changes of its chat template
    max_tokens: int  # maximum number of tokens of a row


class RunUsed(Section):
    """A run that was built from."""

    name: str
    traces: int
    config: dict[str, Any]  # without folders and addresses; empty for an imported pool
    summary: dict[str, Any]  # its ``summary.json``; empty if it has none


class Strata(Section):
    """The candidate sets of one stratum, from all there are to those that are used."""

    sets: int  # all sets of the problems that are not left out
    with_deliberation: int  # those with a deliberation that passed every filter
    not_admitted: int  # those that the preset does not admit
    over_bound: int  # those beyond what the mixture takes
    sft: int  # what is left: with rows in ``sft_deliberator``
    rl: int  # those with a row in ``rl``


class Attention(Section):
    """How many work with the attempts, by the same signs."""

    deliberations: int  # right and finished ones that were looked at
    using: int
    blind: int  # attempts that saw no other, as a control
    blind_using: int


class Fraction(Section):
    """A part of a whole."""

    part: int
    whole: int


class BenchmarkUsed(Section):
    """What problems were compared with."""

    name: str
    texts_sha256: str  # hash of its hashes
    hits: dict[str, int]  # problems by how they were found


class RedeliberationSummary(Section):
    """What ``redeliberate`` asked for."""

    model: str
    sets: int
    deliberations: int
    failed: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    sampling: dict[str, Any] = Field(default_factory=dict)  # How it was asked


class RefilterSummary(Section):
    """What a checkpoint made of the prompts of RL."""

    checkpoint: str
    revision: str  # Tells its weights from others of that name; empty if they are served
    d: int  # Deliberations a cache
    seed: int  # Of them
    caches: int  # That it was asked about; those of the next four are all of them
    kept: int  # Right sometimes and wrong sometimes: the rows of ``rl``
    always_right: int
    never_right: int
    unmeasured: int  # With too few deliberations that could be judged
    deliberations: int  # All of them, those of the next three among them
    failed: int
    cut_off: int
    undecided: int  # Finished, and neither right nor wrong for the verifier


class Manifest(Section):
    """All of it."""

    format: str = FORMAT
    heavydistill: str  # Version that built it
    build: dict[str, Any]  # The configuration of the build, without folders and addresses
    student: StudentUsed
    runs: list[RunUsed]
    rows: dict[str, dict[str, int]]  # Of each set, by split
    problems: dict[str, int]  # By label, ``used`` for those without
    trajectories: dict[str, int]  # By label, likewise
    deliberations: dict[str, int]  # By label, likewise
    strata: dict[str, Strata]
    undeliberated: int  # sets that the mixture would take if they had a deliberation to learn from
    unfit: int = 0  # drawn sets that the student's context does not hold
    unmeasured: int = 0  # caches on which too few deliberations were judged for RL
    attention: Attention
    student_written: Fraction  # sets of the student's own attempts, of those that are used
    retention: Fraction  # plain problems among the rows of ``sft_deliberator``
    recut: int  # Prompts that were cut again to fit the student
    models: dict[str, list[str]]  # authors of the rows of the views, used or not, by role
    prompts: list[str]  # Versions of the wordings
    verifiers: list[str]  # Names and versions behind the verdicts
    tokens: dict[str, dict[str, int]]  # quantiles of the tokens of the rows of each set
    benchmarks: list[BenchmarkUsed]
    guarded: dict[str, int] = Field(default_factory=dict)  # rows that the guard found whole, by set
    asked: list[RedeliberationSummary] = Field(default_factory=list)  # by run
    files: dict[str, str] = Field(default_factory=dict)  # SHA-256 by path; see ``write_manifest``
    refiltered: RefilterSummary | None = None  # if ``refilter`` made ``rl`` anew


def write_manifest(manifest: Manifest, folder: Path) -> None:
    """Write it into a folder that has all its other files."""
    write_versioned(manifest.model_copy(update={"files": hashes(folder)}), folder / MANIFEST)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder of sets.

    Raises:
        ConfigError: The folder holds no sets, or those of another version.
    """
    return read_versioned(
        folder / MANIFEST,
        Manifest,
        FORMAT,
        what="sets",
        missing="Give the folder that `heavydistill build --out FOLDER` wrote.",
        other="Build the sets again.",
    )
