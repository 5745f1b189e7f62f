"""An OpenAI-compatible server with habits and faults: real HTTP on the loopback, real streams.

A plan says for each request and attempt what goes wrong. What is answered in full is on the bill
with the tokens that the server reports, and so is nothing else.
"""

import contextlib
import itertools
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fake_clock import now, rest
from loopback import Handler, listening

Body = dict[str, Any]
# What goes wrong with a request; None is nothing.
Plan = Callable[[Body, int], str | None]

MODEL = "served"
ERRORS = {
    "busy": (429, {}, "Rate limit reached"),
    "busy for": (429, {}, "Rate limit reached"),
    "busy, wait": (429, {"Retry-After": "1"}, "Rate limit reached"),
    "starting": (503, {}, "The model is loading"),
    "broken": (500, {}, "Internal error"),
    "gateway": (502, {}, "Bad gateway"),
    "forbidden": (403, {}, "This key may not"),
    "unknown": (404, {}, "No such model"),
    "too long": (400, {}, "This model's maximum context length is 9 tokens, your prompt has 10"),
    "no room": (400, {}, "maximum context length is 9 tokens, you asked for 8 in the completion"),
    "refused": (400, {}, "Unknown parameter"),
    "bad key": (401, {}, "Incorrect API key provided"),
    "no money": (402, {}, "Insufficient Balance"),
}
REASONING = {
    "reasoning_content": lambda thought: {"reasoning_content": thought},
    "reasoning": lambda thought: {"reasoning": thought},
    "both": lambda thought: {"reasoning_content": thought, "reasoning": thought},
    "details": lambda thought: {"reasoning_details": [{"type": "reasoning.text", "text": thought}]},
    "blocks": lambda thought: {"content": [{"type": "thinking", "thinking": thought}]},
    "nested blocks": lambda thought: {
        "content": [{"type": "thinking", "thinking": [{"type": "text", "text": thought}]}]
    },
    "tags": lambda thought: {"content": f"<think>{thought}</think>"},
    "none": lambda thought: {},
}


@dataclass
class FaultServer:
    """What a test sees of it, and sets before it asks."""

    plan: Plan = lambda body, attempt: None
    reasoning: str = "reasoning_content"  # where the thinking is, a key of ``REASONING``
    honours_n: int = 9  # most samples that one request brings
    refuses_n: str = ""  # whether it refuses more: "always" or "streamed"
    seed: str = "honours"
    """What decides a text: the seed and the number of the choice, the seed "alone", nothing
    ("ignores"), or the number ("fixed")."""
    stream: str = "pieces"  # or "whole", "refused", or "thoughtless": without the thinking
    refused: frozenset[str] = frozenset()  # parameters
    clash: frozenset[str] = frozenset()  # parameters that do not go together
    length_name: str = ""  # the only name of the length that it knows
    max_output: int | None = None
    refusal_of_length: str = "the valid range of max_tokens is [1, {most}]"
    listed: Body = field(default_factory=dict)  # what its list says of the model
    usage: str = "always"  # or "whole": not in streams; or "never"
    written: int | None = None  # most tokens of a choice, and 100 read; None counts the texts
    counts_first: bool = False  # whether the tokens are those of the first choice, as llama.cpp
    tokenizes: bool = False
    max_logprobs: int | None = None  # of the tokens of a prompt, if it gives any
    cut_reason: str = "length"  # finish reason of the long answer that doctor asks for
    end_reason: str = "stop"
    calls: list[Body] = field(default_factory=list)
    """Tool calls in place of an answer, where there are tools and no result of one."""
    key: str = ""
    seconds: float = 0.0  # how long a response takes
    retry_after: str = ""  # how long it wants to be left alone when it is ``busy for``
    base_url: str = ""
    requests: list[tuple[float, Body]] = field(default_factory=list)  # in order, and when
    bill: list[tuple[int, int]] = field(default_factory=list)  # tokens read and written, if sent
    in_flight: int = 0
    most_in_flight: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    _attempts: Counter[str] = field(default_factory=Counter)
    _count: Iterator[int] = field(default_factory=itertools.count)

    @contextlib.contextmanager
    def taking(self, body: Body) -> Iterator[str | None]:
        """The fault that this request meets."""
        key = json.dumps([body["messages"], body.get("seed")])
        with self.lock:
            attempt = self._attempts[key]
            self._attempts[key] += 1
            self.requests.append((now(), body))
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            yield self.plan(body, attempt)
        finally:
            with self.lock:
                self.in_flight -= 1

    def text_of(self, body: Body, index: int) -> tuple[str, str]:
        """(thought, answer) of a choice."""
        seed = body.get("seed")
        if self.seed == "ignores" or (seed is None and self.seed != "fixed"):
            seed = next(self._count) or None
        elif self.seed == "fixed":
            seed = None
        return text_of({**body, "seed": seed}, 0 if self.seed == "alone" else index)

    def refusal(self, body: Body) -> tuple[int, str] | None:
        """Status and message, where the request is not as it should be."""
        names, several = set(body), body.get("n", 1) > 1
        lengths = names & {"max_tokens", "max_completion_tokens"}
        if wrong := names & self.refused:
            return 400, f"Unsupported parameter: {min(wrong)}"
        if len(self.clash & names) > 1:
            return 400, f"{' and '.join(sorted(self.clash))} cannot both be specified"
        if self.length_name and lengths != {self.length_name}:
            return 400, f"Use {self.length_name} instead"
        if self.max_output and max(body[name] for name in lengths) > self.max_output:
            return 400, self.refusal_of_length.format(most=self.max_output)
        if several and (self.refuses_n == "always" or (self.refuses_n and body.get("stream"))):
            return 422, "n must be 1"
        if body.get("stream") and self.stream == "refused":
            return 400, "stream is not supported"
        return None

    @property
    def asked(self) -> list[Body]:
        """The requests, in order."""
        return [body for _, body in self.requests]

    @property
    def tokens(self) -> int:
        return sum(prompt + completion for prompt, completion in self.bill)


def text_of(body: Body, index: int) -> tuple[str, str]:
    """(thought, answer) to a request, which depend on it alone."""
    draw = random.Random(json.dumps([body["messages"], body.get("seed"), index]))
    return f"so {draw.random()} so", f"It is \\boxed{{{draw.randrange(4)}}}."


def tokens_of(thought: str, answer: str) -> int:
    return len(thought) // 4 + len(answer) // 4


@contextlib.contextmanager
def faulty(port: int = 0, **settings: Any) -> Iterator[FaultServer]:
    """Serve until the block ends; port 0 is any port."""
    server = FaultServer(**settings)

    class _OfThis(_Handler):
        fault_server = server

    with listening(_OfThis, port) as server.base_url:
        yield server


class _Handler(Handler):
    fault_server: FaultServer

    def do_GET(self) -> None:
        entry = {"id": MODEL, "object": "model", **self.fault_server.listed}
        if self._knows_key():
            self.send_json(200, {"object": "list", "data": [entry]})

    def do_POST(self) -> None:
        server, body = self.fault_server, self.body()
        if self.path == "/tokenize":
            words = body.get("content", "").split()
            return self.send_json(*(200, {"tokens": words}) if server.tokenizes else (404, {}))
        if not self._knows_key():
            return None
        if server.max_logprobs and "prompt_logprobs" in body:
            return self._score(body, server.max_logprobs)
        if self.answers_probe(body):
            return None
        if not body:  # it is asked whether the key is good
            return self._refuse(400, "nothing to complete")
        with contextlib.suppress(ConnectionError), server.taking(body) as fault:
            rest(self.connection, server.seconds)
            if refusal := server.refusal(body):
                return self._refuse(*refusal)
            self._answer(body, fault)

    def _score(self, body: Body, most: int) -> None:
        if body["prompt_logprobs"] > most:
            return self._refuse(400, f"That is greater than max allowed: {most} (x=1000000)")
        entries = [None, *({str(token): {"logprob": -1.0}} for token in body["prompt"][1:])]
        return self.send_json(200, {"choices": [{"prompt_logprobs": entries}]})

    def _knows_key(self) -> bool:
        """Whether the key is that of the server; it is refused if not."""
        key, given = self.fault_server.key, self.headers["Authorization"]
        if key and given != f"Bearer {key}":
            self._refuse(401, "Bad key:")
        return not key or given == f"Bearer {key}"

    def _refuse(self, status: int, message: str) -> None:
        """Repeats the key, as some servers do."""
        told = {"message": f"{message} {self.headers['Authorization']}", "type": "invalid_request"}
        self.send_json(status, {"error": told})

    def _answer(self, body: Body, fault: str | None) -> None:
        if fault in ERRORS:
            status, headers, message = ERRORS[fault]
            if fault == "busy for":
                headers = {"Retry-After": self.fault_server.retry_after}
            return self.send_json(status, {"error": {"message": message}}, headers)
        if fault == "hang":
            return rest(self.connection, 30)
        if fault == "hang up":
            return self.connection.close()
        if fault == "no json":
            return self.send(200, b'{"id": "r", "choices": [{"ind', "application/json")
        texts = [] if fault == "no choices" else self._texts(body)
        if body.get("stream") and self.fault_server.stream != "whole":
            return self._stream(body, texts, fault)
        choices = self._choices(body, texts, self.fault_server.reasoning)
        whole = {"id": "r", "object": "chat.completion", "choices": choices}
        self.send_json(200, whole | self._usage(body, texts))

    def _texts(self, body: Body) -> list[tuple[str, str]]:
        """(thought, answer) of each choice."""
        server = self.fault_server
        most = min(body.get("n") or 1, server.honours_n)
        return [server.text_of(body, index) for index in range(most)]

    def _choices(self, body: Body, texts: list[tuple[str, str]], place: str) -> list[Body]:
        server = self.fault_server
        is_long = "1 to 900" in body["messages"][0]["content"]
        reason = server.cut_reason if is_long else server.end_reason
        messages = [message_of(place, *each) for each in texts]
        if server.calls and "tools" in body and all(m["role"] != "tool" for m in body["messages"]):
            reason = "tool_calls"
            for message in messages:
                message |= {"content": "", "tool_calls": server.calls}
        return [
            {"index": index, "finish_reason": reason, "message": message}
            for index, message in enumerate(messages)
        ]

    def _usage(self, body: Body, texts: list[tuple[str, str]]) -> Body:
        """The tokens of a response that is sent in full; they are on the bill."""
        server = self.fault_server
        prompt = len(body["messages"][0]["content"])  # as no tokenizer counts more
        written = [tokens_of(*each) for each in texts]
        if server.written is not None:
            most = body.get("max_completion_tokens", body.get("max_tokens"))
            written = [min(most, server.written)] * len(texts)
            # That of the long prompt of doctor is the number of its words.
            prompt = words if (words := len(body["messages"][0]["content"].split())) > 499 else 100
        counted = sum(written[:1] if server.counts_first else written)
        if texts:
            server.bill.append((prompt, counted))
        if server.usage == "never":
            return {}
        details = {"cached_tokens": prompt // 2}
        usage = {"prompt_tokens": prompt, "completion_tokens": counted}
        return {"usage": usage | {"prompt_tokens_details": details}}

    def _stream(self, body: Body, texts: list[tuple[str, str]], fault: str | None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self._event(": keep-alive")
        server = self.fault_server
        place = "none" if server.stream == "thoughtless" else server.reasoning
        events = list(pieces(self._choices(body, texts, place)))
        sent = dict.fromkeys(("cut", "stall", "fault in the stream"), len(events) // 2)
        sent |= {"fault at the last end": len(events) - 1, "fault after the ends": len(events)}
        if fault in sent:
            for event in events[: sent[fault]]:
                self._event(f"data: {json.dumps(event)}")
            if fault == "stall":
                rest(self.connection, 30)
            if fault.startswith("fault"):
                self._event(f"data: {json.dumps({'error': {'message': 'engine died'}})}")
            return
        endless = [index for index in range(9) if fault in ("no end", f"no end of {index}")]
        events = [e for e in events if not (_ends(e) and e["choices"][0]["index"] in endless)]
        for event in events:
            self._event(f"data: {json.dumps(event)}")
            rest(self.connection, 2.5 / len(events) if fault == "slow stream" else 0)
        usage = self._usage(body, texts)
        wants = (body.get("stream_options") or {}).get("include_usage")
        if wants and usage and server.usage == "always":
            self._event(f"data: {json.dumps({'id': 'r', 'choices': [], **usage})}")
        self._event("data: [DONE]")

    def _event(self, line: str) -> None:
        self.wfile.write(f"{line}\n\n".encode())
        self.wfile.flush()


def message_of(reasoning: str, thought: str, answer: str) -> Body:
    """A message with its thinking where ``reasoning`` says, a key of ``REASONING``."""
    message = REASONING[reasoning](thought)
    content = message.pop("content", "")
    text = [{"type": "text", "text": answer}] if isinstance(content, list) else answer
    return {"role": "assistant", **message, "content": content + text}


def pieces(choices: list[Body]) -> Iterator[Body]:
    """Each message in pieces of a few characters, the choices interleaved; then their ends."""
    streams = [list(_deltas(choice["message"])) for choice in choices]
    for step in range(max(map(len, streams), default=0)):
        for choice, stream in zip(choices, streams, strict=True):
            if step < len(stream):
                yield _piece(choice["index"], stream[step], None)
    for choice in choices:
        yield _piece(choice["index"], {}, choice["finish_reason"])


def _piece(index: int, delta: Body, finish_reason: str | None) -> Body:
    choice = {"index": index, "delta": delta, "finish_reason": finish_reason}
    return {"id": "r", "object": "chat.completion.chunk", "choices": [choice]}


def _ends(event: Body) -> bool:
    return bool(event["choices"][0]["finish_reason"])


def _deltas(message: Body) -> Iterator[Body]:
    yield {"role": "assistant", "content": ""}
    for name in ("reasoning_content", "reasoning"):
        for part in _cut(message.get(name, "")):
            yield {k: part for k in ("reasoning_content", "reasoning") if k in message}
        if name in message:
            break
    for detail in message.get("reasoning_details", ()):
        for part in _cut(detail["text"]):
            yield {"reasoning_details": [{**detail, "text": part}]}
    content = message["content"]
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, str):
            yield from ({"content": part} for part in _cut(block))
        else:
            yield {"content": [block]}
    for index, call in enumerate(message.get("tool_calls", ())):
        function = {**call["function"], "arguments": ""}
        yield {"tool_calls": [{"index": index, **call, "function": function}]}
        for part in _cut(call["function"]["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": part}}]}


def _cut(text: str) -> list[str]:
    return [text[start : start + 7] for start in range(0, len(text), 7)]
