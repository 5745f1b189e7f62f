"""The form that axolotl reads: conversations in JSON lines, and a configuration for each set.

axolotl renders the student's chat template and finds the learnt turn by comparing it with one that
holds a placeholder. What both have in common is not learnt: of a template that opens every answer
with ``<think>`` without having it in the prompt, as that of Qwen3, the model never learns to open
its thinking. ``heavydistill_axolotl/sft.py`` switches to axolotl's plainer way, which learns
everything after what opens the answer; no key of the configuration does, because an empty
``train_on_eos`` is replaced by ``turn``.

A row of ``rl`` is that of TRL, whose GRPO axolotl runs; without ``type`` it is taken as it is.

Read in axolotl 0.19.0: ``src/axolotl/prompt_strategies/chat_template.py``
(``_tokenize_single_prompt``, ``_find_turn_from_text``, ``StrategyLoader``),
``prompt_strategies/__init__.py``, ``utils/data/rl.py``, ``utils/schemas/datasets.py``,
``core/trainers/grpo/__init__.py``, and ``docs/dataset-formats/conversation.qmd``;
axolotl-ai-cloud/axolotl.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heavydistill.curate.exports.trainer import (
    REWARD,
    RL,
    Conversation,
    Export,
    Trainer,
    as_yaml,
    commands,
    messages,
    own_template,
    readme,
)
from heavydistill.curate.exports.trl import TRAINER as TRL
from heavydistill.store.sets.folder import CHAT_TEMPLATE

_STRATEGY = "heavydistill_axolotl.sft"
_COMMAND = "PYTHONPATH=. axolotl train {name}.yaml"


def _row(name: str, row: Mapping[str, Any], index: int) -> Any:
    if name == RL:
        return TRL.row(name, row, index)
    return Conversation(messages=[*messages(row["prompt"]), *messages(row["completion"])])


def _files(export: Export) -> dict[str, str]:
    files = {f"{name}.yaml": _sft(name, export) for name in export.sft}
    if export.sft:
        files["heavydistill_axolotl/__init__.py"] = ""
        files["heavydistill_axolotl/sft.py"] = _STRATEGY_TEXT
    if RL in export.rows:
        files["rl.yaml"] = _grpo(export)
    return {**files, "README.md": readme(TRAINER, export, _sections(export))}


def _sft(name: str, export: Export) -> str:
    return as_yaml(
        _COMMAND.format(name=name),
        {
            "base_model": export.model,
            **_template(export),
            **_data(name, export, {"type": _STRATEGY, **_thinking(export)}),
            "sequence_len": export.max_tokens,
            "excess_length_strategy": "raise",
            "learning_rate": 1e-5,
            "output_dir": f"out/{name}",
        },
    )


def _grpo(export: Export) -> str:
    return as_yaml(
        _COMMAND.format(name=RL),
        {
            "base_model": export.model,
            **_template(export),
            "rl": "grpo",
            **_data(RL, export, {}),
            "trl": {
                "reward_funcs": ["heavydistill_reward.reward"],
                "num_generations": 8,
                "max_completion_length": export.response_tokens,
            },
            "sequence_len": export.max_tokens,
            "micro_batch_size": 8,
            "learning_rate": 1e-6,
            "output_dir": f"out/{RL}",
        },
    )


def _template(export: Export) -> dict[str, str]:
    jinja = {"chat_template": "jinja", "chat_template_jinja": CHAT_TEMPLATE}
    return own_template(export, jinja) or {"chat_template": "tokenizer_default"}


def _thinking(export: Export) -> dict[str, Any]:
    """What makes axolotl read the field with the thinking: by itself it maps the other two."""
    if export.manifest.student.form != "field":
        return {}
    fields = ("role", "content", "reasoning_content")
    return {"message_property_mappings": {field: field for field in fields}}


def _data(name: str, export: Export, more: dict[str, Any]) -> dict[str, Any]:
    def described(split: str) -> list[dict[str, Any]]:
        return [{"path": f"{name}/{split}.jsonl", "ds_type": "json", "split": "train", **more}]

    validation = {"test_datasets": described("validation")} if export.is_validated(name) else {}
    return {"datasets": described("train"), **validation}


def _sections(export: Export) -> list[str]:
    paragraphs = [
        "Run the commands in this folder. axolotl asks for a learning rate, so the files have one; "
        "it is yours to choose, as everything else that they leave out.",
    ]
    if export.sft:
        paragraphs += [
            "## SFT",
            commands([_COMMAND.format(name=name) for name in export.sft]),
            "axolotl renders the messages with the student's chat template, thinking included: "
            "`message_property_mappings` names its field, if it stands in one. `type` names "
            "`heavydistill_axolotl/sft.py`, with which everything after the prompt is learnt: "
            "thinking with its marks, answer, end of turn. axolotl's own `chat_template` does not "
            "learn the mark that opens the thinking where the template writes it even for an "
            "answer without any, as that of Qwen3. `sequence_len` holds the longest row, and a "
            "longer one is an error.",
        ]
    if RL in export.rows:
        paragraphs += [
            "## GRPO",
            commands([_COMMAND.format(name=RL)]),
            f"Set `base_model` to what SFT wrote. `{REWARD}` needs heavydistill in the same "
            "environment. `max_completion_length` is what the longest prompt leaves of the "
            "student's tokens. Answers that the verifier cannot decide on get no reward.",
        ]
    return paragraphs


_STRATEGY_TEXT = '''"""How axolotl learns an SFT set: everything after what opens the answer."""

from axolotl.prompt_strategies.chat_template import load as load_chat_template


def load(tokenizer, cfg, ds_cfg=None, processor=None):
    strategy = load_chat_template(tokenizer, cfg, ds_cfg, processor)
    strategy.roles_to_train = []
    strategy.train_on_eos = strategy.train_on_eot = None
    return strategy
'''

TRAINER = Trainer(title="axolotl", version="0.19", row=_row, files=_files)
