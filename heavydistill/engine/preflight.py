"""Finds out before a run whether an endpoint can be asked at all, at the price of no token."""

from __future__ import annotations

import difflib
import os

from heavydistill.config import Endpoint
from heavydistill.errors import TeacherError

_TIMEOUT_S = 20.0
_MOST_NAMED = 10


def require(model: str, endpoint: Endpoint) -> None:
    """Ask the endpoint which models it serves.

    A server that does not tell is taken as it is.

    Args:
        model: Served name.
        endpoint: Where.

    Raises:
        TeacherError: Nothing answers there, the key is refused, or the model is not served.
    """
    from openai import APIConnectionError, AuthenticationError, OpenAI, OpenAIError

    key = os.environ.get(endpoint.key_env, "").strip()
    try:
        with OpenAI(
            base_url=endpoint.base_url, api_key=key or "none", timeout=_TIMEOUT_S, max_retries=0
        ) as client:
            names = [served.id for served in client.models.list()]
    except AuthenticationError as error:
        raise TeacherError(
            f"{endpoint.base_url} refuses the key in {endpoint.key_env} "
            f"({error.status_code}){'' if key else ', which is not set'}",
            f"Set {endpoint.key_env} to a valid key, or name another variable with "
            "endpoint.api_key_env.",
        ) from None
    except APIConnectionError as error:
        raise TeacherError(
            f"Nothing answers at {endpoint.base_url}: {error}",
            "Start the server, or correct --endpoint; it ends in /v1 as a rule.",
        ) from error
    except (OpenAIError, ValueError, TypeError, AttributeError):
        return
    # A proxy may list patterns.
    if names and model not in names and not any("*" in name for name in names):
        near = difflib.get_close_matches(model, names, n=1)
        raise TeacherError(
            f"{endpoint.base_url} does not serve {model!r}",
            f"{f'Did you mean {near[0]}? ' if near else ''}It serves "
            f"{', '.join(names[:_MOST_NAMED])}{', ...' if len(names) > _MOST_NAMED else ''}.",
        )
