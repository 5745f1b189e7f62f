"""Finds out which parameters an endpoint honours, with about ten small requests and a long one.

Each check sends a request with the parameters of the run and reads the response as a run does. If
the server's message states a limit, the limit is tested. The results are collected as
``config.models.Capabilities``, which runs apply. A request that the server refuses because of its
content is a finding; a server that cannot be reached is an error.

Not covered: whether an accepted parameter has an effect (``top_k`` may be accepted and ignored);
limits per minute, which need a real load.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from heavydistill.config.models import Capabilities, Endpoint, Sampling
from heavydistill.doctor import Finding, Result
from heavydistill.doctor.tool_calls import way_of_calls
from heavydistill.errors import TeacherError
from heavydistill.heavy.pruning import Reader
from heavydistill.models.capabilities import SET_IT, Context
from heavydistill.models.contact import ServerProbe
from heavydistill.models.http.client import close_client, open_client
from heavydistill.models.http.completion import MOST_CHARACTERS_OF_A_TOKEN, ChatCompletion, Place
from heavydistill.models.http.cut_prompts import LARGER_CONTEXT, is_cut, plain_prompt
from heavydistill.models.http.engine import beyond_openai
from heavydistill.models.http.failures import REPEATABLE, failure_of, wrong_key
from heavydistill.models.http.finish_reasons import PARSER_AT_FAULT, PARSER_FIX
from heavydistill.models.http.probe import TOKEN_IDS
from heavydistill.models.http.replies import Redactor, retry_after
from heavydistill.models.http.scoring import PromptScorer, Scored, TokenScores, most_top
from heavydistill.models.http.transport import submit
from heavydistill.models.profiles import Profile
from heavydistill.models.request import Message, Response, user_turn
from heavydistill.models.tokenizer import ESTIMATED, TEMPLATE_TOKENS

# The answer needs more tokens than any request allows, with or without thinking, so the response is
# always cut off.
_LONG = "Write down all whole numbers from 1 to 900, separated by commas."
# A question whose answers are practically never equal.
_OPEN = "Write twelve unrelated random words."
_LENGTH_NAMES = ("max_tokens", "max_completion_tokens")
_STREAM = {"stream": True, "stream_options": {"include_usage": True}}
_YES = "Reply with the one word yes."
_CUT = 16  # Small ``max_tokens``; some servers accept no smaller value
_SHORT = 64
_ENOUGH = 4096  # Tokens for the thinking about a short sum
_SAMPLES = 4
_CLEARLY = 1.5  # Ratio from which two token counts clearly differ
_FIRST_BACK_OFF_S = 0.5
_TOO_MANY = 10**6  # likeliest tokens, more than any vocabulary has
_NOT_OF_THE_REQUEST = (401, 402, 403, 408, 429, 503, 529)  # Faults of the key, credit or load
_CONTEXT_SAID = re.compile(
    r"(?:maximum context length|max_model_len|context window)\D{0,12}(\d[\d,]*)", re.IGNORECASE
)
# Phrases in error messages of DeepSeek, Alibaba, OpenAI, Volcano and others.
_MOST_SAID = re.compile(
    r"\[\d+, ?(\d+)\]|(?:at most|up to|<=?|or equal to|(?:no|not) (?:more|larger|greater) than"
    r"|exceed|between \d+ and|limit(?:ed to)?|maximum(?: value| output| allowed)?)\W{0,3}"
    r"(?:is |of |to )?\W{0,3}(\d[\d,]*)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminedModel:
    """A served model and the requests that a run would send to it."""

    profile: Profile
    samplings: list[Sampling]  # Sampling of each role that the model has in the run
    context: Context  # Context, as known without asking the server
    prompt: str  # Prompt of a thinker with a problem that needs little thinking
    cache_tokens: int = 0  # Budget of a cache in the run; 0 if the model reads none, or is unknown
    tools: bool = False  # Whether it may call tools in the run
    parser: str | None = None  # vLLM's reasoning parser for the model, if any
    hosted: bool = False  # Whether a provider serves it, so that the user cannot restart the server

    @property
    def parameters(self) -> dict[str, object]:
        """All request parameters of the run besides messages and length, most important first."""
        sent: dict[str, object] = dict(self.profile.added_body)
        for sampling in self.samplings:
            sent |= {"temperature": sampling.temperature, "seed": 1, "top_p": sampling.top_p}
            sent |= beyond_openai(sampling)
        return sent

    @property
    def max_tokens(self) -> int:
        return max(sampling.max_tokens for sampling in self.samplings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The server's reply to one request."""

    choices: list[Response] = field(default_factory=list)  # Choices in order, without token counts
    place: Place = "none"  # Where the thinking was found
    counts: tuple[int, int] | None = None  # (prompt, completion) tokens, if both were counted
    pieces: int = 0  # Number of streamed pieces; 0 if it was not streamed
    refusal: str = ""  # Error message of a refused request; the other fields are then empty

    @property
    def texts(self) -> list[tuple[str, str]]:
        """(thinking, answer text) of each choice."""
        return [(choice.reasoning, choice.answer_text) for choice in self.choices]


class Examination:
    """Examines a model at one address of an endpoint, whose server must have the model.

    Later checks use the results of earlier ones.

    Attributes:
        findings: Findings in the order of the checks.
        is_counted: Whether the server reports token counts for the requests of a run.
        requests: Number of requests that were sent.
        prompt_tokens: Tokens that the server read, according to its counts.
        completion_tokens: Tokens that the server wrote, according to its counts.

    Raises:
        TeacherError: The endpoint cannot be reached, or refuses even the simplest request.
    """

    def __init__(self, patient: ExaminedModel, endpoint: Endpoint, reader: Reader) -> None:
        self._patient, self._profile = patient, patient.profile
        self._endpoint, self._url = endpoint, endpoint.base_url or ""
        self._reader = reader
        self._redact = Redactor(endpoint.key)
        self._seen: dict[str, Any] = {"refused": []}
        self.is_counted = True
        self.requests = self.prompt_tokens = self.completion_tokens = 0
        self._length_name: str = _LENGTH_NAMES[0]
        self._cut_reason = ""  # finish reason of a response that was cut off, if it is not known
        self._whole = self._pieces = Answer()
        self._client = open_client(endpoint, endpoint.key)
        checks: tuple[Callable[[], Finding], ...] = (
            *(self._context, self._length, self._output, self._parameters, self._finish),
            *(self._thinking, self._stream, self._usage, self._samples, self._scores, self._seed),
            *((self._tools,) if patient.tools else ()),
            *((self._long_prompt,) if patient.cache_tokens else ()),
        )
        try:
            self.findings = [check() for check in checks]
        finally:
            close_client(self._client)

    @property
    def capabilities(self) -> Capabilities:
        """The measured capabilities of the endpoint, which runs apply."""
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        return Capabilities(**self._seen, checked=f"{now}, {self._profile.model} at {self._url}")

    def _send(self, prompt: str, max_tokens: int, parameters: Mapping[str, Any]) -> Answer:
        """Send a request, and repeat it after temporary failures.

        Raises TeacherError if the server cannot be used.
        """
        self.requests += 1
        body = {"model": self._profile.model, "messages": user_turn(prompt), **parameters}
        body[self._length_name] = max_tokens
        for attempt in itertools.count():
            try:
                return self._answer(body, max_tokens * parameters.get("n", 1))
            except TeacherError:
                raise
            except Exception as error:
                status = getattr(error, "status", None)
                if failure_of(error) in REPEATABLE and attempt < self._endpoint.retries:
                    wait_s = retry_after(getattr(error, "headers", {}))
                    wait_s = _FIRST_BACK_OFF_S * 2**attempt if wait_s is None else wait_s
                    time.sleep(min(wait_s, self._endpoint.timeout_s))
                elif isinstance(status, int) and status not in _NOT_OF_THE_REQUEST:
                    return Answer(refusal=self._redact(str(error)))
                else:
                    raise self._unasked(error, status) from None
        raise AssertionError

    def _useless(self, answer: Answer) -> TeacherError:
        """The error for a server that refuses a request which every run sends."""
        return TeacherError(
            f"{self._url} refuses a plain request to {self._profile.model}: {answer.refusal}",
            "Correct the address or the name of the model.",
        )

    def _answer(self, body: dict[str, object], most_tokens: int) -> Answer:
        ends = self._seen.get("finish_reasons")
        completion = ChatCompletion(
            most_tokens=most_tokens, redact=self._redact, ends=ends, has_tools="tools" in body
        )
        submit(self._client.transport.ask(self._url, body, completion)).result()
        choices = completion.choices(self._profile.think_tags, 0.0)
        if not choices:
            raise ValueError("no choices")
        prompt_tokens, completion_tokens, _ = completion.counts
        is_counted = min(prompt_tokens, completion_tokens) >= 0
        if is_counted:
            self.prompt_tokens += prompt_tokens
            self.completion_tokens += completion_tokens
        place = completion.place
        return Answer(
            choices=choices,
            place="tags" if place == "none" and choices[0].reasoning else place,
            counts=(prompt_tokens, completion_tokens) if is_counted else None,
            pieces=completion.pieces,
        )

    def _unasked(self, error: Exception, status: object) -> TeacherError:
        message = self._redact(f"{type(error).__name__}: {error}")
        if isinstance(status, int) and status in (401, 403):
            return wrong_key(self._url, self._endpoint, status)
        if isinstance(error, ValueError):
            return TeacherError(
                f"{self._url} did not answer with a chat completion: {message}",
                "Check the address: it ends in /v1 as a rule.",
            )
        return TeacherError(
            f"{self._url} did not answer: {message}",
            "Run the same command again when the server answers.",
        )

    def _ask(self, max_tokens: int, **more: object) -> Answer:
        """Send the thinker's prompt with all parameters that the server accepts."""
        parameters = self._taken(self._patient.parameters | more)
        return self._send(self._patient.prompt, max_tokens, parameters)

    def _try(self, max_tokens: int, **parameters: Any) -> Answer:
        """Send the question with many possible answers, at temperature 1."""
        return self._send(_OPEN, max_tokens, self._taken({"temperature": 1.0} | parameters))

    def _taken(self, parameters: Mapping[str, object]) -> dict[str, object]:
        refused = self._seen["refused"]
        return {name: value for name, value in parameters.items() if name not in refused}

    @property
    def _fitting(self) -> int:
        """Maximum tokens of a response such that the prompt always fits too."""
        context: int = self._seen.get("context", self._patient.context.tokens)
        return min(self._patient.max_tokens, context // 2)

    @property
    def _enough(self) -> int:
        most: int = self._seen.get("max_output", _ENOUGH)
        return min(_ENOUGH, self._fitting, most)

    def _context(self) -> Finding:
        reported = ServerProbe().context(self._profile.model, self._endpoint)
        known = self._patient.context
        by_us = f"{known.tokens:,} tokens, {known.source}"
        if not reported:
            fix = "" if known.is_known else f"{SET_IT[0].upper()}{SET_IT[1:]}."
            text = f"the server does not say it; {by_us}"
            return Finding("context", "warning" if fix else "ok", text, fix)
        text = f"{reported:,} tokens by its list of models"
        if known.is_known and reported >= known.tokens:
            return Finding("context", "ok", text)
        self._seen["context"] = reported
        beside = f"; {by_us}" if known.is_known else ""
        return Finding("context", "ok", f"{text}, which the run obeys{beside}")

    def _length(self) -> Finding:
        for name in _LENGTH_NAMES:
            self._length_name = self._seen["max_tokens_name"] = name
            cut = self._send(_LONG, _CUT, {})
            if not cut.refusal:
                break
        else:
            raise self._useless(cut)
        end = cut.choices[0]
        self._cut_reason = end.unknown_finish_reason
        whole = self._send(_YES, self._enough, {}).choices if self._cut_reason else []
        if whole and whole[0].unknown_finish_reason != self._cut_reason:
            return self._learn("cut off", self._cut_reason, "length")
        written = cut.counts[1] if cut.counts else _CUT
        if end.finish_reason == "stop" and not self._cut_reason and written < _CUT:
            text = (
                f"not tested: the reply to a long question ended by itself after {written} tokens"
            )
            return Finding("cut off", "ok", text)
        if end.finish_reason != "length":
            text = f"{end.error or end.finish_reason}, though {_CUT} tokens cut the response off"
            fix = "A run would take cut-off responses for whole ones. Use another server."
            return Finding("cut off", "failure", text, fix)
        return Finding("cut off", "ok", f"finish reason length; the limit is called {name}")

    def _learn(self, check: str, reason: str, meaning: str) -> Finding:
        """Record the meaning of a finish reason that is not known."""
        self._seen.setdefault("finish_reasons", {})[reason] = meaning
        return Finding(check, "ok", f"finish reason {reason!r}, which the run reads as {meaning}")

    def _output(self) -> Finding:
        wanted = self._fitting
        answer = self._send(_YES, wanted, {})
        if not answer.refusal:
            return Finding("maximum output", "ok", f"takes {wanted:,} tokens, as the run asks")
        if match := _CONTEXT_SAID.search(answer.refusal):
            context = _number(match[1])
            if 256 <= context < self._patient.context.tokens:
                self._seen["context"] = context
                text = f"{wanted:,} tokens do not fit its context of {context:,}, which the run"
                return Finding("maximum output", "ok", f"{text} obeys; it said so when it refused")
        said = _MOST_SAID.search(answer.refusal)
        most = _number(said[1] or said[2]) if said else 0
        if _CUT <= most < wanted and not self._send(_YES, most, {}).refusal:
            self._seen["max_output"] = most
            text = f"refuses {wanted:,} tokens and takes {most:,}, which it named"
            fix = "The run asks for no more. If thinking is cut off, use another server."
            return Finding("maximum output", "warning", text, fix)
        fix = "Set think.sampling.max_tokens and deliberate.sampling.max_tokens to what the "
        fix += "provider documents, and repeat the command."
        text = f"refuses {wanted:,} tokens, and names no number that it takes: {answer.refusal}"
        return Finding("maximum output", "failure", text, fix)

    def _parameters(self) -> Finding:
        wanted = self._patient.parameters
        self._whole = self._ask(self._enough)
        if self._whole.refusal:
            self._find_refused(wanted)
        refused = self._seen["refused"]
        taken = f"takes {', '.join(self._taken(wanted)) or 'none'}"
        if not refused:
            return Finding("parameters", "ok", taken)
        switches = [name for name in refused if name in self._profile.added_body]
        fix = "If the run must use them, use another server."
        if switches:
            fix = f"Correct extra_body in the profile: {', '.join(switches)} is not known there."
        text = f"refuses {', '.join(refused)}, which the run leaves out; {taken}"
        return Finding("parameters", "warning", text, fix)

    def _find_refused(self, wanted: dict[str, object]) -> None:
        """Find the refused parameters by adding them to a request one by one."""
        taken: dict[str, object] = {}
        for name, value in wanted.items():
            if self._send(_YES, self._enough, {**taken, name: value}).refusal:
                self._seen["refused"].append(name)
            else:
                taken[name] = value
        self._whole = self._ask(self._enough)
        if self._whole.refusal:
            raise self._useless(self._whole)

    def _finish(self) -> Finding:
        first = self._whole.choices[0]
        if (reason := first.unknown_finish_reason) and reason != self._cut_reason:
            return self._learn("finish reason", reason, "stop")
        is_misplaced = first.failure == "answer_in_thinking"  # see ``_thinking``
        if is_misplaced or not (first.error or reason):
            end = "stop" if is_misplaced else first.finish_reason
            return Finding("finish reason", "ok", f"{end} after an answer")
        fix = "A run stops after a few responses with a finish reason that is not known. "
        fix += "Use another server."
        return Finding(
            "finish reason", "failure", f"{first.error or repr(reason)} after an answer", fix
        )

    def _thinking(self) -> Finding:
        place, first = self._whole.place, self._whole.choices[0]
        switch = json.dumps(self._taken(self._profile.extra_body))
        asked = f"asked with {switch}" if switch != "{}" else "asked with no switch"
        if first.failure == "answer_in_thinking":
            return Finding("thinking", "failure", PARSER_AT_FAULT, PARSER_FIX)
        if first.reasoning:
            self._seen["reasoning"] = place
            known = {"tags": "the text, between tags", "blocks": "parts of the content"}
            where = known.get(place, f"the field {place}")
            text = f"in {where}, {len(first.reasoning)} characters; {asked}"
            return Finding("thinking", "ok", text)
        if not first.answer_text or first.finish_reason == "length":
            text = f"no answer in {self._enough} tokens, so it is unknown; {asked}"
            return Finding("thinking", "warning", text, "Watch the first trajectories of the run.")
        self._seen["reasoning"] = "none"
        if not self._profile.thinks:
            return Finding("thinking", "ok", f"none, and none is known of this model; {asked}")
        result: Result = "failure" if self._endpoint.reasoning == "required" else "warning"
        return Finding(
            "thinking",
            result,
            f"none was returned, though the model thinks; {asked}",
            self._unhide(),
        )

    def _unhide(self) -> str:
        without = "--set endpoint.reasoning=optional goes on without it."
        if not self._patient.hosted and (parser := self._patient.parser):
            return (
                f"Start vLLM with --reasoning-parser {parser}; `heavydistill teachers "
                f"{self._profile.name}` prints the whole command. {without}"
            )
        return (
            "Write the parameters that switch thinking on (see the provider's documentation) as "
            "extra_body in your own profile, or use another provider, because some hide thinking. "
            f"{without}"
        )

    def _stream(self) -> Finding:
        answer, left_out = self._ask(self._enough, **_STREAM), ""
        if answer.refusal:
            again = self._ask(self._enough, stream=True)
            if not again.refusal:
                self._seen["refused"].append("stream_options")
                answer, left_out = again, ", stream_options refused"
        lost = self._whole.choices[0].reasoning and not any(t for t, _ in answer.texts)
        if answer.pieces > 1 and not lost:
            self._pieces = answer
            return Finding("stream", "ok", f"{answer.pieces} pieces{left_out}")
        self._seen["stream"] = False
        why = f"refused: {answer.refusal}" if answer.refusal else "the response came whole"
        why = "in pieces the thinking is lost" if answer.pieces > 1 else why
        fix = "Allow more time for long responses: --set endpoint.timeout_s=3600."
        return Finding("stream", "warning", f"{why}; the run asks for whole responses", fix)

    def _usage(self) -> Finding:
        streamed = self._seen.get("stream", True)
        answer = self._pieces if streamed else self._whole
        if answer.counts:
            text = "{} prompt and {} completion tokens counted".format(*answer.counts)
            if fault := self._undercounted(answer):
                fix = "Its costs and a budget come out too low by that factor; check the tokenizer."
                return Finding("usage", "warning", f"{text}: {fault}", fix)
            return Finding("usage", "ok", text)
        self.is_counted = False
        if streamed and self._whole.counts:
            fix = "Whole responses have them: set stream: false in the capability file."
            return Finding("usage", "warning", "no counts of tokens in pieces", fix)
        fix = "Each response is booked at the most that it may have cost, so a budget ends early."
        return Finding("usage", "warning", "no counts of tokens", fix)

    def _samples(self) -> Finding:
        # With the run's other parameters: some servers accept n, but not with a stream or a seed.
        body = self._patient.parameters | (_STREAM if self._seen.get("stream", True) else {})
        answer = self._try(_SHORT, **body | {"temperature": 1.0, "n": _SAMPLES})
        texts = answer.texts
        singly = "the run asks for each sample by itself"
        result: Result = "ok"
        if answer.refusal:
            why = "is refused"
        elif len(texts) < 2:
            why = f"is ignored: {len(texts)} choice came"
        elif len(set(texts)) < len(texts):
            why = f"brought {len(texts)} choices, {len(set(texts))} different at temperature 1"
            result = "warning"
        elif fault := self._undercounted(answer):
            why = f"brought {len(texts)} choices, but their tokens are not all counted: {fault}"
            result = "warning"
        else:
            self._seen["n"] = len(texts)
            text = f"n={_SAMPLES} brought {len(texts)} choices, all different at temperature 1"
            return Finding("n", "ok", f"{text}: a request brings up to {len(texts)} samples")
        self._seen["n_because"] = f"n={_SAMPLES} {why}"
        return Finding("n", result, f"n={_SAMPLES} {why}, so {singly}")

    def _undercounted(self, answer: Answer) -> str:
        """Why the server's token count of an answer is clearly too low; empty if it is plausible.

        A count that is too high is not a fault, because the server may hide thinking.
        """
        if not answer.counts:
            return ""
        reader, reported = self._reader, answer.counts[1]
        texts = [text for each in answer.texts for text in each]
        counted = sum(map(reader.count, texts))
        by = reader.name
        if by == ESTIMATED:  # An estimate is never too low, so it cannot prove a fault
            counted = sum(map(len, texts)) // MOST_CHARACTERS_OF_A_TOKEN
            by = f"{MOST_CHARACTERS_OF_A_TOKEN} characters a token"
        if reported * _CLEARLY >= counted:
            return ""
        return f"its usage says {reported} completion tokens, the texts have {counted} by {by}"

    def _seed(self) -> Finding:
        answers = [self._try(_SHORT, seed=seed) for seed in (1, 1, 2)]
        if refusal := next((a.refusal for a in answers if a.refusal), ""):
            return Finding("seed", "warning", f"the question was refused: {refusal}")
        first, again, other = (answer.texts[0] for answer in answers)
        if first == other:
            self._seen["seed"] = "forced"
            text = "two seeds gave the same text at temperature 1, so K samples would be one"
            fix = "Switch off response caches, or use a server that does not force temperature 0."
            return Finding("seed", "failure", text, fix)
        if "seed" in self._seen["refused"]:
            self._seen["seed"] = "refused"
            return Finding("seed", "ok", "refused, so it is not sent; samples differ without it")
        self._seen["seed"] = "honoured" if first == again else "ignored"
        if first == again:
            return Finding(
                "seed", "ok", "the same text for the same seed, and another text for another seed"
            )
        return Finding("seed", "ok", "without effect: samples differ, and cannot be repeated")

    def _tools(self) -> Finding:
        def ask(messages: list[Message], parameters: dict[str, Any]) -> Response | str:
            answer = self._send("", self._enough, {"messages": messages, **parameters})
            return answer.refusal or answer.choices[0]

        self._seen["tools"], finding = way_of_calls(ask)
        return finding

    def _scores(self) -> Finding:
        """Whether the server can be the teacher of a distillation, which no run needs."""
        scorer, asked = PromptScorer(self._profile, self._endpoint), [Scored(TOKEN_IDS)]
        try:
            (found,) = scorer.scores(asked)
            (more,) = scorer.scores(asked, _TOO_MANY) if isinstance(found, TokenScores) else [found]
        finally:
            scorer.close()
        use = "the teacher of `heavydistill distill --teacher_endpoint`"
        if isinstance(found, Response):
            return Finding("prompt scores", "ok", f"none, so it cannot be {use}: {found.error}")
        most = most_top(more.error or "") if isinstance(more, Response) else None
        text = f"log-probabilities of a prompt's tokens and of the {most or 'N'} likeliest in each"
        return Finding("prompt scores", "ok", f"{text} place, so it can be {use}")

    def _long_prompt(self) -> Finding:
        context: int = self._seen.get("context", self._patient.context.tokens)
        room = context - self._patient.max_tokens - TEMPLATE_TOKENS
        prompt = plain_prompt(max(1, min(self._patient.cache_tokens, room)), self._reader)
        words = len(prompt.split())
        long = f"a plain prompt of {words:,} words, about as long as the planned cache"
        fix = "Plan with a smaller context: --set endpoint.context=TOKENS."
        try:
            answer = self._send(prompt, _CUT, _STREAM if self._seen.get("stream", True) else {})
        except TeacherError as error:
            return Finding("long prompt", "warning", f"{long}: {error.what}", error.fix)
        if answer.refusal:
            return Finding("long prompt", "failure", f"refuses {long}: {answer.refusal}", fix)
        if not answer.counts:
            text = f"answers {long}, but does not say how much of it was read"
            fix = "A run cannot see whether long prompts are cut. Compare the server's log."
            return Finding("long prompt", "warning", text, fix)
        read, _ = answer.counts
        if is_cut(read, words):
            text = f"is cut: of {long}, it read {read:,} tokens"
            return Finding("long prompt", "failure", text, f"{LARGER_CONTEXT}. Or: {fix}")
        return Finding("long prompt", "ok", f"reads {long}: {read:,} tokens")


def _number(text: str) -> int:
    return int(text.replace(",", ""))
