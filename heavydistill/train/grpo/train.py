"""GRPO: prompts in, a trained model and its record out.

``prepare`` reads and checks everything but the weights, ``train`` samples responses, has them
judged and learns from the verdicts, with the trainer of the mode (``new_trainer``).
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import heavydistill
from heavydistill.errors import ConfigError
from heavydistill.store.redact import without_places
from heavydistill.store.sets.folder import MANIFEST
from heavydistill.store.training_record import Ends, Result, RlUsed, SetsUsed, TrainingRecord
from heavydistill.train import checkpoints
from heavydistill.train import launch as launching
from heavydistill.train.base_model import Base, load_base
from heavydistill.train.datasets import Located
from heavydistill.train.grpo.config import DELIBERATOR, JOINT, THINKER, Asked, metric_of
from heavydistill.train.grpo.context_check import context_of, episodes_of
from heavydistill.train.grpo.data import (
    Prompts,
    check_verifiers,
    find_sets,
    read_prompts,
    thinker_prompt,
)
from heavydistill.train.grpo.guards import foreseen, idle
from heavydistill.train.grpo.held_out import HeldOut, held_out
from heavydistill.train.grpo.reward import METRICS, FinalAnswer
from heavydistill.train.grpo.sampling import check_sampling
from heavydistill.train.grpo.thinking import wording_of
from heavydistill.train.loop import (
    Taken,
    carry_out,
    check_steps,
    method_of,
    of_any,
    of_trainer,
    step_at_end,
)
from heavydistill.train.loop import versions as versions_of
from heavydistill.train.recorded_arguments import told
from heavydistill.verifiers.pool import VerdictPool

if TYPE_CHECKING:
    from heavydistill.train.grpo.trainer import RlTrainer

TRL = "1.16"
"""The minor version of TRL that the trainers are made for: they build on what it does inside."""
_ROLES = {DELIBERATOR: "deliberator", JOINT: "both"}
# What the record tells of both ends of a training, where it was logged.
_TOLD = (
    "reward",
    "frac_reward_zero_std",
    "entropy",
    "completions/mean_length",
    "groups/all_right",
    "groups/uncompared",
    "eval_hm",
    "eval_v",
    "eval_pass_at_1",
    *(f"verdict/{name}" for name in METRICS),
)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A training, checked, without its weights.

    Attributes:
        asked: The arguments.
        base: The model.
        prompts: What is asked.
        held_out: What it is measured on meanwhile; None if it is not.
        record: Of the training, without what is known when the launch is there.
        start: The checkpoint that it goes on from.
    """

    asked: Asked
    base: Base
    prompts: Prompts
    held_out: HeldOut | None
    record: TrainingRecord
    start: Path | None


def prepare(asked: Asked) -> Prepared:
    """Read and check everything but the weights.

    Raises:
        UserError: Whatever a user can mend; see the modules that are called.
    """
    _demand_trl()
    method = method_of(asked.model)
    check_steps(asked)
    start = checkpoints.start_of(Path(str(asked.trl.output_dir)), asked.trl.resume_from_checkpoint)
    launch = launching.planned(asked)
    if launch.engine.startswith("fsdp") and not asked.trl.use_vllm:
        raise ConfigError(
            "FSDP and no vLLM: the processes would wait for each other, for their responses are of "
            "different lengths",
            "Give --use_vllm true, or launch with zero2 or zero3.",
        )
    if launch.engine.startswith("fsdp") and asked.model.use_peft:
        raise ConfigError(
            "FSDP, an adapter and vLLM: the adapter cannot be added to weights that are sharded by "
            "FSDP, as vLLM needs them",
            "Launch with configs/accelerate/ddp.yaml, zero2.yaml or zero3.yaml.",
        )
    sets = find_sets(asked)
    base = load_base(asked, [sets] if sets else [])
    if not asked.trl.use_vllm:
        check_sampling(base.path, asked.model.model_revision)
    prompts = read_prompts(asked, base, sets)
    looked_at = _held_out(asked, base, sets, prompts)
    record = TrainingRecord(
        heavydistill=heavydistill.__version__,
        versions=versions_of(launch.engine, method, *["vllm"] * asked.trl.use_vllm),
        stage="grpo",
        role=_ROLES.get(asked.mode, "thinker"),
        method=method,
        base=base.used,
        sets=[_used(sets, asked, prompts, looked_at)] if sets else [],
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
            response_tokens=asked.trl.max_completion_length,
            left_out=prompts.left_out,
            problems_sha256=prompts.problems_sha256,
            run=without_places(prompts.run) if prompts.run else None,
        ),
    )
    _idle(asked, len(prompts.train))
    if start:
        checkpoints.check_same(Path(str(asked.trl.output_dir)), record)
    return Prepared(asked, base, prompts, looked_at, record, start)


def _steps(asked: Asked, prompts: int) -> int:
    """Optimizer steps of the training."""
    trl, epoch = asked.trl, asked.batch.steps(prompts)
    steps: int = trl.max_steps if trl.max_steps > 0 else math.ceil(epoch * trl.num_train_epochs)
    return steps


def _idle(asked: Asked, prompts: int) -> dict[str, str]:
    """The guards that will see too few values, as of ``collapse.idle``."""
    return idle(asked.rl, foreseen(asked.trl, asked.batch, _steps(asked, prompts), prompts))


def _demand_trl() -> None:
    # Before anything of it is imported that another version may not have.
    installed = version("trl")
    if installed.split(".")[:2] != TRL.split("."):
        following = f"{TRL.split('.')[0]}.{int(TRL.split('.')[1]) + 1}"
        raise ConfigError(
            f"TRL {installed} is installed, and the trainers of the GRPO stage build on what "
            f"TRL {TRL} does inside",
            f"pip install 'trl>={TRL},<{following}'",
        )


def train(prepared: Prepared) -> TrainingRecord:
    """Train, and write the model and its record into the output folder; see ``course``."""
    with VerdictPool(prepared.prompts.verify) as pool:
        return carry_out(prepared, lambda: new_trainer(prepared, pool), _result)


def new_trainer(prepared: Prepared, pool: VerdictPool) -> RlTrainer:
    """The trainer of the mode, as ``train`` runs it.

    Args:
        prepared: The training.
        pool: Judges responses.
    """
    from datasets import Dataset

    from heavydistill.train.grpo.callbacks import DrawCurves, WatchCollapse
    from heavydistill.train.grpo.joint import JointTrainer
    from heavydistill.train.grpo.trainer import RlTrainer, ThinkerTrainer

    logging.getLogger("trl.trainer.grpo_trainer").addFilter(_is_news)
    asked, base, prompts = prepared.asked, prepared.base, prepared.prompts
    size = prepared.record.rl.rows_of_episode if prepared.record.rl else 1
    reward = FinalAnswer(pool, base.chat, asked.rl.format_share, asked.trl.num_generations // size)
    looked_at = prepared.held_out
    options: dict[str, Any] = {
        "reward_funcs": [reward],
        "train_dataset": prompts.train,
        "eval_dataset": {
            role: Dataset.from_list(rows) for role, rows in looked_at.roles.items() if rows
        }
        if looked_at
        else None,
        "judge": reward.judge,
        **of_trainer(prepared),
    }
    metric = metric_of(asked.mode)
    options["callbacks"] += [WatchCollapse(asked.rl, metric), DrawCurves(asked.rl, metric)]
    trainer: RlTrainer
    if asked.mode == JOINT:
        assert prompts.run, "episodes are of a run"
        episodes = episodes_of(asked, base, prompts.run)
        options["most_tokens"] = episodes.most_tokens
        trainer = JointTrainer(episodes=episodes, verdicts=pool, **options)
    elif asked.mode == THINKER:
        trainer = ThinkerTrainer(pass_at_k=asked.rl.pass_at_k, **options)
    else:
        trainer = RlTrainer(**options)
    # TRL masks by these, which are of the model's own configuration too.
    reward.ends = frozenset([*trainer.eos_token_ids, base.tokenizer.pad_token_id])
    return trainer


def _held_out(asked: Asked, base: Base, sets: Located | None, prompts: Prompts) -> HeldOut | None:
    """What the training is measured on meanwhile, if it is.

    Raises:
        ConfigError: There is nothing, or nothing of it fits the model.
    """
    if not asked.looks_at_held_out:
        return None
    if asked.rl.held_out_from is None and sets is None:
        raise ConfigError(
            "Evaluation is asked for, and a run holds no problems out",
            "Give --held_out_from: a folder of sets, or of another run; or --eval_strategy no.",
        )
    folder = Path(asked.rl.held_out_from or str(sets and sets.folder))
    wording = prompts.run or wording_of(sets.manifest if sets else None)
    asks_anew = not (folder / MANIFEST).is_file()
    plays = asked.mode == JOINT or asks_anew
    episodes = episodes_of(asked, base, prompts.run) if prompts.run and plays else None
    most = dict.fromkeys((DELIBERATOR, THINKER), asked.trl.max_completion_length)
    if asked.mode == JOINT and episodes:
        most = episodes.most_tokens
    room = {role: context_of(asked, base) - tokens for role, tokens in most.items()}
    found = held_out(
        folder,
        asked.rl.held_out,
        (lambda problem: thinker_prompt(problem, wording)) if wording else None,
        episodes.cache_of if episodes else None,
        prompts.train["text"],
    ).that_fit(lambda role, row: base.chat.prompt_tokens(row["prompt"]) <= room[role])
    check_verifiers([*found.deliberator, *found.thinker], prompts.verify)
    role = THINKER if asked.mode == THINKER else DELIBERATOR
    if not found.roles[role]:
        what = "problem" if role == THINKER else "cache"
        raise ConfigError(
            f"held_out: {folder} has no held-out {what} to measure on ({found.too_long:,} too long "
            f"for {room[role]:,} tokens beside a response)",
            "Give another folder with --held_out_from, or a smaller max_completion_length; or "
            "give --eval_strategy no.",
        )
    return found


def outline(prepared: Prepared) -> list[tuple[str, str]]:
    """(what, how much) of a training, for the terminal."""
    record, prompts, batch = prepared.record, prepared.prompts, prepared.asked.batch
    trl = prepared.asked.trl
    steps = _steps(prepared.asked, record.sequences)
    epochs = steps / batch.steps(record.sequences)
    episode = record.rl.rows_of_episode if record.rl else 1
    left = "".join(f", {count:,} {reason}" for reason, count in prompts.left_out.items())
    source = record.sets[0].name if record.sets else str(prepared.asked.rl.run)
    lines = [
        (
            f"{source}, {prepared.asked.mode}",
            f"{record.sequences:,} prompts of up to {prompts.longest:,} tokens"
            + (f", {prompts.unmeasured:,} of them unmeasured" if prompts.unmeasured else "")
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
            f"{steps:,} of {batch.rows_of_step:,} responses, {epochs:.2g} epochs; "
            f"{prepared.asked.rl.preset}, temperature {trl.temperature:g}",
        ),
    ]
    if looked_at := prepared.held_out:
        drawn = f" ({looked_at.drawn:,} drawn by the build)" if looked_at.drawn else ""
        lost = "".join(
            f", {count:,} {why}"
            for count, why in (
                (looked_at.too_long, "too long"),
                (looked_at.unusable, "without a usable attempt"),
            )
            if count
        )
        thinker = f"{len(looked_at.thinker):,}" if looked_at.thinker else "no"
        lines.append(
            (
                "held out",
                f"{len(looked_at.deliberator):,} caches{drawn}{lost}, {thinker} problems for a "
                f"thinker, {trl.num_generations_eval or batch.group} responses each",
            )
        )
    asleep = _idle(prepared.asked, record.sequences)
    lines += [("note", f"guard_{guard} cannot fire: {why}") for guard, why in asleep.items()]
    others = [name for name in prompts.measured_on if name != prepared.base.name]
    if others:
        what, how = (
            ("caches", "`heavydistill refilter`")
            if prepared.asked.mode == DELIBERATOR
            else ("problems", "a build from its own run")
        )
        lines.append(
            (
                "note",
                f"which {what} teach something was measured on {', '.join(others)}; {how} measures "
                "it on the model that is trained",
            )
        )
    return [*lines, *of_any(prepared)]


def _used(sets: Located, asked: Asked, prompts: Prompts, looked_at: HeldOut | None) -> SetsUsed:
    return SetsUsed(
        name=sets.name,
        revision=sets.revision,
        role="deliberator" if asked.mode == DELIBERATOR else "thinker",
        rows={
            "train": len(prompts.train),
            "validation": len(looked_at.texts) if looked_at and not asked.rl.held_out_from else 0,
        },
        left_out={},
        manifest=sets.manifest,
    )


def _is_news(said: logging.LogRecord) -> bool:
    """Whether TRL says something that is not counted: responses without a reward are."""
    return "All reward functions returned None" not in said.getMessage()


def _result(taken: Taken) -> Result:
    from heavydistill.train.grpo.callbacks import WatchCollapse

    history = taken.trainer.state.log_history
    callbacks = taken.trainer.callback_handler.callbacks
    alarms = next(one.alarms for one in callbacks if isinstance(one, WatchCollapse))
    # What was logged behind the checkpoint that became the model is not of the model.
    last = step_at_end(taken.trainer)
    of_model = [entry for entry in history if entry["step"] <= last]
    # TRL goes on counting where an earlier start ended.
    counted = [(entry["step"], entry["num_tokens"]) for entry in history if "num_tokens" in entry]
    before = max((tokens for step, tokens in counted if step <= taken.first), default=0)
    series = {
        name: [entry[name] for entry in of_model if entry.get(name) is not None] for name in _TOLD
    }
    return taken.result(
        alarms=alarms,
        tokens=int(max((tokens for _, tokens in counted), default=before) - before),
        rollouts={name: _ends(values) for name, values in series.items() if values},
    )


def _ends(values: list[float]) -> Ends:
    tenth = max(1, len(values) // 10)
    return Ends(first=sum(values[:tenth]) / tenth, last=sum(values[-tenth:]) / tenth)
