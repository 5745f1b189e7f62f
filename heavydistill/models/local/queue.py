"""The coroutine face of a model in this process: collects requests, and answers them in batches.

Requests that arrive within ``COLLECT_S`` of each other, or while a batch is being written, become
one batch, in a thread of its own. Text is passed on every few tokens (see ``decoding``), and a
request that nobody waits for any more is dropped from its batch.

Not covered: requests that join a batch which is being written. They wait for its end.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from heavydistill.models.local.engine import LocalEngine, refusal_of
from heavydistill.models.request import INTERRUPTED, Message, Request, Response, Sample
from heavydistill.models.thinking import Listen, LiveText

COLLECT_S = 0.005
_HALF_CHARACTER = "\ufffd"  # the end of a text whose last token holds a part of a character
_log = logging.getLogger("heavydistill.models")


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request and what becomes of it."""

    request: Request
    response: asyncio.Future[Response]
    live: LiveText
    passed_on: int = 0  # number of characters that were given to ``live``
    is_wanted: bool = field(default=True)


class LocalQueue:
    """Answers single requests with an engine, which it closes at its end."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, "local-model")
        self._waiting: list[_Waiting] = []
        self._writing: asyncio.Task[None] | None = None

    async def answer(self, request: Request, listen: Listen | None = None) -> Response:
        """The response to a request; see ``models.request.LiveEngine``."""
        loop = asyncio.get_running_loop()
        live = LiveText(self._engine.think_tags, listen, is_plain=not self._engine.opens_thinking)
        mine = _Waiting(request, loop.create_future(), live)
        self._waiting.append(mine)
        if self._writing is None or self._writing.done():
            self._writing = loop.create_task(self._write())
        try:
            response = await mine.response
        except asyncio.CancelledError:
            mine.is_wanted = False
            raise
        if response.failure is None:
            live.end(response.reasoning, response.answer_text)
        return response

    def refusal(self, messages: list[Message]) -> str:
        """Why the chat template does not take such a conversation; empty if it does."""
        return refusal_of(self._engine.tokenizer, messages)

    def close(self) -> None:
        """Stop writing and free the weights; requests in the queue fail."""
        self._engine.drain()
        self._thread.shutdown()
        self._engine.close()

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            await asyncio.sleep(COLLECT_S)
            batch = [each for each in self._waiting if each.is_wanted]
            self._waiting = []
            await loop.run_in_executor(self._thread, self._write_batch, batch, loop)

    def _write_batch(self, batch: list[_Waiting], loop: asyncio.AbstractEventLoop) -> None:
        """Answer a batch, in the thread of the model."""
        by_request = {id(each.request): each for each in batch}

        def keep(samples: list[Sample]) -> None:
            for request, response in samples:
                loop.call_soon_threadsafe(_settle, by_request[id(request)], response)

        def listen(index: int, text: str) -> bool:
            if (each := batch[index]).is_wanted and each.live.is_heard:
                loop.call_soon_threadsafe(_pass_on, each, text.rstrip(_HALF_CHARACTER))
            return each.is_wanted

        try:
            self._engine.generate([each.request for each in batch], keep, listen)
            left = INTERRUPTED
        except Exception as error:  # e.g. no memory: the next batch may be smaller
            _log.exception("The model in this process failed")
            said = f"{type(error).__name__}: {error}"
            left = Response(finish_reason="error", failure="server", error=said)
        for each in batch:
            loop.call_soon_threadsafe(_settle, each, left)


def _settle(waiting: _Waiting, response: Response) -> None:
    if not waiting.response.done():
        waiting.response.set_result(response)


def _pass_on(waiting: _Waiting, text: str) -> None:
    if waiting.is_wanted:
        waiting.live.add("", text[waiting.passed_on :])
        waiting.passed_on = max(waiting.passed_on, len(text))
