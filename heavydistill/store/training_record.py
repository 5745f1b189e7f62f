"""The record of a training: ``training.json`` in the folder of the model.

It is written when a training begins, without a ``result``, and again at the end. The card is made
from it, and a training that continues from a checkpoint is compared with it.

It holds no paths, addresses or tokens: models and sets have the name of their folder or their Hub
id.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from heavydistill.config.versioned import read_versioned, write_versioned
from heavydistill.config.yaml import Section
from heavydistill.store.sets.folder import Manifest

FORMAT = "heavydistill-training/1"
RECORD = "training.json"
EVALUATION = "evaluation"
"""Folder beside the record with the evaluation before and after, ``evaluation.json``."""


class BaseModelUsed(Section):
    """Model that was trained."""

    name: str  # name of the model
    revision: str  # commit on the Hub, or a digest of its files
    template_sha256: str  # hash of the chat template of the training
    training: TrainingRecord | None = None  # record of its own training, if its folder has one


class SetsUsed(Section):
    """Rows of one set that were learnt."""

    name: str  # name of the sets
    revision: str = ""  # commit on the Hub; empty for a folder
    role: Literal["thinker", "deliberator"]  # role whose rows are learnt
    fraction: float | None = None  # share of the mixture; null uses all rows
    rows: dict[str, int]  # number of rows by split; those of ``validation`` are not learnt
    left_out: dict[str, int]  # rows left out by split: too long for SFT, or as ``rl`` says
    manifest: Manifest  # manifest of the sets


class RlUsed(Section):
    """Facts about a GRPO training that are not in ``arguments``."""

    mode: Literal["deliberator", "joint", "thinker"]
    """Trained role: the deliberator on caches of sets, the thinker, or (``joint``) both, on caches
    of the attempts that the training samples."""
    rows_of_episode: int = 1  # responses of an episode: K + 1 in mode ``joint``
    longest_prompt: int  # tokens of the longest prompt
    response_tokens: int | None = None  # maximum number of tokens of a response; null if unknown
    left_out: dict[str, int] = Field(default_factory=dict)  # prompts that were left out, by reason
    problems_sha256: str  # hash of the problems and their references, in order
    run: dict[str, Any] | None = None
    """Configuration of the run that the problems come from, without folders and addresses; null if
    prompts are caches of sets."""


class Launch(Section):
    """Processes and devices of a training."""

    processes: int  # number of processes
    engine: str  # ``single``, ``ddp``, ``zero1``, ``zero2``, ``zero3`` or ``fsdp2``
    device: str  # ``cpu``, or the name of the GPU
    attention: str  # implementation of attention


class Alarm(Section):
    """Guard that fired during GRPO."""

    guard: Literal["entropy", "length", "all_right", "evaluation", "cut_off"]  # name of the guard
    step: int  # step at which it fired
    value: float  # smoothed value; that of an evaluation is not smoothed
    bound: float  # lower limit of the value; for ``all_right`` and ``cut_off`` upper limit
    action: Literal["warn", "stop", "roll_back"]  # consequence
    rolled_back_to: int | None = None  # step of the checkpoint that became the model


class Ends(Section):
    """Logged value at the beginning and at the end of a training."""

    first: float  # mean of the first tenth
    last: float  # mean of the last tenth


class Result(Section):
    """Result of a training."""

    steps: int  # number of optimizer steps
    epochs: float  # number of epochs
    train_loss: float | None  # mean loss of the steps since the last start, if any
    eval_loss: dict[str, float] = Field(default_factory=dict)  # last validation loss, by role
    rollouts: dict[str, Ends] = Field(default_factory=dict)
    """Metrics that GRPO logged for sampled responses, by name, over all starts up to the checkpoint
    that became the model."""
    tokens: int  # tokens trained on since the last start, by all processes, prompts included
    seconds: float  # seconds from the first step of the last start to the end
    peak_memory_gib: float | None  # peak memory of one GPU; null on a CPU
    alarms: list[Alarm] = Field(default_factory=list)  # guards that fired, by step

    @property
    def is_unlearnt(self) -> bool:
        """Whether no response of a GRPO training earned a reward."""
        return bool(self.rollouts) and "reward" not in self.rollouts


class TrainingRecord(Section):
    """Content of ``training.json``."""

    format: str = FORMAT  # version of this file
    heavydistill: str  # version that trained the model
    versions: dict[str, str]  # versions of trl, transformers, peft, accelerate, torch and others
    stage: Literal["sft", "grpo"] = "sft"  # kind of training
    role: Literal["thinker", "deliberator", "both"]  # role that was learnt
    method: Literal["full", "lora", "rslora", "dora", "qlora"]
    """Weights that were trained: all of them, or an adapter of this kind."""
    base: BaseModelUsed  # model that was trained
    sets: list[SetsUsed]  # sets that were learnt
    max_length: int  # maximum number of tokens of a row or pack; for GRPO, of prompt and response
    sequences: int  # sequences of an epoch: packs, or rows without packing; for GRPO prompts
    tokens: int  # tokens of an epoch, prompts included; for GRPO those of the prompts, each once
    learnt_tokens: int  # learnt tokens of an epoch; 0 for GRPO, which learns what it samples
    arguments: dict[str, Any]
    """Arguments that differ from TRL's defaults, without folders and tokens."""
    launch: Launch  # processes and device
    rl: RlUsed | None = None  # further facts of GRPO
    result: Result | None = None  # result; null until the training has ended

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that were learnt."""
        return ("thinker", "deliberator") if self.role == "both" else (self.role,)


def write_record(record: TrainingRecord, folder: Path) -> None:
    """Write the record into a folder, atomically."""
    write_versioned(record, folder / RECORD)


def read_record(folder: Path) -> TrainingRecord:
    """The record of a folder.

    Raises:
        ConfigError: There is no record, or it has another version.
    """
    return read_versioned(
        folder / RECORD,
        TrainingRecord,
        FORMAT,
        what="training",
        missing="Give the output folder of `heavydistill sft` or `grpo`.",
        other="Train again.",
    )
