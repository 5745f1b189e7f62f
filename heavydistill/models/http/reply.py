"""What a server sends, as values of known types, whatever it has sent.

JSON of any depth, counts of tokens, and what a server says in errors, ids and names. Counts are
read by the same rule from a server and from a journal.

Not covered: the texts of a model, which ``completion`` reads and nobody changes.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from heavydistill.errors import printable

UNKNOWN = -1
_MOST_COUNTED = 2**31
_MOST_SAID = 500
_ERROR_STATUSES = range(400, 600)
_STATUS_UNKNOWN = 500
# What providers call the errors whose number they do not give, or give as a text.
_STATUS_OF = {
    **{str(status): status for status in _ERROR_STATUSES},
    "invalid_request_error": 400,
    "invalid_argument": 400,
    "context_length_exceeded": 400,
    "exceed_context_size_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "unauthenticated": 401,
    "billing_error": 402,
    "insufficient_balance": 402,
    "insufficient_quota": 402,
    "permission_denied": 403,
    "permission_error": 403,
    "model_not_found": 404,
    "not_found_error": 404,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "resource_exhausted": 429,
    "too_many_requests": 429,
    "unavailable": 503,
    "unavailable_error": 503,
    "overloaded_error": 529,
}


def parsed(data: bytes | str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: It is no JSON, or is nested deeper than Python reads.
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None


def count(value: object) -> int:
    """A count of tokens: a plain integer of 0 to 2^31 - 1, else -1 for unknown."""
    return value if type(value) is int and 0 <= value < _MOST_COUNTED else UNKNOWN


def seconds(value: object) -> float:
    """A duration: a finite number from 0 on, else 0."""
    if type(value) not in (int, float):
        return 0.0
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        return 0.0
    return number if math.isfinite(number) and number >= 0 else 0.0


@dataclass(frozen=True, slots=True)
class Redactor:
    """Makes one printable line of what a server says, without the key, which some repeat.

    The key is replaced before anything is cut off, so no part of it is left at the cut.

    Args:
        key: The key that is sent; empty for none.
    """

    key: str = ""

    def __call__(self, said: object, most: int = _MOST_SAID) -> str:
        """At most so many characters of a text, or of any other value as JSON."""
        text = " ".join(printable(said if isinstance(said, str) else _as_json(said)).split())
        return (text.replace(self.key, "***") if self.key else text)[:most]


def message_of(error: Any) -> Any:
    """What an error says, however it is wrapped.

    Args:
        error: The parsed body of an HTTP error, or the ``error`` of a body.
    """
    while isinstance(error, dict):
        names = ("error", "message", "detail")
        inner = next((error[name] for name in names if error.get(name)), None)
        if inner is None:
            break
        # Its kind stands beside the message, and may be all that says what is wrong.
        kind = next((error[n] for n in ("code", "type") if isinstance(error.get(n), str)), None)
        error = f"{inner} ({kind})" if isinstance(inner, str) and kind else inner
    return error


def status_of(error: Any) -> int:
    """The HTTP status that an error in a body stands for; 500 if it names none."""
    fields = error if isinstance(error, dict) else {"code": error}
    for value in map(fields.get, ("code", "status", "type")):
        if type(value) is int and value in _ERROR_STATUSES:
            return value
        if isinstance(value, str) and (status := _STATUS_OF.get(value.lower())):
            return status
    return _STATUS_UNKNOWN


def _as_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deep"
