"""Guards against the collapse that HeavySkill's RLVR with K=16 shows (arXiv 2605.02396, Figure 6).

There the training reward and the share of solved groups climb while entropy, length and the
held-out accuracy fall: the model learns to copy and to vote instead of deliberating. Four guards
look for it in the training's logs, a fifth for responses that never end:

    entropy     the entropy of the policy is below a share of its peak
    length      the mean completion is shorter than a share of the longest so far
    all_right   so many groups are solved that the rest teaches little
    evaluation  the held-out accuracy fell at several evaluations in a row while the training reward
                rose
    cut_off     most responses are cut off: they have no reward, and groups shrink

A logged value counts as the median of ``guard_window`` values up to it. Evaluations count as they
are, of several at one step the first, because ``eval_on_start`` evaluates again on resuming. When
all responses are cut off in ``guard_window`` logged values in a row, ``cut_off`` ends the training
even at ``warn``.

A guard fires once; ``cut_off`` a second time to end the training. Alarms are derived from
``log_history`` alone, which is in every checkpoint, so a resumed training finds those before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from heavydistill.errors import ConfigError
from heavydistill.report.curves import Point, series, smoothed
from heavydistill.store.training_record import Alarm
from heavydistill.train.arguments import option

if TYPE_CHECKING:
    from trl import GRPOConfig

    from heavydistill.train.grpo.batches import GenerationBatch

OFF, WARN, STOP, ROLL_BACK = "off", "warn", "stop", "roll_back"
ACTIONS = (OFF, WARN, STOP, ROLL_BACK)
GUARDS = ("entropy", "length", "all_right", "evaluation", "cut_off")
# Of the responses that are rewarded, and of the attempts that an episode begins with.
_CUT_OFF = ("verdict/cut_off", "thinker/truncated")
_SHARES = (
    *("guard_entropy_below", "guard_length_below"),
    *("guard_all_right_above", "guard_cut_off_above"),
)
MORE_TOKENS = (
    "Raise max_completion_length (mode joint: the run's sampling.max_tokens too), or teach the "
    "model shorter responses first, with scripts/sft.py"
)


def _action(what: str, default: str | None = WARN) -> Any:
    text = (
        f"{what}: {WARN}; {STOP}: end the training; {ROLL_BACK}: end it, and the best whole "
        f"checkpoint by metric_for_best_model becomes the model; {OFF}."
    )
    if default is None:
        text += f" [default: {WARN}, or {OFF} without evaluation]"
    return option(default, text, *ACTIONS)


def _share(what: str, default: float) -> Any:
    return option(default, f"Share of {what}, between 0 and 1.")


@dataclass
class GuardOptions:
    """What is done about a collapse, and where it begins."""

    guard_entropy: str = _action("The entropy falls below guard_entropy_below of its peak")
    guard_entropy_below: float = _share("the peak", 0.6)
    guard_length: str = _action("The mean completion falls below guard_length_below of its peak")
    guard_length_below: float = _share("the peak", 0.5)
    guard_all_right: str = _action("More than guard_all_right_above of the groups are solved")
    guard_all_right_above: float = _share("the groups", 0.6)
    guard_evaluation: str | None = _action(
        "The held-out accuracy falls guard_evaluation_falls times in a row while the reward rises",
        default=None,
    )
    guard_evaluation_falls: int = option(3, "Evaluations in a row, each below the one before.")
    guard_cut_off: str = _action("More than guard_cut_off_above of the responses are cut off")
    guard_cut_off_above: float = _share("the responses", 0.5)
    guard_window: int = option(
        5, "A logged value counts as the median of so many, itself and those before it."
    )

    def action_of(self, guard: str) -> str:
        """What is done when a guard fires."""
        return str(getattr(self, f"guard_{guard}") or WARN)


def check_guards(guards: GuardOptions, config: GRPOConfig) -> None:
    """Whether the guards can do what they are to do.

    Raises:
        ConfigError: A value is out of its range; a guard watches the evaluation, and there is none;
            or there is no best checkpoint to roll back to.
    """
    for name in _SHARES:
        if not 0 < (share := getattr(guards, name)) < 1:
            raise ConfigError(f"{name}: {share} is not between 0 and 1", "Give a share.")
    for name in ("guard_evaluation_falls", "guard_window"):
        if (count := getattr(guards, name)) < 1:
            raise ConfigError(f"{name}: {count} is below 1", "Give 1 or more.")
    evaluated, saved = (
        str(getattr(strategy, "value", strategy))
        for strategy in (config.eval_strategy, config.save_strategy)
    )
    if evaluated == "no" and guards.action_of("evaluation") != OFF:
        raise ConfigError(
            f"guard_evaluation is {guards.action_of('evaluation')}, and nothing is evaluated",
            "Give --eval_strategy steps, and beside a run --held_out_from; or leave "
            "guard_evaluation out.",
        )
    rolling = [guard for guard in GUARDS if guards.action_of(guard) == ROLL_BACK]
    if not rolling:
        return
    every = config.eval_steps, config.save_steps
    # The best one must have been saved when it was measured.
    aligned = saved == "best" or (saved == evaluated and (saved != "steps" or every[0] == every[1]))
    if evaluated == "no" or not aligned:
        raise ConfigError(
            f"guard_{rolling[0]} is {ROLL_BACK}, and there is not a checkpoint wherever it is "
            f"evaluated: eval_strategy {evaluated}, save_strategy {saved}, eval_steps {every[0]}, "
            f"save_steps {every[1]}",
            "Give --eval_strategy steps, and --save_strategy best, or steps with the same number "
            "for save_steps as for eval_steps.",
        )


class ExpectedLogs(NamedTuple):
    """Maximum numbers of values that a training will log."""

    logs: int
    responses: int
    """Logs since the last one of which responses were sampled."""
    evaluations: int


def expected_logs(
    config: GRPOConfig, batch: GenerationBatch, steps: int, prompts: int
) -> ExpectedLogs:
    """What guards will see of a training of so many steps, and so many prompts an epoch."""

    def times(strategy: Any, every: float) -> int:
        strategy = getattr(strategy, "value", strategy)
        if strategy in ("no", "epoch"):
            return math.ceil(steps / batch.steps(prompts)) if strategy == "epoch" else 0
        return math.ceil(steps / (every if every >= 1 else math.ceil(every * steps)))

    logs = times(config.logging_strategy, config.logging_steps) + config.logging_first_step
    of_generation = batch.per_generation * batch.iterations
    generations = math.ceil(steps * batch.accumulation / of_generation)
    evaluations = times(config.eval_strategy, config.eval_steps or 1) + config.eval_on_start
    return ExpectedLogs(logs, min(logs, generations), evaluations)


def idle(guards: GuardOptions, seen: ExpectedLogs) -> dict[str, str]:
    """The guards that are on and will see too few values to fire, and why, in words.

    Raises:
        ConfigError: One of them is to do more than warn.
    """
    window = guards.guard_window
    # The first median is a peak itself.
    needed = {
        "entropy": (window + 1, "logged values", seen.logs),
        "length": (window + 1, "logged values", seen.responses),
        "all_right": (window, "logged values", seen.responses),
        "cut_off": (window, "logged values", seen.responses),
        "evaluation": (guards.guard_evaluation_falls + 1, "evaluations", seen.evaluations),
    }
    found = {
        guard: f"it needs {least} {what}, and there will be {count}"
        for guard, (least, what, count) in needed.items()
        if guards.action_of(guard) != OFF and count < least
    }
    for guard, why in found.items():
        if (action := guards.action_of(guard)) != WARN:
            keys = "logging_steps or guard_window"
            if guard == "evaluation":
                keys = "eval_steps or guard_evaluation_falls"
            raise ConfigError(
                f"guard_{guard} is {action} and can never fire: {why}",
                f"Give a smaller {keys}, or more steps.",
            )
    return found


def alarms(
    history: Sequence[Mapping[str, Any]], guards: GuardOptions, metric: str = "eval_hm"
) -> list[Alarm]:
    """All that fired in a training's ``log_history``, in the order of its steps.

    Values that are missing, null or not finite are skipped; ``metric`` is the held-out accuracy.
    """
    rules = {
        "entropy": _below_peak(series(history, "entropy"), guards.guard_entropy_below, guards),
        "length": _below_peak(
            series(history, "completions/mean_length"), guards.guard_length_below, guards
        ),
        "all_right": _above(
            series(history, "groups/all_right"), guards.guard_all_right_above, guards
        ),
        "cut_off": _above(cut_off(history), guards.guard_cut_off_above, guards),
        "evaluation": _falling(
            _first_of_steps(series(history, metric)), series(history, "reward"), guards
        ),
    }
    fired = []
    for guard, checked in rules.items():
        action = guards.action_of(guard)
        first = next((check for check in checked if check.is_passed), None)
        if first and action != OFF:
            step, _, value, bound = first
            fired.append(Alarm(guard=guard, step=step, value=value, bound=bound, action=action))
    last = _last_of_nothing(history, guards)
    if last and guards.guard_cut_off != OFF:
        action = STOP if guards.guard_cut_off == WARN else guards.guard_cut_off
        # In the place of a warning at the same step.
        fired = [alarm for alarm in fired if (alarm.guard, alarm.step) != ("cut_off", last)]
        bound = guards.guard_cut_off_above
        fired.append(Alarm(guard="cut_off", step=last, value=1.0, bound=bound, action=action))
    return sorted(fired, key=lambda alarm: alarm.step)


def cut_off(history: Sequence[Mapping[str, Any]]) -> list[Point]:
    """(step, share of the responses that were cut off); of an episode that of the worse role."""
    found: dict[int, float] = {}
    for name in _CUT_OFF:
        for step, value in series(history, name):
            found[step] = max(value, found.get(step, 0.0))
    return sorted(found.items())


def _last_of_nothing(history: Sequence[Mapping[str, Any]], guards: GuardOptions) -> int | None:
    """The step of the first ``guard_window`` logged values in a row with nothing but cut-offs."""
    in_a_row = 0
    for step, share in cut_off(history):
        in_a_row = in_a_row + 1 if share == 1 else 0
        if in_a_row == guards.guard_window:
            return step
    return None


def alarm_text(alarm: Alarm, guards: GuardOptions) -> str:
    """An alarm as a sentence."""
    value, bound = f"{alarm.value:.4g}", f"{alarm.bound:.4g}"
    what = {
        "entropy": f"the entropy is {value}, below {guards.guard_entropy_below:.0%} of its peak "
        f"({bound})",
        "length": f"the mean completion has {value} tokens, below {guards.guard_length_below:.0%} "
        f"of its peak ({bound})",
        "all_right": f"{value} of the groups are solved, more than {bound}",
        "evaluation": f"the held-out accuracy fell {guards.guard_evaluation_falls} times in a row, "
        f"from {bound} to {value}, while the training reward rose",
        "cut_off": f"{value} of the responses are cut off, more than {bound}; they earn no reward, "
        f"so that groups shrink. {MORE_TOKENS}"
        if alarm.value < 1 or alarm.action == WARN
        else f"all responses are cut off, so that nothing is learnt. {MORE_TOKENS}",
    }[alarm.guard]
    return f"Guard {alarm.guard}, step {alarm.step}: {what}."


class _Checked(NamedTuple):
    """A value beside the bound of its guard."""

    step: int
    is_passed: bool
    value: float
    bound: float


def _below_peak(points: list[Point], share: float, guards: GuardOptions) -> Iterator[_Checked]:
    peak = 0.0
    for step, value in smoothed(points, guards.guard_window):
        peak = max(peak, value)
        yield _Checked(step, value < share * peak, value, share * peak)


def _above(points: list[Point], most: float, guards: GuardOptions) -> Iterator[_Checked]:
    for step, value in smoothed(points, guards.guard_window):
        yield _Checked(step, value > most, value, most)


def _first_of_steps(points: list[Point]) -> list[Point]:
    return list(dict(reversed(points)).items())[::-1]


def _falling(
    evaluations: list[Point], rewards: list[Point], guards: GuardOptions
) -> Iterator[_Checked]:
    """The bound is what the accuracy was before it fell."""
    falls = guards.guard_evaluation_falls
    rewards = smoothed(rewards, guards.guard_window)
    for end in range(falls, len(evaluations)):
        last = evaluations[end - falls : end + 1]
        falls_on = all(later < earlier for (_, earlier), (_, later) in pairwise(last))
        rises = bool(rewards) and _at(rewards, last[0][0]) < _at(rewards, last[-1][0])
        yield _Checked(last[-1][0], falls_on and rises, last[-1][1], last[0][1])


def _at(points: Sequence[Point], step: int) -> float:
    """The last value up to a step, or the first one of all."""
    return next((value for when, value in reversed(points) if when <= step), points[0][1])
