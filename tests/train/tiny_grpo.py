"""Small GRPO trainings of the micro student with scripted rewards, for tests."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from heavydistill.train.rollouts.reward import Reward

RIGHT, WRONG = Reward(1.0, "correct", "equal"), Reward(0.0, "", "different")
STUDENT = str(Path(__file__).parents[2] / "heavydistill" / "micro" / "student")


def rows(number: int, **more: Any) -> list[dict[str, Any]]:
    """Problems, as a trainer gets them."""
    return [
        {
            "prompt": [{"role": "user", "content": f"What is {n} + 1?"}],
            "problem": f"p{n}",
            "text": f"What is {n} + 1?",
            "reference": str(n + 1),
            "verifier": "math",
            "verifier_args": "{}",
            **more,
        }
        for n in range(number)
    ]


SHOWN = ["1 + 1 = 2, 2 + 3 = 5", "1 + 1 = 2, 2 + 3 = 6"]
"""Answer texts of the attempts in held-out caches: they agree on a step, and part at one."""


def held_out(number: int, vote: float = 0.5) -> dict[str, Any]:
    """Held-out rows of both roles."""
    from datasets import Dataset

    return {
        "deliberator": Dataset.from_list(rows(number, cache="c", vote=vote, shown=SHOWN)),
        "thinker": Dataset.from_list(rows(number)),
    }


ON_A_CPU: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "report_to": "none",
    "save_strategy": "no",
    "disable_tqdm": True,
    "logging_steps": 1,
    "model_init_kwargs": {"dtype": "float32"},
}
"""Arguments of TRL for the tests of both kinds of trainings."""


def arguments(folder: Path, **changes: Any) -> Any:
    """Of a training of 6 steps, each on 2 groups of 2 short answers."""
    from trl import GRPOConfig

    usual: dict[str, Any] = {
        "max_steps": 6,
        "learning_rate": 1e-3,
        "num_generations": 2,
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 4,
        "max_completion_length": 4,
    }
    return GRPOConfig(str(folder), **{**ON_A_CPU, **usual, **changes})


def varied(completion_ids: Sequence[Sequence[int]]) -> list[float]:
    """A reward from 0 to 1 that differs within groups."""
    return [sum(ids) % 97 / 96 for ids in completion_ids]


def rewarding(**metrics: Callable[[int], float]) -> Callable[..., Any]:
    """A reward that logs these metrics, of the step; two underscores stand for a slash."""

    def reward(
        completion_ids: Any, log_metric: Any, trainer_state: Any, **_: Any
    ) -> list[float | None]:
        for name, value in metrics.items():
            log_metric(name.replace("__", "/"), value(trainer_state.global_step + 1))
        return list(varied(completion_ids))

    return reward


class Scripted:
    """A judge: of each evaluation, so many of the first role's answers are right, and no other's.

    It keeps (rows, completion ids) of each call in ``seen``.
    """

    def __init__(self, *shares: float) -> None:
        self._shares = list(shares)
        self.seen: list[tuple[list[Any], list[list[int]]]] = []

    def __call__(
        self, rows: Sequence[Mapping[str, Any]], completion_ids: Sequence[Sequence[int]]
    ) -> list[Reward]:
        self.seen.append((list(rows), [list(ids) for ids in completion_ids]))
        if "vote" not in rows[0]:
            return [WRONG] * len(rows)
        right = round(self._shares.pop(0) * len(rows)) if self._shares else 0
        return [RIGHT if number < right else WRONG for number in range(len(rows))]


def trainer(
    folder: Path, reward: Callable[..., Any], callbacks: Sequence[Any] = (), **options: Any
) -> Any:
    """A trainer that measures; options of its own, and arguments of TRL."""
    from datasets import Dataset
    from transformers import AutoTokenizer

    from heavydistill.train.grpo.passk import ThinkerTrainer

    names = ("judge", "most_tokens", "eval_dataset")
    own = {name: options.pop(name) for name in names if name in options}
    return ThinkerTrainer(
        pass_at_k=options.pop("pass_at_k", 1),
        model=STUDENT,
        args=arguments(folder, **options),
        train_dataset=Dataset.from_list(rows(12)),
        reward_funcs=reward,
        processing_class=AutoTokenizer.from_pretrained(STUDENT),
        callbacks=list(callbacks),
        **own,
    )
