"""The service itself: its models, its answers, what it records and counts, and its life.

``app`` puts it at an address, and ``mcp`` offers it to an agent. Requests are answered in the event
loop of ``models.http.transport``, where the models' servers are asked too. Neither prompts nor
answers are in a log.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heavydistill.config.serve import ServeConfig
from heavydistill.serve.episode import ServedEpisode
from heavydistill.serve.figures import ABANDONED, FAILED, Figures
from heavydistill.serve.request import ApiError, ChatBody, parsed, read_request

if TYPE_CHECKING:
    from heavydistill.models.resolve import ResolvedRun
    from heavydistill.models.vllm.server import VllmServer
    from heavydistill.serve.episode import Emit, ServedAnswer
    from heavydistill.serve.pair import Pair
    from heavydistill.serve.record import RequestRecord
    from heavydistill.serve.request import Asked

_WATCH_S = 1.0
_log = logging.getLogger(__name__)


class Service:
    """A pair of models that answers; all but ``load``, ``wait`` and ``close`` is for the loop."""

    def __init__(self, config: ServeConfig) -> None:
        self.config = config
        self.record: RequestRecord | None = None
        self.figures = Figures(lambda: self.running)
        self.running = 0  # requests in progress
        self._pair: Pair | None = None
        self._server: VllmServer | None = None
        self._opened = contextlib.ExitStack()  # what ``close`` closes
        self._answering: set[asyncio.Task[ServedAnswer]] = set()

    @property
    def is_ready(self) -> bool:
        """Whether the models are loaded."""
        return self._pair is not None

    @property
    def server_log(self) -> Path:
        """Log of the server of ``endpoint.start_vllm``, beside the folder of recorded requests."""
        folder = Path(self.config.serve.out or "runs/served")
        return folder.with_name(f"{folder.name}.vllm.log")

    def load(self) -> None:
        """Load the models, or start their server; they answer from now on.

        Raises:
            TeacherError, ConfigError: As ``pair.resolved``, ``stopping.stopping_rule``,
                ``record.RequestRecord``, ``models.vllm.server.served`` and ``pair.open_pair``.
        """
        from heavydistill.models.contact import ServerProbe  # the site answers before all this
        from heavydistill.serve.pair import open_pair, resolved
        from heavydistill.serve.stopping import stopping_rule

        self.figures.export()
        run = resolved(self.config, ServerProbe())
        stopping = stopping_rule(run)
        if out := self.config.serve.out:
            from heavydistill.serve.record import RequestRecord

            assert isinstance(run.config, ServeConfig)
            self.record = RequestRecord(Path(out), run.config, self.figures.retries)
            self._opened.callback(self.record.close)
        pair = open_pair(self._with_server(run), stopping)
        self._opened.callback(pair.close)
        self._pair = pair

    def notes(self) -> Iterator[str]:
        """Yield what a user should know of the loaded models."""
        from heavydistill.problems.procedural import MICRO_MODELS

        assert self._pair
        thinker, deliberator = self._pair.thinker, self._pair.deliberator
        name = deliberator.model.profile.name
        if MICRO_MODELS.issuperset({thinker.model.profile.name, name}):
            yield (
                "The bundled models can only add 5 to 8 numbers of two digits and count legs, in "
                "the words of their problems, e.g.: State the final answer to the following "
                "arithmetic problem: 12 + 34 - 55 + 20 + 61 ="
            )
        elif thinker.engine is deliberator.engine:
            yield (
                f"{name} has both roles. A model that was not trained to deliberate may do so no "
                "better than it votes; `heavydistill evaluate` measures it"
            )

    def wait(self, has_ended: Callable[[], bool]) -> None:
        """Wait. Raises RunError once the server of ``endpoint.start_vllm`` has ended."""
        while not has_ended():
            time.sleep(_WATCH_S)
            if self._server and (failure := self._server.failure("Start the service again.")):
                raise failure

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

    @contextlib.contextmanager
    def admitted(self) -> Iterator[Pair]:
        """Count a request in progress; yields the models. Raises ApiError if it has to wait."""
        if self._pair is None:
            raise loading()
        if self.running >= self.config.serve.max_requests:
            message = f"{self.running} requests are in progress. Ask again later."
            raise ApiError(429, message, code="rate_limit_exceeded")
        self.running += 1
        try:
            yield self._pair
        finally:
            self.running -= 1

    async def ask(self, data: bytes, id: str, emit: Emit) -> ServedAnswer:
        """Answer the body of a chat completion request, once the models are loaded.

        Raises ApiError if there is no answer.
        """
        while self._pair is None:
            await asyncio.sleep(_WATCH_S)
        with self.admitted() as pair:
            asked = await asyncio.to_thread(lambda: read_request(parsed(data, ChatBody), pair))
            return await self.answer(pair, asked, id, emit)

    async def answer(self, pair: Pair, asked: Asked, id: str, emit: Emit) -> ServedAnswer:
        """The answer with this id, once it is recorded. Raises ApiError if there is none."""
        record, path = self.record, FAILED
        if asked.is_stream:
            emit = self.figures.timed(asked.model, emit)
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
            raise defect() from None
        finally:
            self.figures.ended(asked.model, path, episode.members)
        await self.figures.answered(asked, answer, episode.deliberations)
        if record:
            answer.heavy["recorded"] = await record.add(functools.partial(episode.row, id))
        return answer

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

    def stop(self) -> None:
        """End all answers in progress with an error; called in the loop."""
        for task in self._answering:
            task.cancel()


def defect() -> ApiError:
    """Log the exception that is being handled, and return what the client reads."""
    _log.exception("A request broke")
    return ApiError(500, "The service has a defect; its log says more.", code="defect")


def loading() -> ApiError:
    """What clients read before the models are loaded."""
    return ApiError(503, "The models are being loaded. Ask again soon.", code="loading")
