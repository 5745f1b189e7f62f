"""What a training takes, beside what TRL takes: the sets, the role, and what happens around it.

The command line is TRL's: one YAML with ``--config``, over which flags win. Here every key is
strict. A key that no field has, in the file or as a flag, is an error that names the nearest one,
and flags are not abbreviated.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heavydistill.errors import ConfigError
from heavydistill.sections import read_yaml

if TYPE_CHECKING:
    from trl import ModelConfig, SFTConfig

ROLES = ("thinker", "deliberator")
_FIX = "`python scripts/sft.py --help` lists all keys."


@dataclass(frozen=True)
class Source:
    """Rows of one role from one folder of sets.

    Attributes:
        path: A folder that ``heavydistill build`` wrote, or its id on the Hub.
        role: ``thinker`` or ``deliberator``.
        fraction: Share of the mixture, as in TRL: shares add up to one, and no row is repeated.
            None takes all rows; then all sources take all of theirs.
        revision: Branch, tag or commit on the Hub.
    """

    path: str
    role: str
    fraction: float | None = None
    revision: str | None = None


@dataclass
class SetArguments:
    """What is learnt, and what is done around it."""

    dataset_name: str | None = field(
        default=None,
        metadata={"help": "Folder of sets from `heavydistill build`, or its id on the Hub."},
    )
    role: str | None = field(
        default=None,
        metadata={
            "help": "Whose rows of it are learnt.",
            "choices": [*ROLES, "both"],
        },
    )
    datasets: list[dict] = field(  # type: ignore[type-arg]
        default_factory=list,
        metadata={
            "help": "Instead of both, in the file: a list of sources with `path`, `role` and, if "
            "wanted, `fraction` and `revision`."
        },
    )
    too_long: str = field(
        default="refuse",
        metadata={
            "help": "Rows of more than max_length tokens: `refuse` to train, or `leave_out` and "
            "count them. They are never cut. Without max_length it is the longest row's length, "
            "or with `leave_out` that of the 99th of 100.",
            "choices": ["refuse", "leave_out"],
        },
    )
    evaluate: str | None = field(
        default=None,
        metadata={
            "help": "Configuration of a run (as of `heavydistill evaluate --config`) in which the "
            "model is measured before and after."
        },
    )
    dry_run: bool = field(
        default=False,
        metadata={"help": "Read and check everything but the weights, say what would be trained."},
    )
