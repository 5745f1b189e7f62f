"""Writes the answer to a request as a chat completion, whole or as a stream.

A stream begins with the role at once. Reasoning is sent under the two names that clients read, and
the usage in a last chunk without choices. While nothing is said, a comment keeps the connection
alive; before an answer that is not streamed, a blank line does. Once that has been sent, the status
is 200, and an error is in the body.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from heavydistill.serve.episode import Emit, ServedAnswer
from heavydistill.serve.request import ApiError, Asked

KEEP_ALIVE_S = 10.0  # agents' clients give up after 20 s of silence, proxies after 60
_STREAM = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx would collect the pieces
}
Work = Callable[[str, Emit], Awaitable[ServedAnswer]]
"""Function that answers the request; called with the id of the answer, and with what takes text as
soon as it may be read."""


class Reply:
    """The reply to one request.

    Args:
        http: The HTTP request.
        asked: What is asked.
        work: Answers it; cancelled if the client goes.
    """

    def __init__(self, http: web.Request, asked: Asked, work: Work) -> None:
        self._http, self._asked = http, asked
        self._texts: dict[int, tuple[list[str], list[str]]] = {
            number: ([], []) for number in range(asked.choices)
        }
        self._news = asyncio.Event()
        id = f"chatcmpl-{uuid.uuid4().hex}"
        self._task = asyncio.ensure_future(work(id, self._emit))
        self._task.add_done_callback(lambda _: self._news.set())
        self._about = {"id": id, "created": int(time.time()), "model": asked.model}

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
        roles = {number: {"role": "assistant", "content": ""} for number in self._texts}
        await response.write(self._chunk(roles))
        while not self._task.done() or self._news.is_set():
            try:
                async with asyncio.timeout(KEEP_ALIVE_S):
                    await self._news.wait()
            except TimeoutError:
                await response.write(b": keep-alive\n\n")
            self._news.clear()
            if deltas := self._taken():
                await response.write(self._chunk(deltas))
        await response.write(self._end())
        await response.write_eof()
        return response

    def _taken(self) -> dict[int, dict[str, str]]:
        """What came since the last call, as a delta for each choice."""
        deltas = {}
        for number, (reasoning, content) in self._texts.items():
            if reasoning or content:
                deltas[number] = _message("".join(reasoning), "".join(content))
            reasoning.clear()
            content.clear()
        return deltas

    def _end(self) -> bytes:
        """The last chunks of a stream."""
        try:
            answer = self._task.result()
        except ApiError as error:
            return _event(error.body) + b"data: [DONE]\n\n"
        ends = {number: each.finish_reason for number, each in enumerate(answer.choices)}
        end = self._chunk({number: {} for number in ends}, ends, heavy=answer.heavy)
        if self._asked.wants_usage:
            end += self._chunk({}, usage=answer.usage)
        return end + b"data: [DONE]\n\n"

    def _chunk(
        self,
        deltas: dict[int, Any],
        ends: dict[int, Any] | None = None,
        **more: object,
    ) -> bytes:
        choices = [
            {"index": number, "delta": delta, "finish_reason": (ends or {}).get(number)}
            for number, delta in deltas.items()
        ]
        kind = {"object": "chat.completion.chunk"}
        return _event({**self._about, **kind, "choices": choices, **more})

    async def _whole(self) -> web.StreamResponse:
        response: web.StreamResponse | None = None
        while not (await asyncio.wait([self._task], timeout=KEEP_ALIVE_S))[0]:
            if response is None:
                response = web.StreamResponse(headers={"Content-Type": "application/json"})
                await response.prepare(self._http)
            await response.write(b"\n")
        try:
            body = self._completion(await self._task)
        except ApiError as error:
            if response is None:
                raise
            body = error.body
        if response is None:
            return web.json_response(body)
        await response.write(json.dumps(body).encode())
        await response.write_eof()
        return response

    def _completion(self, answer: ServedAnswer) -> dict[str, object]:
        choices = [
            {
                "index": number,
                "finish_reason": choice.finish_reason,
                "message": {
                    "role": "assistant",
                    **_message("".join(self._texts[number][0]), choice.text),
                    "content": choice.text,
                },
            }
            for number, choice in enumerate(answer.choices)
        ]
        more = {"choices": choices, "usage": answer.usage, "heavy": answer.heavy}
        return {**self._about, "object": "chat.completion", **more}


def _message(reasoning: str, content: str) -> dict[str, str]:
    """The texts of a message or delta that are not empty."""
    names = {"reasoning": reasoning, "reasoning_content": reasoning, "content": content}
    return {name: text for name, text in names.items() if text}


def _event(body: dict[str, object]) -> bytes:
    return f"data: {json.dumps(body)}\n\n".encode()
