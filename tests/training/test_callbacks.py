"""What the Trainer calls while it trains."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from heavydistill.training import keeping
from heavydistill.training.callbacks import KeepWhole


@pytest.mark.parametrize("first", [True, False])
def test_the_first_process_marks_the_new_checkpoint_and_removes_old_ones(
    tmp_path: Path, first: bool
) -> None:
    for step in (9, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
    state = SimpleNamespace(is_world_process_zero=first, global_step=10, best_model_checkpoint=None)
    KeepWhole(1).on_save(SimpleNamespace(output_dir=str(tmp_path)), state, None)
    assert keeping.is_whole(tmp_path / "checkpoint-10") == first
    assert (tmp_path / "checkpoint-9").exists() != first
