"""Heavy mode as tools of the Model Context Protocol, over standard input and output.

A call is a request to the model ``heavy``, which ``Service.ask`` answers as one over HTTP, in the
loop of ``transport``. What is printed meanwhile goes to standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from heavydistill.models.http.transport import submit
from heavydistill.serve.replies import KEEP_ALIVE_S
from heavydistill.serve.request import ApiError
from heavydistill.serve.service import Service

_MOST_KEPT = 256  # answers that nobody has fetched yet; the oldest are given up
_TOLD = ("path", "because", "vote", "recorded")  # of ``ServedAnswer.heavy``
Question = Annotated[str, Field(description="The whole question; nothing else is known of it.")]
Attempts = Annotated[int | None, Field(description="Number of attempts.")]


@contextlib.contextmanager
def serving_tools(service: Service) -> Iterator[Callable[[], bool]]:
    """Answer calls until the block ends; yields whether the client has gone."""
    tools = _Tools(service)
    client = submit(tools.serve())
    try:
        yield lambda: client.done() and client.result() is None
    finally:
        submit(tools.close()).result()


class _Thought:
    """A question on its way to its answer."""

    def __init__(self, service: Service, question: str, k: int | None) -> None:
        self.id = f"heavy-{uuid.uuid4().hex}"
        self.lines: list[str] = []
        self.news = asyncio.Event()
        body = {"model": "heavy", "messages": [{"role": "user", "content": question}]}
        data = json.dumps(body | {"heavy": {"k": k}}).encode()
        self.task = asyncio.ensure_future(service.ask(data, self.id, self._emit))
        self.task.add_done_callback(lambda _: self.news.set())

    def _emit(self, choice: int, reasoning: str, content: str) -> None:
        self.lines += [reasoning.strip()] * bool(reasoning)
        self.news.set()

    def result(self) -> dict[str, Any]:
        """The answer, or the progress so far. Raises ToolError if there is no answer."""
        if not self.task.done():
            return {"id": self.id, "status": "working", "progress": self.lines}
        try:
            answer = self.task.result()
        except ApiError as error:
            raise ToolError(str(error)) from None
        told = {name: answer.heavy[name] for name in _TOLD if name in answer.heavy}
        return {"id": self.id, "status": "done", "answer": answer.choices[0].text, **told}


class _Tools:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._thoughts: dict[str, _Thought] = {}

    async def serve(self) -> None:
        """Answer calls until the client has gone."""
        server: MCPServer[Any] = MCPServer("heavydistill", log_level="WARNING")
        for tool in (self.heavy_think, self.heavy_think_start, self.heavy_think_result):
            server.add_tool(tool)
        await server.run_stdio_async()

    async def close(self) -> None:
        """End all that is in progress."""
        for thought in self._thoughts.values():
            thought.task.cancel()
        tasks = [thought.task for thought in self._thoughts.values()]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def heavy_think(
        self, context: Context[Any, Any], question: Question, k: Attempts = None
    ) -> dict[str, Any]:
        """Answer a hard question by several independent attempts and a deliberation on them.

        Takes minutes; with a short limit for calls, use heavy_think_start.
        """
        thought, begun = self._begin(question, k), time.monotonic()
        try:
            while not thought.task.done():
                with contextlib.suppress(TimeoutError):  # what is sent keeps the call alive
                    await asyncio.wait_for(thought.news.wait(), KEEP_ALIVE_S)
                thought.news.clear()
                line = thought.lines[-1] if thought.lines else "Waiting for the models."
                await context.report_progress(time.monotonic() - begun, message=line)
            return thought.result()
        finally:
            thought.task.cancel()
            self._thoughts.pop(thought.id, None)

    async def heavy_think_start(self, question: Question, k: Attempts = None) -> dict[str, Any]:
        """Begin to answer a hard question as heavy_think; heavy_think_result has the answer."""
        return self._begin(question, k).result()

    async def heavy_think_result(self, id: str) -> dict[str, Any]:
        """Wait some seconds for the answer of heavy_think_start; call it again while it works."""
        if not (thought := self._thoughts.get(id)):
            raise ToolError(f"There is no answer {id}. Give the id of heavy_think_start.")
        await asyncio.wait([thought.task], timeout=KEEP_ALIVE_S)
        return thought.result()

    def _begin(self, question: str, k: int | None) -> _Thought:
        thought = _Thought(self._service, question, k)
        self._thoughts[thought.id] = thought
        if len(self._thoughts) > _MOST_KEPT:
            self._thoughts.pop(next(iter(self._thoughts))).task.cancel()
        return thought
