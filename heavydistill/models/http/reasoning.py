"""A model's thinking: told from its answer where the server did not, missed where it is lost.

The answer is what follows the last closing tag. A text that opens its thinking and never closes
it has no answer: all of it is reasoning. A text without tags is all answer. Some chat templates
put the opening tag into the prompt, so a closing tag alone is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from heavydistill.errors import TeacherError
from heavydistill.models.request import Response

_FIRST_WITHOUT = 3


def decoded(tokenizer: Any, ids: Sequence[int], tags: tuple[str, str] | None) -> str:
    """The text of a completion without control tokens, but with the tags of its thinking.

    Some tokenizers have these among their control tokens.
    """
    control = {
        id
        for id, token in tokenizer.added_tokens_decoder.items()
        if token.special and token.content not in (tags or ())
    }
    kept = [id for id in ids if id not in control]
    # Some configurations ask to tidy up spaces, which alters text, or warns that it will not.
    return str(tokenizer.decode(kept, clean_up_tokenization_spaces=False))


def split_reasoning(text: str, tags: tuple[str, str] | None) -> tuple[str, str]:
    """(reasoning, answer text), both stripped, of a whole completion."""
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


class ThinkingCheck:
    """Sees to it that a model that is known to think brings its thinking.

    Until it has brought some, a response without is a failure, so that it is asked for again once
    the server is set right. After that the model may answer what is easy at once.

    Args:
        model: Served name.
        where: Address of the server.
        is_wanted: Whether to check at all.
    """

    def __init__(self, model: str, where: str, is_wanted: bool) -> None:
        self._model, self._where = model, where
        self._is_proven = not is_wanted
        self._without = 0

    def checked(self, responses: list[Response]) -> list[Response]:
        """The responses; failures if they lack what none has shown so far.

        Raises:
            TeacherError: The first three lack it.
        """
        if self._is_proven or any(response.reasoning for response in responses):
            self._is_proven = True
            return responses
        # A response that was cut off may have been cut off before its thinking ended.
        self._without += sum(response.finish_reason == "stop" for response in responses)
        if self._without >= _FIRST_WITHOUT:
            raise TeacherError(
                f"{self._model} is known to think, and its first {_FIRST_WITHOUT} responses at "
                f"{self._where} hold no thinking",
                "A vLLM server needs --reasoning-parser (`heavydistill teachers` shows the "
                "profile's command), a provider may need a switch in the profile's extra_body or "
                "hide it; `heavydistill doctor` finds out. To do without: "
                "--set endpoint.reasoning=optional.",
            )
        return [_lost(r) if r.finish_reason == "stop" else r for r in responses]


def _lost(response: Response) -> Response:
    return replace(
        response,
        finish_reason="error",
        failure="no_reasoning",
        error="The response holds no thinking.",
    )
