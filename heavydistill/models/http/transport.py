"""HTTP transport: sends a request and reads the reply until it ends or times out.

Memory use is bounded: only the first 64 KiB of an error are read, and of a body or stream only as
many bytes as ``max_tokens`` can need (``ChatCompletion.most_bytes``). Proxies are read from the
environment; logins in ``~/.netrc`` are not used. A redirect to another host is refused, because it
would get the prompts and its answers would be believed. All requests of a process are sent from one
event loop in its own thread.

aiohttp is used directly, because the openai library takes much more processor time for a streamed
response (`benchmarks/throughput.py --stream`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from heavydistill.config.files import json_of
from heavydistill.errors import TeacherError
from heavydistill.models.http.completion import ChatCompletion
from heavydistill.models.http.failures import OverrunError, RefusedError
from heavydistill.models.http.replies import Redactor, message_of

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientTimeout, TraceConfig

_Result = TypeVar("_Result")

_CONNECT_S = 20.0
_LAST_BYTES_S = 2.0
_TIMER_S, _TIMER_SHARE = 1.0, 0.05
_REFUSED = 400
_ERROR_BYTES = 2**16
_starting = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def loop() -> asyncio.AbstractEventLoop:
    """The event loop for all requests of this process; a forked process has its own."""
    with _starting:
        if os.getpid() not in _loops:
            made = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=made.run_forever, daemon=True, name="requests").start()
        return _loops[os.getpid()]


os.register_at_fork(
    before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_starting.release
)


def submit(work: Coroutine[object, object, _Result]) -> Future[_Result]:
    """Schedule a coroutine in the event loop of ``loop``."""
    return asyncio.run_coroutine_threadsafe(work, loop())


class Transport:
    """The connections to all servers of a model; must be created in the event loop.

    The key is sent with every request; a server without keys ignores it. ``patience_s`` is the
    maximum number of seconds without text.
    """

    def __init__(self, key: str, patience_s: float) -> None:
        from aiohttp import ClientSession, ClientTimeout, TCPConnector

        self._patience_s = patience_s
        self._redact = Redactor(key)
        self._session = ClientSession(
            # No connection limit here: ``limits`` counts the slots of each server.
            connector=TCPConnector(limit=0),
            timeout=ClientTimeout(total=None, sock_connect=_CONNECT_S),
            headers={"Authorization": f"Bearer {key or 'none'}", "User-Agent": "heavydistill"},
            trace_configs=[_refusing_other_hosts(self._redact)],
        )
        self._proxies: dict[str, str | None] = {}

    async def ask(
        self,
        url: str,
        body: dict[str, object],
        completion: ChatCompletion,
        on_piece: Callable[[], None] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a body to the server at a base URL and read its reply into ``completion``.

        ``on_piece`` is called after pieces of a stream were read; ``headers`` are sent as well.

        Raises:
            TeacherError: The request is invalid, or is redirected to another host; it was not sent.
            RefusedError: The server refuses the request.
            OverrunError: The reply is far longer than ``max_tokens`` allows.
            TimeoutError: The server sent no text for too long.
            Exception: Other failures that ``failures.failure_of`` knows: no connection, a broken
                connection, a body that is not a completion.
        """
        try:
            async with (
                asyncio.timeout(self._patience_s) as timer,
                await self._sent(url, body, headers) as answer,
            ):
                if answer.status >= _REFUSED:
                    raise await refusal(answer, self._redact)
                if answer.content_type != "text/event-stream":
                    whole = await beginning(answer, completion.most_bytes + 1)
                    if len(whole) > completion.most_bytes:
                        raise completion.overrun(unread=len(whole))
                    completion.add_whole(whole)
                    return
                await self._read_stream(answer, completion, timer, on_piece)
        except OverrunError:
            if not completion.is_whole:
                raise
        except TimeoutError:
            if not completion.is_whole:
                raise TimeoutError(f"no text came for {self._patience_s:g} s") from None

    async def fetch(self, url: str, path: str, body: dict[str, object], most_bytes: int) -> Any:
        """Send a body to a path below a base URL and return the JSON of the reply.

        Raises as ``ask`` does; a reply that is longer than ``most_bytes``, or no JSON, is a
        ValueError.
        """
        try:
            async with (
                asyncio.timeout(self._patience_s),
                await self._sent(url, body, path=path) as answer,
            ):
                if answer.status >= _REFUSED:
                    raise await refusal(answer, self._redact)
                whole = await beginning(answer, most_bytes + 1)
        except TimeoutError:
            raise TimeoutError(f"no reply came in {self._patience_s:g} s") from None
        if len(whole) > most_bytes:
            raise ValueError(f"the reply has more than {most_bytes:,} bytes")
        return json_of(whole)

    async def _read_stream(
        self,
        answer: ClientResponse,
        completion: ChatCompletion,
        timer: asyncio.Timeout,
        on_piece: Callable[[], None] | None,
    ) -> None:
        """Read the pieces of a reply; ``timer`` ends ``_patience_s`` after the last text, or up
        to ``_TIMER_S`` later."""
        loop = asyncio.get_running_loop()
        async for read in answer.content.iter_any():
            has_ended = completion.is_whole
            has_text = completion.add_bytes(read)
            if on_piece and completion.pieces:
                on_piece()
            if has_text:
                completion.heard_at = loop.time()
                due = completion.heard_at + self._patience_s
                # Not for each piece, of which a stream has thousands.
                if (timer.when() or 0.0) < due:
                    timer.reschedule(due + min(_TIMER_S, _TIMER_SHARE * self._patience_s))
            # Read to the end, so that the connection can be reused.
            if completion.is_whole and not has_ended:
                timer.reschedule(loop.time() + _LAST_BYTES_S)

    async def _sent(
        self,
        url: str,
        body: dict[str, object],
        headers: Mapping[str, str] | None = None,
        path: str = "chat/completions",
    ) -> ClientResponse:
        """Send a request and return the response object as soon as the response begins."""
        from aiohttp import RedirectClientError

        if url not in self._proxies:
            self._proxies[url] = proxy_of(url)
        try:
            return await self._session.post(
                f"{url.rstrip('/')}/{path}",
                data=json.dumps(body).encode(),
                headers={"Content-Type": "application/json", **(headers or {})},
                proxy=self._proxies[url],
            )
        except RedirectClientError:  # a server fault, although it is a ValueError
            raise
        except (ValueError, TypeError) as error:  # network faults are ClientErrors
            raise TeacherError(
                f"Nothing can be sent to {url}: {self._redact(f'{type(error).__name__}: {error}')}",
                "Correct the address, the key in the environment, or extra_body in the teacher's "
                "profile.",
            ) from error

    async def close(self) -> None:
        await self._session.close()


async def refusal(answer: ClientResponse, redact: Redactor) -> RefusedError:
    """The error for a reply with an error status, with the server's message."""
    error = await beginning(answer, _ERROR_BYTES)
    try:
        said = message_of(json_of(error))
    except ValueError:  # not JSON
        said = error.decode(errors="replace")
    return RefusedError(answer.status, answer.headers, redact(said))


async def beginning(answer: ClientResponse, most: int) -> bytes:
    """Read a body, at most its first ``most`` bytes."""
    parts: list[bytes] = []
    left = most
    async for part in answer.content.iter_any():
        parts.append(part[:left])
        left -= len(parts[-1])
        if not left:
            break
    return b"".join(parts)


async def exchange(
    url: str, key: str, body: object = None, *, timeout_s: float, most_bytes: int
) -> tuple[int, object]:
    """Send GET, or POST with ``body``, on a connection of its own.

    Returns:
        The HTTP status and the JSON of the reply; None if it is no JSON, breaks off, or has more
        than ``most_bytes``.

    Raises:
        TeacherError: The proxy is invalid, or the server redirects to another host.
        ClientError, OSError, TimeoutError: No server answers.
        ValueError, TypeError: Nothing can be sent to this address or with this key.
    """
    from aiohttp import ClientError, ClientTimeout

    method, timeout = "GET" if body is None else "POST", ClientTimeout(total=timeout_s)
    async with requested(method, url, key, timeout, json=body) as answer:
        try:
            return answer.status, json_of(await beginning(answer, most_bytes))
        except (ClientError, TimeoutError, ValueError):
            return answer.status, None


@contextlib.asynccontextmanager
async def requested(
    method: str, url: str, key: str, timeout: ClientTimeout, **body: Any
) -> AsyncIterator[ClientResponse]:
    """Send a request on a connection of its own, and yield the response as soon as it begins.

    ``body`` is ``json`` or ``data``, as in aiohttp. Raises as ``exchange``.
    """
    from aiohttp import ClientSession

    headers = {"User-Agent": "heavydistill"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    traces = [_refusing_other_hosts(Redactor(key))]
    async with (
        ClientSession(timeout=timeout, headers=headers, trace_configs=traces) as session,
        session.request(method, url, proxy=proxy_of(url), **body) as answer,
    ):
        yield answer


def _refusing_other_hosts(redact: Redactor) -> TraceConfig:
    """Makes a session raise a TeacherError before it follows a redirect to another host."""
    from aiohttp import TraceConfig

    async def check(session: object, context: object, redirect: Any) -> None:
        try:
            place = redact(redirect.response.headers.get("Location", ""))
            host = urlsplit(urljoin(str(redirect.url), place)).hostname
        except ValueError:
            return  # the session refuses it
        if host and host != redirect.url.host:
            raise TeacherError(
                f"{redirect.url.origin()} redirects to another host, {host}, which "
                "would receive every prompt",
                "If that host is right, name its address with --endpoint instead.",
            )

    trace = TraceConfig()
    trace.on_request_redirect.append(check)
    return trace


def proxy_of(url: str) -> str | None:
    """The proxy that the environment sets for an address; None if there is none.

    Raises:
        TeacherError: The value is not an address; it may hold a password, so it is not shown.
    """
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    proxy = None if proxy_bypass(host) else getproxies().get(parts.scheme)
    try:
        is_valid = proxy is None or bool(urlsplit(proxy).hostname and (urlsplit(proxy).port or 1))
    except ValueError:
        is_valid = False
    if not is_valid:
        name = f"{parts.scheme}_proxy"
        raise TeacherError(
            f"The proxy in the environment variable {name} (or {name.upper()}) is not an address",
            f"Set it to http://HOST:PORT, or exclude this server with `export no_proxy={host}`.",
        )
    return proxy
