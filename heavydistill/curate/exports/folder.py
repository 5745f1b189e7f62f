"""Writes the sets of a build in the form that a trainer reads.

    DIR/README.md             how to train with it
    DIR/SET/SPLIT.parquet     the rows, in their order; SPLIT.jsonl for some trainers
    DIR/SET.yaml              a configuration to train on them
    DIR/...                   what else the trainer needs, see its module
    DIR/heavydistill_reward.py  the reward of ``rl``, see ``reward``
    DIR/manifest.json         of the sets, as it is there
    DIR/chat_template.jinja   likewise, if the sets have one

The folder appears under its name only when it is complete. The same sets give the same bytes.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any, Protocol

from heavydistill.curate.exports import axolotl, llamafactory, reward, swift, trl, verl
from heavydistill.curate.exports.trainer import REWARD, RL, Export, Trainer
from heavydistill.errors import ConfigError
from heavydistill.models.registry import file_of, names
from heavydistill.schema import to_row
from heavydistill.store.atomic import new_folder
from heavydistill.store.sets import folder as sets_folder
from heavydistill.store.sets.folder import CHAT_TEMPLATE, TRAINED
from heavydistill.store.sets.manifest import MANIFEST, read_manifest

TRAINERS = {
    "trl": trl.TRAINER,
    "verl": verl.TRAINER,
    "llamafactory": llamafactory.TRAINER,
    "ms-swift": swift.TRAINER,
    "axolotl": axolotl.TRAINER,
}


def export(sets: Path, to: str, out: Path) -> Export:
    """Write the sets of a folder for a trainer.

    Args:
        sets: Folder that a build wrote.
        to: A key of ``TRAINERS``.
        out: Folder that is not there or empty.

    Returns:
        What was written.

    Raises:
        ConfigError: No such trainer, no sets, none that the trainer can train on, or a folder
            that is not empty.
        RunError: The disk is full or fails.
    """
    if to not in TRAINERS:
        raise ConfigError(
            f"There is no trainer {to!r} to export to", f"Name one of: {', '.join(TRAINERS)}."
        )
    manifest = read_manifest(sets)
    template = sets / CHAT_TEMPLATE
    found = Export(
        manifest=manifest,
        model=_as_trainers_find_it(manifest.student.name),
        template=template.read_text(encoding="utf-8") if template.is_file() else None,
    )
    with new_folder(out) as new:
        _write(sets, TRAINERS[to], found, new)
    return found


def _as_trainers_find_it(student: str) -> str:
    """The Hub id of a student with a profile; any other as it was given."""
    file = file_of(student) if student in names() or Path(student).is_file() else None
    return (file and file.hub) or student


def _write(sets: Path, trainer: Trainer, found: Export, folder: Path) -> None:
    for name in TRAINED:
        if "train" not in sets_folder.splits_of(sets, name):
            found.absent[name] = "the sets have no rows of it to train on"
        elif name not in trainer.sets:
            found.absent[name] = trainer.why_not
        else:
            found.rows[name] = _write_rows(sets, name, trainer, found, folder)
    if not found.rows:
        why = "; ".join(f"{name}: {reason}" for name, reason in found.absent.items())
        raise ConfigError(
            f"{sets} has nothing for {trainer.title} ({why})", "Build sets with more rows."
        )
    if RL in found.rows and found.response_tokens < 1:
        raise ConfigError(
            f"{sets}: the longest prompt of rl has {found.longest_prompt} tokens, and a row may "
            f"have {found.max_tokens}, so that no room is left for a response",
            "Build the sets again with a larger max_tokens or a smaller cache.budget_tokens.",
        )
    files = trainer.files(found)
    if RL in found.rows:
        files[REWARD] = _reward(found)
    if found.template is not None:
        files[CHAT_TEMPLATE] = found.template
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    shutil.copyfile(sets / MANIFEST, folder / MANIFEST)


def _reward(found: Export) -> str:
    text, switch = Path(reward.__file__).read_text(encoding="utf-8"), "PROMPT_OPENS_THINKING = "
    return text.replace(f"{switch}False", f"{switch}{found.manifest.student.opens_thinking}")


def _write_rows(
    sets: Path, name: str, trainer: Trainer, found: Export, folder: Path
) -> dict[str, int]:
    """The rows of a set, by split."""
    counts = {}
    for split in sets_folder.splits_of(sets, name):
        file = folder / name / split
        kind = trainer.kind and trainer.kind(name, found.manifest.student.form)
        writer: _Writer = (
            sets_folder.Writer(file.with_suffix(".parquet"), kind)
            if kind
            else _Lines(file.with_suffix(".jsonl"))
        )
        with contextlib.closing(writer):
            for index, row in enumerate(sets_folder.read_rows(sets, name, split)):
                writer.write(trainer.row(name, row, index))
                if name == RL:
                    found.longest_prompt = max(found.longest_prompt, row["prompt_tokens"])
        counts[split] = writer.rows
    return counts


class _Writer(Protocol):
    rows: int

    def write(self, row: Any) -> None: ...

    def close(self) -> None: ...


class _Lines:
    """Writes rows as lines of JSON."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file.open("w", encoding="utf-8")
        self.rows = 0

    def write(self, row: Any) -> None:
        self._file.write(json.dumps(to_row(row), ensure_ascii=False) + "\n")
        self.rows += 1

    def close(self) -> None:
        self._file.close()
