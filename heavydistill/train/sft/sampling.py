"""Which held-out caches the evaluations of an SFT sample, if any.

They are those of the first source for a deliberator. An SFT samples them wherever it can, so that
what a model learns from right answers, to read the attempts or to do without them, is seen. It does
not where the sets have none, where no verifier here can judge the responses, or where the weights
are spread over processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from heavydistill.config.run import Verifying
from heavydistill.errors import ConfigError, UserError
from heavydistill.models.tokenizer import ReaderTokenizer
from heavydistill.report.grid import counted
from heavydistill.store.sets.folder import read_rows
from heavydistill.train.datasets import locate
from heavydistill.train.held_out import DELIBERATOR, GARBLED, Row, held_out
from heavydistill.train.rollouts.data import check_verifiers
from heavydistill.verifiers import registry

if TYPE_CHECKING:
    from heavydistill.store.training_record import Launch
    from heavydistill.train.base_model import BaseCheckpoint
    from heavydistill.train.sft.options import SftOptions

_USUAL = 32  # caches
_SPREAD = ("zero3", "fsdp")


@dataclass(frozen=True, slots=True)
class SampledCaches:
    """The held-out caches that are sampled at each evaluation."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    """Rows by role, as in ``HeldOut``; empty if nothing is sampled."""
    most_tokens: int = 0
    """Maximum number of tokens of a response: the longest one that the sets have for SFT."""
    text: str = ""  # How many there are, or why there are none; empty if nobody would expect any


def sampled_caches(
    config: SftOptions, base: BaseCheckpoint, launch: Launch, max_length: int
) -> SampledCaches:
    """Return the caches, or why there are none.

    Raises:
        ConfigError: ``held_out`` is given, and there are none.
    """
    if not config.samples:
        return SampledCaches()
    why = f"the launch spreads the weights or rows ({launch.engine})"
    if not (launch.engine.startswith(_SPREAD) or "share" in launch.engine):
        try:
            return _found(config, base, max_length)
        except UserError as error:
            why = error.what
    if config.held_out:
        raise ConfigError(
            f"held_out is {config.held_out}, but {why}",
            "Leave held_out out, or give sets with caches of validation problems that can be "
            "judged here, and a launch such as ddp or zero2.",
        )
    return SampledCaches(text=f"only losses, because {why}")


def _found(config: SftOptions, base: BaseCheckpoint, max_length: int) -> SampledCaches:
    source = next(each for each in config.sources if each.role == DELIBERATOR)
    names = [f"sft_{DELIBERATOR}", "problems", "caches", "trajectories"]
    sets = locate(source.path, names, source.revision)
    learnt_rows = read_rows(sets.folder, names[0], "train", ["completion_tokens"])
    most = min(max_length, max(row["completion_tokens"] for row in learnt_rows))
    folders = [locate(each.path, ["problems"], each.revision).folder for each in config.sources]
    learnt = {
        row["text"]
        for folder in dict.fromkeys(folders)
        for row in read_rows(folder, "problems", columns=["text", "split"])
        if row["split"] == "train"
    }
    found = held_out(
        sets.folder,
        config.held_out or _USUAL,
        None,
        learnt,
        lambda role, row: base.chat.prompt_tokens(row["prompt"]) + most <= base.context,
        ReaderTokenizer(base.path),
    )
    sampled = [row for of_role in found.roles.values() for row in of_role]
    if not sampled:
        raise ConfigError(
            f"{sets.name} has no cache of a validation problem that fits the model's context",
            "Build the sets with a smaller max_tokens.",
        )
    check_verifiers(sampled, Verifying(), sets.name)
    registry.require_judge({row["verifier"] for row in sampled}, sets.name)
    rows = {role: of_role for role, of_role in found.roles.items() if of_role}
    text = (
        f"{counted(len(found.roles[DELIBERATOR]), 'cache')}, {len(found.roles[GARBLED]):,} of them "
    )
    text += f"also garbled; a response of up to {most:,} tokens to each at an evaluation"
    return SampledCaches(rows, most, text)
