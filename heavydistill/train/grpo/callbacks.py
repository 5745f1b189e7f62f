"""What the Trainer calls so that a GRPO training is watched: the guards, and the curves.

A step in which all responses were cut off is said at once, whatever the guards are set to.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback

from heavydistill.store.training_record import Alarm
from heavydistill.train import checkpoints
from heavydistill.train.grpo.curves import draw
from heavydistill.train.grpo.guards import (
    MORE_TOKENS,
    ROLL_BACK,
    WARN,
    GuardArguments,
    alarms,
    cut_off,
    told,
)


class WatchCollapse(TrainerCallback):
    """Looks for a collapse in all that is logged, and does what was asked for.

    A training that goes on from a checkpoint behind which it was ended ends again, without a step;
    with the guard at ``warn`` it goes on.

    Args:
        guards: Bounds and actions, checked.
        metric: The held-out accuracy.

    Attributes:
        alarms: What fired so far, for the record.
    """

    def __init__(self, guards: GuardArguments, metric: str = "eval_hm") -> None:
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
                print(f"{told(alarm, self._guards)}{ending}", flush=True)


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
        metric: As of ``WatchCollapse``.
    """

    def __init__(self, guards: GuardArguments, metric: str = "eval_hm") -> None:
        self._guards, self._metric = guards, metric

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Draw."""
        if state.is_world_process_zero:
            fired = alarms(state.log_history, self._guards, self._metric)
            draw(state.log_history, Path(args.output_dir), fired, self._guards.guard_window)

    on_train_end = on_evaluate
