"""The form that verl reads: parquet, with messages for SFT and its reward columns for RL.

verl's own SFT dataset renders each turn by itself and joins them. A template that keeps thinking
only after the last user turn, as that of Qwen3, then drops it: verl refuses such rows, or trains
without the thinking if told to go on. ``heavydistill_sft.py`` renders prompt and whole instead and
learns the difference; verl takes it as ``data.custom_cls``. verl also sets ``enable_thinking`` of
every template to true, by a default of ``none`` that is a text; the configuration says null.

Read in verl 0.9.1: ``verl/utils/dataset/multiturn_sft_dataset.py``, ``rl_dataset.py``,
``verl/trainer/sft_trainer.py``, ``verl/trainer/config/sft_trainer_engine.yaml``,
``ppo_trainer.yaml``, ``reward/reward.yaml``, ``data/legacy_data.yaml``, and
``verl/experimental/reward_loop/reward_manager/naive.py``; and
``examples/data_preprocess/gsm8k.py`` of volcengine/verl for the columns of RL.
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
    own_template,
    readme,
    rewarded,
)
from heavydistill.store.sets.rows import Message

_DATASET = "heavydistill_sft.py"
_CLASS = "PromptAndCompletion"
_SFT_COMMAND = (
    "torchrun --standalone --nproc_per_node=gpu -m verl.trainer.sft_trainer "
    "--config-path=$PWD --config-name={name}"
)
_RL_COMMAND = f"python -m verl.trainer.main_ppo --config-path=$PWD --config-name={RL}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn(Message):
    """A turn; ``reasoning_content`` is null in one of the user."""

    reasoning_content: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtfulConversation(Conversation):
    """Likewise, with thinking in a field of its own."""

    messages: list[Turn]  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardModel:
    """How verl is told the right answer.

    Attributes:
        style: Always ``rule``: no model judges.
        ground_truth: The reference.
    """

    style: str
    ground_truth: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraInfo(Rewarded):
    """What else the reward function is given.

    Attributes:
        index: Of the row in its file, from 0.
    """

    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rl:
    """A prompt and what rewards its answers, in verl's columns.

    Attributes:
        data_source: By which verl groups its metrics: the stratum.
        prompt: One user turn.
        ability: The kind of verifier.
    """

    data_source: str
    prompt: list[Message]
    ability: str
    reward_model: RewardModel
    extra_info: ExtraInfo


def _row(name: str, row: Mapping[str, Any], index: int) -> Conversation | Rl:
    prompt = messages(row["prompt"])
    if name != RL:
        return Conversation(messages=[*prompt, *messages(row["completion"])])
    return Rl(
        data_source=f"heavydistill/{row['stratum']}",
        prompt=prompt,
        ability=row["verifier"],
        reward_model=RewardModel(style="rule", ground_truth=row["reference"]),
        extra_info=ExtraInfo(index=index, **rewarded(row)),
    )


def _kind(name: str, form: str) -> type:
    return Rl if name == RL else ThoughtfulConversation if form == "field" else Conversation


def _files(export: Export) -> dict[str, str]:
    files = {f"{name}.yaml": _sft(name, export) for name in export.sft}
    if export.sft:
        files[_DATASET] = _DATASET_TEXT
    if RL in export.rows:
        files["rl.yaml"] = _grpo(export)
    return {**files, "README.md": readme(TRAINER, export, _sections(export))}


def _sft(name: str, export: Export) -> str:
    validated = export.is_validated(name)
    data = {
        "train_files": f"{name}/train.parquet",
        "val_files": f"{name}/validation.parquet" if validated else None,
        "custom_cls": {"path": _DATASET, "name": _CLASS},
        "enable_thinking_default": None,
        "max_length": export.max_tokens,
        "truncation": "error",
        "max_token_len_per_gpu": max(8192, export.max_tokens),
        "train_batch_size": _batch(export.rows[name]["train"], 256),
        **_template(export),
    }
    return as_yaml(
        _SFT_COMMAND.format(name=name),
        {
            **_on_top_of("sft_trainer_engine"),
            "model": {"path": export.model},
            "data": data,
            "trainer": {
                "project_name": "heavydistill",
                "experiment_name": name,
                "test_freq": "after_each_epoch" if validated else -1,
                "logger": ["console"],
            },
        },
    )


def _grpo(export: Export) -> str:
    split = "validation" if export.is_validated(RL) else "train"
    tokens = max(16384, export.max_tokens)
    return as_yaml(
        _RL_COMMAND,
        {
            **_on_top_of("ppo_trainer"),
            "algorithm": {"adv_estimator": "grpo"},
            "data": {
                "train_files": f"{RL}/train.parquet",
                "val_files": f"{RL}/{split}.parquet",
                "max_prompt_length": export.longest_prompt,
                "max_response_length": export.response_tokens,
                "truncation": "error",
                "train_batch_size": _batch(export.rows[RL]["train"], 256),
                **_template(export),
            },
            "actor_rollout_ref": {
                "model": {"path": export.model},
                "actor": {
                    "ppo_mini_batch_size": _batch(export.rows[RL]["train"], 64),
                    "use_dynamic_bsz": True,
                    "ppo_max_token_len_per_gpu": tokens,
                },
                "rollout": {"name": "vllm", "n": 8},
            },
            "reward": {
                "num_workers": 1,
                "custom_reward_function": {"path": REWARD, "name": "compute_score"},
            },
            "trainer": {
                "project_name": "heavydistill",
                "experiment_name": RL,
                "logger": ["console"],
            },
        },
    )


def _on_top_of(base: str) -> dict[str, Any]:
    """What makes a file of Hydra start from one of verl's."""
    return {
        "hydra": {"searchpath": ["pkg://verl.trainer.config"]},
        "defaults": [base, "_self_"],
    }


def _template(export: Export) -> dict[str, Any]:
    chat_template = {"chat_template": export.template}
    return own_template(export, {"apply_chat_template_kwargs": chat_template})


def _batch(rows: int, most: int) -> int:
    """The largest power of two that is at most both: verl leaves out what fills no batch."""
    return min(most, 1 << (rows.bit_length() - 1))


def _sections(export: Export) -> list[str]:
    paragraphs = ["Run the commands in this folder, whose files stand on top of verl's own."]
    if export.sft:
        paragraphs += [
            "## SFT",
            commands([_SFT_COMMAND.format(name=name) for name in export.sft]),
            f"`{_DATASET}` is the dataset (`data.custom_cls`): it renders the prompt and the whole "
            "conversation with the student's chat template and learns the difference, which is "
            "thinking, answer and end of turn. verl's own renders each turn alone, where templates "
            "such as that of Qwen3 drop the thinking. `enable_thinking_default` is null, because "
            "verl's `none` counts as true and asks every template to think. `max_length` and "
            "`max_token_len_per_gpu` hold the longest row; nothing is cut.",
        ]
    if RL in export.rows:
        paragraphs += [
            "## GRPO",
            commands([_RL_COMMAND]),
            "Set `actor_rollout_ref.model.path` to what SFT wrote. "
            f"`{REWARD}` needs heavydistill in the same environment; it starts processes of its "
            "own, so one reward worker is enough. verl rewards an answer that the verifier cannot "
            "decide on with 0; the metric `undecided` counts them. `data_source` holds the "
            "stratum, so that verl's metrics are split by it.",
        ]
        if not export.is_validated(RL):
            paragraphs += ["There are no rows for validation: `val_files` names those of training."]
    return paragraphs


_DATASET_TEXT = '''"""The dataset of SFT for verl: all after what opens the answer is learnt."""

import torch
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset


class PromptAndCompletion(MultiTurnSFTDataset):
    """Conversations of one user turn and one assistant turn."""

    def _process_single_message(
        self, index, message, full_message, tools=None, enable_thinking=None
    ):
        opened = self._ids(full_message[:1], add_generation_prompt=True)
        ids, learnt = opened, 0
        if index == 1:
            whole = self._ids(full_message, add_generation_prompt=False)
            if not torch.equal(whole[: len(opened)], opened):
                raise ValueError("The chat template changes the prompt when an answer follows it.")
            ids, learnt = whole[len(opened) :], 1
        return ids, torch.full_like(ids, learnt), torch.ones_like(ids), {}

    def _ids(self, messages, add_generation_prompt):
        rendered = (self.processor or self.tokenizer).apply_chat_template(
            messages,
            add_generation_prompt=add_generation_prompt,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            **self.apply_chat_template_kwargs,
        )
        return rendered["input_ids"][0]
'''

TRAINER = Trainer(title="verl", version="0.9", row=_row, kind=_kind, files=_files)
