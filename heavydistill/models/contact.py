"""The first contact with servers: address, key, model and context, before anything large is loaded.

Each address is asked once for its models, ``GET BASE/models``. That costs nothing. Where it does
not show whether the key is good, because the same question without the key is answered too or
because there is no such list, one chat completion of a single token shows it; it is booked in the
account of the run. A server without a key is asked for its models alone.

A server that does not list its models is not refused for that: what it then refuses stops a run,
see ``http.circuit_breaker``. Not covered: whether the server honours parameters, which ``doctor``
finds out.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from heavydistill.config.models import Endpoint, Sampling
from heavydistill.errors import StoppedError, TeacherError
from heavydistill.models.http.completion import ChatCompletion
from heavydistill.models.http.gate import submit
from heavydistill.models.http.reply import Redactor, ServerFault, message_of, parsed, status_of
from heavydistill.models.http.transport import beginning, proxy_of
from heavydistill.models.ledger import Cost, Ledger, Tariff
from heavydistill.models.profiles import provider_at
from heavydistill.models.request import Request, user_turn

_TIMEOUT_S = 20.0
_MOST_BYTES = 16 * 2**20  # the lists of large providers have about 1 MB
_MOST_NAMED = 10
_SMALLEST_CONTEXT, _LARGEST_CONTEXT = 256, 2**31
_CONTEXT_KEYS = ("max_model_len", "context_length", "context_window")
_OK = 200
_WRONG_KEY, _NO_MONEY, _FORBIDDEN, _NOT_THERE, _NO_SUCH_METHOD = 401, 402, 403, 404, 405
_NOT_A_BASE = re.compile(r"/(chat/completions|completions|models)$")
_VERSION = re.compile(r"/v\d+\w*$")


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered."""

    status: int  # HTTP status
    body: str  # Text as far as it came, up to a bound

    @property
    def models(self) -> list[dict[str, Any]] | None:
        """The entries of a list of models, each with a name; None if it is no such list."""
        tree = self.json if self.status == _OK else None
        entries = tree
        if isinstance(tree, dict) and "data" in tree:
            entries = tree["data"] or []  # null in an Ollama without models
        if not isinstance(entries, list):
            return None
        return [e for e in entries if isinstance(e, dict) and isinstance(e.get("id"), str)]

    @property
    def code(self) -> int:
        """The status, or that of an error in a body that says it is well."""
        tree = self.json
        is_error = isinstance(tree, dict) and tree.get("error") and "choices" not in tree
        return status_of(tree["error"]) if self.status == _OK and is_error else self.status

    @property
    def json(self) -> Any:
        """The value of the body, or None if it is no JSON."""
        try:
            return parsed(self.body)
        except ValueError:
            return None


@dataclass(slots=True)
class _Seen:
    """What an address said: the entries of its models, and whether it took the key."""

    models: list[dict[str, Any]]
    takes_key: bool


class Contact:
    """Asks the servers of a command; what an address said is remembered."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], _Seen] = {}

    def context(self, model: str, endpoint: Endpoint) -> int | None:
        """The most tokens of prompt and response together that all addresses say they take.

        Returns:
            None if no address says it.

        Raises:
            TeacherError: Nothing answers there, the key is missing or refused, the model is not
                served, or the address is not that of the API; the message has the right one if it
                answers.
        """
        said = [context_of(self._entries(model, url, endpoint), model) for url in endpoint.urls]
        return min((tokens for tokens in said if tokens), default=None)

    def require(
        self,
        model: str,
        endpoint: Endpoint,
        most_tokens: int = 0,
        account: Callable[[], Ledger] | None = None,
        tariff: Tariff | None = None,
    ) -> None:
        """Refuse a server that cannot be asked.

        Args:
            model: Served name.
            endpoint: Where.
            most_tokens: The most that a prompt and its response will have together.
            account: Opens the account of the run, if it has a budget.
            tariff: Price of the model's tokens.

        Raises:
            TeacherError: As of ``context``, or the server takes fewer tokens than that.
            ConfigError: The account cannot be used.
        """
        for url in endpoint.urls:
            takes = context_of(self._entries(model, url, endpoint), model)
            if takes and takes < most_tokens:
                raise TeacherError(
                    f"{url} serves {model} with {takes} tokens of prompt and response, but "
                    f"this run needs {most_tokens}",
                    f"Give it less with --set endpoint.context={takes}, or start the server with "
                    "more.",
                )
            seen = self._look(url, endpoint)
            if not seen.takes_key:
                with contextlib.ExitStack() as held:
                    ledger = held.enter_context(contextlib.closing(account())) if account else None
                    _prove_key(url, endpoint, model, ledger, tariff or Tariff())
                seen.takes_key = True

    def _entries(self, model: str, url: str, endpoint: Endpoint) -> list[dict[str, Any]]:
        """The list of models, in which this one is; empty if the server has none."""
        models = self._look(url, endpoint).models
        names = [each["id"] for each in models]
        # A proxy may list patterns.
        if names and model not in names and not any("*" in name for name in names):
            near = difflib.get_close_matches(model, names, n=1)
            raise TeacherError(
                f"{url} does not serve {model!r}",
                f"{f'Did you mean {near[0]}? ' if near else ''}It serves "
                f"{', '.join(names[:_MOST_NAMED])}{', ...' if len(names) > _MOST_NAMED else ''}.",
            )
        return models

    def _look(self, url: str, endpoint: Endpoint) -> _Seen:
        place = url, endpoint.key_env
        if place not in self._seen:
            refuse_missing_key(endpoint)
            self._seen[place] = submit(_looked(url.rstrip("/"), endpoint)).result()
        return self._seen[place]


def refuse_missing_key(endpoint: Endpoint) -> None:
    """Refuse an endpoint of a provider, all of which need a key, without one.

    Raises:
        TeacherError: The key is missing.
    """
    provider = next(filter(None, map(provider_at, endpoint.urls)), None)
    if provider and not endpoint.key:
        raise TeacherError(
            f"{provider} needs a key, and the environment variable {endpoint.key_env} is not set",
            f"Set it with `export {endpoint.key_env}=...`, or name another variable with --set "
            "endpoint.api_key_env=NAME.",
        )


def context_of(models: list[dict[str, Any]], model: str) -> int | None:
    """The context of a model by the server's list; None if that does not say it.

    Keys are those of vLLM and SGLang, llama.cpp, OpenRouter and Groq. An adapter in vLLM has the
    context of its base.
    """
    by_name = {each["id"]: each for each in models}
    entry = by_name.get(model)
    if not entry:
        return None
    return _context_in(entry) or _context_in(by_name.get(_text(entry.get("parent"))) or {})


def _context_in(entry: dict[str, Any]) -> int | None:
    meta = entry.get("meta")
    of_llama = meta.get("n_ctx") if isinstance(meta, dict) else None
    said = (*(entry.get(key) for key in _CONTEXT_KEYS), of_llama)
    counts = (value for value in said if type(value) is int)
    return next((n for n in counts if _SMALLEST_CONTEXT <= n < _LARGEST_CONTEXT), None)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


async def _looked(url: str, endpoint: Endpoint) -> _Seen:
    key = endpoint.key
    try:
        reply = await _exchange(f"{url}/models", key)
    except _faults() as error:
        raise TeacherError(
            f"Nothing answers at {url}: {Redactor(key)(_why(error))}",
            "Start the server, or correct --endpoint; it ends in /v1 as a rule.",
        ) from error
    except (ValueError, TypeError) as error:
        raise TeacherError(
            f"Nothing can be sent to {url}: {type(error).__name__}",
            f"Correct the address, or the key in {endpoint.key_env}.",
        ) from None  # the message of the error may hold the key
    if reply.code == _WRONG_KEY:
        raise _refused_key(url, endpoint, reply)
    models = reply.models
    if models is None and (other := await _other_base(url, key)):
        right = (other if each.rstrip("/") == url else each for each in endpoint.urls)
        raise TeacherError(
            f"{url} is not the base address of an API: GET {url}/models brings "
            f"{_brought(reply)}, and {other}/models answers",
            f"Give --endpoint {','.join(right)}",
        )
    takes_key = not key or (models is not None and not await _is_open(url))
    return _Seen(models or [], takes_key)


def _why(error: Exception) -> str:
    """Why nothing answers, in the words of the system where it has some."""
    fault = getattr(error, "os_error", error)  # aiohttp's errors name addresses twice
    if isinstance(fault, TimeoutError):
        return f"no answer in {_TIMEOUT_S:g} s"
    if isinstance(fault, OSError) and fault.errno and not isinstance(fault, ssl.SSLError):
        words = os.strerror(fault.errno) if fault.errno > 0 else fault.strerror or str(fault)
        return f"{words[0].lower()}{words[1:]}"
    return str(error)


def _brought(reply: Reply) -> str:
    return f"HTTP {reply.code}" if reply.code != _OK else "no list of models"


async def _is_open(url: str) -> bool:
    """Whether the list of models is there without a key too, so that it says nothing of one."""
    try:
        return (await _exchange(f"{url}/models", "")).models is not None
    except _faults():
        return True


async def _other_base(url: str, key: str) -> str | None:
    """The address of the API that was meant, if one answers and the given one does not."""
    for other in _nearby(url):
        try:
            reply = await _exchange(f"{other}/models", key)
            if reply.models is None and reply.code != _WRONG_KEY:
                continue
            # Without anything to complete: it is refused, and nothing is billed.
            chat = await _exchange(f"{url}/chat/completions", key, {})
        except _faults():
            continue
        if chat.status in (_NOT_THERE, _NO_SUCH_METHOD) or chat.json is None:
            return other
    return None


def _nearby(url: str) -> Iterator[str]:
    stem = _NOT_A_BASE.sub("", url)
    if stem != url:
        yield stem
    if not _VERSION.search(stem):
        yield f"{stem}/v1"


def _prove_key(
    url: str, endpoint: Endpoint, model: str, ledger: Ledger | None, tariff: Tariff
) -> None:
    """Have a single token written, where nothing else shows whether the key is good.

    What refuses the request for another reason has read the key, or says nothing of it.
    """
    request = Request(user_turn("Hi"), Sampling(max_tokens=1), seed=0)
    most = tariff.most([request])
    try:
        if ledger and not ledger.reserve(most):
            return
    except StoppedError:  # the run stops where it needs the money, if it does
        return
    length = endpoint.capabilities.max_tokens_name if endpoint.capabilities else "max_tokens"
    body = {"model": model, "messages": request.messages, length: 1}
    cost, counted = most, False
    try:
        address = f"{url.rstrip('/')}/chat/completions"
        reply = submit(_exchange(address, endpoint.key, body)).result()
        cost, counted = _cost_of(reply, request, tariff, most)
    except _faults():  # slow to load, for instance
        return
    finally:
        if ledger:
            ledger.settle(most, cost, counted)
    if reply.code == _WRONG_KEY:
        raise _refused_key(url, endpoint, reply)
    if reply.code in (_NO_MONEY, _FORBIDDEN, _NOT_THERE):
        raise TeacherError(
            f"{url} refuses a request to {model}: {_said(reply, endpoint)}",
            "Add credit to the account there."
            if reply.code == _NO_MONEY
            else f"Correct --endpoint, the name of the model or the key in {endpoint.key_env}.",
        )


def _cost_of(reply: Reply, request: Request, tariff: Tariff, most: Cost) -> tuple[Cost, bool]:
    """(what a reply cost, whether that was counted and not bounded)."""
    if reply.code != _OK:
        return Cost(), True
    completion = ChatCompletion(is_seeded=False)
    try:
        completion.add_whole(reply.body.encode())
    except (ServerFault, ValueError):  # no completion, which may have been billed
        return most, False
    return tariff.of([request], completion.responses(1, None, 0.0))


def _refused_key(url: str, endpoint: Endpoint, reply: Reply) -> TeacherError:
    return TeacherError(
        f"{url} refuses the key in {endpoint.key_env} "
        f"({reply.code}){'' if endpoint.key else ', which is not set'}",
        f"Set {endpoint.key_env} to a valid key, or name another variable with "
        "endpoint.api_key_env.",
    )


def _said(reply: Reply, endpoint: Endpoint) -> str:
    error = reply.json
    said = reply.body if error is None else message_of(error)
    return f"HTTP {reply.code}: {Redactor(endpoint.key)(said)}"


async def _exchange(url: str, key: str, body: dict[str, Any] | None = None) -> Reply:
    """Get an address, or post a body to it; a redirect to another host does not get the key."""
    from aiohttp import ClientError, ClientSession, ClientTimeout

    headers = {"User-Agent": "heavydistill"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    async with (
        ClientSession(timeout=ClientTimeout(total=_TIMEOUT_S), headers=headers) as session,
        session.request(
            "GET" if body is None else "POST", url, json=body, proxy=proxy_of(url)
        ) as answer,
    ):
        try:
            body_read = await beginning(answer, _MOST_BYTES)
        except (ClientError, TimeoutError):
            body_read = b""  # it breaks off, and is no list of models
        return Reply(answer.status, body_read.decode(errors="replace"))


def _faults() -> tuple[type[Exception], ...]:
    """What is raised where nothing answers."""
    from aiohttp import ClientError

    return (ClientError, OSError, TimeoutError)
