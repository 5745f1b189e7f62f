"""Exports the sets of a build for other trainers.

    DIR/README.md             how to train with it
    DIR/SET/SPLIT.parquet     the rows, in their order; SPLIT.jsonl for some trainers
    DIR/SET.yaml              a configuration to train on them
    DIR/...                   further files that the trainer needs
    DIR/heavydistill_reward.py  the reward of ``rl``, see ``reward``
    DIR/manifest.json         a copy of the manifest of the sets
    DIR/chat_template.jinja   a copy of the template of the sets, if they have one

All trainers learn the same tokens: everything after the mark that opens the answer, with thinking
and end of turn, and nothing before it. TRL, verl and axolotl render the student's own chat template
and get the messages of the sets. LLaMA-Factory and ms-swift have templates of their own and get a
response as one text; see ``_spoken``. Peculiarities:

    verl          Its SFT dataset renders each turn separately, so that a template like Qwen3's
                  drops the thinking; ``heavydistill_sft.py`` renders prompt and conversation and
                  learns the difference. The text ``none`` as a default counts as true, hence
                  ``enable_thinking_default: null``.
    llamafactory  ``enable_thinking: false`` deletes the thinking; without ``template`` it guesses
                  one that writes ``<think>`` twice. It accepts no custom reward.
    ms-swift      It drops every field of a message but ``role`` and ``content``, and finds a reward
                  by name in a table, into which ``heavydistill_swift.py`` puts ours.
    axolotl       It compares the learnt turn with a placeholder, so that a mark that opens every
                  answer is never learnt; ``heavydistill_axolotl/sft.py`` switches to another
                  method. No key does so, because an empty ``train_on_eos`` becomes ``turn``.

The folder appears under its name when it is complete. The same sets give the same bytes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import yaml

from heavydistill.config.shipped import shipped
from heavydistill.curate.exports import reward
from heavydistill.errors import ConfigError
from heavydistill.models.registry import profile_file
from heavydistill.store.atomic import new_folder
from heavydistill.store.sets.folder import (
    CHAT_TEMPLATE,
    MANIFEST,
    TRAINED,
    Manifest,
    Writer,
    count_rows,
    file_of,
    read_manifest,
    read_rows,
    splits_of,
)
from heavydistill.store.traces import rows_in

SFT = ("sft_deliberator", "sft_thinker")
RL = "rl"
REWARD = "heavydistill_reward.py"
_TEMPLATES = Path(__file__).parent / "templates"
_OF_REWARD = ("problem", "text", "reference", "verifier", "verifier_args", "stratum", "success")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Export:
    """The sets that are exported, and the values on which the other files depend."""

    manifest: Manifest
    model: str  # Student as a trainer finds it: Hub id or checkpoint folder
    template: str | None  # Chat template in place of the student's own
    rows: dict[str, dict[str, int]]  # Number of rows of each exported set, by split
    absent: dict[str, str]  # Sets that are not exported, with the reason
    longest_prompt: int  # Tokens of the longest prompt of ``rl``, with the generation prompt

    @property
    def max_tokens(self) -> int:
        """Maximum number of tokens of a row, prompt and completion together."""
        return self.manifest.student.max_tokens

    @property
    def response_tokens(self) -> int:
        """Tokens that the longest prompt of ``rl`` leaves for a response."""
        return self.max_tokens - self.longest_prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """One trainer. A command has ``{name}`` for the name of the configuration."""

    title: str  # Name as its makers write it
    templates: Path
    """Folder with sft.yaml.jinja, rl.yaml.jinja if it accepts a reward, and README.md.jinja."""
    version: str  # Version whose code was read
    sft_row: Callable[[Row], Row]  # Converts a row for SFT
    rl_row: Callable[[Row, int], Row] | None = None  # Converts a row of ``rl`` and its number
    in_parquet: bool = False  # Whether rows are parquet; otherwise JSON lines
    sft_command: str
    rl_command: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    """Further files, name to template, empty for an empty one; those of ``files_are_of``."""
    files_are_of: tuple[str, ...] = SFT

    @property
    def sets(self) -> tuple[str, ...]:
        """The sets on which the trainer can train."""
        return TRAINED if self.rl_row else SFT

    def rows(self, name: str, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows of a set in the trainer's form."""
        if name == RL and self.rl_row:
            return map(self.rl_row, rows, itertools.count())
        return map(self.sft_row, rows)


def export(sets: Path, to: str, out: Path) -> Export:
    """Write the sets of a folder for a trainer, a key of ``TRAINERS``, into a new or empty folder.

    Raises ConfigError where there is nothing that the trainer can train on, or no room for it; and
    RunError where the disk is full or fails.
    """
    if to not in TRAINERS:
        raise ConfigError(
            f"--to: there is no exporter for {to!r}", f"Give one of {', '.join(TRAINERS)}."
        )
    trainer = TRAINERS[to]
    exported = _read(sets, trainer)
    with new_folder(out) as folder:
        for name, splits in exported.rows.items():
            (folder / name).mkdir()
            for split in splits:
                rows = trainer.rows(name, read_rows(sets, name, split))
                write = _write_parquet if trainer.in_parquet else _write_lines
                write(rows, folder / name / split)
        for name, text in _files(trainer, exported).items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        shutil.copyfile(sets / MANIFEST, folder / MANIFEST)
    return exported


def _read(sets: Path, trainer: Trainer) -> Export:
    """What there is to export."""
    manifest = read_manifest(sets)
    rows, absent = {}, {}
    for name in TRAINED:
        splits = splits_of(sets, name)
        if "train" not in splits:
            absent[name] = "the sets have no rows of it to train on"
        elif name not in trainer.sets:
            absent[name] = f"{trainer.title} has no training with a verifier's reward"
        else:
            rows[name] = {split: count_rows(file_of(sets, name, split)) for split in splits}
    if not rows:
        why = "; ".join(f"{name}: {reason}" for name, reason in absent.items())
        raise ConfigError(
            f"{sets} has no rows for {trainer.title} ({why})", "Build sets with more rows."
        )
    template, student = sets / CHAT_TEMPLATE, manifest.student.name
    profile = (
        profile_file(student)
        if student in shipped("configs/teachers") or Path(student).is_file()
        else None
    )
    prompts = (
        row["prompt_tokens"]
        for split in rows.get(RL, ())
        for row in rows_in(file_of(sets, RL, split), ["prompt_tokens"])
    )
    exported = Export(
        manifest=manifest,
        model=(profile and profile.hub) or student,
        template=template.read_text(encoding="utf-8") if template.is_file() else None,
        rows=rows,
        absent=absent,
        longest_prompt=max(prompts, default=0),
    )
    if exported.response_tokens < 1:
        raise ConfigError(
            f"{sets}: the longest prompt of rl has {exported.longest_prompt} tokens and leaves no "
            f"room for a response, because a row has at most {exported.max_tokens}",
            "Build the sets again with a larger max_tokens or a smaller cache.budget_tokens.",
        )
    return exported


def _write_lines(rows: Iterable[Row], path: Path) -> None:
    with path.with_suffix(".jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _write_parquet(rows: Iterable[Row], path: Path) -> None:
    """Write rows that all have the schema of the first."""
    import pyarrow as pa

    coming = iter(rows)
    first = next(coming)
    schema = pa.Table.from_pylist([first]).schema
    with contextlib.closing(Writer(path.with_suffix(".parquet"), schema)) as writer:
        for row in itertools.chain([first], coming):
            writer.copy(row)


# --- Rows.


def _whole(row: Row) -> Row:
    return {"messages": row["prompt"] + row["completion"]}


def _spoken(row: Row) -> Row:
    """The conversation of a row, with thinking and answer as one text.

    The marks around the thinking are those that the student's template accepts in a text; if it
    accepts thinking only in a field, they are ``<think>`` and ``</think>``, as in most templates. A
    response without thinking has no marks.
    """
    (turn,) = row["completion"]
    text = turn["content"]
    if turn.get("reasoning_content"):
        text = f"<think>\n{row['reasoning']}\n</think>\n\n{row['answer_text']}"
    return {"messages": [*row["prompt"], {"role": turn["role"], "content": text}]}


def _prompt_and_completion(row: Row) -> Row:
    return {"prompt": row["prompt"], "completion": row["completion"]}


def _rewarded(row: Row, **more: Any) -> Row:
    """The columns that the reward needs, and those of ``more``."""
    return {**{name: row[name] for name in _OF_REWARD}, **more}


def _rewarded_prompt(row: Row, index: int) -> Row:
    return _rewarded(row, prompt=row["prompt"])


def _verl_prompt(row: Row, index: int) -> Row:
    """A row in verl's columns; verl groups metrics by ``data_source``, which is the stratum."""
    return {
        "data_source": f"heavydistill/{row['stratum']}",
        "prompt": row["prompt"],
        "ability": row["verifier"],
        "reward_model": {"style": "rule", "ground_truth": row["reference"]},
        "extra_info": _rewarded(row, index=index),
    }


_VERL_CONFIG = "--config-path=$PWD --config-name={name}"
_VERL_SFT = "torchrun --standalone --nproc_per_node=gpu -m verl.trainer.sft_trainer"

TRAINERS = {
    "trl": Trainer(
        title="TRL",
        templates=_TEMPLATES / "trl",
        version="1.16",
        sft_row=_prompt_and_completion,
        rl_row=_rewarded_prompt,
        in_parquet=True,
        sft_command="trl sft --config {name}.yaml",
        rl_command="trl grpo --config {name}.yaml",
    ),
    "verl": Trainer(
        title="verl",
        templates=_TEMPLATES / "verl",
        version="0.9",
        sft_row=_whole,
        rl_row=_verl_prompt,
        in_parquet=True,
        sft_command=f"{_VERL_SFT} {_VERL_CONFIG}",
        rl_command=f"python -m verl.trainer.main_ppo {_VERL_CONFIG}",
        files={"heavydistill_sft.py": "heavydistill_sft.py.txt"},
    ),
    "llamafactory": Trainer(
        title="LLaMA-Factory",
        templates=_TEMPLATES / "llamafactory",
        version="0.9.5",
        sft_row=_spoken,
        sft_command="llamafactory-cli train {name}.yaml template=TEMPLATE",
        files={"dataset_info.json": "dataset_info.json.jinja"},
    ),
    "ms-swift": Trainer(
        title="ms-swift",
        templates=_TEMPLATES / "ms-swift",
        version="4.6",
        sft_row=_spoken,
        rl_row=lambda row, index: _rewarded(row, messages=row["prompt"]),
        sft_command="swift sft {name}.yaml",
        rl_command="swift rlhf {name}.yaml",
        files={"heavydistill_swift.py": "heavydistill_swift.py.txt"},
        files_are_of=(RL,),
    ),
    "axolotl": Trainer(
        title="axolotl",
        templates=_TEMPLATES / "axolotl",
        version="0.19",
        sft_row=_whole,
        rl_row=_rewarded_prompt,
        sft_command="PYTHONPATH=. axolotl train {name}.yaml",
        rl_command="PYTHONPATH=. axolotl train {name}.yaml",
        files={
            "heavydistill_axolotl/__init__.py": "",
            "heavydistill_axolotl/sft.py": "sft.py.txt",
        },
    ),
}


# --- Files.


def _files(trainer: Trainer, exported: Export) -> dict[str, str]:
    """The texts of all files beside the rows, by name."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader([trainer.templates, _TEMPLATES]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.globals |= {"export": exported, "entry": _entry, "batch": _batch}
    files, commands = {}, {}
    for name, rows in exported.rows.items():
        command = trainer.rl_command if name == RL else trainer.sft_command
        commands[name] = command.format(name=name)
        template = templates.get_template("rl.yaml.jinja" if name == RL else "sft.yaml.jinja")
        files[f"{name}.yaml"] = f"# {commands[name]}\n{template.render(name=name, rows=rows)}"
    if RL in exported.rows:
        text, switch = Path(reward.__file__).read_text(encoding="utf-8"), "PROMPT_OPENS_THINKING = "
        opens_thinking = exported.manifest.student.opens_thinking
        files[REWARD] = text.replace(f"{switch}False", f"{switch}{opens_thinking}")
    if exported.template is not None:
        files[CHAT_TEMPLATE] = exported.template
    files["README.md"] = templates.get_template("frame.md.jinja").render(
        trainer=trainer,
        student=exported.manifest.student,
        where=_where(exported.model),
        sft="\n".join(command for name, command in commands.items() if name != RL),
        rl=commands.get(RL, ""),
    )
    if not exported.rows.keys().isdisjoint(trainer.files_are_of):
        for name, source in trainer.files.items():
            files[name] = templates.get_template(source).render() if source else ""
    return files


def _entry(path: str, value: Any) -> str:
    """An entry of a YAML mapping for a value of the user, indented for its dotted path."""
    *parents, key = path.split(".")
    tree = {key: value}
    for parent in reversed(parents):
        tree = {parent: tree}
    text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=100)
    return "\n".join(text.splitlines()[len(parents) :])


def _batch(rows: int, most: int) -> int:
    """The largest power of two up to both numbers: verl drops rows that do not fill a batch."""
    return min(most, 1 << (rows.bit_length() - 1))


def _where(model: str) -> str:
    if model in shipped("configs/teachers"):
        return (
            f"It is a part of heavydistill: put its folder, which `heavydistill teachers {model}` "
            "tells, in place of its name in the configurations."
        )
    return "If it is a folder, the configurations need its path as it is seen from here."
