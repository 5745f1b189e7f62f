"""Sends the answer to a request, whole or as a stream, in the form of the API that was asked.

A stream begins at once. While nothing is said, a comment keeps the connection alive; before an
answer that is not streamed, a blank line does. Once that has been sent, the status is 200, and an
error is in the body.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import web

from heavydistill.serve.episode import Emit, ServedAnswer
from heavydistill.serve.request import ApiError, Asked

KEEP_ALIVE_S = 10.0  # agents' clients give up after 20 s of silence, proxies after 60
_STREAM = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx would collect the pieces
}
Texts = dict[int, tuple[str, str]]
"""Maps the number of a choice to its (reasoning, content)."""
Work = Callable[[str, Emit], Awaitable[ServedAnswer]]
"""Function that answers the request; called with the id of the answer, and with what takes text as
soon as it may be read."""


class Form(Protocol):
    """Writes an answer as one of the APIs has it."""

    id: str
    """Id of the answer."""

    def whole(self, answer: ServedAnswer, texts: Texts) -> dict[str, object]:
        """The body of an answer that is not streamed; ``texts`` are what may be read of it."""

    def begin(self, choices: int) -> bytes:
        """The first events of a stream."""

    def news(self, texts: Texts) -> bytes:
        """The events for further text."""

    def end(self, answer: ServedAnswer) -> bytes:
        """The last events of a stream."""

    def failure(self, error: ApiError) -> bytes:
        """The last events of a stream without an answer."""


class Reply:
    """The reply to one request.

    Args:
        http: The HTTP request.
        asked: What is asked.
        form: Form of the answer.
        work: Answers it; cancelled if the client goes.
    """

    def __init__(self, http: web.Request, asked: Asked, form: Form, work: Work) -> None:
        self._http, self._asked, self._form = http, asked, form
        self._texts: dict[int, tuple[list[str], list[str]]] = {
            number: ([], []) for number in range(asked.choices)
        }
        self._news = asyncio.Event()
        self._task = asyncio.ensure_future(work(form.id, self._emit))
        self._task.add_done_callback(lambda _: self._news.set())

    async def send(self) -> web.StreamResponse:
        """Send the reply. Raises ApiError if there is no answer and nothing was sent yet."""
        try:
            return await (self._stream() if self._asked.is_stream else self._whole())
        finally:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _emit(self, choice: int, reasoning: str, content: str) -> None:
        for into, text in zip(self._texts[choice], (reasoning, content), strict=True):
            into.extend([text] * bool(text))
        self._news.set()

    async def _stream(self) -> web.StreamResponse:
        response = web.StreamResponse(headers=_STREAM)
        await response.prepare(self._http)
        await response.write(self._form.begin(self._asked.choices))
        while not self._task.done() or self._news.is_set():
            try:
                async with asyncio.timeout(KEEP_ALIVE_S):
                    await self._news.wait()
            except TimeoutError:
                await response.write(b": keep-alive\n\n")
            self._news.clear()
            if texts := self._taken():
                await response.write(self._form.news(texts))
        try:
            end = self._form.end(self._task.result())
        except ApiError as error:
            end = self._form.failure(error)
        await response.write(end)
        await response.write_eof()
        return response

    def _taken(self) -> Texts:
        """What came since the last call."""
        texts = {}
        for number, (reasoning, content) in self._texts.items():
            if reasoning or content:
                texts[number] = "".join(reasoning), "".join(content)
            reasoning.clear()
            content.clear()
        return texts

    async def _whole(self) -> web.StreamResponse:
        response: web.StreamResponse | None = None
        while not (await asyncio.wait([self._task], timeout=KEEP_ALIVE_S))[0]:
            if response is None:
                response = web.StreamResponse(headers={"Content-Type": "application/json"})
                await response.prepare(self._http)
            await response.write(b"\n")
        try:
            answer = await self._task
            texts = {
                number: ("".join(reasoning), answer.choices[number].text)
                for number, (reasoning, _) in self._texts.items()
            }
            body = self._form.whole(answer, texts)
        except ApiError as error:
            if response is None:
                raise
            body = error.body
        if response is None:
            return web.json_response(body)
        await response.write(json.dumps(body).encode())
        await response.write_eof()
        return response
