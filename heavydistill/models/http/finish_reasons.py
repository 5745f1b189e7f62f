"""What the finish reason of a reply means, whatever the server calls it.

Servers and gateways use their own words for "stop" and "length". A reason that is not known is
judged by the text: if it holds a final answer, the response counts as finished, and the reason is
recorded. A reply that ended normally without a text, but with the final answer in the field of the
thinking, is a fault of the server's reasoning parser.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from heavydistill.models.request import Response
from heavydistill.schema import Failure, FinishReason
from heavydistill.text.extraction import end_of_final_answer

# In lower case. Sources: OpenAI, TGI (eos_token, stop_sequence), Together (eos), Anthropic and
# Bedrock (end_turn, max_tokens, model_context_window_exceeded), Gemini (STOP, MAX_TOKENS, SAFETY),
# Cohere (COMPLETE, ERROR_TOXIC), Mistral (model_length), Z.ai (sensitive, network_error), DeepSeek
# (insufficient_system_resource), vLLM and SGLang (abort).
_ENDS: dict[str, FinishReason] = {
    **dict.fromkeys(("stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "model_length"), "length"),
    "model_context_window_exceeded": "length",
}
_FAILURES: dict[str, Failure] = {
    **dict.fromkeys(("content_filter", "content_filtered", "sensitive", "safety"), "filtered"),
    **dict.fromkeys(("recitation", "blocklist", "prohibited_content", "spii"), "filtered"),
    **dict.fromkeys(("error_toxic", "guardrail_intervened"), "filtered"),
    "refusal": "refused",
    "insufficient_system_resource": "overloaded",
    "network_error": "server",
    "error": "server",
    "abort": "cut_off",
}
_RECORDED = re.compile(r"the server stopped for (['\"])(.*)\1")  # what ``stopped_for`` wrote
# Characters that may follow a final answer at the end of the thinking.
_MOST_AFTER = 300
PARSER_AT_FAULT = (
    "the final answer came in the field of the thinking: the server's reasoning parser does not "
    "fit the model"
)
PARSER_FIX = (
    "Start vLLM or SGLang with the --reasoning-parser of this model (`heavydistill teachers NAME` "
    "prints the command) or with none, so that the tags stay in the text; at a provider, use "
    "another host."
)


def failure_of_end(reason: str) -> Failure | None:
    """The failure that a finish reason states; None if it states none."""
    return _FAILURES.get(reason.lower())


def stopped_for(reason: str) -> str:
    """The error of a response that ended for a reason without an answer."""
    return f"the server stopped for {reason!r}"


def ended(
    response: Response, reason: str, measured: Mapping[str, FinishReason], has_field: bool = False
) -> Response:
    """The response with the finish reason, or the failure, that the server's ``reason`` means.

    Args:
        response: The texts; its finish reason is replaced.
        reason: The server's finish reason; not one of ``failure_of_end``.
        measured: Meaning of reasons that `heavydistill doctor` measured.
        has_field: Whether the thinking came in a field of its own.
    """
    known = measured.get(reason) or _ENDS.get(reason.lower())
    changes: dict[str, Any] = {"finish_reason": known, "error": None, "failure": None}
    if known == "stop" and has_field and not response.answer_text:
        end = end_of_final_answer(response.reasoning)
        if end is not None and len(response.reasoning) - end <= _MOST_AFTER:
            changes = _failed("answer_in_thinking", PARSER_AT_FAULT)
    elif not known:
        if end_of_final_answer(response.answer_text) is None:
            changes = _failed("unknown_end", stopped_for(reason))
        else:
            changes["finish_reason"] = "stop"
        changes["unknown_finish_reason"] = reason
    return dataclasses.replace(response, **changes)


def reread(response: Response) -> Response:
    """A recorded response, judged again if an earlier version did not know its finish reason."""
    if response.failure != "unknown_end":
        return response
    recorded = _RECORDED.fullmatch(response.error or "")
    if not recorded or failure_of_end(recorded[2]):
        return response
    return ended(response, recorded[2], {})


def _failed(failure: Failure, error: str) -> dict[str, object]:
    return {"finish_reason": "error", "failure": failure, "error": error}
