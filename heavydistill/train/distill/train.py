"""On-policy distillation from prompts to a trained model and its record.

``prepare`` reads and checks everything except the weights, of the student and of the teacher.
``train`` runs TRL's trainer: the student samples a response to each prompt, and learns the
teacher's distribution at every token of it. Responses are judged only on held-out prompts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from trl import DistillationConfig

from heavydistill.models.http.probe import probe
from heavydistill.models.http.scoring import PromptScorer
from heavydistill.models.http.transport import submit
from heavydistill.store.training_record import TrainingRecord
from heavydistill.train.arguments import TrainArguments
from heavydistill.train.distill.options import DistillOptions
from heavydistill.train.distill.served import ServedTeacher
from heavydistill.train.distill.teacher import find_teacher, load_teacher
from heavydistill.train.rollouts.config import read_rollout_arguments
from heavydistill.train.rollouts.judge import RolloutJudge
from heavydistill.train.rollouts.plan import (
    RolloutPlan,
    planned,
    rollout_options,
    run_rollouts,
    summary_of,
)
from heavydistill.train.rollouts.reward import VerdictReward
from heavydistill.verifiers.pool import VerdictPool

if TYPE_CHECKING:
    from heavydistill.train.distill.trainer import DistillTrainer


@dataclass
class DistillConfig(DistillOptions, DistillationConfig):
    """The arguments of a distillation: TRL's and ours."""


DistillPlan = RolloutPlan[DistillConfig]


def parse(arguments: Sequence[str]) -> TrainArguments[DistillConfig]:
    """Parse flags, and the YAML file that they name; raises the errors of ``read_arguments``."""
    return read_rollout_arguments(DistillOptions, DistillConfig, arguments)


def prepare(arguments: TrainArguments[DistillConfig]) -> DistillPlan:
    """Read and check everything except the weights; raises ``UserError`` on an error."""
    return planned(arguments, partial(find_teacher, arguments.config))


def train(plan: DistillPlan) -> TrainingRecord:
    """Train, and write the model and its record into the output folder (``loop``)."""
    with _scoring(plan) as scorer:
        return run_rollouts(plan, partial(new_trainer, plan, scorer=scorer))


@contextlib.contextmanager
def _scoring(plan: DistillPlan) -> Iterator[PromptScorer | None]:
    """Open the connections to the server of the teacher; None if it runs on this machine."""
    teacher = plan.teacher
    if not isinstance(teacher, ServedTeacher):
        yield None
        return
    asked = (teacher.endpoint.urls[0], teacher.profile, teacher.endpoint)
    once, again = (submit(probe(*asked)).result() for _ in range(2))
    scorer = PromptScorer(teacher.profile, teacher.endpoint, once.repeated(again))
    try:
        yield scorer
    finally:
        scorer.close()


def new_trainer(
    plan: DistillPlan,
    pool: VerdictPool,
    judge: RolloutJudge | None = None,
    scorer: PromptScorer | None = None,
) -> DistillTrainer:
    """Return TRL's trainer.

    ``pool`` judges held-out responses, ``judge`` the undecided ones; ``scorer`` is that of a served
    teacher.
    """
    from heavydistill.train.callbacks import WatchLoss
    from heavydistill.train.distill.served_trainer import ServedDistillTrainer
    from heavydistill.train.distill.trainer import DistillTrainer

    config, base, teacher = plan.arguments.config, plan.base, plan.teacher
    assert teacher, "a distillation has a teacher"
    reward = VerdictReward(pool, base.chat, judge=judge)
    options = rollout_options(plan, reward.judge)
    options["callbacks"].append(WatchLoss())
    trainer: DistillTrainer
    if isinstance(teacher, ServedTeacher):
        assert scorer, "a served teacher is asked by a scorer"
        top_k = config.top_k_of_teacher
        trainer = ServedDistillTrainer(scorer=scorer, teacher=str(teacher), top_k=top_k, **options)
    else:
        model = load_teacher(config, teacher, base, plan.record.launch)
        config.teacher_model_init_kwargs = None  # TRL refuses them beside a loaded model
        cut_to = len(base.tokenizer) if teacher.vocabulary != base.vocabulary else None
        trainer = DistillTrainer(teacher_model=model, cut_to=cut_to, **options)
    reward.ends = frozenset([*trainer.eos_token_ids, base.tokenizer.pad_token_id])
    return trainer


def summary(plan: DistillPlan) -> list[tuple[str, str]]:
    """Return the (label, text) lines that describe the training."""
    config, teacher = plan.arguments.config, plan.teacher
    assert teacher, "a distillation has a teacher"
    cut = "" if config.mask_truncated_completions else ", cut-off ones learnt too"
    text = (
        f"{config.prompts_of_generation:,} responses of up to {config.max_completion_length:,} "
        f"tokens{cut}; {config.objective}, temperature {config.temperature:g}"
    )
    lines = summary_of(plan, text, config.num_generations_eval)
    what = f"{teacher.name}, scores every token"
    if isinstance(teacher, ServedTeacher):
        asked = ", not asked in a dry run" if config.dry_run else ""
        what = f"{teacher.profile.model} at {teacher.endpoint.base_url}{asked}"
    elif teacher.vocabulary != plan.base.vocabulary:
        what += f"; both output layers are cut to the tokenizer's {len(plan.base.tokenizer):,}"
    return [*lines[:2], ("teacher", what), *lines[2:]]
