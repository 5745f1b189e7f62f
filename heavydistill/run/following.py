"""A run that takes its pools from another one of the same folder, which is made just before it.

Both appear with the folder that they are in, so the second reads the first where it is written,
and its configuration names the place where the first will be.

Not covered: what the second is for; see ``evaluation`` and ``crossing``.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from heavydistill.config.run import Problems, RunConfig, Think
from heavydistill.run import generate


def reading_pools(config: RunConfig, **changes: Any) -> RunConfig:
    """A completed configuration without its thinker, to be given pools.

    Args:
        config: Of the run whose pools will be read, or of one asked like it.
        changes: Fields that differ.
    """
    nobody = {"thinker": None, "think": Think(min_k=config.think.min_k), "problems": Problems()}
    return config.model_copy(update={**nobody, "pools_sha256": None, **changes})


def check_following(config: RunConfig, pools: str, folder: Path, written: Path) -> generate.Plan:
    """The plan of the run ``config.out``, which reads the run ``pools`` beside it.

    Args:
        config: From ``reading_pools``, with its place.
        pools: Name of that run's folder.
        folder: In which both will be.
        written: Where that is until then.

    Raises:
        UserError: As of ``run.check``.
    """
    checked = generate.check(config.model_copy(update={"pools": str(written / pools)}))
    return dataclasses.replace(
        checked,
        run=checked.run.with_config(pools=str(folder / pools)),
        folder=written / checked.folder.name,
        pools_at=written / pools,
    )
