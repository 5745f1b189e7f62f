"""The output folder of a training, written so that an incomplete file is never taken for complete.

    training.json     the record; it has a result once the training has ended
    checkpoint-N/     to resume from; complete if it has ``whole.json``, which is written last
    model files       the trained model; ``config.json`` or ``adapter_config.json``, without which
                      it cannot be loaded, is written last

A training resumes from the last complete checkpoint, and only if model, rows, batches and schedule
are the same as before.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from heavydistill.errors import ConfigError
from heavydistill.schema import content_id
from heavydistill.store.training_record import EVALUATION, TrainingRecord, read_record

if TYPE_CHECKING:
    from transformers import Trainer

WHOLE = "whole.json"
_ENTRIES = ("config.json", "adapter_config.json")
_CHECKPOINT = re.compile(r"checkpoint-\d+")
_NEW = ".new"
# Arguments that may change on resuming: logging, evaluation, saving and memory.
_FREE = re.compile(
    r"log.*|report_to|run_name|eval_.*|do_eval|save_.*|push_to_hub|hub_.*|disable_tqdm|project|"
    r"trackio_.*|dataset_num_proc|dataloader_(?!drop_last).*|per_device_eval_batch_size|"
    r"num_generations_eval|metric_for_best_model|greater_is_better|guard_.*|held_out|"
    r"resume_from_checkpoint|gradient_checkpointing.*|activation_offloading|"
    r"vllm_gpu_memory_utilization|vllm_enable_sleep_mode|num_completions_to_print"
)


def mark_whole(checkpoint: Path) -> None:
    """Write ``whole.json`` into a checkpoint: the sizes of all its files."""
    new = checkpoint / f".{WHOLE}{_NEW}"
    new.write_text(json.dumps(_sizes(checkpoint), indent=1), encoding="utf-8")
    new.replace(checkpoint / WHOLE)


def remove_old(folder: Path, limit: int | None, best: str | None) -> None:
    """Delete the oldest checkpoints until ``limit`` remain; the last and the best one are kept."""
    checkpoints = _checkpoints(folder)
    kept = {checkpoints[-1].name, Path(best or "").name}
    old = [path for path in checkpoints if path.name not in kept]
    for path in old[: max(0, len(checkpoints) - limit)] if limit else []:
        shutil.rmtree(path)


def is_whole(checkpoint: Path) -> bool:
    """Return whether all files of a checkpoint have the sizes that ``mark_whole`` wrote."""
    try:
        noted = json.loads((checkpoint / WHOLE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    sizes = _sizes(checkpoint)
    return all(sizes.get(name) == size for name, size in noted.items())


def start_of(folder: Path, resume: str | bool | None) -> Path | None:
    """Return the checkpoint to resume from; None for a new training.

    Raises:
        ConfigError: ``resume`` names no complete checkpoint, or files in the folder would be lost.
    """
    if (folder / EVALUATION).exists():  # the card would show the old evaluation for the new model
        raise ConfigError(
            f"output_dir: {folder} has an evaluation of an earlier model",
            f"Move {folder / EVALUATION} elsewhere, or remove it.",
        )
    checkpoints, chosen = _checkpoints(folder), str(resume).lower()
    if resume is None or chosen in ("false", "no"):
        # A training that failed before its first checkpoint leaves only a record.
        if checkpoints or any((folder / name).exists() for name in _ENTRIES):
            raise ConfigError(
                f"output_dir: {folder} already has a training",
                "Give --resume_from_checkpoint true or another --output_dir, or remove the folder.",
            )
        return None
    whole = [path for path in checkpoints if is_whole(path)]
    if chosen not in ("true", "yes", "last"):
        whole = [path for path in whole if path.resolve() == Path(str(resume)).resolve()]
    if not whole:
        names = ", ".join(path.name for path in checkpoints) or "none"
        raise ConfigError(
            f"resume_from_checkpoint: {resume} is not a complete checkpoint in {folder} ({names})",
            "Give true for the last complete one; if there is none, remove the folder.",
        )
    return whole[-1]


def remove_others(folder: Path, start: Path | None) -> None:
    """Delete incomplete checkpoints and those after ``start``, and print their names.

    Otherwise a later checkpoint, while being overwritten file by file, could look complete.
    """
    for path in _checkpoints(folder):
        if not is_whole(path):
            why = "was not whole"
        elif start and step_of(path) > step_of(start):
            why = "will be written again"
        else:
            continue
        shutil.rmtree(path)
        print(f"Removed {path.name}, which {why}.", flush=True)


def check_same(folder: Path, record: TrainingRecord) -> None:
    """Raise a ``ConfigError`` if ``record`` differs from that of the training in ``folder``."""
    old, new = _schedule(read_record(folder)), _schedule(record)
    for key in {**old, **new}:
        if old.get(key) != new.get(key):
            raise ConfigError(
                f"{folder} was started with {key} {old.get(key)!r}, and now it is {new.get(key)!r}",
                "Resume with the same value, or start again with another --output_dir.",
            )


def save_model(trainer: Trainer, folder: Path) -> None:
    """Write the trained model into a folder; the folder can be loaded only when it is complete.

    All processes must call this, because the weights may be spread over them.
    """
    new = folder / _NEW
    if trainer.args.should_save:
        shutil.rmtree(new, ignore_errors=True)
        for entry in _ENTRIES:
            (folder / entry).unlink(missing_ok=True)
    trainer.accelerator.wait_for_everyone()
    trainer.save_model(str(new))
    trainer.accelerator.wait_for_everyone()
    if trainer.args.should_save:
        (new / "README.md").unlink(missing_ok=True)  # PEFT's model card; ours comes from the record
        (new / "training_args.bin").unlink(missing_ok=True)  # the record has them, without paths
        for path in sorted(new.iterdir(), key=lambda path: (path.name in _ENTRIES, path.name)):
            path.replace(folder / path.name)
        new.rmdir()


def step_of(checkpoint: Path) -> int:
    """Return the training step at which a checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


def _checkpoints(folder: Path) -> list[Path]:
    """Return all checkpoints of a folder, complete or not, ordered by step."""
    if not folder.is_dir():
        return []
    folders = (path for path in folder.iterdir() if _CHECKPOINT.fullmatch(path.name))
    return sorted((path for path in folders if path.is_dir()), key=step_of)


def _sizes(folder: Path) -> dict[str, int]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in files
        if path.name not in (WHOLE, f".{WHOLE}{_NEW}")
    }


def _schedule(record: TrainingRecord) -> dict[str, object]:
    """Return everything that must be the same when a training resumes, by name."""
    rl = record.rl
    arguments = {
        name: value for name, value in record.arguments.items() if not _FREE.fullmatch(name)
    }
    return {
        # Validation rows may differ.
        **{
            f"source {number}": (
                used.role,
                used.rows["train"],
                content_id("sets", used.manifest.files),
            )
            for number, used in enumerate(record.sets, start=1)
        },
        "prompts": rl and (rl.mode, rl.problems_sha256, rl.run),
        "teacher": rl and rl.teacher and (rl.teacher.name, rl.teacher.revision),
        "base": (record.base.name, record.base.revision, record.base.template_sha256),
        "method": record.method,
        "processes": record.launch.processes,
        "engine": record.launch.engine,  # an engine can only read its own optimizer states
        **arguments,
        "max_length": record.max_length,
    }
