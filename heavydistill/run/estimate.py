"""What a run will send, read, write, cost and take, before it sends anything.

The **bounds** hold whatever the models write: every response has from 1 token to the maximum of its
sampling, a thinker's prompt has the tokens that its tokenizer counts and at most
``TEMPLATE_TOKENS`` of a chat template, a deliberator's at most the budget of its cache. The amounts
**expected** are the mean of the journal's responses of the same model, stage and sampling, within
the bounds; without such responses they are the bounds.

Hours have no bounds. Those expected are as in the journal; else a response of a served model comes
at ``endpoint.tokens_per_second``, and those of a model in this process are unknown.

A response that the journal has is not asked for again. For thinkers their number is known exactly,
for deliberators only when their caches are built: at most as many as the journal has. How often a
judge is asked is known least: from never to every vote on every response.

Not covered: requests that fail and are repeated, which come on top; problems with too few usable
attempts, which are not deliberated; loading and start-up; discounts for prompts in a prefix cache.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from heavydistill.heavy import prompts
from heavydistill.models.registry import revision_of
from heavydistill.models.request import JUDGE, THINK, deliberate_stage, samples, user_turn
from heavydistill.models.resolve import ResolvedModel
from heavydistill.models.tokenizer import ESTIMATED, TEMPLATE_TOKENS, reader_of
from heavydistill.run.generate import Plan
from heavydistill.store.journal import Journal, key
from heavydistill.store.segment import Record
from heavydistill.verifiers.judge import MOST_BYTES, is_comparable, question

_RECORDS_READ, _RECORDS_PER_STAGE = 5_000, 1_000


@dataclass(frozen=True, slots=True)
class Range:
    """From the least to the most; ``high`` is infinite where nothing is known."""

    low: float
    high: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def times(self, low: float, high: float) -> Range:
        """So much of each of it."""
        return Range(self.low * low, self.high * high)

    def within(self, bounds: Range) -> Range:
        """The part of it inside of ``bounds``, or the end of those that is nearest."""
        low = min(max(self.low, bounds.low), bounds.high)
        return Range(low, max(min(self.high, bounds.high), bounds.low))


@dataclass(frozen=True, slots=True)
class Means:
    """What the responses of a stage in the journal were like on average."""

    responses: int
    prompt_tokens: float | None
    """None if the server did not count, as for the next."""
    completion_tokens: float | None
    seconds: float
    """Time of a response; of a model in this process, its share of the time of its batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """What is still to be spent."""

    calls: Range
    """Responses that are not in the journal."""
    prompt_tokens: Range
    completion_tokens: Range
    """Tokens written in them, thinking included."""
    usd: Range | None
    """Cost; None if the price is not known."""
    hours: Range

    @property
    def tokens(self) -> Range:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEstimate:
    """One stage."""

    stage: str
    """Name as in ``models.request``."""
    model: ResolvedModel
    in_journal: Range
    """Responses that are there already."""
    bounds: Amounts
    expected: Amounts
    means: Means | None
    """None without responses in the journal."""

    @property
    def is_measured(self) -> bool:
        """Whether the length of its responses is expected rather than bounded."""
        return self.means is not None and self.means.completion_tokens is not None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A whole run."""

    stages: list[StageEstimate]
    thinker_tokenizer: str
    """Name of what counted the thinkers' prompts."""
    skipped: int = 0
    """Lines of the journal that cannot be read."""

    @property
    def thinking(self) -> StageEstimate | None:
        """The first stage; None if pools are read."""
        return next((stage for stage in self.stages if stage.stage == THINK), None)

    @property
    def bounds(self) -> Amounts:
        return _total([stage.bounds for stage in self.stages])

    @property
    def expected(self) -> Amounts:
        return _total([stage.expected for stage in self.stages])

    @property
    def billed(self) -> Amounts:
        """What is expected of served models, which alone count against a budget."""
        return _total([stage.expected for stage in self.stages if not stage.model.is_local])


def estimate(plan: Plan) -> Estimate:
    """What a checked run will take. Sends no request and writes nothing."""
    run, config = plan.run, plan.config
    journal = Journal(plan.journal) if plan.journal.is_dir() else None
    models = {THINK: run.thinker, JUDGE: run.judge}
    models |= {deliberate_stage(n): run.deliberator for n in range(1, config.rounds + 1)}
    asked = {stage: model for stage, model in models.items() if model}
    means = _means(journal, asked) if journal else {}
    stages: list[StageEstimate] = []
    # Prompts of which the journal has all samples, and responses that it has of other stages.
    whole, others = len(plan.problems), journal.answered if journal else 0
    counter = reader_of((run.thinker or run.deliberator).profile.tokenizer).name
    if run.thinker:
        thinking, whole = _thinking(plan, run.thinker, journal, means.get(THINK))
        stages += [thinking]
        others -= int(thinking.in_journal.low)
    for stage, model in asked.items():
        if stage not in (THINK, JUDGE):
            total = len(plan.problems) * model.samples
            likely, most = min(total, whole * model.samples, others), min(total, others)
            budget = (config.cache.budget_tokens or 0) + TEMPLATE_TOKENS
            read = Range(-(-(total - most) // _samples_a_call(model)), total * budget)
            calls, bounds = Range(total - likely, total), Range(total - most, total)
            in_journal, mean = Range(0, likely), means.get(stage)
            stages += [_stage(stage, model, in_journal, calls, bounds, read, mean)]
    if run.judge:
        counts = _judge_prompts(plan, run.judge)
        votes = run.judge.samples * (config.think.k + config.rounds * config.deliberate.d)
        calls, read = Range(0, len(counts) * votes), Range(0, sum(counts) * votes)
        in_journal = Range(0, min(calls.high, others))
        stages += [_stage(JUDGE, run.judge, in_journal, calls, calls, read, means.get(JUDGE))]
    return Estimate(stages, counter, journal.skipped if journal else 0)


def _thinking(
    plan: Plan, thinker: ResolvedModel, journal: Journal | None, means: Means | None
) -> tuple[StageEstimate, int]:
    """(the stage, prompts of which the journal has every sample)."""
    config, k = plan.config, plan.config.think.k
    counter = reader_of(thinker.profile.tokenizer)
    revision = revision_of(thinker.profile, thinker.endpoint) if journal else ""
    missing: dict[str, int] = {}  # the same text is asked once, see ``models.journaled``
    whole = 0
    for problem in plan.problems:
        domain = problem.domain or config.domain or "general"
        wording = prompts.load("thinker", domain, config.language)
        prompt = prompts.thinker_prompt(problem.text, wording)
        if prompt in missing:
            continue
        missing[prompt] = k
        if journal:
            requests = samples(
                user_turn(prompt),
                k,
                thinker.sampling,
                run_seed=config.seed,
                model=thinker.profile.name,
            )
            keys = (key(thinker.profile.model, revision, request) for request in requests)
            states = [journal.state(each) for each in keys]
            whole += None not in states
            missing[prompt] -= states.count("answered")
    calls = sum(missing.values())
    lengths = {prompt: counter.count(prompt) for prompt, count in missing.items() if count}
    shared = _samples_a_call(thinker)
    read = {prompt: -(-missing[prompt] // shared) for prompt in lengths}
    least = sum((1 if counter.name == ESTIMATED else lengths[p]) * n for p, n in read.items())
    most = sum(lengths[prompt] * missing[prompt] for prompt in lengths) + calls * TEMPLATE_TOKENS
    answered = len(missing) * k - calls
    both = Range(calls, calls)
    in_journal = Range(answered, answered)
    return _stage(THINK, thinker, in_journal, both, both, Range(least, most), means), whole


def _judge_prompts(plan: Plan, judge: ResolvedModel) -> list[int]:
    """Maximum tokens of the prompt for each problem that a judge can be asked about."""
    counter = reader_of(judge.profile.tokenizer)
    wording = prompts.load("judge", "general", plan.config.language)
    return [
        counter.count(question(problem, "", wording)) + MOST_BYTES + TEMPLATE_TOKENS
        for problem in plan.problems
        if is_comparable(problem)
    ]


def _stage(
    stage: str,
    model: ResolvedModel,
    in_journal: Range,
    calls: Range,
    bounds: Range,
    prompt_tokens: Range,
    means: Means | None,
) -> StageEstimate:
    """A stage from its calls, those that are certain, and the bounds of its prompts."""
    written = bounds.times(1, model.sampling.max_tokens)
    read_here = prompt_tokens
    written_here = calls.times(1, model.sampling.max_tokens)
    if means and means.prompt_tokens and stage != THINK:
        read_here = calls.times(means.prompt_tokens, means.prompt_tokens)
    if means and means.completion_tokens:
        written_here = calls.times(means.completion_tokens, means.completion_tokens)
    read_here, written_here = read_here.within(prompt_tokens), written_here.within(written)
    unknown = Range(0, math.inf)
    return StageEstimate(
        stage=stage,
        model=model,
        in_journal=in_journal,
        bounds=_amounts(model, bounds, prompt_tokens, written, unknown),
        expected=_amounts(model, calls, read_here, written_here, _seconds(model, means)),
        means=means,
    )


def _seconds(model: ResolvedModel, means: Means | None) -> Range:
    """Duration of a response."""
    if means:
        return Range(means.seconds, means.seconds)
    speed = model.endpoint.tokens_per_second
    return (
        Range(0, math.inf)
        if model.is_local
        else Range(1, model.sampling.max_tokens).times(1 / speed, 1 / speed)
    )


def _amounts(
    model: ResolvedModel,
    calls: Range,
    prompt_tokens: Range,
    completion_tokens: Range,
    seconds: Range,
) -> Amounts:
    low = model.profile.usd(prompt_tokens.low, completion_tokens.low)
    high = model.profile.usd(prompt_tokens.high, completion_tokens.high)
    return Amounts(
        calls=calls,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        usd=None if low is None or high is None else Range(low, high),
        hours=_hours(model, calls, prompt_tokens + completion_tokens, seconds),
    )


def _hours(model: ResolvedModel, calls: Range, tokens: Range, seconds: Range) -> Range:
    """Hours of a stage alone, with requests in all slots; no less than rate limits allow."""
    if not calls.high:
        return Range(0, 0)
    endpoint = model.endpoint
    slots = 1 if model.is_local else endpoint.slots
    hours = calls.times(seconds.low / slots / 3600, seconds.high / slots / 3600)
    limits = (calls, endpoint.requests_per_minute), (tokens, endpoint.tokens_per_minute)
    for amount, limit in () if model.is_local else limits:
        if limit:
            least = amount.times(1 / limit / 60, 1 / limit / 60)
            hours = Range(max(hours.low, least.low), max(hours.high, least.high))
    return hours


def _samples_a_call(model: ResolvedModel) -> int:
    """Samples that may share the reading of their prompt."""
    capabilities = model.endpoint.capabilities
    return 1 if model.is_local or not capabilities else capabilities.n


def _total(amounts: Sequence[Amounts]) -> Amounts:
    """The sum over stages, which overlap in time."""
    nothing = Range(0, 0)
    known = [each.usd for each in amounts if each.usd is not None]
    return Amounts(
        calls=sum((each.calls for each in amounts), nothing),
        prompt_tokens=sum((each.prompt_tokens for each in amounts), nothing),
        completion_tokens=sum((each.completion_tokens for each in amounts), nothing),
        usd=sum(known, nothing) if len(known) == len(amounts) else None,
        hours=Range(
            max((each.hours.low for each in amounts), default=0),
            sum(each.hours.high for each in amounts),
        ),
    )


def _means(journal: Journal, models: Mapping[str, ResolvedModel]) -> dict[str, Means]:
    """What the journal's responses of each stage were like, whatever their problems were.

    Of a large journal some are read: at random where an endpoint filled it, in the order of writing
    where a model of this process did, so that its batches stay together.
    """
    asked = {
        stage: (model.profile.model, model.sampling.model_dump()) for stage, model in models.items()
    }
    found: dict[str, list[Record]] = {stage: [] for stage in models}
    shuffled = not all(model.is_local for model in models.values())
    for record in islice(journal.answers(shuffled), _RECORDS_READ):
        stage = str(record.asked.get("stage"))
        if asked.get(stage) == (record.model, record.asked.get("sampling")):
            found[stage].append(record)
        if all(len(records) >= _RECORDS_PER_STAGE for records in found.values()):
            break
    return {
        stage: _mean(records[:_RECORDS_PER_STAGE], models[stage].is_local)
        for stage, records in found.items()
        if records
    }


def _mean(records: list[Record], in_process: bool) -> Means:
    def tokens(counts: list[int]) -> float | None:
        known = [count for count in counts if count >= 0]
        return sum(known) / len(known) if known else None

    responses = [record.response for record in records]
    times = [response.latency_s for response in responses]
    # Samples of a batch in this process run side by side, so their times overlap.
    seconds = (busy_seconds(records) if in_process else sum(times)) / len(times)
    return Means(
        responses=len(records),
        prompt_tokens=tokens([response.prompt_tokens for response in responses]),
        completion_tokens=tokens([response.completion_tokens for response in responses]),
        seconds=seconds,
    )


def busy_seconds(records: list[Record]) -> float:
    """Seconds in which at least one of the responses was being written."""
    seconds, end = 0.0, 0.0
    for begin, until in sorted(
        (record.at - record.response.latency_s, record.at) for record in records
    ):
        seconds += max(0.0, until - max(begin, end))
        end = max(end, until)
    return seconds
