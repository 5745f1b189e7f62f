"""Renders rows with a tokenizer's chat template, and splits their tokens as a trainer does.

The tokens with a loss are found as in TRL's trainer for prompts and completions: the prompt is
rendered alone, with the generation prompt, and then the whole row. The loss is computed on the
tokens after their common prefix.

Not covered: the form of a row (see ``student``), and whether it is complete (see ``guard``).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from heavydistill.errors import ConfigError
from heavydistill.models.thinking import COMMON_TAGS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

Messages = Sequence[Mapping[str, object]]
MENDED_BY_HAND = "Give a repaired one with --chat-template FILE, or take another student."

"""Tags around thinking in a text."""

_PROBE = "3f9c1a57 question"


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a row as a trainer sees them."""

    prompt: list[int]  # Token ids that the student reads; these tokens have no loss
    completion: list[int]  # Token ids of the response; these tokens have a loss
    fault: str = ""
    """Why the row must not be used; empty if it may be. Without a fault, ``prompt`` is exactly
    what the student reads at inference."""


class Chat:
    """Renders conversations with a tokenizer.

    Args:
        tokenizer: Tokenizer of transformers, which is not changed.
        stops: Ids at which generation stops, in addition to the tokenizer's end of sequence.
        template: Jinja text that replaces the tokenizer's template.

    Raises:
        ConfigError: There is no template, or it is not Jinja; or no token ends a response.
    """

    def __init__(
        self, tokenizer: Tokenizer, stops: Iterable[int] = (), template: str | None = None
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
        except ValueError as error:  # other errors in the template appear when it is rendered
            cause = error.__cause__
            if isinstance(cause, TemplateSyntaxError):
                raise ConfigError(
                    f"The chat template is not valid Jinja: line {cause.lineno}: {cause.message}",
                    MENDED_BY_HAND,
                ) from error

    @property
    def sha256(self) -> str:
        """Return the hash of the template's text, in hex digits."""
        return hashlib.sha256(self.template.encode()).hexdigest()

    @cached_property
    def opener(self) -> str:
        """Return the text between prompt and answer; empty if the template loses the prompt."""
        try:
            asked = self.render([{"role": "user", "content": _PROBE}], opens=True)
        except ValueError:
            return ""
        return asked.rpartition(_PROBE)[2] if _PROBE in asked else ""

    @property
    def opens_thinking(self) -> bool:
        """Return whether the opener ends inside a think tag, so responses lack the opening tag."""
        return self.opener.count(COMMON_TAGS[0]) > self.opener.count(COMMON_TAGS[1])

    def render(self, messages: Messages, opens: bool = False) -> str:
        """Render a conversation; with ``opens``, append the generation prompt.

        Raises:
            ValueError: The template refuses it; the message quotes the template's error.
        """
        try:
            rendered = self.tokenizer.apply_chat_template(
                list(messages),
                tokenize=False,
                add_generation_prompt=opens,
                chat_template=self.template,
            )
        except Exception as error:  # a template is a program, and may fail in any way
            raise ValueError(f"the template does not accept the conversation: {error}") from error
        return str(rendered)

    def ids(self, text: str) -> list[int]:
        """Return the token ids of a rendered text."""
        # verbose=False hides length warnings, because the guard reports rows that are too long.
        return list(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, including special tokens."""
        return str(
            self.tokenizer.decode(
                list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    def tokens(self, prompt: Messages, completion: Messages) -> Tokens:
        """Return the tokens of a row, split as in TRL."""
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
        """Return the first control token that the tokenizer finds in a text; None if none."""
        match = self._control.search(text) if self._control else None
        return match[0] if match else None

    def prompt_tokens(self, prompt: Messages) -> int:
        """Return the number of tokens of a prompt, with template and generation prompt."""
        return len(self.ids(self.render(prompt, opens=True)))

    @cached_property
    def _control(self) -> re.Pattern[str] | None:
        added = self.tokenizer.added_tokens_decoder.items()
        control = {token.content for id, token in added if token.special or id in self.stops}
        names = sorted(control - {*COMMON_TAGS})
        return re.compile("|".join(map(re.escape, names))) if names else None


def lacks_template(tokenizer: str) -> ConfigError:
    """Return the error for a student's tokenizer without a chat template."""
    return ConfigError(
        f"The tokenizer {tokenizer} has no chat template",
        "Give one with --chat-template FILE, or take an instruction-tuned student.",
    )


def read_template(path: Path, flag: str) -> str:
    """Return the Jinja text of a file with exact line breaks, because they affect the hash.

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


def own_template(tokenizer: Tokenizer) -> str:
    """Return the tokenizer's chat template (the default one of several); empty if none."""
    own = tokenizer.chat_template
    return str((own.get("default") if isinstance(own, dict) else own) or "")
