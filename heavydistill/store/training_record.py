"""The record of a training, ``training.json`` in the folder of the model: how it came about.

It is written when a training begins, without a ``result``, and again when it has ended. A card is
made from it, and a training that goes on from a checkpoint is compared with it.

Nothing in it is a path, an address or a token: models and sets stand under the name of their
folder, or their id on the Hub.
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
"""Folder of an evaluation before and after, beside it; ``evaluation.json`` is in it."""


class BaseModelUsed(Section):
    """What was trained."""

    name: str
    revision: str  # Its commit on the Hub, or a digest of its files
    template_sha256: str  # Of the chat template that it was trained with
    training: TrainingRecord | None = None  # how it came about, if its folder tells


class SetsUsed(Section):
    """What was learnt: rows of one set of one folder."""

    name: str
    revision: str = ""  # Its commit on the Hub; empty for a folder
    role: Literal["thinker", "deliberator"]
    fraction: float | None = None  # Its share of the mixture; None takes all its rows
    rows: dict[str, int]  # Learnt, by split (``train``; ``validation`` is only looked at)
    left_out: dict[str, int]  # by split: too long for SFT, or as ``rl`` says
    manifest: Manifest  # Of the folder


class RlUsed(Section):
    """What GRPO asked, beside what stands in ``arguments``."""

    mode: Literal["deliberator", "joint", "thinker"]
    """Whose answers were rewarded: a deliberator's to caches that were there, a thinker's, or a
    deliberator's to caches that its own attempts became, all of which were learnt."""
    rows_of_episode: int = 1  # K + 1 where thinkers and a deliberator are one
    longest_prompt: int  # Tokens of it
    response_tokens: int | None = None  # maximum; None if not known
    left_out: dict[str, int] = Field(default_factory=dict)  # prompts not asked, by reason
    problems_sha256: str  # Of the problems behind the prompts, with their references, in order
    run: dict[str, Any] | None = None
    """How problems were asked: the configuration of the run, without folders and addresses; None
    where prompts are caches of sets."""


class Launch(Section):
    """Where it ran."""

    processes: int
    engine: str  # ``single``, ``ddp``, ``zero1``, ``zero2``, ``zero3`` or ``fsdp2``
    device: str  # ``cpu``, or the name of the GPU
    attention: str  # Implementation of attention


class Alarm(Section):
    """A guard against collapse that fired in a training by reinforcement."""

    guard: Literal["entropy", "length", "all_right", "evaluation", "cut_off"]
    step: int
    value: float  # Smoothed, but for that of an evaluation
    bound: float  # What it was to stay above; for ``all_right`` and ``cut_off`` below
    action: Literal["warn", "stop", "roll_back"]
    rolled_back_to: int | None = None  # Step of the checkpoint that became the model


class Ends(Section):
    """A value of the logs at both ends of a training, each the mean of a tenth of its logs."""

    first: float
    last: float


class Result(Section):
    """What came out."""

    steps: int
    epochs: float
    train_loss: float | None  # mean of the steps since the last start, if any
    eval_loss: dict[str, float] = Field(default_factory=dict)  # the last one, by role
    rollouts: dict[str, Ends] = Field(default_factory=dict)
    """Metrics that GRPO logged for sampled responses, by name, over all starts up to the checkpoint
    that became the model."""
    tokens: int  # Trained on since the last start, by all processes, prompts among them
    seconds: float  # From the first step of the last start to the end
    peak_memory_gib: float | None  # Most memory of one GPU; None on a CPU
    alarms: list[Alarm] = Field(default_factory=list)  # by step

    @property
    def is_unlearnt(self) -> bool:
        """Whether it is of a GRPO training in which no response earned a reward."""
        return bool(self.rollouts) and "reward" not in self.rollouts


class TrainingRecord(Section):
    """All of it."""

    format: str = FORMAT
    heavydistill: str  # Version that trained it
    versions: dict[str, str]  # of trl, transformers, peft, accelerate, torch, and more
    stage: Literal["sft", "grpo"] = "sft"
    role: Literal["thinker", "deliberator", "both"]
    method: Literal["full", "lora", "rslora", "dora", "qlora"]
    base: BaseModelUsed
    sets: list[SetsUsed]
    max_length: int  # tokens of a row or pack; of GRPO, of a prompt and response
    sequences: int  # Of an epoch: packs, or rows where nothing is packed; of GRPO prompts
    tokens: int  # Of an epoch, prompts among them; of GRPO of the prompts, each once
    learnt_tokens: int  # Of these, those that are learnt; of GRPO 0, for it learns what it samples
    arguments: dict[str, Any]  # other than TRL's defaults, without folders, addresses and tokens
    launch: Launch
    rl: RlUsed | None = None  # Of GRPO
    result: Result | None = None  # None as long as it has not ended

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that were learnt."""
        return ("thinker", "deliberator") if self.role == "both" else (self.role,)


def write_record(record: TrainingRecord, folder: Path) -> None:
    """Write it into a folder, in one piece."""
    write_versioned(record, folder / RECORD)


def read_record(folder: Path) -> TrainingRecord:
    """The record of a folder.

    Raises:
        ConfigError: There is none, or it is of another version.
    """
    return read_versioned(
        folder / RECORD,
        TrainingRecord,
        FORMAT,
        what="training",
        missing="Give the output folder of scripts/sft.py or scripts/grpo.py.",
        other="Train again.",
    )
