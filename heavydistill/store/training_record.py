"""The record of a training: ``training.json`` in the folder of the model.

The record is written when the training begins, without a ``result``, and again at the end. The
model card is generated from it. When a training continues from a checkpoint, its settings must
match the record.

The record holds no paths, addresses or tokens: models and sets are identified by folder name or Hub
id.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from heavydistill.config.versioned import read_versioned, write_versioned
from heavydistill.config.yaml import Section
from heavydistill.metrics.counts import Judging
from heavydistill.store.sets.folder import Manifest

FORMAT = "heavydistill-training/1"
RECORD = "training.json"
LEARNT = "completions/learnt_tokens"
"""Metric of a distillation: tokens that a step learns from; missing in steps without any."""
NONE_LOSES_AT_MOST = "eval_none_loses_at_most"
"""Metric by which a schedule of phases steps down (``scripts/phases.py``)."""
EVALUATION = "evaluation"
"""Subfolder with the evaluation before and after the training, ``evaluation.json``."""


class BaseModelUsed(Section):
    """The model that was trained."""

    name: str  # name of the model
    revision: str  # commit on the Hub, or a digest of the files; empty for a served teacher
    template_sha256: str  # hash of the chat template used for training
    architecture: str = ""
    """Class of transformers that loads a vision-language model, of which the text tower was
    trained; empty for a model of text."""
    training: TrainingRecord | None = None  # record of an earlier training, if there is one


class SetsUsed(Section):
    """The rows of one set that were used for training."""

    name: str  # name of the sets
    revision: str = ""  # commit on the Hub; empty for a folder
    role: Literal["thinker", "deliberator"]  # role whose rows were used
    fraction: float | None = None  # share of the mixture; null if all rows were used
    rows: dict[str, int]  # number of rows by split; ``validation`` is not trained on
    left_out: dict[str, int]  # rows left out by split: too long for SFT, or as ``rl`` says
    manifest: Manifest  # manifest of the sets


class RlUsed(Section):
    """Facts about a GRPO training or a distillation that are not in ``arguments``."""

    mode: Literal["deliberator", "joint", "thinker"]
    """Trained role: the deliberator on caches of sets, the thinker, or (``joint``) both, on caches
    of attempts sampled during training."""
    objective: str = ""
    """Preset or loss that was trained with, and the keys given beside it; or the divergence."""
    rows_of_episode: int = 1  # responses per episode: K + 1 in mode ``joint``
    longest_prompt: int  # tokens of the longest prompt
    response_tokens: int | None = None  # maximum number of tokens of a response; null if unknown
    left_out: dict[str, int] = Field(default_factory=dict)  # prompts that were left out, by reason
    problems_sha256: str  # hash of the problems and their references, in order
    judge: str | None = None
    """Judge of undecided responses, as MODEL@HASH of its prompt; null without a judge."""
    teacher: BaseModelUsed | None = None
    """Model whose distribution was learnt in a distillation; null in GRPO."""
    run: dict[str, Any] | None = None
    """Configuration of the run that the problems come from, without folders and addresses; null if
    the prompts are caches of sets."""


class Launch(Section):
    """Processes and devices of a training."""

    processes: int  # number of processes
    engine: str  # ``single``, ``ddp``, ``zero1``, ``zero2``, ``zero3`` or ``fsdp2``
    device: str  # ``cpu``, or the name of the GPU
    attention: str  # implementation of attention


class Alarm(Section):
    """A guard that fired during a training."""

    guard: Literal[
        "entropy",
        "length",
        "all_right",
        "evaluation",
        "reading",
        "all_wrong",
        "cut_off",
        "undecided",
        "loss",
    ]  # name of the guard
    step: int  # step at which it fired
    value: float  # smoothed value; values of an evaluation are not smoothed
    bound: float
    """Limit of the value: the lower one, or for shares of groups and responses the upper one."""
    action: Literal["warn", "stop", "roll_back"]  # action that was taken
    reasons: dict[str, float] = Field(default_factory=dict)
    """For ``undecided``: share of the responses with one answer that is undecided, by reason."""
    rolled_back_to: int | None = None  # step of the checkpoint that was restored as the model


class Ends(Section):
    """A logged value at the beginning and at the end of a training."""

    first: float  # mean over the first tenth of the steps
    last: float  # mean over the last tenth of the steps


class Result(Section):
    """Results of a training."""

    steps: int  # number of optimizer steps
    epochs: float  # number of epochs
    train_loss: float | None  # mean loss of the steps since the last start, if there are any
    eval_loss: dict[str, float] = Field(default_factory=dict)  # last validation loss, by role
    rollouts: dict[str, Ends] = Field(default_factory=dict)
    """Values at both ends of each metric that was logged for sampled responses, over all starts up
    to the checkpoint that became the model."""
    judging: Judging | None = None
    """Undecided responses about which a judge was asked since the last start, held-out ones
    included, and its votes; null without a judge."""
    tokens: int  # tokens trained on since the last start, in all processes, including prompts
    seconds: float  # seconds from the first step of the last start to the end
    peak_memory_gib: float | None  # peak memory of one GPU; null on a CPU
    alarms: list[Alarm] = Field(default_factory=list)  # guards that fired, in order of steps

    @property
    def is_unlearnt(self) -> bool:
        """Whether no response earned a reward, or in a distillation none was learnt from."""
        learnt_from = {name for name in self.rollouts if not name.startswith("eval_")}
        return bool(learnt_from) and not learnt_from & {"reward", LEARNT}


class TrainingRecord(Section):
    """Content of ``training.json``."""

    format: str = FORMAT  # version of this file
    heavydistill: str  # version that trained the model
    versions: dict[str, str]  # versions of trl, transformers, peft, accelerate, torch and others
    stage: Literal["sft", "grpo", "distill"] = "sft"  # kind of training
    role: Literal["thinker", "deliberator", "both"]  # role that was trained
    method: Literal["full", "lora", "rslora", "dora", "qlora"]
    """What was trained: all weights, or an adapter of this kind."""
    base: BaseModelUsed  # model that was trained
    sets: list[SetsUsed]  # sets used for training
    max_length: int  # maximum number of tokens of a row or pack; for GRPO, of prompt and response
    sequences: int  # sequences per epoch: packs, or rows without packing; prompts for GRPO
    tokens: int  # tokens per epoch, including prompts; for GRPO only prompt tokens, each once
    learnt_tokens: int  # tokens with a loss per epoch; 0 for GRPO, which learns from its samples
    arguments: dict[str, object]
    """Training arguments that differ from TRL's defaults, without folders and tokens."""
    launch: Launch  # processes and device
    rl: RlUsed | None = None  # additional facts for GRPO and distillation
    result: Result | None = None  # result; null until the training ends

    @property
    def roles(self) -> tuple[str, ...]:
        return ("thinker", "deliberator") if self.role == "both" else (self.role,)


def write_record(record: TrainingRecord, folder: Path) -> None:
    """Write the record to a folder, atomically."""
    write_versioned(record, folder / RECORD)


def read_record(folder: Path) -> TrainingRecord:
    """Read the record in a folder.

    Raises:
        ConfigError: There is no record, or a record of another version.
    """
    return read_versioned(
        folder / RECORD,
        TrainingRecord,
        FORMAT,
        what="training",
        missing="Give the output folder of `heavydistill sft`, `grpo` or `distill`.",
        other="Train again.",
    )
