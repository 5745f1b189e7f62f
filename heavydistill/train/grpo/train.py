"""GRPO from prompts to a trained model and its record.

``prepare`` reads and checks everything except the weights. ``train`` runs the trainer of the mode
(``new_trainer``), which samples responses, judges them and updates the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heavydistill.errors import ConfigError
from heavydistill.heavy.prompts import asked_of_thinker
from heavydistill.models.resolve import ResolvedRun
from heavydistill.models.tokenizer import ReaderTokenizer
from heavydistill.store.redact import portable_config
from heavydistill.store.training_record import Ends, RlUsed, SetsUsed, TrainingRecord
from heavydistill.train.arguments import TrainArguments
from heavydistill.train.base_model import BaseCheckpoint, load_base
from heavydistill.train.datasets import SetsFolder
from heavydistill.train.grpo.config import GrpoConfig
from heavydistill.train.grpo.data import Prompts, check_verifiers, find_sets, read_prompts
from heavydistill.train.grpo.judge import RolloutJudge, judge_of, opened, rules_of
from heavydistill.train.grpo.options import DELIBERATOR, JOINT, THINKER
from heavydistill.train.grpo.resolve import RolloutSettings, context_of, resolve, wording_of
from heavydistill.train.grpo.reward import JUDGE_METRICS, METRICS, UNDECIDED, VerdictReward
from heavydistill.train.grpo.vllm import require_vllm
from heavydistill.train.held_out import GARBLED, HeldOut, held_out
from heavydistill.train.loop import (
    TrainingPlan,
    begin,
    common_summary,
    new_record,
    run_training,
    step_at_end,
    trainer_options,
)
from heavydistill.verifiers import registry
from heavydistill.verifiers.pool import VerdictPool

if TYPE_CHECKING:
    from transformers import Trainer

    from heavydistill.train.grpo.trainer import RlTrainer

TRL = "1.16"
"""Minor version of TRL whose internals the trainers depend on."""
_ROLES = {DELIBERATOR: "deliberator", JOINT: "both"}
# Logged metrics whose first and last values are stored in the record.
_RECORDED = (
    "reward",
    "frac_reward_zero_std",
    "entropy",
    "completions/mean_length",
    "groups/all_right",
    "groups/uncompared",
    "eval_hm",
    "eval_hm_garbled",
    "eval_v",
    "eval_pass_at_1",
    "claims/score",
    *JUDGE_METRICS,
    *(f"verdict/{name}" for name in METRICS),
)


@dataclass(frozen=True, slots=True)
class GrpoPlan(TrainingPlan):
    """A GRPO training with its prompts, and held-out prompts if it is evaluated."""

    arguments: TrainArguments[GrpoConfig]
    settings: RolloutSettings
    prompts: Prompts
    held_out: HeldOut | None
    judge: ResolvedRun | None = None
    """Run whose judge decides undecided responses; None without a judge."""


def prepare(arguments: TrainArguments[GrpoConfig]) -> GrpoPlan:
    """Read and check everything except the weights.

    Raises:
        UserError: The user has to correct something.
    """
    config = arguments.config
    # Checked before imports that may not exist in another version.
    installed = version("trl")
    if not installed.startswith(f"{TRL}."):
        raise ConfigError(
            f"TRL {installed} is installed, but GRPO relies on internals of TRL {TRL}",
            f"Run `pip install 'trl=={TRL}.*'`.",
        )
    launch, start = begin(arguments)
    if launch.engine.startswith("fsdp") and (not config.use_vllm or arguments.model.use_peft):
        raise ConfigError(
            "FSDP without vLLM would deadlock on responses of different lengths, and vLLM cannot "
            "load an adapter that is merged into sharded weights",
            "Give --use_vllm true and no adapter, or launch with zero2 or zero3.",
        )
    if config.use_vllm:
        require_vllm()
    sets = find_sets(config)
    base = load_base(arguments, [sets] if sets else [])
    settings = resolve(arguments, base, sets)
    prompts = read_prompts(config, base, sets, settings)
    measured_on = _held_out(config, base, sets, settings, prompts)
    judge = judge_of(config, settings.run)
    if not judge:
        roles = measured_on.roles.values() if measured_on else ()
        kinds = {*prompts.train["verifier"], *(row["verifier"] for rows in roles for row in rows)}
        registry.require_judge(kinds, config.dataset_name or config.run)
    record = new_record(
        arguments,
        base,
        launch,
        start,
        packages=["vllm"] * config.use_vllm,
        stage="grpo",
        role=_ROLES.get(str(config.mode), "thinker"),
        sets=[_used(sets, config, prompts, measured_on)] if sets else [],
        # A cache may take up the whole context except for the response.
        max_length=base.context
        if config.mode == JOINT
        else prompts.longest + config.max_completion_length,
        sequences=len(prompts.train),
        tokens=sum(prompts.lengths),
        learnt_tokens=0,
        rl=RlUsed(
            mode=config.mode,
            objective=config.objective,
            rows_of_episode=settings.episodes.size if settings.episodes else 1,
            longest_prompt=prompts.longest,
            response_tokens=config.max_completion_length,
            left_out=prompts.left_out,
            problems_sha256=prompts.problems_sha256,
            judge=rules_of(judge).name if judge else None,
            run=portable_config(settings.run) if settings.run else None,
        ),
    )
    return GrpoPlan(arguments, base, record, start, settings, prompts, measured_on, judge)


def train(plan: GrpoPlan) -> TrainingRecord:
    """Train, and write the model and its record into the output folder (``loop``)."""
    seconds = plan.arguments.config.judge_timeout_s
    with VerdictPool(plan.settings.verify) as pool, opened(plan.judge, seconds) as judge:

        def measured(trainer: Trainer, first: int) -> dict[str, object]:
            return {**_measured(trainer, first), "judging": judge and judge.judging}

        return run_training(plan, lambda: new_trainer(plan, pool, judge), measured)


def new_trainer(plan: GrpoPlan, pool: VerdictPool, judge: RolloutJudge | None = None) -> RlTrainer:
    """Return the trainer of the mode; ``pool`` judges responses, ``judge`` the undecided ones."""
    from datasets import Dataset

    from heavydistill.train.callbacks import WatchGuards
    from heavydistill.train.grpo.joint import JointTrainer
    from heavydistill.train.grpo.passk import ThinkerTrainer
    from heavydistill.train.grpo.trainer import RlTrainer

    config, base, episodes = plan.arguments.config, plan.base, plan.settings.episodes
    size = plan.record.rl.rows_of_episode if plan.record.rl else 1
    reward = VerdictReward(
        pool,
        base.chat,
        config.format_share,
        config.num_generations // size * config.deliberations,
        config.claims_share,
        judge,
    )
    roles = plan.held_out.roles if plan.held_out else {}
    options: dict[str, Any] = {
        "reward_funcs": [reward],
        "train_dataset": plan.prompts.train,
        "eval_dataset": {role: Dataset.from_list(rows) for role, rows in roles.items() if rows}
        or None,
        "judge": reward.judge,
        **trainer_options(plan),
    }
    options["callbacks"].append(WatchGuards(config, config.held_out_metric))
    trainer: RlTrainer
    if episodes:
        options["most_tokens"] = episodes.most_tokens
        trainer = JointTrainer(episodes=episodes, verdicts=pool, **options)
    elif config.mode == THINKER:
        trainer = ThinkerTrainer(pass_at_k=config.pass_at_k, **options)
    else:
        trainer = RlTrainer(**options)
    # TRL masks by these ids, some of which come from the model's configuration.
    reward.ends = frozenset([*trainer.eos_token_ids, base.tokenizer.pad_token_id])
    return trainer


def _held_out(
    config: GrpoConfig,
    base: BaseCheckpoint,
    sets: SetsFolder | None,
    settings: RolloutSettings,
    prompts: Prompts,
) -> HeldOut | None:
    if not config.looks_at_held_out:
        return None
    if config.held_out_from is None and sets is None:
        raise ConfigError(
            "eval_strategy needs held-out problems, but a run has none",
            "Give --held_out_from, a folder of sets, or --eval_strategy no.",
        )
    folder = Path(config.held_out_from or str(sets and sets.folder))
    wording = settings.run or wording_of(sets.manifest if sets else None)
    room = _room(config, base, settings)
    evaluated = held_out(
        folder,
        config.held_out,
        (lambda problem: asked_of_thinker(problem, wording)) if wording else None,
        prompts.train["text"],
        lambda role, row: base.chat.prompt_tokens(row["prompt"]) <= room[role],
        None if config.mode == THINKER else ReaderTokenizer(base.path),
    )
    check_verifiers(
        [row for rows in evaluated.roles.values() for row in rows], settings.verify, folder
    )
    role = THINKER if config.mode == THINKER else DELIBERATOR
    if not evaluated.roles[role]:
        what = "problem" if role == THINKER else "cache"
        raise ConfigError(
            f"held_out: {folder} has no held-out {what} ({evaluated.too_long:,} exceed the "
            f"{room[role]:,} tokens that a response leaves)",
            "Give another --held_out_from, a smaller max_completion_length, or no evaluation.",
        )
    return evaluated


def _room(config: GrpoConfig, base: BaseCheckpoint, settings: RolloutSettings) -> dict[str, int]:
    """Return the maximum tokens of a held-out prompt, by role."""
    most = dict.fromkeys((DELIBERATOR, THINKER), int(config.max_completion_length or 0))
    if settings.episodes:
        most = settings.episodes.most_tokens
    room = {role: context_of(config, base) - tokens for role, tokens in most.items()}
    return {**room, GARBLED: room[DELIBERATOR]}


def summary(plan: GrpoPlan) -> list[tuple[str, str]]:
    """Return the (label, text) lines that describe the training."""
    record, prompts, config = plan.record, plan.prompts, plan.arguments.config
    group = config.num_generations
    episodes = ""
    if plan.settings.episodes:
        episodes = f", {group // plan.settings.episodes.size} episodes,"
    left = ", ".join(f"{count:,} {reason}" for reason, count in prompts.left_out.items())
    unmeasured = sum("success" in row and row["success"] is None for row in prompts.train)
    source = record.sets[0].name if record.sets else str(config.run)
    lines = [
        (
            f"{source}, {config.mode}",
            f"{record.sequences:,} prompts of up to {prompts.longest:,} tokens"
            + (f", {unmeasured:,} of them unmeasured" if unmeasured else "")
            + (f"; left out {left}" if left else ""),
        ),
        (
            "a generation",
            f"{config.prompts_of_generation:,} prompts x {group} responses{episodes} of up to "
            f"{config.max_completion_length:,} tokens; {config.objective}, temperature "
            f"{config.temperature:g}",
        ),
    ]
    if plan.judge and (judge := plan.judge.judge):
        of_budget = f", at most {config.budget}" if config.budget else ""
        lines.append(
            (
                "judge",
                f"{judge.name} at {judge.endpoint.base_url}, {judge.samples} votes on each "
                f"undecided response{of_budget}; its replies are kept in "
                f"{plan.judge.config.journal}",
            )
        )
    if plan.held_out:
        each = config.num_generations_eval or group
        lines.append(("held out", f"{plan.held_out}, {each} responses each"))
    return [*lines, *common_summary(plan, config.batches(record.sequences), "responses")]


def _used(
    sets: SetsFolder, config: GrpoConfig, prompts: Prompts, measured_on: HeldOut | None
) -> SetsUsed:
    held_out = 0
    if measured_on and not config.held_out_from:
        held_out = len({row["text"] for rows in measured_on.roles.values() for row in rows})
    return SetsUsed(
        name=sets.name,
        revision=sets.revision,
        role="deliberator" if config.mode == DELIBERATOR else "thinker",
        rows={"train": len(prompts.train), "validation": held_out},
        left_out={},
        manifest=sets.manifest,
    )


def _measured(trainer: Trainer, first: int) -> dict[str, object]:
    from heavydistill.train.callbacks import WatchGuards

    history = trainer.state.log_history
    callbacks = trainer.callback_handler.callbacks
    alarms = next(each.alarms for each in callbacks if isinstance(each, WatchGuards))
    # Log entries after the checkpoint that became the final model do not describe it.
    last = step_at_end(trainer)
    of_model = [entry for entry in history if entry["step"] <= last]
    # TRL continues the token count of the training that was resumed.
    counted = [(entry["step"], entry["num_tokens"]) for entry in history if "num_tokens" in entry]
    before = max((tokens for step, tokens in counted if step <= first), default=0)
    rollouts = {}
    undecided = {name for entry in of_model for name in entry if name.startswith(UNDECIDED)}
    for name in (*_RECORDED, *sorted(undecided)):
        values = [entry[name] for entry in of_model if entry.get(name) is not None]
        if values:
            tenth = max(1, len(values) // 10)
            ends = (sum(values[:tenth]) / tenth, sum(values[-tenth:]) / tenth)
            rollouts[name] = Ends(first=ends[0], last=ends[1])
    tokens = int(max((tokens for _, tokens in counted), default=before) - before)
    return {"alarms": alarms, "tokens": tokens, "rollouts": rollouts}
