"""Prints the plan of a run: its requests, tokens, cost and time, and what needs attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from heavydistill.errors import TeacherError
from heavydistill.models.request import JUDGE, THINK
from heavydistill.report.grid import Grid, Line, counted
from heavydistill.report.terminal import print_command, print_grid, print_lines, say
from heavydistill.store.journal import skipped_note

if TYPE_CHECKING:
    from rich.console import Console

    from heavydistill.run.estimate import Estimate, Range, RemainingWork, StageEstimate
    from heavydistill.run.generate import Plan
    from heavydistill.run.pools import PoolsOfRun

_UNKNOWN = "unknown"
_UNITS = {1: "", 10**3: "k", 10**6: "M", 10**9: "G"}
_SAMPLES = {"deliberate": "deliberations", "choose": "choices"}
_SAMPLES |= dict.fromkeys(("think", "skill"), "answers")
_FEWEST_PER_GPU = 32  # requests in flight, below which a GPU waits for work
_NOISE = 1e-9  # rounding error of binary fractions


def print_plan(plan: Plan, console: Console, in_full: bool = False) -> None:
    """Print the models and sizes of a run, anything unusual about it, and its estimate.

    The estimate is one line; with ``in_full``, a table of the stages and its assumptions.
    """
    from heavydistill.run.estimate import estimate

    figures = estimate(plan)
    say(", ".join(_sizes(plan)), console)
    print_warnings(plan, console)
    for line, is_warning in dict.fromkeys(_notes_on_servers(plan)):
        say(line, console, "yellow" if is_warning else "")
    if plan.server:
        print_command("Server", plan.server, console)
        say(f"Its log: {plan.server_log}", console)
        _print_load(plan, console)
    if figures.skipped:
        say(skipped_note(plan.journal, figures.skipped), console, "yellow")
    if in_full:
        lines = []
        for each in figures.stages:
            name, _, model = _name(each, plan).partition(", ")
            lines.append(Line(name, _cells(each.amounts), model))
        lines.append(Line("all", _cells(figures.amounts)))
        head = ["Requests left", "calls", "tokens in", "tokens out", "USD", "hours"]
        print_grid(Grid(head, lines), console)
        print_lines(_notes(figures, plan), console)
        return
    if plan.config.budget:
        say(_note_on_budget(plan), console)
    say(_summary(figures), console)


def _sizes(plan: Plan) -> Iterator[str]:
    """Yield the numbers of problems, samples, rounds and votes, with the models that write them."""
    config, pools, judge = plan.config, plan.pools, plan.config.judge
    counts = config.attempts_by_thinker
    shared = " and ".join(f"{count} by {name}" for name, count in counts.items())
    thinker = f"by {config.thinker}" if len(counts) == 1 else f"({shared})"
    if pools:
        thinker = f"by {', '.join(sorted(pools.models))} in {config.pools}"
    yield counted(len(plan.problems), "problem")
    yield f"K={config.think.k} trajectories {thinker}"
    if config.rounds:
        samples = _SAMPLES[config.deliberate.task]
        yield f"D={config.deliberate.d} {samples} by {config.deliberator}"
        yield f"{config.rounds} round{'s' * (config.rounds > 1)}"
    else:
        yield "no deliberations"
    if judge:
        yield f"{judge.votes} vote(s) of {judge.model} on undecided verdicts"


def print_warnings(plan: Plan, console: Console) -> None:
    """Print what the user should know before any request is billed.

    The warnings name rows that are left out, verdicts of pools that are computed again, and
    responses that this machine cannot judge.
    """
    from heavydistill.problems.procedural import MICRO_MODELS, is_micro
    from heavydistill.report.summary import marker_noted
    from heavydistill.verifiers.registry import unavailable

    lines = []
    if plan.outside:
        within = plan.config.problems.within.items()
        bounds = " and ".join(f"{column} {low} to {high}" for column, (low, high) in within)
        lines += [f"Left out: {plan.outside:,} row(s) outside {bounds}"]
    if plan.rejected:
        rewrite = plan.config.problems.rewrite
        lines += [f"Left out: {plan.rejected:,} problem(s) by the plug-in {rewrite}"]
    if plan.marker:
        say(marker_noted(plan.marker), console)
    if plan.pools:
        lines += _warnings_of_pools(plan.pools, plan.config.cache.attempts)
    if plan.changed:
        keys = ", ".join(f"{key} {was}, now {now}" for key, (was, now) in plan.changed.items())
        lines += [f"{plan.folder} holds a run with {keys}; it is replaced at the end"]
    lines += _warnings_of_tools(plan)
    lines += _lines_on_unfit(list(plan.unfit.values()))
    kinds = {problem.verifier for problem in plan.problems}
    for reason in unavailable(kinds, plan.config.verify):
        lines += [f"Warning: {reason}"]
        lines += ["Its verdicts will be undecided; `heavydistill replay` judges a run again."]
    strange = sum(not is_micro(problem) for problem in plan.problems)
    if strange and (bundled := MICRO_MODELS.intersection(plan.config.model_names)):
        lines += [
            f"Warning: {' and '.join(sorted(bundled))} can only add 5 to 8 numbers and count the "
            f"legs of animals, in the bundled problems; {strange:,} of {len(plan.problems):,} "
            "problems are others. --teacher names a model that can solve them."
        ]
    lines += _warnings_of_prompts(plan)
    for line in lines:
        say(line, console, "yellow")


def _warnings_of_prompts(plan: Plan) -> Iterator[str]:
    """Yield a warning for each trained model that is asked with prompts that it has not learnt."""
    from heavydistill.run.learnt_prompts import unlearnt_prompts

    for prompts in unlearnt_prompts(plan.run, plan.problems):
        yield (
            f"Warning: {prompts.model} was trained on {' and '.join(prompts.learnt)}, and this run "
            f"asks it with {' and '.join(prompts.asked)}, which it has not learnt."
        )
        yield f"Its figures can be far below those with the prompts that it knows: {prompts.fix}"


def _warnings_of_tools(plan: Plan) -> Iterator[str]:
    """Yield a warning if the trajectories cannot all have an interpreter at once."""
    from heavydistill.sandbox.session import SessionLimits, room_for_sessions

    config = plan.config
    if tool := config.think.tools.python:
        room = room_for_sessions(SessionLimits.of(tool, config.verify.sandbox))
        if room < len(plan.problems) * config.think.k:
            yield (
                f"{room:,} trajectories can have an interpreter at once, by the memory of this "
                f"machine and verify.sandbox.memory_mb {config.verify.sandbox.memory_mb}; others "
                "wait for one."
            )


def _warnings_of_pools(pools: PoolsOfRun, control: str) -> Iterator[str]:
    if pools.rejects:
        yield f"Left out: {pools.rejects:,} row(s) that failed in a step of that run"
    if pools.unsuited:
        yield f"Left out: {pools.unsuited:,} problem(s) without attempts for {control}"
    for by, count in pools.outdated.most_common():
        yield f"Judged again: {count:,} trajectories with verdicts of another version, {by}"
    if pools.unjudged:
        without = "without a verdict, or whose judge failed"
        yield f"Judged now: {pools.unjudged:,} trajectories {without}"


def _summary(estimate: Estimate) -> str:
    """Return the estimate on one line."""
    amounts = estimate.amounts
    calls, _, _, usd, hours = _cells(amounts)
    is_free = all(stage.model.is_local for stage in estimate.stages)
    parts = [f"{calls} calls", f"{_span(amounts.tokens, _tokens)} tokens"]
    parts += ["free" if is_free else f"{usd} USD" if amounts.usd else "price unknown"]
    if hours != _UNKNOWN:
        is_long = amounts.hours.high >= 1
        minutes = _span(amounts.hours.times(60, 60), _tokens)
        parts += [f"{hours} hours" if is_long else f"{minutes} minutes"]
    measured = all(stage.is_measured for stage in estimate.stages)
    basis = "as in the journal" if measured else "least to most"
    if assumed := next(filter(_is_assumed, estimate.stages), None):
        speed = assumed.model.endpoint.tokens_per_second
        basis += f", at an assumed {speed:g} tokens a second"
    return f"To ask: {', '.join(parts)} ({basis}; --dry-run prints more)"


def _lines_on_unfit(faults: Sequence[str]) -> Iterator[str]:
    from heavydistill.problems.loading import MOST_LISTED

    if faults:
        yield f"Left out: {len(faults):,} row(s) that cannot be judged"
        yield from (f"  {fault}" for fault in faults[:MOST_LISTED])
    if (more := len(faults) - MOST_LISTED) > 0:
        yield f"  and {more:,} more"


def _print_load(plan: Plan, console: Console) -> None:
    """Print the requests in flight for each GPU of the server; warn if they leave it idle."""
    gpus = plan.run.server.gpus if plan.run.server else 0
    slots = plan.config.endpoint.slots
    if not gpus:
        say(f"Requests in flight: {slots:,}; there is no GPU, and vLLM runs on the CPU", console)
        return
    line = f"Requests in flight: {slots:,}, {slots / gpus:.3g} for each of {counted(gpus, 'GPU')}"
    if is_low := slots < _FEWEST_PER_GPU * gpus:
        line += ". GPUs wait for work with so few: leave endpoint.concurrency out"
    say(line, console, "yellow" if is_low else "")


def _notes_on_servers(plan: Plan) -> Iterator[tuple[str, bool]]:
    """Yield (note, whether it is a warning) about the servers of a run."""
    from heavydistill.config.models import Capabilities
    from heavydistill.models.capabilities import Source
    from heavydistill.models.contact import refuse_missing_key
    from heavydistill.models.tokenizer import SERVER

    config = plan.config
    yield from ((note, False) for note in _notes_on_batches(plan))
    # With a contact, the server was asked already and a warning was logged if it cannot count.
    if config.endpoint.tokenizer == SERVER and config.rounds and not plan.contact:
        yield (
            "Tokens of caches: counted by the server if it answers /tokenize, otherwise estimated "
            "as one per UTF-8 byte; --tokenizer FOLDER (or a Hub id) counts them exactly.",
            True,
        )
    for context in plan.run.contexts:
        if context.source not in (Source.SET, Source.PROFILE):
            later = "" if plan.contact else "; the run asks the server when it starts"
            yield f"{context}{later}", not context.is_known
    for model in plan.run.models:
        try:
            refuse_missing_key(model.endpoint)
        except TeacherError as error:
            yield f"Warning: {error}", True
    seen = config.endpoint.capabilities
    if seen and seen != Capabilities():
        yield f"Settings found by doctor: {seen.checked or 'as configured'}", False


def _notes_on_batches(plan: Plan) -> Iterator[str]:
    """Yield where the files of batches are, which hold prompts and answers."""
    for endpoint in (model.endpoint for model in plan.run.models):
        if endpoint.batch:
            yield (
                f"Batches: files with all prompts and answers are at {endpoint.base_url} until the "
                "answers are in the journal, and are then deleted there"
            )
        elif endpoint.batch_files:
            yield f"Batches: files for vllm run-batch are written to {endpoint.batch_files}"


def _cells(amounts: RemainingWork) -> list[str]:
    return [
        _span(amounts.calls, lambda value, up: f"{value:,.0f}"),
        _span(amounts.prompt_tokens, _tokens),
        _span(amounts.completion_tokens, _tokens),
        _span(amounts.usd, _amount) if amounts.usd else _UNKNOWN,
        _span(amounts.hours, _amount),
    ]


def _notes(estimate: Estimate, plan: Plan) -> Iterator[str]:
    """Yield the assumptions behind the estimate."""
    from heavydistill.models.tokenizer import ESTIMATED, TEMPLATE_TOKENS

    yield f"Writes {plan.folder} at the end; every response is kept in {plan.journal}"
    if thinking := estimate.thinking:
        in_journal = sum(stage.in_journal.low for stage in thinking)
        left = sum(stage.amounts.calls.low for stage in thinking)
        yield (
            f"In the journal: {in_journal:,} of {in_journal + left:,} trajectories; repeats of "
            "failed requests are not in the estimate"
        )
    for stage in thinking:
        counted = f"the tokenizer {stage.counter}"
        if stage.counter == ESTIMATED:
            counted = f"an {stage.counter}"
        role = "the thinker" if len(thinking) == 1 else stage.model.profile.name
        template = f"up to {TEMPLATE_TOKENS} of chat template each"
        yield f"Prompts of {role}: counted with {counted}, and {template}"
    asked = [stage for stage in estimate.stages if stage.amounts.calls.high]
    for stage in asked:
        means = stage.means
        length = f"length unknown, so 1 to {stage.model.sampling.max_tokens:,} tokens each"
        if means and means.completion_tokens:
            length = f"{means.completion_tokens:,.0f} tokens each, the mean of "
            length += f"{means.responses:,} responses in the journal"
        yield f"Responses of {_name(stage, plan)}: {length}"
    yield from dict.fromkeys(
        _note_on_price(s, plan) for s in estimate.stages if not s.model.is_local
    )
    if assumed := next(filter(_is_assumed, asked), None):
        served = assumed.model.endpoint
        yield (
            f"Hours: {served.tokens_per_second:g} tokens a second for each response, "
            f"{served.slots} at once in each stage: assumed (--set endpoint.tokens_per_second=N) "
            "until the journal has responses of each stage"
        )
    if plan.config.budget:
        yield f"Budget: {_note_on_budget(plan, estimate)}"


def _note_on_price(stage: StageEstimate, plan: Plan) -> str:
    model, price = stage.model.profile, stage.model.profile.price
    if not price:
        keys = "--price-in and --price-out"
        if stage.stage == JUDGE:
            keys = "price_in and price_out of judge.endpoint"
        elif stage.stage == THINK and stage.model.name in plan.config.thinkers_apart:
            keys = f"price_in and price_out of thinkers.{stage.model.name}.endpoint"
        return f"Price: unknown for {model.name}; give {keys}, in USD per million tokens"
    cached = "prompts in a provider's cache may cost less"
    if price.usd_per_mtok_cached is not None:
        cached = f"{price.usd_per_mtok_cached:g} for prompt tokens from the provider's cache"
    return (
        f"Price: {model.name}: {price.usd_per_mtok_in:g} USD per million prompt tokens, "
        f"{price.usd_per_mtok_out:g} per million completion tokens ({price.as_of}); {cached}"
    )


def _is_assumed(stage: StageEstimate) -> bool:
    """Return whether the hours of a stage are based on an assumed speed."""
    known = stage.model.is_local or stage.model.endpoint.is_batched or stage.means
    return bool(stage.amounts.calls.high) and not known


def _note_on_budget(plan: Plan, estimate: Estimate | None = None) -> str:
    """Return the spent part of the budget and, with an estimate, whether the rest is enough."""
    from heavydistill.models.ledger import spent_in

    config, spent = plan.config, spent_in(plan.config)
    if config.most_usd is not None:
        cap, gone, unit, digits = config.most_usd, spent.usd, "USD", 2
        needed = estimate and estimate.billed.usd
    else:
        cap, gone, unit, digits = float(config.most_tokens or 0), spent.tokens, "tokens", 0
        needed = estimate and estimate.billed.tokens
    left = max(0.0, cap - gone)
    verdict = ""
    if needed and needed.high <= left:
        verdict = f"{config.budget} is enough. "
    elif needed:
        is_not = "is not" if needed.low > left else "may not be"
        verdict = f"{config.budget} {is_not} enough: the run stops there, and continues with a "
        verdict += "higher one. "
    return (
        f"{verdict}Runs into {plan.folder} have spent {gone:,.{digits}f} of {cap:,.{digits}f} "
        f"{unit}; {left:,.{digits}f} are left"
    )


def _name(stage: StageEstimate, plan: Plan) -> str:
    from heavydistill.run.status import thinking_stages

    if stage.stage == THINK:
        return next(n for n, each in thinking_stages(plan.run).items() if each is stage.model)
    if stage.stage == JUDGE:
        return "judging"
    number = stage.stage.rpartition("_")[2]
    return "deliberating" if plan.config.rounds == 1 else f"deliberating {number}"


def _span(amount: Range, write: Callable[[float, bool], str]) -> str:
    """Format a range, with the low end rounded down and the high end rounded up."""
    if math.isinf(amount.high):
        return f"from {write(amount.low, False)}" if amount.low else _UNKNOWN
    low, high = write(amount.low, amount.low == amount.high), write(amount.high, True)
    return low if low == high else f"{low} to {high}"


def _tokens(value: float, up: bool) -> str:
    unit = next((u for u in _UNITS if value < 1000 * u), max(_UNITS))
    return f"{_rounded(value / unit, up, 1 if unit > 1 and value < 10 * unit else 0)}{_UNITS[unit]}"


def _amount(value: float, up: bool) -> str:
    """Format an amount in dollars or hours, rounded up or down."""
    return _rounded(value, up, 2 if value < 100 else 0)


def _rounded(value: float, up: bool, decimals: int) -> str:
    scaled = value * 10**decimals
    whole = math.ceil(scaled - _NOISE) if up else math.floor(scaled + _NOISE)
    return f"{whole / 10**decimals:,.{decimals}f}"
