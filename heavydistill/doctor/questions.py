"""Small requests to an OpenAI-compatible server, and their answers as they came over the wire.

Bodies are read as JSON and not through the types of a library, since what is looked for is where
servers differ. A request that the server refuses for what is in it is an answer; a server that
cannot be asked at all is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from heavydistill.config.models import Endpoint, Sampling
from heavydistill.errors import TeacherError
from heavydistill.models.capabilities import Context
from heavydistill.models.http.completion import split_reasoning
from heavydistill.models.http.reply import UNKNOWN, Redactor, count
from heavydistill.models.profiles import Profile
from heavydistill.models.request import user_turn

if TYPE_CHECKING:
    from openai import APIResponse

Place = Literal["reasoning_content", "reasoning", "blocks", "tags", "none"]

_FIELDS: tuple[Place, ...] = ("reasoning_content", "reasoning")
_NOT_OF_THE_REQUEST = (401, 402, 403, 408, 429, 503, 529)  # the key, the bill, the load


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    """Message of each choice; the pieces of a stream are put together."""
    finishes: list[Any] = field(default_factory=list)
    """Why each choice ended, as the server calls it."""
    usage: dict[str, Any] = field(default_factory=dict)
    """Counts of tokens, as the server calls them; empty if it sent none."""
    headers: dict[str, str] = field(default_factory=dict)  # Their names in small letters
    pieces: int = 0  # In how many pieces the text came; 0 if it came whole
    refusal: str = ""  # The server's words where it refused the request; then all else is empty

    @property
    def counts(self) -> tuple[int, int] | None:
        """(prompt tokens, completion tokens), if the server counted both."""
        found = count(self.usage.get("prompt_tokens")), count(self.usage.get("completion_tokens"))
        return None if UNKNOWN in found else found


class Asker:
    """Asks one model at one address, and counts what that costs.

    Attributes:
        length_name: What the server calls the most tokens of a response.
        requests: Sent so far, repeats by the library left out.
        prompt_tokens: Read so far, as far as the server counted them.
        completion_tokens: Written so far, likewise.
    """

    def __init__(self, model: str, endpoint: Endpoint) -> None:
        from openai import OpenAI

        self.length_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
        self.requests = self.prompt_tokens = self.completion_tokens = 0
        self._model = model
        self._url = endpoint.base_url
        self._key_env = endpoint.key_env
        self._key = endpoint.key
        self._redact = Redactor(self._key)
        self._client = OpenAI(
            base_url=endpoint.base_url,
            api_key=self._key or "none",
            timeout=endpoint.timeout_s,
            max_retries=endpoint.retries,
        )

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *raised: object) -> None:
        self._client.close()

    def ask(self, prompt: str, max_tokens: int, parameters: Mapping[str, Any]) -> Answer:
        """Ask once.

        Raises:
            TeacherError: The server cannot be asked, or answers with what is no completion.
        """
        from openai import APIConnectionError, APIStatusError

        self.requests += 1
        send = self._client.chat.completions.with_streaming_response.create
        body = {**parameters, self.length_name: max_tokens}
        try:
            with send(model=self._model, messages=user_turn(prompt), extra_body=body) as reply:  # type: ignore[arg-type]
                answer = self._read(reply)
        except APIStatusError as error:
            if error.status_code in _NOT_OF_THE_REQUEST:
                raise self._unasked(error) from None
            answer = Answer(refusal=str(error))
        except APIConnectionError as error:
            raise self._unasked(error) from None
        prompt_tokens, completion_tokens = answer.counts or (0, 0)
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        finishes = [end if end is None else self._redact(end) for end in answer.finishes]
        return replace(answer, refusal=self._redact(answer.refusal), finishes=finishes)

    def useless(self, answer: Answer) -> TeacherError:
        """The error of a server that refuses what no run can do without."""
        return TeacherError(
            f"{self._url} refuses a plain request to {self._model}: {answer.refusal}",
            "Correct the address or the name of the model.",
        )

    def _read(self, reply: APIResponse[Any]) -> Answer:
        headers = {name.lower(): value for name, value in reply.headers.items()}
        try:
            if "event-stream" in headers.get("content-type", ""):
                return _gathered(_events(reply), headers)
            body = json.loads(reply.read())
            if "choices" not in body and "error" in body:
                return Answer(refusal=json.dumps(body["error"]))
            choices = body["choices"]
            if not choices:
                raise ValueError("no choices")
            return Answer(
                messages=[dict(choice["message"]) for choice in choices],
                finishes=[choice.get("finish_reason") for choice in choices],
                usage=dict(body.get("usage") or {}),
                headers=headers,
            )
        except Exception as error:  # no JSON, another shape, or cut off: the HTTP library's own
            raise TeacherError(
                f"{self._url} answered with what is no chat completion: "
                f"{self._redact(f'{type(error).__name__}: {error}')}",
                "Check the address: it ends in /v1 as a rule.",
            ) from None

    def _unasked(self, error: Exception) -> TeacherError:
        status = getattr(error, "status_code", None)
        if status in (401, 403):
            return TeacherError(
                f"{self._url} refuses the key in {self._key_env} ({status})"
                f"{'' if self._key else ', which is not set'}",
                f"Set {self._key_env} to a valid key that may use {self._model}.",
            )
        return TeacherError(
            f"{self._url} could not be asked ({type(error).__name__}): {self._redact(str(error))}",
            "Run the same command again when the server answers.",
        )


def thinking_in(message: Mapping[str, Any], tags: tuple[str, str] | None) -> tuple[Place, str, str]:
    """(where the thinking is, the thinking, the answer) of a message as it came."""
    content = message.get("content") or ""
    blocks = content if isinstance(content, list) else []
    text = "".join(_block(block, "text") for block in blocks) if blocks else str(content)
    for place in _FIELDS:
        if thinking := str(message.get(place) or "").strip():
            return place, thinking, text.strip()
    if thinking := "".join(_block(b, "thinking") + _block(b, "reasoning") for b in blocks).strip():
        return "blocks", thinking, text.strip()
    thinking, answer = split_reasoning(text, tags)
    return ("tags" if thinking else "none"), thinking, answer


def _block(block: Any, kind: str) -> str:
    """The text of a part of a content list, if it is of that kind."""
    if not isinstance(block, dict) or block.get("type") != kind:
        return ""
    inside = block.get(kind) or block.get("text") or ""
    return "".join(_block(b, "text") for b in inside) if isinstance(inside, list) else str(inside)


def _events(reply: APIResponse[Any]) -> Iterator[dict[str, Any]]:
    for line in reply.iter_lines():
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data != "[DONE]":
            yield json.loads(data)


def _gathered(events: Iterator[dict[str, Any]], headers: dict[str, str]) -> Answer:
    messages: dict[int, dict[str, Any]] = {0: {}}
    finishes: dict[int, Any] = {}
    usage: dict[str, Any] = {}
    pieces = 0
    for event in events:
        if "error" in event:
            return Answer(refusal=json.dumps(event["error"]))
        usage = event.get("usage") or usage
        for position, choice in enumerate(event.get("choices") or []):
            index = choice.get("index", position)
            message = messages.setdefault(index, {})
            delta = choice.get("delta") or {}
            finishes[index] = choice.get("finish_reason") or finishes.get(index)
            texts = {key: value for key, value in delta.items() if key != "role" and value}
            pieces += bool(texts)
            for key, value in texts.items():
                if isinstance(value, str | list):
                    message[key] = message[key] + value if key in message else value
    return Answer(
        messages=list(messages.values()),
        finishes=[finishes.get(index) for index in messages],
        usage=dict(usage),
        headers=headers,
        pieces=pieces,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminedModel:
    """A served model and what a run wants of it."""

    profile: Profile  # Profile of the model
    samplings: list[Sampling]  # Sampling of each role that the model has in the run
    context: Context  # The context that is known without asking the server
    prompt: str  # Prompt of a thinker, with a problem that takes little thinking
    parser: str | None = None  # vLLM's reasoning parser for it, if it has one
    hosted: bool = False  # Whether a provider serves it, so that nobody here can restart the server

    @property
    def parameters(self) -> dict[str, Any]:
        """All that the run sends beside the messages and the length, the dearest first."""
        sent: dict[str, Any] = dict(self.profile.extra_body)
        for sampling in self.samplings:
            sent |= {"temperature": sampling.temperature, "seed": 1, "top_p": sampling.top_p}
            for name, off in (("top_k", 0), ("min_p", 0.0), ("repetition_penalty", 1.0)):
                if (value := getattr(sampling, name)) != off:
                    sent[name] = value
        return sent

    @property
    def max_tokens(self) -> int:
        return max(sampling.max_tokens for sampling in self.samplings)
