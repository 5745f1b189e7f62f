"""The form that ms-swift reads: conversations in JSON lines.

It has chat templates of its own and drops every field of a message but ``role``, ``content`` and
the weights of its loss: a response is one text, with the thinking between ``<think>`` and
``</think>``. Responses are learnt whole and prompts not at all (``loss_scale: default``).

A row of ``rl`` is the prompt and what the reward function needs, which ms-swift hands to it by the
names of the columns. It finds a reward by its name in a table, into which ``heavydistill_swift.py``
puts ours.

Read in ms-swift 4.6.0: ``swift/dataset/preprocessor/core.py`` (``RowPreprocessor``,
``MessagesPreprocessor``), ``swift/template/base.py``, ``swift/loss_scale/base.py``,
``swift/rewards/orm.py``, ``swift/rl_core/grpo_algorithm.py``, ``swift/cli/main.py`` and
``swift/arguments``, and ``docs/source_en/Customization/Custom-dataset.md``; modelscope/ms-swift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heavydistill.curate.exports.trainer import (
    REWARD,
    RL,
    Conversation,
    Export,
    Rewarded,
    Trainer,
    as_yaml,
    commands,
    messages,
    readme,
    rewarded,
    spoken,
)
from heavydistill.store.sets.rows import Message

_PLUGIN = "heavydistill_swift.py"
_SFT_COMMAND = "swift sft {name}.yaml"
_RL_COMMAND = f"swift rlhf {RL}.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rl(Rewarded):
    """A prompt and what rewards its answers."""

    messages: list[Message]


def _row(name: str, row: Mapping[str, Any], index: int) -> Conversation | Rl:
    if name == RL:
        return Rl(messages=messages(row["prompt"]), **rewarded(row))
    return Conversation(messages=spoken(row))


def _files(export: Export) -> dict[str, str]:
    files = {f"{name}.yaml": _sft(name, export) for name in export.sft}
    if RL in export.rows:
        files["rl.yaml"] = _grpo(export)
        files[_PLUGIN] = _PLUGIN_TEXT
    return {**files, "README.md": readme(TRAINER, export, _sections(export))}


def _sft(name: str, export: Export) -> str:
    return as_yaml(
        _SFT_COMMAND.format(name=name),
        {
            "model": export.model,
            **_data(name, export),
            "max_length": export.max_tokens,
            "loss_scale": "default",
            "output_dir": f"out/{name}",
        },
    )


def _grpo(export: Export) -> str:
    return as_yaml(
        _RL_COMMAND,
        {
            "rlhf_type": "grpo",
            "model": export.model,
            **_data(RL, export),
            "external_plugins": [_PLUGIN],
            "reward_funcs": ["heavydistill"],
            "max_length": export.max_tokens,
            "truncation_strategy": "delete",
            "max_completion_length": export.response_tokens,
            "num_generations": 8,
            "output_dir": f"out/{RL}",
        },
    )


def _data(name: str, export: Export) -> dict[str, Any]:
    validation = {"val_dataset": [f"{name}/validation.jsonl"], "eval_strategy": "epoch"}
    return {
        "dataset": [f"{name}/train.jsonl"],
        **(validation if export.is_validated(name) else {}),
        "strict": True,
    }


def _sections(export: Export) -> list[str]:
    paragraphs = ["Run the commands in this folder."]
    if export.sft:
        paragraphs += [
            "## SFT",
            commands([_SFT_COMMAND.format(name=name) for name in export.sft]),
            "A response is one text with its thinking in front, between think marks: ms-swift "
            "drops a field for it. It learns responses whole and no prompt (`loss_scale: "
            "default`), and puts an empty pair of marks before a response without thinking where "
            "the student thinks by choice. For a student with other marks than `<think>` and "
            "`</think>` (Gemma 4, gpt-oss, Seed-OSS) train with TRL, verl or axolotl, which render "
            "the student's own template. `max_length` holds the longest row. With `strict` a row "
            "that cannot be read is an error; by default ms-swift leaves it out.",
        ]
    if RL in export.rows:
        paragraphs += [
            "## GRPO",
            commands([_RL_COMMAND]),
            f"Set `model` to what SFT wrote. `{_PLUGIN}` makes the reward of `{REWARD}` known, "
            "which needs heavydistill in the same environment. `max_completion_length` is what the "
            "longest prompt leaves of the student's tokens; the default of 512 cuts most "
            "deliberations. By default ms-swift cuts the beginning of a prompt that is too long; "
            "`truncation_strategy: delete` takes another one. Answers that the verifier cannot "
            "decide on get no reward.",
        ]
    if export.template is not None:
        paragraphs += [
            "ms-swift does not train with `chat_template.jinja`: name one of its templates that "
            "keeps the thinking (`template`), or train with TRL, verl or axolotl.",
        ]
    return paragraphs


_PLUGIN_TEXT = '''"""Makes the reward of the set ``rl`` known to ms-swift as ``heavydistill``."""

from heavydistill_reward import reward
from swift.rewards import ORM, orms


class HeavyDistill(ORM):
    def __call__(self, completions, **columns):
        return reward(completions, **columns)


orms["heavydistill"] = HeavyDistill
'''

TRAINER = Trainer(title="ms-swift", version="4.6", row=_row, files=_files)
