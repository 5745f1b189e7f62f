"""What the Trainer calls while it trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import TrainerCallback

from heavydistill.training import keeping


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
        keeping.mark_whole(folder / f"checkpoint-{state.global_step}")
        keeping.remove_old(folder, self._limit, state.best_model_checkpoint)
