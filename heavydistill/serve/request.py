"""Reads a chat completion request: which problem, how it is answered, and what is refused.

A parameter that cannot be honoured is refused by its name, unless its value changes nothing. The
problem is the last turn of the user, after the turns before it; thinking of earlier answers is left
out, as chat templates leave it out. If tools were called for it, the problem is the same turn once
more, after their results.

Tools and the form of the answer are for the deliberations that are the answer, and for no attempt.

Parameters of a service are in ``heavy`` (``extra_body`` of the openai library), see
``HeavyOptions``. Titles, tags and follow-up questions, which chat front ends ask for under the name
of the model they show, are answered with one attempt, and the answer says so.

Not covered: images.
"""

from __future__ import annotations

import difflib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from heavydistill.config.files import json_of
from heavydistill.config.models import Sampling
from heavydistill.config.yaml import in_words
from heavydistill.errors import ProblemsError
from heavydistill.heavy.cache import attempts_that_fit
from heavydistill.models.request import after_system, conversation
from heavydistill.schema import Problem, content_id

if TYPE_CHECKING:
    from heavydistill.serve.pair import Pair
    from heavydistill.serve.stopping import StoppingRule

ModelName = Literal["heavy", "vote", "single"]
Expose = Literal["none", "summary", "full"]
MODELS: dict[str, str] = {
    "heavy": "independent attempts, and a deliberation over them",
    "vote": "independent attempts, and their most frequent answer",
    "single": "one attempt",
}
"""Maps the name of each model to what it does."""
NEUTRAL: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(("frequency_penalty", "presence_penalty", "top_logprobs"), (0,)),
    **dict.fromkeys(("logprobs", "store"), (False,)),
    **dict.fromkeys(("tools", "functions", "stop"), ([],)),
    **{"logit_bias": ({},), "service_tier": ("auto", "default"), "tool_choice": ("auto",)},
    **{"response_format": ({"type": "text"},), "modalities": (["text"],)},
}
_OF_DELIBERATOR = ("response_format", "tools", "tool_choice", "parallel_tool_calls")
# Fields of earlier answers that are not sent: thinking, and what LiteLLM adds to what it reads.
_UNSENT = ("reasoning", "reasoning_content", "provider_specific_fields")
AUTO = 0
"""Value of ``HeavyOptions.k`` for ``auto``."""
_SHORT_TOKENS = 64  # of a title or of tags
_TASK = "### Task:"  # begins what Open WebUI asks beside the conversation
_MOST_SEED = 2**31


class ApiError(Exception):
    """A request that is answered with an error, in the form of OpenAI's API.

    Args:
        status: HTTP status.
        message: What is wrong, and the fix.
        param: Name of the parameter at fault.
        code: Short code of the error.
        heavy: What is known of the attempts.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        heavy: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.heavy = status, param, code, heavy

    @property
    def body(self) -> dict[str, object]:
        """The body of the reply."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        error = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return {"error": error | ({"heavy": self.heavy} if self.heavy else {})}


class Body(BaseModel):
    """The body of a request, or a part of it."""

    model_config = ConfigDict(extra="forbid", strict=True)
    neutral: ClassVar[Mapping[str, tuple[object, ...]]] = {}
    """Values that change nothing, of parameters that are not supported otherwise."""


_B = TypeVar("_B", bound=Body)


def _or_auto(value: object, number: ValidatorFunctionWrapHandler) -> object:
    return AUTO if value == "auto" else number(value)


class HeavyOptions(Body):
    """The parameter ``heavy`` of a request; what is left out is as the service is configured."""

    k: Annotated[int, Field(ge=1), WrapValidator(_or_auto)] | None = None
    """Number of attempts; ``AUTO`` for ``auto``: as many as the measured rule needs."""
    d: int | None = Field(default=None, ge=1)  # number of deliberations; each is a choice
    min_k: int | None = Field(default=None, ge=1)  # minimum number of usable attempts
    budget_tokens: int | None = Field(default=None, ge=1)  # maximum tokens of the cache
    deadline_s: float | None = Field(default=None, gt=0)  # maximum seconds
    grace_s: float | None = Field(default=None, ge=0)  # see ``config.serve.Serving``
    expose: Expose = "summary"  # what the reasoning shows: nothing, progress, or attempts too
    seed: int | None = Field(default=None, ge=0, lt=_MOST_SEED)  # as the seed of a run
    problem_id: str | None = Field(default=None, min_length=1, max_length=200)  # as in a run


class _StreamOptions(Body):
    include_usage: bool = False
    include_obfuscation: bool = False


class _Function(Body):
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _Tool(Body):
    type: Literal["function"]
    function: _Function


class ChatBody(Body):
    """The body of a chat completion request."""

    neutral = NEUTRAL
    model: str
    messages: list[dict[str, Any]] = Field(min_length=1)
    stream: bool = False
    stream_options: _StreamOptions | None = None
    n: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = Field(default=None, ge=0, lt=_MOST_SEED)
    response_format: dict[str, Any] | None = None
    tools: list[_Tool] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    heavy: HeavyOptions = Field(default_factory=HeavyOptions)
    metadata: dict[str, Any] = Field(default_factory=dict)
    user: str = ""  # these three say who asks, and change no answer
    safety_identifier: str = ""
    prompt_cache_key: str = ""

    @property
    def of_deliberator(self) -> dict[str, Any]:
        """The parameters that only a deliberation can honour, as they were given."""
        given = self.model_dump(include=set(_OF_DELIBERATOR), exclude_unset=True)
        if not self.tools:  # without any, this changes nothing
            given.pop("parallel_tool_calls", None)
            if self.tool_choice == "none":
                del given["tool_choice"]
        return given


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request, with a value for everything."""

    model: ModelName
    problem: Problem
    k: int
    d: int  # 0 unless the model is ``heavy``
    min_k: int
    budget_tokens: int
    deadline_s: float
    grace_s: float | None
    expose: Expose
    seed: int
    thinker: Sampling
    deliberator: Sampling
    is_stream: bool
    wants_usage: bool
    more: dict[str, Any]  # further parameters for the deliberations that are the answer
    stopping: StoppingRule | None = None  # if k is ``auto``
    because: str = ""  # why another model answers than the one that was asked

    @property
    def choices(self) -> int:
        """The number of choices of the answer."""
        return self.d or 1


def require_model(name: str) -> None:
    """Raise ApiError if the service has no such model."""
    if name not in MODELS:
        message = f"There is no model {name!r} here. Ask {', '.join(MODELS)}."
        raise ApiError(404, message, "model", "model_not_found")


def read_request(body: ChatBody, pair: Pair) -> Asked:
    """Read the body of a request. Raises ApiError if it cannot be answered as asked."""
    require_model(body.model)
    if body.stream_options and not body.stream:
        raise ApiError(400, "stream_options needs stream: true.", "stream_options")
    text, history = _conversation(body.messages)
    is_plain = body.model == "single" or "heavy" in body.model_fields_set or body.of_deliberator
    because = "" if is_plain else _auxiliary(body, text)
    asked = _asked(body, pair, text, history, because)
    system, problem = pair.config.system, asked.problem
    if system and any(turn.role == "system" for turn in problem.history):
        message = "The service has a system prompt of its own. Leave the system message out."
        raise ApiError(400, message, "messages")
    messages = after_system(system, conversation(problem.text, problem.history))
    for role in (pair.thinker, pair.deliberator)[: 1 + bool(asked.d)]:
        if refusal := role.refusal(messages):
            raise ApiError(400, f"{refusal}. Put everything into turns of the user.", "messages")
    _check_room(asked, pair)
    return asked


def parsed(data: bytes, kind: type[_B]) -> _B:
    """Parse a body; leaves out values that change nothing. Raises ApiError if it is wrong."""
    try:
        tree = json_of(data)
        if not isinstance(tree, dict):
            raise ValueError("it is no JSON object")
    except ValueError as error:
        raise ApiError(400, f"The body cannot be read: {error}. Send a JSON object.") from None
    given = {
        name: value
        for name, value in tree.items()
        if value is not None and not any(value == neutral for neutral in kind.neutral.get(name, ()))
    }
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
    name, what = ".".join(map(str, fault["loc"])), in_words(fault["msg"])
    if fault["type"] == "extra_forbidden":
        raise ApiError(400, _unsupported(name, kind), name, "unsupported_parameter")
    if fault["type"] == "missing":
        raise ApiError(400, f"The parameter {name} is missing.", name, "missing_parameter")
    if fault["type"] in ("model_type", "dict_type"):
        what = "must be a JSON object"
    if not name:  # parameters that contradict each other
        raise ApiError(400, f"The body is wrong: {what}.")
    raise ApiError(400, f"The parameter {name} is wrong: it {what}.", name)


def _unsupported(name: str, kind: type[Body]) -> str:
    """The message about a parameter that there is not, with the nearest one or all."""
    what, known = f"The parameter {name} is not supported.", [*kind.model_fields]
    if name.startswith("heavy."):
        known = [f"heavy.{each}" for each in HeavyOptions.model_fields]
    elif "." in name:
        return f"{what} Leave it out."
    if near := difflib.get_close_matches(name, known, n=1, cutoff=0.75):
        return f"{what} Did you mean {near[0]}? Otherwise leave it out."
    return f"{what} Leave it out; supported are {', '.join(known)}."


def _conversation(messages: list[dict[str, Any]]) -> tuple[str, str]:
    """The text of the last turn, and the turns before it as JSON."""
    # Imported late, because it imports the verifiers: the site answers before that.
    from heavydistill.problems.messages import read_messages

    plain = []
    for number, message in enumerate(messages):
        role = message.get("role")
        unsent = ("name",) if role == "tool" else _UNSENT  # the name is that of its call
        each = {k: v for k, v in message.items() if k not in unsent and v != []}
        if isinstance(content := each.get("content"), list):
            each["content"] = joined(content, f"messages.{number}.content")
        if role == "developer":
            each["role"] = "system"
        plain.append(each)
    if plain[-1].get("role") == "tool":
        plain += [each for each in plain if each.get("role") == "user"][-1:]
    try:
        return read_messages(plain, "messages")
    except ProblemsError as error:
        said = str(error).replace("column 'messages'", "the conversation")
        raise ApiError(400, f"{said[0].upper()}{said[1:]}", "messages") from None


def joined(parts: list[Any], where: str, kinds: Sequence[str] = ("text",)) -> str:
    """The text of a content that is given in parts. Raises ApiError for parts of other kinds."""
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in kinds or not isinstance(part.get("text"), str):
            message = f"The part {kind!r} of {where} is not supported. Send texts alone."
            raise ApiError(400, message, where, "unsupported_parameter")
    return "".join(part["text"] for part in parts)


def _auxiliary(body: ChatBody, text: str) -> str:
    """Why a request is one of a front end beside the conversation; empty if it is not."""
    most = min(filter(None, (body.max_tokens, body.max_completion_tokens)), default=None)
    if "task" in body.metadata:
        return "metadata names a task"
    if text.startswith(_TASK):
        return f"the last turn begins with {_TASK}"
    if most is not None and most <= _SHORT_TOKENS:
        return f"at most {most} tokens are asked for"
    return ""


def _asked(body: ChatBody, pair: Pair, text: str, history: str, because: str) -> Asked:
    """Fill in what the request leaves out; raises ApiError for what contradicts or exceeds."""
    options, config = body.heavy, pair.config
    model: ModelName = "single" if because else body.model  # type: ignore[assignment]
    if not because:
        _check_options(body, pair)
    is_heavy, seed = model == "heavy", body.seed if options.seed is None else options.seed
    k = 1 if model == "single" else options.k or config.think.k
    of_thinker, of_deliberator = pair.thinker.model.sampling, pair.deliberator.model.sampling
    more, budget = body.of_deliberator, config.cache.budget_tokens or 0
    if tools := more.get("tools"):  # the deliberator reads them beside its cache
        budget = max(0, budget - pair.reader_of_request.count(json.dumps(tools)))
    return Asked(
        model=model,
        problem=pair.problem(options.problem_id or content_id("p", history, text), text, history),
        k=k,
        d=(options.d or body.n or 1) if is_heavy else 0,
        min_k=min(k, options.min_k or config.think.min_k),
        budget_tokens=min(options.budget_tokens or budget, budget),
        deadline_s=options.deadline_s or config.serve.deadline_s,
        grace_s=config.serve.grace_s if options.grace_s is None else options.grace_s,
        expose=options.expose,
        seed=random.randrange(_MOST_SEED) if seed is None else seed,
        thinker=of_thinker if is_heavy else _sampling(body, of_thinker),
        deliberator=_sampling(body, of_deliberator),
        is_stream=body.stream,
        wants_usage=bool(body.stream_options and body.stream_options.include_usage),
        more=more,
        stopping=pair.stopping if options.k == AUTO else None,
        because=because,
    )


def _sampling(body: ChatBody, known: Sampling) -> Sampling:
    """The sampling of the responses that are the answer."""
    asked = {"temperature": body.temperature, "top_p": body.top_p}
    changes: dict[str, object] = {k: v for k, v in asked.items() if v is not None}
    limits = known.max_tokens, body.max_tokens, body.max_completion_tokens
    return known.model_copy(update=changes | {"max_tokens": min(filter(None, limits))})


def _faults_of_baseline(body: ChatBody) -> dict[str, tuple[bool, str]]:
    """Return the parameters that a baseline does not have: whether each is given, and why not."""
    faults = dict[str, tuple[bool, str]]()
    if body.model != "heavy":
        why = "it is for the model heavy"
        faults |= dict.fromkeys(body.of_deliberator, (True, why))
        for name in ("d", "budget_tokens"):
            faults[f"heavy.{name}"] = name in body.heavy.model_fields_set, why
        faults["n"] = (body.n or 1) > 1, why
    if body.model == "single":
        faults["heavy.k"] = (body.heavy.k or 1) > 1, "the model single has one attempt"
    return faults


def _check_options(body: ChatBody, pair: Pair) -> None:
    """Raise ApiError for a parameter that contradicts another one, or exceeds a limit."""
    options, config, limits = body.heavy, pair.config, pair.config.serve
    k, d = options.k or config.think.k, options.d or body.n or 1
    budget = config.cache.budget_tokens or 0
    faults: dict[str, tuple[bool, str]] = {
        "heavy.k": (
            k > limits.max_k,
            f"it is {k}, and at most {limits.max_k} are served (serve.max_k)",
        ),
        "heavy.min_k": ((options.min_k or 0) > k, f"it is larger than k, which is {k}"),
        "heavy.budget_tokens": (
            (options.budget_tokens or 0) > budget,
            f"the cache of the deliberator holds {budget:,} tokens",
        ),
        "heavy.deadline_s": (
            (options.deadline_s or 0) > limits.deadline_s,
            f"a request may take {limits.deadline_s:g} seconds",
        ),
        "seed": (_differ(body.seed, options.seed), "heavy.seed is another one"),
        "n": (_differ(body.n, options.d), "heavy.d is another number of the same choices"),
        "temperature": (
            body.temperature == 0 and body.model == "vote",
            "attempts at temperature 0 are equal",
        ),
    }
    if d > limits.max_d:
        name = "heavy.d" if options.d else "n"
        faults[name] = True, f"it is {d}, and at most {limits.max_d} are served (serve.max_d)"
    named = [{"type": "function", "function": {"name": e.function.name}} for e in body.tools or ()]
    faults["tool_choice"] = (
        body.tool_choice not in (None, "none", *(["required", *named] if named else ())),
        "it must be none, auto, required or the name of one of the tools",
    )
    if pair.deliberator.model.is_local:
        why = "the deliberator runs in this process, which cannot honour it; leave it out"
        faults |= dict.fromkeys(body.of_deliberator, (True, why))
    faults |= _faults_of_baseline(body)
    if options.k == AUTO and (why := _why_not_auto(body, pair)):
        faults["heavy.k"] = True, f"auto {why}"
    for name, (is_wrong, why) in faults.items():
        if is_wrong:
            raise ApiError(400, f"The parameter {name} is wrong: {why}.", name)


def _why_not_auto(body: ChatBody, pair: Pair) -> str:
    """Why a request cannot have as many attempts as it needs; empty if it can."""
    if body.model != "heavy":
        return "is for the model heavy"
    if only := [name for name in _OF_DELIBERATOR if name in body.model_fields_set]:
        return f"may end without a deliberation, which alone has {only[0]}"
    return "" if pair.stopping else "needs a measured rule (serve.stopping); send a number"


def _differ(one: int | None, other: int | None) -> bool:
    return None not in (one, other) and one != other


def _check_room(asked: Asked, pair: Pair) -> None:
    """Raise ApiError if the cache has no room for K attempts at this problem."""
    if not asked.d:
        return
    most, budget = min(asked.k, pair.config.cache.width or asked.k), asked.budget_tokens
    prompt, reader = pair.deliberator_prompt, pair.reader_of_request
    fits, needed = attempts_that_fit(asked.problem, most, budget, prompt, reader)
    if fits == most:
        return
    fix = f"Set heavy.k to {fits} or less" if fits > 1 else "Shorten the conversation"
    if "tools" in asked.more:
        fix += ", or send fewer tools"
    elif fits and not asked.more:
        fix += ", or ask the model vote"
    raise ApiError(
        400,
        f"The deliberator's cache of {budget:,} tokens does not hold this conversation and {most} "
        f"attempts, which need {needed:,}. {fix}.",
        "heavy.k" if fits > 1 else "messages",
        "context_length_exceeded",
    )
