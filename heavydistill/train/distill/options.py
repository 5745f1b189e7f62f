"""Our arguments of a distillation in addition to TRL's: the teacher, and what is learnt from.

If a field of TRL has another default here, its help text says so. Importing this module does not
import TRL, because the fields are read before TRL is loaded (see ``arguments``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from heavydistill.errors import ConfigError
from heavydistill.train.arguments import Refused, option
from heavydistill.train.rollouts.options import ASK, LEAVE_OUT, RolloutOptions

_OBJECTIVES = {0.0: "forward KL", 1.0: "reverse KL"}
_TEACHER = "a folder, an id on the Hub, or a profile's name"


@dataclass
class DistillOptions(RolloutOptions):
    """Our arguments of a distillation.

    A ``max_completion_length`` of None is replaced by the longest response in the sets.
    """

    script: ClassVar[str] = "distill"
    trl_config: ClassVar[str] = "DistillationConfig"
    is_rewarded: ClassVar[bool] = False
    recorded: ClassVar[Mapping[str, object]] = {
        **RolloutOptions.recorded,
        "unmeasured": ASK,
        "mask_truncated_completions": True,
    }
    refused: ClassVar[Refused] = {
        **RolloutOptions.refused,
        "shuffle_dataset": ((True,), "the order of the prompts depends on the seed and the epoch"),
    }

    teacher_model_name_or_path: str | None = option(
        None, f"Teacher, of the same tokenizer and chat template: {_TEACHER}."
    )
    unmeasured: str = option(
        ASK,
        "Deliberator: what to do with caches that are not in the set `rl`, because fewer than two "
        "deliberations on them are judged, or all or none are right: `ask` them too, since a "
        "teacher needs no reward, or `leave_out`.",
        LEAVE_OUT,
        ASK,
    )
    mask_truncated_completions: bool = option(
        True,
        "Leave responses that were cut off out of the loss. With false they are learnt up to the "
        "cut, and loops that never end weigh most.",
    )
    num_generations_eval: int = option(
        1, "Number of responses to each held-out prompt in an evaluation."
    )
    # TRL's default of 512 would cut off most deliberations.
    max_completion_length: int | None = option(  # type: ignore[assignment]
        None,
        "Maximum number of tokens of a response. [default: the longest response of the role in "
        "the rows for SFT of dataset_name]",
    )

    @classmethod
    def check_given(cls, values: Mapping[str, object]) -> None:
        """Raise an error if no student or no teacher is named."""
        super().check_given(values)
        if not values.get("teacher_model_name_or_path"):
            raise ConfigError(
                "No teacher is given", f"Give --teacher_model_name_or_path: {_TEACHER}."
            )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.looks_at_held_out:
            self._refuse_judging()
        trl: Any = self  # its fields have no types here
        self.objective = _OBJECTIVES.get(trl.beta, f"generalized JSD, beta {trl.beta:g}")
        """Name of the divergence of student and teacher."""

    def _refuse_judging(self) -> None:
        given = {"prompts.judge": self.own_prompts.judge}
        given |= {name: getattr(self, name) for name in ("judge", "budget", "journal", "verify")}
        if name := next((name for name, value in given.items() if value), None):
            raise ConfigError(
                f"{name} is given, but a distillation judges only held-out responses, and nothing "
                "is evaluated",
                "Give --eval_strategy steps, or leave it out.",
            )

    @property
    def prompts_of_generation(self) -> int:
        """Return the number of prompts in a generation batch, which is one step."""
        processes = self.distributed_state.num_processes
        steps = self.per_device_train_batch_size * self.gradient_accumulation_steps
        return int(steps * processes)

    def batches(self, prompts: int) -> int:
        """Return the number of micro-batches of an epoch, as TRL's sampler counts them."""
        return int(prompts // self.prompts_of_generation * self.gradient_accumulation_steps)
