"""The form that LLaMA-Factory reads: conversations in JSON lines, named in ``dataset_info.json``.

It has chat templates of its own and knows no field for thinking: a response is one text, with the
thinking between the marks of its template, which are ``<think>`` and ``</think>`` for most. With
``enable_thinking: false`` it deletes what stands between them, and without ``template`` it guesses
one from the student's, which writes ``<think>`` twice where that opens the answer with it.

It trains with no reward of one's own, so that ``rl`` is not exported.

Read in LLaMA-Factory 0.9.5: ``src/llamafactory/data/converter.py``
(``SharegptDatasetConverter``), ``data/parser.py``, ``data/template.py`` (``ReasoningTemplate``,
``parse_template``), ``data/processor/supervised.py``, ``hparams/data_args.py`` and
``hparams/parser.py``, and ``data/README.md``; hiyouga/LLaMA-Factory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from heavydistill.curate.exports.trainer import (
    SFT,
    Conversation,
    Export,
    Trainer,
    as_yaml,
    commands,
    readme,
    spoken,
)

_COMMAND = "llamafactory-cli train {name}.yaml template=TEMPLATE"


def _row(name: str, row: Mapping[str, Any], index: int) -> Conversation:
    return Conversation(messages=spoken(row))


def _files(export: Export) -> dict[str, str]:
    described = {
        _dataset(name, split): _description(name, split)
        for name in export.sft
        for split in export.rows[name]
    }
    return {
        **{f"{name}.yaml": _config(name, export) for name in export.sft},
        "dataset_info.json": json.dumps(described, indent=2) + "\n",
        "README.md": readme(TRAINER, export, _sections(export)),
    }


def _dataset(name: str, split: str) -> str:
    return name if split == "train" else f"{name}_{split}"


def _description(name: str, split: str) -> dict[str, Any]:
    return {
        "file_name": f"{name}/{split}.jsonl",
        "formatting": "sharegpt",
        "columns": {"messages": "messages"},
        "tags": {
            "role_tag": "role",
            "content_tag": "content",
            "user_tag": "user",
            "assistant_tag": "assistant",
        },
    }


def _config(name: str, export: Export) -> str:
    validation = {"eval_dataset": _dataset(name, "validation"), "eval_strategy": "epoch"}
    return as_yaml(
        _COMMAND.format(name=name),
        {
            "model_name_or_path": export.model,
            "template": "TEMPLATE",
            "stage": "sft",
            "do_train": True,
            "dataset_dir": ".",
            "dataset": _dataset(name, "train"),
            **(validation if export.is_validated(name) else {}),
            "cutoff_len": export.max_tokens,
            "train_on_prompt": False,
            "enable_thinking": True,
            "output_dir": f"out/{name}",
        },
    )


def _sections(export: Export) -> list[str]:
    paragraphs = [
        "## SFT",
        "In this folder, with LLaMA-Factory's name for the student's template in place of TEMPLATE "
        "(its README lists them, e.g. `qwen3`):",
        commands([_COMMAND.format(name=name) for name in export.sft]),
        "`template` must be named: without it LLaMA-Factory guesses one from the student's, and "
        "where that opens the answer with `<think>`, the mark is learnt twice.",
        "A response is one text with its thinking in front, between think marks. LLaMA-Factory "
        "learns it whole and puts an empty pair of marks before a response without thinking. Its "
        "reasoning templates write `<think>` and `</think>`; for a student with other marks (Gemma "
        "4, gpt-oss, Seed-OSS, Kimi) compare `thought_words` in its `template.py` with the rows, "
        "or train with TRL, verl or axolotl, which render the student's own template. `_nothink` "
        "templates are for students that never think. `enable_thinking` stays true: false deletes "
        "the thinking. `cutoff_len` holds the longest row; the default of 2048 cuts answers off.",
    ]
    if export.template is not None:
        paragraphs += [
            "LLaMA-Factory does not read `chat_template.jinja`: name one of its templates that "
            "keeps the thinking, or train with TRL, verl or axolotl.",
        ]
    return paragraphs


TRAINER = Trainer(
    title="LLaMA-Factory",
    version="0.9.5",
    row=_row,
    files=_files,
    sets=SFT,
    why_not="LLaMA-Factory has no training with a verifier's reward",
)
