"""GRPO: prompts in, a trained model and its record out.

``prepare`` reads and checks everything but the weights, ``train`` samples responses, has them
judged and learns from the verdicts, with the trainer of the mode (``new_trainer``).
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import heavydistill
from heavydistill.config import without_places
from heavydistill.errors import ConfigError
from heavydistill.record import Ends, Result, RlUsed, SetsUsed, TrainingRecord
from heavydistill.training import keeping, launching
from heavydistill.training.base import Base, load_base
from heavydistill.training.course import Taken, carry_out, check_steps, method_of, of_trainer
from heavydistill.training.course import versions as versions_of
from heavydistill.training.located import Located
from heavydistill.training.outline import of_any
from heavydistill.training.rl.arguments import DELIBERATOR, JOINT, Asked
from heavydistill.training.rl.prompts import Prompts, find_sets, read_prompts
from heavydistill.training.rl.reward import METRICS, FinalAnswer
from heavydistill.training.told import told
from heavydistill.verifiers.pool import VerdictPool

if TYPE_CHECKING:
    from trl import GRPOTrainer

_ROLES = {DELIBERATOR: "deliberator", JOINT: "both"}
# What the record tells of both ends of a training, where it was logged.
_TOLD = (
    "reward",
    "frac_reward_zero_std",
    "entropy",
    "completions/mean_length",
    *(f"verdict/{name}" for name in METRICS),
)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A training, checked, without its weights.

    Attributes:
        asked: The arguments.
        base: The model.
        prompts: What is asked.
        record: Of the training, without what is known when the launch is there.
        start: The checkpoint that it goes on from.
    """

    asked: Asked
    base: Base
    prompts: Prompts
    record: TrainingRecord
    start: Path | None


def prepare(asked: Asked) -> Prepared:
    """Read and check everything but the weights.

    Raises:
        UserError: Whatever a user can mend; see the modules that are called.
    """
    method = method_of(asked.model)
    check_steps(asked)
    start = keeping.start_of(Path(str(asked.trl.output_dir)), asked.trl.resume_from_checkpoint)
    launch = launching.planned(asked)
    sets = find_sets(asked)
    base = load_base(asked, [sets] if sets else [])
    prompts = read_prompts(asked, base, sets)
    record = TrainingRecord(
        heavydistill=heavydistill.__version__,
        versions=versions_of(launch.engine, method, *["vllm"] * asked.trl.use_vllm),
        stage="grpo",
        role=_ROLES.get(asked.mode, "thinker"),
        method=method,
        base=base.used,
        sets=[_used(sets, asked, prompts)] if sets else [],
        # A cache takes up to what the context leaves beside the response.
        max_length=base.context
        if asked.mode == JOINT
        else prompts.longest + asked.trl.max_completion_length,
        sequences=len(prompts.train),
        tokens=sum(prompts.lengths),
        learnt_tokens=0,
        arguments=told(asked),
        launch=launch,
        rl=RlUsed(
            mode=asked.mode,
            rows_of_episode=prompts.run.think.k + 1 if prompts.run and asked.mode == JOINT else 1,
            longest_prompt=prompts.longest,
            left_out=prompts.left_out,
            problems_sha256=prompts.problems_sha256,
            run=without_places(prompts.run) if prompts.run else None,
        ),
    )
    if start:
        keeping.check_same(Path(str(asked.trl.output_dir)), record)
    return Prepared(asked, base, prompts, record, start)


def train(prepared: Prepared) -> TrainingRecord:
    """Train, and write the model and its record into the output folder; see ``course``."""
    with VerdictPool(prepared.prompts.verify) as pool:
        return carry_out(prepared, lambda: new_trainer(prepared, pool), _result)


def new_trainer(prepared: Prepared, pool: VerdictPool) -> GRPOTrainer:
    """The trainer of the mode, as ``train`` runs it.

    Args:
        prepared: The training.
        pool: Judges responses.
    """
    from trl import GRPOTrainer

    logging.getLogger("trl.trainer.grpo_trainer").addFilter(_is_news)
    reward = FinalAnswer(pool, prepared.base.chat, prepared.asked.rl.format_share)
    options: dict[str, Any] = {
        "reward_funcs": [reward],
        "train_dataset": prepared.prompts.train,
        "eval_dataset": prepared.prompts.validation,
        **of_trainer(prepared),
    }
    # Each mode has its trainer here.
    if prepared.asked.mode == JOINT:
        raise ConfigError("mode: there is no trainer of episodes here", "Take another mode.")
    trainer = GRPOTrainer(**options)
    trainer.create_model_card = lambda *_, **__: None  # the card is made of the record
    # TRL masks by these, which are of the model's own configuration too.
    reward.ends = frozenset([*trainer.eos_token_ids, prepared.base.tokenizer.pad_token_id])
    return trainer


def outline(prepared: Prepared) -> list[tuple[str, str]]:
    """(what, how much) of a training, for the terminal."""
    record, prompts, batch = prepared.record, prepared.prompts, prepared.asked.batch
    trl = prepared.asked.trl
    per_epoch = batch.steps(record.sequences)
    steps = trl.max_steps if trl.max_steps > 0 else math.ceil(per_epoch * trl.num_train_epochs)
    episode = record.rl.rows_of_episode if record.rl else 1
    left = "".join(f", {count:,} {reason}" for reason, count in prompts.left_out.items())
    source = record.sets[0].name if record.sets else str(prepared.asked.rl.run)
    lines = [
        (
            f"{source}, {prepared.asked.mode}",
            f"{record.sequences:,} prompts of up to {prompts.longest:,} tokens"
            + (f", {len(prompts.validation):,} for validation" if prompts.validation else "")
            + (f"; left out{left[1:]}" if left else ""),
        ),
        (
            "a generation",
            f"{batch.prompts:,} prompts x {batch.group} responses"
            + (f", {batch.group // episode} episodes," if episode > 1 else "")
            + f" of up to {trl.max_completion_length:,} tokens",
        ),
        (
            "steps",
            f"{steps:,} of {batch.rows_of_step:,} responses, {steps / per_epoch:.2g} epochs; "
            f"{prepared.asked.rl.preset}, temperature {trl.temperature:g}",
        ),
    ]
    others = [name for name in prompts.measured_on if name != prepared.base.name]
    if others:
        lines.append(
            (
                "note",
                f"which caches teach something was measured on {', '.join(others)}; `heavydistill "
                "refilter` measures it on the model that is trained",
            )
        )
    return [*lines, *of_any(prepared)]


def _used(sets: Located, asked: Asked, prompts: Prompts) -> SetsUsed:
    return SetsUsed(
        name=sets.name,
        revision=sets.revision,
        role="deliberator" if asked.mode == DELIBERATOR else "thinker",
        rows={"train": len(prompts.train), "validation": len(prompts.validation or ())},
        left_out={},
        manifest=sets.manifest,
    )


def _is_news(said: logging.LogRecord) -> bool:
    """Whether TRL says something that is not counted: responses without a reward are."""
    return "All reward functions returned None" not in said.getMessage()


def _result(taken: Taken) -> Result:
    history = taken.trainer.state.log_history
    # TRL goes on counting where an earlier start ended.
    counted = [(entry["step"], entry["num_tokens"]) for entry in history if "num_tokens" in entry]
    before = max((tokens for step, tokens in counted if step <= taken.first), default=0)
    series = {
        name: [entry[name] for entry in history if entry.get(name) is not None] for name in _TOLD
    }
    return taken.result(
        tokens=int(max((tokens for _, tokens in counted), default=before) - before),
        rollouts={name: _ends(values) for name, values in series.items() if values},
    )


def _ends(values: list[float]) -> Ends:
    tenth = max(1, len(values) // 10)
    return Ends(first=sum(values[:tenth]) / tenth, last=sum(values[-tenth:]) / tenth)
