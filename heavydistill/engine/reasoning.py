"""Tells a model's thinking from its answer where the server did not.

The answer is what follows the last closing tag. A text that opens its thinking and never closes
it has no answer: all of it is reasoning. A text without tags is all answer. Some chat templates
put the opening tag into the prompt, so a closing tag alone is enough.
"""

from __future__ import annotations


def split_reasoning(text: str, tags: tuple[str, str] | None) -> tuple[str, str]:
    """(reasoning, answer text), both stripped, of a whole completion.

    Args:
        text: What the model wrote.
        tags: Opening and closing tag of its thinking; None if it has none.
    """
    if tags is None:
        return "", text.strip()
    opening, closing = tags
    thinking, found, answer = text.rpartition(closing)
    if found:
        return thinking.replace(opening, "", 1).strip(), answer.strip()
    before, found, thinking = text.partition(opening)
    if found:
        return f"{before}{thinking}".strip(), ""
    return "", text.strip()
