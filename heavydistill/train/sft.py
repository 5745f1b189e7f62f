"""SFT: sets in, a trained model and its record out.

``parse`` reads the command line (see ``arguments``), ``prepare`` reads and checks everything but
the weights, ``train`` runs TRL's own ``SFTTrainer`` on it. The rows reach the trainer as tokens
that the guard has seen, and it changes nothing of them. Importing this module imports TRL: a
variable under ``env`` of the file is set before, by ``arguments.set_environment``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

from trl import ModelConfig, SFTConfig, SFTTrainer

from heavydistill.config.yaml import parse as parse_section
from heavydistill.errors import ConfigError
from heavydistill.store.sets.set_rows import SPLITS
from heavydistill.store.training_record import SetsUsed, TrainingRecord
from heavydistill.train.arguments import (
    Refused,
    TrainArguments,
    TrainingOptions,
    option,
    read_arguments,
)
from heavydistill.train.base_model import load_base
from heavydistill.train.datasets import ROLES, SetSource, locate_source
from heavydistill.train.loop import (
    TrainingPlan,
    begin,
    common_summary,
    new_record,
    run_training,
    step_at_end,
    trainer_options,
)
from heavydistill.train.sft_data import (
    SourceRows,
    sequences_of_roles,
    sum_of,
    tokenize_sources,
)

if TYPE_CHECKING:
    from datasets import Dataset

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
        "eval_packing": ((None,), "validation rows are packed where those of the training are"),
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

    @property
    def sources(self) -> tuple[SetSource, ...]:
        """Where the rows are; a ``ConfigError`` if that is not said, or said twice."""
        given = [bool(self.datasets), bool(self.dataset_name), bool(self.role)]
        if given not in ([True, False, False], [False, True, True]):
            raise ConfigError(
                f"What is learnt is not said, or said twice: dataset_name {self.dataset_name}, "
                f"role {self.role}, {len(self.datasets)} datasets",
                "Give --dataset_name, a folder from `heavydistill build` or its id on the Hub, and "
                "--role, one or both; or in the file datasets alone.",
            )
        roles = ROLES if self.role == "both" else (self.role,)
        entries = self.datasets or [{"path": self.dataset_name, "role": role} for role in roles]
        fix = f"An entry has {', '.join(SetSource.model_fields)}; the last two may be left out."
        sources = tuple(
            parse_section(SetSource, {**entry}, f"datasets, entry {number}: ", fix)
            for number, entry in enumerate(entries, start=1)
        )
        if len({source.fraction is None for source in sources}) > 1:
            raise ConfigError(
                "datasets: some entries have a fraction and some have none",
                "Give every entry one, or none.",
            )
        return sources

    @property
    def roles(self) -> str:
        """Whose rows are learnt: a role or ``both``."""
        roles = {source.role for source in self.sources}
        return roles.pop() if len(roles) == 1 else "both"


def parse(
    arguments: Sequence[str] | None = None, description: str | None = None
) -> TrainArguments[SftConfig]:
    """Read the command line, and the file that it names; see ``arguments.read_arguments``."""
    return read_arguments(SftConfig, ModelConfig, arguments, description)


@dataclass(frozen=True, slots=True)
class SftPlan(TrainingPlan):
    """A training by SFT with its sequences of tokens; those of validation by role."""

    arguments: TrainArguments[SftConfig]
    train: Dataset
    validation: dict[str, Dataset]


def prepare(arguments: TrainArguments[SftConfig]) -> SftPlan:
    """Read and check everything but the weights; a ``ConfigError`` if a user can correct it."""
    from datasets import concatenate_datasets

    config = arguments.config
    launch, start = begin(arguments)
    trained = "an adapter" if arguments.model.use_peft else launch.engine
    if config.muon and trained not in ("single", "ddp"):
        raise ConfigError(
            f"muon is set, and {trained} has no matrices that are whole, as Muon needs them",
            "Leave out muon, or train all weights with configs/accelerate/single.yaml or ddp.yaml.",
        )
    found = [locate_source(source) for source in config.sources]
    base = load_base(arguments, found)
    parts, max_length = tokenize_sources(config, base, found)
    train = [part.splits["train"] for part in parts]
    held_out = [part.splits["validation"] for part in parts if "validation" in part.splits]
    with config.main_process_first(desc="packing"):
        sequences = concatenate_datasets(
            [*sequences_of_roles(train, max_length, config.packing).values()]
        )
        # Of each role, so that damage to one of them is seen.
        validation = sequences_of_roles(held_out, max_length, config.packing)
    losses = [f"{role}_loss" for role in validation]
    metric = config.metric_for_best_model
    if losses and metric is not None and metric.removeprefix("eval_") not in losses:
        raise ConfigError(
            f"metric_for_best_model: {metric!r} is not measured", f"Give {' or '.join(losses)}."
        )
    tokens, learnt = sum_of(sequences)
    record = new_record(
        arguments,
        base,
        launch,
        start,
        role=config.roles,
        sets=[_used(part) for part in parts],
        max_length=max_length,
        sequences=len(sequences),
        tokens=tokens,
        learnt_tokens=learnt,
    )
    return SftPlan(arguments, base, record, start, sequences, validation)


def train(plan: SftPlan) -> TrainingRecord:
    """Train, and write the model and its record into the output folder; see ``loop``."""
    return run_training(
        plan,
        lambda: new_trainer(plan),
        lambda trainer, _: {"eval_loss": _losses(trainer, plan.validation)},
    )


def new_trainer(plan: SftPlan) -> SFTTrainer:
    """TRL's trainer over the sequences, as ``train`` runs it."""
    from heavydistill.train.trainer import RolesTrainer

    config = plan.arguments.config
    # What was read by the guard is what is learnt: TRL renders, cuts and packs nothing again.
    config.dataset_kwargs = {"skip_prepare_dataset": True}
    config.chat_template_path = None  # the tokenizer has it
    # It cuts nothing now, and TRL refuses it with padding_free alone.
    config.max_length = plan.record.max_length if config.packing else None
    return RolesTrainer(
        muon=config.muon,
        train_dataset=plan.train,
        eval_dataset=plan.validation or None,
        **trainer_options(plan),
    )


def _used(part: SourceRows) -> SetsUsed:
    sets, source = part.sets, part.source
    return SetsUsed(
        name=sets.name,
        revision=sets.revision,
        role=source.role,
        fraction=source.fraction,
        rows={split: len(part.splits.get(split, ())) for split in SPLITS},
        left_out=part.left_out,
        manifest=sets.manifest,
    )


def _losses(trainer: SFTTrainer, validation: Mapping[str, Any]) -> dict[str, float]:
    """The losses on the validation rows of the model that the trainer has at the end, by role."""
    step = step_at_end(trainer)
    known = {
        name: value
        for entry in trainer.state.log_history
        if entry["step"] == step
        for name, value in entry.items()
    }
    names = {role: f"eval_{role}_loss" for role in validation}
    if not known.keys() >= set(names.values()):
        known = trainer.evaluate()
    return {role: known[name] for role, name in names.items()}


def summary(plan: SftPlan) -> list[tuple[str, str]]:
    """(what, how much) of a training."""
    record, config = plan.record, plan.arguments.config
    lines = []
    for sets in record.sets:
        text = f"{sets.rows['train']:,} rows, {sets.rows['validation']:,} for validation"
        if lost := sum(sets.left_out.values()):
            text += f"; {lost:,} left out, longer than {record.max_length:,} tokens"
        lines.append((f"{sets.name}, {sets.role}", text))
    unit, size = "rows", f"{record.sequences:,} of up to {record.max_length:,} tokens"
    if config.packing:
        unit = "packs"
        size += f", {record.tokens / (record.sequences * record.max_length):.1%} full"
    learnt = f"{record.learnt_tokens:,} are learnt ({record.learnt_tokens / record.tokens:.0%})"
    of_batch = config.per_device_train_batch_size * record.launch.processes
    return [
        *lines,
        (unit, size),
        ("tokens an epoch", f"{record.tokens:,}, of which {learnt}"),
        *common_summary(plan, math.ceil(record.sequences / of_batch), unit),
    ]
