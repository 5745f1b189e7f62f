"""Detects servers that cut a long prompt and answer what is left, instead of refusing it.

Ollama and LM Studio cut prompts that exceed the context with which they loaded the model. The reply
looks sound, and only its count of prompt tokens shows the fault. A prompt counts as cut if the
server read fewer tokens than the prompt has, and also read only a part of a plain prompt of the
same length. The plain prompt rules out a tokenizer that is not the model's, and servers that leave
tokens in their prefix cache out of the count.

Without the model's tokenizer only a lower bound of a prompt's tokens is known: one for each word.
Not covered: a cut that leaves more tokens than this bound; servers that report no prompt tokens or
those of the prompt before they cut it; and responses in flight when a run stops before the plain
prompt is answered, which are kept because they are billed (a warning says so).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from heavydistill.errors import TeacherError
from heavydistill.heavy.pruning import Reader
from heavydistill.models.http.completion import MOST_CHARACTERS_OF_A_TOKEN
from heavydistill.models.http.limits import Server
from heavydistill.models.profiles import Profile
from heavydistill.models.request import INTERRUPTED, Request, Response, user_turn
from heavydistill.models.tokenizer import ESTIMATED, TEMPLATE_TOKENS, ByteEstimate, reader_of
from heavydistill.schema import Failure
from heavydistill.store.journal import prompt_id

_Result = TypeVar("_Result")

LARGER_CONTEXT = (
    "Ollama: set OLLAMA_CONTEXT_LENGTH before `ollama serve`, or num_ctx in a Modelfile; LM "
    "Studio: load the model with a larger context length"
)
_PROMPTS = 3  # Number of cut prompts that stop a run
_ANSWER_TOKENS = 16  # ``max_tokens`` of a plain prompt; only the count of its tokens is read
_LONGER = 1.25  # Ratio from which a prompt is clearly longer than one that was read whole
_REMEMBERED = 4096  # Prompts; the samples of one prompt are requested close together
# One token each in the usual vocabularies.
_WORDS = "the and that have for not with you this but from they"
PLAIN_WORDS = tuple(_WORDS.split())
# A server that refuses a long prompt does not cut it.
_REFUSED: frozenset[Failure | None] = frozenset({"too_long", "context_overflow"})
_log = logging.getLogger("heavydistill.models")


def plain_prompt(tokens: int, reader: Reader) -> str:
    """A prompt of about ``tokens`` tokens, at least one for each word whatever the tokenizer.

    The words are drawn at random, so that no server has a prefix of it in its cache.
    """
    text = " ".join(random.choices(PLAIN_WORDS, k=tokens))
    return text if reader.name == ESTIMATED else reader.head(text, tokens)


def _least_tokens(text: str, reader: Reader) -> int:
    """The number of tokens of a text; without a tokenizer, a lower bound."""
    if reader.name != ESTIMATED:
        return reader.count(text)
    return max(len(text.split()), len(text) // MOST_CHARACTERS_OF_A_TOKEN)


def is_cut(read: int, tokens: int) -> bool:
    """Whether a server that reports ``read`` prompt tokens read less than ``tokens`` of a text.

    A chat template may remove space around a text, but no more tokens than it is assumed to add.
    """
    return 0 < read < tokens - TEMPLATE_TOKENS


@dataclass(slots=True)
class _Address:
    """What is known of the server at one address."""

    whole: int = 0  # Tokens of the longest plain prompt that was not cut
    cuts: bool = False  # Whether a plain prompt was cut
    is_cut: dict[str, bool] = field(default_factory=dict)  # Verdict on each recent prompt, by id


class CutPrompts:
    """Judges the responses of one model by the prompt tokens that its servers report.

    Args:
        profile: The model.
        ask: Sends a request to a certain server.
        threads: Threads that count tokens.
    """

    def __init__(
        self,
        profile: Profile,
        ask: Callable[[Server, Request], Awaitable[Response]],
        threads: ThreadPoolExecutor,
    ) -> None:
        self._profile, self._ask, self._threads = profile, ask, threads
        self._addresses: dict[str, _Address] = {}
        self._cut: set[str] = set()
        self._turn = asyncio.Lock()
        self._is_stopped = False  # whether a plain prompt could not be sent

    async def judge(
        self, server: Server, request: Request, responses: list[Response]
    ) -> list[Response]:
        """The responses to a prompt; converted to failures if the server cut the prompt.

        The count of the prompt's first response decides, because a server may leave tokens that are
        in its prefix cache out of later ones.

        Raises:
            TeacherError: Three prompts have been cut.
        """
        read = max(r.prompt_tokens + max(0, r.cached_tokens) for r in responses)
        # Chat templates may leave out earlier thinking, and write tool calls in another way.
        texts = [str(message["content"]) for message in request.messages]
        most = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
        if not is_cut(read, most):  # no text has more tokens than bytes
            return responses
        address = self._addresses.setdefault(server.url, _Address())
        prompt = prompt_id(request.messages)
        verdict: bool | None = address.is_cut.get(prompt)
        if verdict is None:
            tokens = await self._in_thread(self._tokens, texts)
            verdict = False
            if is_cut(read, tokens):
                verdict = await self._is_confirmed(server, address, request, tokens)
            if verdict:
                self._note(server, prompt, read, tokens)
        if verdict is not None:
            address.is_cut[prompt] = verdict
            if len(address.is_cut) > _REMEMBERED:
                del address.is_cut[next(iter(address.is_cut))]
        if verdict is False:
            return responses
        error = f"The server cut the prompt: it read only {read:,} tokens of it."
        lost: dict[str, Any] = {"finish_reason": "error", "failure": "prompt_cut", "error": error}
        return [r if r.failure else replace(r, **lost) for r in responses]

    @cached_property
    def _reader(self) -> Reader:
        with contextlib.suppress(TeacherError):  # a run that needs it has said so
            return reader_of(self._profile.tokenizer)
        return ByteEstimate()

    def _tokens(self, texts: list[str]) -> int:
        return sum(_least_tokens(text, self._reader) for text in texts)

    async def _in_thread(self, work: Callable[..., _Result], *arguments: object) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    async def _is_confirmed(
        self, server: Server, address: _Address, request: Request, tokens: int
    ) -> bool | None:
        """Whether the server also cuts a plain prompt of so many tokens; None if it is unknown."""
        async with self._turn:
            if address.cuts or tokens <= address.whole * _LONGER:
                return address.cuts
            text = await self._in_thread(plain_prompt, tokens, self._reader)
            sampling = request.sampling.model_copy(update={"max_tokens": _ANSWER_TOKENS})
            plain = replace(request, messages=user_turn(text), sampling=sampling)
            answer = await self._ask(server, plain)
            if answer is INTERRUPTED:
                # The responses are billed, and nothing but a count speaks against them.
                if not self._is_stopped:
                    _log.warning(
                        "The run stops before a plain prompt could show whether %s cuts prompts; "
                        "the responses in flight are kept.",
                        server.url,
                    )
                self._is_stopped = True
                return False
            if answer.failure not in _REFUSED and answer.prompt_tokens <= 0:
                return None
            read = answer.prompt_tokens
            address.cuts = answer.failure not in _REFUSED and is_cut(read, len(text.split()))
            if not address.cuts:
                address.whole = tokens
                _log.warning(
                    "%s reports fewer prompt tokens than %s counts, but does not cut a prompt of "
                    "%s tokens. Check that --tokenizer is the tokenizer of %s.",
                    *(server.url, self._reader.name, f"{tokens:,}", self._profile.model),
                )
            return address.cuts

    def _note(self, server: Server, prompt: str, read: int, tokens: int) -> None:
        self._cut.add(prompt)
        if len(self._cut) < _PROMPTS:
            return
        raise TeacherError(
            f"{server.url} cuts long prompts to {self._profile.model} instead of refusing them: of "
            f"{tokens:,} tokens it read {read:,}. Responses to cut prompts are not used",
            f"Give the server the context that this run plans with, {self._profile.context:,} "
            f"tokens ({LARGER_CONTEXT}), or plan with the server's: --set endpoint.context=TOKENS. "
            "Then repeat the command.",
        )
