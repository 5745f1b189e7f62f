"""Our arguments of GRPO in addition to TRL's: mode, reward and presets.

If a field of TRL has another default here, its help text says so. Fields in ``PRESETS`` have the
preset's value unless they are given. Importing this module does not import TRL, because the fields
are read before TRL is loaded (see ``arguments``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from heavydistill.errors import ConfigError
from heavydistill.train.arguments import Refused, option
from heavydistill.train.fields import arguments_of
from heavydistill.train.guards import GuardOptions
from heavydistill.train.rollouts.options import DELIBERATOR, JOINT, MODES, THINKER, RolloutOptions

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
_ONE_REWARD = "there is one reward, the verdict; format_share and claims_share add to it"
# Keys that have an effect in one mode alone. In others, the reward also teaches attempts, so that
# with a share for claims those that are easy to judge would pay.
_OF_MODE = {
    **RolloutOptions.of_mode,
    **{"claims_share": DELIBERATOR, "deliberations": JOINT, "pass_at_k": THINKER},
}
# Bounds that TRL does not check. Larger shares would outweigh correctness.
_BOUNDS = {
    **RolloutOptions.bounds,
    **dict.fromkeys(("epsilon", "epsilon_high", "beta"), (0, 1000)),
    "top_entropy_quantile": (0, 1),
    **{"format_share": (0, 0.05), "claims_share": (0, 0.3), "deliberations": (1, 64)},
}


def _of_preset(what: str) -> Any:
    return option(None, f"{what}. [default: that of the preset, or else of TRL]")


@dataclass
class GrpoOptions(GuardOptions, RolloutOptions):
    """Our arguments of GRPO."""

    script: ClassVar[str] = "grpo"
    trl_config: ClassVar[str] = "GRPOConfig"
    is_rewarded: ClassVar[bool] = True
    modes: ClassVar[tuple[str, ...]] = MODES
    bounds: ClassVar[Mapping[str, tuple[float, float]]] = _BOUNDS
    of_mode: ClassVar[Mapping[str, str]] = _OF_MODE
    recorded: ClassVar[Mapping[str, object]] = {
        **{each.name: each.default for each in dataclasses.fields(GuardOptions)},
        **RolloutOptions.recorded,
        **{"preset": GSPO, "pass_at_k": 1, "deliberations": 1},
        **{"format_share": 0.0, "claims_share": 0.0},
    }
    refused: ClassVar[Refused] = {
        **RolloutOptions.refused,
        "reward_weights": ((None,), _ONE_REWARD),
        "multi_objective_aggregation": (("sum_then_normalize",), _ONE_REWARD),
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
    vllm_importance_sampling_mode: str = option(
        "token_truncate",
        "Correction, per token, for the difference between the probabilities of vLLM and of the "
        "trainer. Their ratio for a whole long response would nearly always exceed the bounds.",
    )

    def __post_init__(self) -> None:
        self._apply_preset()
        trl: Any = self  # its fields have no types here
        if trl.steps_per_generation is None and trl.generation_batch_size is None:
            trl.steps_per_generation = STEPS * trl.gradient_accumulation_steps
        super().__post_init__()

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
    def prompts_of_generation(self) -> int:
        return int(self.generation_batch_size // self.num_generations)

    def batches(self, prompts: int) -> int:
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

    def _check_values(self) -> None:
        super()._check_values()
        self._check_bounds_of_ratio()
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
