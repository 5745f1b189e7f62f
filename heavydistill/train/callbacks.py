"""What the Trainer calls while it trains: checkpoints that are whole, guards, curves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback

from heavydistill.report.curves import draw
from heavydistill.store.training_record import Alarm
from heavydistill.train import checkpoints
from heavydistill.train.grpo.guards import ROLL_BACK, WARN, GuardOptions, alarm_text, alarms


class KeepWhole(TrainerCallback):
    """Says of each checkpoint that all of it is there, once every process has written its part.

    Older ones are removed only then: a training killed in between would have none to resume from.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Mark the checkpoint of this step as whole, and remove old ones."""
        PartialState().wait_for_everyone()
        if not state.is_world_process_zero:
            return
        folder = Path(args.output_dir)
        checkpoints.mark_whole(folder / f"checkpoint-{state.global_step}")
        checkpoints.remove_old(folder, self._limit, state.best_model_checkpoint)


class GoOn(TrainerCallback):
    """Has a training that goes on follow its own arguments, not those of the checkpoint.

    The Trainer takes from the checkpoint when to log, evaluate and save, and with which value later
    ones are compared. If ``measure`` (what is measured on what, by the names of the arguments) has
    changed, that value says nothing of them: then none is the best so far.
    """

    def __init__(self, measure: Mapping[str, Any]) -> None:
        self._measure = dict(measure)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Correct what was read from the checkpoint."""
        state.compute_steps(args, state.max_steps)
        # In every checkpoint, for another than the last one may be gone on from.
        before = state.stateful_callbacks.get("best_by", self._measure)
        state.stateful_callbacks["best_by"] = self._measure
        if before == self._measure:
            return
        if state.best_global_step and state.is_world_process_zero:
            step = f"Step {state.best_global_step} is no longer the best one"
            print(f"{step}: what is measured has changed.", flush=True)
        state.best_metric = state.best_global_step = state.best_model_checkpoint = None


class WatchGuards(TrainerCallback):
    """Looks for a collapse in all that is logged, does what the guards are set to, draws curves.

    A training that resumes from a checkpoint behind which a guard ended it ends again, without a
    step; with that guard at ``warn`` it goes on. ``alarms`` are what fired so far.
    """

    def __init__(self, guards: GuardOptions, metric: str = "eval_hm") -> None:
        self._guards, self._metric = guards, metric
        self.alarms: list[Alarm] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Find what fired before the checkpoint."""
        self.alarms = []
        self.on_log(args, state, control)
        if control.should_training_stop:
            state.max_steps = state.global_step

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Draw the curves into the output folder."""
        if state.is_world_process_zero:
            folder, window = Path(args.output_dir), self._guards.guard_window
            draw(state.log_history, folder, self.alarms, window)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note which checkpoint became the model, which the Trainer has loaded by now, and draw."""
        rolled_back = [alarm for alarm in self.alarms if alarm.action == ROLL_BACK]
        if rolled_back:
            best = state.best_model_checkpoint
            step = checkpoints.step_of(Path(best)) if best else None
            for alarm in rolled_back:
                at = self.alarms.index(alarm)
                self.alarms[at] = alarm.model_copy(update={"rolled_back_to": step})
            if state.is_world_process_zero:
                print(
                    f"There was no checkpoint to roll back to: the model is step "
                    f"{state.global_step}."
                    if step is None
                    else f"Rolled back to checkpoint-{step}, the best one by "
                    f"{args.metric_for_best_model}.",
                    flush=True,
                )
        self.on_evaluate(args, state, control)

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Look at what was logged."""
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
            if state.is_world_process_zero:
                ending = "" if alarm.action == WARN else " The training ends here."
                print(f"{alarm_text(alarm, self._guards)}{ending}", flush=True)
