"""The service: its routes, who may ask, how many may ask at once, and its life.

    POST /v1/chat/completions    an answer, streamed or not
    POST /v1/responses           the same in the form of the Responses API
    POST /v1/feedback            the verdict of a user on an answer
    GET  /v1/models              the models ``heavy``, ``vote`` and ``single``
    GET  /metrics                figures for Prometheus
    GET  /health                 {"status": "ok"}, or "loading" with HTTP 503; needs no key
    GET  /                       the page of ``serve.page``, if any; needs no key

The site listens before the models are loaded. Requests are answered in the event loop of
``models.http.transport``, where the models' servers are asked too. Every error is in the form of
OpenAI's API. The key is compared in constant time and is in no log; nor are prompts and answers.

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
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from heavydistill.config.files import text_in
from heavydistill.config.serve import ServeConfig, is_loopback
from heavydistill.errors import ConfigError
from heavydistill.models.http.transport import submit
from heavydistill.models.request import DEPTH_HEADER
from heavydistill.serve.completion import CompletionForm
from heavydistill.serve.episode import ServedEpisode
from heavydistill.serve.metrics import ABANDONED, FAILED, ServiceMetrics
from heavydistill.serve.replies import Form, Reply
from heavydistill.serve.request import MODELS, ApiError, ChatBody, parsed, read_request
from heavydistill.serve.tallies import Leaks, Retries, leaks_in

if TYPE_CHECKING:
    from heavydistill.models.resolve import ResolvedRun
    from heavydistill.models.vllm.server import VllmServer
    from heavydistill.schema import Generation
    from heavydistill.serve.episode import Emit, ServedAnswer
    from heavydistill.serve.pair import Pair
    from heavydistill.serve.record import RequestRecord
    from heavydistill.serve.request import Asked

_BODY_S = 30.0  # for the whole body of a request
_LAST_WORDS_S = 30.0  # after the deadline, for a client to read the rest of its answer
_SHUTDOWN_S = 5.0
_LONGEST_RETRY_S = 60.0
_WATCH_S = 1.0
_HEALTH, _PAGE = "/health", "/"
_PAGE_HEADERS = {"Content-Security-Policy": "frame-ancestors 'none'", "Cache-Control": "no-cache"}
_TRY_AGAIN = (429, 503)  # statuses after which the same request may work
_log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Service:
    """The site of a pair of models; all but ``serving`` runs in the loop of ``transport``.

    Raises:
        ConfigError: Other machines reach the address, and there is no key; or there is no page.
    """

    def __init__(self, config: ServeConfig) -> None:
        self._config, self._key = config, config.serve.key
        self._page = _page_of(config.serve.page) if config.serve.page else ""
        self._pair: Pair | None = None
        self._server: VllmServer | None = None
        self._opened = contextlib.ExitStack()  # what ``close`` closes
        self._record: RequestRecord | None = None
        self._metrics: ServiceMetrics | None = None
        self._retries, self._leaks = Retries(), Leaks()
        self._stops: Counter[int] = Counter()  # answers with k ``auto`` by ``stopped_at``, or 0
        self._running = 0
        self._answering: set[asyncio.Task[ServedAnswer]] = set()
        self._seconds = 1.0  # of the last request that was answered
        self._started = int(time.time())
        if not (self._key or config.serve.is_loopback):
            raise ConfigError(
                f"Other machines reach {config.serve.host}, and {config.serve.api_key_env} is not "
                "set",
                f"Set a key that clients must send (export {config.serve.api_key_env}=...), or "
                "leave --host out.",
            )

    @property
    def server_log(self) -> Path:
        """Log of the server of ``endpoint.start_vllm``, beside the folder of recorded requests."""
        folder = Path(self._config.serve.out or "runs/served")
        return folder.with_name(f"{folder.name}.vllm.log")

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

    def load(self) -> None:
        """Load the models, or start their server; they answer from now on.

        Raises:
            TeacherError, ConfigError: As ``pair.resolved``, ``stopping.stopping_rule``,
                ``record.RequestRecord``, ``models.vllm.server.served`` and ``pair.open_pair``.
        """
        from heavydistill.models.contact import ServerProbe  # the site answers before all this
        from heavydistill.serve.pair import open_pair, resolved
        from heavydistill.serve.stopping import stopping_rule

        with contextlib.suppress(ImportError):  # ``_figures`` says so
            self._metrics = ServiceMetrics(lambda: self._running)
        run = resolved(self._config, ServerProbe())
        stopping = stopping_rule(run)
        if out := self._config.serve.out:
            from heavydistill.serve.record import RequestRecord

            assert isinstance(run.config, ServeConfig)
            self._record = RequestRecord(Path(out), run.config, self._retries)
            self._opened.callback(self._record.close)
        pair = open_pair(self._with_server(run), stopping)
        self._opened.callback(pair.close)
        self._pair = pair

    def wait(self, has_ended: Callable[[], bool]) -> None:
        """Wait. Raises RunError once the server of ``endpoint.start_vllm`` has ended."""
        while not has_ended():
            time.sleep(_WATCH_S)
            if self._server and (failure := self._server.failure("Start the service again.")):
                raise failure

    def lines(self) -> Iterator[str]:
        """Yield sentences on the answers so far."""
        yield from self._retries.lines()
        yield from self._leaks.lines()
        if self._stops:
            ends = [f"{n:,} after {k} attempt(s)" for k, n in sorted(self._stops.items()) if k]
            stopped = f"stopped early: {', '.join(ends) or 'none'}"
            yield f"k auto: {self._stops.total():,} answered, {stopped}"

    def close(self) -> None:
        """Close models, record and server; requests in progress have ended."""
        self._opened.close()

    def _with_server(self, run: ResolvedRun) -> ResolvedRun:
        """The run with its models at the server that it starts, if any."""
        if not run.server:
            return run
        from heavydistill.models.contact import ServerProbe
        from heavydistill.models.vllm.server import served
        from heavydistill.run.generate import require_endpoints

        endpoint = run.deliberator.endpoint
        words = run.server.command(endpoint.context)
        self._server = self._opened.enter_context(served(words, self.server_log))
        place = {"start_vllm": False, "base_url": self._server.url}
        run = run.with_endpoint(endpoint.model_copy(update=place))
        require_endpoints(run, ServerProbe())
        return run

    async def _start(self) -> tuple[web.AppRunner, str]:
        limits = self._config.serve
        app = web.Application(
            client_max_size=limits.max_body_bytes, middlewares=[self._as_api_errors, self._admit]
        )
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/responses", self._respond)
        app.router.add_post("/v1/feedback", self._feedback)
        app.router.add_get("/v1/models", self._models)
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
            fault = ApiError(error.status, f"{request.method} {request.path}: {error.reason}.")
        except ConnectionError:  # the client has gone
            raise
        except Exception:
            fault = _defect()
        wait_s = math.ceil(min(_LONGEST_RETRY_S, max(1.0, self._seconds)))
        headers = {"Retry-After": str(wait_s)} if fault.status in _TRY_AGAIN else {}
        return web.json_response(fault.body, status=fault.status, headers=headers)

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
            raise ApiError(403, "The service answers requests to this machine's own address only.")
        if request.method == "POST" and request.content_type != "application/json":
            raise ApiError(415, "Send the header Content-Type: application/json.")
        if request.headers.get(DEPTH_HEADER, "0") != "0":
            message = "The request comes from another heavy service, or from this one: its models "
            raise ApiError(508, f"{message}must be plain ones.", code="recursion")
        return await handler(request)

    async def _health(self, http: web.Request) -> web.StreamResponse:
        is_ready = self._pair is not None
        body = {"status": "ok" if is_ready else "loading", "requests": self._running}
        return web.json_response(body, status=200 if is_ready else 503)

    async def _send_page(self, http: web.Request) -> web.StreamResponse:
        return web.Response(text=self._page, content_type="text/html", headers=_PAGE_HEADERS)

    async def _models(self, http: web.Request) -> web.StreamResponse:
        about = {"object": "model", "created": self._started, "owned_by": "heavydistill"}
        listed = [{"id": name, **about, "description": text} for name, text in MODELS.items()]
        return web.json_response({"object": "list", "data": listed})

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
        with self._admitted() as pair:
            begun = time.monotonic()
            # In a thread, because a server may count tokens.
            data = await _body_of(http)
            asked = await asyncio.to_thread(lambda: read_request(read(data), pair))
            work = functools.partial(self._answer, pair, asked)
            reply = Reply(http, asked, form(asked), work)
            try:
                async with asyncio.timeout(asked.deadline_s + _LAST_WORDS_S):
                    response = await reply.send()
            except TimeoutError:  # the client does not read what is sent
                raise ConnectionAbortedError from None
            self._seconds = time.monotonic() - begun
            return response

    @contextlib.contextmanager
    def _admitted(self) -> Iterator[Pair]:
        """Count a request in progress; yields the models. Raises ApiError if it has to wait."""
        if self._pair is None:
            raise ApiError(503, "The models are being loaded. Ask again soon.", code="loading")
        if self._running >= self._config.serve.max_requests:
            message = f"{self._running} requests are in progress. Ask again later."
            raise ApiError(429, message, code="rate_limit_exceeded")
        self._running += 1
        try:
            yield self._pair
        finally:
            self._running -= 1

    async def ask(self, data: bytes, id: str, emit: Emit) -> ServedAnswer:
        """Answer the body of a chat completion request, once the models are loaded.

        Raises ApiError if there is no answer.
        """
        while self._pair is None:
            await asyncio.sleep(_WATCH_S)
        with self._admitted() as pair:
            asked = await asyncio.to_thread(lambda: read_request(parsed(data, ChatBody), pair))
            return await self._answer(pair, asked, id, emit)

    async def _answer(self, pair: Pair, asked: Asked, id: str, emit: Emit) -> ServedAnswer:
        """The answer with this id, once it is recorded. Raises ApiError if there is none."""
        metrics, record = self._metrics, self._record
        path = FAILED
        if metrics and asked.is_stream:
            emit = metrics.timed(asked.model, emit)
        episode = ServedEpisode(pair, asked, emit)
        try:
            answer = await self._unless_stopped(episode.answer())
            path = answer.heavy["path"]
        except asyncio.CancelledError:
            path = ABANDONED
            raise
        except ApiError as error:
            if record:
                await record.add(functools.partial(episode.row, id, str(error)))
            raise
        except Exception:  # a stream that has begun ends with the error
            raise _defect() from None
        finally:
            if metrics:
                metrics.ended(asked.model, path, episode.members)
        again = None if asked.because else self._retries.note(asked.model, asked.problem.id)
        if metrics and again:
            metrics.asked_again(again)
        if asked.stopping:
            stopped_at = answer.heavy["stopped_at"] or 0
            self._stops[stopped_at] += 1
            if metrics:
                metrics.auto(stopped_at)
        await self._note_leaks(asked, episode.deliberations)
        if record:
            answer.heavy["recorded"] = await record.add(functools.partial(episode.row, id))
        return answer

    async def _note_leaks(self, asked: Asked, deliberations: Sequence[Generation]) -> None:
        if not deliberations:
            return
        # In a thread, because thinking may be long.
        spoke = await asyncio.to_thread(leaks_in, asked.problem, deliberations)
        self._leaks.note(len(deliberations), spoke)
        if self._metrics:
            self._metrics.deliberated(len(deliberations), spoke)

    async def _unless_stopped(self, answer: Coroutine[Any, Any, ServedAnswer]) -> ServedAnswer:
        """Await an answer; raises ApiError if the service stops meanwhile."""
        task = asyncio.ensure_future(answer)
        self._answering.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            own = asyncio.current_task()
            if own and own.cancelling():  # the client has gone
                raise
            message = "The service is being stopped. Ask again later."
            raise ApiError(503, message, code="stopped") from None
        finally:
            self._answering.discard(task)

    async def _stop(self, app: web.Application) -> None:
        for task in self._answering:
            task.cancel()

    async def _figures(self, http: web.Request) -> web.StreamResponse:
        if self._metrics:
            text, kind = self._metrics.page
            return web.Response(body=text, headers={"Content-Type": kind})
        if self._pair is None:
            raise ApiError(503, "The models are being loaded. Ask again soon.", code="loading")
        message = "prometheus-client is not installed: pip install 'heavydistill[serve]'."
        raise ApiError(501, message, code="not_installed")

    async def _feedback(self, http: web.Request) -> web.StreamResponse:
        from heavydistill.serve.feedback import Feedback

        if not self._record:
            message = "The service records nothing. Start it with --out FOLDER."
            raise ApiError(404, message, code="not_recorded")
        feedback = parsed(await _body_of(http), Feedback)
        count = await self._record.decide(feedback)
        about = {"id": feedback.id, "object": "feedback", "verdict": feedback.label}
        return web.json_response({**about, "responses": count})


def _page_of(file: str) -> str:
    try:
        return text_in(Path(file))
    except (OSError, ValueError) as error:
        fix = "Give an HTML file in UTF-8, or leave --page out."
        raise ConfigError(f"page: {file} cannot be read: {error}", fix) from error


def _defect() -> ApiError:
    """Log the exception that is being handled, and return what the client reads."""
    _log.exception("A request broke")
    return ApiError(500, "The service has a defect; its log says more.", code="defect")


async def _body_of(http: web.Request) -> bytes:
    try:
        async with asyncio.timeout(_BODY_S):
            return await http.read()
    except TimeoutError:
        raise ApiError(408, f"The body did not arrive in {_BODY_S:g} s.") from None
