"""What a run will ask, read, write, cost and take, before it asks anything.

Two ranges for each number. The **bounds** hold whatever the models write: every response has from
1 token to the most that its sampling allows, a thinker's prompt has the tokens that its tokenizer
counts and at most ``TEMPLATE_TOKENS`` of a chat template, a deliberator's from the empty frame of
its cache to the cache's whole budget. What is **expected** comes from the journal, where that has
responses of the same model, stage and sampling (see ``past``): their mean with its 95 % interval,
within the bounds; where it has none, it is the bounds.

Hours have no bounds: whoever serves may be as slow as it likes. See ``hours`` for what is expected.

Nobody knows what a judge will be asked: from nothing to every vote on every response, each with the
longest answer that is put to a judge.

A response that the journal has is not asked for again. Of the thinkers' that is known exactly, of
the deliberators' only when their caches are built: at most as many as the journal has.

In a run from pools nobody thinks, so there is no such stage.

Not covered: requests that fail and are asked again, which come on top; problems with too few
usable attempts, which are not deliberated, so that less is asked; loading and start-up; what a
provider takes off for prompts in its prefix cache; tokenizers that stand in for another model's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heavydistill.config.models import Endpoint
from heavydistill.config.run import RunConfig
from heavydistill.heavy import prompts
from heavydistill.heavy.cache import frame_tokens
from heavydistill.heavy.pruning import Reader
from heavydistill.models.profiles import Profile
from heavydistill.models.registry import revision_of
from heavydistill.models.request import JUDGE, THINK, Request, deliberate_stage, samples, user_turn
from heavydistill.models.resolve import ResolvedModel, ResolvedRun
from heavydistill.models.tokenizer import ESTIMATED, TEMPLATE_TOKENS, reader_of
from heavydistill.run.generate import Plan
from heavydistill.run.hours import Duration, duration_of, hours_of
from heavydistill.run.past import Measured, measure, records_of
from heavydistill.run.ranges import Range
from heavydistill.schema import Problem
from heavydistill.store.journal import Journal, key
from heavydistill.verifiers.judge import MOST_BYTES, is_comparable, question


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """What is still to be spent.

    Attributes:
        calls: Responses that are not in the journal.
        prompt_tokens: Read for them.
        completion_tokens: Written in them, thinking included.
        usd: Their cost; None if the price is not known.
        hours: How long that takes; up to infinity if it is not known.
    """

    calls: Range
    prompt_tokens: Range
    completion_tokens: Range
    usd: Range | None
    hours: Range

    @property
    def tokens(self) -> Range:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEstimate:
    """One stage.

    Attributes:
        stage: As in ``models.request``.
        model: Who is asked.
        max_tokens: Most tokens of a response.
        in_journal: Responses that are there already.
        bounds: See above.
        expected: See above.
        measured: What the journal tells of such responses; None if nothing.
    """

    stage: str
    model: Profile
    max_tokens: int
    in_journal: Range
    bounds: Amounts
    expected: Amounts
    measured: Measured | None

    @property
    def is_measured(self) -> bool:
        """Whether the length of its responses is expected rather than bounded."""
        return self.measured is not None and self.measured.completion_tokens is not None

    @property
    def is_timed(self) -> bool:
        """Whether the journal tells how long its responses take."""
        return self.measured is not None and self.measured.seconds is not None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A whole run.

    Attributes:
        stages: In order.
        thinker_tokenizer: What counted the thinkers' prompts.
        skipped: Lines of the journal that cannot be read.
    """

    stages: list[StageEstimate]
    thinker_tokenizer: str
    skipped: int = 0

    @property
    def thinking(self) -> StageEstimate | None:
        """The first stage; None if nobody thinks."""
        return next((stage for stage in self.stages if stage.stage == THINK), None)

    @property
    def bounds(self) -> Amounts:
        return _total([stage.bounds for stage in self.stages])

    @property
    def expected(self) -> Amounts:
        return _total([stage.expected for stage in self.stages])

    @property
    def paid(self) -> Amounts:
        """What is expected of served models, which alone count against a budget."""
        return _total([s.expected for s in self.stages if s.model.kind == "endpoint"])


@dataclass(frozen=True, slots=True)
class _Thinking:
    """Thinkers' requests: how many the journal has, and what is to be read for the others.

    Attributes:
        total: Different requests.
        missing: Tokens of the prompt of each request without a response, one list a prompt.
        is_estimated: Whether these are no lower bound.
        whole: Problems whose requests were all asked before.
    """

    total: int
    missing: list[list[int]]
    is_estimated: bool
    whole: int


def estimate(plan: Plan) -> Estimate:
    """What a checked run will take. Asks nobody and writes nothing."""
    run, config = plan.run, plan.config
    reader = reader_of(run.deliberator.profile.tokenizer)
    counter = reader_of((run.thinker or run.deliberator).profile.tokenizer)
    journal = Journal(plan.journal) if plan.journal.is_dir() else None
    asked = {THINK: run.thinker, JUDGE: run.judge}
    asked |= {deliberate_stage(n): run.deliberator for n in range(1, config.rounds + 1)}
    sampled = {
        stage: (model.profile.model, model.sampling) for stage, model in asked.items() if model
    }
    records = records_of(journal, sampled, config.endpoint.is_served) if journal else {}
    stages: list[StageEstimate] = []
    whole, others = len(plan.problems), journal.answered if journal else 0
    if run.thinker:
        thinking = _thinking(plan, run.thinker, counter, journal)
        measured = measure(records.get(THINK, []), len(thinking.missing), run.thinker.is_local)
        stages += [_think_stage(run, run.thinker, thinking, measured)]
        whole = thinking.whole
        others -= thinking.total - sum(map(len, thinking.missing))
    frames = [_frame(problem, config, reader) for problem in plan.problems]
    if reader.name == ESTIMATED:  # which is no lower bound
        frames = [1] * len(frames)
    for round in range(1, config.rounds + 1):
        known = records.get(deliberate_stage(round), [])
        measured = measure(known, len(frames), run.deliberator.is_local)
        answered = whole * config.deliberate.d, others
        stages += [_deliberate_stage(run, round, frames, answered, measured)]
    if run.judge:
        measured = measure(records.get(JUDGE, []), len(frames), run.judge.is_local)
        stages += [_judge_stage(plan, run.judge, others, measured)]
    return Estimate(stages, counter.name, journal.skipped if journal else 0)


def _thinking(
    plan: Plan, thinker: ResolvedModel, counter: Reader, journal: Journal | None
) -> _Thinking:
    config = plan.config
    revision = revision_of(thinker.profile, thinker.endpoint) if journal else ""
    seen: set[str] = set()
    missing, whole = [], 0
    for problem in plan.problems:
        domain = problem.domain or config.domain or "general"
        wording = prompts.load("thinker", domain, config.language)
        prompt = prompts.thinker_prompt(problem.text, wording)
        if prompt in seen:  # the same text is asked once, see ``models.journaled``
            continue
        seen.add(prompt)
        unanswered = config.think.k
        if journal:
            states = [
                journal.state(key(thinker.profile.model, revision, request))
                for request in _think_requests(config, thinker, prompt)
            ]
            whole += None not in states
            unanswered -= states.count("answered")
        if unanswered:
            missing += [[counter.count(prompt)] * unanswered]
    estimated = counter.name == ESTIMATED
    return _Thinking(len(seen) * config.think.k, missing, estimated, whole)


def _think_requests(config: RunConfig, thinker: ResolvedModel, prompt: str) -> list[Request]:
    return samples(
        user_turn(prompt),
        config.think.k,
        thinker.sampling,
        run_seed=config.seed,
        model=thinker.profile.name,
    )


def _frame(problem: Problem, config: RunConfig, reader: Reader) -> int:
    """Fewest tokens of a cache of this problem."""
    domain = problem.domain or config.domain or "general"
    attempts = min(config.cache.width or config.think.min_k, config.think.min_k)
    wording = prompts.for_cache(config.deliberate.task, domain, config.language)
    return frame_tokens(problem, attempts, wording, reader)


def _think_stage(
    run: ResolvedRun, thinker: ResolvedModel, thinking: _Thinking, measured: Measured | None
) -> StageEstimate:
    shared = _samples_a_call(run.config)
    calls = sum(map(len, thinking.missing))
    read = [prompt[: -(-len(prompt) // shared)] for prompt in thinking.missing]
    prompt_tokens = Range(
        sum(map(len, read)) if thinking.is_estimated else sum(map(sum, read)),
        sum(map(sum, thinking.missing)) + calls * TEMPLATE_TOKENS,
    )
    answered = thinking.total - calls
    both = Range(calls, calls)
    return _stage(THINK, thinker, Range(answered, answered), both, both, prompt_tokens, measured)


def _deliberate_stage(
    run: ResolvedRun,
    round: int,
    frames: Sequence[int],
    answered: tuple[int, int],
    measured: Measured | None,
) -> StageEstimate:
    """``answered``: how many the journal has, (if it is of this run's pools, at the very most)."""
    config, d = run.config, run.deliberator.samples
    total = len(frames) * d
    likely, most = min(total, *answered), min(total, answered[1])
    bounds = Range(total - most, total)
    prompts_read = -(-(total - most) // _samples_a_call(config))
    smallest = sorted(frame for frame in frames for _ in range(d))[:prompts_read]
    longest = (config.cache.budget_tokens or 0) + TEMPLATE_TOKENS
    return _stage(
        deliberate_stage(round),
        run.deliberator,
        Range(0, likely),
        bounds,
        Range(total - likely, total),
        Range(sum(smallest), total * longest),
        measured,
    )


def _judge_stage(
    plan: Plan, judge: ResolvedModel, answered: int, measured: Measured | None
) -> StageEstimate:
    """``answered``: how many the journal has, if it is of this run's answers, at the very most."""
    config, counter = plan.config, reader_of(judge.profile.tokenizer)
    wording = prompts.load("judge", "general", config.language)
    frames = [
        counter.count(question(problem, "", wording)) + MOST_BYTES + TEMPLATE_TOKENS
        for problem in plan.problems
        if is_comparable(problem)
    ]
    votes = judge.samples * (config.think.k + config.rounds * config.deliberate.d)
    calls = Range(0, len(frames) * votes)
    in_journal = Range(0, min(calls.high, answered))
    prompt_tokens = Range(0, sum(frames) * votes)
    return _stage(JUDGE, judge, in_journal, calls, calls, prompt_tokens, measured)


def _stage(
    stage: str,
    asked: ResolvedModel,
    in_journal: Range,
    bounds: Range,
    calls: Range,
    prompt_tokens: Range,
    measured: Measured | None,
) -> StageEstimate:
    """From calls and prompts to all the rest."""
    endpoint, model, most = asked.endpoint, asked.profile, asked.sampling.max_tokens
    written = Range(bounds.low, bounds.high * most)
    certain = _amounts(endpoint, model, bounds, prompt_tokens, written, None)
    of_read = measured.prompt_tokens if measured and stage != THINK else None
    read = calls.times(of_read.low, of_read.high) if of_read else prompt_tokens
    of_written = measured.completion_tokens if measured else None
    expected = (
        calls.times(max(1, of_written.low), min(most, of_written.high))
        if of_written
        else Range(calls.low, calls.high * most)
    )
    return StageEstimate(
        stage=stage,
        model=model,
        max_tokens=most,
        in_journal=in_journal,
        bounds=certain,
        expected=_amounts(
            endpoint,
            model,
            calls,
            read.within(prompt_tokens),
            expected.within(written),
            duration_of(endpoint, model, most, measured),
        ),
        measured=measured,
    )


def _amounts(
    endpoint: Endpoint,
    model: Profile,
    calls: Range,
    prompt_tokens: Range,
    completion_tokens: Range,
    duration: Duration | None,
) -> Amounts:
    low = model.usd(prompt_tokens.low, completion_tokens.low)
    high = model.usd(prompt_tokens.high, completion_tokens.high)
    return Amounts(
        calls=calls,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        usd=None if low is None or high is None else Range(low, high),
        hours=hours_of(endpoint, model, calls, prompt_tokens + completion_tokens, duration),
    )


def _samples_a_call(config: RunConfig) -> int:
    """Samples that may share the reading of their prompt."""
    capabilities = config.endpoint.capabilities
    return capabilities.n if capabilities and config.endpoint.is_served else 1


def _total(amounts: Sequence[Amounts]) -> Amounts:
    """Of stages that overlap in time."""
    nothing = Range(0, 0)
    costs = [each.usd for each in amounts]
    known = [cost for cost in costs if cost is not None]
    return Amounts(
        calls=sum((each.calls for each in amounts), nothing),
        prompt_tokens=sum((each.prompt_tokens for each in amounts), nothing),
        completion_tokens=sum((each.completion_tokens for each in amounts), nothing),
        usd=sum(known, nothing) if len(known) == len(costs) else None,
        hours=Range(
            max((each.hours.low for each in amounts), default=0),
            sum(each.hours.high for each in amounts),
        ),
    )
