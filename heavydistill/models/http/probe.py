"""Asks a server two fixed questions whose answers tell models of one name apart.

A retrained adapter has the same name, path and ``system_fingerprint`` as before. Its
log-probabilities of fixed token ids differ: one completion with ``prompt_logprobs``, which vLLM
offers, reads them. If a server offers none, the probe is a short greedy answer, which counts only
if the server repeats it.

A probe costs at most 128 prompt tokens and 48 completion tokens, and a run asks at most two of each
model and address at its start; they are not booked in the run's account.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import logging
import math
from dataclasses import dataclass
from typing import Any

from heavydistill.config.models import Capabilities, Endpoint
from heavydistill.errors import StoppedError
from heavydistill.models.http.transport import exchange
from heavydistill.models.profiles import Profile
from heavydistill.models.request import user_turn
from heavydistill.schema import Failure

_log = logging.getLogger("heavydistill.models")

LEAST_DIFFERENCE = 0.05  # nats a token above the noise, from which on it is another model
_LARGEST_NOISE = 0.5  # nats a token; above it the probe tells nothing
_ROUNDING = 1e-3  # nats a token within which two names answer with one model

# Small ids, because the smallest vocabularies have a few hundred tokens.
TOKEN_IDS = [(37 * i * i + 11 * i + 5) % 251 for i in range(40)]
QUESTION = (
    "A farmer has 17 sheep and buys 5 more each week, but every third week a wolf takes 4 of them. "
    "Describe step by step how the flock changes, and how you would check your answer."
)
_ANSWER_TOKENS = 48
_TIMEOUT_S = 60.0
_MOST_BYTES = 2**20
_PAUSES_S = (1.0, 4.0)  # before another attempt
_OK = 200
# Failures of a server that may have ended, and may come back with other weights.
_OF_A_RESTART: frozenset[Failure | None] = frozenset({"unreachable", "server", "cut_off"})
_TEMPORARY = {408, 425, 429, 502, 503, 504, 529}


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of the model behind a name; empty fields are unknown."""

    folder: str = ""  # Digest of the checkpoint or adapter folder
    logprobs: tuple[float, ...] = ()  # Log-probabilities of ``TOKEN_IDS``, from the second on
    noise: float = 0.0  # Mean absolute difference of two probes, in nats a token
    text: str = ""  # Digest of the greedy answer
    root: str = ""  # Hub id or path of the weights, as the server states it
    address: str = ""  # Address or provider; unknown if there are several

    @property
    def has_probe(self) -> bool:
        return bool(self.logprobs or self.text)

    def distance(self, other: Evidence) -> float:
        """Mean absolute difference of the log-probabilities, in nats a token."""
        pairs = zip(self.logprobs, other.logprobs, strict=True)
        return sum(abs(a - b) for a, b in pairs) / len(self.logprobs)

    def difference(self, now: Evidence) -> str:
        """Why ``now`` is another model than this recorded one; empty if it is the same."""
        if self.folder and now.folder and self.folder != now.folder:
            return "the files in its folder have changed"
        if self.logprobs and now.logprobs:
            distance = self.distance(now)
            if distance < LEAST_DIFFERENCE + self.noise:
                return ""
            return f"its log-probabilities of fixed tokens differ by {distance:.2f} nats a token"
        if self.has_probe and now.has_probe:
            return "" if self.text == now.text else "its answer to a fixed question differs"
        if self.folder and now.folder:
            return ""
        if self.root and now.root:
            return "" if self.root == now.root else f"its weights were those of {self.root}"
        if self.address and now.address and self.address != now.address:
            return f"it was at {self.address}, and nothing but the address tells its models apart"
        return ""

    def is_same_answer(self, other: Evidence) -> bool:
        """Whether two names cannot be two models, because a probe gives the same for both."""
        if self.logprobs and other.logprobs:
            return self.distance(other) <= max(self.noise, other.noise) + _ROUNDING
        return bool(self.text) and self.text == other.text

    def repeated(self, again: Evidence) -> Evidence:
        """This evidence after a second probe: with its noise, or without a probe that varies."""
        if self.logprobs and again.logprobs:
            noise = self.distance(again)
            if noise <= _LARGEST_NOISE:
                return dataclasses.replace(self, noise=noise)
        elif self.text and self.text == again.text:
            return self
        return dataclasses.replace(self, logprobs=(), text="")


async def probe(url: str, profile: Profile, endpoint: Endpoint) -> Evidence:
    """Ask the server at ``url`` the probe once; the evidence is empty if it answers none."""
    able, base = endpoint.capabilities or Capabilities(), url.rstrip("/")
    tokens = {"prompt": TOKEN_IDS, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
    tree = await _answer(f"{base}/completions", endpoint.key, {"model": profile.model, **tokens})
    if values := _logprobs(tree):
        return Evidence(logprobs=values)
    body = {
        "model": profile.model,
        "messages": user_turn(QUESTION),
        "temperature": 0,
        able.max_tokens_name: _ANSWER_TOKENS,
        **profile.added_body,
    }
    body = {name: value for name, value in body.items() if name not in able.refused}
    return Evidence(text=_text(await _answer(f"{base}/chat/completions", endpoint.key, body)))


class ModelCheck:
    """Checks that a server which has failed, and may have been restarted, has the same model.

    ``evidence`` is what the model was recognised by at the start of the run; without a probe in it,
    nothing is checked.
    """

    def __init__(self, evidence: Evidence | None, profile: Profile, endpoint: Endpoint) -> None:
        self._evidence = evidence if evidence and evidence.has_probe else None
        self._profile, self._endpoint = profile, endpoint
        self._doubted: dict[str, asyncio.Lock] = {}  # by address, until its model was checked
        self._other: StoppedError | None = None

    async def after(self, url: str, failure: Failure | None) -> None:
        """Note how an attempt ended; before the first response after a failure is used, probe.

        Raises:
            StoppedError: The server has another model now.
        """
        if self._evidence and failure in _OF_A_RESTART:
            self._doubted.setdefault(url, asyncio.Lock())
        elif lock := self._doubted.get(url):
            async with lock:  # requests that end at the same time wait for one probe
                await self._require_same(url)

    async def _require_same(self, url: str) -> None:
        if self._other:
            raise self._other
        if not self._evidence or url not in self._doubted:  # another request has checked it
            return
        name, now = self._profile.model, await probe(url, self._profile, self._endpoint)
        if not now.has_probe:
            _log.warning(
                "%s answers no probe since it failed, so it is not known whether it still has the "
                "same model as %s.",
                *(url, name),
            )
        if why := self._evidence.difference(now):
            self._other = StoppedError(
                f"{url} has another model as {name} since it failed: {why}",
                "Serve the earlier model again, or keep the new one, and repeat the same command; "
                "all responses of the earlier model are kept.",
            )
            raise self._other
        self._doubted.pop(url, None)


async def _answer(url: str, key: str, body: dict[str, object]) -> Any:
    """Return the JSON of the reply; None if the server refuses the request or does not answer."""
    from aiohttp import ClientError

    for pause_s in (*_PAUSES_S, None):
        status, tree = None, None
        with contextlib.suppress(ClientError, OSError, TimeoutError):
            status, tree = await exchange(
                url, key, body, timeout_s=_TIMEOUT_S, most_bytes=_MOST_BYTES
            )
        if status == _OK:
            return tree
        if pause_s is None or (status and status not in _TEMPORARY):
            return None
        await asyncio.sleep(pause_s)
    return None


def _logprobs(tree: Any) -> tuple[float, ...]:
    """Read vLLM's ``prompt_logprobs``: null, then for each token a mapping by token ids."""
    try:
        entries = tree["choices"][0]["prompt_logprobs"]
        pairs = zip(TOKEN_IDS[1:], entries[1:], strict=True)
        values = [entry[str(token)]["logprob"] for token, entry in pairs]
    except (LookupError, TypeError, ValueError):
        return ()
    is_sound = all(isinstance(each, int | float) and math.isfinite(each) for each in values)
    return tuple(map(float, values)) if is_sound else ()


def _text(tree: Any) -> str:
    """Digest of the texts of a chat completion, thinking included; empty if there is none."""
    try:
        message = tree["choices"][0]["message"]
        parts = [message.get(name) for name in ("reasoning_content", "reasoning", "content")]
    except (LookupError, TypeError, AttributeError):
        return ""
    texts = [each if isinstance(each, str) else "" for each in parts]
    whole = "\0".join(texts).encode("utf-8", "replace")
    return hashlib.sha256(whole).hexdigest()[:16] if any(texts) else ""
