"""Guards against the collapse that HeavySkill's RLVR with K=16 shows (arXiv 2605.02396, Figure 6).

There the training reward and the share of solved groups climb while entropy, length and the
held-out accuracy fall: the model learns to copy and to vote, and no longer to deliberate. Four
guards look for it in what the training logs, and a fifth for responses that never end:

    entropy     the entropy of the policy is below a share of its peak
    length      the mean completion is shorter than a share of the longest there was
    all_right   so many groups are solved that the rest teaches little
    evaluation  the held-out accuracy fell at so many evaluations in a row, and the training reward
                is higher than before them
    cut_off     most responses are cut off: they have no reward, and groups shrink

A logged value counts as the median of itself and those before it, ``guard_window`` in all, so that
no odd step fires a guard or is a peak. Evaluations are taken as they are, of several at one step
the first: with ``eval_on_start`` the Trainer evaluates again where a training goes on. Where all
responses are cut off in ``guard_window`` logged values in a row, nothing is learnt, and ``cut_off``
ends the training whatever else it does, unless it is off.

A guard fires once, when its bound is passed for the first time; ``cut_off`` a second time to end
the training. What fires is found in ``log_history`` alone, which is in every checkpoint: a training
that goes on finds what fired before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback

from heavydistill.errors import ConfigError
from heavydistill.report.curves import Point, draw, series, smoothed
from heavydistill.store.training_record import Alarm
from heavydistill.train import checkpoints

if TYPE_CHECKING:
    from heavydistill.train.grpo.batches import GenerationBatch
    from heavydistill.train.grpo.config import GrpoConfig

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
    return field(default=default, metadata={"help": text, "choices": [*ACTIONS]})


def _share(what: str, default: float) -> Any:
    return field(default=default, metadata={"help": f"Share of {what}, between 0 and 1."})


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
    guard_evaluation_falls: int = field(
        default=3, metadata={"help": "Evaluations in a row, each below the one before."}
    )
    guard_cut_off: str = _action("More than guard_cut_off_above of the responses are cut off")
    guard_cut_off_above: float = _share("the responses", 0.5)
    guard_window: int = field(
        default=5,
        metadata={
            "help": "A logged value counts as the median of so many, itself and those before it."
        },
    )

    def action_of(self, guard: str) -> str:
        """What is done when a guard fires."""
        return str(getattr(self, f"guard_{guard}") or WARN)


def check_guards(guards: GuardOptions, config: GrpoConfig) -> None:
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


@dataclass(frozen=True, slots=True)
class ExpectedLogs:
    """The steps at which a training logs and evaluates."""

    logs: list[int]
    responses: list[int]
    """Those logs before which, since the last one, responses were sampled."""
    evaluations: list[int]


def foreseen(config: GrpoConfig, batch: GenerationBatch, steps: int, prompts: int) -> ExpectedLogs:
    """What guards will see, found by the Trainer's own rules.

    Args:
        config: When it logs and evaluates.
        batch: When it samples.
        steps: Of the training.
        prompts: Of an epoch.
    """
    from transformers import DefaultFlowCallback, TrainerControl, TrainerState

    rules, state, epoch = DefaultFlowCallback(), TrainerState(max_steps=steps), batch.steps(prompts)
    state.compute_steps(config, steps)
    seen = ExpectedLogs([], [], [0] * config.eval_on_start)
    is_sampled = False
    for step in range(1, steps + 1):
        state.global_step, state.epoch = step, step / epoch
        control = rules.on_step_end(config, state, TrainerControl())
        if step % epoch == 0 or step == steps:
            control = rules.on_epoch_end(config, state, control)
        is_sampled |= batch.begins_generation(step, prompts)
        if control.should_log or step == steps:  # what is left at the end is logged
            seen.logs.append(step)
            if is_sampled:
                seen.responses.append(step)
            is_sampled = False
        if control.should_evaluate:
            seen.evaluations.append(step)
    return seen


def idle(guards: GuardOptions, seen: ExpectedLogs) -> dict[str, str]:
    """The guards that are on and will see too few values to fire, and why, in words.

    Args:
        guards: Bounds and actions.
        seen: What there will be.

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
        guard: f"it needs {least} {what}, and there will be {len(steps)}"
        for guard, (least, what, steps) in needed.items()
        if guards.action_of(guard) != OFF and len(steps) < least
    }
    if (
        guards.action_of("evaluation") != OFF
        and "evaluation" not in found
        and not _may_rise(seen, window)
    ):
        found["evaluation"] = (
            f"the reward, as the median of {window} logged values, cannot rise between evaluations"
        )
    for guard, why in found.items():
        if (action := guards.action_of(guard)) != WARN:
            raise ConfigError(
                f"guard_{guard} is {action} and can never fire: {why}",
                "Give a smaller eval_steps, logging_steps, guard_window or "
                "guard_evaluation_falls, or more steps."
                if guard == "evaluation"
                else "Give a smaller logging_steps or guard_window, or more steps.",
            )
    return found


def _may_rise(seen: ExpectedLogs, window: int) -> bool:
    """Whether the reward may be higher at the last evaluation than at the first one."""
    first, last = seen.evaluations[0], seen.evaluations[-1]
    # As long as there is no median, the first one counts.
    return any(first < step <= last for step in seen.responses[window:])


def alarms(
    history: Sequence[Mapping[str, Any]], guards: GuardOptions, metric: str = "eval_hm"
) -> list[Alarm]:
    """All that fired in a training, in the order of its steps; those that are off do not.

    Args:
        history: ``log_history`` of the Trainer's state. A value that is missing in an entry, or
            null, or no number, is passed over.
        guards: Bounds and actions.
        metric: The held-out accuracy.
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


class WatchGuards(TrainerCallback):
    """Looks for a collapse in all that is logged, and does what the guards are set to.

    A step in which all responses were cut off is said at once, whatever they are set to.

    A training that goes on from a checkpoint behind which it was ended ends again, without a step;
    with the guard at ``warn`` it goes on.

    Args:
        guards: Bounds and actions, checked.
        metric: The held-out accuracy.

    Attributes:
        alarms: What fired so far, for the record.
    """

    def __init__(self, guards: GuardOptions, metric: str = "eval_hm") -> None:
        self._guards, self._metric = guards, metric
        self.alarms: list[Alarm] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Find what fired before the checkpoint."""
        self.alarms = []
        self._look(args, state, control, says_warnings=False)
        if control.should_training_stop:
            state.max_steps = state.global_step

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Look at what was logged."""
        if state.is_world_process_zero:
            _say_if_nothing_was_learnt(args, state)
        self._look(args, state, control)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note which checkpoint became the model; the Trainer has loaded it by now."""
        if not any(alarm.action == ROLL_BACK for alarm in self.alarms):
            return
        best = state.best_model_checkpoint
        step = checkpoints.step_of(Path(best)) if best else None
        self.alarms = [
            alarm.model_copy(update={"rolled_back_to": step})
            if alarm.action == ROLL_BACK
            else alarm
            for alarm in self.alarms
        ]
        said = f"Rolled back to checkpoint-{step}, the best one by {args.metric_for_best_model}."
        if step is None:
            said = (
                f"There was no checkpoint to roll back to: the model is step {state.global_step}."
            )
        if state.is_world_process_zero:
            print(said, flush=True)

    def _look(self, args: Any, state: Any, control: Any, says_warnings: bool = True) -> None:
        # The first process decides for all: one that went on alone would wait for ever.
        shared = [alarms(state.log_history, self._guards, self._metric)]
        if PartialState().num_processes > 1:
            broadcast_object_list(shared)
        new = shared[0][len(self.alarms) :]
        self.alarms += new
        for alarm in new:
            if alarm.action != WARN:
                control.should_training_stop = True
                # What the Trainer does at the end, with every engine.
                args.load_best_model_at_end |= alarm.action == ROLL_BACK
            if state.is_world_process_zero and (says_warnings or alarm.action != WARN):
                ending = "" if alarm.action == WARN else " The training ends here."
                print(f"{alarm_text(alarm, self._guards)}{ending}", flush=True)


def _say_if_nothing_was_learnt(args: Any, state: Any) -> None:
    """Print a line if all responses, or all attempts, were cut off since the last log."""
    logged = state.log_history[-1]
    if not any(share == 1 for _, share in cut_off([logged])):
        return
    rows = args.per_device_train_batch_size * args.world_size * args.steps_per_generation
    what = f"all responses ({rows:,} a generation)"
    if logged.get("verdict/cut_off") != 1:
        what = f"all attempts (among {rows:,} responses a generation)"
    print(
        f"Step {logged['step']}: {what} were cut off, at up to "
        f"{logged['completions/max_length']:,.0f} tokens: nothing was learnt. {MORE_TOKENS}.",
        flush=True,
    )


class DrawCurves(TrainerCallback):
    """Draws the curves into the output folder, at every evaluation and at the end.

    Args:
        guards: Whose alarms are marked.
        metric: As of ``WatchGuards``.
    """

    def __init__(self, guards: GuardOptions, metric: str = "eval_hm") -> None:
        self._guards, self._metric = guards, metric

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Draw."""
        if state.is_world_process_zero:
            fired = alarms(state.log_history, self._guards, self._metric)
            draw(state.log_history, Path(args.output_dir), fired, self._guards.guard_window)

    on_train_end = on_evaluate
