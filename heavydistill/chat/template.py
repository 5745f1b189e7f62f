"""A tokenizer with its chat template: a row in the tokens that a trainer sees.

What is learnt is split from what is not as TRL's trainer for prompts and completions does it: the
prompt is rendered alone, with what opens the answer, and the row as a whole; what follows where
their tokens part is learnt.

Not covered: which form a row must have (see ``student``) and whether it is whole (``guard``).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from heavydistill.errors import ConfigError

Messages = Sequence[Mapping[str, Any]]
MENDED_BY_HAND = "Give a repaired one with --chat-template FILE, or take another student."

TAGS = ("<think>", "</think>")
"""Around thinking that stands in a text."""

_PROBE = "3f9c1a57 question"


@dataclass(frozen=True, slots=True)
class Tokens:
    """A row as the student's trainer will see it."""

    prompt: list[int]
    """Ids up to where learning begins; not learnt."""
    completion: list[int]
    """The other ids, which are learnt."""
    fault: str = ""
    """Why nobody should train on it, in words; empty if there is nothing against it. Then
    ``prompt`` is all that the student reads when it is asked, and nothing else."""


class Chat:
    """Renders conversations.

    Args:
        tokenizer: Tokenizer of transformers, which is not changed.
        stops: Ids at which generation stops, beside the tokenizer's own end of sequence.
        template: Jinja text that replaces the tokenizer's own template.

    Raises:
        ConfigError: There is no template, or it is not Jinja; or nothing ends a response.
    """

    def __init__(
        self, tokenizer: Any, stops: Iterable[int] = (), template: str | None = None
    ) -> None:
        self.tokenizer = tokenizer
        self.template = template or own_template(tokenizer)
        if not self.template:
            raise lacks_template(tokenizer.name_or_path)
        self.stops = frozenset({*stops, tokenizer.eos_token_id} - {None})
        if not self.stops:
            raise ConfigError(
                f"The tokenizer {tokenizer.name_or_path} names no token that ends a response",
                "Set eos_token in its tokenizer_config.json, or take another student.",
            )
        from jinja2 import TemplateSyntaxError

        try:
            self.render([{"role": "user", "content": _PROBE}])
        except ValueError as error:  # what else it does not take is found where it is rendered
            cause = error.__cause__
            if isinstance(cause, TemplateSyntaxError):
                raise ConfigError(
                    f"The chat template is no Jinja: line {cause.lineno}: {cause.message}",
                    MENDED_BY_HAND,
                ) from error

    @property
    def sha256(self) -> str:
        """Hash of the template's text, in hex digits."""
        return hashlib.sha256(self.template.encode()).hexdigest()

    @cached_property
    def opener(self) -> str:
        """What the template puts between a prompt's text and the answer; empty if it loses it."""
        try:
            asked = self.render([{"role": "user", "content": _PROBE}], opens=True)
        except ValueError:
            return ""
        return asked.rpartition(_PROBE)[2] if _PROBE in asked else ""

    @property
    def opens_thinking(self) -> bool:
        """Whether a think tag stands open in it, so that a response lacks the first of the pair."""
        return self.opener.count(TAGS[0]) > self.opener.count(TAGS[1])

    def render(self, messages: Messages, opens: bool = False) -> str:
        """A conversation as text, followed by what ``opens`` an answer.

        Raises:
            ValueError: The template does not take it; the message has its words.
        """
        try:
            rendered = self.tokenizer.apply_chat_template(
                list(messages),
                tokenize=False,
                add_generation_prompt=opens,
                chat_template=self.template,
            )
        except Exception as error:  # a template is a program, and may fail in any way
            raise ValueError(f"the template does not take it: {error}") from error
        return str(rendered)

    def ids(self, text: str) -> list[int]:
        """The tokens of a rendered text."""
        # Not verbose: what is too long is for the guard to say.
        return list(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, the special ones too."""
        return str(
            self.tokenizer.decode(
                list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    def tokens(self, prompt: Messages, completion: Messages) -> Tokens:
        """A row in tokens, as TRL makes them."""
        try:
            asked = self.ids(self.render(prompt, opens=True))
            whole = self.ids(self.render([*prompt, *completion]))
        except ValueError as error:
            return Tokens([], [], str(error))
        pairs = zip(asked, whole, strict=False)
        same = next((at for at, (one, other) in enumerate(pairs) if one != other), None)
        if same is None:
            same = min(len(asked), len(whole))
        if same == len(asked):
            return Tokens(whole[:same], whole[same:])
        fault = (
            f"the prompt alone ends in {self.decode(asked[same:][-8:])!r}, and in the row "
            f"{self.decode(whole[same:][:8])!r} stands there, so the student would be trained "
            "after another text than it is asked with"
        )
        return Tokens(whole[:same], whole[same:], fault)

    def control_token(self, text: str) -> str | None:
        """The first control token that the tokenizer reads in a text; None if there is none."""
        found = self._control.search(text) if self._control else None
        return found[0] if found else None

    def prompt_tokens(self, prompt: Messages) -> int:
        """Number of tokens of a prompt, with the template and what opens the answer."""
        return len(self.ids(self.render(prompt, opens=True)))

    @cached_property
    def _control(self) -> re.Pattern[str] | None:
        added = self.tokenizer.added_tokens_decoder.items()
        control = {token.content for id, token in added if token.special or id in self.stops}
        names = sorted(control - {*TAGS})
        return re.compile("|".join(map(re.escape, names))) if names else None


def lacks_template(tokenizer: str) -> ConfigError:
    """The error of a student's tokenizer without a chat template."""
    return ConfigError(
        f"The tokenizer {tokenizer} has no chat template",
        "Give one with --chat-template FILE, or take an instruction-tuned student.",
    )


def read_template(path: Path, flag: str) -> str:
    """The Jinja text of a file, with its line breaks, for the hash of the template has them.

    Raises:
        ConfigError: The file cannot be read or is empty; the fix names ``flag``.
    """
    fix = f"Give a Jinja file with {flag} FILE."
    try:
        template = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The chat template {path} cannot be read: {error}", fix) from error
    if not template.strip():
        raise ConfigError(f"The chat template {path} is empty", fix)
    return template


def own_template(tokenizer: Any) -> str:
    """The chat template that a tokenizer brings, of several the default one; empty if none."""
    own = tokenizer.chat_template
    return str((own.get("default") if isinstance(own, dict) else own) or "")
