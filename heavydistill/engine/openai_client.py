"""An OpenAI-compatible endpoint: one request a sample, so that K means K.

Requests run side by side up to ``concurrency``, whoever asks; what can be repeated (time-outs,
overload, broken connections) is repeated by the openai library with its own back-off, and
whatever still fails is a response with an error. The thinking is read from ``reasoning_content`` or
``reasoning``, else split from the text by the model's tags.

Not covered: rate limits by the minute, several endpoints.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from heavydistill.config import Endpoint, Sampling
from heavydistill.engine.failures import failure_of
from heavydistill.engine.reasoning import split_reasoning
from heavydistill.engine.request import INTERRUPTED, Keep, Request, Response, forget
from heavydistill.errors import TeacherError
from heavydistill.schema import Failure

if TYPE_CHECKING:
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletion


class OpenAIEngine:
    """Chat completions of one served model.

    Args:
        model: Name under which the server knows the model.
        endpoint: Where it is and how much it is asked at once.
        think_tags: Tags of thinking that the server leaves in the text, if any.
        extra_body: Keys added to every request, e.g. what switches thinking on.
    """

    def __init__(
        self,
        model: str,
        endpoint: Endpoint,
        think_tags: tuple[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        from openai import AsyncOpenAI

        self.model = model
        self.think_tags = think_tags
        self.extra_body = dict(extra_body or {})
        self._key_env = endpoint.key_env
        self._key = os.environ.get(endpoint.key_env, "").strip()
        self._client = AsyncOpenAI(
            base_url=endpoint.base_url,
            # Servers without keys accept any; the library insists on one.
            api_key=self._key or "none",
            timeout=endpoint.timeout_s,
            max_retries=endpoint.retries,
        )
        self._drains = False
        self._slots = asyncio.Semaphore(endpoint.concurrency)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    @property
    def revision(self) -> str:
        """A server does not say which weights it serves; what is asked of them beside is known."""
        return served_revision(self.extra_body)

    def generate(self, requests: list[Request], keep: Keep = forget) -> list[Response]:
        """Answer all requests, in their order. Several threads may ask at once."""
        asked = [asyncio.run_coroutine_threadsafe(self._one(r, keep), self._loop) for r in requests]
        try:
            return [future.result() for future in asked]
        finally:
            for future in asked:
                future.cancel()

    def drain(self) -> None:
        """Send nothing more; what is in flight is still answered."""
        self._drains = True

    def close(self) -> None:
        """End the connections; what is still in flight is given up."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await self._client.close()

    async def _one(self, request: Request, keep: Keep) -> Response:
        async with self._slots:
            if self._drains:
                return INTERRUPTED
            response = await self._asked(request)
        # Writing to a disk must not hold up the other requests.
        await asyncio.to_thread(keep, request, response)
        return response

    async def _asked(self, request: Request) -> Response:
        from openai import AuthenticationError, OpenAIError

        started = time.perf_counter()
        try:
            completion = await self._client.chat.completions.create(
                model=self.model,
                messages=request.messages,  # type: ignore[arg-type]
                seed=request.seed,
                **_sampling_arguments(request.sampling, self.extra_body),
            )
            return self._response(completion, time.perf_counter() - started)
        except AuthenticationError as error:
            raise TeacherError(
                f"The server refuses the key in {self._key_env} ({error.status_code})",
                f"Set {self._key_env} to a valid key and run the same command again.",
            ) from None
        # All but the first: a body that is no JSON, or JSON of another shape.
        except (OpenAIError, ValueError, TypeError, AttributeError, LookupError) as error:
            text = f"{type(error).__name__}: {error}"
            if self._key:  # some servers repeat it in what they say
                text = text.replace(self._key, "***")
            return _failed(failure_of(error), text, time.perf_counter() - started)

    def _response(self, completion: ChatCompletion, seconds: float) -> Response:
        if not completion.choices:
            raise ValueError("the server answered without choices")
        choice = completion.choices[0]
        extra = choice.message.model_extra or {}
        text = _encodable(choice.message.content or "")
        reasoning = _encodable(extra.get("reasoning_content") or extra.get("reasoning") or "")
        answer_text = text.strip()
        if not reasoning:
            reasoning, answer_text = split_reasoning(text, self.think_tags)
        if choice.finish_reason not in ("stop", "length"):
            kind: Failure = "filtered" if choice.finish_reason == "content_filter" else "malformed"
            return _failed(kind, f"the server stopped for {choice.finish_reason!r}", seconds)
        if choice.message.refusal and not text:
            return _failed("refused", f"the model refused: {choice.message.refusal}", seconds)
        prompt_tokens, completion_tokens = _counts(completion.usage)
        return Response(
            reasoning=reasoning,
            answer_text=answer_text,
            finish_reason=choice.finish_reason,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            latency_s=seconds,
            request_id=_encodable(str(completion.id or "")),
        )


def served_revision(extra_body: Mapping[str, Any]) -> str:
    """What of a served model is known beside its name; empty for nothing."""
    return json.dumps(extra_body, sort_keys=True) if extra_body else ""


def _sampling_arguments(sampling: Sampling, more: Mapping[str, Any]) -> dict[str, Any]:
    """All that was set; what the OpenAI API does not know travels in the extra body."""
    extra = {
        "top_k": sampling.top_k or None,
        "min_p": sampling.min_p or None,
        "repetition_penalty": None
        if sampling.repetition_penalty == 1.0
        else sampling.repetition_penalty,
    }
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "extra_body": {**more, **{key: value for key, value in extra.items() if value is not None}},
    }


def _failed(failure: Failure, text: str, seconds: float) -> Response:
    return Response(
        finish_reason="error",
        failure=failure,
        error=_encodable(text[:2000]),
        latency_s=seconds,
    )


def _counts(usage: CompletionUsage | None) -> tuple[int, int]:
    """(prompt tokens, completion tokens); -1 for a count that is not there."""
    if usage is None:
        return -1, -1
    # The library does not check what a server sends, so a count may be null or a text.
    prompt, completion = (
        count if isinstance(count, int) else -1
        for count in (usage.prompt_tokens, usage.completion_tokens)
    )
    return prompt, completion


def _encodable(text: str) -> str:
    """JSON can carry half of a surrogate pair, which nothing can store; it becomes ``?``."""
    return text.encode("utf-8", "replace").decode("utf-8")
