"""Our arguments of GRPO in addition to TRL's: mode, prompts, reward and presets.

If a field of TRL has another default here, its help text says so. Fields in ``PRESETS`` have the
preset's value unless they are given. Importing this module does not import TRL, because the fields
are read before TRL is loaded (see ``arguments``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from yaml import YAMLError

from heavydistill.config.models import Judge
from heavydistill.config.prompts import OwnPrompts
from heavydistill.config.run import Verifying
from heavydistill.config.yaml import parse as parse_section
from heavydistill.config.yaml import parse_yaml
from heavydistill.errors import ConfigError
from heavydistill.train.arguments import Refused, TrainingOptions, option
from heavydistill.train.fields import arguments_of
from heavydistill.train.guards import OFF, WARN, GuardOptions, check_guards

DELIBERATOR, JOINT, THINKER = MODES = ("deliberator", "joint", "thinker")
ASK, LEAVE_OUT = "ask", "leave_out"
HM, PASS_AT_1 = "eval_hm", "eval_pass_at_1"
STEPS = 4
"""Default number of optimizer steps per generation batch. In the first step every ratio is 1, so
that with a single step clipping would have no effect."""
GSPO, DAPO, DR_GRPO, CISPO = "gspo", "dapo", "dr_grpo", "cispo"
_Preset = dict[str, float | str]
_OF_TOKENS: _Preset = {"importance_sampling_level": "token", "beta": 0.0, "epsilon": 0.2}
PRESETS: dict[str, _Preset] = {
    # One ratio for a whole response, clipped as in arXiv 2507.18071. HeavySkill used GSPO (arXiv
    # 2605.02396, appendix B) but gives no values.
    GSPO: {
        **{"importance_sampling_level": "sequence", "loss_type": "grpo", "beta": 0.0},
        **{"epsilon": 3e-4, "epsilon_high": 4e-4},
    },
    # All tokens of a step have the same weight, and the upper clipping bound is higher (arXiv
    # 2503.14476). Prompts are filtered before the training instead of dynamically.
    DAPO: {**_OF_TOKENS, "loss_type": "dapo", "epsilon_high": 0.28},
    # Independent of response lengths and of the spread of rewards in a group (arXiv 2503.20783).
    DR_GRPO: {**_OF_TOKENS, "loss_type": "dr_grpo", "scale_rewards": "none"},
    # No token is left out: a ratio weighs its token up to a bound (arXiv 2506.13585), which TRL
    # takes from epsilon_high as it is, without adding 1. The value is that of arXiv 2510.13786.
    CISPO: {**_OF_TOKENS, "loss_type": "cispo", "epsilon_high": 5.0},
}
_COUPLED = tuple(sorted({name for preset in PRESETS.values() for name in preset}))
# Keys with the bounds of the ratio, by loss; the other losses use both.
_BOUNDS_OF_LOSS = {CISPO: ("epsilon_high",), "sapo": (), "vespo": ()}
# The metric of the last trained role, and a second metric for selecting the best checkpoint.
_MEASURED = {HM: (HM, "eval_hm_minus_v"), PASS_AT_1: (PASS_AT_1, "eval_pass_at_d")}
_NEUTRAL = {
    **{"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "disable_dropout": True},
    **dict.fromkeys(("vllm_structured_outputs_regex", "generation_kwargs", "neftune_noise_alpha")),
}
_SAMPLED = "responses must be samples of the model's own distribution, which the ratios assume"
_ONE_REWARD = "there is one reward, the verdict; format_share and claims_share add to it"
# Keys that have an effect in one mode alone. In others, the reward also teaches attempts, so that
# with a share for claims those that are easy to judge would pay.
_OF_MODE = {
    **dict.fromkeys(("max_accuracy", "unmeasured", "claims_share"), DELIBERATOR),
    **{"deliberations": JOINT, "pass_at_k": THINKER},
}
_GUARDS = {field.name: field.default for field in dataclasses.fields(GuardOptions)}
# Bounds that TRL does not check. Larger shares would outweigh correctness.
_BOUNDS = {
    **{"temperature": (0.01, 100), "max_completion_length": (1, 1_000_000)},
    **dict.fromkeys(("epsilon", "epsilon_high", "beta"), (0, 1000)),
    **dict.fromkeys(("top_entropy_quantile", "max_accuracy"), (0, 1)),
    **{
        "format_share": (0, 0.05),
        "claims_share": (0, 0.3),
        "held_out": (1, 1_000_000),
        "num_generations_eval": (1, 1000),
        "judge_timeout_s": (1, 86_400),
        "deliberations": (1, 64),
    },
    **{name: (0, 1) for name, default in _GUARDS.items() if isinstance(default, float)},
    **{name: (1, 1000) for name, default in _GUARDS.items() if isinstance(default, int)},
}


def _of_preset(what: str) -> Any:
    return option(None, f"{what}. [default: that of the preset, or else of TRL]")


@dataclass
class GrpoModelOptions:
    """Our defaults for TRL's model arguments."""

    lora_dropout: float = option(0.0, "Always 0: dropout adds noise to the importance ratios.")


@dataclass
class GrpoOptions(GuardOptions, TrainingOptions):
    """Our arguments of GRPO."""

    script: ClassVar[str] = "grpo"
    trl_config: ClassVar[str] = "GRPOConfig"
    model_options: ClassVar[type | None] = GrpoModelOptions
    recorded: ClassVar[Mapping[str, object]] = {
        "preset": GSPO,
        "pass_at_k": 1,
        "deliberations": 1,
        "format_share": 0.0,
        "claims_share": 0.0,
        "max_accuracy": None,
        "unmeasured": LEAVE_OUT,
        "too_long": "refuse",
        "held_out": 128,
        **_GUARDS,
        "guard_evaluation": WARN,
        "guard_reading": WARN,
    }
    refused: ClassVar[Refused] = {
        **{name: ((value,), _SAMPLED) for name, value in _NEUTRAL.items()},
        "label_smoothing_factor": ((0.0,), "the loss has no labels"),
        "train_sampling_strategy": (("random",), "prompts are drawn in groups"),
        "logging_strategy": (("steps", "epoch"), "guards and curves need the log"),
        "pad_to_multiple_of": ((None,), "columns of padding are removed"),
        "remove_unused_columns": ((False,), "the reward needs the columns of a problem"),
        "reward_weights": ((None,), _ONE_REWARD),
        "multi_objective_aggregation": (("sum_then_normalize",), _ONE_REWARD),
        "chat_template_kwargs": (
            (None,),
            "prompts are rendered with the template of the sets or the model",
        ),
        "max_tool_calling_iterations": ((None,), "there are no tools"),
        "log_completions_hub_repo": ((None,), "prompts and responses would be published unread"),
    }

    mode: str | None = option(
        None,
        "What is trained: a deliberator, on existing caches; joint: K attempts and deliberations "
        "on them, as one episode; or a thinker, on problems.",
        *MODES,
    )
    preset: str = option(
        GSPO,
        "Objective: sets loss_type, importance_sampling_level, epsilon, epsilon_high, beta and "
        "scale_rewards where they are not given.",
        *PRESETS,
    )
    dataset_name: str | None = option(
        None, "Folder of sets from `heavydistill build` or `refilter`, or its id on the Hub."
    )
    run: str | None = option(
        None,
        "Configuration file of `heavydistill generate`, in place of dataset_name, for thinker and "
        "joint: its problems, prompts and K are used; the trained model answers.",
    )
    max_accuracy: float | None = option(
        None, "Deliberator: train only on caches with at most this share of correct attempts."
    )
    unmeasured: str = option(
        LEAVE_OUT,
        "Deliberator: what to do with caches that have fewer than two judged deliberations: "
        "`leave_out`, or `ask` them too, as in the paper; some of them give no signal.",
        LEAVE_OUT,
        ASK,
    )
    too_long: str = option(
        "refuse",
        "What to do with prompts that leave no room for max_completion_length in the model's "
        "context: `refuse` to train, or `leave_out` and count them. They are never cut.",
        "refuse",
        "leave_out",
    )
    pass_at_k: int = option(
        1,
        "Thinker: number of attempts of which one must be right. 1 is plain RLVR; a larger number "
        "trains for pools that a deliberator reads, and is an extension of ours.",
    )
    deliberations: int = option(
        1,
        "Joint: number of deliberations in an episode, D; its reward is their mean. K is that of "
        "the run.",
    )
    format_share: float = option(
        0.0,
        "Share of the reward for the form of a response alone, right or wrong: thinking that "
        "ends, and one final answer. At most 0.05.",
    )
    claims_share: float = option(
        0.0,
        "Deliberator: share of the reward for true claims about the attempts, whether the answer "
        "is correct or not; see the training guide. At most 0.3, with scale_rewards none.",
    )
    verify: dict | None = field(  # type: ignore[type-arg]
        default=None,
        metadata={
            "help": "In the file: how answers are judged, with the keys of section `verify` of a "
            "run (workers, timeout_s, memory_mb, sandbox, own)."
        },
    )
    # TRL reads the second type from a flag.
    judge: dict | str | None = field(  # type: ignore[type-arg]
        default=None,
        metadata={
            "help": "Model that decides responses which the verifiers leave undecided: YAML with "
            "the keys of section `judge` of a run, such as `{model: NAME, endpoint: {base_url: "
            "URL}}`. [default: that of run]"
        },
    )
    # As for ``judge``.
    prompts: dict | str | None = field(  # type: ignore[type-arg]
        default=None,
        metadata={
            "help": "Prompts of yours, as in section `prompts` of a run: YAML such as `{thinker: "
            "my.md, judge: my.md}`; beside dataset_name. [default: those of the sets]"
        },
    )
    judge_timeout_s: float = option(
        120.0,
        "Maximum number of seconds that a generation waits for the judge; a response without an "
        "answer by then has no reward.",
    )
    budget: str | None = option(
        None,
        "Maximum cost of the judge, e.g. 25usd or 40Mtok, for all trainings into output_dir "
        "together. When it is spent, the training goes on without the judge.",
    )
    journal: str | None = option(
        None,
        "Folder that keeps every reply of the judge. [default: `journal` in the folder that "
        "contains output_dir]",
    )
    held_out: int = option(
        128,
        "With eval_strategy: maximum number of held-out caches, and of held-out problems; each is "
        "asked num_generations_eval times.",
    )
    held_out_from: str | None = option(
        None,
        "Folder of sets whose validation problems are held out. [default: that of dataset_name]",
    )
    chat_template_path: str | None = option(
        None, "Jinja file with the chat template [default: that of the sets, or else of the model]."
    )
    # TRL fields with other defaults.
    loss_type: str | None = _of_preset("Loss")
    importance_sampling_level: str | None = _of_preset(
        "Unit with an importance ratio of its own: token or sequence"
    )
    scale_rewards: str | None = _of_preset(
        "Standard deviation that divides the rewards: group, batch or none"
    )
    epsilon: float | None = _of_preset("Lower clipping range")
    epsilon_high: float | None = _of_preset("Upper clipping range")
    beta: float | None = _of_preset("Weight of the KL term; 0 loads no reference model")
    mask_truncated_completions: bool = option(
        True, "Leave responses that were cut off out of the loss: they are neither right nor wrong."
    )
    min_p: float | None = option(
        0.0, "Always 0: TRL's default (None) would use the value of the model's generation config."
    )
    disable_dropout: bool = option(
        True, "Always true: the importance ratios must be 1 until the weights change."
    )
    vllm_importance_sampling_mode: str = option(
        "token_truncate",
        "Correction, per token, for the difference between the probabilities of vLLM and of the "
        "trainer. Their ratio for a whole long response would nearly always exceed the bounds.",
    )

    def __post_init__(self) -> None:
        self._check_sources()
        trl: Any = self  # its fields have no types here
        self._apply_preset()
        if trl.steps_per_generation is None and trl.generation_batch_size is None:
            trl.steps_per_generation = STEPS * trl.gradient_accumulation_steps
        is_evaluated = trl.eval_strategy != "no"
        if trl.do_eval and not is_evaluated:
            raise ConfigError(
                "do_eval is given without eval_strategy", "Give --eval_strategy steps."
            )
        if self.guard_reading not in (None, OFF) and self.mode == THINKER:
            raise ConfigError(
                f"guard_reading is {self.guard_reading}, but a thinker reads no attempts",
                "Leave it out.",
            )
        if self.guard_evaluation is None:
            self.guard_evaluation = WARN if is_evaluated else OFF
        if self.guard_reading is None:
            self.guard_reading = WARN if is_evaluated and self.mode != THINKER else OFF
        if is_evaluated and trl.metric_for_best_model is None:
            trl.metric_for_best_model = self.held_out_metric
        super().__post_init__()
        self._check_values()
        check_guards(self)
        fix = "Correct the value in the file."
        # Settings of the verifiers; a given run's settings replace them.
        self.verifying = parse_section(Verifying, dict(self.verify or {}), "verify: ", fix)
        self.judging = self._judging()
        """Judge that was given; None for that of the run, if it has one."""

        self.own_prompts = self._own_prompts()
        """Prompts in place of those of the sets."""

    def _judging(self) -> Judge | None:
        given = self._yaml("judge")
        if given is None:
            return None
        tree = given if isinstance(given, dict) else {"model": str(given)}
        return parse_section(Judge, tree, "judge: ", "Correct the value.")

    def _own_prompts(self) -> OwnPrompts:
        given = self._yaml("prompts") or {}
        prompts = parse_section(OwnPrompts, given, "prompts: ", "Correct the value.")
        if self.mode == DELIBERATOR and (prompts.thinker or prompts.deliberator):
            raise ConfigError(
                "prompts has a thinker's or deliberator's, but those of caches are in the sets",
                "Leave them out.",
            )
        return prompts

    def _yaml(self, name: str) -> Any:
        """Return the value of a key, which is YAML if it comes from a flag."""
        try:
            given = getattr(self, name)
            return parse_yaml(given) if isinstance(given, str) else given
        except (YAMLError, ValueError) as error:
            raise ConfigError(f"{name}: the value is not YAML", "Put it in quotes.") from error

    def _apply_preset(self) -> None:
        """Set the keys of the preset that are not given, and ``objective``, which names the result.

        Raises:
            ConfigError: Another loss is given without the keys that depend on the loss.
        """
        usual = arguments_of("trl", self.trl_config)
        of_preset = {name: PRESETS[self.preset].get(name, usual[name].default) for name in _COUPLED}
        loss = self.loss_type or of_preset["loss_type"]
        if loss != of_preset["loss_type"]:
            bounds = _BOUNDS_OF_LOSS.get(loss, ("epsilon", "epsilon_high"))
            needed = ("importance_sampling_level", "scale_rewards", *bounds)
            missing = [name for name in needed if getattr(self, name) is None]
            if missing:
                keys = f"also --{', --'.join(missing)}"
                raise ConfigError(
                    f"loss_type is {loss}, but {', '.join(missing)} would be those of preset "
                    f"{self.preset}, whose loss is {of_preset['loss_type']}",
                    f"Give --preset {loss}, or {keys}." if loss in PRESETS else f"Give {keys}.",
                )
        for name, value in of_preset.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        changed = {name: getattr(self, name) for name in _COUPLED}
        changed = {name: value for name, value in changed.items() if value != of_preset[name]}
        name = self.preset if changed.pop("loss_type", None) is None else f"loss {loss}"
        self.objective = ", ".join([name, *(f"{key} {value}" for key, value in changed.items())])

    @property
    def looks_at_held_out(self) -> bool:
        """Return whether the model is evaluated on held-out prompts during the training."""
        return bool(self.do_eval or self.eval_on_start)

    @property
    def held_out_metric(self) -> str:
        """Return the name of the held-out metric: HM for a deliberator, pass@1 for a thinker."""
        return PASS_AT_1 if self.mode == THINKER else HM

    @property
    def prompts_of_generation(self) -> int:
        """Return the number of prompts in a generation batch, each counted once."""
        return int(self.generation_batch_size // self.num_generations)

    def batches(self, prompts: int) -> int:
        """Return the number of micro-batches of an epoch, as TRL's sampler counts them.

        Prompts beyond the last full generation batch are skipped; the next epoch has another order.
        """
        generations = prompts // self.prompts_of_generation
        return int(generations * self.steps_per_generation * self.num_iterations)

    def check_episodes(self, k: int) -> None:
        """Raise an error unless groups and micro-batches are whole episodes of K + D responses."""
        size = k + self.deliberations
        group, per_device = self.num_generations, self.per_device_train_batch_size
        if group % size or group < 2 * size or per_device % size:
            raise ConfigError(
                f"num_generations {group} and per_device_train_batch_size {per_device} are not "
                f"whole episodes of K + D = {size} responses, two or more to a problem",
                f"Give multiples of {size}, such as --num_generations {2 * size} "
                f"--per_device_train_batch_size {size}.",
            )

    def _check_sources(self) -> None:
        if self.mode is None:
            raise ConfigError(
                "mode is not set",
                f"Give --config FILE, such as 1gpu/{DELIBERATOR}, or --mode: {', '.join(MODES)}.",
            )
        if self.dataset_name and self.run:
            raise ConfigError("Both dataset_name and run are given", "Leave out one of them.")
        if self.mode == DELIBERATOR and self.run:
            raise ConfigError(
                "run is given, but a deliberator learns from existing caches",
                "Give --dataset_name, or --mode joint, which makes caches during the training.",
            )
        if not (self.dataset_name or self.run):
            raise ConfigError(
                "No training data is given",
                "Give --dataset_name, a folder from `heavydistill build` or its Hub id; or in mode "
                "thinker and joint --run, the configuration file of a run.",
            )
        for name in ("verify", "prompts"):
            if self.run and getattr(self, name) is not None:
                raise ConfigError(
                    f"{name} is given beside run, whose file has its own section {name}",
                    "Move the settings to that section.",
                )

    def _check_values(self) -> None:
        """Check values that TRL does not check, or checks only during the training."""
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ConfigError(
                    f"{name}: {value} is not between {least:g} and {most:g}",
                    "Give a number between them.",
                )
        self._check_bounds_of_ratio()
        measured, metric = _MEASURED[self.held_out_metric], str(self.metric_for_best_model)
        if self.eval_strategy != "no" and f"eval_{metric.removeprefix('eval_')}" not in measured:
            raise ConfigError(
                f"metric_for_best_model: {metric!r} is not measured in a {self.mode} training",
                f"Give {' or '.join(measured)}, or leave it out.",
            )
        for name, mode in _OF_MODE.items():
            if self.mode != mode and (value := getattr(self, name)) != self.recorded[name]:
                raise ConfigError(
                    f"{name} is {value}, but the mode is {self.mode}",
                    f"Leave it out, or give --mode {mode}.",
                )
        if self.claims_share and self.scale_rewards != "none":
            raise ConfigError(
                f"claims_share is {self.claims_share:g}, but with scale_rewards "
                f"{self.scale_rewards!r} claims would weigh as much as the verdict where all "
                "verdicts agree",
                "Give --scale_rewards none.",
            )
        self._check_pass_at_k()

    def _check_pass_at_k(self) -> None:
        k, group = self.pass_at_k, self.num_generations
        if k < 1 or (k > 1 and k >= group):
            raise ConfigError(
                f"pass_at_k: {k} is not between 1 and num_generations - 1, which is {group - 1}",
                "Give a smaller pass_at_k, or a larger num_generations.",
            )
        if k > 1 and self.scale_rewards != "none":
            raise ConfigError(
                f"pass_at_k is {k}, but with scale_rewards {self.scale_rewards!r} the advantage "
                "would be that of pass@1",
                "Give --scale_rewards none.",
            )

    def _check_bounds_of_ratio(self) -> None:
        """Check bounds with which TRL would silently train without the ratio, or without delta."""
        trl: Any = self
        upper = trl.epsilon if trl.epsilon_high is None else trl.epsilon_high
        if trl.loss_type == CISPO and upper <= 1:
            raise ConfigError(
                f"epsilon_high is {upper:g}, but with loss_type {CISPO} it is the bound of the "
                "ratio itself: every token would have the same weight",
                f"Give --epsilon_high {PRESETS[CISPO]['epsilon_high']:g}, or another number above "
                "1.",
            )
        if trl.delta is None:
            return
        if trl.loss_type in _BOUNDS_OF_LOSS:
            raise ConfigError(
                f"delta has no effect with loss_type {trl.loss_type}", "Leave delta out."
            )
        if trl.delta < 1 + upper:
            raise ConfigError(
                f"delta is {trl.delta:g}, below 1 + epsilon_high = {1 + upper:g}: responses with a "
                "positive advantage would be clipped below their own bound",
                f"Give --delta {max(2.0, 1 + upper):g}, or leave it out.",
            )
