"""Parses one chat completion, whole or as a stream, into responses.

The thinking is taken from ``reasoning_content`` or ``reasoning``, from thinking blocks in the
content, or from the text between the model's tags. A token count that is missing or is not a number
is unknown (-1), never zero. A choice that cannot be read makes that sample fail; a body that is not
a completion makes all samples of the request fail.

The openai library's parser is not used: it builds an object for every piece, which takes more than
one core for hundreds of streams, and it does not read the thinking. Here a piece that differs from
an earlier one in its text alone is not parsed as JSON (``events``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from heavydistill.config.files import json_of
from heavydistill.errors import encodable
from heavydistill.models.http.events import RepeatedEvent
from heavydistill.models.http.failures import OverrunError, ServerFault, failure_of
from heavydistill.models.http.finish_reasons import ended, failure_of_end, stopped_for
from heavydistill.models.http.replies import (
    UNKNOWN,
    Redactor,
    message_of,
    only_error,
    status_of,
    token_counts,
)
from heavydistill.models.request import Response
from heavydistill.models.thinking import Tags, split_reasoning, without_opening
from heavydistill.models.tool_calls import CallPieces
from heavydistill.schema import Failure, FinishReason

Place = Literal["reasoning_content", "reasoning", "blocks", "tags", "none"]
"""Part of a response in which the thinking was found; see
``config.models.Capabilities.reasoning``."""
_MOST_REFUSAL = 2000  # characters
# Longer samples are not equal by chance; as in ``metrics.problem_figures``.
_NO_CHANCE = 200
# Maximum mean number of characters per token; a token count that implies more is too small.
MOST_CHARACTERS_OF_A_TOKEN = 8
_DATA, _DONE = b"data:", b"[DONE]"
# Events that are remembered at a time: thinking and answer of several choices. A stream whose
# events never repeat, because they have a time or number of their own, is soon parsed at once.
_MOST_REPEATED, _MOST_TRIED = 8, 32
_REASONING: dict[str, Place] = {
    "reasoning_content": "reasoning_content",
    "reasoning": "reasoning",
    "reasoning_details": "blocks",
}
_TEXTS = ("content", "reasoning_content", "reasoning")  # fields whose text is taken as it is
# Columns that say who answered, and the fields of a reply that they are read from.
_NAMES = {"served_model": "model", "host": "provider", "system_fingerprint": "system_fingerprint"}
_THINKING_BLOCKS = ("thinking", "reasoning", "reasoning.text", "reasoning.summary")
# A reply is cut off after this many bytes for each token of max_tokens, plus a constant. No correct
# server reaches the limit: the longest known tokens have 128 characters, each of which may be
# escaped with six bytes; the probabilities of 20 alternative tokens take about two thousand bytes;
# some gateways split a stream into single characters; some servers send empty pieces while a model
# thinks.
_BYTES_A_TOKEN, _MORE_BYTES = 4096, 2**20
LONGEST_CONTEXT = 2**20  # assumed limit in tokens if no ``max_tokens`` is sent


@dataclass(slots=True)
class _Choice:
    """The received part of a choice; ``fault`` says which part of it cannot be read."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    calls: CallPieces = field(default_factory=CallPieces)
    place: Place = "blocks"  # Part in which ``reasoning`` was found
    finish_reason: str = ""
    usage: dict[str, Any] = field(default_factory=dict)  # where Moonshot's API has it
    error: ServerFault | None = None
    fault: str = ""
    characters: int = 0  # of all texts and calls

    @property
    def texts(self) -> tuple[list[str], ...]:
        return self.text, self.reasoning, self.refusal, self.calls.texts

    def add(self, message: object) -> None:
        """Add a message, or a streamed piece of one, to this choice."""
        if not isinstance(message, dict):
            self.fault = "a choice without a message"
            return
        if name := next((name for name in _REASONING if message.get(name)), None):
            self.place = _REASONING[name]
            self._take(message[name], self.reasoning)
        content = message.get("content")
        for block in content if isinstance(content, list) else [content]:
            thinks = isinstance(block, dict) and block.get("type") in _THINKING_BLOCKS
            self._take(block, self.reasoning if thinks else self.text)
        self._take(message.get("refusal"), self.refusal)
        if calls := message.get("tool_calls"):
            self.characters += self.calls.add(calls)

    def add_text(self, name: str, text: str) -> None:
        """Add the text of a streamed piece whose field ``name`` alone brings any."""
        place = _REASONING.get(name)
        if place and text:
            self.place = place
        (self.reasoning if place else self.text).append(text)
        self.characters += len(text)

    def _take(self, block: object, into: list[str]) -> None:
        if isinstance(block, str | list | dict):
            into.append(_text(block))
            self.characters += len(into[-1])
        elif block is not None:
            self.fault = f"a value of type {type(block).__name__} in place of a text"


class ChatCompletion:
    """The reply to one request, with one or several choices.

    Args:
        is_seeded: Whether a seed was sent.
        most_tokens: The ``max_tokens`` that was sent, times the number of samples.
        redact: Removes the key from the server's error messages, ids and finish reasons.
        ends: Meaning of the server's finish reasons that `heavydistill doctor` measured.
        has_tools: Whether tools were sent. If not, a tool call is no answer.
    """

    def __init__(
        self,
        is_seeded: bool = True,
        most_tokens: int = LONGEST_CONTEXT,
        redact: Redactor | None = None,
        ends: Mapping[str, FinishReason] | None = None,
        has_tools: bool = False,
    ) -> None:
        self._ends, self._has_tools = ends or {}, has_tools
        self._is_seeded, self._redact = is_seeded, redact or Redactor()
        self._most_tokens = most_tokens
        self.most_bytes = most_tokens * _BYTES_A_TOKEN + _MORE_BYTES  # limit of a body or stream
        self.pieces = self._bytes = self._characters = 0  # counts of a stream
        self._repeated: list[tuple[RepeatedEvent, _Choice, str]] = []  # with the text's field
        self._tried = 0  # number of events that were remembered
        self._unended: list[bytes] = []  # received part of the last line
        self._id = ""
        self._names: dict[str, Any] = {}  # what the reply says of who answered
        self._usage: dict[str, object] = {}
        self._choices: dict[int, _Choice] = {}
        self.is_whole = False  # whether the end has arrived
        # Whether the reported usage cannot cover all samples (llama.cpp counts the tokens of one).
        # The number of completion tokens is then unknown.
        self.is_undercounted = False
        self.heard_at = -math.inf  # event loop time at which the last piece arrived
        self._taken = 0, 0  # number of pieces of thinking and text that ``new_texts`` has returned

    def add_whole(self, body: bytes) -> None:
        """Read a completion that was not streamed.

        Raises:
            ServerFault: The body is an error message.
            ValueError: The body is not a completion.
        """
        self._take(json_of(body), is_piece=False)
        self.is_whole = True

    def add_bytes(self, read: bytes) -> bool:
        """Read bytes of a stream; returns whether they brought a piece with text.

        Raises:
            OverrunError: The stream is far longer than ``max_tokens`` allows.
            ServerFault, ValueError: As ``add_line`` raises.
        """
        before = self._characters
        if not self._add_repeated(read):
            *lines, rest = read.split(b"\n")
            if lines:
                lines[0] = b"".join((*self._unended, lines[0]))
                self._unended = []
            if rest:
                self._unended.append(rest)
            for line in lines:
                self.add_line(line)
        self._bytes += len(read)
        if self._bytes > self.most_bytes:
            raise self.overrun(unread=sum(map(len, self._unended)))
        return self._characters > before

    def _add_repeated(self, read: bytes) -> bool:
        """Read bytes of a stream that only repeat its last event; returns whether they do."""
        if self.is_whole or self._unended or not self._repeated:
            return False
        event, choice, name = self._repeated[0]
        if found := event.text_of_all(read):
            self._add_text(choice, name, *found)
        return found is not None

    def _add_text(self, choice: _Choice, name: str, text: str, pieces: int = 1) -> None:
        choice.add_text(name, text)
        self._characters += len(text)
        self.pieces += pieces

    def add_line(self, line: bytes) -> None:
        """Read a line of a stream of server-sent events; ignored after the end of the stream.

        Raises:
            ServerFault: The server reports an error.
            ValueError: The line is not a piece of a completion.
        """
        # Other lines are empty, or comments that keep the connection alive.
        if self.is_whole or not line.startswith(_DATA):
            return
        for event, choice, name in self._repeated:
            if (text := event.text_in(line)) is not None:
                self._add_text(choice, name, text)
                return
        data = line[len(_DATA) :].strip()
        if data == _DONE:
            self.is_whole = True
        else:
            body = json_of(data)
            self._take(body, is_piece=True)
            self.pieces += 1
            self._characters = sum(choice.characters for choice in self._choices.values())
            if self._tried < _MOST_TRIED and (name := _only_text(body)):
                self._remember(line, body["choices"][0], name)

    def new_texts(self) -> tuple[str, str]:
        """The (thinking, text) of the first choice that arrived since the last call."""
        first, (thought, written) = self._choices.get(0, _Choice()), self._taken
        self._taken = _whole(first.reasoning), _whole(first.text)
        new = first.reasoning[thought : self._taken[0]], first.text[written : self._taken[1]]
        return encodable("".join(new[0])), encodable("".join(new[1]))

    def _remember(self, line: bytes, choice: dict[str, Any], name: str) -> None:
        """Recognise later events that differ from this one in the text ``name`` alone."""
        if event := RepeatedEvent.around(line, name, choice["delta"][name]):
            known = self._choices[_index(choice.get("index"), 0)]
            self._repeated = [(event, known, name), *self._repeated][:_MOST_REPEATED]
            self._tried += 1

    def overrun(self, unread: int) -> OverrunError:
        """The error for a reply with too many bytes, of which ``unread`` are not parsed yet."""
        texts = ("".join(parts) for choice in self._choices.values() for parts in choice.texts)
        # A token has at least one byte; tokens without text, such as control tokens, are not sent.
        came = unread + sum(len(text.encode("utf-8", "replace")) for text in texts)
        return OverrunError(
            f"cut off, as the server goes on past {self._most_tokens:,} tokens: more than "
            f"{self.most_bytes:,} bytes came",
            max(came, self._most_tokens),
        )

    @property
    def place(self) -> Place:
        """Where the thinking of the first choice was found; text between tags is not searched."""
        first = self._choices.get(min(self._choices, default=0))
        return first.place if first and "".join(first.reasoning).strip() else "none"

    @property
    def counts(self) -> tuple[int, int, int]:
        """(prompt, completion, cached) tokens of the whole request as reported; -1: unknown."""
        of_choices = [choice.usage for choice in self._choices.values() if choice.usage]
        each = [token_counts(usage) for usage in ([self._usage] if self._usage else of_choices)]
        if not each:
            return UNKNOWN, UNKNOWN, UNKNOWN
        prompt, _, cached = each[0]
        written = [completion for _, completion, _ in each]
        return prompt, sum(written) if min(written) >= 0 else UNKNOWN, cached

    def choices(self, tags: Tags | None, seconds: float) -> list[Response]:
        """A response for each choice, in order, without token counts."""
        return [self._response(self._choices[n], tags, seconds) for n in sorted(self._choices)]

    def responses(self, most: int, tags: Tags | None, seconds: float) -> list[Response]:
        """A response for each choice, at most ``most``; a single failure if there are no choices.

        Copies are dropped: choices that are all equal, or a long choice that equals an earlier one.
        Servers that draw all choices with the same seed return copies.
        """
        read = self.choices(tags, seconds)[:most]
        if read:
            return self._counted(_without_copies(read))
        kind: Failure = "malformed" if self.is_whole else "cut_off"
        return self._counted([failed(kind, "the server answered without choices", seconds)])

    def before_fault(self, wanted: int, tags: Tags | None, fault: Response) -> list[Response]:
        """``wanted`` responses: the choices completed before a fault, then copies of ``fault``."""
        if not any(choice.finish_reason for choice in self._choices.values()):
            return [fault] * wanted
        read = self.responses(wanted, tags, fault.latency_s)
        return read + [fault] * (wanted - len(read))

    def _take(self, body: object, is_piece: bool) -> None:
        body = only_error(body)
        if not isinstance(body, dict):
            raise ValueError("the server answered without a JSON object")
        choices = [] if body.get("choices") is None else body["choices"]
        if not isinstance(choices, list):
            raise ValueError("the server answered with choices that are not a list")
        self._id = self._id or self._redact("" if (own := body.get("id")) is None else own)
        for column, name in _NAMES.items():
            if named := body.get(name):
                self._names.setdefault(column, self._redact(named))
        if isinstance(usage := body.get("usage"), dict):
            self._usage = usage or self._usage
        self._take_choices(choices, is_piece)
        # Older vLLM and SGLang send an error without the field "error".
        if error := body.get("error") or (body.get("object") == "error" and body):
            message = self._redact(message_of(error))
            fault = ServerFault(message, status_of(error), is_midway=is_piece)
            for known in self._choices.values():
                if failure_of_end(known.finish_reason) == "server":
                    known.error = fault
            raise fault

    def _take_choices(self, choices: list[object], is_piece: bool) -> None:
        indices = [choice.get("index") if isinstance(choice, dict) else None for choice in choices]
        is_distinct = all(type(n) is int for n in indices) and len(set(indices)) == len(indices)
        if not is_piece and not is_distinct:
            indices = [None] * len(choices)  # all choices are in one list, so positions are indices
        for position, (index, choice) in enumerate(zip(indices, choices, strict=True)):
            known = self._choices.setdefault(_index(index, position), _Choice())
            if not isinstance(choice, dict):
                known.fault = "a choice that is not a JSON object"
                continue
            message = choice.get("delta") or {} if is_piece else choice.get("message")
            known.add(message)
            if end := choice.get("finish_reason"):
                known.finish_reason = self._redact(end)
            if isinstance(usage := choice.get("usage"), dict):
                known.usage = usage or known.usage
            if error := choice.get("error"):
                message = self._redact(message_of(error))
                known.error = ServerFault(message, status_of(error), is_midway=False)

    def _response(self, choice: _Choice, tags: Tags | None, seconds: float) -> Response:
        text = encodable("".join(choice.text))
        thinking, answer_text = encodable("".join(choice.reasoning)), text.strip()
        reasoning = without_opening(thinking, tags)
        if not reasoning:
            reasoning, answer_text = split_reasoning(text, tags)
        end = choice.finish_reason
        if choice.error:
            return failed(failure_of(choice.error), str(choice.error), seconds)
        if kind := failure_of_end(end):
            return failed(kind, stopped_for(end), seconds)
        if choice.fault:
            return failed("malformed", f"the server answered with {choice.fault}", seconds)
        if not end:
            return failed("cut_off", "the response ended without a finish reason", seconds)
        if (refusal := "".join(choice.refusal)) and not text:
            refused = self._redact(f"the model refused: {refusal}", _MOST_REFUSAL)
            return failed("refused", refused, seconds)
        response = Response(
            reasoning=reasoning,
            answer_text=answer_text,
            finish_reason="stop",
            latency_s=seconds,
            request_id=self._id,
            **self._names,
        )
        read = ended(response, end, self._ends, has_field=bool(choice.reasoning))
        if not self._has_tools or read.finish_reason == "length":  # a call that is cut off is none
            return read
        if choice.calls.is_broken:
            broken = "the server answered with a tool call of another form"
            return failed("malformed", broken, seconds)
        calls = choice.calls.whole()
        return replace(response, calls=calls) if calls else read

    def _counted(self, responses: list[Response]) -> list[Response]:
        """The responses with token counts: the exact sum, divided among several by length."""
        prompt, completion, cached = self.counts
        written = sum(len(r.reasoning) + len(r.answer_text) for r in responses)
        lengths = [len(r.reasoning) + len(r.answer_text) or 1 for r in responses]
        if 0 <= completion * MOST_CHARACTERS_OF_A_TOKEN < sum(lengths):
            self.is_undercounted = len(responses) > 1
            if self.is_undercounted or sum(lengths) >= _NO_CHANCE or (written and not completion):
                completion = UNKNOWN
        shares = [UNKNOWN] * len(lengths)
        if completion >= 0:  # integer shares by length, with the exact sum
            ends = [completion * sum(lengths[:n]) // sum(lengths) for n in range(len(lengths) + 1)]
            shares = [end - start for start, end in itertools.pairwise(ends)]
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


def failed(failure: Failure, text: str, seconds: float) -> Response:
    """Create the response of a request that failed."""
    return Response(finish_reason="error", failure=failure, error=text, latency_s=seconds)


def _without_copies(responses: list[Response]) -> list[Response]:
    """The responses without copies; equal short responses are kept, because they may be chance."""
    first = responses[0]
    if first.failure is None and all(response == first for response in responses):
        return [first]
    seen: set[Response] = set()
    kept = []
    for response in responses:
        is_long = len(response.reasoning) + len(response.answer_text) >= _NO_CHANCE
        if response not in seen or not is_long:
            kept.append(response)
        seen.add(response)
    return kept


def _whole(pieces: list[str]) -> int:
    """The number of pieces without a last one that ends with the first half of a character."""
    ends_in_half = pieces and "\ud800" <= pieces[-1][-1:] <= "\udbff"
    return len(pieces) - bool(ends_in_half)


def _index(index: object, position: int) -> int:
    """The index of the choice to which a piece belongs; ``position`` if it states none."""
    if index is None:
        return position
    if type(index) is not int:
        raise ValueError("the server answered with a choice whose index is not a number")
    return index


def _only_text(body: dict[str, Any]) -> str:
    """The field of a piece's text, if the piece brings nothing but one text for one choice."""
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    delta = choice.get("delta") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(delta, dict):
        return ""
    if any(map(body.get, ("usage", "error"))):
        return ""
    if any(map(choice.get, ("finish_reason", "usage", "error"))):
        return ""
    brings = [name for name, value in delta.items() if value and name != "role"]
    is_text = len(brings) == 1 and brings[0] in _TEXTS and isinstance(delta[brings[0]], str)
    return brings[0] if is_text else ""


def _text(block: str | list[object] | dict[str, object]) -> str:
    """The text of a content block, with blocks nested to any depth."""
    texts: list[str] = []
    pending: list[object] = [block]
    while pending:
        inner = pending.pop()
        if isinstance(inner, str):
            texts.append(inner)
        elif isinstance(inner, list):
            pending.extend(reversed(inner))
        elif isinstance(inner, dict):
            names = ("text", "thinking", "content", "summary")
            pending.append(next((inner[name] for name in names if inner.get(name)), ""))
    return "".join(texts)
