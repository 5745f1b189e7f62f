"""Finds out before a run whether an endpoint can be asked at all, at the price of no token."""

from __future__ import annotations

import difflib
import os
from typing import TYPE_CHECKING

from heavydistill.config import Endpoint
from heavydistill.errors import TeacherError

if TYPE_CHECKING:
    from openai.types import Model

_TIMEOUT_S = 20.0
_MOST_NAMED = 10


def require(model: str, endpoint: Endpoint, most_tokens: int = 0) -> None:
    """Ask each address of the endpoint which models it serves, and with how much context.

    A server that does not tell is taken as it is; so is one that forbids the question (403), as
    some keys may ask a model but not list them. What it then refuses stops a run, see
    ``rejections``.

    Args:
        model: Served name.
        endpoint: Where.
        most_tokens: The most that a prompt and its response will have together.

    Raises:
        TeacherError: Nothing answers there, the key is refused, the model is not served, or takes
            fewer tokens than that.
    """
    for url in endpoint.urls:
        served = _models(url, endpoint)
        names = [each.id for each in served]
        # A proxy may list patterns.
        if names and model not in names and not any("*" in name for name in names):
            near = difflib.get_close_matches(model, names, n=1)
            raise TeacherError(
                f"{url} does not serve {model!r}",
                f"{f'Did you mean {near[0]}? ' if near else ''}It serves "
                f"{', '.join(names[:_MOST_NAMED])}{', ...' if len(names) > _MOST_NAMED else ''}.",
            )
        for each in served:
            # vLLM and SGLang tell it.
            takes = (each.model_extra or {}).get("max_model_len")
            if each.id == model and isinstance(takes, int) and takes < most_tokens:
                raise TeacherError(
                    f"{url} serves {model} with {takes} tokens of prompt and response, but "
                    f"{most_tokens} are to be asked of it",
                    f"Give it less with --set endpoint.context={takes}, or start the server with "
                    "more.",
                )


def _models(url: str, endpoint: Endpoint) -> list[Model]:
    """What the server at that address says it serves; nothing if it does not say."""
    from openai import APIConnectionError, AuthenticationError, OpenAI, OpenAIError

    key = os.environ.get(endpoint.key_env, "").strip()
    try:
        with OpenAI(
            base_url=url, api_key=key or "none", timeout=_TIMEOUT_S, max_retries=0
        ) as client:
            return [served for served in client.models.list() if isinstance(served.id, str)]
    except AuthenticationError as error:
        raise TeacherError(
            f"{url} refuses the key in {endpoint.key_env} "
            f"({error.status_code}){'' if key else ', which is not set'}",
            f"Set {endpoint.key_env} to a valid key, or name another variable with "
            "endpoint.api_key_env.",
        ) from None
    except APIConnectionError as error:
        raise TeacherError(
            f"Nothing answers at {url}: {error}",
            "Start the server, or correct --endpoint; it ends in /v1 as a rule.",
        ) from error
    except (OpenAIError, ValueError, TypeError, AttributeError, RecursionError):
        return []
