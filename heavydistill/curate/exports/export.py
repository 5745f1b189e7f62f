"""Writes the sets of a build in the form that another trainer reads.

    DIR/README.md             how to train with it
    DIR/SET/SPLIT.parquet     the rows, in their order; SPLIT.jsonl for some trainers
    DIR/SET.yaml              a configuration to train on them
    DIR/...                   what else the trainer needs, see ``trainers``
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
from typing import Any

import jinja2
import yaml

from heavydistill.curate.exports import reward
from heavydistill.curate.exports.trainers import REWARD, RL, TRAINERS, Export, Trainer
from heavydistill.errors import ConfigError
from heavydistill.models.registry import file_of, names
from heavydistill.schema import to_row
from heavydistill.store.atomic import new_folder
from heavydistill.store.sets import folder as sets_folder
from heavydistill.store.sets.folder import CHAT_TEMPLATE, MANIFEST, TRAINED, read_manifest


def export(sets: Path, to: str, out: Path) -> Export:
    """Write the sets of a folder for a trainer.

    Args:
        sets: Folder that a build wrote.
        to: A key of ``TRAINERS``.
        out: Folder that is not there or empty.

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
    exported = Export(
        manifest=manifest,
        model=_as_trainers_find_it(manifest.student.name),
        template=template.read_text(encoding="utf-8") if template.is_file() else None,
    )
    with new_folder(out) as folder:
        _write_sets(sets, TRAINERS[to], exported, folder)
        for name, text in _files(to, TRAINERS[to], exported).items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        shutil.copyfile(sets / MANIFEST, folder / MANIFEST)
    return exported


def _as_trainers_find_it(student: str) -> str:
    """The Hub id of a student with a profile; any other as it was given."""
    file = file_of(student) if student in names() or Path(student).is_file() else None
    return (file and file.hub) or student


def _write_sets(sets: Path, trainer: Trainer, exported: Export, folder: Path) -> None:
    for name in TRAINED:
        if "train" not in sets_folder.splits_of(sets, name):
            exported.absent[name] = "the sets have no rows of it to train on"
        elif name not in trainer.sets:
            exported.absent[name] = trainer.why_no_rl
        else:
            exported.rows[name] = _write_rows(sets, name, trainer, exported, folder)
    if not exported.rows:
        why = "; ".join(f"{name}: {reason}" for name, reason in exported.absent.items())
        raise ConfigError(
            f"{sets} has nothing for {trainer.title} ({why})", "Build sets with more rows."
        )
    if RL in exported.rows and exported.response_tokens < 1:
        raise ConfigError(
            f"{sets}: the longest prompt of rl has {exported.longest_prompt} tokens, and a row may "
            f"have {exported.max_tokens}, so that no room is left for a response",
            "Build the sets again with a larger max_tokens or a smaller cache.budget_tokens.",
        )


def _write_rows(
    sets: Path, name: str, trainer: Trainer, exported: Export, folder: Path
) -> dict[str, int]:
    """The rows of a set, by split."""
    counts = {}
    kind = trainer.kind and trainer.kind(name, exported.manifest.student.form)
    for split in sets_folder.splits_of(sets, name):
        file = folder / name / split
        writer: sets_folder.Writer | _JsonLines = (
            sets_folder.Writer(file.with_suffix(".parquet"), kind)
            if kind
            else _JsonLines(file.with_suffix(".jsonl"))
        )
        with contextlib.closing(writer):
            for index, row in enumerate(sets_folder.read_rows(sets, name, split)):
                writer.write(trainer.row(name, row, index))
                if name == RL:
                    exported.longest_prompt = max(exported.longest_prompt, row["prompt_tokens"])
        counts[split] = writer.rows
    return counts


class _JsonLines:
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


def _files(to: str, trainer: Trainer, exported: Export) -> dict[str, str]:
    """The files beside the rows, name to text."""
    templates, files, commands = _templates(), {}, {}
    for name, rows in exported.rows.items():
        command = trainer.rl_command if name == RL else trainer.sft_command
        commands[name] = command.format(name=name)
        template = templates.get_template(f"{to}/{'rl' if name == RL else 'sft'}.yaml.jinja")
        text = template.render(export=exported, name=name, rows=rows, entry=_entry, batch=_batch)
        files[f"{name}.yaml"] = f"# {commands[name]}\n{text}"
    if RL in exported.rows:
        text, switch = Path(reward.__file__).read_text(encoding="utf-8"), "PROMPT_OPENS_THINKING = "
        opens_thinking = exported.manifest.student.opens_thinking
        files[REWARD] = text.replace(f"{switch}False", f"{switch}{opens_thinking}")
    if exported.template is not None:
        files[CHAT_TEMPLATE] = exported.template
    files["README.md"] = templates.get_template("README.md.jinja").render(
        name=to,
        trainer=trainer,
        export=exported,
        student=exported.manifest.student,
        where=_where(exported.model),
        sft="\n".join(commands[name] for name in exported.sft),
        rl=commands.get(RL, ""),
    )
    return files | trainer.files(exported)


def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader(__package__),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _entry(path: str, value: Any) -> str:
    """An entry of a YAML mapping, indented as its dotted path says; for values of a user."""
    *parents, key = path.split(".")
    tree = {key: value}
    for parent in reversed(parents):
        tree = {parent: tree}
    text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=100)
    return "\n".join(text.splitlines()[len(parents) :])


def _batch(rows: int, most: int) -> int:
    """The largest power of two that is at most both: verl leaves out what fills no batch."""
    return min(most, 1 << (rows.bit_length() - 1))


def _where(model: str) -> str:
    if model in names():
        return (
            f"It is a part of heavydistill: put its folder, which `heavydistill teachers {model}` "
            "tells, in place of its name in the configurations."
        )
    return "If it is a folder, the configurations need its path as it is seen from here."
