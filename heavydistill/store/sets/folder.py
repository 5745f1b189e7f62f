"""The folder of sets: parquet files that ``datasets`` and the Hub read.

    DIR/NAME/SPLIT-00000-of-00001.parquet    NAME and SPLIT as in ``set_rows``; views have ``train``
    DIR/manifest.json                        see ``Manifest``
    DIR/chat_template.jinja                  chat template, if it is not the student's own

Row groups are small, so that a single row can be read quickly. Equal rows give equal bytes.
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
    """The file of a split of a set; a split without rows has no file."""
    return folder / name / f"{split}-00000-of-00001.parquet"


def splits_of(folder: Path, name: str) -> list[str]:
    """The existing splits of a set, train first."""
    return [split for split in ("train", "validation") if file_of(folder, name, split).is_file()]


def files_of(folder: Path) -> dict[str, Path]:
    """The files of all sets and the chat template by path in the folder.

    ``manifest.json`` and the card are left out.
    """
    rows = [file_of(folder, name, split) for name in SETS for split in splits_of(folder, name)]
    template = folder / CHAT_TEMPLATE
    there = [*rows, template] if template.is_file() else rows
    return {path.relative_to(folder).as_posix(): path for path in there}


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of each of ``files_of``."""
    found = {}
    for name, path in files_of(folder).items():
        with path.open("rb") as file:
            found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def read_rows(
    folder: Path, name: str, split: str = "train", columns: list[str] | None = None
) -> Iterator[dict[str, Any]]:
    """The rows of a split, one row group in memory at a time; none if the split has no file.

    ``columns`` are dotted names of the columns to read; None reads all.

    Raises:
        ConfigError: The folder holds no sets, or the file cannot be read. A damaged row raises it
            when it is read.
    """
    if not (folder / MANIFEST).is_file():
        raise ConfigError(
            f"{folder} holds no sets: it has no {MANIFEST}",
            "Give the folder that `heavydistill build --out FOLDER` wrote.",
        )
    path = file_of(folder, name, split)
    return rows_in(path, columns, "Build it again.") if path.is_file() else iter(())


class StudentUsed(Section):
    """Student that the rows are made for."""

    name: str  # name of the student
    form: str  # place of the thinking, ``field`` or ``inline``; see ``chat.student``
    template_sha256: str  # hash of the chat template
    opens_thinking: bool = False  # whether a prompt ends with an open think tag
    mended: list[str] = Field(default_factory=list)  # corrections of the chat template
    max_tokens: int  # maximum number of tokens of a row


class RunUsed(Section):
    """Run that sets are built from."""

    name: str  # name of the run
    traces: int  # number of traces
    config: dict[str, Any]
    """Configuration without folders and addresses; empty for an imported pool."""
    summary: dict[str, Any]  # its ``summary.json``; empty if it has none


class Strata(Section):
    """Numbers of candidate sets of a stratum: all, those excluded, and those used."""

    sets: int  # sets of all problems that are not left out
    with_deliberation: int  # sets with a deliberation that passed every filter
    not_admitted: int  # sets that the preset does not admit
    over_bound: int  # sets beyond the number that the mixture uses
    sft: int  # sets with rows in ``sft_deliberator``
    rl: int  # sets with a row in ``rl``


class Attention(Section):
    """Numbers of deliberations, and of attempts as a control, that refer to other attempts."""

    deliberations: int  # number of finished, correct deliberations
    using: int  # deliberations that work with the attempts
    blind: int  # number of correct attempts, which saw no others: the control
    blind_using: int  # attempts in which the same signs were found


class Fraction(Section):
    """A part of a whole."""

    part: int  # size of the part
    whole: int  # size of the whole


class BenchmarkUsed(Section):
    """Benchmark that problems were compared with."""

    name: str  # name of the benchmark
    texts_sha256: str  # hash of its hashes
    hits: dict[str, int]  # number of problems that occur in it, by the kind of match


class RedeliberationSummary(Section):
    """Deliberations that ``redeliberate`` asked for."""

    model: str  # model that deliberated
    sets: int  # number of candidate sets
    deliberations: int  # number of deliberations
    failed: int  # deliberations that failed
    prompt_tokens: int  # prompt tokens of all
    completion_tokens: int  # completion tokens of all
    cost_usd: float | None  # cost in US dollars; null without a price
    sampling: dict[str, Any] = Field(default_factory=dict)  # sampling parameters


class RefilterSummary(Section):
    """Success of a checkpoint on the prompts of RL."""

    checkpoint: str  # name of the checkpoint
    revision: str  # revision of its weights; empty if they are served
    d: int  # deliberations per cache
    seed: int  # seed of the deliberations
    caches: int  # number of caches, the sum of the next four
    kept: int  # caches that it gets right sometimes: the rows of ``rl``
    always_right: int  # caches that it always gets right
    never_right: int  # caches that it never gets right
    unmeasured: int  # caches with too few deliberations that could be judged
    deliberations: int  # number of all deliberations, those of the next three included
    failed: int  # deliberations that failed
    cut_off: int  # deliberations that were cut off
    undecided: int  # finished deliberations without a verdict


class Manifest(Section):
    """Content of ``manifest.json``."""

    format: str = FORMAT  # version of this file
    heavydistill: str  # version that built the sets
    build: dict[str, Any]  # configuration of the build, without folders and addresses
    student: StudentUsed  # student that the rows are made for
    runs: list[RunUsed]  # runs that the sets are built from
    rows: dict[str, dict[str, int]]  # number of rows of each set, by split
    problems: dict[str, int]  # number of problems by label, ``used`` for those without
    trajectories: dict[str, int]  # number of trajectories by label, ``used`` for those without
    deliberations: dict[str, int]  # number of deliberations by label, ``used`` for those without
    strata: dict[str, Strata]  # number of candidate sets, by stratum
    undeliberated: int  # sets that the mixture would use if they had a usable deliberation
    unfit: int = 0  # drawn sets that do not fit the student's context
    unmeasured: int = 0  # caches with too few judged deliberations for RL
    attention: Attention  # share of deliberations that work with the attempts
    student_written: Fraction  # sets that consist of the student's own attempts, of all used sets
    retention: Fraction  # plain problems among the rows of ``sft_deliberator``
    recut: int  # prompts that were cut again to fit the student
    models: dict[str, list[str]]  # models that wrote the rows of the views, used or not, by role
    prompts: list[str]  # versions of the wordings
    verifiers: list[str]  # names and versions of the verifiers
    tokens: dict[str, dict[str, int]]  # quantiles of the tokens of a row, by set
    benchmarks: list[BenchmarkUsed]  # benchmarks that problems were compared with
    guarded: dict[str, int] = Field(default_factory=dict)
    """Rows that the guard found complete, by set."""
    asked: list[RedeliberationSummary] = Field(default_factory=list)
    """Deliberations that the build asked for, by run."""
    files: dict[str, str] = Field(default_factory=dict)  # SHA-256 of each file, by path
    refiltered: RefilterSummary | None = None  # result of ``refilter``, if it made ``rl``


def write_manifest(manifest: Manifest, folder: Path) -> None:
    """Write the manifest into a folder that has all other files."""
    write_versioned(manifest.model_copy(update={"files": hashes(folder)}), folder / MANIFEST)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder of sets.

    Raises:
        ConfigError: The folder holds no sets, or sets of another version.
    """
    return read_versioned(
        folder / MANIFEST,
        Manifest,
        FORMAT,
        what="sets",
        missing="Give the folder that `heavydistill build --out FOLDER` wrote.",
        other="Build the sets again.",
    )
