"""The model that is to be trained: its tokenizer, its chat template, its context.

A row is a prompt and a completion as messages, made for the student's own template. Where the
thinking of a completion goes differs between templates:

    field    into ``reasoning_content`` of the message
    inline   into its ``content``, between think tags, before the answer

The form is found by rendering: one in which the template keeps thinking and answer, once each and
in this order, after a prompt that is a prefix of the whole.

Not covered: tools, several turns, and what a template does to a system message.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heavydistill.asking import Endpoint
from heavydistill.engine.tokenizer import ReaderTokenizer
from heavydistill.errors import ConfigError
from heavydistill.sets.rows import Message, SftRow, ThoughtfulMessage, ThoughtfulSftRow
from heavydistill.teachers.registry import find


@dataclass(frozen=True, slots=True)
class Tokens:
    """A row as the student's trainer will see it.

    Attributes:
        prompt: Ids up to and with what opens the answer; not learnt.
        completion: The other ids, which are learnt.
    """

    prompt: list[int]
    completion: list[int]


class Student:
    """A student.

    Attributes:
        name: As it was given.
        aliases: The names under which its own attempts are known in traces.
        context: Most tokens of prompt and response together.
        response_tokens: Most tokens of one of its responses as a deliberator.
        reader: Counts and cuts in its tokens.
        row: The type of its rows.
    """

    def __init__(self, name: str, chat_template: Path | None = None) -> None:
        """Load the tokenizer and find the form.

        Raises:
            TeacherError: There is no such model.
            ConfigError: It has no chat template, or one that loses what is to be learnt.
        """
        from transformers import AutoTokenizer

        profile = find(name, Endpoint())
        self.name = name
        self.aliases = frozenset({name, profile.name, profile.model})
        self.context = profile.context
        self.response_tokens = profile.deliberator.max_tokens
        self.reader = ReaderTokenizer(profile.tokenizer)
        self._tokenizer: Any = AutoTokenizer.from_pretrained(profile.tokenizer)
        if chat_template:
            self._tokenizer.chat_template = chat_template.read_text(encoding="utf-8")
        if not self._tokenizer.chat_template:
            raise ConfigError(
                f"The student {name} has no chat template",
                "Give one with --chat-template FILE, or take an instruction-tuned student.",
            )
        self.row: type[SftRow] = ThoughtfulSftRow

    def prompt(self, text: str) -> list[Message]:
        """The conversation that asks for a completion."""
        return [Message(role="user", content=text)]

    def completion(self, reasoning: str, answer_text: str) -> list[Message]:
        """The turn that is learnt, in the form that the template takes."""
        return [
            ThoughtfulMessage(role="assistant", content=answer_text, reasoning_content=reasoning)
        ]

    def tokens(self, prompt: list[Message], completion: list[Message]) -> Tokens:
        """A row in tokens, split where learning begins."""
        from heavydistill.schema import to_row

        asked = [to_row(message) for message in prompt]
        opened = self._ids(asked, add_generation_prompt=True)
        whole = self._ids([*asked, *map(to_row, completion)])
        return Tokens(opened, whole[len(opened) :])

    def prompt_tokens(self, text: str) -> int:
        """Tokens of a prompt with the template around it and what opens the answer."""
        asked = [{"role": "user", "content": text}]
        return len(self._ids(asked, add_generation_prompt=True))

    def _ids(self, messages: list[dict[str, str]], **options: bool) -> list[int]:
        rendered = self._tokenizer.apply_chat_template(
            messages, tokenize=True, return_dict=True, **options
        )
        return list(rendered["input_ids"])
