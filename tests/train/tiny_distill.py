"""Small distillations of the micro student by the micro teacher, for tests."""

from pathlib import Path
from typing import Any

import tiny_rollouts
import trainings
from tiny_grpo import ON_A_CPU, STUDENT

_USUAL = {
    "mode": "deliberator",
    "teacher_model_name_or_path": "micro",
    "per_device_train_batch_size": 2,
    "learning_rate": 1e-4,
    "report_to": "none",
}
TEACHER = str(Path(STUDENT).with_name("teacher"))


def distill_flags(sets: Path | str | None, out: Path | str, **keys: Any) -> list[str]:
    """Those of a short distillation; a key that is None is not given."""
    return trainings.flags(sets, out, _USUAL, **keys)


def arguments(folder: Path, **changes: Any) -> Any:
    """Of a distillation of short answers to problems."""
    from heavydistill.train.distill.train import DistillConfig

    usual: dict[str, Any] = {
        "mode": "thinker",
        "dataset_name": "sets",
        "teacher_model_name_or_path": TEACHER,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "max_completion_length": 8,
        "learning_rate": 1e-3,
    }
    return DistillConfig(str(folder), **{**ON_A_CPU, **usual, **changes})


def teacher(dtype: str = "float32") -> Any:
    """The weights of the micro teacher."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(TEACHER, dtype=getattr(torch, dtype))


def trainer(
    folder: Path, number: int = 12, own: dict[str, Any] | None = None, **changes: Any
) -> Any:
    """A trainer of so many problems; options of its own, and arguments of TRL."""
    from heavydistill.train.distill.trainer import DistillTrainer

    options = {
        "model": STUDENT,
        "teacher_model": None,
        "train_dataset": tiny_rollouts.problems(number),
        **(own or {}),
    }
    options["teacher_model"] = options["teacher_model"] or teacher()
    return DistillTrainer(
        args=arguments(folder, **changes), processing_class=tiny_rollouts.tokenizer(), **options
    )
