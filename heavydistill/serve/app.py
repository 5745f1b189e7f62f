"""The site of a service: its routes, and who may ask.

    POST /v1/chat/completions    an answer, streamed or not
    POST /v1/responses           the same in the form of the Responses API
    POST /v1/feedback            the verdict of a user on an answer
    GET  /v1/models              the models ``heavy``, ``vote`` and ``single``; /NAME: one of them
    GET  /metrics                figures for Prometheus
    GET  /health                 {"status": "ok"}, or "loading" with HTTP 503; needs no key
    GET  /                       the page of ``serve.page``, if any; needs no key

The site listens before the models are loaded. Every error is in the form of OpenAI's API. The key
is compared in constant time and is in no log.

Without a key, only requests that name this machine as host are answered, and only bodies that are
declared as JSON, so that a web page in the user's browser cannot ask, unless it is that of
``serve.page``, which has the service's own origin. A request that comes from another service of
this kind is refused: a service that is its own model would never end.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hmac
import math
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from heavydistill.config.files import text_in
from heavydistill.config.serve import is_loopback
from heavydistill.errors import ConfigError
from heavydistill.models.http.transport import submit
from heavydistill.models.request import DEPTH_HEADER
from heavydistill.serve.completion import CompletionForm
from heavydistill.serve.replies import Form, Reply
from heavydistill.serve.request import (
    MODELS,
    ApiError,
    ChatBody,
    parsed,
    read_request,
    require_model,
)
from heavydistill.serve.service import Service, defect, loading

if TYPE_CHECKING:
    from heavydistill.serve.request import Asked

_BODY_S = 30.0  # for the whole body of a request
_LAST_WORDS_S = 30.0  # after the deadline, for a client to read the rest of its answer
_SHUTDOWN_S = 5.0
_LONGEST_RETRY_S = 60.0
_HEALTH, _PAGE = "/health", "/"
_PAGE_HEADERS = {"Content-Security-Policy": "frame-ancestors 'none'", "Cache-Control": "no-cache"}
_TRY_AGAIN = (429, 503)  # statuses after which the same request may work
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Site:
    """Puts a service at an address; all but ``listening`` runs in the loop of ``transport``.

    Raises:
        ConfigError: Other machines reach the address, and there is no key; or there is no page.
    """

    def __init__(self, service: Service) -> None:
        self._service, self._limits = service, service.config.serve
        self._key = self._limits.key
        self._page = _page_of(self._limits.page) if self._limits.page else ""
        self._seconds = 1.0  # of the last request that was answered
        self._started = int(time.time())
        if not (self._key or self._limits.is_loopback):
            variable = self._limits.api_key_env
            raise ConfigError(
                f"Other machines reach {self._limits.host}, and {variable} is not set",
                f"Set a key that clients must send (export {variable}=...), or leave --host out.",
            )

    @contextlib.contextmanager
    def listening(self) -> Iterator[str]:
        """Answer requests until the block ends; yields the base address.

        Raises ConfigError if the address cannot be listened at.
        """
        runner, address = submit(self._start()).result()
        try:
            yield address
        finally:
            submit(runner.cleanup()).result()

    async def _start(self) -> tuple[web.AppRunner, str]:
        limits = self._limits
        app = web.Application(
            client_max_size=limits.max_body_bytes, middlewares=[self._as_api_errors, self._admit]
        )
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/responses", self._respond)
        app.router.add_post("/v1/feedback", self._feedback)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/v1/models/{name}", self._model)
        app.router.add_get("/metrics", self._figures)
        app.router.add_get(_HEALTH, self._health)
        if self._page:
            app.router.add_get(_PAGE, self._send_page)
        app.on_shutdown.append(self._stop)
        runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=_SHUTDOWN_S
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, limits.host, limits.port).start()
        except OSError as error:
            await runner.cleanup()
            number = error.errno or 0
            why = os.strerror(number) if number > 0 else error.strerror
            raise ConfigError(
                f"{limits.host}:{limits.port} cannot be listened at: {why}",
                "Give another --port, or end the program that uses it.",
            ) from None
        host, port = runner.addresses[0][:2]
        return runner, f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"

    @web.middleware
    async def _as_api_errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer with every error in the form of OpenAI's API."""
        try:
            return await handler(request)
        except ApiError as error:
            fault = error
        except web.HTTPException as error:
            fault = self._as_api_error(request, error)
        except ConnectionError:  # the client has gone
            raise
        except Exception:
            fault = defect()
        wait_s = math.ceil(min(_LONGEST_RETRY_S, max(1.0, self._seconds)))
        headers = {"Retry-After": str(wait_s)} if fault.status in _TRY_AGAIN else {}
        return web.json_response(fault.body, status=fault.status, headers=headers)

    def _as_api_error(self, request: web.Request, error: web.HTTPException) -> ApiError:
        """The error of a request that no handler has answered."""
        what = f"{request.method} {request.path}: {error.reason}."
        fix = ""
        if error.status in (404, 405):
            fix = " Send POST /v1/chat/completions or /v1/responses; the base URL ends with /v1."
        elif error.status == 413:
            fix = f" Send at most {self._limits.max_body_bytes:,} bytes (serve.max_body_bytes)."
        return ApiError(error.status, what + fix)

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse whoever may not ask."""
        if request.path in (_HEALTH, _PAGE):
            return await handler(request)
        if self._key:
            scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
            given = sent.strip().encode("utf-8", "replace") if scheme.lower() == "bearer" else b""
            if not hmac.compare_digest(given, self._key.encode()):
                message = "The key is missing or wrong. Send Authorization: Bearer KEY."
                raise ApiError(401, message, code="invalid_api_key")
        elif not is_loopback(request.url.host or ""):
            message = (
                f"{request.url.host} is not this machine's own address, at which alone the service "
                f"answers without a key. Ask 127.0.0.1, or set {self._limits.api_key_env}."
            )
            raise ApiError(403, message)
        if request.method == "POST" and request.content_type != "application/json":
            raise ApiError(415, "Send the header Content-Type: application/json.")
        if request.headers.get(DEPTH_HEADER, "0") != "0":
            message = "The request comes from another heavy service, or from this one: its models "
            raise ApiError(508, f"{message}must be plain ones.", code="recursion")
        return await handler(request)

    async def _health(self, http: web.Request) -> web.StreamResponse:
        is_ready = self._service.is_ready
        body = {"status": "ok" if is_ready else "loading", "requests": self._service.running}
        return web.json_response(body, status=200 if is_ready else 503)

    async def _send_page(self, http: web.Request) -> web.StreamResponse:
        return web.Response(text=self._page, content_type="text/html", headers=_PAGE_HEADERS)

    async def _models(self, http: web.Request) -> web.StreamResponse:
        return web.json_response({"object": "list", "data": list(map(self._about, MODELS))})

    async def _model(self, http: web.Request) -> web.StreamResponse:
        require_model(name := http.match_info["name"])
        return web.json_response(self._about(name))

    def _about(self, model: str) -> dict[str, object]:
        about = {"object": "model", "created": self._started, "owned_by": "heavydistill"}
        return {"id": model, **about, "description": MODELS[model]}

    async def _complete(self, http: web.Request) -> web.StreamResponse:
        return await self._reply(http, lambda data: parsed(data, ChatBody), CompletionForm)

    async def _respond(self, http: web.Request) -> web.StreamResponse:
        from heavydistill.serve.responses import (
            ResponseForm,
            as_of_responses,
            read_response_request,
        )

        try:
            return await self._reply(http, read_response_request, ResponseForm)
        except ApiError as error:
            raise as_of_responses(error) from None

    async def _reply(
        self,
        http: web.Request,
        read: Callable[[bytes], ChatBody],
        form: Callable[[Asked], Form],
    ) -> web.StreamResponse:
        with self._service.admitted() as pair:
            begun = time.monotonic()
            # In a thread, because a server may count tokens.
            data = await _body_of(http)
            asked = await asyncio.to_thread(lambda: read_request(read(data), pair))
            work = functools.partial(self._service.answer, pair, asked)
            reply = Reply(http, asked, form(asked), work)
            try:
                async with asyncio.timeout(asked.deadline_s + _LAST_WORDS_S):
                    response = await reply.send()
            except TimeoutError:  # the client does not read what is sent
                raise ConnectionAbortedError from None
            self._seconds = time.monotonic() - begun
            return response

    async def _stop(self, app: web.Application) -> None:
        self._service.stop()

    async def _figures(self, http: web.Request) -> web.StreamResponse:
        if page := self._service.figures.page:
            text, kind = page
            return web.Response(body=text, headers={"Content-Type": kind})
        if not self._service.is_ready:
            raise loading()
        message = "prometheus-client is not installed: pip install 'heavydistill[serve]'."
        raise ApiError(501, message, code="not_installed")

    async def _feedback(self, http: web.Request) -> web.StreamResponse:
        from heavydistill.serve.feedback import Feedback

        record = self._service.record
        if not record:
            message = "The service records nothing. Start it with --out FOLDER."
            raise ApiError(404, message, code="not_recorded")
        feedback = parsed(await _body_of(http), Feedback)
        count = await record.decide(feedback)
        about = {"id": feedback.id, "object": "feedback", "verdict": feedback.label}
        return web.json_response({**about, "responses": count})


def _page_of(file: str) -> str:
    try:
        return text_in(Path(file))
    except (OSError, ValueError) as error:
        fix = "Give an HTML file in UTF-8, or leave --page out."
        raise ConfigError(f"page: {file} cannot be read: {error}", fix) from error


async def _body_of(http: web.Request) -> bytes:
    try:
        async with asyncio.timeout(_BODY_S):
            return await http.read()
    except TimeoutError:
        raise ApiError(408, f"The body did not arrive in {_BODY_S:g} s.") from None
