"""Engine for the OpenAI-compatible servers of one model; K samples are K requests.

Responses are streamed, so that a time-out measures silence and not the length of the thinking. A
failed request is repeated if that can help, on another server if there is one; if it still fails,
the response holds the error. If doctor found that a server honours ``n``, the samples of one prompt
are requested together. Samples missing from the reply are requested one by one; if the server
returns copies or refuses ``n``, all later samples are too. A reply that is far longer than
``max_tokens`` is cut off, charged to the account, and not repeated.

Providers cache long prompts, but only once they have read them. So of several samples of a long
prompt the first goes ahead, and the others follow at the first piece of its response, or after a
minute.

Before a request is sent, its maximum cost is reserved in the run's account. A run stops if the
budget does not cover another request, if no server answers or all requests are refused
(``circuit_breaker``), or if a model that is known to think returns no thinking. Responses to
requests in flight are then still awaited and saved. ``answer`` is for a service, which such errors
must not end: there they fail one request. Batches are in ``models.batch``.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TypeVar, cast

from heavydistill.config.models import Capabilities, Endpoint, Sampling
from heavydistill.errors import StoppedError, TeacherError
from heavydistill.models.http.circuit_breaker import CircuitBreaker
from heavydistill.models.http.client import close_client, open_client
from heavydistill.models.http.completion import LONGEST_CONTEXT, ChatCompletion, failed
from heavydistill.models.http.cut_prompts import CutPrompts
from heavydistill.models.http.failures import (
    REPEATABLE,
    OverrunError,
    RefusedError,
    ServerFault,
    failure_of,
    wrong_key,
)
from heavydistill.models.http.group_commit import GroupCommit
from heavydistill.models.http.limits import Server, back_off, refusal_wait
from heavydistill.models.http.probe import Evidence, ModelCheck
from heavydistill.models.http.replies import Redactor, retry_after
from heavydistill.models.http.transport import loop, submit
from heavydistill.models.ledger import Cost, Ledger, cost_of, most_cost
from heavydistill.models.profiles import Profile
from heavydistill.models.request import (
    DEPTH_HEADER,
    INTERRUPTED,
    Keep,
    Request,
    Response,
    discard,
    plain_question,
    texts_of,
)
from heavydistill.models.thinking import Listen, LiveText
from heavydistill.schema import Failure
from heavydistill.store.journal import prompt_id

_Result = TypeVar("_Result")

_WRONG_KEY = 401
# Failures of a request for several samples that may be due to the number of samples.
_DOUBTFUL: frozenset[Failure | None] = frozenset({"rejected", "malformed", "server", "cut_off"})
_MOST_SAID = 2000  # maximum characters of an error
_BUDGET_POLL_S = 0.5
_CACHED_BYTES = 4096  # about 1,024 tokens, from which on OpenAI and others cache a prompt
_LEAD_S = 60.0
_LONGEST_BACK_OFF_S = 30.0
_log = logging.getLogger("heavydistill.models")


class _DismissedError(Exception):
    """A request was still waiting to be sent when the engine was drained."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Result of one attempt to send a request."""

    responses: list[Response]  # One for each sample; fewer if the server left some out
    wait_s: float | None = None  # Pause in seconds that the server asks for, if any
    overrun: int = 0  # Maximum tokens of a reply that was cut off as too long


class OpenAIEngine:
    """Sends chat completion requests to a served model.

    ``close`` also closes ``ledger``, the account of the run. If the profile says ``thinks``, a
    response without thinking may be a failure. A server that failed may have been restarted: before
    its next response is used, a probe checks that it has the model that ``evidence`` describes.
    """

    def __init__(
        self,
        profile: Profile,
        endpoint: Endpoint,
        ledger: Ledger | None = None,
        evidence: Evidence | None = None,
    ) -> None:
        self.model = profile.model
        self.profile = profile
        self._endpoint = endpoint
        self._able = endpoint.capabilities or Capabilities()
        self._key = endpoint.key
        self._redact = Redactor(self._key)
        self._ledger = ledger
        self._n = self._able.n
        must_think = profile.thinks and endpoint.reasoning == "required"
        where = endpoint.base_url or ""
        self._breaker = CircuitBreaker(
            self.model, where, endpoint.timeout_s, must_think, profile.routing
        )
        self.is_drained = False
        self._queued: set[asyncio.Task[object]] = set()
        # Threads write to the journal and count tokens, so that other requests can continue.
        self._threads = ThreadPoolExecutor()
        self._cut_prompts = CutPrompts(profile, self._ask_at, self._threads)
        self._commit = GroupCommit(self._threads)
        self._in_flight: set[asyncio.Task[object]] = set()
        # Long prompts whose first request is under way, and whether its response has begun.
        self._begun: dict[str, asyncio.Event] = {}
        # Whether texts without tags are answers, for ``LiveText``; None until a response shows it.
        self._is_plain: bool | None = None
        self._model_check = ModelCheck(evidence, profile, endpoint)
        self._loop = loop()
        self._client = open_client(endpoint, self._key)
        self._servers, self._rates = self._client.servers, self._client.rates

    @property
    def revision(self) -> str:
        """The revision that ``served_revision`` returns."""
        return served_revision(self.profile, self._endpoint)

    def generate(self, requests: list[Request], keep: Keep = discard) -> list[Response]:
        """The responses to all requests, in order. Several threads may call it at once.

        Raises:
            StoppedError: The budget is spent or no server answers.
            TeacherError: The key or every request is refused, or the thinking is missing. Both
                errors are raised only after the requests in flight have been answered and saved.
        """
        answered = submit(self._generated(requests, keep))
        try:
            return answered.result()
        finally:
            answered.cancel()

    async def _generated(self, requests: list[Request], keep: Keep) -> list[Response]:
        # Each call requests one or several samples of one prompt. Replies may change ``_n``.
        calls, n = [], self._n
        for _, same in groupby(requests, key=lambda r: (r.messages, r.sampling)):
            samples = list(same)
            for start in range(0, len(samples), n):
                call = self._call(samples[start : start + n], keep)
                calls.append(self._loop.create_task(call))
        stopped: StoppedError | TeacherError | None = None
        responses: list[Response] = []
        try:
            for task in calls:
                try:
                    responses += await task
                except (StoppedError, TeacherError) as error:  # await the others: they are billed
                    stopped = stopped or error
        finally:
            for task in calls:
                task.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        if stopped:
            raise stopped
        return responses

    async def answer(self, request: Request, listen: Listen | None = None) -> Response:
        """The response to a request of a service; see ``models.request.LiveEngine``.

        Run it in the loop of ``transport``. A failure that may pass is tried again, up to
        ``endpoint.retries`` times and until a part of the response has been passed on. During a
        long pause of all servers, requests fail at once.
        """
        tries, longest_s = 0, min(_LONGEST_BACK_OFF_S, self._endpoint.timeout_s)
        self._servers.end_run = False
        while True:
            if (pause_s := self._servers.pause_s()) > _LONGEST_BACK_OFF_S:
                return failed("overloaded", f"A pause of another {pause_s:,.0f} s is due.", 0.0)
            live = LiveText(self.profile.think_tags, listen, is_plain=self._is_plain is True)
            wait_s = None
            try:
                async with self._after_first(request):
                    _, outcome = await self._attempt([request], live=live)
                response, wait_s = outcome.responses[0], outcome.wait_s
            except (StoppedError, TeacherError) as error:  # they would end a run
                response = failed("rejected", str(error), 0.0)
            tries += 1
            is_last = tries > self._endpoint.retries or live.has_begun
            if response.failure not in REPEATABLE or is_last:
                break
            is_busy = response.failure == "overloaded"
            waits_s = refusal_wait(tries, wait_s, longest_s) if is_busy else 0.0
            await asyncio.sleep(waits_s or back_off(tries, longest_s))
        if response.failure is None:
            live.end(response.reasoning, response.answer_text)
        return response

    def drain(self) -> None:
        """Stop sending requests; those in flight are still answered."""
        self.is_drained = True

        def dismiss() -> None:
            for task in self._queued:
                task.cancel()

        self._loop.call_soon_threadsafe(dismiss)

    def close(self) -> None:
        """Close the connections and abandon the requests in flight."""

        async def end() -> None:
            self.is_drained = True  # prevents calls that have not started
            calls = list(self._in_flight)
            for task in calls:
                task.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            await self._commit.end()

        submit(end()).result()
        close_client(self._client)
        self._threads.shutdown()
        if self._ledger:
            self._ledger.close()

    async def _call(self, samples: list[Request], keep: Keep) -> list[Response]:
        """Repeat until each of these samples has a response or a failure that cannot be retried."""
        if task := asyncio.current_task():  # ``close`` may cancel it
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)
        with self._stopping():
            async with self._after_first(samples[0]):
                answered = await self._answered(samples)
        is_whole = any(response.failure is None for response in answered)
        # The cause may be the prompt, or the number of samples in one request.
        is_doubted = len(samples) > 1 and not is_whole and answered[0].failure in _DOUBTFUL
        if len(answered) < len(samples) and not is_doubted:
            came = f"only {len(answered)} different of {len(samples)} samples came together"
            self._ask_singly(came)
        # If a call returned only some samples, the others are requested one by one.
        again = REPEATABLE if is_whole else frozenset()
        ended = {i: r for i, r in enumerate(answered) if r.failure not in again and not is_doubted}
        unkept = [(samples[i], r) for i, r in ended.items() if r is not INTERRUPTED]
        try:
            with self._stopping():  # before the samples are kept, so that no more are asked for
                self._breaker.require_known_ends()
        finally:
            if unkept and keep is not discard:
                await self._commit.keep(unkept, keep)
        left = [i for i in range(len(samples)) if i not in ended]
        calls = (self._call([samples[i]], keep) for i in left)
        # An error of one call must not cancel the others.
        responses = await asyncio.gather(*calls, return_exceptions=True)
        for i, answer in zip(left, responses, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            ended[i] = answer[0]
        if is_doubted and any(response.failure is None for response in ended.values()):
            self._ask_singly("a request for several samples fails where one for each works")
        return [ended[index] for index in range(len(samples))]

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """Send no more requests if the block raises an error that ends the run."""
        try:
            yield
        except (StoppedError, TeacherError) as error:
            if not self.is_drained:
                _log.warning("%s. Waiting for the requests in flight.", error.what.rstrip("."))
            self.drain()
            raise

    @asynccontextmanager
    async def _after_first(self, request: Request) -> AsyncIterator[None]:
        """Let the first request of a long prompt go ahead, until its response begins."""
        if sum(len(text.encode()) for text in texts_of(request.messages)) < _CACHED_BYTES:
            yield
            return
        prompt = prompt_id(request.messages)
        if first := self._begun.get(prompt):
            with suppress(_DismissedError, TimeoutError):
                await self._dismissable(_begin_of(first))
            yield
            return
        begun = self._begun[prompt] = asyncio.Event()
        try:
            yield
        finally:
            begun.set()
            del self._begun[prompt]

    def _ask_singly(self, why: str) -> None:
        if self._n > 1:
            self._n = 1
            _log.warning(
                "%s does not honour n: %s; each sample is now a separate request", self.model, why
            )

    async def _answered(self, samples: list[Request]) -> list[Response]:
        """The responses of one call, after one or more attempts; fewer if samples are missing."""
        attempts, refusals, is_alone = 0, 0, len(samples) == 1
        while True:
            try:
                sent, outcome = await self._attempt(samples)
            except _DismissedError:
                return [INTERRUPTED] * len(samples)
            responses = outcome.responses
            best = _best(responses)
            failure = best.failure
            if failure not in REPEATABLE or outcome.overrun or self.is_drained:
                # A server may reject a request for several samples because of its n.
                if is_alone and self._breaker.should_probe_refusals(samples[0], best):
                    await self._ask_plain_question(samples[0])
                return self._breaker.require_thinking(responses)
            self._breaker.require_known_ends()
            is_outage = self._breaker.is_outage(samples[0], best, sent)
            attempts += failure != "overloaded" and not is_outage
            retries = self._endpoint.retries
            is_last = attempts > retries
            # A request for several samples is not given up yet: they are requested one by one.
            is_given_up = is_last and is_alone and retries > 0
            if self._breaker.should_probe(samples[0], sent, is_given_up):
                await self._ask_plain_question(samples[0])
                is_outage = self._breaker.is_outage(samples[0], best, sent)
            is_last |= not is_alone and self._breaker.excuses(samples[0], best)
            if not retries or (is_last and not is_outage):
                return responses
            longest_s = min(_LONGEST_BACK_OFF_S, self._endpoint.timeout_s)
            if failure == "overloaded":
                refusals += 1
                seconds = refusal_wait(refusals, outcome.wait_s, longest_s)
            else:
                seconds = back_off(attempts + 1, longest_s)
            with suppress(_DismissedError):
                await self._dismissable(asyncio.sleep(seconds))

    async def _ask_plain_question(self, doubted: Request) -> None:
        """Send a test question that any model answers, ahead of all waiting requests.

        The response shows whether ``doubted`` failed because of the request or the server.
        """
        with suppress(_DismissedError):
            _, outcome = await self._attempt([plain_question(doubted)], is_urgent=True)
            self._breaker.note_plain_answer(outcome.responses[0])

    async def _ask_at(self, server: Server, request: Request) -> Response:
        """The response of a certain server to one attempt, beside the requests in its slots.

        ``INTERRUPTED`` if the run stops, or its budget does not cover the request.
        """
        try:
            _, outcome = await self._attempt([request], is_urgent=True, at=server)
        except (_DismissedError, StoppedError):
            return INTERRUPTED
        return outcome.responses[0]

    async def _attempt(
        self,
        samples: list[Request],
        is_urgent: bool = False,
        at: Server | None = None,
        live: LiveText | None = None,
    ) -> tuple[float, _Outcome]:
        """Send a request once and charge its cost; returns (time at which it was sent, outcome).

        ``live`` belongs to a request of a service.
        """
        server, charged, reserved = await self._dismissable(self._admitted(samples, is_urgent, at))
        sent = self._loop.time()
        given_up = failed("cut_off", "given up", 0.0)
        outcome = _Outcome([given_up] * len(samples))
        try:
            outcome = await self._exchange(server, samples, live)
        except TeacherError:
            outcome = _Outcome([failed("rejected", "the key was refused", 0.0)])
            raise
        finally:
            cost = cost_of(samples, outcome.responses, self.profile.price, outcome.overrun)
            # Wrong counts and replies that were too long must not delay other requests.
            self._rates.settle(charged, round(min(cost.tokens, reserved.tokens)))
            if self._ledger:
                self._ledger.settle(reserved, cost)
            best = _best(outcome.responses)
            self._breaker.note(samples[0], best)
            if best is given_up:  # cancelled here, so it is no failure of the server
                self._servers.release(server)
            else:
                is_excused = self._breaker.excuses(samples[0], best)
                self._servers.give_back(server, best, outcome.wait_s, is_excused)
        if live is None:
            self._check_credit_and_pause(server, best, outcome.wait_s)
        await self._model_check.after(server.url, best.failure)
        if at is None:
            judged = await self._cut_prompts.judge(server, samples[0], outcome.responses)
            outcome = replace(outcome, responses=judged)
        return sent, outcome

    async def _admitted(
        self, samples: list[Request], is_urgent: bool, at: Server | None
    ) -> tuple[Server, float, Cost]:
        """Wait for a slot (for none of ``at``), the rate limits and the budget.

        Returns (server, tokens charged to the rate limit, reserved cost).
        """
        most = most_cost(samples, self.profile.price)
        charged: float | None = None
        while True:
            # Wait for the slot first: otherwise the rate limit would admit requests during a pause,
            # and all of them would be sent when the pause ends.
            server = await self._servers.lease(is_urgent, at)
            try:
                if charged is None:
                    charged = await self._rates.admit(round(most.tokens))
                if self.is_drained:
                    raise _DismissedError
                if at or not self._servers.is_paused(server):
                    while self._ledger and not self._ledger.reserve(most):
                        await asyncio.sleep(_BUDGET_POLL_S)
                    return server, charged, most
            except BaseException:
                self._servers.release(server)
                raise
            self._servers.release(server)

    async def _dismissable(self, work: Coroutine[object, object, _Result]) -> _Result:
        """Await ``work``; raises ``_DismissedError`` as soon as this engine is drained."""
        if self.is_drained:
            work.close()
            raise _DismissedError
        task = cast("asyncio.Task[object]", asyncio.current_task())
        self._queued.add(task)
        try:
            return await work
        except asyncio.CancelledError:
            if not self.is_drained:
                raise
            task.uncancel()
            raise _DismissedError from None
        finally:
            self._queued.discard(task)

    async def _exchange(
        self, server: Server, samples: list[Request], live: LiveText | None = None
    ) -> _Outcome:
        """Send one request and read its reply; an error is part of the outcome.

        Raises:
            TeacherError: The key is refused, or the request is invalid and cannot be sent.
        """
        started, body = self._loop.time(), body_of(samples, self.profile, self._able)
        completion = self._completion(body, len(samples))
        on_piece = self._on_piece(samples[0], completion, live)
        headers = {DEPTH_HEADER: "1"} if live else None
        try:
            with self._breaker.listening(completion):
                await self._client.transport.ask(server.url, body, completion, on_piece, headers)
            seconds = self._loop.time() - started
            responses = completion.responses(len(samples), self.profile.think_tags, seconds)
            if completion.place == "none" and responses[0].finish_reason == "stop":
                self._is_plain = not responses[0].reasoning and self._is_plain is not False
            if completion.is_undercounted:
                self._ask_singly("its usage counts fewer tokens than its samples can have")
            return _Outcome(responses)
        except TeacherError:
            raise
        except (RefusedError, ServerFault) as error:
            if error.status == _WRONG_KEY:
                raise wrong_key(server.url, self._endpoint, error.status) from None
            fault: Exception = error
        except Exception as error:  # any other server fault affects only this request
            fault = error
        is_worded = isinstance(fault, RefusedError | ServerFault | OverrunError)
        text = str(fault) if is_worded else f"{type(fault).__name__}: {fault}"
        seconds = self._loop.time() - started
        failure = failed(failure_of(fault), self._redact(text, _MOST_SAID), seconds)
        return _Outcome(
            completion.before_fault(len(samples), self.profile.think_tags, failure),
            retry_after(fault.headers) if isinstance(fault, RefusedError) else None,
            fault.tokens if isinstance(fault, OverrunError) else 0,
        )

    def _completion(self, body: dict[str, object], samples: int) -> ChatCompletion:
        """An empty reply to a request with this body, of which nothing has arrived yet."""
        most = body.get(self._able.max_tokens_name)
        most_tokens = most * samples if isinstance(most, int) else LONGEST_CONTEXT
        ends = self._able.finish_reasons
        return ChatCompletion("seed" in body, most_tokens, self._redact, ends, "tools" in body)

    def _on_piece(
        self, request: Request, completion: ChatCompletion, live: LiveText | None
    ) -> Callable[[], None] | None:
        """What is called when pieces of the reply have been read; None if nobody waits for them."""
        begun = self._begun.get(prompt_id(request.messages)) if self._begun else None
        if not live or not live.is_heard:
            return begun.set if begun else None

        def pass_on() -> None:
            if begun:
                begun.set()
            live.add(*completion.new_texts())

        return pass_on

    def _check_credit_and_pause(
        self, server: Server, response: Response, wait_s: float | None
    ) -> None:
        """Raise a StoppedError if the account has no credit, or all servers ask for a long pause.

        A pause is long if it exceeds ``endpoint.timeout_s``.
        """
        if response.failure == "no_credit":
            raise StoppedError(
                f"The account at {self._endpoint.base_url} has no credit left: {response.error}",
                "Add credit and repeat the same command; nothing is billed twice.",
            )
        if response.failure != "overloaded" or wait_s is None:
            return
        patience_s = self._endpoint.timeout_s
        if min(wait_s, self._servers.pause_s()) > patience_s:
            raise StoppedError(
                f"{server.url} asks for a pause of {wait_s:,.0f} s, longer than "
                f"endpoint.timeout_s ({patience_s:g} s): {response.error}",
                "Repeat the same command after the pause; all responses are kept.",
            )


async def _begin_of(first: asyncio.Event) -> None:
    async with asyncio.timeout(_LEAD_S):
        await first.wait()


def body_of(samples: list[Request], profile: Profile, able: Capabilities) -> dict[str, object]:
    """The JSON body of a request: all parameters, except those that the server refuses."""
    first, sampling = samples[0], samples[0].sampling
    body: dict[str, object] = {
        "model": profile.model,
        "messages": first.messages,
        "seed": first.seed,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        able.max_tokens_name: sampling.max_tokens,
    }
    body |= beyond_openai(sampling)
    if len(samples) > 1:
        body["n"] = len(samples)
    if able.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    body |= profile.added_body
    body = {name: value for name, value in body.items() if name not in able.refused}
    return body | first.more


def beyond_openai(sampling: Sampling) -> dict[str, object]:
    """The sampling parameters that are not part of the OpenAI API; unset ones are omitted."""
    off = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
    return {n: value for n in off if (value := getattr(sampling, n)) != off[n]}


def _best(responses: list[Response]) -> Response:
    """The response that represents a call: the first complete one, otherwise the first failure."""
    return next((response for response in responses if response.failure is None), responses[0])


def served_revision(profile: Profile, endpoint: Endpoint) -> str:
    """The revision of a served model; may be empty.

    It has the request parameters that affect the model, without those that only choose a host
    (``ProviderTerms.routing``), and its number in the journal (``identity``) unless it is the first
    model of its name.
    """
    settings: dict[str, Any] = dict(profile.extra_body)
    if endpoint.capabilities and endpoint.capabilities.refused:
        settings["refused"] = sorted(endpoint.capabilities.refused)
    if number := endpoint.identities.get(profile.model):
        settings["model"] = number
    return json.dumps(settings, sort_keys=True) if settings else ""
