"""Checks address, key, model and context of servers before anything large is loaded.

Each address is asked once for its models, with ``GET BASE/models``. If the reply does not show
whether the key is valid, an empty chat completion is posted: the server refuses either the key or
the request, and nothing is billed. A server that does not list its models is accepted; if the model
is wrong, the first real request fails. Not covered: whether a server honours parameters
(``doctor``).
"""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass
from typing import Any

from heavydistill.config.models import Endpoint
from heavydistill.errors import TeacherError, did_you_mean
from heavydistill.models.http.failures import wrong_key
from heavydistill.models.http.replies import Redactor, message_of, status_of
from heavydistill.models.http.transport import exchange, submit
from heavydistill.models.profiles import provider_at

_TIMEOUT_S = 20.0
_MOST_BYTES = 16 * 2**20  # bytes; the lists of large providers have about 1 MB
_MOST_NAMED = 10
_SMALLEST_CONTEXT, _LARGEST_CONTEXT = 256, 2**31
_CONTEXT_KEYS = ("max_model_len", "context_length", "context_window")
_OK = 200
_WRONG_KEY, _NO_MONEY, _FORBIDDEN, _NOT_THERE, _NO_SUCH_METHOD = 401, 402, 403, 404, 405
_NOT_A_BASE = re.compile(r"/(chat/completions|completions|models)$")
_VERSION = re.compile(r"/v\d+\w*$")
_Entries = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Reply:
    """A server's reply to a check."""

    status: int  # HTTP status
    json: object  # The value of the body, or None if it is not JSON

    @property
    def models(self) -> _Entries | None:
        """The entries of a list of models, each with a name; None if the body is no such list."""
        entries = self.json if self.status == _OK else None
        if isinstance(entries, dict) and "data" in entries:
            entries = entries["data"] or []  # Ollama sends null if it has no models
        if not isinstance(entries, list):
            return None
        return [e for e in entries if isinstance(e, dict) and isinstance(e.get("id"), str)]

    @property
    def code(self) -> int:
        """The HTTP status, or the status of an error in the body if the HTTP status is 200."""
        tree = self.json if self.status == _OK else None
        if isinstance(tree, dict) and tree.get("error") and "choices" not in tree:
            return status_of(tree["error"])
        return self.status


class ServerProbe:
    """Checks the servers of a command; each address is asked for its models only once."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], _Entries] = {}

    def context(self, model: str, endpoint: Endpoint) -> int | None:
        """The smallest context that the endpoint's addresses state; None if none states it.

        Raises:
            TeacherError: No server answers, the key is missing or refused, the model is not served,
                or the address is not the address of an API.
        """
        said = [context_of(self.listed(model, url, endpoint), model) for url in endpoint.urls]
        return min((tokens for tokens in said if tokens), default=None)

    def require(self, model: str, endpoint: Endpoint, most_tokens: int = 0) -> None:
        """Check that all addresses serve the model, with a context of at least ``most_tokens``.

        Raises:
            TeacherError: As ``context`` raises, or the server accepts fewer tokens.
        """
        takes = self.context(model, endpoint)
        if takes and takes < most_tokens:
            raise TeacherError(
                f"{endpoint.base_url} serves {model} with {takes} tokens of prompt and response, "
                f"but this run needs {most_tokens}",
                f"Add --set endpoint.context={takes}, or start the server with a larger context.",
            )

    def require_batches(self, endpoint: Endpoint) -> None:
        """Check that a server that answers has a batch API.

        Raises:
            TeacherError: The server has none, or does not answer.
        """
        url = f"{endpoint.urls[0].rstrip('/')}/batches"
        try:
            reply = submit(_exchange(f"{url}?limit=1", endpoint.key)).result()
        except _faults() as error:
            why = f"Nothing answers at {url}: {_why(error)}"
            raise TeacherError(why, "Repeat the command later, or leave out --batch.") from error
        if not isinstance(reply.json, dict) or not isinstance(reply.json.get("data"), list):
            raise TeacherError(
                f"{endpoint.base_url} has no batch API: GET {url} returns HTTP {reply.status}",
                "Leave out --batch to send the requests one by one, or write files for `vllm "
                "run-batch` on GPUs of yours: --batch-files FOLDER in place of --endpoint.",
            )

    def listed(self, model: str, url: str, endpoint: Endpoint) -> _Entries:
        """The server's list of models, checked to contain ``model``; empty if there is no list.

        Raises TeacherError as ``context`` does.
        """
        place = url, endpoint.key_env
        if place not in self._seen:
            refuse_missing_key(endpoint)
            self._seen[place] = submit(_listed(url.rstrip("/"), endpoint)).result()
        models = self._seen[place]
        names = [each["id"] for each in models]
        # A proxy such as LiteLLM may list patterns with "*".
        if names and model not in names and not any("*" in name for name in names):
            raise TeacherError(
                f"{url} does not serve {model!r}",
                f"{did_you_mean(model, names)}It serves "
                f"{', '.join(names[:_MOST_NAMED])}{', ...' if len(names) > _MOST_NAMED else ''}.",
            )
        return models


def refuse_missing_key(endpoint: Endpoint) -> None:
    """Raise a TeacherError if the endpoint is a hosted API and its key is not set."""
    provider = next(filter(None, map(provider_at, endpoint.urls)), None)
    if provider and not endpoint.key:
        raise TeacherError(
            f"{provider} needs a key, and the environment variable {endpoint.key_env} is not set",
            f"Set it with `export {endpoint.key_env}=...`, or name another variable with --set "
            "endpoint.api_key_env=NAME.",
        )


def context_of(models: _Entries, model: str) -> int | None:
    """The context of a model according to the server's list; None if not stated.

    The keys of vLLM and SGLang, llama.cpp, OpenRouter and Groq are read. An adapter in vLLM has the
    context of its base model.
    """
    by_name = {each["id"]: each for each in models}
    entry = by_name.get(model, {})
    parent = entry.get("parent")
    base = by_name.get(parent, {}) if isinstance(parent, str) else {}
    for each in (entry, base):
        meta = each.get("meta")
        of_llama = meta.get("n_ctx") if isinstance(meta, dict) else None
        for value in (*map(each.get, _CONTEXT_KEYS), of_llama):
            if type(value) is int and _SMALLEST_CONTEXT <= value < _LARGEST_CONTEXT:
                return value
    return None


async def _listed(url: str, endpoint: Endpoint) -> _Entries:
    key = endpoint.key
    try:
        reply = await _exchange(f"{url}/models", key)
    except _faults() as error:
        raise TeacherError(
            f"Nothing answers at {url}: {Redactor(key)(_why(error))}",
            "Start the server, or correct --endpoint; most addresses end in /v1.",
        ) from error
    except (ValueError, TypeError) as error:
        raise TeacherError(
            f"Nothing can be sent to {url}: {type(error).__name__}",
            f"Correct the address, or the key in {endpoint.key_env}.",
        ) from None  # the message of the error may hold the key
    if reply.code == _WRONG_KEY:
        raise wrong_key(url, endpoint, reply.code)
    models = reply.models
    if models is None and (other := await _other_base(url, key)):
        right = (other if each.rstrip("/") == url else each for each in endpoint.urls)
        brought = f"HTTP {reply.code}" if reply.code != _OK else "no list of models"
        raise TeacherError(
            f"{url} is not the base address of an API: GET {url}/models returns {brought}, but "
            f"{other}/models answers",
            f"Give --endpoint {','.join(right)}",
        )
    is_page = models is None and reply.json is None and reply.code == _OK
    if key or is_page:
        await _prove_api(url, endpoint, models is not None, is_page)
    return models or []


async def _prove_api(url: str, endpoint: Endpoint, is_listed: bool, is_page: bool) -> None:
    """Post an empty completion to check address and key, which a list of models may not prove."""
    try:
        if is_listed and (await _exchange(f"{url}/models", "")).models is None:
            return  # the server returns its list only for a valid key
        reply = await _exchange(f"{url}/chat/completions", endpoint.key, {})
    except _faults():  # e.g. a server that is still loading the model
        return
    if is_page and reply.json is None:
        raise TeacherError(
            f"{url} is not the base address of an API: GET {url}/models and POST "
            f"{url}/chat/completions return no JSON",
            "Correct --endpoint; most addresses end in /v1.",
        )
    if reply.code == _WRONG_KEY:
        raise wrong_key(url, endpoint, reply.code)
    if reply.code in (_NO_MONEY, _FORBIDDEN):
        said = Redactor(endpoint.key)(message_of(reply.json) or "it gives no reason")
        raise TeacherError(
            f"{url} refuses a request: HTTP {reply.code}: {said}",
            "Add credit to the account there."
            if reply.code == _NO_MONEY
            else f"Correct --endpoint or the key in {endpoint.key_env}.",
        )


def _why(error: Exception) -> str:
    """Why no server answers, in the operating system's words if possible."""
    fault = getattr(error, "os_error", error)  # aiohttp's own errors repeat the address
    if isinstance(fault, TimeoutError):
        return f"no answer in {_TIMEOUT_S:g} s"
    if isinstance(fault, OSError) and fault.errno and not isinstance(fault, ssl.SSLError):
        words = os.strerror(fault.errno) if fault.errno > 0 else fault.strerror or str(fault)
        return f"{words[0].lower()}{words[1:]}"
    return str(error)


async def _other_base(url: str, key: str) -> str | None:
    """The base URL of an API near the given one, e.g. with ``/v1`` added; None if none answers."""
    stem = _NOT_A_BASE.sub("", url)
    others = [] if stem == url else [stem]
    if not _VERSION.search(stem):
        others.append(f"{stem}/v1")
    faults: tuple[type[Exception], ...] = (TeacherError, *_faults())
    for other in others:
        try:
            reply = await _exchange(f"{other}/models", key)
            if reply.models is None and reply.code != _WRONG_KEY:
                continue
            chat = await _exchange(f"{url}/chat/completions", key, {})
        except faults:
            continue
        if chat.status in (_NOT_THERE, _NO_SUCH_METHOD) or chat.json is None:
            return other
    return None


async def _exchange(url: str, key: str, body: dict[str, object] | None = None) -> _Reply:
    """Send GET, or POST with ``body``; a reply that is no JSON has the value None."""
    reply = await exchange(url, key, body, timeout_s=_TIMEOUT_S, most_bytes=_MOST_BYTES)
    return _Reply(*reply)


def _faults() -> tuple[type[Exception], ...]:
    """The exceptions that are raised if no server answers."""
    from aiohttp import ClientError

    return (ClientError, OSError, TimeoutError)
