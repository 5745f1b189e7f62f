"""Small distillations of the micro student by the micro teacher, for tests."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tiny_rollouts
import trainings
from scoring_server import ScoringServer, scoring
from tiny_grpo import ON_A_CPU, STUDENT
from trainings import DISTILL

from heavydistill.store.training_record import read_record

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


def survives_a_kill(flags_of: Callable[[Path], list[str]], folder: Path) -> None:
    """Assert that a training of 6 steps, saved every 2, that is killed has the same weights."""
    killed, whole = folder / "killed", folder / "whole"
    with trainings.start(flags_of(killed), trainings.SLOW_DISK, script=DISTILL) as process:
        trainings.await_file(killed / "checkpoint-4" / "optimizer.pt", process)
        process.kill()
    assert read_record(killed).result is None
    again = [*flags_of(killed), "--resume_from_checkpoint", "true"]
    code, said = trainings.run(again, script=DISTILL)
    assert code == 0 and "resumes from checkpoint-2" in said
    assert trainings.run(flags_of(whole), script=DISTILL)[0] == 0
    assert trainings.same_weights(killed, whole)


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


@functools.cache
def _served_weights(dtype: str) -> Any:
    return teacher(dtype)


def logprobs(ids: list[int], dtype: str = "float32") -> list[list[float]]:
    """The micro teacher's log-probabilities of all words behind each token but the last."""
    import torch

    with torch.no_grad():
        logits = _served_weights(dtype)(torch.tensor([ids])).logits[0, :-1]
    rows: list[list[float]] = logits.float().log_softmax(dim=-1).tolist()
    return rows


@contextlib.contextmanager
def served_teacher(**settings: Any) -> Iterator[ScoringServer]:
    """A server that really computes the log-probabilities of the micro teacher."""
    _served_weights("float32")  # before a test forbids to load any
    split = functools.partial(tiny_rollouts.tokenizer().encode, add_special_tokens=False)
    usual = {"logprobs": logprobs, "split": split, "words": len(tiny_rollouts.tokenizer())}
    with scoring(ScoringServer(**{**usual, **settings})) as server:
        yield server


@contextlib.contextmanager
def served_trainer(
    folder: Path,
    server: ScoringServer,
    top_k: int = 0,
    own: dict[str, Any] | None = None,
    **changes: Any,
) -> Iterator[Any]:
    """A trainer whose teacher is at this server, while the block runs."""
    from heavydistill.config.models import Endpoint
    from heavydistill.models.http.scoring import PromptScorer
    from heavydistill.models.registry import profile_at
    from heavydistill.train.distill.served_trainer import ServedDistillTrainer

    endpoint = Endpoint(base_url=server.base_url, retries=1)
    scorer = PromptScorer(profile_at(server.model, endpoint), endpoint)
    keys = {"beta": 0.0 if top_k else 1.0, "teacher_endpoint": server.base_url, **changes}
    with contextlib.closing(scorer):
        yield ServedDistillTrainer(
            scorer=scorer,
            teacher="The teacher",
            top_k=top_k,
            model=STUDENT,
            args=arguments(folder, **keys),
            train_dataset=tiny_rollouts.problems(12),
            processing_class=tiny_rollouts.tokenizer(),
            **(own or {}),
        )


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
