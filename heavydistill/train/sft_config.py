"""What SFT takes beside TRL's arguments: the sets, the role, and what becomes of long rows.

``parse`` reads the command line (see ``arguments``). Importing this module imports TRL: a variable
under ``env`` of the file is set before, by ``arguments.set_environment``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast

from trl import ModelConfig, SFTConfig

from heavydistill.config.yaml import parse as parse_section
from heavydistill.errors import ConfigError
from heavydistill.train.arguments import (
    Refused,
    TrainArguments,
    TrainingOptions,
    option,
    read_arguments,
)
from heavydistill.train.datasets import ROLES, SetSource

_COMPLETION = "what is learnt are the completions of the sets, and nothing else"
_WHOLE = "rows are never cut; too_long says what becomes of those that do not fit"


@dataclass
class SftConfig(SFTConfig, TrainingOptions):
    """TRL's arguments and ours. ``max_length`` is None where the data decides it."""

    script: ClassVar[str] = "sft"
    trl_config: ClassVar[type] = SFTConfig
    recorded: ClassVar[Mapping[str, Any]] = {"muon": False}
    # What would be ignored or would cut rows.
    refused: ClassVar[Refused] = {
        "completion_only_loss": ((None, True), _COMPLETION),
        "assistant_only_loss": ((False,), _COMPLETION),
        "dataset_text_field": (("text",), _COMPLETION),
        "dataset_kwargs": ((None,), "the rows are prepared by the guard"),
        "truncation_mode": (("keep_start",), _WHOLE),
        "packing_strategy": (("bfd",), _WHOLE),
        "eos_token": ((None,), "a response ends as the chat template ends it"),
        "pad_token": ((None,), "the tokenizer's own is taken, or else its end of sequence"),
        "shuffle_dataset": ((False,), "packs are shuffled in every epoch"),
    }

    dataset_name: str | None = option(
        None, "Folder of sets from `heavydistill build`, or its id on the Hub."
    )
    role: str | None = option(
        None,
        "Role whose rows are learnt. output_dir is out/ROLE by default, and metric_for_best_model "
        "the loss on the role's validation rows, of both the deliberator's.",
        *ROLES,
        "both",
    )
    datasets: list[dict] = field(  # type: ignore[type-arg]
        default_factory=list,
        metadata={
            "help": "Instead of both, in the file: a list of sources with `path`, `role` and, if "
            "wanted, `fraction` and `revision`."
        },
    )
    muon: bool = option(
        False,
        "Muon for the matrices of the layers and AdamW for all else, instead of `optim`. For full "
        "training of small models, with one process or plain data parallelism.",
    )
    too_long: str = option(
        "refuse",
        "Rows of more than max_length tokens: `refuse` to train, or `leave_out` and count them. "
        "They are never cut.",
        "refuse",
        "leave_out",
    )
    # TRL's 1,024 would cut the answers off long rows.
    max_length: int | None = option(
        None,
        "Maximum tokens of a row and of a pack. [default: the longest row's length, or with "
        "`too_long leave_out` that of the 99th of 100]",
    )

    def __post_init__(self) -> None:
        roles, trl = self.roles, cast("Any", self)  # whose fields of TRL have no types here
        trl.output_dir = trl.output_dir or f"out/{roles}"
        if trl.load_best_model_at_end and trl.metric_for_best_model is None:
            learner = "thinker" if roles == "thinker" else "deliberator"
            trl.metric_for_best_model = f"eval_{learner}_loss"
        super().__post_init__()
        if self.eval_packing and not self.packing:
            raise ConfigError(
                "eval_packing without packing: rows in one sequence would attend to each other",
                "Give packing as well, or leave eval_packing out.",
            )

    @property
    def sources(self) -> tuple[SetSource, ...]:
        """Where the rows are.

        Raises:
            ConfigError: It is not said, or said twice, or in a form that is none.
        """
        if self.datasets and self.dataset_name:
            raise ConfigError("Both datasets and dataset_name are given", "Leave out one of them.")
        if self.datasets:
            if self.role:
                raise ConfigError(
                    "role is given beside datasets, whose entries have a role each",
                    "Leave it out.",
                )
            return _mixture(self.datasets)
        if not self.dataset_name:
            raise ConfigError(
                "There are no sets to learn from",
                "Give --dataset_name: a folder that `heavydistill build` wrote, or its id on the "
                "Hub.",
            )
        if not self.role:
            raise ConfigError("Whose rows are learnt is not said", "Give --role: a role, or both.")
        roles = ROLES if self.role == "both" else (self.role,)
        return tuple(SetSource(path=self.dataset_name, role=role) for role in roles)

    @property
    def roles(self) -> str:
        """Whose rows are learnt: a role or ``both``."""
        roles = {source.role for source in self.sources}
        return roles.pop() if len(roles) == 1 else "both"


def parse(
    arguments: Sequence[str] | None = None, description: str | None = None
) -> TrainArguments[SftConfig]:
    """Read the command line, and the file that it names; see ``arguments.read_arguments``."""
    found = read_arguments(SftConfig, ModelConfig, arguments, description)
    if found.config.muon and found.model.use_peft:
        raise ConfigError(
            "muon is set, and what is trained is an adapter", "Leave out muon, or use_peft."
        )
    return found


def _mixture(entries: list[Any]) -> tuple[SetSource, ...]:
    sources = tuple(_source(number, entry) for number, entry in enumerate(entries, start=1))
    if len({source.fraction is None for source in sources}) > 1:
        raise ConfigError(
            "datasets: some entries have a fraction and some have none",
            "Give every entry one, or none.",
        )
    rows = {(Path(source.path), source.role, source.revision) for source in sources}
    if len(rows) < len(sources):
        raise ConfigError("datasets: two entries are the same rows", "Leave out one of them.")
    return sources


def _source(number: int, entry: dict[str, Any]) -> SetSource:
    keys = ", ".join(SetSource.model_fields)
    fix = f"An entry has {keys}; the last two may be left out."
    return parse_section(SetSource, dict(entry), f"datasets, entry {number}: ", fix)
