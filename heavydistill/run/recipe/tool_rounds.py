"""The step that samples trajectories whose thinker runs code; see ``heavy.tools``.

Each trajectory has a thread that moves its asks and answers, so that no trajectory waits for
another. It has an interpreter from its first cell on that is not in the journal; if the machine has
no memory for one more, the trajectory waits until another one has ended.

Responses and results of cells are journaled before they are used. The key of a result is that of
the request whose response called it, with the place of the cell. So a run that was killed goes on
at the round in which it was, and a replay executes nothing. A new interpreter first runs the
earlier cells of its trajectory again; if one of them prints something else than it did, the result
of the next cell has the error ``nondeterministic``.

distilabel inspects the annotations of ``process`` as objects, so they are not postponed here.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

from pydantic import PrivateAttr

from heavydistill.config.run import PythonTool, Sandboxing
from heavydistill.errors import HeavydistillError
from heavydistill.heavy.episode import Episode, Rules, SampleAsk, VerdictAsk
from heavydistill.heavy.prompts import Prompt, on_tools
from heavydistill.heavy.pruning import defuse
from heavydistill.heavy.tools import (
    CellAsk,
    Fields,
    Tooling,
    messages_of,
    parameters_of,
)
from heavydistill.models.request import (
    INTERRUPTED,
    Request,
    Response,
    after_system,
    conversation,
    fields_of,
    sample_seed,
)
from heavydistill.models.tokenizer import TEMPLATE_TOKENS
from heavydistill.run.recipe.distilabel import StepInput
from heavydistill.run.recipe.steps import Row, advance, episode_of
from heavydistill.run.recipe.tasks import FROM_JOURNAL, SampleTrajectories
from heavydistill.sandbox.session import Session, SessionLimits, open_session
from heavydistill.schema import Turn, to_row

_MOST_AT_ONCE = 512  # trajectories
_COLLECT_S = 0.005
_GONE = ("timeout", "closed")  # errors after which an interpreter has no state


class SampleWithTools(SampleTrajectories):
    """Samples trajectories whose thinker may run code."""

    tool: PythonTool  # with ``calls``
    sandboxing: Sandboxing = Sandboxing()
    context: int  # maximum tokens of a prompt and its response

    _threads: ThreadPoolExecutor | None = PrivateAttr(default=None)
    _answer: Callable[[Request], Response] = PrivateAttr()
    _lock: Any = PrivateAttr()

    def load(self) -> None:
        super().load()
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(_MOST_AT_ONCE, "trajectory")
        self._answer = self.llm.answer
        if self.llm.in_process:
            self._answer = _Together(self.llm.answer_all).answer

    def unload(self) -> None:
        if self._threads:
            self._threads.shutdown(wait=False, cancel_futures=True)
        super().unload()

    def begun(self, row: Row) -> tuple[Episode, list[SampleAsk]]:
        """Return the episode of a problem, which asks for trajectories."""
        tooling = Tooling(self.tool, self.llm.sampling.max_tokens, self.context - TEMPLATE_TOKENS)
        rules = Rules(k=int(self.num_generations), tooling=tooling)
        episode = episode_of(row, rules, thinker=self._prompt(row))
        return episode, [ask for ask in episode.asks() if isinstance(ask, SampleAsk)]

    def process(self, inputs: StepInput) -> Iterator[list[Row]]:
        """Yield the rows with their pools; trajectories of all rows run at once."""
        if self._threads is None:
            raise RuntimeError("load() was not called")
        threads, step = self._threads, str(self.name)
        played: dict[int, tuple[Episode, list[Future[bool]]]] = {}

        def begin(row: Row) -> Row:
            episode, asks = self.begun(row)
            played[id(row)] = episode, [threads.submit(self._play, episode, ask) for ask in asks]
            return {}

        def finish(row: Row) -> Row:
            episode, futures = played[id(row)]
            new = sum(future.result() for future in futures)
            pool = list(map(to_row, episode.pool))
            version = self._prompt(row).version
            return {
                "pool": pool,
                "thinker_prompt_version": version,
                FROM_JOURNAL: len(pool) - new,
            }

        advance(inputs, step, begin)
        everything = [future for _, futures in played.values() for future in futures]
        wait(everything)
        for future in everything:  # the run cannot continue, e.g. the budget is used up
            if isinstance(error := future.exception(), HeavydistillError):
                raise error
        inputs[:] = [row for row in inputs if not _is_broken_off(played.get(id(row)))]
        yield advance(inputs, step, finish)

    def _prompt(self, row: Row) -> Prompt:
        prompt = super()._prompt(row)
        return on_tools(prompt, "fence") if self.tool.calls == "fence" else prompt

    def _play(self, episode: Episode, ask: SampleAsk | CellAsk | None) -> bool:
        """Play a trajectory to its end; returns whether a model was asked."""
        told: list[Response] = []
        request = None
        interpreter = _Interpreter(self.tool, self.sandboxing)
        try:
            while ask:
                if isinstance(ask, CellAsk):
                    assert request
                    answer: Turn | Fields = self._run_cell(ask, request, interpreter)
                else:
                    request = self._request(episode, ask)
                    told.append(response := self._answer(request))
                    answer = fields_of(self.llm.model_name, request, response)
                with self._lock:
                    episode.tell(ask, answer)
                    ask = _next(episode, ask.index)
        finally:
            interpreter.close()
        new = [response for response in told if not response.from_journal]
        if new and request:
            tokens = sum(max(0, response.completion_tokens) for response in new)
            self.llm.count([(request, replace(new[-1], completion_tokens=tokens))])
        return bool(new)

    def _request(self, episode: Episode, ask: SampleAsk) -> Request:
        """The request for the next response of a trajectory."""
        llm = self.llm
        first = conversation(ask.prompt, episode.problem.history)
        first = after_system(llm.system, first)
        # The ids of calls are random, so the seed does not depend on the turns.
        place = (len(ask.turns),) if ask.turns else ()
        sampling = llm.sampling
        if ask.max_tokens:
            sampling = sampling.model_copy(update={"max_tokens": ask.max_tokens})
        return Request(
            [*first, *messages_of(ask.turns, self.tool.calls)],
            sampling,
            sample_seed(llm.seed, llm.model_name, first, ask.index, *place),
            ask.index,
            llm.stage,
            more=parameters_of(self.tool),
        )

    def _run_cell(
        self, ask: CellAsk, request: Request, interpreter: "_Interpreter"
    ) -> Turn | Fields:
        """The result of a cell, from the journal or the interpreter; in a replay without a record,
        the fields of a failed sample."""
        recorded = self.llm.recorded(
            request, f"cell {ask.number}", lambda: interpreter.run(ask.code)
        )
        if recorded.failure:  # a replay without the record
            return fields_of(self.llm.model_name, request, recorded)
        result = json.loads(recorded.answer_text)
        interpreter.note(ask.code, result["output"], result["error"], recorded.from_journal)
        return Turn(
            role="tool",
            text=defuse(result["output"], ())[0].rstrip(),
            result_of=ask.call,
            seconds=recorded.latency_s,
            error=result["error"],
        )


class _Interpreter:
    """The interpreter of a trajectory, started with its first cell that is not in the journal."""

    def __init__(self, tool: PythonTool, sandboxing: Sandboxing) -> None:
        self._limits, self._sandboxing = SessionLimits.of(tool, sandboxing), sandboxing
        self._session: Session | None = None
        self._state: list[tuple[str, str]] = []  # cells that made its state, with their outputs

    def run(self, code: str) -> Response:
        """Run a cell; the answer text is JSON with ``output`` and ``error``."""
        differs = False
        if self._session is None:
            self._session = open_session(self._limits, self._sandboxing, waits=True)
            for earlier, output in self._state:
                differs |= self._session.run(earlier).output != output
        cell = self._session.run(code)
        result = {"output": cell.output, "error": "nondeterministic" if differs else cell.error}
        text = json.dumps(result, ensure_ascii=False)
        return Response(answer_text=text, finish_reason="stop", latency_s=cell.seconds)

    def note(self, code: str, output: str, error: str | None, from_journal: bool) -> None:
        """Note a cell that was run, or whose result is in the journal."""
        if from_journal:  # a session that is open has not run it
            self.close()
        self._state = [] if error in _GONE else [*self._state, (code, output)]

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None


class _Together:
    """Answers the requests of several threads together: those that came while others were being
    answered are the next batch."""

    def __init__(self, answer_all: Callable[[list[Request]], list[Response]]) -> None:
        self._answer_all = answer_all
        self._waiting: list[tuple[Request, Future[Response]]] = []
        self._lock, self._model = threading.Lock(), threading.Lock()

    def answer(self, request: Request) -> Response:
        mine: Future[Response] = Future()
        with self._lock:
            self._waiting.append((request, mine))
        with self._model:
            if not mine.done():
                self._write_batch()
        return mine.result()

    def _write_batch(self) -> None:
        time.sleep(_COLLECT_S)
        with self._lock:
            batch, self._waiting = self._waiting, []
        try:
            responses = self._answer_all([request for request, _ in batch])
        except BaseException as error:
            for _, future in batch:
                future.set_exception(error)
            return
        for (_, future), response in zip(batch, responses, strict=True):
            future.set_result(response)


def _next(episode: Episode, index: int) -> SampleAsk | CellAsk | None:
    """The next ask of a trajectory; None at its end."""
    new = [ask for ask in episode.asks() if not isinstance(ask, VerdictAsk)]
    return next((ask for ask in new if ask.index == index), None)


def _is_broken_off(played: tuple[Episode, list[Future[bool]]] | None) -> bool:
    """Whether the end of the run interrupted a trajectory."""
    pool = played[0].pool if played else []
    return any(trajectory.failure == INTERRUPTED.failure for trajectory in pool)
