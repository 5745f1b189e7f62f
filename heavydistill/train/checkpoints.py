"""What lies in the output folder is whole, or is not taken for it.

    training.json     the record; without a result as long as the training has not ended
    checkpoint-N/     for going on; whole if ``whole.json`` is in it, which is written last
    model files       the trained model; ``config.json`` or ``adapter_config.json``, without which
                      nobody can load them, gets its name last

A training goes on from the last checkpoint that is whole, and only if it is the same training:
the same model, rows, batches and schedule.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heavydistill.errors import ConfigError
from heavydistill.schema import content_id
from heavydistill.store.training_record import EVALUATION, TrainingRecord, read_record

if TYPE_CHECKING:
    from transformers import Trainer

WHOLE = "whole.json"
_ENTRIES = ("config.json", "adapter_config.json")
_CHECKPOINT = re.compile(r"checkpoint-\d+")
_NEW = ".new"
# What may differ when a training goes on: what is said, looked at and kept, and how much memory
# it takes.
_FREE = re.compile(
    r"log.*|report_to|run_name|eval_.*|do_eval|save_.*|push_to_hub|hub_.*|disable_tqdm|project|"
    r"trackio_.*|dataset_num_proc|dataloader_(?!drop_last).*|per_device_eval_batch_size|"
    r"num_generations_eval|metric_for_best_model|greater_is_better|guard_.*|held_out|"
    r"resume_from_checkpoint|gradient_checkpointing.*|activation_offloading|"
    r"vllm_gpu_memory_utilization|vllm_enable_sleep_mode|num_completions_to_print"
)


def mark_whole(checkpoint: Path) -> None:
    """Note the sizes of all files of a checkpoint in it."""
    new = checkpoint / f".{WHOLE}{_NEW}"
    new.write_text(json.dumps(_sizes(checkpoint), indent=1), encoding="utf-8")
    new.replace(checkpoint / WHOLE)


def remove_old(folder: Path, limit: int | None, best: str | None) -> None:
    """Remove the oldest checkpoints down to ``limit``; the last and the best one stay."""
    checkpoints = _checkpoints(folder)
    kept = {checkpoints[-1].name, Path(best or "").name}
    old = [path for path in checkpoints if path.name not in kept]
    for path in old[: max(0, len(checkpoints) - limit)] if limit else []:
        shutil.rmtree(path)


def is_whole(checkpoint: Path) -> bool:
    """Whether nothing is missing of a checkpoint that was noted when it was written."""
    try:
        noted = json.loads((checkpoint / WHOLE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    there = _sizes(checkpoint)
    return all(there.get(name) == size for name, size in noted.items())


def start_of(folder: Path, resume: str | bool | None) -> Path | None:
    """The checkpoint of the output folder that a training starts from; None if it starts anew.

    Raises:
        ConfigError: ``resume`` names none that is whole; or what is in the folder would be lost.
    """
    if (folder / EVALUATION).exists():  # the card would tell its figures of the model that comes
        raise ConfigError(
            f"output_dir: there is an evaluation in {folder}, of the model that was there before",
            f"Move {folder / EVALUATION} elsewhere, or remove it.",
        )
    checkpoints, chosen = _checkpoints(folder), str(resume).lower()
    if resume is None or chosen in ("false", "no"):
        # A record alone is of a training that broke before there was anything to go on from.
        if checkpoints or any((folder / name).exists() for name in _ENTRIES):
            raise ConfigError(
                f"output_dir: there is a training in {folder}",
                "Give --resume_from_checkpoint true or another --output_dir, or remove this one.",
            )
        return None
    whole = [path for path in checkpoints if is_whole(path)]
    if chosen not in ("true", "yes", "last"):
        whole = [path for path in whole if path.resolve() == Path(str(resume)).resolve()]
    if not whole:
        names = ", ".join(path.name for path in checkpoints) or "none"
        raise ConfigError(
            f"resume_from_checkpoint: {resume} is no whole checkpoint of {folder} ({names})",
            "Give true for the last whole one; if there is none, remove the folder.",
        )
    return whole[-1]


def remove_others(folder: Path, start: Path | None) -> None:
    """Remove the checkpoints that are not whole or come after the start, and say so.

    A later one would be overwritten file by file, and look whole meanwhile.
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
    """Raise a ``ConfigError`` if another training began in the folder; it says what differs."""
    old, new = _schedule(read_record(folder)), _schedule(record)
    for key in {**old, **new}:
        if old.get(key) != new.get(key):
            raise ConfigError(
                f"{folder} began with {key} {old.get(key)!r}, and now it is {new.get(key)!r}",
                "Go on with what it began with, or begin anew with another --output_dir.",
            )


def save_model(trainer: Trainer, folder: Path) -> None:
    """Write the trained model into a folder, so that it can be loaded only when it is whole.

    Called by all processes, for the weights may be spread over them.
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
        (new / "README.md").unlink(missing_ok=True)  # that of PEFT; ours is made of the record
        (new / "training_args.bin").unlink(missing_ok=True)  # the record says it, without paths
        for path in sorted(new.iterdir(), key=lambda path: (path.name in _ENTRIES, path.name)):
            path.replace(folder / path.name)
        new.rmdir()


def step_of(checkpoint: Path) -> int:
    """The step after which it was written."""
    return int(checkpoint.name.rpartition("-")[2])


def _checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a folder, whole or not, the first one first."""
    if not folder.is_dir():
        return []
    found = (path for path in folder.iterdir() if _CHECKPOINT.fullmatch(path.name))
    return sorted((path for path in found if path.is_dir()), key=step_of)


def _sizes(folder: Path) -> dict[str, int]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in files
        if path.name not in (WHOLE, f".{WHOLE}{_NEW}")
    }


def _schedule(record: TrainingRecord) -> dict[str, Any]:
    """All that must be the same, a key each."""
    rl = record.rl
    arguments = {
        name: value for name, value in record.arguments.items() if not _FREE.fullmatch(name)
    }
    return {
        # Not the rows of validation, which are looked at.
        **{
            f"source {number}": (
                used.role,
                used.rows["train"],
                content_id("sets", used.manifest.files),
            )
            for number, used in enumerate(record.sets, start=1)
        },
        "prompts": rl and (rl.mode, rl.problems_sha256, rl.run),
        "base": (record.base.name, record.base.revision, record.base.template_sha256),
        "method": record.method,
        "processes": record.launch.processes,
        "engine": record.launch.engine,  # each reads the optimizer's state of its own alone
        **arguments,
        "max_length": record.max_length,
    }
