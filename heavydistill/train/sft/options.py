"""Our arguments of SFT in addition to TRL's: role, row sources, and handling of long rows.

Importing this module does not import TRL, because the fields are read before TRL is loaded (see
``arguments``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from heavydistill.config.yaml import parse as parse_section
from heavydistill.errors import ConfigError
from heavydistill.train.arguments import Refused, TrainingOptions, option
from heavydistill.train.datasets import ROLES, SetSource

_COMPLETION = "a training learns the completions of the sets and nothing else"
_WHOLE = "rows are never cut; too_long refuses or leaves out those that do not fit"


@dataclass
class SftOptions(TrainingOptions):
    """Our arguments of SFT. A ``max_length`` of None is replaced by the longest row's length."""

    script: ClassVar[str] = "sft"
    trl_config: ClassVar[str] = "SFTConfig"
    recorded: ClassVar[Mapping[str, object]] = {"muon": False, "held_out": None}
    # Parameters that would be ignored or would cut rows.
    refused: ClassVar[Refused] = {
        "completion_only_loss": ((None, True), _COMPLETION),
        "assistant_only_loss": ((False,), _COMPLETION),
        "dataset_text_field": (("text",), _COMPLETION),
        "dataset_kwargs": ((None,), "the rows are prepared by the guard"),
        "truncation_mode": (("keep_start",), _WHOLE),
        "packing_strategy": (("bfd",), _WHOLE),
        "eval_packing": ((None,), "validation rows are packed if training rows are"),
        "eos_token": ((None,), "a response ends as the chat template ends it"),
        "pad_token": ((None,), "the tokenizer's own is used, or else the model's"),
        "shuffle_dataset": ((False,), "packs are shuffled in every epoch"),
    }

    dataset_name: str | None = option(
        None, "Folder of sets from `heavydistill build`, or its id on the Hub."
    )
    role: str | None = option(
        None,
        "Role to train; sets the defaults of output_dir (out/ROLE) and metric_for_best_model (the "
        "loss on the role's validation rows; for both, on the deliberator's).",
        *ROLES,
        "both",
    )
    datasets: list[dict] = field(  # type: ignore[type-arg]
        default_factory=list,
        metadata={
            "help": "In the file, in place of dataset_name and role: list of sources with `path`, "
            "`role` and optionally `fraction` and `revision`."
        },
    )
    muon: bool = option(
        False,
        "Use Muon for the matrices of the layers and AdamW for the rest, instead of `optim`. Meant "
        "for full training of small models, in one process or with plain data parallelism.",
    )
    too_long: str = option(
        "refuse",
        "What to do with rows of more than max_length tokens: `refuse` to train, or `leave_out` "
        "and count them. They are never cut.",
        "refuse",
        "leave_out",
    )
    held_out: int | None = option(
        None,
        "Number of held-out caches on which the deliberator is sampled at each evaluation, as they "
        "are and with garbled attempts; 0 for none. [default: 32, if the sets have caches of "
        "validation problems that can be judged here]",
    )
    # TRL's default of 1,024 would cut the answers off long rows.
    max_length: int | None = option(
        None,
        "Maximum number of tokens of a row, and of a sequence of packed rows. [default: the "
        "longest row, or with `too_long leave_out` the 99th percentile]",
    )

    @classmethod
    def check_given(cls, values: Mapping[str, object]) -> None:
        """Raise an error if no model or no row source is given, or two kinds of row sources."""
        super().check_given(values)
        given = [name for name in ("dataset_name", "role", "datasets") if values.get(name)]
        if given not in (["dataset_name", "role"], ["datasets"]):
            raise ConfigError(
                "A training needs dataset_name and role, or datasets alone; given: "
                f"{', '.join(given) or 'none of them'}",
                "Give --dataset_name FOLDER (the output of `heavydistill build`, or its id on the "
                "Hub) and --role thinker, deliberator or both.",
            )

    def __post_init__(self) -> None:
        trl: Any = self  # its fields have no types here
        trl.output_dir = trl.output_dir or folder_of(self.roles)
        if trl.load_best_model_at_end and trl.metric_for_best_model is None:
            learner = "thinker" if self.roles == "thinker" else "deliberator"
            trl.metric_for_best_model = f"eval_{learner}_loss"
        super().__post_init__()
        if self.held_out is not None and self.held_out < 0:
            raise ConfigError(f"held_out: {self.held_out} is less than 0", "Give 0 for none.")
        if self.held_out and not self.samples:
            reads = self.roles != "thinker"
            why = "nothing is evaluated" if reads else "a thinker reads no attempts"
            raise ConfigError(f"held_out is {self.held_out}, but {why}", "Leave it out.")

    @property
    def samples(self) -> bool:
        """Return whether evaluations sample deliberations, if the sets allow it."""
        trl: Any = self
        is_evaluated = trl.do_eval or trl.eval_on_start
        return bool(is_evaluated) and self.roles != "thinker" and self.held_out != 0

    @property
    def sources(self) -> tuple[SetSource, ...]:
        """Return the row sources; raises ``ConfigError`` if an entry is invalid."""
        return sources_of(vars(self))

    @property
    def roles(self) -> str:
        """Return the role to train, or ``both``."""
        return roles_of(self.sources)


def sources_of(values: Mapping[str, Any]) -> tuple[SetSource, ...]:
    """Return the row sources of given values; raises ``ConfigError`` if an entry is invalid."""
    role, path = values.get("role"), values.get("dataset_name")
    roles = ROLES if role == "both" else (role,)
    entries = values.get("datasets") or [{"path": path, "role": each} for each in roles]
    fix = f"An entry has {', '.join(SetSource.model_fields)}; the last two are optional."
    sources = tuple(
        parse_section(SetSource, {**entry}, f"datasets, entry {number}: ", fix)
        for number, entry in enumerate(entries, start=1)
    )
    if len({source.fraction is None for source in sources}) > 1:
        raise ConfigError(
            "datasets: some entries have a fraction and some have none",
            "Give a fraction to every entry, or to none.",
        )
    return sources


def roles_of(sources: Sequence[SetSource]) -> str:
    """Return the role of all sources, or ``both``."""
    roles = {source.role for source in sources}
    return roles.pop() if len(roles) == 1 else "both"


def folder_of(roles: str) -> str:
    """Return the default of ``output_dir``."""
    return f"out/{roles}"
