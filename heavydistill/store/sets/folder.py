"""The folder of training sets: parquet files that ``datasets`` and the Hub can read.

    DIR/NAME/SPLIT-00000-of-00001.parquet    NAME and SPLIT as in ``set_rows``; views have ``train``
    DIR/manifest.json                        see ``Manifest``
    DIR/chat_template.jinja                  chat template, if it is not the student's own

Row groups are small, so that a single row can be read quickly. Equal rows give equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from heavydistill.config.files import sha256_of
from heavydistill.config.versioned import read_versioned, write_versioned
from heavydistill.config.yaml import Section
from heavydistill.errors import ConfigError
from heavydistill.store.traces import MANIFEST as MANIFEST
from heavydistill.store.traces import TRACES_FOLDER, rows_in
from heavydistill.store.traces import Writer as Writer
from heavydistill.store.traces import count_rows as count_rows

VIEWS = ("problems", "trajectories", "caches", "deliberations")
TRAINED = ("sft_deliberator", "sft_thinker", "rl")
FURTHER = {
    "preferences": ("preferences_deliberator", "preferences_thinker"),
    "unpaired": ("unpaired_deliberator", "unpaired_thinker"),
    "critiques": ("critiques",),
}
"""The sets that each word of ``also`` adds."""
SETS = (*VIEWS, *TRAINED, *(name for names in FURTHER.values() for name in names))
CHAT_TEMPLATE = "chat_template.jinja"
FORMAT = "heavydistill-sets/1"


def file_of(folder: Path, name: str, split: str) -> Path:
    """Path of the file of one split of a set; a split without rows has no file."""
    return folder / name / f"{split}-00000-of-00001.parquet"


def splits_of(folder: Path, name: str) -> list[str]:
    """The existing splits of a set; ``train`` is first."""
    return [split for split in ("train", "validation") if file_of(folder, name, split).is_file()]


def files_of(folder: Path) -> dict[str, Path]:
    """The files of all sets and the chat template, by relative path.

    ``manifest.json`` and the card are left out.
    """
    rows = [file_of(folder, name, split) for name in SETS for split in splits_of(folder, name)]
    template = folder / CHAT_TEMPLATE
    files = [*rows, template] if template.is_file() else rows
    return {path.relative_to(folder).as_posix(): path for path in files}


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of each file in ``files_of``, by relative path."""
    return {name: sha256_of(path) for name, path in files_of(folder).items()}


def read_rows(
    folder: Path, name: str, split: str = "train", columns: list[str] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a split, one row group in memory at a time; no rows if there is no file.

    ``columns`` are dotted names of the columns to read; None reads all.

    Raises:
        ConfigError: The folder holds no sets, the file cannot be read, or (during iteration) a row
            is damaged.
    """
    if not (folder / MANIFEST).is_file():
        raise ConfigError(
            f"{folder} holds no sets: it has no {MANIFEST}",
            "Give the folder that `heavydistill build --out FOLDER` wrote.",
        )
    path = file_of(folder, name, split)
    return rows_in(path, columns, "Build it again.") if path.is_file() else iter(())


class StudentUsed(Section):
    """The student model that the rows are made for."""

    name: str  # name of the student
    form: str  # where the template puts the thinking: ``field`` or ``inline``; see ``chat.student``
    template_sha256: str  # hash of the chat template
    opens_thinking: bool = False  # whether a prompt ends with an open think tag
    mended: list[str] = Field(default_factory=list)  # corrections of the chat template
    max_tokens: int  # maximum number of tokens of a row


class RunUsed(Section):
    """A run that sets are built from."""

    name: str  # name of the run
    traces: int  # number of traces
    config: dict[str, Any]
    """Configuration without folders and addresses; empty for imported trajectories."""
    summary: dict[str, Any]  # its ``summary.json``; empty if it has none


class Strata(Section):
    """Numbers of candidate sets in a stratum: all, excluded and used ones."""

    sets: int  # sets of all problems that are used
    with_deliberation: int  # sets with a deliberation that passed every filter
    not_admitted: int  # sets that the preset excludes
    over_bound: int  # sets in excess of the number that the mixture uses
    false_claims: int = 0  # deliberations left out because of false claims
    sft: int  # sets with rows in ``sft_deliberator``
    rl: int  # sets with a row in ``rl``


class Attention(Section):
    """What deliberations make of the attempts; attempts are tested too, as a control."""

    deliberations: int  # number of finished, correct deliberations
    using: int  # deliberations that refer to the attempts
    false_claims: int = 0  # deliberations with a false claim about an attempt
    leaks_attempts: int | None = None
    """Deliberations whose answer speaks of the attempts; null if a version did not count them."""
    leaks_without_thinking: int = 0  # those of them that have no thinking
    blind: int  # number of correct attempts, written without other attempts: the control
    blind_using: int  # correct attempts in which the same signs were found


class Fraction(Section):
    """A part and the whole, as numbers."""

    part: int  # size of the part
    whole: int  # size of the whole


class PairCounts(Section):
    """Pairs of ``preferences_ROLE``, plain problems of the deliberator not counted again."""

    wrong: int = 0  # pairs whose rejected response is wrong
    false_claim: int = 0  # pairs whose rejected deliberation is right, with a false claim
    alone: int = 0  # right responses that have no rejected one of the same prompt left
    unfit: int = 0  # rejected responses that cannot be rendered or do not fit the student
    length_ratio: float | None = None
    """Median of the tokens of a chosen response for each token of the rejected one."""


class BenchmarkUsed(Section):
    """A benchmark with which problems were compared."""

    name: str  # name of the benchmark
    texts_sha256: str  # hash of the benchmark's text hashes
    hits: dict[str, int]  # number of problems found in the benchmark, by kind of match


class RedeliberationSummary(Section):
    """Deliberations requested by ``redeliberate``."""

    model: str  # model that deliberated
    sets: int  # number of candidate sets
    deliberations: int  # number of deliberations
    failed: int  # deliberations that failed
    prompt_tokens: int  # prompt tokens of all deliberations
    completion_tokens: int  # completion tokens of all deliberations
    cost_usd: float | None  # cost in US dollars; null if the price is unknown
    sampling: dict[str, Any] = Field(default_factory=dict)  # sampling parameters


class RefilterSummary(Section):
    """How often a checkpoint solves the prompts for RL."""

    checkpoint: str  # name of the checkpoint
    revision: str  # revision of the weights; empty for a served model
    d: int  # deliberations per cache
    seed: int  # seed of the deliberations
    caches: int  # number of caches: the sum of the next four
    kept: int  # caches that it solves sometimes: the rows of ``rl``
    always_right: int  # caches that it always solves
    never_right: int  # caches that it never solves
    unmeasured: int  # caches with too few judged deliberations
    deliberations: int  # number of all deliberations, including the next three
    failed: int  # deliberations that failed
    cut_off: int  # deliberations that were cut off
    undecided: int  # finished deliberations without a verdict


class WordingUsed(Section):
    """The instructions around the attempts in a part of the rows."""

    prompts: list[str]  # versions of the prompt wordings
    rows: dict[str, int]  # number of rows, by set


class Manifest(Section):
    """Content of ``manifest.json``: how the sets were built, and counts."""

    format: str = FORMAT  # version of this file
    heavydistill: str  # version that built the sets
    build: dict[str, object]  # configuration of the build, without folders and addresses
    student: StudentUsed  # student that the rows are made for
    runs: list[RunUsed]  # runs that the sets are built from
    rows: dict[str, dict[str, int]]  # number of rows of each set, by split
    problems: dict[str, int]  # number of problems by label; ``used`` for unlabelled ones
    trajectories: dict[str, int]  # number of trajectories by label; ``used`` for unlabelled ones
    deliberations: dict[str, int]  # number of deliberations by label; ``used`` for unlabelled ones
    strata: dict[str, Strata]  # number of candidate sets, by stratum
    undeliberated: int  # sets left out only because they have no usable deliberation
    unfit: int = 0  # drawn sets that do not fit the student's context
    unmeasured: int = 0  # caches with too few judged deliberations for RL
    attention: Attention  # what deliberations make of the attempts
    pairs: dict[str, PairCounts] = Field(default_factory=dict)
    """Counts of the pairs of preferences, by role; empty without them."""
    student_written: Fraction  # share of the used sets that consist of the student's own attempts
    retention: Fraction  # share of plain problems in the rows of ``sft_deliberator``
    recut: int  # prompts that were pruned again to fit the student
    models: dict[str, list[str]]  # models that wrote rows of the views, by role
    sources: list[str] = Field(default_factory=list)  # see ``Problem.origin``
    prompts: list[str]  # versions of the prompt wordings that the student is asked with
    wordings: dict[str, WordingUsed] = Field(default_factory=dict)
    """Rows by wording: full (in ``prompts``), short and none; empty without ``wordings``."""
    verifiers: list[str]  # names and versions of the verifiers
    tokens: dict[str, dict[str, int]]  # quantiles of the tokens per row, by set
    benchmarks: list[BenchmarkUsed]  # benchmarks with which problems were compared
    guarded: dict[str, int] = Field(default_factory=dict)
    """Number of rows that the guard (see ``curate``) confirmed as complete, by set."""
    asked: list[RedeliberationSummary] = Field(default_factory=list)
    """Deliberations that the build requested, by run."""
    files: dict[str, str] = Field(default_factory=dict)  # SHA-256 of each file, by path
    refiltered: RefilterSummary | None = None  # result of ``refilter``, if it wrote ``rl``


def write_manifest(manifest: Manifest, folder: Path) -> None:
    """Write the manifest to a folder that already holds all other files."""
    write_versioned(manifest.model_copy(update={"files": hashes(folder)}), folder / MANIFEST)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder of sets.

    Raises:
        ConfigError: The folder holds no sets, or sets of another version.
    """
    missing = "Give the folder that `heavydistill build --out FOLDER` wrote."
    if not (folder / MANIFEST).exists() and (folder / TRACES_FOLDER).is_dir():
        missing = f"It is a run: `heavydistill build {folder}` makes sets of it."
    return read_versioned(
        folder / MANIFEST,
        Manifest,
        FORMAT,
        what="sets",
        missing=missing,
        other="Build the sets again.",
    )
