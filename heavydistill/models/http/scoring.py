"""Log-probabilities of given tokens, from a server that has vLLM's ``prompt_logprobs``.

A sequence is sent as the prompt of a completion, as token ids, and the model writes one token that
is not read. The reply holds null for the first token, and for each later one a mapping from token
ids to log-probabilities: that of the token itself, and of the likeliest ones. vLLM applies no
temperature to them.

A request takes a slot of the endpoint like any other (``limits``). If it fails and that can help,
it is repeated ``endpoint.retries`` times; while the server is overloaded or cannot be reached,
until it has answered nothing for ``endpoint.timeout_s``. A reply that lacks a log-probability, has
one that is no number, or comes from another model than the named one, is such a failure. A server
that failed may have been restarted, so the model is checked before its next reply is used
(``probe``).

Not covered: costs, which have no account here.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heavydistill.config.models import Endpoint
from heavydistill.errors import StoppedError
from heavydistill.models.http.client import close_client, open_client
from heavydistill.models.http.completion import failed
from heavydistill.models.http.failures import OF_THE_SERVER, REPEATABLE, RefusedError, failure_of
from heavydistill.models.http.limits import Server, back_off, refusal_wait
from heavydistill.models.http.probe import Evidence, ModelCheck
from heavydistill.models.http.replies import Redactor, retry_after
from heavydistill.models.http.transport import loop, submit
from heavydistill.models.profiles import Profile
from heavydistill.models.request import Response

_LONGEST_BACK_OFF_S = 30.0
# Of a reply: an entry has about 80 bytes, and at most 6 for each character of a token.
_BYTES_OF_AN_ENTRY, _MORE_BYTES = 1024, 2**20
_OK = 200
_LIMIT = re.compile(r"max(?:imum)? allowed\D{0,5}(\d+)")  # in vLLM's refusal
_NO_PROBABILITY = -9999.0  # what vLLM writes for minus infinity


@dataclass(frozen=True, slots=True)
class Scored:
    """A sequence of tokens whose last ones get a log-probability."""

    prompt: list[int] | str  # Token ids; or a text, which the server splits
    start: int = 1  # Number of tokens that get none, at least the first one


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Log-probabilities of a sequence's tokens from ``Scored.start`` on, in nats."""

    tokens: list[tuple[int, float]]  # Id and log-probability of each token
    top: list[list[tuple[int, float]]]  # For each token, the likeliest ids in its place, in order


class PromptScorer:
    """Scores sequences with a served model. Call ``close`` at the end.

    Args:
        profile: Model, by its served name.
        endpoint: Where it is served.
        evidence: What the model was recognised by at the start; None checks nothing.

    Raises:
        ConfigError: As ``client.EndpointClient`` raises.
    """

    def __init__(
        self, profile: Profile, endpoint: Endpoint, evidence: Evidence | None = None
    ) -> None:
        self._model, self._endpoint = profile.model, endpoint
        self._redact = Redactor(endpoint.key)
        self._check = ModelCheck(evidence, profile, endpoint)
        self._client = open_client(endpoint, endpoint.key)
        self._heard_at = -math.inf  # event loop time of the last reply

    def scores(self, sequences: Sequence[Scored], top: int = 0) -> list[TokenScores | Response]:
        """Score all sequences, each by a request of its own; a failure is the response of it.

        After a failure the other requests are given up, and have the same one. ``top`` is the
        number of likeliest tokens in each place.
        """
        found = submit(self._all_scored(sequences, top))
        try:
            return found.result()
        finally:
            found.cancel()

    def close(self) -> None:
        close_client(self._client)

    async def _all_scored(
        self, sequences: Sequence[Scored], top: int
    ) -> list[TokenScores | Response]:
        self._heard_at = loop().time()
        tasks = [loop().create_task(self._scored(each, top)) for each in sequences]
        try:
            for ended in asyncio.as_completed(tasks):
                if isinstance(failure := await ended, Response):
                    return [task.result() if task.done() else failure for task in tasks]
            return [task.result() for task in tasks]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _scored(self, sequence: Scored, top: int) -> TokenScores | Response:
        """Send a sequence until it is scored, or its failure cannot be helped."""
        patience_s = self._endpoint.timeout_s
        longest_s = min(_LONGEST_BACK_OFF_S, patience_s)
        attempts = refusals = 0
        while True:
            scores, wait_s = await self._attempt(sequence, top)
            if isinstance(scores, TokenScores) or scores.failure not in REPEATABLE:
                return scores
            if scores.failure in OF_THE_SERVER:
                refusals += 1
                is_last = loop().time() - self._heard_at > patience_s
            else:
                attempts += 1
                is_last = attempts > self._endpoint.retries
            if is_last or not self._endpoint.retries or (wait_s or 0.0) > patience_s:
                return scores
            if scores.failure == "overloaded":
                await asyncio.sleep(refusal_wait(refusals, wait_s, longest_s))
            else:
                await asyncio.sleep(back_off(attempts + refusals, longest_s))

    async def _attempt(
        self, sequence: Scored, top: int
    ) -> tuple[TokenScores | Response, float | None]:
        """Send a sequence once; returns (scores or failure, pause that the server asks for)."""
        server, wait_s = await self._admitted(sequence), None
        scores, ended = None, Response(finish_reason="stop")
        try:
            scores = await self._asked(server, sequence, top)
            self._heard_at = loop().time()
        except Exception as error:  # whatever a server or a network does
            is_worded = isinstance(error, RefusedError)
            text = str(error) if is_worded else f"{type(error).__name__}: {error}"
            ended = failed(failure_of(error), self._redact(text), 0.0)
            wait_s = retry_after(error.headers) if isinstance(error, RefusedError) else None
        except BaseException:  # cancelled here, so it is no failure of the server
            self._client.servers.release(server)
            raise
        self._client.servers.give_back(server, ended, wait_s)
        try:
            await self._check.after(server.url, ended.failure)
        except StoppedError as error:
            return failed("rejected", error.what, 0.0), None
        return scores or ended, wait_s

    async def _admitted(self, sequence: Scored) -> Server:
        """Wait for a slot and the rate limits."""
        tokens, servers = len(sequence.prompt) + 1, self._client.servers
        server = await servers.lease()
        try:
            charged = await self._client.rates.admit(tokens)
            self._client.rates.settle(charged, tokens)
        except BaseException:
            servers.release(server)
            raise
        return server

    async def _asked(self, server: Server, sequence: Scored, top: int) -> TokenScores:
        body: dict[str, object] = {
            "model": self._model,
            "prompt": sequence.prompt,
            "max_tokens": 1,  # vLLM refuses 0
            "temperature": 0,  # of the one token
            "prompt_logprobs": top,
        }
        if isinstance(sequence.prompt, str):
            body["add_special_tokens"] = False
        most = _MORE_BYTES + _BYTES_OF_AN_ENTRY * (top + 1) * len(sequence.prompt)
        tree = await self._client.transport.fetch(server.url, "completions", body, most)
        return read_scores(tree, self._model, sequence, top)


def read_scores(tree: Any, model: str, sequence: Scored, top: int) -> TokenScores:
    """Read the reply to a request for the scores of a sequence by ``model``.

    Raises:
        RefusedError: The server does not know the parameter.
        ValueError: A log-probability is missing or is no number, or another model answered.
    """
    try:
        if (name := tree.get("model", model)) != model:
            raise ValueError(f"the reply is one of the model {name!r}")
        choice = tree["choices"][0]
        if (entries := choice.get("prompt_logprobs")) is None:
            raise RefusedError(_OK, {}, "the reply has no prompt_logprobs")
        places = [
            {int(token): _number(each["logprob"]) for token, each in entry.items()}
            for entry in entries[sequence.start :]
        ]
    except (LookupError, TypeError, AttributeError):
        raise ValueError("the reply has no prompt log-probabilities of all tokens") from None
    if isinstance(sequence.prompt, str):
        ids = [next(iter(place), -1) for place in places]
    else:
        ids = sequence.prompt[sequence.start :]
    if len(places) != len(ids) or any(
        id not in place for id, place in zip(ids, places, strict=True)
    ):
        raise ValueError("the reply has no prompt log-probabilities of all tokens")
    best = [sorted(place.items(), key=lambda each: (-each[1], each[0]))[:top] for place in places]
    if any(len(each) < top for each in best):
        raise ValueError(f"the reply has fewer than {top} log-probabilities of a token")
    tokens = [(id, place[id]) for id, place in zip(ids, places, strict=True)]
    if any(value <= _NO_PROBABILITY for _, value in tokens):
        raise ValueError("the reply has a token that has no probability")
    return TokenScores(tokens, best)


def most_top(refusal: str) -> int | None:
    """The largest ``top`` that a server accepts, by its refusal of a larger one; None: unknown."""
    limit = _LIMIT.search(refusal)
    return int(limit[1]) if limit else None


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"the reply has {value!r} as a log-probability")
    return float(value)
