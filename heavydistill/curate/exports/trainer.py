"""What an export is made of: the rows that a trainer reads, and the files that stand beside them.

A trainer takes the thinking of a completion in one of two ways. One that renders the student's
own chat template is given the messages as the sets have them, made for that template. One that has
templates of its own is given the whole response as one text, with the thinking in front of the
answer between marks; see ``spoken``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from heavydistill.models.registry import names
from heavydistill.schema import Stratum
from heavydistill.store.sets.folder import CHAT_TEMPLATE, TRAINED
from heavydistill.store.sets.manifest import Manifest
from heavydistill.store.sets.rows import Message, ThoughtfulMessage

SFT = ("sft_deliberator", "sft_thinker")
RL = "rl"
REWARD = "heavydistill_reward.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewarded:
    """What a row of ``rl`` says beside its prompt.

    Attributes:
        problem: Id of the problem.
        text: Of the problem; with the next three it is what the reward function needs.
        reference: The right answer.
        verifier: Kind of verifier.
        verifier_args: JSON object for it.
        stratum: Of the candidate set.
        success: Share of its deliberations that were right.
    """

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


@dataclass(slots=True)
class Export:
    """What is exported, and what the files beside the rows depend on.

    Attributes:
        manifest: Of the sets.
        model: The student, as a trainer finds it: Hub id or checkpoint folder.
        template: A chat template that takes the place of the student's own; None if there is none.
        rows: Of each set that is exported, by split.
        longest_prompt: Most tokens of a prompt of ``rl``, what opens the answer included.
        absent: Sets that are not exported, and why.
    """

    manifest: Manifest
    model: str
    template: str | None
    rows: dict[str, dict[str, int]] = field(default_factory=dict)
    longest_prompt: int = 0
    absent: dict[str, str] = field(default_factory=dict)

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


@dataclass(frozen=True, slots=True)
class Trainer:
    """One trainer, as ``folder`` uses it.

    Attributes:
        title: Its name, as it writes it.
        version: Whose code was read.
        row: Set, row of the set and its number to the row that it reads, a dataclass.
        files: The files beside the rows, name to text, README.md among them.
        kind: Set and form of the student's thinking to the dataclass of these rows, which are then
            written as parquet; None writes JSON lines.
        sets: Those that it can train on.
        why_not: Why it trains on no others.
    """

    title: str
    version: str
    row: Callable[[str, Mapping[str, Any], int], Any]
    files: Callable[[Export], dict[str, str]]
    kind: Callable[[str, str], type] | None = None
    sets: tuple[str, ...] = TRAINED
    why_not: str = ""


def messages(turns: list[dict[str, str]]) -> list[Message]:
    """Turns of a row as it was read from the sets."""
    return [
        ThoughtfulMessage(**turn) if "reasoning_content" in turn else Message(**turn)
        for turn in turns
    ]


def spoken(row: Mapping[str, Any]) -> list[Message]:
    """The conversation of a row with completion, thinking and answer as one text.

    The marks are those that the student's template takes in a text; where it takes thinking from a
    field alone, they are ``<think>`` and ``</think>``, as most templates write them. A response
    without thinking has none.
    """
    (turn,) = row["completion"]
    text = turn["content"]
    if turn.get("reasoning_content"):
        text = f"<think>\n{row['reasoning']}\n</think>\n\n{row['answer_text']}"
    return [*messages(row["prompt"]), Message(role=turn["role"], content=text)]


def rewarded(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of ``Rewarded`` of a row of ``rl``."""
    return {name: row[name] for name in Rewarded.__dataclass_fields__}


def as_yaml(command: str, tree: dict[str, Any]) -> str:
    """A configuration file, with the command that takes it as its first line."""
    text = yaml.dump(tree, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=100)
    return f"# {command}\n{text}"


class _Plain(yaml.SafeDumper):
    """Writes what stands in two places twice, and no reference to the first."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def own_template(export: Export, tree: dict[str, Any]) -> dict[str, Any]:
    """``tree`` if the student's own chat template is not used, nothing else."""
    return tree if export.template is not None else {}


def readme(trainer: Trainer, export: Export, sections: list[str]) -> str:
    """README.md: what is here, then the sections, which are paragraphs."""
    student = export.manifest.student
    table = ["| set | train | validation |", "|---|---:|---:|"]
    for name, rows in export.rows.items():
        table += [f"| {name} | {rows['train']:,} | {rows.get('validation', 0):,} |"]
    paragraphs = [
        f"# Training sets for {trainer.title}",
        f"Written by heavydistill {export.manifest.heavydistill} in the forms that "
        f"{trainer.title} {trainer.version} reads. `manifest.json` says what they were built from.",
        "\n".join(table),
        *(f"`{name}` is not here: {why}." for name, why in export.absent.items()),
        f"The rows are for the student `{student.name}`: none is longer than "
        f"{student.max_tokens:,} tokens with its chat template. {_where(export.model)}",
    ]
    if export.template is not None:
        paragraphs += [
            f"The rows are made for `{CHAT_TEMPLATE}`, which takes the place of the student's own "
            "chat template. Serve the trained model with it too."
        ]
    return "\n\n".join([*paragraphs, *sections]) + "\n"


def _where(model: str) -> str:
    if model in names():
        return (
            f"It is a part of heavydistill: put its folder, which `heavydistill teachers {model}` "
            "tells, in place of its name in the configurations."
        )
    return "If it is a folder, the configurations need its path as it is seen from here."


def commands(lines: list[str]) -> str:
    """A paragraph of a README.md with commands."""
    return "\n".join(["```", *lines, "```"])
