"""Which kind of failure an error of the openai library is; see ``schema.Failure``."""

from __future__ import annotations

import re

from heavydistill.schema import Failure

# Servers have no common code for it; these are the words of vLLM, SGLang, OpenAI and others.
_TOO_LONG = re.compile(
    r"context_length_exceeded|context[ _]length|context window|max_model_len|too long"
    r"|maximum (?:input|prompt|number of tokens)|reduce the length",
    re.IGNORECASE,
)
_OVERLOADED = (429, 503, 529)
_TOO_LARGE = 413


def failure_of(error: Exception) -> Failure:
    """The kind of a failure.

    Args:
        error: Of the openai library, or raised by reading a body that is no completion.
    """
    from openai import APIConnectionError, APIStatusError, APITimeoutError

    if isinstance(error, APITimeoutError):
        return "timeout"
    if isinstance(error, APIConnectionError):
        return "unreachable"
    if not isinstance(error, APIStatusError):
        return "malformed"
    if error.status_code in _OVERLOADED:
        return "overloaded"
    if error.status_code >= 500:
        return "server"
    if error.status_code == _TOO_LARGE or _TOO_LONG.search(str(error)):
        return "too_long"
    return "rejected"
