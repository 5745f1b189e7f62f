"""What SFT takes, beside what TRL takes: the sets, the role, and what becomes of long rows.

The command line is TRL's, read strictly; see ``strict``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from heavydistill.errors import ConfigError
from heavydistill.train.arguments import Around, Script

if TYPE_CHECKING:
    from trl import ModelConfig, SFTConfig

ROLES = ("thinker", "deliberator")
_COMPLETION = "what is learnt are the completions of the sets, and nothing else"
_WHOLE = "rows are never cut; too_long says what becomes of those that do not fit"
SCRIPT = Script(
    name="sft",
    config="SFTConfig",
    # What would be ignored or would cut rows.
    refused={
        "completion_only_loss": ((None, True), _COMPLETION),
        "assistant_only_loss": ((False,), _COMPLETION),
        "dataset_text_field": (("text",), _COMPLETION),
        "dataset_kwargs": ((None,), "the rows are prepared by the guard"),
        "truncation_mode": (("keep_start",), _WHOLE),
        "packing_strategy": (("bfd",), _WHOLE),
        "eos_token": ((None,), "a response ends as the chat template ends it"),
        "pad_token": ((None,), "the tokenizer's own is taken, or else its end of sequence"),
        "shuffle_dataset": ((False,), "packs are shuffled in every epoch"),
    },
    # TRL's 1,024 would cut the answers off long rows.
    defaults={"max_length": None},
)


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
class SetArguments(Around):
    """What is learnt, and what is done around it."""

    told: ClassVar[tuple[str, ...]] = ("muon",)

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
    muon: bool = field(
        default=False,
        metadata={
            "help": "Muon for the matrices of the layers and AdamW for all else, instead of "
            "`optim`. For full training of small models, with one process or plain data "
            "parallelism."
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


@dataclass(frozen=True, slots=True)
class Asked:
    """A training as it is asked for.

    Attributes:
        sets: What is learnt.
        trl: TRL's arguments. ``max_length`` is None where the data decides it.
        model: The model and its adapter.
        sources: Where the rows are.
    """

    sets: SetArguments
    trl: SFTConfig
    model: ModelConfig
    sources: tuple[Source, ...]

    @property
    def around(self) -> Around:
        """Our own arguments."""
        return self.sets

    @property
    def chat_template_path(self) -> str | None:
        """A file with the chat template that it learns."""
        path: str | None = self.trl.chat_template_path
        return path

    @property
    def role(self) -> str:
        """Whose rows are learnt: a role or ``both``."""
        roles = {source.role for source in self.sources}
        return roles.pop() if len(roles) == 1 else "both"


def parse(arguments: Sequence[str] | None = None, description: str | None = None) -> Asked:
    """Read the command line, and the file that it names.

    Args:
        arguments: In place of those of the process.
        description: What ``--help`` begins with.

    Raises:
        ConfigError: A key or value that is none; see ``strict``.
    """
    sets, trl, model = SCRIPT.read(SetArguments, arguments, description)
    if sets.muon and model.use_peft:
        raise ConfigError(
            "muon is set, and what is trained is an adapter", "Leave out muon, or use_peft."
        )
    if trl.eval_packing and not trl.packing:
        raise ConfigError(
            "eval_packing without packing: rows in one sequence would attend to each other",
            "Give packing as well, or leave eval_packing out.",
        )
    return Asked(sets, trl, model, _sources(sets))


def _sources(sets: SetArguments) -> tuple[Source, ...]:
    if sets.datasets and sets.dataset_name:
        raise ConfigError("Both datasets and dataset_name are given", "Leave out one of the two.")
    if sets.datasets:
        if sets.role:
            raise ConfigError(
                "role is given beside datasets, whose entries have a role each", "Leave it out."
            )
        return _mixture(sets.datasets)
    if not sets.dataset_name:
        raise ConfigError(
            "There are no sets to learn from",
            "Give --dataset_name: a folder that `heavydistill build` wrote, or its id on the Hub.",
        )
    if not sets.role:
        raise ConfigError("Whose rows are learnt is not said", "Give --role: a role, or both.")
    roles = ROLES if sets.role == "both" else (sets.role,)
    return tuple(Source(sets.dataset_name, role) for role in roles)


def _mixture(entries: list[Any]) -> tuple[Source, ...]:
    sources = tuple(_source(number, entry) for number, entry in enumerate(entries, start=1))
    fractions = [source.fraction for source in sources]
    if any(fraction is None for fraction in fractions) != all(
        fraction is None for fraction in fractions
    ):
        raise ConfigError(
            "datasets: some entries have a fraction and some have none",
            "Give every entry one, or none.",
        )
    if len({(Path(source.path), source.role, source.revision) for source in sources}) < len(
        sources
    ):
        raise ConfigError("datasets: two entries are the same rows", "Leave out one of them.")
    return sources


def _source(number: int, entry: Any) -> Source:
    where = f"datasets, entry {number}"
    keys = [one.name for one in dataclasses.fields(Source)]
    fix = f"An entry has {', '.join(keys)}; the last two may be left out."
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} is no mapping: {entry!r}", fix)
    for key in entry:
        if key not in keys:
            raise ConfigError(f"{where}: there is no key {key!r}", SCRIPT.nearest(key, keys))
    for key in ("path", "role"):
        if not isinstance(entry.get(key), str):
            raise ConfigError(f"{where}: {key} is missing or no text", fix)
    if entry["role"] not in ROLES:
        raise ConfigError(
            f"{where}: role: {entry['role']!r} is none", f"Give {' or '.join(ROLES)}."
        )
    if not isinstance(entry.get("revision", ""), str):
        raise ConfigError(
            f"{where}: revision: {entry['revision']!r} is no text", "Put it between quotes."
        )
    fraction = entry.get("fraction")
    if fraction is not None and not (
        isinstance(fraction, int | float) and 0 < fraction <= 1 and fraction is not True
    ):
        raise ConfigError(
            f"{where}: fraction: {fraction!r} is no share", "Give more than 0, up to 1."
        )
    return Source(**entry)
