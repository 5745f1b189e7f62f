"""What GRPO takes, beside what TRL takes: who learns, from which prompts, for which reward.

The command line is TRL's, read strictly; see ``train.arguments``. Some of TRL's defaults are
others here: ``mask_truncated_completions`` is true, for a response that was cut off is neither
right nor wrong; ``min_p`` is 0, or a model's own would count; there is no dropout, neither of the
model nor of its adapter, so that the ratio of the same weights is 1;
``vllm_importance_sampling_mode`` is ``token_truncate``, because the ratio of a whole long response,
the product of its tokens', is nearly always out of bounds; and those of the preset, with
``steps_per_generation`` four times ``gradient_accumulation_steps``.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from heavydistill.config.run import Verifying
from heavydistill.config.yaml import parse as parse_section
from heavydistill.errors import ConfigError
from heavydistill.train.arguments import Around, Script
from heavydistill.train.grpo.batches import Batch, batch_of, check_batch, check_validation
from heavydistill.train.grpo.guards import GUARDS, OFF, GuardArguments, check_guards
from heavydistill.train.grpo.held_out import HeldOutArguments
from heavydistill.train.grpo.passk import PassAtKArguments
from heavydistill.train.grpo.passk import check as check_pass_at_k
from heavydistill.train.grpo.presets import GSPO, PRESETS, STEPS

if TYPE_CHECKING:
    from trl import GRPOConfig, ModelConfig, TrlParser

DELIBERATOR, JOINT, THINKER = MODES = ("deliberator", "joint", "thinker")
ASK, LEAVE_OUT = "ask", "leave_out"
HM, PASS_AT_1 = "eval_hm", "eval_pass_at_1"
# What is measured in any case where the role that learns last is, and is better the higher it is.
_MEASURED = {HM: (HM, "eval_hm_minus_v"), PASS_AT_1: (PASS_AT_1, "eval_pass_at_d")}
_SAMPLED = "what is learnt is what the model itself would write; ratios are of its distribution"
_ONE_REWARD = "there is one reward, the verdict; format_share is its share of form"
_TEMPLATE = "prompts are rendered as the sets and the model have it"
_MOST_FORMAT = 0.05
WORDS = {
    "loss_type": ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    "importance_sampling_level": ("token", "sequence"),
    "scale_rewards": ("group", "batch", "none"),
    "vllm_importance_sampling_mode": (
        "token_truncate",
        "token_mask",
        "sequence_truncate",
        "sequence_mask",
    ),
}
"""Those of TRL's ``grpo_trainer``, which its arguments have as any text."""
_ABOVE_0 = ("temperature", "max_completion_length")
_FROM_0 = ("learning_rate", "epsilon", "epsilon_high", "beta")


@dataclass
class RlArguments(PassAtKArguments, GuardArguments, HeldOutArguments, Around):
    """Who learns from what, and what is done around it."""

    told: ClassVar[tuple[str, ...]] = (
        "preset",
        "pass_at_k",
        "format_share",
        "max_accuracy",
        "unmeasured",
        "too_long",
        "held_out",
        *(f"guard_{name}" for name in GUARDS),
        "guard_entropy_below",
        "guard_length_below",
        "guard_all_right_above",
        "guard_cut_off_above",
        "guard_evaluation_falls",
        "guard_window",
    )

    mode: str | None = field(
        default=None,
        metadata={
            "help": "Who learns: a deliberator, from caches that are there; joint: K thinkers and "
            "a deliberation on their attempts, as one episode; or a thinker, from problems.",
            "choices": [*MODES],
        },
    )
    preset: str = field(
        default=GSPO,
        metadata={
            "help": "How rewards become steps: sets loss_type, importance_sampling_level, epsilon "
            "and their like where nothing else does.",
            "choices": [*PRESETS],
        },
    )
    dataset_name: str | None = field(
        default=None,
        metadata={
            "help": "Folder of sets from `heavydistill build` or `refilter`, or its id on the Hub. "
            "A deliberator is asked the prompts of its set `rl`, the others its problems that were "
            "answered rightly sometimes."
        },
    )
    run: str | None = field(
        default=None,
        metadata={
            "help": "Instead, for thinkers and joint: configuration of a run, as of `heavydistill "
            "generate --config`. Its problems, verify, domain, language, think, cache and "
            "deliberate say what is asked and how; the model that is trained answers."
        },
    )
    max_accuracy: float | None = field(
        default=None,
        metadata={
            "help": "Deliberator: only caches in which at most this share of the attempts is "
            "right. Those that are always or never answered rightly are left out in any case."
        },
    )
    unmeasured: str = field(
        default=LEAVE_OUT,
        metadata={
            "help": "Deliberator: caches on which too few deliberations were judged to tell: "
            "`leave_out`, or `ask` them as well. That spares the deliberations of a run (`generate "
            "--d 0`), and some of these caches teach nothing.",
            "choices": [LEAVE_OUT, ASK],
        },
    )
    too_long: str = field(
        default="refuse",
        metadata={
            "help": "Prompts that leave no room for max_completion_length in the model's context: "
            "`refuse` to train, or `leave_out` and count them. They are never cut.",
            "choices": ["refuse", "leave_out"],
        },
    )
    format_share: float = field(
        default=0.0,
        metadata={
            "help": "Share of the reward that a response earns by its form alone, right or wrong: "
            "thinking that ends, and one final answer. At most 0.05."
        },
    )
    verify: dict | None = field(  # type: ignore[type-arg]
        default=None,
        metadata={
            "help": "In the file: how answers are judged, with the keys of the section `verify` of "
            "a run (workers, timeout_s, memory_mb, sandbox, own)."
        },
    )
    chat_template_path: str | None = field(
        default=None,
        metadata={
            "help": "Jinja file with the chat template, in place of that of the sets or the model."
        },
    )


def _settle(parser: TrlParser, given: Callable[[], argparse.Namespace]) -> None:
    """Take what the preset says, and look at sources and batches before TRL looks at anything."""
    _check_sources(given())
    parser.set_defaults(**PRESETS[given().preset])
    values = given()
    if values.use_peft:
        parser.set_defaults(lora_dropout=0.0)
    if values.eval_strategy == "no":
        if values.do_eval:
            raise ConfigError(
                "do_eval is given, and eval_strategy does not say when",
                "Give --eval_strategy steps.",
            )
        # It can never fire; where it is asked for, ``check_guards`` says so.
        parser.set_defaults(guard_evaluation=OFF)
    elif values.metric_for_best_model is None:
        parser.set_defaults(metric_for_best_model=metric_of(values.mode))
    if values.generation_batch_size is not None:
        raise ConfigError(
            "generation_batch_size: it is per_device_train_batch_size x processes x "
            "steps_per_generation",
            "Leave it out, and give --steps_per_generation.",
        )
    if values.steps_per_generation is None:
        parser.set_defaults(steps_per_generation=STEPS * values.gradient_accumulation_steps)
        values = given()
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    check_batch(batch_of(values, processes))
    if values.eval_strategy != "no":
        group = values.num_generations_eval
        if group is None:
            group = values.num_generations
        elif group < 1:
            raise ConfigError(f"num_generations_eval: {group} is below 1", "Give 1 or more.")
        check_validation(values.per_device_eval_batch_size, processes, group)


SCRIPT = Script(
    name="grpo",
    config="GRPOConfig",
    refused={
        "top_p": ((1.0,), _SAMPLED),
        "top_k": ((0,), _SAMPLED),
        "min_p": ((0.0,), _SAMPLED),
        "repetition_penalty": ((1.0,), _SAMPLED),
        "vllm_structured_outputs_regex": ((None,), _SAMPLED),
        "generation_kwargs": ((None,), _SAMPLED),
        "disable_dropout": ((True,), _SAMPLED),
        "neftune_noise_alpha": ((None,), _SAMPLED),
        "label_smoothing_factor": ((0.0,), "the loss has no labels"),
        "train_sampling_strategy": (("random",), "prompts are drawn in groups"),
        "logging_strategy": (
            ("steps", "epoch"),
            "guards, curves and the record are made of what is logged",
        ),
        "remove_unused_columns": ((False,), "the reward judges by the columns of a problem"),
        "reward_weights": ((None,), _ONE_REWARD),
        "multi_objective_aggregation": (("sum_then_normalize",), _ONE_REWARD),
        "chat_template_kwargs": ((None,), _TEMPLATE),
        "max_tool_calling_iterations": ((None,), "there are no tools"),
        "log_completions_hub_repo": (
            (None,),
            "it would publish prompts and responses unread; log_completions keeps them here",
        ),
        "use_transformers_paged": ((False,), "use_transformers_continuous_batching is its name"),
        "vllm_importance_sampling_cap": (
            (None,),
            "vllm_importance_sampling_clip_max is its name",
        ),
    },
    defaults={
        "mask_truncated_completions": True,
        "min_p": 0.0,
        "disable_dropout": True,
        "vllm_importance_sampling_mode": "token_truncate",
    },
    settle=_settle,
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A training as it is asked for.

    Attributes:
        rl: Who learns, from what.
        trl: TRL's arguments.
        model: The model and its adapter.
        verify: How answers are judged, where the run does not say it.
    """

    rl: RlArguments
    trl: GRPOConfig
    model: ModelConfig
    verify: Verifying

    @property
    def around(self) -> Around:
        """Our own arguments."""
        return self.rl

    @property
    def chat_template_path(self) -> str | None:
        """A file with the chat template that it learns."""
        return self.rl.chat_template_path

    @property
    def mode(self) -> str:
        """One of ``MODES``."""
        return str(self.rl.mode)

    @property
    def looks_at_held_out(self) -> bool:
        """Whether it is measured meanwhile."""
        return bool(self.trl.do_eval or self.trl.eval_on_start)

    @property
    def batch(self) -> Batch:
        """The numbers of a generation and a step."""
        return batch_of(self.trl, self.trl.world_size)


def parse(arguments: Sequence[str] | None = None, description: str | None = None) -> Asked:
    """Read the command line, and the file that it names.

    Args:
        arguments: In place of those of the process.
        description: What ``--help`` begins with.

    Raises:
        ConfigError: A key or value that is none; see ``strict`` and ``batches``.
    """
    rl, trl, model = SCRIPT.read(RlArguments, arguments, description)
    check_ranges(rl, trl, model)
    if trl.eval_strategy != "no":
        _check_metric(rl.mode, trl)
    _check_vllm(rl, trl, model)
    _check_thinker(rl, trl)
    check_guards(rl, trl)
    fix = "Correct the value in the file."
    return Asked(rl, trl, model, parse_section(Verifying, dict(rl.verify or {}), "verify: ", fix))


def _check_sources(rl: argparse.Namespace) -> None:
    if rl.mode is None:
        raise ConfigError(
            "Who learns is not said",
            f"Give --config FILE, such as one of configs/grpo, or --mode: {', '.join(MODES)}.",
        )
    if rl.dataset_name and rl.run:
        raise ConfigError("Both dataset_name and run are given", "Leave out one of the two.")
    if rl.mode == DELIBERATOR and rl.run:
        raise ConfigError(
            "run is given, and a deliberator learns from caches that are there",
            "Give --dataset_name, or --mode joint, in which caches are made as it learns.",
        )
    if not (rl.dataset_name or rl.run):
        raise ConfigError(
            "There is nothing to learn from",
            "Give --dataset_name: a folder that `heavydistill build` wrote, or its id on the Hub"
            + ("." if rl.mode == DELIBERATOR else "; or --run: the configuration of a run."),
        )
    if rl.run and rl.verify is not None:
        raise ConfigError(
            "verify is given beside run, which has a section of that name", "Say it there."
        )
    for name, default in (("max_accuracy", None), ("unmeasured", LEAVE_OUT)):
        if rl.mode != DELIBERATOR and getattr(rl, name) != default:
            raise ConfigError(
                f"{name} is given, and a {rl.mode} training has no caches before it begins",
                "Leave it out.",
            )


def metric_of(mode: str | None) -> str:
    """What a model is measured by while it trains: the role that learns last."""
    return PASS_AT_1 if mode == THINKER else HM


def _check_metric(mode: str | None, trl: GRPOConfig) -> None:
    measured, name = _MEASURED[metric_of(mode)], trl.metric_for_best_model
    if name is not None and f"eval_{name.removeprefix('eval_')}" not in measured:
        raise ConfigError(
            f"metric_for_best_model: {name!r} does not tell how good a {mode} training is",
            f"Give {' or '.join(measured)}, or leave it out.",
        )
    if trl.greater_is_better is False:
        raise ConfigError(f"greater_is_better is false, and {name} is an accuracy", "Leave it out.")


def _check_thinker(rl: RlArguments, trl: GRPOConfig) -> None:
    if rl.mode == THINKER:
        check_pass_at_k(rl.pass_at_k, trl)
    elif rl.pass_at_k != 1:
        raise ConfigError(
            f"pass_at_k is {rl.pass_at_k}, and the mode is {rl.mode}",
            "Leave it out, or give --mode thinker.",
        )


def _check_vllm(rl: RlArguments, trl: GRPOConfig, model: ModelConfig) -> None:
    if not trl.use_vllm:
        return
    if model.load_in_4bit or model.load_in_8bit:
        bits = 4 if model.load_in_4bit else 8
        raise ConfigError(
            f"load_in_{bits}bit is set with use_vllm, and base + adapter would be quantized anew "
            "for every generation: vLLM would sample from another model than the one in training",
            f"Give --load_in_{bits}bit false, or --use_vllm false (samples with transformers).",
        )
    mode = trl.vllm_importance_sampling_mode
    is_of_rows = trl.vllm_importance_sampling_correction and mode.startswith("sequence")
    if is_of_rows and rl.mode == JOINT:
        raise ConfigError(
            f"vllm_importance_sampling_mode: {mode} is of rows, and a sample is an episode",
            "Set vllm_importance_sampling_mode: token_truncate.",
        )
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "use_vllm is set, and vllm is not installed here",
            'Install it with `pip install "heavydistill[vllm]"`, or give --use_vllm false, which '
            "samples with transformers.",
        )
    if trl.use_cpu:
        raise ConfigError(
            "use_vllm is set with use_cpu, and vLLM takes no weights from a training on a CPU",
            "Give --use_vllm false.",
        )


def check_ranges(rl: RlArguments, trl: GRPOConfig, model: ModelConfig) -> None:
    """See to it that every value is one.

    Raises:
        ConfigError: One is not.
    """
    for name, words in WORDS.items():
        if (word := getattr(trl, name)) not in words:
            raise ConfigError(
                f"{name}: {word!r} is none of {', '.join(words)}", "Take one of them."
            )
    for name in _ABOVE_0:
        value = getattr(trl, name)
        if value is None or not 0 < value < math.inf:
            raise ConfigError(f"{name}: {value} is no number above 0", "Give one.")
    for name in _FROM_0:
        value = getattr(trl, name)
        if value is not None and not 0 <= value < math.inf:
            raise ConfigError(f"{name}: {value} is no number from 0 on", "Give one.")
    if not 0 <= trl.top_entropy_quantile <= 1:
        raise ConfigError(
            f"top_entropy_quantile: {trl.top_entropy_quantile} is no share", "Give one from 0 to 1."
        )
    if trl.sync_ref_model and not trl.beta:
        raise ConfigError(
            "sync_ref_model is set, and with beta 0 there is no reference model",
            "Leave it out, or give --beta.",
        )
    _check_adapter(model)
    if not 0 <= rl.format_share <= _MOST_FORMAT:
        raise ConfigError(
            f"format_share: {rl.format_share} is not between 0 and {_MOST_FORMAT}: with more, form "
            "would be learnt in place of what is right",
            f"Give at most {_MOST_FORMAT}.",
        )
    if rl.max_accuracy is not None and not 0 <= rl.max_accuracy <= 1:
        raise ConfigError(
            f"max_accuracy: {rl.max_accuracy} is no share", "Give one from 0 to 1, such as 0.375."
        )


def _check_adapter(model: ModelConfig) -> None:
    if model.use_peft and model.lora_dropout:
        # It is drawn anew at each pass, so that the ratio of the same weights is not 1.
        raise ConfigError(
            f"lora_dropout: {model.lora_dropout} makes noise of the ratios, and their bounds are "
            "tighter than that",
            "Leave it out.",
        )
    targets = model.lora_target_modules or ()
    if model.use_peft and "lm_head" in ([targets] if isinstance(targets, str) else targets):
        raise ConfigError(
            "lora_target_modules: TRL computes log-probabilities past an adapter of lm_head, which "
            "would learn nothing",
            "Leave lm_head out.",
        )
