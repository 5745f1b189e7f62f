"""Exports the sets of a build for other trainers.

    DIR/README.md             instructions for training
    DIR/SET/SPLIT.parquet     the rows in order; SPLIT.jsonl for some trainers
    DIR/SET.yaml              a training configuration; .sh or .py for some trainers
    DIR/SET_reward.yaml       of ``preferences_ROLE``, the one of a reward model
    DIR/...                   further files that the trainer needs
    DIR/heavydistill_reward.py  the reward of ``rl``, see ``reward``
    DIR/manifest.json         a copy of the sets' manifest
    DIR/chat_template.jinja   a copy of the sets' chat template, if they have one

All trainers learn the same tokens: everything after the mark that opens the assistant turn, with
thinking and end of turn, and nothing before it. TRL, verl and axolotl render the student's chat
template from the messages of the sets; so do OpenRLHF and NeMo-RL, which add the end of sequence if
another token ends the turn. LLaMA-Factory, ms-swift and tinker have their own templates and get a
response as one text; see ``_spoken``. Peculiarities:

    verl          Its SFT dataset renders each turn separately, so that a template like Qwen3's
                  drops the thinking; ``heavydistill_sft.py`` renders prompt and conversation and
                  trains on the difference. The text ``none`` as a default counts as true, hence
                  ``enable_thinking_default: null``.
    llamafactory  ``enable_thinking: false`` deletes the thinking; without ``template`` it guesses
                  one that writes ``<think>`` twice. It accepts no custom reward.
    ms-swift      It drops every field of a message except ``role`` and ``content``, and looks up a
                  reward by name in a table; ``heavydistill_swift.py`` adds ours to the table.
    axolotl       It compares the trained turn with a placeholder, so that a mark that opens every
                  answer is never trained on; ``heavydistill_axolotl/sft.py`` uses another
                  method. No key does this, because an empty ``train_on_eos`` becomes ``turn``.

The folder gets its final name when it is complete. The same sets give the same bytes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shlex
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jinja2
import yaml

from heavydistill import plugins
from heavydistill.config.shipped import shipped
from heavydistill.curate.exports import reward
from heavydistill.errors import ConfigError
from heavydistill.models.registry import profile_file
from heavydistill.store.atomic import new_folder
from heavydistill.store.sets.folder import (
    CHAT_TEMPLATE,
    FURTHER,
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
from heavydistill.verifiers import registry

SFT = ("sft_deliberator", "sft_thinker")
RL = "rl"
TRAINED_ON = (*TRAINED, *(name for names in FURTHER.values() for name in names))
REWARD = "heavydistill_reward.py"
_TEMPLATES = Path(__file__).parent / "templates"
SFT_SHARE = 0.2
"""Weight of the loss of SFT on the chosen response in DPO."""
_STAGES = {"preferences": ("dpo", "reward"), "unpaired": ("kto",), RL: (RL,)}
"""Trainings on a set, by the first part of its name; ``sft`` on any other."""
_OF_REWARD = ("problem", "text", "reference", "verifier", "verifier_args", "stratum", "success")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Export:
    """The exported sets, and the values that the other files of an export depend on."""

    manifest: Manifest
    model: str  # Student's name for the trainer: Hub id or checkpoint folder
    template: str | None  # Chat template that replaces the student's; None to keep it
    rows: dict[str, dict[str, int]]  # Number of rows of each exported set, by split
    absent: dict[str, str]  # Reason for each set that is not exported
    longest_prompt: int  # Tokens of the longest ``rl`` prompt, with the generation prompt
    weights: dict[str, dict[str, float]]
    """Weights of the ``right`` and ``wrong`` rows for training, which balance each unpaired set."""

    @property
    def max_tokens(self) -> int:
        """Return the maximum number of tokens of a row, prompt and completion together."""
        return self.manifest.student.max_tokens

    @property
    def response_tokens(self) -> int:
        """Return the number of tokens left for a response to the longest prompt of ``rl``."""
        return self.max_tokens - self.longest_prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTarget:
    """A trainer and how sets are exported for it; a plug-in of the kind ``exporter``.

    In its commands, ``{name}`` stands for the name of the configuration.
    """

    title: str  # Name as the trainer's authors write it
    templates: Path
    """Folder with sft.yaml.jinja, README.md.jinja and, for what the trainer accepts of rewards,
    pairs and labelled responses, rl.yaml.jinja and preferences.yaml.jinja."""
    version: str  # Version that the export was written for
    sft_row: Callable[[Row], Row]  # Converts a row for SFT
    rl_row: Callable[[Row, int], Row] | None = None  # Converts an ``rl`` row and its index
    pair_row: Callable[[Row], Row] | None = None  # Converts a row of preferences
    label_row: Callable[[Row], Row] | None = None  # Converts a row of an unpaired set
    suffix: str = "yaml"  # Ending of the configurations, and of their templates
    in_parquet: bool = False  # Whether rows are parquet instead of JSON lines
    sft_command: str
    rl_command: str = ""
    preference_commands: Mapping[str, str] = field(default_factory=dict)
    """Commands of the trainings ``dpo``, ``reward`` and ``kto``, as far as there are any."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Name of each further file, and of its template (empty for an empty file); these files are
    written if a set of ``files_are_of`` is exported."""
    files_are_of: tuple[str, ...] = SFT

    @property
    def sets(self) -> tuple[str, ...]:
        """Return the names of the sets that the trainer supports."""
        return tuple(name for name in TRAINED_ON if self._row_of(name))

    def rows(self, name: str, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows of a set in the trainer's format."""
        if name == RL and self.rl_row:
            return map(self.rl_row, rows, itertools.count())
        return map(self._row_of(name) or self.sft_row, rows)

    def commands(self, name: str) -> dict[str, str]:
        """Return the command of each training on a set."""
        own = {"sft": self.sft_command, RL: self.rl_command, **self.preference_commands}
        return {stage: own[stage] for stage in stages_of(name) if stage in own}

    def _row_of(self, name: str) -> Callable[..., Row] | None:
        if name == RL:
            return self.rl_row
        own = {"dpo": self.pair_row, "kto": self.label_row}
        return own.get(stages_of(name)[0], self.sft_row)


def stages_of(name: str) -> tuple[str, ...]:
    """Return the trainings on a set."""
    return _STAGES.get(name.partition("_")[0], ("sft",))


def export(sets: str | Path, to: str, out: str | Path) -> Export:
    """Write the sets of a folder for a trainer into a new or empty folder.

    ``to`` is a key of ``TRAINERS``, or the name of a plug-in. Raises ConfigError if there is none,
    nothing that the trainer can train on, the prompts leave no room for a response, or the plug-in
    fails; and RunError if the disk is full or fails.
    """
    if to in TRAINERS:
        return _export(TRAINERS[to], Path(sets), Path(out))
    own = plugins.get("exporter", to, "--to")
    exported: Export = replace(own, value=_export)(own.value, Path(sets), Path(out))
    return exported


def _export(trainer: ExportTarget, sets: Path, out: Path) -> Export:
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


def _read(sets: Path, trainer: ExportTarget) -> Export:
    manifest = read_manifest(sets)
    rows, absent = {}, {}
    for name in manifest.rows:
        splits = splits_of(sets, name)
        if "train" not in splits:
            absent[name] = "the sets have no rows of it to train on"
        elif name not in trainer.sets:
            absent[name] = f"it is not exported for {trainer.title}"
        elif name == RL and (needing := _needing_judge(sets, splits)):
            absent[name] = (
                f"only a judge decides answers to problems of {needing}, and {trainer.title} has "
                "none; `heavydistill grpo --judge` trains on them"
            )
        else:
            rows[name] = {split: count_rows(file_of(sets, name, split)) for split in splits}
    if not rows:
        why = "; ".join(f"{name}: {reason}" for name, reason in absent.items())
        raise ConfigError(
            f"{sets} has no rows for {trainer.title} ({why})", "Build sets with more rows."
        )
    template, student = sets / CHAT_TEMPLATE, manifest.student.name
    is_profile = student in shipped("configs/teachers") or Path(student).is_file()
    profile = profile_file(student) if is_profile else None
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
        weights={name: _weights(sets, name) for name in rows if stages_of(name) == ("kto",)},
    )
    if exported.response_tokens < 1:
        raise ConfigError(
            f"{sets}: the longest prompt of rl has {exported.longest_prompt} tokens and leaves no "
            f"room for a response, because a row has at most {exported.max_tokens}",
            "Build the sets again with a larger max_tokens or a smaller cache.budget_tokens.",
        )
    return exported


def _weights(sets: Path, name: str) -> dict[str, float]:
    """Return weights of right and wrong rows, at least 1, with which both count alike."""
    labels = [row["label"] for row in rows_in(file_of(sets, name, "train"), ["label"])]
    right = sum(labels)
    wrong = len(labels) - right
    if not (right and wrong):
        return {"right": 1.0, "wrong": 1.0}
    return {"right": max(1.0, round(wrong / right, 2)), "wrong": max(1.0, round(right / wrong, 2))}


def _needing_judge(sets: Path, splits: Iterable[str]) -> str:
    """Return a verifier of the prompts of RL that needs a judge; empty if there is none."""
    files = (file_of(sets, RL, split) for split in splits)
    kinds = {row["verifier"] for file in files for row in rows_in(file, ["verifier"])}
    known = kinds.intersection(registry.names())
    return min((kind for kind in known if registry.get(kind).needs_judge), default="")


def _write_lines(rows: Iterable[Row], path: Path) -> None:
    with path.with_suffix(".jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _write_parquet(rows: Iterable[Row], path: Path) -> None:
    """Write rows to a parquet file with the schema of the first row."""
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
    """Return the conversation of a row, with thinking and answer as one text.

    The thinking marks are those that the student's template accepts in a text. If it accepts
    thinking only in a separate field, they are ``<think>`` and ``</think>``, as in most templates.
    A response without thinking has no marks.
    """
    return {"messages": [*row["prompt"], _text_of(row["completion"])]}


def _text_of(completion: list[Row]) -> Row:
    (turn,) = completion
    text = turn["content"]
    if turn.get("reasoning_content"):
        text = f"<think>\n{turn['reasoning_content']}\n</think>\n\n{text}"
    return {"role": turn["role"], "content": text}


def _columns(*names: str) -> Callable[[Row], Row]:
    """Return a converter that keeps these columns."""
    return lambda row: {name: row[name] for name in names}


def _ranked(row: Row) -> Row:
    """Return a pair in NeMo-RL's columns."""
    sides = enumerate((row["chosen"], row["rejected"]))
    completions = [{"rank": rank, "completion": side} for rank, side in sides]
    return {"context": row["prompt"], "completions": completions}


def _spoken_pair(row: Row) -> Row:
    """Return a pair in LLaMA-Factory's columns."""
    sides = {side: _text_of(row[side]) for side in ("chosen", "rejected")}
    return {"messages": row["prompt"], **sides}


def _compared(row: Row) -> Row:
    """Return a pair in the columns of tinker-cookbook."""
    sides = {"completion_A": [_text_of(row["chosen"])], "completion_B": [_text_of(row["rejected"])]}
    return {"comparison": {"prompt_conversation": row["prompt"], **sides}, "label": "A"}


def _rewarded(row: Row, **more: object) -> Row:
    """Return the columns that the reward needs, and the columns ``more``."""
    return {**{name: row[name] for name in _OF_REWARD}, **more}


def _rewarded_prompt(row: Row, index: int) -> Row:
    return _rewarded(row, prompt=row["prompt"])


def _verl_prompt(row: Row, index: int) -> Row:
    """Return a row in verl's columns; ``data_source``, the stratum, groups verl's metrics."""
    return {
        "data_source": f"heavydistill/{row['stratum']}",
        "prompt": row["prompt"],
        "ability": row["verifier"],
        "reward_model": {"style": "rule", "ground_truth": row["reference"]},
        "extra_info": _rewarded(row, index=index),
    }


_VERL_CONFIG = "--config-path=$PWD --config-name={name}"
_VERL_SFT = "torchrun --standalone --nproc_per_node=gpu -m verl.trainer.sft_trainer"

_TRL = ExportTarget(
    title="TRL",
    templates=_TEMPLATES / "trl",
    version="1.16",
    sft_row=_columns("prompt", "completion"),
    rl_row=_rewarded_prompt,
    pair_row=_columns("prompt", "chosen", "rejected"),
    label_row=_columns("prompt", "completion", "label"),
    in_parquet=True,
    sft_command="trl sft --config {name}.yaml",
    rl_command="trl grpo --config {name}.yaml",
    preference_commands={
        stage: f"trl {stage} --config {{name}}.yaml" for stage in ("dpo", "reward", "kto")
    },
)
_LLAMAFACTORY = "llamafactory-cli train {name}.yaml template=TEMPLATE"
_NEMO = "uv run --project nemo-rl nemo-rl/examples/run_{stage}.py --config {{name}}.yaml"
_UNSLOTH = "python heavydistill_unsloth.py {stage} {{name}}.yaml"
TRAINERS = {
    "trl": _TRL,
    "verl": ExportTarget(
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
    "llamafactory": ExportTarget(
        title="LLaMA-Factory",
        templates=_TEMPLATES / "llamafactory",
        version="0.9.5",
        sft_row=_spoken,
        pair_row=_spoken_pair,
        label_row=lambda row: {**_spoken(row), "label": row["label"]},
        sft_command=_LLAMAFACTORY,
        preference_commands=dict.fromkeys(("dpo", "reward", "kto"), _LLAMAFACTORY),
        files={"dataset_info.json": "dataset_info.json.jinja"},
    ),
    "ms-swift": ExportTarget(
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
    "axolotl": ExportTarget(
        title="axolotl",
        templates=_TEMPLATES / "axolotl",
        version="0.19",
        sft_row=_whole,
        rl_row=_rewarded_prompt,
        sft_command="PYTHONPATH=. axolotl train {name}.yaml",
        rl_command="PYTHONPATH=. axolotl train {name}.yaml",
        files={"heavydistill_axolotl/__init__.py": "", "heavydistill_axolotl/sft.py": "sft.py.txt"},
    ),
    "openrlhf": ExportTarget(
        title="OpenRLHF",
        templates=_TEMPLATES / "openrlhf",
        version="0.11",
        sft_row=_TRL.sft_row,
        pair_row=_TRL.pair_row,
        suffix="sh",
        sft_command="bash {name}.sh",
        preference_commands=dict.fromkeys(("dpo", "reward"), "bash {name}.sh"),
    ),
    "nemo-rl": ExportTarget(
        title="NeMo-RL",
        templates=_TEMPLATES / "nemo-rl",
        version="0.7",
        sft_row=_whole,
        pair_row=_ranked,
        sft_command=_NEMO.format(stage="sft"),
        preference_commands={
            "dpo": _NEMO.format(stage="dpo"),
            "reward": _NEMO.format(stage="rm"),
        },
    ),
    "tinker": ExportTarget(
        title="tinker-cookbook",
        templates=_TEMPLATES / "tinker",
        version="0.6",
        sft_row=_spoken,
        pair_row=_compared,
        suffix="py",
        sft_command="python {name}.py",
        preference_commands={"dpo": "python {name}.py"},
    ),
    "unsloth": replace(
        _TRL,
        title="Unsloth",
        templates=_TEMPLATES / "unsloth",
        version="2026.10",
        rl_row=None,
        sft_command=_UNSLOTH.format(stage="sft"),
        preference_commands={stage: _UNSLOTH.format(stage=stage) for stage in ("dpo", "kto")},
        files={"heavydistill_unsloth.py": "heavydistill_unsloth.py.txt"},
        files_are_of=TRAINED_ON,
    ),
}
plugins.ship("exporter", TRAINERS)


# --- Files.


def _files(trainer: ExportTarget, exported: Export) -> dict[str, str]:
    """Return the texts of all files except the rows, by name."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader([trainer.templates, _TEMPLATES]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.globals |= {"export": exported, "entry": _entry, "batch": _batch}
    templates.globals |= {"shell": shlex.quote, "text": json.dumps, "sft_share": SFT_SHARE}
    files: dict[str, str] = {}
    commands: dict[str, list[str]] = defaultdict(list)  # By ``sft``, ``rl`` and ``preferences``
    for name, rows in exported.rows.items():
        for stage, command in trainer.commands(name).items():
            kind = stage if stage in ("sft", RL) else "preferences"
            stem = f"{name}_reward" if stage == "reward" else name
            commands[kind].append(command.format(name=stem))
            text = templates.get_template(f"{kind}.{trainer.suffix}.jinja").render(
                name=name, rows=rows, stem=stem, stage=stage, weights=exported.weights.get(name)
            )
            files[f"{stem}.{trainer.suffix}"] = f"# {commands[kind][-1]}\n{text}"
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
        **{kind: "\n".join(commands[kind]) for kind in ("sft", RL, "preferences")},
    )
    if not exported.rows.keys().isdisjoint(trainer.files_are_of):
        for name, source in trainer.files.items():
            files[name] = templates.get_template(source).render() if source else ""
    return files


def _entry(path: str, value: object) -> str:
    """Return a YAML entry for a user's value, indented according to its dotted path."""
    *parents, key = path.split(".")
    tree = {key: value}
    for parent in reversed(parents):
        tree = {parent: tree}
    text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=100)
    return "\n".join(text.splitlines()[len(parents) :])


def _batch(rows: int, most: int) -> int:
    """Return the largest power of two up to both numbers; verl drops incomplete batches."""
    return min(most, 1 << (rows.bit_length() - 1))


def _where(model: str) -> str:
    if model in shipped("configs/teachers"):
        return (
            f"It is a part of heavydistill: put its folder, which `heavydistill teachers {model}` "
            "tells, in place of its name in the configurations."
        )
    return "If it is a folder, the configurations need its path as it is seen from here."
