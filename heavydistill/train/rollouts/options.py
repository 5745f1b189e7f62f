"""Options of the trainings on prompts, GRPO and distillation: prompts, judge, held-out figures.

The model samples the responses that it learns from. Importing this module does not import TRL,
because the fields are read before TRL is loaded (see ``arguments``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from yaml import YAMLError

from heavydistill.config.models import Judge
from heavydistill.config.prompts import OwnPrompts
from heavydistill.config.run import Verifying
from heavydistill.config.yaml import parse as parse_section
from heavydistill.config.yaml import parse_yaml
from heavydistill.errors import ConfigError
from heavydistill.train.arguments import Refused, TrainingOptions, option
from heavydistill.train.guards import OFF, WARN, PolicyGuardOptions, check_guards

DELIBERATOR, JOINT, THINKER = MODES = ("deliberator", "joint", "thinker")
ASK, LEAVE_OUT = "ask", "leave_out"
OF_SETS, NONE = "sets", "none"
JUDGE_TIMEOUT_S = 120.0
HM, PASS_AT_1 = "eval_hm", "eval_pass_at_1"
# The metric of the last trained role, and a second metric for selecting the best checkpoint.
_MEASURED = {HM: (HM, "eval_hm_minus_v"), PASS_AT_1: (PASS_AT_1, "eval_pass_at_d")}
_NEUTRAL = {
    **{"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "disable_dropout": True},
    **dict.fromkeys(("vllm_structured_outputs_regex", "generation_kwargs", "neftune_noise_alpha")),
}
_SAMPLED = "responses must be samples of the model's own distribution, which the loss assumes"
_GUARDS = {each.name: each.default for each in dataclasses.fields(PolicyGuardOptions)}
_BOUNDS = {
    **{"temperature": (0.01, 100), "max_completion_length": (1, 1_000_000)},
    **{"max_accuracy": (0, 1), "held_out": (1, 1_000_000)},
    **{"num_generations_eval": (1, 1000), "judge_timeout_s": (1, 86_400)},
}


@dataclass
class RolloutModelOptions:
    """Our defaults for TRL's model arguments."""

    lora_dropout: float = option(
        0.0, "Always 0: dropout would make the trained model another one than the one that samples."
    )


@dataclass
class RolloutOptions(PolicyGuardOptions, TrainingOptions):
    """Our arguments that all trainings on prompts have."""

    is_rewarded: ClassVar[bool]
    """Whether the training judges responses, so that prompts without a spread teach nothing."""
    modes: ClassVar[tuple[str, ...]] = (DELIBERATOR, THINKER)
    bounds: ClassVar[Mapping[str, tuple[float, float]]] = _BOUNDS
    """Smallest and largest values of numbers that TRL does not check; those of guards apart."""
    of_mode: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("max_accuracy", "unmeasured", "wording", "held_out_none"), DELIBERATOR
    )
    """Keys that have an effect in one mode alone."""
    recorded: ClassVar[Mapping[str, object]] = {
        **{"max_accuracy": None, "unmeasured": LEAVE_OUT, "too_long": "refuse", "held_out": 128},
        **{"wording": OF_SETS, "held_out_none": False},
        **{**_GUARDS, "guard_evaluation": WARN, "guard_reading": WARN},
    }
    model_options: ClassVar[type | None] = RolloutModelOptions
    refused: ClassVar[Refused] = {
        **{name: ((value,), _SAMPLED) for name, value in _NEUTRAL.items()},
        "label_smoothing_factor": ((0.0,), "the loss has no labels"),
        "train_sampling_strategy": (("random",), "prompts are drawn by their own sampler"),
        "logging_strategy": (("steps", "epoch"), "guards and curves need the log"),
        "pad_to_multiple_of": ((None,), "columns of padding are removed"),
        "remove_unused_columns": ((False,), "responses are judged by the columns of a problem"),
        "chat_template_kwargs": (
            (None,),
            "prompts are rendered with the template of the sets or the model",
        ),
        "max_tool_calling_iterations": ((None,), "there are no tools"),
    }
    if TYPE_CHECKING:  # fields of TRL that both configurations have
        max_completion_length: int = 0
        use_vllm: bool = False
        vllm_max_model_length: int | None = None
        num_generations_eval: int | None = None

    mode: str | None = option(
        None,
        "What is trained: a deliberator, on existing caches; or a thinker, on problems.",
        DELIBERATOR,
        THINKER,
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
    wording: str = option(
        OF_SETS,
        "Deliberator: instructions around the attempts in its prompts: those of the `sets`, or "
        "`none`. In a distillation, the teacher reads those of the sets.",
        OF_SETS,
        NONE,
    )
    too_long: str = option(
        "refuse",
        "What to do with prompts that leave no room for max_completion_length in the model's "
        "context: `refuse` to train, or `leave_out` and count them. They are never cut.",
        "refuse",
        "leave_out",
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
        JUDGE_TIMEOUT_S,
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
    held_out_none: bool = option(
        False,
        "With eval_strategy, deliberator: also ask for deliberations on the held-out caches "
        "without instructions, and bound what they lose.",
    )
    held_out_from: str | None = option(
        None,
        "Folder of sets whose validation problems are held out. [default: that of dataset_name]",
    )
    chat_template_path: str | None = option(
        None, "Jinja file with the chat template [default: that of the sets, or else of the model]."
    )
    min_p: float | None = option(
        0.0, "Always 0: TRL's default (None) would use the value of the model's generation config."
    )
    mask_truncated_completions: bool = option(
        True, "Leave responses that were cut off out of the loss: they are neither right nor wrong."
    )
    disable_dropout: bool = option(
        True, "Always true: the trained model must be the one that samples."
    )

    def __post_init__(self) -> None:
        self._check_sources()
        trl: Any = self  # its fields have no types here
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
        self._refuse_unused()
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
        raise NotImplementedError

    def batches(self, prompts: int) -> int:
        """Return the number of micro-batches of an epoch, as TRL's sampler counts them.

        Prompts beyond the last full generation batch are skipped; the next epoch has another order.
        """
        raise NotImplementedError

    def _check_sources(self) -> None:
        example = f"1gpu/{DELIBERATOR}" if JOINT in self.modes else "1gpu"
        if self.mode is None:
            raise ConfigError(
                "mode is not set",
                f"Give --config FILE, such as {example}, or --mode: {', '.join(self.modes)}.",
            )
        if self.dataset_name and self.run:
            raise ConfigError("Both dataset_name and run are given", "Leave out one of them.")
        if self.mode == DELIBERATOR and self.run:
            joint = ", or --mode joint, which makes caches during the training"
            raise ConfigError(
                "run is given, but a deliberator learns from existing caches",
                f"Give --dataset_name{joint * (JOINT in self.modes)}.",
            )
        if not (self.dataset_name or self.run):
            of_problems = [THINKER, *[JOINT] * (JOINT in self.modes)]
            raise ConfigError(
                "No training data is given",
                "Give --dataset_name, a folder from `heavydistill build` or its Hub id; or in mode "
                f"{' and '.join(of_problems)} --run, the configuration file of a run.",
            )
        for name in ("verify", "prompts"):
            if self.run and getattr(self, name) is not None:
                raise ConfigError(
                    f"{name} is given beside run, whose file has its own section {name}",
                    "Move the settings to that section.",
                )

    def _refuse_unused(self) -> None:
        """Raise an error if nothing is evaluated, and a key that only evaluations use is set."""
        names = (
            "held_out",
            "held_out_none",
            "held_out_from",
            *["judge_timeout_s"] * (not self.is_rewarded),
        )
        for each in dataclasses.fields(self) if not self.looks_at_held_out else ():
            if each.name in names and (value := getattr(self, each.name)) != each.default:
                raise ConfigError(
                    f"{each.name} is {value}, but nothing is evaluated",
                    "Give --eval_strategy steps, or leave it out.",
                )

    def _check_values(self) -> None:
        """Check values that TRL does not check, or checks only during the training."""
        of_guards = {
            name: (0, 1) if isinstance(usual, float) else (1, 1000)
            for name, usual in self.recorded.items()
            if name.startswith("guard_") and isinstance(usual, int | float)
        }
        for name, (least, most) in {**self.bounds, **of_guards}.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ConfigError(
                    f"{name}: {value} is not between {least:g} and {most:g}",
                    "Give a number between them.",
                )
        measured, metric = _MEASURED[self.held_out_metric], str(self.metric_for_best_model)
        if self.eval_strategy != "no" and f"eval_{metric.removeprefix('eval_')}" not in measured:
            raise ConfigError(
                f"metric_for_best_model: {metric!r} is not measured in a {self.mode} training",
                f"Give {' or '.join(measured)}, or leave it out.",
            )
        for name, mode in self.of_mode.items():
            if self.mode != mode and (value := getattr(self, name)) != self.recorded[name]:
                raise ConfigError(
                    f"{name} is {value}, but the mode is {self.mode}",
                    f"Leave it out, or give --mode {mode}.",
                )
