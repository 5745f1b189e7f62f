"""Trainer callbacks: the progress lines, complete checkpoints, guards and plots."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback
from transformers import TrainerControl as Control
from transformers import TrainerState as State
from transformers import TrainingArguments as Arguments

from heavydistill.report.curves import draw
from heavydistill.report.terminal import said
from heavydistill.store.training_record import Alarm, TrainingRecord
from heavydistill.train import checkpoints
from heavydistill.train.guards import (
    ROLL_BACK,
    WARN,
    PolicyGuardOptions,
    alarm_text,
    alarms,
    loss_alarms,
)

LOG = "log.jsonl"
"""File in the output folder with every log entry, one per line."""
_HEADER_EVERY = 20
# (heading, name in the log, format, width) of a column.
_Column = tuple[str, str, str, int]
_SFT: tuple[_Column, ...] = (
    ("loss", "loss", ".4f", 8),
    ("accuracy", "mean_token_accuracy", ".1%", 9),
    ("entropy", "entropy", ".3f", 8),
    ("gradient", "grad_norm", ".2f", 9),
    ("tokens so far", "num_tokens", ",.0f", 15),
)
_GRPO: tuple[_Column, ...] = (
    ("teach", "teach", ".0%", 6),
    ("entropy", "entropy", ".3f", 8),
    ("tokens", "completions/mean_length", ",.0f", 7),
    ("cut off", "verdict/cut_off", ".1%", 8),
)
_DISTILLATION: tuple[_Column, ...] = (
    ("loss", "loss", ".4f", 8),
    ("entropy", "entropy", ".3f", 8),
    ("gradient", "grad_norm", ".2f", 9),
    ("tokens", "completions/mean_length", ",.0f", 7),
    ("cut off", "completions/clipped_ratio", ".1%", 8),
)
_CLIPPED: _Column = ("clipped", "clip_ratio/region_mean", ".1%", 8)
_KL: _Column = ("KL", "kl", ".1e", 8)
_RATE: _Column = ("lr", "learning_rate", ".1e", 8)
_EVALUATED = (
    ("HM", "eval_hm", ".1%"),
    ("HM with garbled attempts", "eval_hm_garbled", ".1%"),
    ("V", "eval_v", ".1%"),
    ("true steps where attempts agree", "eval_steps_agree", ".1%"),
    ("true steps where they part", "eval_steps_part", ".1%"),
    ("pass@1", "eval_pass_at_1", ".1%"),
    ("cut off", "eval_cut_off", ".1%"),
    ("loss of thinker rows", "eval_thinker_loss", ".4f"),
    ("loss of deliberator rows", "eval_deliberator_loss", ".4f"),
)


def columns_of(record: TrainingRecord, has_kl: bool = False) -> tuple[_Column, ...]:
    """Return the columns that a training prints.

    With ``has_kl``, the KL term of GRPO replaces the share of clipped tokens.
    """
    if record.stage != "grpo" or record.rl is None:
        return (*(_DISTILLATION if record.rl else _SFT), _RATE)
    right = "pass@1" if record.rl.mode == "thinker" else "HM"
    rewarded = (("reward", "reward", ".3f", 7), (right, "verdict/correct", ".1%", 7))
    return (*rewarded, *_GRPO, _KL if has_kl else _CLIPPED, _RATE)


class LogLines(TrainerCallback):
    """Prints a line with the main metrics, and appends every log entry to the file ``LOG``.

    Args:
        columns: Metrics of a line (``columns_of``).
        is_shown: Whether lines are printed.
    """

    def __init__(self, columns: Sequence[_Column], is_shown: bool = True) -> None:
        self._columns = columns
        self._lines, self._is_shown = 0, is_shown
        self._start = (0.0, 0)

    def on_train_begin(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Create the log file; when resuming, keep the entries up to the checkpoint."""
        self._start = time.monotonic(), state.global_step
        if state.is_world_process_zero:
            entries = [f"{json.dumps(entry)}\n" for entry in state.log_history]
            (Path(args.output_dir) / LOG).write_text("".join(entries), encoding="utf-8")

    def on_log(
        self, args: Arguments, state: State, control: Control, logs: dict[str, float], **_: object
    ) -> None:
        """Append the entry to the file and print its line."""
        if not state.is_world_process_zero:
            return
        with (Path(args.output_dir) / LOG).open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(state.log_history[-1])}\n")
        if not self._is_shown:
            return
        if "learning_rate" in logs:
            self._print_row(state, logs)
        elif shown := [
            f"{title} {logs[name]:{form}}" for title, name, form in _EVALUATED if name in logs
        ]:
            print(f"held out at step {state.global_step:,}: {', '.join(shown)}", flush=True)
        said()

    def _print_row(self, state: State, logs: Mapping[str, float]) -> None:
        if self._lines % _HEADER_EVERY == 0:
            titles = "".join(f"{title:>{width}}" for title, _, _, width in self._columns)
            print(f"{'step':>9}{'left':>9}{titles}", flush=True)
        self._lines += 1
        began, first = self._start
        done, steps = state.global_step - first, state.max_steps - state.global_step
        left = timedelta(seconds=round((time.monotonic() - began) / max(done, 1) * steps))
        values = {**logs, "teach": 1 - logs.get("frac_reward_zero_std", 1)}
        row = "".join(
            f"{'-' if values.get(name) is None else format(values[name], form):>{width}}"
            for _, name, form, width in self._columns
        )
        print(f"{f'{state.global_step}/{state.max_steps}':>9}{left!s:>9}{row}", flush=True)


class CheckpointMarkerCallback(TrainerCallback):
    """Marks a checkpoint as complete once every process has written its part.

    Only then are older checkpoints deleted, so that a killed training can always resume.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit

    def on_save(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Mark this step's checkpoint as complete, and delete old ones."""
        PartialState().wait_for_everyone()
        if not state.is_world_process_zero:
            return
        folder = Path(args.output_dir)
        checkpoints.mark_whole(folder / f"checkpoint-{state.global_step}")
        checkpoints.remove_old(folder, self._limit, state.best_model_checkpoint)


class ResumeArgsCallback(TrainerCallback):
    """Makes a resumed training use its current arguments instead of those in the checkpoint.

    The Trainer restores from a checkpoint the intervals for logging, evaluation and saving, and the
    best metric so far. ``measure`` holds the arguments that define this metric; if they have
    changed, the old best value is not comparable and is dropped.
    """

    def __init__(self, measure: Mapping[str, object]) -> None:
        self._measure = dict(measure)

    def on_train_begin(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Replace the values that the Trainer restored from the checkpoint."""
        state.compute_steps(args, state.max_steps)
        # Saved in every checkpoint, because a training may resume from any of them.
        before = state.stateful_callbacks.get("best_by", self._measure)
        state.stateful_callbacks["best_by"] = self._measure
        if before == self._measure:
            return
        if state.best_global_step and state.is_world_process_zero:
            step = f"Step {state.best_global_step} is no longer the best one"
            print(f"{step}: the measure has changed.", flush=True)
        state.best_metric = state.best_global_step = state.best_model_checkpoint = None


class WatchLoss(TrainerCallback):
    """Warns once if the loss of an SFT or a distillation rises after the warm-up.

    At the end, it counts how often.

    ``alarms`` are those so far. A learning rate that is right for a new model destroys what a
    trained one has learnt; the loss table alone shows it, but not that it matters.
    """

    def __init__(self) -> None:
        self.alarms: list[Alarm] = []

    def on_log(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Print the first alarm."""
        had = len(self.alarms)
        self.alarms = loss_alarms(state.log_history, args.get_warmup_steps(state.max_steps))
        if self.alarms and not had and state.is_world_process_zero:
            first = self.alarms[0]
            print(
                f"Guard loss, step {first.step}: the training loss is {first.value:.4g}, above 1.5 "
                f"times its first value (bound {first.bound:.4g}): the model forgets what it knew. "
                "Stop here, and give a smaller --learning_rate.",
                flush=True,
            )

    def on_train_end(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Print how many logged values were too high."""
        if self.alarms and state.is_world_process_zero:
            print(
                f"Guard loss: {len(self.alarms):,} logged values after the warm-up were above "
                f"{self.alarms[0].bound:.4g}, the last one at step {self.alarms[-1].step:,}.",
                flush=True,
            )


class WatchGuards(TrainerCallback):
    """Checks the guards after each log entry, and draws the plots unless ``draws`` is False.
    ``alarms`` are the alarms so far.

    If a guard ended the training at a checkpoint, resuming from it ends again without a step,
    unless that guard is set to ``warn``.
    """

    def __init__(
        self, guards: PolicyGuardOptions, metric: str = "eval_hm", draws: bool = True
    ) -> None:
        self._guards, self._metric, self._draws, self._steps = guards, metric, draws, 0
        self.alarms: list[Alarm] = []

    def on_train_begin(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Compute the alarms up to the checkpoint that the training resumes from, if any."""
        self.alarms, self._steps = [], state.max_steps
        self.on_log(args, state, control)
        if control.should_training_stop:
            state.max_steps = state.global_step

    def on_evaluate(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Write the plots into the output folder."""
        if state.is_world_process_zero and self._draws:
            window = self._guards.guard_window
            draw(state.log_history, Path(args.output_dir), self.alarms, window)

    def on_train_end(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Record the checkpoint that the Trainer has rolled back to, and write the plots."""
        rolled_back = [alarm for alarm in self.alarms if alarm.action == ROLL_BACK]
        if rolled_back:
            best = state.best_model_checkpoint
            step = checkpoints.step_of(Path(best)) if best else None
            for alarm in rolled_back:
                at = self.alarms.index(alarm)
                self.alarms[at] = alarm.model_copy(update={"rolled_back_to": step})
            if state.is_world_process_zero:
                print(
                    f"There was no checkpoint to roll back to: the model is that of step "
                    f"{state.global_step}."
                    if step is None
                    else f"Rolled back to checkpoint-{step}, the best one by "
                    f"{args.metric_for_best_model}.",
                    flush=True,
                )
        self.on_evaluate(args, state, control)

    def on_log(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Compute new alarms, and apply their actions."""
        # The first process decides for all; otherwise a process that continues alone would hang.
        shared = [alarms(state.log_history, self._guards, self._metric, self._steps)]
        if PartialState().num_processes > 1:
            broadcast_object_list(shared)
        new = shared[0][len(self.alarms) :]
        self.alarms += new
        for alarm in new:
            if alarm.action != WARN:
                control.should_training_stop = True
                # The Trainer then loads the best checkpoint at the end, with every engine.
                args.load_best_model_at_end |= alarm.action == ROLL_BACK
            if state.is_world_process_zero:
                ending = "" if alarm.action == WARN else " The training ends here."
                print(f"{alarm_text(alarm, self._guards)}{ending}", flush=True)
