"""Reads one chat completion from the wire, whole or in pieces, into responses.

Servers do not agree on where the thinking goes; it is taken from ``reasoning_content`` or
``reasoning``, from thinking blocks among the blocks of the content, or from the text between the
model's tags. What a server left out is unknown (-1), never zero.

The openai library's own reader is not used: it builds a model of every piece, which for hundreds
of streams costs more than a core, and it knows no reasoning.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from heavydistill.engine.reasoning import split_reasoning
from heavydistill.engine.request import Response
from heavydistill.schema import Failure

_DATA, _DONE = b"data:", b"[DONE]"
_REASONING = ("reasoning_content", "reasoning")
_THINKING_BLOCKS = ("thinking", "reasoning", "reasoning.text", "reasoning.summary")
# What else providers call the end of a response; of all that is not here nobody knows whether the
# text is whole.
_FAILED_ENDS: dict[str, Failure] = {
    "content_filter": "filtered",
    "sensitive": "filtered",
    "insufficient_system_resource": "overloaded",
    "network_error": "server",
    "error": "server",
}
# A stream is cut off at so much for each token of max_tokens, and so much more, which no honest
# server reaches: the longest known tokens are runs of 128 characters, some gateways cut a stream
# into single characters, and some send empty pieces while a model thinks.
_CHARACTERS_A_TOKEN, _MORE_CHARACTERS = 256, 2**16
_PIECES_A_TOKEN, _MORE_PIECES = 16, 4096
# The same for the bytes of a body or a line: escapes take six a character, and the probabilities
# of 20 other tokens take about two thousand.
_BYTES_A_TOKEN, _MORE_BYTES = 4096, 2**20
LONGEST_CONTEXT = 2**20  # tokens, where no ``max_tokens`` is sent


class OverrunError(Exception):
    """A reply goes on far past the ``max_tokens`` of its request.

    Args:
        what: How far.
        tokens: Most tokens that it can have had so far.
    """

    def __init__(self, what: str, tokens: int) -> None:
        super().__init__(what)
        self.tokens = tokens


class ServerFault(Exception):
    """What a server says in the middle of a stream instead of its next piece.

    Args:
        error: Its object or text.
    """

    def __init__(self, error: Any) -> None:
        told = error if isinstance(error, dict) else {"message": error}
        super().__init__(str(told.get("message") or error))
        code = told.get("code")
        self.status = code if isinstance(code, int) else 500


@dataclass(slots=True)
class _Choice:
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    finish_reason: Any = None

    @property
    def texts(self) -> tuple[list[str], ...]:
        return self.text, self.reasoning, self.refusal

    def add(self, message: dict[str, Any], finish_reason: str | None) -> int:
        """Take a message, or a piece of one; returns the number of its characters."""
        before = [len(parts) for parts in self.texts]
        for name in _REASONING:
            if thinking := message.get(name):
                self.reasoning.append(_text(thinking))
                break
        else:
            self.reasoning.extend(map(_text, message.get("reasoning_details") or ()))
        content = message.get("content")
        if isinstance(content, str):
            self.text.append(content)
        elif content:
            for block in content:
                thinks = isinstance(block, dict) and block.get("type") in _THINKING_BLOCKS
                (self.reasoning if thinks else self.text).append(_text(block))
        if refusal := message.get("refusal"):
            self.refusal.append(_text(refusal))
        self.finish_reason = finish_reason or self.finish_reason
        return sum(
            len(part)
            for parts, start in zip(self.texts, before, strict=True)
            for part in parts[start:]
        )


class Completion:
    """What one request brought.

    Args:
        is_seeded: Whether a seed was sent with it.
        most_tokens: The ``max_tokens`` that was sent, times the number of samples.

    Attributes:
        is_whole: Whether its end has come.
        most_bytes: Most bytes of its body, or of a line of its stream.
    """

    def __init__(self, is_seeded: bool = True, most_tokens: int = LONGEST_CONTEXT) -> None:
        self._is_seeded = is_seeded
        self._most_tokens = most_tokens
        self.most_bytes = most_tokens * _BYTES_A_TOKEN + _MORE_BYTES
        self._pieces, self._characters = 0, 0
        self._id = ""
        self._usage: dict[str, Any] = {}
        self._choices: dict[int, _Choice] = {}
        self.is_whole = False

    def add_whole(self, body: dict[str, Any]) -> None:
        """Take a completion that came in one piece."""
        self._take(body, "message")
        self.is_whole = True

    def add_line(self, line: bytes) -> bool:
        """Take a line of a stream of server-sent events; whether it held a piece.

        Raises:
            OverrunError: It goes on far past ``max_tokens``.
            ServerFault: The server says that it failed.
            ValueError: A piece is no JSON.
        """
        if not line.startswith(_DATA):  # nothing, or a comment that keeps the connection alive
            return False
        data = line[len(_DATA) :].strip()
        if data == _DONE:
            self.is_whole = True
            return True
        piece = json.loads(data)
        if piece.get("error"):
            raise ServerFault(piece["error"])
        self._take(piece, "delta")
        self._check_length()
        return True

    def overrun(self, what: str, unread: int = 0) -> OverrunError:
        """The error for a reply that goes on too long.

        Args:
            what: How much of it came, e.g. ``more than 9 pieces``.
            unread: Bytes that came and are not yet among its texts.
        """
        texts = ("".join(parts) for choice in self._choices.values() for parts in choice.texts)
        # A token is at least a byte, and there may be some that are not sent.
        came = unread + sum(len(text.encode("utf-8", "replace")) for text in texts)
        return OverrunError(
            f"cut off, as the server goes on past {self._most_tokens:,} tokens: {what} came",
            max(came, self._most_tokens),
        )

    def responses(
        self, wanted: int, tags: tuple[str, str] | None, seconds: float
    ) -> list[Response]:
        """A response for each choice, at most ``wanted``; one failure if there is none.

        Choices that are all the same are one: a server that draws them with one seed copies.

        Args:
            wanted: How many were asked for.
            tags: Of thinking that is left in the text.
            seconds: That the request took.
        """
        if not self._choices:
            kind: Failure = "malformed" if self.is_whole else "cut_off"
            nothing = failed(kind, "the server answered without choices", seconds)
            return self._counted([nothing])
        chosen = [self._choices[index] for index in sorted(self._choices)][:wanted]
        read = [self._response(choice, tags, seconds) for choice in chosen]
        if read[0].failure is None and all(response == read[0] for response in read):
            read = read[:1]
        return self._counted(read)

    def brought(self, wanted: int, tags: tuple[str, str] | None, fault: Response) -> list[Response]:
        """A response for each of ``wanted``, after a fault: the choices that had ended before it.

        Args:
            wanted: How many were asked for.
            tags: Of thinking that is left in the text.
            fault: In place of the others.
        """
        if not any(choice.finish_reason for choice in self._choices.values()):
            return [fault] * wanted
        read = self.responses(wanted, tags, fault.latency_s)
        return read + [fault] * (wanted - len(read))

    def _take(self, piece: dict[str, Any], name: str) -> None:
        self._id = self._id or _encodable(str(piece.get("id") or ""))
        self._usage = piece.get("usage") or self._usage
        for position, choice in enumerate(piece.get("choices") or ()):
            known = self._choices.setdefault(choice.get("index", position), _Choice())
            self._characters += known.add(choice[name] or {}, choice.get("finish_reason"))

    def _check_length(self) -> None:
        self._pieces += 1
        most = self._most_tokens * _PIECES_A_TOKEN + _MORE_PIECES
        if self._pieces > most:
            raise self.overrun(f"more than {most:,} pieces")
        most = self._most_tokens * _CHARACTERS_A_TOKEN + _MORE_CHARACTERS
        if self._characters > most:
            raise self.overrun(f"more than {most:,} characters")

    def _response(self, choice: _Choice, tags: tuple[str, str] | None, seconds: float) -> Response:
        text = _encodable("".join(choice.text))
        reasoning, answer_text = _encodable("".join(choice.reasoning)), text.strip()
        if not reasoning:
            reasoning, answer_text = split_reasoning(text, tags)
        end = choice.finish_reason
        if end is None:
            return failed("cut_off", "the response ended without a finish reason", seconds)
        if kind := _FAILED_ENDS.get(end):
            return failed(kind, f"the server stopped for {end!r}", seconds)
        if (refusal := "".join(choice.refusal)) and not text:
            return failed("refused", f"the model refused: {refusal}", seconds)
        is_known = end in ("stop", "length")
        return Response(
            reasoning=reasoning,
            answer_text=answer_text,
            finish_reason=end if is_known else "error",
            error=None if is_known else _encodable(f"the server stopped for {end!r}"),
            failure=None if is_known else "unknown_end",
            latency_s=seconds,
            request_id=self._id,
        )

    def _counted(self, responses: list[Response]) -> list[Response]:
        """The responses with their tokens: exact in all, divided by length among several."""
        prompt, completion = map(self._count, ("prompt_tokens", "completion_tokens"))
        details = self._usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        if not isinstance(cached, int):
            cached = self._count("prompt_cache_hit_tokens")
        lengths = [len(r.reasoning) + len(r.answer_text) or 1 for r in responses]
        shares = _divided(completion, lengths)
        return [
            replace(
                response,
                prompt_tokens=min(prompt, 0) if position else prompt,
                completion_tokens=share,
                cached_tokens=min(cached, 0) if position else cached,
                is_seeded=self._is_seeded and position == 0,
            )
            for position, (response, share) in enumerate(zip(responses, shares, strict=True))
        ]

    def _count(self, name: str) -> int:
        count = self._usage.get(name)
        return count if isinstance(count, int) else -1


def failed(failure: Failure, text: str, seconds: float) -> Response:
    """A response that is none."""
    return Response(
        finish_reason="error",
        failure=failure,
        error=_encodable(text[:2000]),
        latency_s=seconds,
    )


def _divided(total: int, weights: list[int]) -> list[int]:
    """``total`` in whole shares by weight, which add up to it; unknown stays unknown."""
    if total < 0:
        return [-1] * len(weights)
    ends = [total * sum(weights[: i + 1]) // sum(weights) for i in range(len(weights))]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def _text(block: Any) -> str:
    """The text of a block of content, however deep it lies."""
    if isinstance(block, dict):
        names = ("text", "thinking", "content", "summary")
        return next((_text(block[name]) for name in names if block.get(name)), "")
    if isinstance(block, list):
        return "".join(map(_text, block))
    return block if isinstance(block, str) else ""


def _encodable(text: str) -> str:
    """JSON can carry half of a surrogate pair, which nothing can store; it becomes ``?``."""
    return text.encode("utf-8", "replace").decode("utf-8")
