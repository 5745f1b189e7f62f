"""The trainers that sets are exported for, and the rows that each reads.

In all of them the same is learnt: everything after what opens the answer, thinking and end of
turn included, and nothing before it. TRL, verl and axolotl render the student's own chat template
and get the messages as the sets have them. LLaMA-Factory and ms-swift have templates of their own
and get a response as one text; see ``_spoken``.

    trl           TRL 1.16.0: ``trainer/sft_trainer.py`` (``completion_only_loss``),
                  ``trainer/grpo_trainer.py`` (``_calculate_rewards``), ``scripts/``. The columns
                  of ``rl`` are handed to the reward function by their names.
    verl          verl 0.9.1: ``utils/dataset/multiturn_sft_dataset.py`` and ``rl_dataset.py``,
                  ``trainer/config/``, ``experimental/reward_loop/reward_manager/naive.py``. Its
                  own SFT dataset renders each turn alone, so that a template like Qwen3's drops
                  the thinking; ``heavydistill_sft.py`` renders prompt and whole and learns the
                  difference. A default of ``none`` that is a text counts as true, hence
                  ``enable_thinking_default: null``.
    llamafactory  LLaMA-Factory 0.9.5: ``data/converter.py``, ``parser.py``, ``template.py``
                  (``ReasoningTemplate``), ``processor/supervised.py``, ``hparams/``. With
                  ``enable_thinking: false`` it deletes the thinking; without ``template`` it
                  guesses one that writes ``<think>`` twice. It takes no reward of one's own.
    ms-swift      ms-swift 4.6.0: ``dataset/preprocessor/core.py``, ``template/base.py``,
                  ``loss_scale/base.py``, ``rewards/orm.py``, ``rl_core/grpo_algorithm.py``. It
                  drops every field of a message but ``role`` and ``content``, and finds a reward
                  by its name in a table, into which ``heavydistill_swift.py`` puts ours.
    axolotl       axolotl 0.19.0: ``prompt_strategies/chat_template.py`` (``StrategyLoader``,
                  ``_find_turn_from_text``), ``utils/data/rl.py``, ``core/trainers/grpo/``. It
                  compares the learnt turn with a placeholder's, so a mark that opens every answer
                  is never learnt; ``heavydistill_axolotl/sft.py`` switches to its plainer way. No
                  key does, because an empty ``train_on_eos`` is replaced by ``turn``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from heavydistill.schema import Stratum
from heavydistill.store.sets.folder import TRAINED, Manifest
from heavydistill.store.sets.rows import Message, ThoughtfulMessage

SFT = ("sft_deliberator", "sft_thinker")
RL = "rl"
REWARD = "heavydistill_reward.py"

Row = Mapping[str, Any]


@dataclass(slots=True)
class Export:
    """What is exported, and what the files beside the rows depend on."""

    manifest: Manifest
    model: str  # the student as a trainer finds it: Hub id or checkpoint folder
    template: str | None  # chat template in place of the student's own
    rows: dict[str, dict[str, int]] = field(default_factory=dict)  # of each exported set, by split
    longest_prompt: int = (
        0  # tokens of the longest prompt of ``rl``, what opens the answer included
    )
    absent: dict[str, str] = field(default_factory=dict)  # sets that are not exported, and why

    @property
    def max_tokens(self) -> int:
        """Most tokens of a row, prompt and completion together."""
        return self.manifest.student.max_tokens

    @property
    def response_tokens(self) -> int:
        """Tokens that the longest prompt of ``rl`` leaves to a response."""
        return self.max_tokens - self.longest_prompt

    @property
    def sft(self) -> list[str]:
        """The exported sets that have completions."""
        return [name for name in self.rows if name in SFT]

    def is_validated(self, name: str) -> bool:
        """Whether the set has rows for validation."""
        return "validation" in self.rows[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """One trainer; its folder of ``templates`` has a README.md and the configurations.

    A command has ``{name}`` for the name of the configuration.
    """

    title: str  # its name, as it writes it
    version: str  # whose code was read
    row: Callable[[str, Row, int], Any]  # (set, row of it, number of the row) to a dataclass
    kind: Callable[[str, str], type] | None = None
    """(Set, form of the student's thinking) to the dataclass of these rows, which are then written
    as parquet; None writes JSON lines."""
    sft_command: str
    rl_command: str = ""  # empty if it trains with no reward of one's own
    files: Callable[[Export], dict[str, str]] = lambda export: {}  # further files, name to text
    why_no_rl: str = ""

    @property
    def sets(self) -> tuple[str, ...]:
        """The sets that it can train on."""
        return TRAINED if self.rl_command else SFT


# --- Rows.


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewarded:
    """What a row of ``rl`` says beside its prompt: what its reward needs, and what it is of."""

    problem: str
    text: str
    reference: str
    verifier: str
    verifier_args: str
    stratum: Stratum
    success: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A row whose last turn is learnt."""

    messages: list[Message]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCompletion:
    """A prompt and what is learnt, as TRL reads them."""

    prompt: list[Message]
    completion: list[Message]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtfulPromptCompletion(PromptCompletion):
    """Likewise, with thinking in a field of its own."""

    completion: list[ThoughtfulMessage]  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardedPrompt(Rewarded):
    """A prompt and what rewards its answers, as TRL and axolotl read them."""

    prompt: list[Message]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardedMessages(Rewarded):
    """A prompt and what rewards its answers, as ms-swift reads them."""

    messages: list[Message]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerlTurn(Message):
    """A turn; ``reasoning_content`` is null in one of the user."""

    reasoning_content: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerlConversation(Conversation):
    """A conversation with thinking in a field of its own."""

    messages: list[VerlTurn]  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerlRewardModel:
    """How verl is told the right answer."""

    style: str  # always ``rule``: no model judges
    ground_truth: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerlExtraInfo(Rewarded):
    """What else verl gives the reward function."""

    index: int  # of the row in its file, from 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VerlRewardedPrompt:
    """A prompt and what rewards its answers, in verl's columns."""

    data_source: str  # by which verl groups its metrics: the stratum
    prompt: list[Message]
    ability: str  # the kind of verifier
    reward_model: VerlRewardModel
    extra_info: VerlExtraInfo


def _messages(turns: list[dict[str, str]]) -> list[Message]:
    """Turns of a row as it was read from the sets."""
    return [
        ThoughtfulMessage(**turn) if "reasoning_content" in turn else Message(**turn)
        for turn in turns
    ]


def _rewarded(row: Row) -> dict[str, Any]:
    """The fields of ``Rewarded`` of a row of ``rl``."""
    return {name: row[name] for name in Rewarded.__dataclass_fields__}


def _whole(row: Row) -> Conversation:
    return Conversation(messages=[*_messages(row["prompt"]), *_messages(row["completion"])])


def _spoken(row: Row) -> Conversation:
    """The conversation of a row, thinking and answer as one text.

    The marks are those that the student's template takes in a text; where it takes thinking from a
    field alone, they are ``<think>`` and ``</think>``, as most templates write them. A response
    without thinking has none.
    """
    (turn,) = row["completion"]
    text = turn["content"]
    if turn.get("reasoning_content"):
        text = f"<think>\n{row['reasoning']}\n</think>\n\n{row['answer_text']}"
    answer = Message(role=turn["role"], content=text)
    return Conversation(messages=[*_messages(row["prompt"]), answer])


def _trl_row(name: str, row: Row, index: int) -> PromptCompletion | RewardedPrompt:
    prompt = _messages(row["prompt"])
    if name == RL:
        return RewardedPrompt(prompt=prompt, **_rewarded(row))
    return PromptCompletion(prompt=prompt, completion=_messages(row["completion"]))


def _trl_kind(name: str, form: str) -> type:
    if name == RL:
        return RewardedPrompt
    return ThoughtfulPromptCompletion if form == "field" else PromptCompletion


def _axolotl_row(name: str, row: Row, index: int) -> Conversation | RewardedPrompt:
    if name == RL:
        return RewardedPrompt(prompt=_messages(row["prompt"]), **_rewarded(row))
    return _whole(row)


def _swift_row(name: str, row: Row, index: int) -> Conversation | RewardedMessages:
    if name == RL:
        return RewardedMessages(messages=_messages(row["prompt"]), **_rewarded(row))
    return _spoken(row)


def _verl_row(name: str, row: Row, index: int) -> Conversation | VerlRewardedPrompt:
    if name != RL:
        return _whole(row)
    return VerlRewardedPrompt(
        data_source=f"heavydistill/{row['stratum']}",
        prompt=_messages(row["prompt"]),
        ability=row["verifier"],
        reward_model=VerlRewardModel(style="rule", ground_truth=row["reference"]),
        extra_info=VerlExtraInfo(index=index, **_rewarded(row)),
    )


def _verl_kind(name: str, form: str) -> type:
    if name == RL:
        return VerlRewardedPrompt
    return VerlConversation if form == "field" else Conversation


# --- Files.


def _dataset_info(export: Export) -> dict[str, str]:
    """Where LLaMA-Factory looks up the files of a dataset."""
    tags = {"role": "role", "content": "content", "user": "user", "assistant": "assistant"}
    described = {
        name if split == "train" else f"{name}_{split}": {
            "file_name": f"{name}/{split}.jsonl",
            "formatting": "sharegpt",
            "columns": {"messages": "messages"},
            "tags": {f"{tag}_tag": value for tag, value in tags.items()},
        }
        for name in export.sft
        for split in export.rows[name]
    }
    return {"dataset_info.json": json.dumps(described, indent=2) + "\n"}


def _axolotl_strategy(export: Export) -> dict[str, str]:
    files = ("heavydistill_axolotl/__init__.py", "heavydistill_axolotl/sft.py")
    return dict(zip(files, ("", _text("axolotl/sft.py")), strict=True)) if export.sft else {}


def _swift_reward(export: Export) -> dict[str, str]:
    name = "heavydistill_swift.py"
    return {name: _text(f"ms-swift/{name}")} if RL in export.rows else {}


def _verl_dataset(export: Export) -> dict[str, str]:
    name = "heavydistill_sft.py"
    return {name: _text(f"verl/{name}")} if export.sft else {}


def _text(name: str) -> str:
    file = resources.files(__package__) / "templates" / f"{name}.txt"
    return file.read_text(encoding="utf-8")


_VERL_CONFIG = "--config-path=$PWD --config-name={name}"
_VERL_SFT = "torchrun --standalone --nproc_per_node=gpu -m verl.trainer.sft_trainer"

TRAINERS = {
    "trl": Trainer(
        title="TRL",
        version="1.16",
        row=_trl_row,
        kind=_trl_kind,
        sft_command="trl sft --config {name}.yaml",
        rl_command="trl grpo --config {name}.yaml",
    ),
    "verl": Trainer(
        title="verl",
        version="0.9",
        row=_verl_row,
        kind=_verl_kind,
        sft_command=f"{_VERL_SFT} {_VERL_CONFIG}",
        rl_command=f"python -m verl.trainer.main_ppo {_VERL_CONFIG}",
        files=_verl_dataset,
    ),
    "llamafactory": Trainer(
        title="LLaMA-Factory",
        version="0.9.5",
        row=lambda name, row, index: _spoken(row),
        sft_command="llamafactory-cli train {name}.yaml template=TEMPLATE",
        files=_dataset_info,
        why_no_rl="LLaMA-Factory has no training with a verifier's reward",
    ),
    "ms-swift": Trainer(
        title="ms-swift",
        version="4.6",
        row=_swift_row,
        sft_command="swift sft {name}.yaml",
        rl_command="swift rlhf {name}.yaml",
        files=_swift_reward,
    ),
    "axolotl": Trainer(
        title="axolotl",
        version="0.19",
        row=_axolotl_row,
        sft_command="PYTHONPATH=. axolotl train {name}.yaml",
        rl_command="PYTHONPATH=. axolotl train {name}.yaml",
        files=_axolotl_strategy,
    ),
}
