"""Estimates the requests, tokens, cost and time of a run before any request is sent.

Every amount is a range. If the journal has responses of the same model, stage and sampling, their
mean length and time are used. Otherwise a response has between 1 token and the maximum of its
sampling, at ``endpoint.tokens_per_second``. A thinker's prompt is counted by its tokenizer, plus at
most ``TEMPLATE_TOKENS`` for a chat template; a deliberator's prompt has at most the token budget of
its cache. The time of models in this process is unknown, and that of a batch is up to a day.

Responses in the journal are not requested again. Their number is exact for thinkers; for
deliberators it is known only once their caches are built. For each response, a judge gets between
no requests and one request per vote.

Not covered: repeated requests after failures; problems with too few usable attempts, which are not
deliberated on; loading and start-up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from heavydistill.heavy import prompts
from heavydistill.heavy.tools import parameters_of
from heavydistill.models.registry import revision_of
from heavydistill.models.request import (
    JUDGE,
    THINK,
    conversation,
    deliberate_stage,
    samples,
    texts_of,
)
from heavydistill.models.resolve import ResolvedModel
from heavydistill.models.tokenizer import ESTIMATED, TEMPLATE_TOKENS, reader_of
from heavydistill.run.generate import Plan
from heavydistill.store.journal import Journal, keys, prompt_id
from heavydistill.store.segment import Record
from heavydistill.verifiers.judge import MOST_BYTES, is_comparable, question

_RECORDS_READ, _RECORDS_PER_STAGE = 5_000, 1_000
_HOURS_OF_A_BATCH = 24  # within which it is answered, or expires


@dataclass(frozen=True, slots=True)
class Range:
    """A range of amounts; ``high`` is infinite if there is no upper bound."""

    low: float
    high: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def times(self, low: float, high: float | None = None) -> Range:
        """Return the range multiplied by the range from ``low`` to ``high`` (default: ``low``)."""
        return Range(self.low * low, self.high * (low if high is None else high))


@dataclass(frozen=True, slots=True)
class Means:
    """Means over a stage's responses in the journal."""

    responses: int
    prompt_tokens: float | None  # None if the server does not report it
    completion_tokens: float | None  # None if the server does not report it
    cached_tokens: float | None  # prompt tokens from the server's cache; None if not reported
    seconds: float | None  # time of a response; None if all were in batches


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingWork:
    """Amounts that a run or a stage still needs."""

    calls: Range  # responses that are not in the journal
    prompt_tokens: Range
    completion_tokens: Range  # including thinking
    usd: Range | None  # cost; None if the price is unknown
    hours: Range

    @property
    def tokens(self) -> Range:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEstimate:
    """The estimate of one stage."""

    stage: str  # name as in ``models.request``
    model: ResolvedModel
    in_journal: Range  # number of responses in the journal
    amounts: RemainingWork
    means: Means | None  # None if the journal has no responses
    counter: str = ""  # name of the tokenizer that counted a thinker's prompts

    @property
    def is_measured(self) -> bool:
        """Return whether the length of responses was measured in the journal."""
        return self.means is not None and self.means.completion_tokens is not None


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate of a run. Its stages overlap in time."""

    stages: list[StageEstimate]
    skipped: int = 0  # unreadable lines of the journal

    @property
    def thinking(self) -> list[StageEstimate]:
        """Return the stages of the thinkers; none for a run on existing pools."""
        return [stage for stage in self.stages if stage.stage == THINK]

    @property
    def amounts(self) -> RemainingWork:
        return _total(self.stages)

    @property
    def billed(self) -> RemainingWork:
        """Return the amounts of served models; only these count towards a budget."""
        return _total([stage for stage in self.stages if not stage.model.is_local])


def estimate(plan: Plan) -> Estimate:
    """Estimate a checked run without sending a request."""
    run, config = plan.run, plan.config
    journal = Journal(plan.journal) if plan.journal.is_dir() else None
    asked = [(THINK, thinker) for thinker in run.thinkers]
    asked += [(JUDGE, run.judge)] if run.judge else []
    asked += [(deliberate_stage(n), run.deliberator) for n in range(1, config.rounds + 1)]
    means = _means(journal, asked) if journal else [None] * len(asked)
    stages: list[StageEstimate] = []
    # Prompts with all samples in the journal; responses of other stages in the journal.
    whole, others = len(plan.problems), journal.answered if journal else 0
    for thinker, of_thinker in zip(run.thinkers, means, strict=False):
        thinking, prompts_whole = _thinking(plan, thinker, journal, of_thinker)
        stages += [thinking]
        whole = min(whole, prompts_whole)
        others -= int(thinking.in_journal.low)
    for (stage, model), of_stage in zip(asked, means, strict=True):
        if stage not in (THINK, JUDGE):
            total = len(plan.problems) * model.samples
            answered = min(total, whole * model.samples, others)
            calls = Range(total - answered, total)
            budget = (config.cache.budget_tokens or 0) + TEMPLATE_TOKENS
            budget += config.system_tokens
            read = Range(-(-calls.low // _samples_a_call(model)), total * budget)
            stages += [_stage(stage, model, Range(0, answered), calls, read, of_stage)]
    if run.judge and config.judge:
        # Maximum length of the judge's prompt for each problem that may need a judge.
        reader = reader_of(run.judge.profile.tokenizer)
        wording = prompts.judge_prompt(config.language, config.prompts.judge)
        counts = [
            reader.count(question(problem, "", wording)) + MOST_BYTES + TEMPLATE_TOKENS
            for problem in plan.problems
            if is_comparable(problem)
        ]
        votes = run.judge.samples * (config.think.k + config.rounds * config.deliberate.d)
        calls, read = Range(0, len(counts) * votes), Range(0, sum(counts) * votes)
        in_journal = Range(0, min(calls.high, others))
        stages += [_stage(JUDGE, run.judge, in_journal, calls, read, means[len(run.thinkers)])]
    return Estimate(stages, journal.skipped if journal else 0)


def _thinking(
    plan: Plan, thinker: ResolvedModel, journal: Journal | None, means: Means | None
) -> tuple[StageEstimate, int]:
    """Return (a thinker's stage, number of prompts with all samples in the journal)."""
    config, k, counter = plan.config, thinker.samples, reader_of(thinker.profile.tokenizer)
    revision = revision_of(thinker.profile, thinker.endpoint) if journal else ""
    tool = config.think.tools.python
    missing: dict[str, int] = {}  # samples per prompt; equal prompts share samples
    texts: dict[str, str] = {}  # what a model reads of each prompt
    whole = 0
    for problem in plan.problems:
        prompt = prompts.asked_of_thinker(problem, config)
        messages = conversation(prompt, problem.history, config.system)
        prompt = prompt_id(messages)
        if prompt in missing:
            continue
        missing[prompt], texts[prompt] = k, "\n".join(texts_of(messages))
        if journal:
            name, seed = thinker.profile.name, config.seed
            requests = samples(messages, k, thinker.sampling, run_seed=seed, model=name)
            requests = [replace(each, more=parameters_of(tool)) for each in requests]
            asked = keys(thinker.profile.model, revision, requests)
            states = [journal.state(each) for each in asked]
            whole += None not in states
            missing[prompt] -= states.count("answered")
    calls = sum(missing.values())
    shared, least, most = _samples_a_call(thinker), 0, calls * TEMPLATE_TOKENS
    for prompt, count in missing.items():
        length = counter.count(texts[prompt]) if count else 0
        least += -(-count // shared) * (1 if counter.name == ESTIMATED else length)
        most += count * length
    answered = len(missing) * k - calls
    read, in_journal = Range(least, most), Range(answered, answered)
    turns = 1 + tool.rounds if tool else 1  # each reads what was read and written before
    read = read if turns == 1 else Range(least, calls * turns * thinker.profile.context)
    stage = _stage(THINK, thinker, in_journal, Range(calls, calls * turns), read, means)
    return replace(stage, counter=counter.name), whole


def _stage(
    stage: str,
    model: ResolvedModel,
    in_journal: Range,
    calls: Range,
    read: Range,
    means: Means | None,
) -> StageEstimate:
    """Return a stage's estimate from its calls, prompt tokens, and means in the journal."""
    longest = model.sampling.max_tokens
    written = calls.times(1, longest)
    if means and means.prompt_tokens and stage != THINK:  # the thinker's prompts were counted
        read = calls.times(means.prompt_tokens)
    if means and means.completion_tokens:
        written = calls.times(means.completion_tokens)
    seconds = Range(1, longest).times(1 / model.endpoint.tokens_per_second)
    if means and means.seconds:
        seconds = Range(means.seconds, means.seconds)
    # At best, all samples of a prompt but the first find it in the provider's cache.
    cached = Range(0 if stage == THINK else read.low * (1 - 1 / max(1, model.samples)), 0)
    if means and means.cached_tokens is not None:
        cached = calls.times(means.cached_tokens)
    low = model.profile.usd(read.low, written.low, cached.low)
    high = model.profile.usd(read.high, written.high, cached.high)
    amounts = RemainingWork(
        calls=calls,
        prompt_tokens=read,
        completion_tokens=written,
        usd=None if low is None or high is None else Range(low, high),
        hours=_hours(model, calls, read + written, seconds),
    )
    return StageEstimate(
        stage=stage, model=model, in_journal=in_journal, amounts=amounts, means=means
    )


def _hours(model: ResolvedModel, calls: Range, tokens: Range, seconds: Range) -> Range:
    """Return the hours of a stage that uses all slots, but no less than its rate limits require."""
    endpoint = model.endpoint
    if model.is_local or not calls.high:
        return Range(0, math.inf if calls.high else 0)
    if endpoint.is_batched:
        return Range(0, _HOURS_OF_A_BATCH if endpoint.batch else math.inf)
    hours = calls.times(seconds.low / endpoint.slots / 3600, seconds.high / endpoint.slots / 3600)
    for amount, limit in (
        (calls, endpoint.requests_per_minute),
        (tokens, endpoint.tokens_per_minute),
    ):
        if limit:
            least = amount.times(1 / limit / 60)
            hours = Range(max(hours.low, least.low), max(hours.high, least.high))
    return hours


def _samples_a_call(model: ResolvedModel) -> int:
    """Return the number of samples per request; they share the prompt."""
    capabilities = model.endpoint.capabilities
    is_shared = capabilities and not (model.is_local or model.endpoint.is_batched)
    return capabilities.n if capabilities and is_shared else 1


def _total(stages: list[StageEstimate]) -> RemainingWork:
    """Return the sum over stages; the hours are at least those of the longest stage."""
    amounts = [stage.amounts for stage in stages]

    def total(name: str) -> Range:
        return sum((getattr(each, name) for each in amounts), Range(0, 0))

    return RemainingWork(
        calls=total("calls"),
        prompt_tokens=total("prompt_tokens"),
        completion_tokens=total("completion_tokens"),
        usd=None if any(each.usd is None for each in amounts) else total("usd"),
        hours=Range(max((each.hours.low for each in amounts), default=0), total("hours").high),
    )


def _means(journal: Journal, stages: Sequence[tuple[str, ResolvedModel]]) -> list[Means | None]:
    """Return the means of each stage over the journal's responses, sampled if there are many."""
    asked = [(stage, model.profile.model, model.sampling.model_dump()) for stage, model in stages]
    of_stages: list[list[Record]] = [[] for _ in stages]
    for record in islice(journal.answers(shuffled=True), _RECORDS_READ):
        what = (str(record.asked.get("stage")), record.model, record.asked.get("sampling"))
        if what in asked:
            of_stages[asked.index(what)].append(record)
        if all(len(records) >= _RECORDS_PER_STAGE for records in of_stages):
            break

    def mean(counts: Sequence[float]) -> float | None:
        counted = [count for count in counts if count >= 0]
        return sum(counted) / len(counted) if counted else None

    def means(records: list[Record]) -> Means | None:
        responses = [record.response for record in records[:_RECORDS_PER_STAGE]]
        if not responses:
            return None
        return Means(
            responses=len(responses),
            prompt_tokens=mean([response.prompt_tokens for response in responses]),
            completion_tokens=mean([response.completion_tokens for response in responses]),
            cached_tokens=mean([response.cached_tokens for response in responses]),
            seconds=mean([response.latency_s or -1 for response in responses]),
        )

    return [means(records) for records in of_stages]
