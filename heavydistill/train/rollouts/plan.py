"""What GRPO and distillation prepare and report: a plan with prompts, its summary, its figures.

``planned`` reads and checks everything except the weights, whatever is made of the prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from heavydistill.errors import ConfigError
from heavydistill.heavy.prompts import asked_of_thinker
from heavydistill.models.resolve import ResolvedRun
from heavydistill.models.tokenizer import ReaderTokenizer
from heavydistill.store.redact import portable_config
from heavydistill.store.training_record import LEARNT, Launch, RlUsed, SetsUsed, TrainingRecord
from heavydistill.train.arguments import TrainArguments
from heavydistill.train.base_model import BaseCheckpoint, load_base
from heavydistill.train.datasets import SetsFolder
from heavydistill.train.distill.served import ServedTeacher
from heavydistill.train.held_out import GARBLED, HELD_OUT_METRICS, NONE, HeldOut, Judge, held_out
from heavydistill.train.loop import (
    TrainingPlan,
    alarms_of,
    begin,
    common_summary,
    logged_ends,
    new_record,
    run_training,
    trainer_options,
)
from heavydistill.train.rollouts.data import (
    Prompts,
    check_verifiers,
    find_sets,
    longest_response,
    read_prompts,
)
from heavydistill.train.rollouts.judge import RolloutJudge, judge_of, opened, rules_of
from heavydistill.train.rollouts.options import DELIBERATOR, JOINT, THINKER, RolloutOptions
from heavydistill.train.rollouts.resolve import RolloutSettings, context_of, resolve, wording_of
from heavydistill.train.rollouts.reward import JUDGE_METRICS, METRICS, UNDECIDED
from heavydistill.train.rollouts.vllm import require_vllm
from heavydistill.verifiers import registry
from heavydistill.verifiers.pool import VerdictPool

if TYPE_CHECKING:
    from transformers import Trainer

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
    *HELD_OUT_METRICS,
    "eval_pass_at_1",
    "claims/score",
    *JUDGE_METRICS,
    *(f"verdict/{name}" for name in METRICS),
)
_OF_DISTILLATION = (LEARNT, "loss", "completions/clipped_ratio")
Teacher = BaseCheckpoint | ServedTeacher
FindTeacher = Callable[[BaseCheckpoint, Prompts, Launch], Teacher]
"""Function that returns the teacher of a student on prompts, or raises why it cannot be one."""
R = TypeVar("R", bound=RolloutOptions)


@dataclass(frozen=True, slots=True)
class RolloutPlan(TrainingPlan, Generic[R]):
    """A training with its prompts, and held-out prompts if it is evaluated."""

    arguments: TrainArguments[R]
    settings: RolloutSettings
    prompts: Prompts
    held_out: HeldOut | None
    judge: ResolvedRun | None  # Run whose judge decides undecided responses; None without a judge
    teacher: Teacher | None  # Model that scores the responses; None if they are rewarded


def planned(
    arguments: TrainArguments[R], find_teacher: FindTeacher | None = None
) -> RolloutPlan[R]:
    """Read and check everything except the weights; raises ``UserError`` on an error."""
    config = arguments.config
    # Checked before imports that may not exist in another version.
    installed = version("trl")
    if not installed.startswith(f"{TRL}."):
        raise ConfigError(
            f"TRL {installed} is installed, but this training relies on internals of TRL {TRL}",
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
    if config.max_completion_length is None:
        config.max_completion_length = longest_response(config, sets)
    settings = resolve(arguments, base, sets)
    prompts = read_prompts(config, base, sets, settings)
    teacher = find_teacher(base, prompts, launch) if find_teacher else None
    measured_on = _held_out(config, base, sets, settings, prompts)
    is_judged = config.is_rewarded or measured_on
    judge = judge_of(config, settings.run) if is_judged else None
    if not judge:
        roles = measured_on.roles.values() if measured_on else ()
        kinds = {row["verifier"] for rows in roles for row in rows}
        kinds |= {*prompts.train["verifier"]} if config.is_rewarded else set()
        registry.require_judge(kinds, config.dataset_name or config.run)
    used = RlUsed(
        mode=config.mode,
        objective=config.objective,
        rows_of_episode=settings.episodes.size if settings.episodes else 1,
        longest_prompt=prompts.longest,
        response_tokens=config.max_completion_length,
        left_out=prompts.left_out,
        problems_sha256=prompts.problems_sha256,
        judge=rules_of(judge).name if judge else None,
        run=portable_config(settings.run) if settings.run else None,
        teacher=teacher.used if teacher else None,
    )
    record = new_record(
        arguments,
        base,
        launch,
        start,
        packages=["vllm"] * config.use_vllm,
        stage=config.script,
        role=_ROLES.get(str(config.mode), "thinker"),
        sets=[_used(sets, config, prompts, measured_on)] if sets else [],
        # A cache may take up the whole context except for the response.
        max_length=base.context
        if config.mode == JOINT
        else prompts.longest + config.max_completion_length,
        sequences=len(prompts.train),
        tokens=sum(prompts.lengths),
        learnt_tokens=0,
        rl=used,
    )
    return RolloutPlan(
        arguments, base, record, start, settings, prompts, measured_on, judge, teacher
    )


def run_rollouts(
    plan: RolloutPlan[R], new_trainer: Callable[[VerdictPool, RolloutJudge | None], Trainer]
) -> TrainingRecord:
    """Train, and write the model and its record into the output folder (``loop``).

    ``new_trainer`` gets the verifiers and the judge, which are there until the training ends.
    """
    seconds = plan.arguments.config.judge_timeout_s
    more = _OF_DISTILLATION if plan.teacher else ()
    with VerdictPool(plan.settings.verify) as pool, opened(plan.judge, seconds) as judge:

        def measured(trainer: Trainer, first: int) -> dict[str, object]:
            return {**measured_of(trainer, first, more), "judging": judge and judge.judging}

        return run_training(plan, lambda: new_trainer(pool, judge), measured)


def rollout_options(plan: RolloutPlan[R], judge: Judge) -> dict[str, Any]:
    """Return the arguments of ``trainer_options``, and those that GRPO and distillation share.

    ``judge`` judges held-out responses.
    """
    from datasets import Dataset

    from heavydistill.train.callbacks import WatchGuards

    config = plan.arguments.config
    roles = plan.held_out.roles if plan.held_out else {}
    options: dict[str, Any] = {
        "train_dataset": plan.prompts.train,
        "eval_dataset": {role: Dataset.from_list(rows) for role, rows in roles.items() if rows}
        or None,
        "judge": judge,
        **trainer_options(plan),
    }
    options["callbacks"].append(WatchGuards(config, config.held_out_metric))
    return options


def _held_out(
    config: RolloutOptions,
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
        config.held_out_none,
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


def _room(
    config: RolloutOptions, base: BaseCheckpoint, settings: RolloutSettings
) -> dict[str, int]:
    """Return the maximum tokens of a held-out prompt, by role."""
    most = dict.fromkeys((DELIBERATOR, THINKER), int(config.max_completion_length or 0))
    if settings.episodes:
        most = settings.episodes.most_tokens
    room = {role: context_of(config, base) - tokens for role, tokens in most.items()}
    return {**room, **dict.fromkeys((GARBLED, NONE), room[DELIBERATOR])}


def summary_of(plan: RolloutPlan[R], generation: str, responses: int) -> list[tuple[str, str]]:
    """Return the (label, text) lines that describe the training.

    ``generation`` says what a generation is, ``responses`` how many there are of a held-out prompt.
    """
    record, prompts, config = plan.record, plan.prompts, plan.arguments.config
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
        ("a generation", generation),
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
        lines.append(("held out", f"{plan.held_out}, {responses} responses each"))
    return [*lines, *common_summary(plan, config.batches(record.sequences), "responses")]


def _used(
    sets: SetsFolder, config: RolloutOptions, prompts: Prompts, measured_on: HeldOut | None
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


def measured_of(trainer: Trainer, first: int, more: Sequence[str] = ()) -> dict[str, object]:
    """Return the fields of the result that the log of a training has, up to the final model.

    ``first`` is the step that it resumed from; ``more`` are names of further metrics.
    """
    history = trainer.state.log_history
    # TRL continues the token count of the training that was resumed.
    counted = [(entry["step"], entry["num_tokens"]) for entry in history if "num_tokens" in entry]
    before = max((tokens for step, tokens in counted if step <= first), default=0)
    tokens = int(max((tokens for _, tokens in counted), default=before) - before)
    undecided = {name for entry in history for name in entry if name.startswith(UNDECIDED)}
    rollouts = logged_ends(trainer, [*_RECORDED, *more, *sorted(undecided)])
    return {"alarms": alarms_of(trainer), "tokens": tokens, "rollouts": rollouts}
