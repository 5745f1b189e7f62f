"""The form that TRL reads: our own, without the columns that it does not look at.

A row with completion is ``prompt`` and ``completion`` as messages: TRL renders both with the
student's chat template and learns the completion alone. A row of ``rl`` is ``prompt`` and what the
reward function needs, which TRL hands to it by the names of the columns.

Read in TRL 1.16.0: ``trl/trainer/sft_trainer.py`` (``tokenize_fn``, ``completion_only_loss``,
``max_length`` and ``chat_template_path`` of ``SFTConfig``), ``trl/trainer/grpo_trainer.py``
(``_calculate_rewards``), ``trl/scripts/sft.py`` and ``grpo.py``; huggingface/trl.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heavydistill.curate.exports.trainer import (
    REWARD,
    RL,
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
from heavydistill.store.sets.folder import CHAT_TEMPLATE
from heavydistill.store.sets.rows import Message, ThoughtfulMessage

_SFT_COMMAND = "trl sft --config {name}.yaml"
_RL_COMMAND = "trl grpo --config rl.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sft:
    """A prompt and what is learnt."""

    prompt: list[Message]
    completion: list[Message]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtfulSft(Sft):
    """Likewise, with thinking in a field of its own."""

    completion: list[ThoughtfulMessage]  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rl(Rewarded):
    """A prompt and what rewards its answers."""

    prompt: list[Message]


def _row(name: str, row: Mapping[str, Any], index: int) -> Sft | Rl:
    prompt = messages(row["prompt"])
    if name == RL:
        return Rl(prompt=prompt, **rewarded(row))
    return Sft(prompt=prompt, completion=messages(row["completion"]))


def _kind(name: str, form: str) -> type:
    return Rl if name == RL else ThoughtfulSft if form == "field" else Sft


def _files(export: Export) -> dict[str, str]:
    files = {f"{name}.yaml": _sft(name, export) for name in export.sft}
    if RL in export.rows:
        files["rl.yaml"] = _grpo(export)
    return {**files, "README.md": readme(TRAINER, export, _sections(export))}


def _sft(name: str, export: Export) -> str:
    return as_yaml(
        _SFT_COMMAND.format(name=name),
        {
            "model_name_or_path": export.model,
            "dataset_name": f"./{name}",
            "max_length": export.max_tokens,
            "completion_only_loss": True,
            **own_template(export, {"chat_template_path": CHAT_TEMPLATE}),
            **_validation(name, export),
            "output_dir": f"out/{name}",
        },
    )


def _grpo(export: Export) -> str:
    return as_yaml(
        _RL_COMMAND,
        {
            "model_name_or_path": export.model,
            "dataset_name": f"./{RL}",
            "reward_funcs": ["heavydistill_reward.reward"],
            "max_completion_length": export.response_tokens,
            **_validation(RL, export),
            "output_dir": f"out/{RL}",
        },
    )


def _validation(name: str, export: Export) -> dict[str, str]:
    if not export.is_validated(name):
        return {}
    return {"eval_strategy": "epoch", "dataset_test_split": "validation"}


def _sections(export: Export) -> list[str]:
    paragraphs = ["Run the commands in this folder. Any setting of TRL may be added to the files."]
    if export.sft:
        paragraphs += [
            "## SFT",
            commands([_SFT_COMMAND.format(name=name) for name in export.sft]),
            "TRL renders the messages with the student's chat template and learns what follows the "
            "prompt: thinking, answer and end of turn. Two settings are other than its defaults: "
            "`max_length`, because it cuts longer rows, and the answer stands at the end; and "
            "`completion_only_loss`, said so that nothing else switches it off.",
        ]
    if RL in export.rows:
        paragraphs += [
            "## GRPO",
            commands([_RL_COMMAND]),
            f"Set `model_name_or_path` to what SFT wrote. `{REWARD}` needs heavydistill in the "
            "same environment. `max_completion_length` is what the longest prompt leaves of "
            "the student's tokens; TRL's default of 512 cuts most deliberations. Answers that the "
            "verifier cannot decide on get no reward and teach nothing.",
        ]
    return paragraphs


TRAINER = Trainer(title="TRL", version="1.16", row=_row, kind=_kind, files=_files)
