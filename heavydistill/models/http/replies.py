"""Parses untrusted values in server replies: JSON, counts, errors and pauses.

Each is converted to a value of a known type. Counts in a journal are read by the same rules. Not
covered: model-written text, which ``completion`` reads.
"""

from __future__ import annotations

import email.utils
import json
import math
import re
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from heavydistill.config.files import json_of
from heavydistill.errors import printable

UNKNOWN = -1
_MOST_COUNTED = 2**31
_MOST_SAID = 500
_STATUS_UNKNOWN = 500
# Error names of providers that send no status.
_NAMES_OF_STATUS = {
    400: "invalid_request_error invalid_argument context_length_exceeded exceed_context_size_error",
    401: "authentication_error invalid_api_key unauthenticated",
    402: "billing_error insufficient_balance insufficient_quota",
    403: "permission_denied permission_error",
    404: "model_not_found not_found_error",
    429: "rate_limit_error rate_limit_exceeded resource_exhausted too_many_requests",
    503: "unavailable unavailable_error",
    529: "overloaded_error",
}
_STATUS_OF = {name: status for status, names in _NAMES_OF_STATUS.items() for name in names.split()}


def count(value: object) -> int:
    """Read a token count: an integer from 0 to 2^31 - 1; -1 (unknown) for anything else."""
    return value if type(value) is int and 0 <= value < _MOST_COUNTED else UNKNOWN


def token_counts(usage: Mapping[str, object]) -> tuple[int, int, int]:
    """(prompt, completion, cached) tokens of a usage; -1: unknown.

    Thinking that a server hides is billed, but some leave it out of ``completion_tokens`` and count
    it in the total or on its own. No prompt has 0 tokens.
    """
    prompt, completion, total = (
        count(usage.get(f"{name}_tokens")) for name in ("prompt", "completion", "total")
    )
    thought, cached = (
        count(details.get(name)) if isinstance(details := usage.get(place), dict) else UNKNOWN
        for place, name in (
            ("completion_tokens_details", "reasoning_tokens"),
            ("prompt_tokens_details", "cached_tokens"),
        )
    )
    if cached == UNKNOWN:
        cached = count(usage.get("prompt_cache_hit_tokens"))
    if thought > completion >= 0:  # so it is not part of it
        completion += thought
    if prompt > 0 and total >= 0:
        completion = max(completion, total - prompt)
    return prompt or UNKNOWN, completion, cached


def seconds(value: object) -> float:
    """Read a duration: a finite number of at least 0; 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 <= value <= sys.float_info.max else 0.0


@dataclass(frozen=True, slots=True)
class Redactor:
    """Converts a server's text to one printable line without the key, which some servers repeat.

    The key is replaced before the text is cut, so that no part of the key remains.
    """

    key: str = ""

    def __call__(self, said: object, most: int = _MOST_SAID) -> str:
        """Clean a text, or another value as JSON, and cut it to ``most`` characters."""
        if not isinstance(said, str):
            try:
                said = json.dumps(said, ensure_ascii=False)
            except RecursionError:
                said = f"a {type(said).__name__} that is nested too deep"
        text = " ".join(printable(said).split())
        return (text.replace(self.key, "***") if self.key else text)[:most]


def message_of(error: Any) -> object:
    """The message in an error of any format, with what the provider behind a router said."""
    error, behind = only_error(error), ""
    while isinstance(error, dict):
        behind = behind or _said_behind(error)
        names = ("error", "message", "detail")
        inner = next((error[name] for name in names if error.get(name)), None)
        if inner is None:
            break
        # The kind next to the message may be the only information.
        kind = next((error[n] for n in ("code", "type") if isinstance(error.get(n), str)), None)
        error = f"{inner} ({kind})" if isinstance(inner, str) and kind else inner
    return f"{error}: {behind}" if behind and isinstance(error, str) else error


def only_error(body: object) -> object:
    """The error in a body that is a list with an error, as Gemini sends it; other bodies
    unchanged."""
    first = body[0] if isinstance(body, list) and body else None
    return first if isinstance(first, dict) and first.get("error") else body


def _said_behind(error: Mapping[str, object]) -> str:
    """The provider's message in the ``metadata`` of OpenRouter; empty if there is none."""
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    text = raw if isinstance(raw, str) else ""
    with suppress(ValueError):
        raw = json_of(text)
    message = raw if isinstance(raw, str) else message_of(raw) if isinstance(raw, dict) else ""
    return message if isinstance(message, str) and message else text


def status_of(error: Any) -> int:
    """The HTTP status for an error in a body; 500 if the error states none."""
    fields = error if isinstance(error, dict) else {"code": error}
    for value in map(fields.get, ("code", "status", "type")):
        if isinstance(value, str):
            value = (
                int(value) if re.fullmatch("[45][0-9]{2}", value) else _STATUS_OF.get(value.lower())
            )
        if type(value) is int and 400 <= value < 600:
            return value
    return _STATUS_UNKNOWN


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Pause in seconds that the server asks for; None if the header is missing or invalid."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "")
        with suppress(ValueError):
            wait_s = float(value) * unit_s
            if math.isfinite(wait_s) and wait_s >= 0:
                return wait_s
            continue
        with suppress(ValueError, OverflowError):  # the date does not exist
            if date := email.utils.parsedate_tz(value):
                return max(0.0, email.utils.mktime_tz(date) - time.time())
    return None
