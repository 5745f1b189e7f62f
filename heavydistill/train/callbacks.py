"""What the Trainer calls while it trains."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import TrainerCallback

from heavydistill.train import checkpoints


class KeepWhole(TrainerCallback):
    """Says of each checkpoint that all of it is there, once every process has written its part.

    Only then are older ones removed: the Trainer would do it before, and a training that was
    killed meanwhile would have none to go on from.

    Args:
        limit: ``save_total_limit``: most checkpoints that are kept, the best one among them.
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
    ones are compared. A value that was measured by something else says nothing of them: then none
    is the best so far.

    Args:
        measure: What is measured on what, by the names of the arguments; simple values.
    """

    _KEPT = "best_by"

    def __init__(self, measure: Mapping[str, Any]) -> None:
        self._measure = dict(measure)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Correct what was read from the checkpoint."""
        state.compute_steps(args, state.max_steps)
        # In every checkpoint, for another than the last one may be gone on from.
        before = state.stateful_callbacks.get(self._KEPT, self._measure)
        state.stateful_callbacks[self._KEPT] = self._measure
        changed = [name for name, value in self._measure.items() if before.get(name) != value]
        if not changed:
            return
        if state.best_global_step and state.is_world_process_zero:
            print(
                f"Step {state.best_global_step} is no longer the best one: {', '.join(changed)} "
                "changed. Only evaluations from here on are compared.",
                flush=True,
            )
        state.best_metric = state.best_global_step = state.best_model_checkpoint = None
