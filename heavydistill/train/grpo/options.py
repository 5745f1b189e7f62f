"""What GRPO accepts beside TRL's arguments: who learns, from which prompts, for which reward.

Where a field of TRL's has another default here, its help says so; those of ``PRESETS`` have the
preset's value unless they are given. Importing this module does not import TRL: its fields are read
before that, see ``arguments``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from heavydistill.config.run import Verifying
from heavydistill.config.yaml import parse as parse_section
from heavydistill.errors import ConfigError
from heavydistill.train.arguments import Refused, TrainingOptions, option
from heavydistill.train.fields import arguments_of
from heavydistill.train.grpo.guards import OFF, WARN, GuardOptions, check_guards

DELIBERATOR, JOINT, THINKER = MODES = ("deliberator", "joint", "thinker")
ASK, LEAVE_OUT = "ask", "leave_out"
HM, PASS_AT_1 = "eval_hm", "eval_pass_at_1"
STEPS = 4
"""Optimizer steps that learn from one generation, where nothing else is said: in the first of them
every ratio is 1, so that fewer would leave nothing to clip."""
GSPO, DAPO, DR_GRPO = "gspo", "dapo", "dr_grpo"
_OF_TOKENS = {"importance_sampling_level": "token", "beta": 0.0, "epsilon": 0.2}
PRESETS: dict[str, dict[str, Any]] = {
    # One ratio for a whole response, clipped as in arXiv 2507.18071; what HeavySkill ran
    # (arXiv 2605.02396, appendix B), which gives no number of it.
    GSPO: {
        **{"importance_sampling_level": "sequence", "loss_type": "grpo", "beta": 0.0},
        **{"epsilon": 3e-4, "epsilon_high": 4e-4},
    },
    # All tokens of a step weigh the same, more room upward (arXiv 2503.14476). Its dynamic sampling
    # is our filter of prompts, before a stage.
    DAPO: {**_OF_TOKENS, "loss_type": "dapo", "epsilon_high": 0.28},
    # Neither lengths nor the spread of a group's rewards weigh in (arXiv 2503.20783).
    DR_GRPO: {**_OF_TOKENS, "loss_type": "dr_grpo", "scale_rewards": "none"},
}
# What is measured in any case where the role that learns last is, and is better the higher it is.
_MEASURED = {HM: (HM, "eval_hm_minus_v"), PASS_AT_1: (PASS_AT_1, "eval_pass_at_d")}
_NEUTRAL = {
    **{"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "disable_dropout": True},
    **dict.fromkeys(("vllm_structured_outputs_regex", "generation_kwargs", "neftune_noise_alpha")),
}
_SAMPLED = "what is learnt is what the model itself would write; ratios are of its distribution"
_ONE_REWARD = "there is one reward, the verdict; format_share is its share of form"
_GUARDS = {field.name: field.default for field in dataclasses.fields(GuardOptions)}
# Least and largest value of numbers that TRL takes as they are; more form would be learnt in place
# of what is right.
_BOUNDS = {
    **{"temperature": (0.01, 100), "max_completion_length": (1, 1_000_000)},
    **dict.fromkeys(("epsilon", "epsilon_high", "beta"), (0, 1000)),
    **dict.fromkeys(("top_entropy_quantile", "max_accuracy"), (0, 1)),
    **{"format_share": (0, 0.05), "held_out": (1, 1_000_000), "num_generations_eval": (1, 1000)},
    **{name: (0, 1) for name, default in _GUARDS.items() if isinstance(default, float)},
    **{name: (1, 1000) for name, default in _GUARDS.items() if isinstance(default, int)},
}


def _of_preset(what: str) -> Any:
    return option(None, f"{what}. [default: the preset's, or else TRL's]")


@dataclass
class GrpoModelOptions:
    """Our defaults of TRL's arguments of the model."""

    lora_dropout: float = option(0.0, "Always 0: it would add noise to the importance ratios.")


@dataclass
class GrpoOptions(GuardOptions, TrainingOptions):
    """Our arguments of GRPO."""

    script: ClassVar[str] = "grpo"
    trl_config: ClassVar[str] = "GRPOConfig"
    model_options: ClassVar[type | None] = GrpoModelOptions
    recorded: ClassVar[Mapping[str, Any]] = {
        "preset": GSPO,
        "pass_at_k": 1,
        "format_share": 0.0,
        "max_accuracy": None,
        "unmeasured": LEAVE_OUT,
        "too_long": "refuse",
        "held_out": 128,
        **_GUARDS,
        "guard_evaluation": WARN,
    }
    refused: ClassVar[Refused] = {
        **{name: ((value,), _SAMPLED) for name, value in _NEUTRAL.items()},
        "label_smoothing_factor": ((0.0,), "the loss has no labels"),
        "train_sampling_strategy": (("random",), "prompts are drawn in groups"),
        "logging_strategy": (("steps", "epoch"), "guards and curves are made of what is logged"),
        "pad_to_multiple_of": ((None,), "columns that are padding in all rows are left out"),
        "remove_unused_columns": ((False,), "the reward judges by the columns of a problem"),
        "reward_weights": ((None,), _ONE_REWARD),
        "multi_objective_aggregation": (("sum_then_normalize",), _ONE_REWARD),
        "chat_template_kwargs": ((None,), "prompts are rendered as the sets and the model have it"),
        "max_tool_calling_iterations": ((None,), "there are no tools"),
        "log_completions_hub_repo": ((None,), "prompts and responses would be published unread"),
    }

    mode: str | None = option(
        None,
        "Who learns: a deliberator, from caches that are there; joint: K thinkers and a "
        "deliberation on their attempts, as one episode; or a thinker, from problems.",
        *MODES,
    )
    preset: str = option(
        GSPO,
        "How rewards become steps: sets loss_type, importance_sampling_level, epsilon and the "
        "like where they are not given.",
        *PRESETS,
    )
    dataset_name: str | None = option(
        None,
        "Folder of sets from `heavydistill build` or `refilter`, or its id on the Hub.",
    )
    run: str | None = option(
        None,
        "Instead, for thinkers and joint: configuration of a run (`heavydistill generate "
        "--config`), whose problems are asked in its way; the model that is trained answers.",
    )
    max_accuracy: float | None = option(
        None,
        "Deliberator: only caches in which at most this share of the attempts is right.",
    )
    unmeasured: str = option(
        LEAVE_OUT,
        "Deliberator: caches on which too few deliberations were judged to tell: `leave_out`, or "
        "`ask` them as well, as in the paper; some of them teach nothing.",
        LEAVE_OUT,
        ASK,
    )
    too_long: str = option(
        "refuse",
        "Prompts that leave no room for max_completion_length in the model's context: `refuse` to "
        "train, or `leave_out` and count them. They are never cut.",
        "refuse",
        "leave_out",
    )
    pass_at_k: int = option(
        1,
        "Thinker: raise the chance that one of so many attempts is right. 1 is plain RLVR; more "
        "is an extension of ours, for a pool that a deliberator reads.",
    )
    format_share: float = option(
        0.0,
        "Share of the reward that a response earns by its form alone, right or wrong: thinking "
        "that ends, and one final answer. At most 0.05.",
    )
    verify: dict | None = field(  # type: ignore[type-arg]
        default=None,
        metadata={
            "help": "In the file: how answers are judged, with the keys of the section `verify` of "
            "a run (workers, timeout_s, memory_mb, sandbox, own)."
        },
    )
    held_out: int = option(
        128,
        "With eval_strategy: maximum number of held-out caches, and of problems, that an "
        "evaluation asks about, each num_generations_eval times.",
    )
    held_out_from: str | None = option(
        None,
        "Folder of sets whose validation problems are held out. [default: that of dataset_name]",
    )
    chat_template_path: str | None = option(
        None, "Jinja file with the chat template, in place of that of the sets or the model."
    )
    # TRL's, with other defaults.
    loss_type: str | None = _of_preset("Loss")
    importance_sampling_level: str | None = _of_preset(
        "What has a ratio of its own: token or sequence"
    )
    scale_rewards: str | None = _of_preset(
        "Whose standard deviation divides rewards: group, batch, or none"
    )
    epsilon: float | None = _of_preset("Lower bound of clipping")
    epsilon_high: float | None = _of_preset("Upper bound of clipping")
    beta: float | None = _of_preset("Weight of the KL term; 0 loads no reference model")
    mask_truncated_completions: bool = option(
        True, "Learn nothing of what was cut off: it is neither right nor wrong."
    )
    min_p: float | None = option(0.0, "Always 0; at TRL's default a model's own would count.")
    disable_dropout: bool = option(True, "Always true, so that the ratio of the same weights is 1.")
    vllm_importance_sampling_mode: str = option(
        "token_truncate",
        "Correction of what vLLM samples. The ratio of a whole long response is nearly always out "
        "of bounds.",
    )

    def __post_init__(self) -> None:
        self._check_sources()
        trl: Any = self  # its fields of TRL have no types here
        usual = arguments_of("trl", self.trl_config)
        for name in {name for preset in PRESETS.values() for name in preset}:
            if getattr(self, name) is None:
                setattr(self, name, PRESETS[self.preset].get(name, usual[name].default))
        if trl.steps_per_generation is None and trl.generation_batch_size is None:
            trl.steps_per_generation = STEPS * trl.gradient_accumulation_steps
        is_evaluated = trl.eval_strategy != "no"
        if trl.do_eval and not is_evaluated:
            raise ConfigError(
                "do_eval is given, and eval_strategy does not say when",
                "Give --eval_strategy steps.",
            )
        if self.guard_evaluation is None:
            self.guard_evaluation = WARN if is_evaluated else OFF
        if is_evaluated and trl.metric_for_best_model is None:
            trl.metric_for_best_model = self.held_out_metric
        super().__post_init__()
        self._check_values()
        check_guards(self)
        fix = "Correct the value in the file."
        # How answers are judged, where the run does not say it.
        self.verifying = parse_section(Verifying, dict(self.verify or {}), "verify: ", fix)

    @property
    def looks_at_held_out(self) -> bool:
        """Whether the model is measured while it trains."""
        return bool(self.do_eval or self.eval_on_start)

    @property
    def held_out_metric(self) -> str:
        """What a model is measured by while it trains: the role that learns last."""
        return PASS_AT_1 if self.mode == THINKER else HM

    @property
    def prompts_of_generation(self) -> int:
        """Number of prompts that are asked at once, ``num_generations`` times each."""
        return int(self.generation_batch_size // self.num_generations)

    def batches(self, prompts: int) -> int:
        """Micro-batches of an epoch, as TRL's sampler counts them.

        Prompts that fill no generation are left to another epoch, which draws another order.
        """
        generations = prompts // self.prompts_of_generation
        return int(generations * self.steps_per_generation * self.num_iterations)

    def check_episodes(self, k: int) -> None:
        """Refuse groups and micro-batches that are not whole episodes of K + 1 responses."""
        size = k + 1
        group, per_device = self.num_generations, self.per_device_train_batch_size
        if group % size or group < 2 * size or per_device % size:
            raise ConfigError(
                f"num_generations {group} and per_device_train_batch_size {per_device} are not "
                f"whole episodes of K + 1 = {size} responses, two or more to a problem",
                f"Give multiples of {size}, such as --num_generations {2 * size} "
                f"--per_device_train_batch_size {size}.",
            )

    def _check_sources(self) -> None:
        if self.mode is None:
            raise ConfigError(
                "Who learns is not said",
                f"Give --config FILE, such as one of configs/grpo, or --mode: {', '.join(MODES)}.",
            )
        if self.dataset_name and self.run:
            raise ConfigError("Both dataset_name and run are given", "Leave out one of the two.")
        if self.mode == DELIBERATOR and self.run:
            raise ConfigError(
                "run is given, and a deliberator learns from caches that are there",
                "Give --dataset_name, or --mode joint, in which caches are made as it learns.",
            )
        if not (self.dataset_name or self.run):
            raise ConfigError(
                "There is nothing to learn from",
                "Give --dataset_name, a folder from `heavydistill build` or its Hub id; or for "
                "thinkers --run, the configuration of a run.",
            )
        if self.run and self.verify is not None:
            raise ConfigError(
                "verify is given beside run, which has a section of that name", "Say it there."
            )
        is_of_caches = self.max_accuracy is not None or self.unmeasured != LEAVE_OUT
        if self.mode != DELIBERATOR and is_of_caches:
            raise ConfigError(
                f"max_accuracy and unmeasured choose caches, and a {self.mode} training has none",
                "Leave them out.",
            )

    def _check_values(self) -> None:
        """What TRL takes as it is, or notices only when it trains."""
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ConfigError(
                    f"{name}: {value} is not between {least:g} and {most:g}", "Give such a number."
                )
        measured, metric = _MEASURED[self.held_out_metric], str(self.metric_for_best_model)
        if self.eval_strategy != "no" and f"eval_{metric.removeprefix('eval_')}" not in measured:
            raise ConfigError(
                f"metric_for_best_model: {metric!r} is no measure of a {self.mode} training",
                f"Give {' or '.join(measured)}, or leave it out.",
            )
        k, group = self.pass_at_k, self.num_generations
        if k != 1 and self.mode != THINKER:
            raise ConfigError(
                f"pass_at_k is {k}, and the mode is {self.mode}",
                "Leave it out, or give --mode thinker.",
            )
        if k < 1 or (k > 1 and k >= group):
            raise ConfigError(
                f"pass_at_k: {k} is not between 1 and num_generations - 1, which is {group - 1}",
                "Give a smaller pass_at_k, or a larger num_generations.",
            )
        if k > 1 and self.scale_rewards != "none":
            raise ConfigError(
                f"pass_at_k is {k}, and with scale_rewards {self.scale_rewards!r} the advantage "
                "would be that of pass@1",
                "Give --scale_rewards none.",
            )
