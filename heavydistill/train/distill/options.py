"""Our arguments of a distillation in addition to TRL's: the teacher, and what is learnt from.

If a field of TRL has another default here, its help text says so. Importing this module does not
import TRL, because the fields are read before TRL is loaded (see ``arguments``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from heavydistill.config.models import Endpoint
from heavydistill.config.yaml import parse as parse_section
from heavydistill.errors import ConfigError
from heavydistill.train.arguments import Refused, option
from heavydistill.train.rollouts.options import ASK, LEAVE_OUT, RolloutOptions

_OBJECTIVES = {0.0: "forward KL", 1.0: "reverse KL"}
# Keys of an endpoint that concern the requests for scores.
_OF_REQUESTS = {
    *("base_url", "api_key_env", "context", "concurrency", "requests_per_minute"),
    *("tokens_per_minute", "timeout_s", "retries"),
}
_TOP_K = 20  # what vLLM gives unless it is started with another --max-logprobs
_TEACHER = "a folder, an id on the Hub, or a profile's name; of a server, its served name"


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
        "teacher_top_k": _TOP_K,
    }
    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {
        **RolloutOptions.bounds,
        "teacher_top_k": (1, 1000),
    }
    refused: ClassVar[Refused] = {
        **RolloutOptions.refused,
        "shuffle_dataset": ((True,), "the order of the prompts depends on the seed and the epoch"),
    }

    teacher_model_name_or_path: str | None = option(
        None, f"Teacher, of the same tokenizer and chat template: {_TEACHER}."
    )
    # TRL reads the second type from a flag.
    teacher_endpoint: dict | str | None = field(  # type: ignore[type-arg]
        default=None,
        metadata={
            "help": "Address of a vLLM server with the teacher, or YAML with the keys of section "
            "`endpoint` of a run, such as `{base_url: URL, concurrency: 64}`. [default: the "
            "teacher runs on this machine]"
        },
    )
    teacher_top_k: int = option(
        _TOP_K,
        "With teacher_endpoint and beta 0: number of the teacher's likeliest tokens to learn from "
        "in each place; the server's --max-logprobs must allow it.",
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
        self.teacher_server = self._teacher_server()
        """Where the teacher is served; None if it runs on this machine."""
        if self.teacher_server:
            self._check_served()
            top = f"top {self.teacher_top_k}" if self.top_k_of_teacher else "sampled tokens"
            self.objective += f" of {top}"
        elif self.teacher_top_k != _TOP_K:
            raise ConfigError(
                "teacher_top_k is given, but a teacher on this machine gives all probabilities",
                "Leave it out, or give --teacher_endpoint.",
            )

    @property
    def top_k_of_teacher(self) -> int:
        """Return the number of likeliest tokens that a served teacher gives, 0 for none."""
        trl: Any = self
        return 0 if trl.beta else self.teacher_top_k

    def _teacher_server(self) -> Endpoint | None:
        given = self._yaml("teacher_endpoint")
        if given is None:
            return None
        tree = given if isinstance(given, dict) else {"base_url": str(given)}
        endpoint = parse_section(Endpoint, tree, "teacher_endpoint: ", "Correct the value.")
        if not endpoint.base_url:
            raise ConfigError(
                "teacher_endpoint has no base_url",
                "Start vLLM with the teacher, and give its address, e.g. http://localhost:8000/v1.",
            )
        if unused := sorted(endpoint.model_fields_set - _OF_REQUESTS):
            raise ConfigError(
                f"teacher_endpoint has {', '.join(unused)}, which no request for scores uses",
                "Leave it out.",
            )
        return endpoint

    def _check_served(self) -> None:
        """Check what a served teacher cannot do otherwise."""
        trl: Any = self
        if trl.beta not in _OBJECTIVES:
            raise ConfigError(
                f"beta is {trl.beta:g}, but a server gives the teacher's probabilities of a few "
                "tokens alone",
                "Give --beta 1 (reverse KL of the sampled tokens) or --beta 0 (forward KL of the "
                "teacher's likeliest ones), or a teacher on this machine.",
            )
        if trl.temperature != 1:
            raise ConfigError(
                f"temperature is {trl.temperature:g}, but vLLM applies none to the tokens of a "
                "prompt, so that student and teacher would be compared at different ones",
                "Give --temperature 1, or a teacher on this machine.",
            )
        if trl.beta and self.teacher_top_k != _TOP_K:
            raise ConfigError(
                "teacher_top_k is given, but with beta 1 the sampled tokens alone are scored",
                "Leave it out, or give --beta 0.",
            )
        for name in ("teacher_model_init_kwargs", "teacher_model_revision"):
            if getattr(self, name) is not None:
                raise ConfigError(
                    f"{name} is given, but the teacher is loaded by its server",
                    "Leave it out, and start the server with it.",
                )

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
        # A generation is one step.
        micro_batch = self.per_device_train_batch_size * self.distributed_state.num_processes
        return int(micro_batch * self.gradient_accumulation_steps)

    def batches(self, prompts: int) -> int:
        return int(prompts // self.prompts_of_generation * self.gradient_accumulation_steps)
