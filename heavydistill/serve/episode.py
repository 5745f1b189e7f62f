"""Executes an episode for one request, on asyncio: quorum, grace, deadline, fallbacks.

The attempts are asked for at once; with k ``auto``, first those that are enough if they agree, and
the others if they do not. When ``min_k`` of them are usable, the others are awaited for a grace and
then given up; when the deadline has passed, all are. The deliberator reads what came. If it fails
before its first word, the most frequent answer takes its place, and if no two attempts agree, the
first attempt; but nothing does for a request that only a deliberation can honour, e.g. with tools.
``ServedAnswer.heavy`` says which it was and why, with the fate of every call. In a
stream, a deliberation that breaks off after its first word is an error, because what a client has
read cannot be taken back.

If the task is cancelled, so are all calls to the models.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from heavydistill.errors import BudgetError
from heavydistill.heavy.episode import Episode, Rules, SampleAsk, VerdictAsk
from heavydistill.models.request import (
    THINK,
    Request,
    Response,
    after_system,
    conversation,
    deliberate_stage,
    fields_of,
    samples,
)
from heavydistill.models.thinking import Listen
from heavydistill.schema import (
    FAILED,
    SERVED,
    Failure,
    FinishReason,
    Generation,
    ToolCall,
    Trace,
)
from heavydistill.serve.choice import PATHS, Path, fallback_in, is_answer, usable, vote_in
from heavydistill.serve.request import ApiError, Asked

if TYPE_CHECKING:
    from heavydistill.serve.pair import Pair, ServedModel

Emit = Callable[[int, str, str], None]
"""Called with the number of a choice and its new text: (choice, reasoning, content)."""

_LONGEST_SHOWN = 80  # characters of an answer in a line of the progress
_THINKING_SHARE = 0.5  # of the deadline, for attempts beyond ``min_k``
_FIRST_SHARE = 0.25  # of the deadline, for attempts that are asked for before the others
# HTTP status of the answer if all attempts failed for this reason.
_STATUS: dict[Failure | None, int] = {"timeout": 504, "overloaded": 503, "unreachable": 503}


@dataclass(frozen=True, slots=True)
class ServedChoice:
    """One answer to the request."""

    text: str
    finish_reason: FinishReason | Literal["tool_calls"]
    path: Path
    calls: list[ToolCall] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ServedAnswer:
    """The answer to a request, and how it came about."""

    choices: list[ServedChoice]
    usage: dict[str, Any]
    heavy: dict[str, Any]


class ServedEpisode:
    """One request on its way to its answer.

    Args:
        pair: The models.
        asked: The request.
        emit: Called with text as soon as a client may read it.
    """

    def __init__(self, pair: Pair, asked: Asked, emit: Emit) -> None:
        self._pair, self._asked, self._emit = pair, asked, emit
        self._loop = asyncio.get_running_loop()
        self._begun_at = self._loop.time()
        self._ends_at = self._begun_at + asked.deadline_s
        self._quorum_at: float | None = None
        self._rounds = pair.config.deliberate.rounds if asked.d else 0
        self._because = asked.because  # why the path is not that of the model
        self._spoke: set[int] = set()  # choices of which content was streamed
        cache = pair.config.cache.model_copy(update={"budget_tokens": asked.budget_tokens})
        self._episode = Episode(
            asked.problem,
            Rules(
                k=asked.k,
                stop_at=asked.stopping.stop_at(asked.problem) if asked.stopping else 0,
                min_k=asked.min_k,
                d=asked.d,
                rounds=self._rounds,
                cache=cache,
                seed=asked.seed,
            ),
            thinker=pair.thinker_prompt,
            deliberator=pair.deliberator_prompt,
            reader=pair.reader_of_request,
        )

    async def answer(self) -> ServedAnswer:
        """The answer. Raises ApiError if there is none."""
        while asks := await self._samples():
            await self._ask(asks)
        choices = [self._choice(number) for number in range(self._asked.choices)]
        return ServedAnswer(choices, self._usage(), self._heavy(choices))

    def row(self, id: str, error: str = "") -> Trace:
        """The row of the request, whose problem has the id of the answer and no reference.

        ``error`` says why there is no answer. Verdicts are those of users, so there are none yet.
        """
        asked, known = self._asked, self._asked.problem
        kind = "auxiliary" if asked.because else asked.model
        source = f"{SERVED}:{kind}:{known.id}"
        trace = self._episode.trace
        return replace(
            trace,
            problem=replace(known, id=id, reference="", source=source),
            status=f"{FAILED}serve: {error}" if error else trace.status,
            stratum=None,
            outcome=None,
        )

    @property
    def members(self) -> list[dict[str, object]]:
        """All calls that have ended, as in ``ServedAnswer.heavy``."""
        shows = self._asked.expose != "none"
        return [_member(role, each, shows) for role, each in self._generations()]

    @property
    def deliberations(self) -> list[Generation]:
        """The deliberations that are choices of the answer."""
        own = (each for each in self._episode.deliberations if each.round == self._rounds)
        return [each for each in own if is_answer(each)]

    async def _samples(self) -> list[SampleAsk]:
        """The asks of the next stage; none if the episode ends, or no cache can be built."""
        builds_cache = len(self._episode.pool) > 0 and len(self._episode.caches) < self._rounds
        try:
            # In a thread, because a cache may be long, or a server may count its tokens.
            build = asyncio.to_thread(self._episode.asks) if builds_cache else None
            asks = await build if build else self._episode.asks()
        except BudgetError as error:
            self._because = f"the cache has no room: {error.what}"
            return []
        found = [ask for ask in asks if isinstance(ask, SampleAsk)]
        if found and found[0].round:
            self._say(f"Deliberating on {len(self._episode.caches[-1].items)} attempts.")
        elif found and found[0].index:
            self._say(f"Asking for {len(found)} more attempts.")
        return found

    async def _ask(self, asks: Sequence[SampleAsk]) -> None:
        """Ask for all these samples of a stage, and tell the episode what came of each."""
        requests, self._quorum_at = self._requests(asks), None
        tasks = {
            self._loop.create_task(self._sample(ask, request)): (ask, request)
            for ask, request in zip(asks, requests, strict=True)
        }
        waiting = set(tasks)
        try:
            while waiting:
                until = self._patience(asks)
                done, waiting = await asyncio.wait(
                    waiting,
                    timeout=max(0.0, until - self._loop.time()),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not done:
                    break
                for task in done:
                    await self._tell(*tasks[task], task.result())
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        for task in waiting:
            await self._tell(*tasks[task], self._given_up())

    def _requests(self, asks: Sequence[SampleAsk]) -> list[Request]:
        """The requests of a stage, as a run sends them for the same problem and seed."""
        role, asked, stage = self._role(asks[0].round), self._asked, asks[0].round
        messages = conversation(asks[0].prompt, asked.problem.history)
        requests = samples(
            after_system(self._pair.config.system, messages),
            asks[-1].index + 1,
            asked.deliberator if stage else asked.thinker,
            run_seed=asked.seed,
            model=role.model.profile.name,
            stage=deliberate_stage(stage) if stage else THINK,
        )
        if 0 < stage == self._rounds:
            requests = [replace(each, more=asked.more) for each in requests]
        return requests[asks[0].index :]

    def _role(self, round: int) -> ServedModel:
        return self._pair.deliberator if round else self._pair.thinker

    async def _sample(self, ask: SampleAsk, request: Request) -> Response:
        listen: Listen | None = None
        is_answer = ask.round == self._rounds and self._asked.model != "vote"
        if is_answer and self._asked.is_stream:

            def listen(thinking: str, text: str) -> None:
                self._pass_on(ask.index, thinking, text)

        return await self._role(ask.round).engine.answer(request, listen)

    def _pass_on(self, choice: int, thinking: str, text: str) -> None:
        if text:
            self._spoke.add(choice)
        shown = thinking if self._asked.expose != "none" else ""
        if shown or text:
            self._emit(choice, shown, text)

    def _patience(self, asks: Sequence[SampleAsk]) -> float:
        """Event loop time until which these samples of a stage are awaited."""
        asked, until = self._asked, self._ends_at
        if asks[0].round:
            return until
        if asks[-1].index + 1 < asked.k:
            until = self._begun_at + _FIRST_SHARE * asked.deadline_s
        elif asked.d and self._has_quorum:
            until = self._begun_at + _THINKING_SHARE * asked.deadline_s
        if asked.grace_s is None or self._quorum_at is None:
            return until
        return min(until, self._quorum_at + asked.grace_s)

    @property
    def _has_quorum(self) -> bool:
        return len(usable(self._episode.pool)) >= self._asked.min_k

    def _given_up(self) -> Response:
        """The response of a call that was cancelled here."""
        if self._loop.time() >= self._ends_at:
            failure: Failure = "timeout"
            why = f"The deadline of {self._asked.deadline_s:g} s passed."
        else:
            count = len(usable(self._episode.pool))
            failure, why = "interrupted", f"{count} attempts were usable before it."
        seconds = self._loop.time() - self._begun_at
        return Response(finish_reason="error", failure=failure, error=why, latency_s=seconds)

    async def _tell(self, ask: SampleAsk, request: Request, response: Response) -> None:
        """Tell the episode a sample and the answer that is read in it."""
        name = self._role(ask.round).model.profile.name
        self._episode.tell(ask, fields_of(name, request, response))
        for verdict in self._episode.asks():
            if isinstance(verdict, VerdictAsk):
                reading = await self._pair.reading(self._asked.problem, verdict.generation)
                self._episode.tell(verdict, reading)
        if ask.round == 0:
            # A failure brings no quorum, which the first attempts may have been before the others.
            if response.failure is None and self._has_quorum and self._quorum_at is None:
                self._quorum_at = self._loop.time()
            self._report(ask.index)

    def _report(self, index: int) -> None:
        """Say how an attempt ended, unless it is the answer itself."""
        attempt = next(each for each in self._episode.pool if each.index == index)
        name = f"Attempt {index + 1} of {self._asked.k}"
        if self._asked.model == "single":
            return
        if attempt.unusable_because:
            self._say(f"{name} failed: {attempt.failure or attempt.unusable_because}")
        elif self._asked.expose == "full":
            self._say(f"{name}:\n{attempt.answer_text.strip()}")
        else:
            answer = attempt.extracted or ""
            is_short = "\n" not in answer and len(answer) <= _LONGEST_SHOWN
            self._say(f"{name} finished{f': {answer}' if answer and is_short else ''}")

    def _say(self, line: str) -> None:
        if self._asked.expose != "none":
            self._emit(0, f"{line}\n", "")

    def _choice(self, number: int) -> ServedChoice:
        """The choice with this number: the deliberation, or what takes its place."""
        last: list[Generation] = [
            each for each in self._episode.deliberations if each.round == self._rounds
        ]
        if self._asked.model == "single":
            last = [*self._episode.pool]
        mine = last[number] if number < len(last) else None
        if mine and is_answer(mine):
            path: Path = "single" if self._asked.model == "single" else "deliberated"
            turn = mine.turns[-1]
            if not self._asked.is_stream:
                self._pass_on(number, turn.thinking, "")
            end = "tool_calls" if turn.calls else mine.finish_reason
            return ServedChoice(turn.text, end, path, turn.calls)
        if number in self._spoke and mine:
            raise self._error(f"The answer broke off: {_why(mine)}", [mine])
        if mine and self._asked.d:
            self._because = f"the deliberation failed: {_why(mine)}"
        elif self._asked.stopping and (stopped_at := self._episode.stopped_at):
            self._because = self._asked.stopping.because(stopped_at)
        elif self._asked.d and not self._because:
            count = len(usable(self._episode.pool))
            known = f"usable attempts: {count} of {self._asked.k}"
            self._because = f"{known}, and min_k is {self._asked.min_k}"
        if more := ", ".join(self._asked.more):
            message = f"Only a deliberation can honour {more}: {self._because}. Ask again."
            raise ApiError(502, message, code="no_deliberation", heavy=self._heavy([]))
        return self._fallback(number)

    def _fallback(self, number: int) -> ServedChoice:
        """The most frequent answer, or the first attempt if no two agree."""
        pool = self._episode.pool
        chosen, path = fallback_in(pool)
        if not chosen and any(each.finish_reason == "length" for each in pool):
            self._because = "no attempt reached its end within its tokens"
            return ServedChoice("", "length", "single")
        if not chosen:
            raise self._error(f"None of {len(pool)} attempts is usable", pool)
        if path == "single" and self._asked.model == "vote":
            self._because = "no two attempts agree"
        self._emit(number, "", chosen.answer_text)
        return ServedChoice(chosen.answer_text, "stop", path)

    def _error(self, what: str, failed: Sequence[Generation]) -> ApiError:
        """The error of a request without an answer; its status is that of the first failure."""
        kinds = [each.failure for each in failed]
        reasons = "; ".join(dict.fromkeys(_why(each) for each in failed))
        if set(kinds) <= {"too_long", "context_overflow"}:
            message = f"{what}: {reasons}. Shorten the conversation."
            code = "context_length_exceeded"
            return ApiError(400, message, "messages", code, self._heavy([]))
        status = next((_STATUS[kind] for kind in kinds if kind in _STATUS), 502)
        message = f"{what}: {reasons}. Ask again later, or look at the models' servers."
        return ApiError(status, message, code=str(kinds[0] or "unusable"), heavy=self._heavy([]))

    def _generations(self) -> list[tuple[str, Generation]]:
        """All calls with their role."""
        of_pool = [("thinker", each) for each in self._episode.pool]
        return [*of_pool, *(("deliberator", each) for each in self._episode.deliberations)]

    def _usage(self) -> dict[str, object]:
        """The tokens of all calls whose servers counted them."""
        calls = self._generations()
        prompt, completion, cached = (
            sum(max(0, getattr(each, name)) for _, each in calls)
            for name in ("prompt_tokens", "completion_tokens", "cached_tokens")
        )
        roles: Counter[str] = Counter()
        for role, each in calls:
            roles[f"{role}_tokens"] += max(0, each.completion_tokens)
        uncounted = sum(min(each.prompt_tokens, each.completion_tokens) < 0 for _, each in calls)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
            "heavy": {**roles, "calls": len(calls), "uncounted_calls": uncounted},
        }

    def _heavy(self, choices: Sequence[ServedChoice]) -> dict[str, object]:
        """How the answer came about."""
        asked, (answer, votes) = self._asked, vote_in(self._episode.pool)
        paths = [choice.path for choice in choices]
        return {
            "path": max(paths, key=PATHS.index, default=None),
            **({"paths": paths} if len(paths) > 1 else {}),
            **({"because": self._because} if self._because else {}),
            **{"model": asked.model, "k": asked.k, "d": asked.d, "min_k": asked.min_k},
            **({"stopped_at": self._episode.stopped_at} if asked.stopping else {}),
            **{"seed": asked.seed, "problem_id": asked.problem.id},
            "vote": {
                "answer": answer if asked.expose != "none" else None,
                "votes": votes,
                "of": len(usable(self._episode.pool)),
            }
            if votes > 1
            else "undecided",
            "members": self.members,
        }


def _why(generation: Generation) -> str:
    """Why a generation is no answer."""
    if generation.failure:
        return f"{generation.failure} ({generation.error})"
    return generation.unusable_because or "no answer"


def _member(role: str, generation: Generation, shows: bool) -> dict[str, object]:
    """What is told of one call."""
    names = ("index", "model", "finish_reason", "failure", "error")
    counts = ("prompt_tokens", "completion_tokens")
    known = {name: getattr(generation, name) for name in names}
    tokens = {name: None if (n := getattr(generation, name)) < 0 else n for name in counts}
    shown = {"answer": generation.extracted} if shows else {}
    return {"role": role, **known, **shown, **tokens, "seconds": round(generation.latency_s, 3)}
