"""Guards against the collapse in HeavySkill's RLVR with K=16 (arXiv 2605.02396, Figure 6).

In that collapse, the reward and the share of solved groups rise while entropy, length and held-out
accuracy fall: the model learns to copy and to vote. Five guards check the log for these signs, and
three for responses that teach nothing:

    entropy     the policy's entropy is below a given share of its peak
    length      the mean completion is shorter than a given share of the longest so far
    all_right   most groups are solved, so that few give a learning signal
    evaluation  the held-out accuracy fell at several evaluations in a row while the training reward
                rose
    reading     the difference that the values in the attempts make (``held_out``) fell likewise
                while the held-out HM rose: the model learns to work problems out by itself
    all_wrong   nearly no group has a correct response
    cut_off     most responses are cut off: they have no reward, and groups shrink; or more are than
                in the beginning
    undecided   more responses cannot be judged than in the beginning: wrong responses are pushed
                down and these are not, so that the policy may drift to them, as to cut-off ones. Or
                too many responses name exactly one answer that cannot be judged

A guard compares medians of ``guard_window`` logged values. The beginning is the first tenth of the
training, but at least one window. Evaluations are compared singly. If a
step has several evaluations, the first one counts, because ``eval_on_start`` evaluates again on
resuming. If all responses are cut off in ``guard_window`` logged values in a row, ``cut_off`` ends
the training even at ``warn``.

In SFT and distillation, ``loss_alarms`` tells of a learning rate that is too high for a trained
model: after the warm-up, the training loss is above ``_MOST_LOSS`` times its first value (medians
of three values). A first value that is not above 0 is skipped: with a served teacher and beta 1,
the loss is an estimate whose noise may make it negative.

A distillation has no reward: for ``evaluation``, the fall of its loss stands for the rise, and the
three guards of groups and verdicts do not exist.

Each guard fires at most once; ``cut_off`` may fire a second time to end the training. Alarms are
computed from ``log_history`` alone. Every checkpoint contains it, so a resumed training has the
earlier alarms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from heavydistill.errors import ConfigError
from heavydistill.report.curves import Point, series, smoothed
from heavydistill.store.training_record import Alarm
from heavydistill.train.arguments import option

OFF, WARN, STOP, ROLL_BACK = "off", "warn", "stop", "roll_back"
ACTIONS = (OFF, WARN, STOP, ROLL_BACK)
GUARDS = (
    *("entropy", "length", "all_right", "evaluation", "reading"),
    *("all_wrong", "cut_off", "undecided"),
)
_MOST_LOSS, _LOSSES = 1.5, 3
_OF_EVALUATION = ("evaluation", "reading")
ALL_RIGHT, ALL_WRONG = "groups/all_right", "groups/all_wrong"
"""Names of metrics: share of the groups whose decided responses are all correct, or all wrong."""
READING = "eval_hm_minus_garbled"
# Share of rewarded responses that were cut off; the same for the attempts of an episode; and TRL's
# for all responses, where none is rewarded.
_CUT_OFF = ("verdict/cut_off", "thinker/truncated")
_CLIPPED = ("completions/clipped_ratio",)
# Share of responses that name one answer and are undecided, by reason and in all (``reward``).
_UNDECIDED = "undecided/"
MORE_TOKENS = (
    "Raise max_completion_length (mode joint: the run's sampling.max_tokens too), or teach the "
    "model shorter responses first, with `heavydistill sft`"
)


def _action(what: str, default: str | None = WARN) -> Any:
    text = (
        f"Action if {what}: {WARN}, {STOP} (end the training), {ROLL_BACK} (end it with the best "
        f"checkpoint by metric_for_best_model) or {OFF}."
    )
    if default is None:
        text += f" [default: {WARN}, or {OFF} without evaluation]"
    return option(default, text, *ACTIONS)


def _share(what: str, default: float) -> float:
    return option(default, f"Share of {what}, between 0 and 1.")


@dataclass
class PolicyGuardOptions:
    """The actions and thresholds of the guards that need no reward."""

    guard_entropy: str = _action("the entropy falls below guard_entropy_below of its peak")
    guard_entropy_below: float = _share("the peak", 0.6)
    guard_length: str = _action("the mean length falls below guard_length_below of its peak")
    guard_length_below: float = _share("the peak", 0.5)
    guard_evaluation: str | None = _action(
        "the held-out accuracy falls guard_evaluation_falls times in a row while the training "
        "reward rises, or in a distillation the loss falls",
        default=None,
    )
    guard_evaluation_falls: int = option(
        3, "Number of times in a row that the accuracy must fall for guard_evaluation to act."
    )
    guard_reading: str | None = _action(
        "HM minus HM with garbled attempts falls guard_evaluation_falls times in a row while HM "
        "rises",
        default=None,
    )
    guard_cut_off: str = _action(
        "more than guard_cut_off_above of the responses are cut off, or guard_rise more than in "
        "the first tenth of the training"
    )
    guard_cut_off_above: float = _share("the responses", 0.5)
    guard_rise: float = _share("the responses by which a share may rise", 0.1)
    guard_window: int = option(5, "Number of logged values whose median the guards compare.")

    def action_of(self, guard: str) -> str:
        return str(getattr(self, f"guard_{guard}", OFF) or WARN)


@dataclass
class GuardOptions(PolicyGuardOptions):
    """The actions and thresholds of all guards."""

    guard_all_right: str = _action("more than guard_all_right_above of the groups are solved")
    guard_all_right_above: float = _share("the groups", 0.6)
    guard_all_wrong: str = _action("more than guard_all_wrong_above of the groups are all wrong")
    guard_all_wrong_above: float = _share("the groups", 0.9)
    guard_undecided: str = _action(
        "more than guard_undecided_above of the responses name one answer that is undecided, or "
        "guard_rise more of all are undecided than in the first tenth of the training"
    )
    guard_undecided_above: float = _share("the responses", 0.02)


def check_guards(config: Any) -> None:
    """Check that the actions set in the arguments of a training on prompts are possible.

    Raises:
        ConfigError: A guard needs evaluations, and there are none; or there is no best checkpoint
            to roll back to.
    """
    evaluated, saved = str(config.eval_strategy.value), str(config.save_strategy.value)
    for guard in _OF_EVALUATION if evaluated == "no" else ():
        if config.action_of(guard) != OFF:
            raise ConfigError(
                f"guard_{guard} is {config.action_of(guard)}, but nothing is evaluated",
                "Give --eval_strategy steps (and with --run also --held_out_from), or leave the "
                "guard out.",
            )
    rolling = [guard for guard in GUARDS if config.action_of(guard) == ROLL_BACK]
    if not rolling:
        return
    # The best checkpoint can be restored only if every evaluation is followed by a save.
    same = saved == evaluated and (saved != "steps" or config.eval_steps == config.save_steps)
    if evaluated == "no" or not (saved == "best" or same):
        raise ConfigError(
            f"guard_{rolling[0]} is {ROLL_BACK}, but not every evaluation has a checkpoint",
            "Give --eval_strategy steps, and --save_strategy best, or steps with the same number "
            "for save_steps as for eval_steps.",
        )


def alarms(
    history: Sequence[Mapping[str, float]],
    guards: PolicyGuardOptions,
    metric: str = "eval_hm",
    steps: int = 0,
) -> list[Alarm]:
    """Return all alarms of a training's ``log_history``, ordered by step.

    Values that are missing, null or not finite are skipped. ``metric`` is the name of the held-out
    accuracy in the log, ``steps`` the number of steps of the whole training.
    """
    window, rise = guards.guard_window, guards.guard_rise
    logged = {
        name: smoothed(series(history, name), window)
        for name in ("entropy", "completions/mean_length", "reward")
    }
    progress = [(step, -loss) for step, loss in smoothed(_losses(history), window)]
    cut = cut_off(history, _CUT_OFF if isinstance(guards, GuardOptions) else _CLIPPED)
    too_many = _above(smoothed(cut, window), guards.guard_cut_off_above)
    rules = {
        "entropy": _below_peak(logged["entropy"], guards.guard_entropy_below),
        "length": _below_peak(logged["completions/mean_length"], guards.guard_length_below),
        "cut_off": iter(sorted([*too_many, *_risen(cut, window, rise, steps)])),
    }
    if isinstance(guards, GuardOptions):
        progress = logged["reward"]
        rules |= _of_rewards(history, guards, steps)
    rules["evaluation"] = _falling(series(history, metric), progress, guards)
    rules["reading"] = _falling(series(history, READING), series(history, "eval_hm"), guards)
    fired = []
    for guard, steps_of_guard in rules.items():
        action = guards.action_of(guard)
        if action != OFF and (first := next(steps_of_guard, None)):
            step, value, bound = first
            reasons = _undecided_because(history, step, window) if guard == "undecided" else {}
            fired.append(
                Alarm(
                    guard=guard, step=step, value=value, bound=bound, action=action, reasons=reasons
                )
            )
    in_a_row = 0
    for step, share in cut if guards.guard_cut_off != OFF else []:
        in_a_row = in_a_row + 1 if share == 1 else 0
        if in_a_row < window:
            continue
        action = STOP if guards.guard_cut_off == WARN else guards.guard_cut_off
        # Replaces a warning at the same step.
        fired = [alarm for alarm in fired if (alarm.guard, alarm.step) != ("cut_off", step)]
        bound = guards.guard_cut_off_above
        fired.append(Alarm(guard="cut_off", step=step, value=1.0, bound=bound, action=action))
        break
    return sorted(fired, key=lambda alarm: alarm.step)


def loss_alarms(history: Sequence[Mapping[str, float]], warmup_steps: int) -> list[Alarm]:
    """Return an alarm for each value of the training loss after the warm-up that is too high."""
    logged = _losses(history)
    later = [point for point in smoothed(logged, _LOSSES) if point[0] > warmup_steps]
    bound = _MOST_LOSS * next((loss for _, loss in logged if loss > 0), math.inf)
    return [
        Alarm(guard="loss", step=step, value=value, bound=bound, action=WARN)
        for step, value, _ in _above(later, bound)
    ]


def _losses(history: Sequence[Mapping[str, float]]) -> list[Point]:
    """Return (step, training loss) without the 0 of distillation steps that learnt nothing."""
    return [(step, loss) for step, loss in series(history, "loss") if loss]


def _of_rewards(
    history: Sequence[Mapping[str, float]], guards: GuardOptions, steps: int
) -> dict[str, _Crossed]:
    """Return the values that cross the thresholds of the guards that watch rewards."""
    window = guards.guard_window
    right, wrong, undecided = (
        smoothed(series(history, name), window)
        for name in (ALL_RIGHT, ALL_WRONG, f"{_UNDECIDED}all")
    )
    unjudged = _above(undecided, guards.guard_undecided_above)
    more = _risen(series(history, "verdict/undecided"), window, guards.guard_rise, steps)
    return {
        "all_right": _above(right, guards.guard_all_right_above),
        "all_wrong": _above(wrong, guards.guard_all_wrong_above),
        "undecided": iter(sorted([*unjudged, *more])),
    }


def cut_off(history: Sequence[Mapping[str, float]], names: Sequence[str] = _CUT_OFF) -> list[Point]:
    """Return (step, share of responses cut off); in mode joint, the higher share of both roles."""
    shares: dict[int, float] = {}
    for name in names:
        for step, value in series(history, name):
            shares[step] = max(value, shares.get(step, 0.0))
    return sorted(shares.items())


def _undecided_because(
    history: Sequence[Mapping[str, float]], step: int, window: int
) -> dict[str, float]:
    """Shares of the responses with one undecided answer up to a step, by reason, highest first."""
    names = {name for entry in history for name in entry if name.startswith(_UNDECIDED)}
    shares = {
        name.removeprefix(_UNDECIDED): fmean(values)
        for name in sorted(names - {f"{_UNDECIDED}all"})
        if (values := [value for when, value in series(history, name) if when <= step][-window:])
    }
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def alarm_text(alarm: Alarm, guards: PolicyGuardOptions) -> str:
    value, bound = f"{alarm.value:.4g}", f"{alarm.bound:.4g}"
    because = ", ".join(f"{reason} {share:.2g}" for reason, share in alarm.reasons.items())
    because = because and f" ({because})"
    improved = "reward rose" if isinstance(guards, GuardOptions) else "loss fell"
    lost = "they earn no reward, so that groups shrink"
    if not isinstance(guards, GuardOptions):
        lost = "what follows a cut is never learnt"
    risen = f"more than {guards.guard_rise:g} above the share in the beginning"
    what = {
        "entropy": f"the entropy is {value}, below {guards.guard_entropy_below:.0%} of its peak "
        f"({bound})",
        "length": f"the mean completion has {value} tokens, below {guards.guard_length_below:.0%} "
        f"of its peak ({bound})",
        "all_right": f"{value} of the groups are solved, more than {bound}",
        "evaluation": f"the held-out accuracy fell {guards.guard_evaluation_falls} times in a row, "
        f"from {bound} to {value}, while the training {improved}",
        "reading": f"HM minus HM with garbled attempts fell {guards.guard_evaluation_falls} times "
        f"in a row, from {bound} to {value}, while HM rose: the model learns to do without the "
        "attempts. Stop here, or train on caches with fewer right attempts (--max_accuracy)",
        "all_wrong": f"{value} of the groups have no correct response, more than {bound}, so that "
        "nearly nothing is learnt. Find prompts that the model gets right sometimes, with "
        "`heavydistill refilter`, or train it with `heavydistill sft` first",
        "undecided": (
            f"{value} of the responses name one answer that cannot be judged, more than {bound}"
            if alarm.bound == getattr(guards, "guard_undecided_above", None)
            else f"{value} of the responses cannot be judged, {risen}"
        )
        + f"{because}; they are not rewarded. Read some of them with --log_completions true",
        "cut_off": f"{value} of the responses are cut off, "
        + (f"more than {bound}" if alarm.bound == guards.guard_cut_off_above else risen)
        + f"; {lost}. {MORE_TOKENS}"
        if alarm.value < 1 or alarm.action == WARN
        else f"all responses are cut off, so that nothing is learnt. {MORE_TOKENS}",
    }[alarm.guard]
    return f"Guard {alarm.guard}, step {alarm.step}: {what}."


_Crossed = Iterator[tuple[int, float, float]]
"""(step, value, threshold) for each value that crosses its guard's threshold."""


def _below_peak(points: list[Point], share: float) -> _Crossed:
    peak = 0.0
    for step, value in points:
        peak = max(peak, value)
        if value < share * peak:
            yield step, value, share * peak


def _above(points: list[Point], most: float) -> _Crossed:
    return ((step, value, most) for step, value in points if value > most)


def _risen(points: list[Point], window: int, rise: float, steps: int) -> _Crossed:
    """Yield the medians that exceed the mean of the first tenth of the steps by ``rise``."""
    first = max(window, sum(10 * step <= steps for step, _ in points))
    if len(points) < first or 10 * points[-1][0] < steps:  # the beginning has not ended
        return iter(())
    most = fmean(value for _, value in points[:first]) + rise
    return _above(smoothed(points, window), most)


def _falling(
    evaluations: list[Point], rewards: list[Point], guards: PolicyGuardOptions
) -> _Crossed:
    """Yield the points after repeated falls; the threshold is the accuracy before the falls."""
    first_of_steps = list(dict(reversed(evaluations)).items())[::-1]
    falls = guards.guard_evaluation_falls
    for end in range(falls, len(first_of_steps) if rewards else 0):
        last = first_of_steps[end - falls : end + 1]
        falls_on = all(later < earlier for (_, earlier), (_, later) in pairwise(last))
        if falls_on and _at(rewards, last[0][0]) < _at(rewards, last[-1][0]):
            yield last[-1][0], last[-1][1], last[0][1]


def _at(points: Sequence[Point], step: int) -> float:
    """Return the last value up to a step; if there is none, the first value."""
    return next((value for when, value in reversed(points) if when <= step), points[0][1])
