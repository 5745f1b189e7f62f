"""Finds out what a folder is, and packs it."""

from __future__ import annotations

import re
from pathlib import Path

from heavydistill.errors import PublishError
from heavydistill.hub.model import pack_model
from heavydistill.hub.parcel import Parcel, Wish, check_wish
from heavydistill.hub.sets import pack_sets
from heavydistill.store.sets.folder import MANIFEST
from heavydistill.store.traces import TRACES_FOLDER
from heavydistill.store.training_record import RECORD

_CHECKPOINT = re.compile(r"checkpoint-\d+")


def pack(folder: Path, wish: Wish) -> Parcel:
    """What is sent of a folder of sets or of a trained model; changes and asks nothing.

    Raises:
        PublishError: It is neither, or both; or as of ``pack_sets`` and ``pack_model``.
        ConfigError: As of these.
    """
    check_wish(wish)
    is_sets, is_model = ((folder / name).is_file() for name in (MANIFEST, RECORD))
    if is_sets and is_model:
        raise PublishError(
            f"{folder} holds sets ({MANIFEST}) and a trained model ({RECORD})",
            "Move one of them to a folder of its own.",
        )
    if is_sets:
        return pack_sets(folder, wish)
    if is_model:
        return pack_model(folder, wish)
    raise _neither(folder)


def _neither(folder: Path) -> PublishError:
    if (folder / TRACES_FOLDER).is_dir():
        return PublishError(
            f"{folder} is a run, and what is published are sets and trained models",
            f"Build sets with `heavydistill build {folder} --out FOLDER`: every problem, attempt, "
            "candidate set and deliberation of the run is in them too.",
        )
    if _CHECKPOINT.fullmatch(folder.resolve().name):
        return PublishError(
            f"{folder} is a checkpoint in the middle of a training",
            f"Give the folder of the trained model, {folder.resolve().parent}.",
        )
    return PublishError(
        f"{folder} holds no sets and no trained model: there is neither {MANIFEST} nor {RECORD}",
        "Give the folder that `heavydistill build --out FOLDER` wrote, or the output folder of "
        "scripts/sft.py.",
    )
