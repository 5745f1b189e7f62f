"""What is done to a chat template that loses what is to be learnt, so that it no longer does.

The template's own text stays, and a few words of ours are put before and behind it, so prompts are
rendered as the model knows them:

    date          what asks for today's date gets a fixed one, or no build could be repeated
    named         the thinking is handed on under the name that the template reads
    switched_on   thinking is switched on, where a prompt would open with an empty one
    ended         the end of sequence follows the last turn, if the template has none there
    continued     a last turn of the assistant is not left to the template: the prompt is
                  rendered as it is asked, and the answer follows as it would be generated

Every function takes the text of a template and gives another. Not covered: which of them a
template needs, which ``student`` finds by rendering.
"""

from __future__ import annotations

import datetime
import json
import re

from heavydistill.errors import ConfigError

DATE = datetime.date(2025, 1, 1)
_DATE_CALL = re.compile(r"strftime_now\(\s*(['\"])(.*?)\1\s*\)")

# The marks keep Jinja from eating line breaks and blanks of the template's own text.
_NAMED = (
    "{%+ if messages and messages[-1].reasoning_content +%}"
    "{%+ set messages = messages[:-1] + "
    "[dict(messages[-1], NAME=messages[-1].reasoning_content)] +%}"
    "{%+ endif +%}"
)
_SWITCHED_ON = (
    "{%+ if enable_thinking is not defined +%}{%+ set enable_thinking = true +%}{%+ endif +%}"
)
_ENDED = (
    "{%+ if messages and messages[-1].role == 'assistant' and not add_generation_prompt +%}"
    "{{ eos_token }}{%+ endif +%}"
)
_CONTINUED_BEFORE = (
    "{%+ set heavydistill_turn = none +%}"
    "{%+ if messages and messages[-1].role == 'assistant' and not add_generation_prompt CASE+%}"
    "{%+ set heavydistill_turn = messages[-1] +%}{%+ set messages = messages[:-1] +%}"
    "{%+ set add_generation_prompt = true +%}"
    "{%+ endif +%}"
)
_CONTINUED_BEHIND = (
    "{%+ if heavydistill_turn +%}"
    "{%+ if heavydistill_turn.reasoning_content +%}"
    "{{ OPENING + heavydistill_turn.reasoning_content + CLOSING }}"
    "{%+ else +%}{{ EMPTY }}{%+ endif +%}"
    "{{ heavydistill_turn.content + ENDING }}{%+ endif +%}"
)
_NO_THINKING = "and not messages[-1].reasoning_content and '</think>' not in messages[-1].content "


def date(template: str) -> str:
    """With a fixed date.

    Raises:
        ConfigError: It asks for the date in a way that cannot be replaced.
    """
    fixed = _DATE_CALL.sub(lambda call: json.dumps(DATE.strftime(call[2])), template)
    if "strftime_now(" in fixed:
        raise ConfigError(
            "The chat template puts today's date into every prompt in a way that cannot be fixed, "
            "so tomorrow's build would be another",
            "Give a template with a fixed date with --chat-template FILE.",
        )
    return fixed


def named(template: str, name: str) -> str:
    """With the thinking of the last turn in the key ``name`` as well."""
    return _NAMED.replace("NAME", name) + template


def switched_on(template: str) -> str:
    """With thinking switched on, unless whoever renders says otherwise."""
    return _SWITCHED_ON + template


def ended(template: str) -> str:
    """With the end of sequence behind a last turn of the assistant."""
    return _before_the_end(template) + _ENDED


def continued(
    template: str, opening: str, closing: str, empty: str, ending: str, only_plain: bool
) -> str:
    """With a last turn of the assistant that continues the prompt.

    Args:
        template: The template.
        opening: Before the thinking.
        closing: Between thinking and answer.
        empty: In place of both, before an answer without thinking.
        ending: Behind the answer.
        only_plain: Whether turns with thinking are left to the template.
    """
    texts = {"OPENING": opening, "CLOSING": closing, "EMPTY": empty, "ENDING": ending}
    behind = re.sub(
        "|".join(texts),
        lambda name: json.dumps(texts[name[0]], ensure_ascii=False),
        _CONTINUED_BEHIND,
    )
    before = _CONTINUED_BEFORE.replace("CASE", _NO_THINKING if only_plain else "")
    return before + _before_the_end(template) + behind


def _before_the_end(template: str) -> str:
    """Jinja leaves out one line break at the end of a template, but not in the middle."""
    return template.removesuffix("\n")
