"""``heavydistill plan``: what a run will ask, cost and take, before it asks anything.

Ranges are rounded outwards. What stands behind each number is printed below them.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from heavydistill.cli.flags import with_run_flags
from heavydistill.config.models import Capabilities, Endpoint
from heavydistill.config.run import RunConfig
from heavydistill.errors import TeacherError
from heavydistill.models.contact import refuse_missing_key
from heavydistill.models.request import JUDGE, THINK

if TYPE_CHECKING:
    from rich.console import Console

    from heavydistill.models.resolve import ResolvedRun
    from heavydistill.run.estimate import Amounts, Estimate, StageEstimate
    from heavydistill.run.generate import Plan
    from heavydistill.run.pools import Pools
    from heavydistill.run.ranges import Range

# Problems of the run that is recommended to learn from; in this process it takes a few batches.
_SAMPLE_RUN = {"endpoint": 5, "local": 40}
_UNKNOWN = "unknown"
_UNITS = {1: "", 10**3: "k", 10**6: "M", 10**9: "G"}
_NOISE = 1e-9  # of binary fractions


@with_run_flags
def plan(config: RunConfig) -> None:
    """Tell the calls, tokens, cost and hours of a run, and ask nobody.

    Takes the flags of `generate`. Where a journal has responses of the model, it tells what is to
    be expected; else the least and the most that can be. Hours without a journal rest on an assumed
    speed, endpoint.tokens_per_second; those of a model in this process are unknown without one.
    """
    from rich.console import Console

    from heavydistill.cli.progress import checked
    from heavydistill.run.estimate import estimate

    console = Console()
    plan = checked(config, console, asks=False)
    print_heading(plan, console)
    print_estimate(estimate(plan), plan, console)


def _deliberations(config: RunConfig) -> str:
    if not config.rounds:
        return "no deliberations"
    what = "deliberations" if config.deliberate.task == "deliberate" else "choices"
    d, rounds = config.deliberate.d, config.deliberate.rounds
    return f"D={d} {what} by {config.deliberator}, {rounds} round(s)"


def print_heading(plan: Plan, console: Console) -> None:
    """What is to be done."""
    from heavydistill.models.tokenizer import SERVER
    from heavydistill.problems.options import orders_kept

    config = plan.config
    thinker = config.thinker
    if plan.pools:
        thinker = f"{', '.join(sorted(plan.pools.models))}, of {config.pools}"
    console.print(
        f"{len(plan.problems):,} problems, K={config.think.k} trajectories by {thinker}, "
        f"{_deliberations(config)}{_judge_note(config)}",
        markup=False,
        highlight=False,
    )
    if plan.outside:
        bounds = (
            f"{column} {first} to {last}"
            for column, (first, last) in config.problems.within.items()
        )
        told = f"Not asked for: {plan.outside:,} row(s) outside {' and '.join(bounds)}"
        console.print(told, markup=False, highlight=False, soft_wrap=True)
    kept = orders_kept(plan.problems)
    if kept:
        told = "Options in the order of the dataset, which they or the text speak of: "
        told += f"{kept:,} of {len(plan.problems):,} problems"
        console.print(told, markup=False, highlight=False, soft_wrap=True)
    if config.endpoint.tokenizer == SERVER and config.rounds:
        told = "Tokens of caches: counted by the server where it answers /tokenize, else estimated "
        told += "as one for each UTF-8 byte; --tokenizer FOLDER (or a Hub id) counts them exactly."
        console.print(told, style="yellow", markup=False, highlight=False, soft_wrap=True)
    print_warnings(plan, console)
    for line, is_warning in dict.fromkeys(_server_lines(plan)):
        style = "yellow" if is_warning else None
        console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)
    seen = config.endpoint.capabilities
    if seen and seen != Capabilities():
        told = f"Obeys what doctor saw: {seen.checked or 'as configured'}"
        console.print(told, markup=False, highlight=False, soft_wrap=True)
    if plan.server:
        console.print(
            f"Server: {shlex.join(plan.server)}\nIts log: {plan.server_log}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def _server_lines(plan: Plan) -> Iterator[tuple[str, bool]]:
    """(what is known of the servers, whether that is a warning), where it is not as expected."""
    for context in plan.run.contexts:
        if context.source not in ("set", "profile"):
            later = "" if plan.contact else "; the run asks the server when it starts"
            yield f"{context}{later}", not context.is_known
    for model in plan.run.models:
        try:
            refuse_missing_key(model.endpoint)
        except TeacherError as error:
            yield f"Warning: {error}", True


def _judge_note(config: RunConfig) -> str:
    if not config.judge:
        return ""
    votes = "1 vote" if config.judge.votes == 1 else f"{config.judge.votes} votes"
    return f"; what rules leave undecided is put to {config.judge.model}, {votes} each"


def print_warnings(plan: Plan, console: Console) -> None:
    """What the user should know before anything is paid for: rows that are not in the run, verdicts
    of pools that do not stand, and responses that this machine cannot judge."""
    from heavydistill.problems.loading import MOST_LISTED
    from heavydistill.verifiers.registry import unavailable

    lines = list(_pool_notes(plan.pools)) if plan.pools else []
    if plan.changed:
        keys = ", ".join(f"{key} {was}, now {now}" for key, (was, now) in plan.changed.items())
        lines += [f"{plan.folder} holds a run with {keys}; it is replaced when this one is whole."]
    if plan.unfit:
        lines += [f"Left out: {len(plan.unfit):,} row(s) that cannot be judged"]
        lines += [f"  {fault}" for fault in list(plan.unfit.values())[:MOST_LISTED]]
        more = len(plan.unfit) - MOST_LISTED
        lines += [f"  and {more:,} more"] if more > 0 else []
    kinds = {problem.verifier for problem in plan.problems}
    for reason in unavailable(kinds, plan.config.verify):
        lines += [f"Warning: {reason}"]
        lines += ["Its verdicts would be undecided; `heavydistill replay` judges a run again."]
    for line in lines:
        console.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)


def _pool_notes(pools: Pools) -> Iterator[str]:
    if pools.rejects:
        yield f"Left out: {pools.rejects:,} row(s) that failed in a step of that run"
    for by, count in pools.outdated.most_common():
        yield f"Judged again: {count:,} trajectories, whose verdicts are of another version, {by}"
    if pools.unjudged:
        without = "without a verdict, or whose judge failed"
        yield f"Judged now: {pools.unjudged:,} trajectories {without}"


def print_line(estimate: Estimate, plan: Plan, console: Console) -> None:
    """The estimate in one line."""
    amounts, config = estimate.expected, plan.config
    usd, hours = _cells(amounts)[-2:]
    if all(stage.model.kind == "local" for stage in estimate.stages):
        cost = "nothing to pay"
    else:
        cost = f"{usd} USD" if amounts.usd else "price unknown"
    measured = all(stage.is_measured for stage in estimate.stages)
    parts = [
        f"{_span(amounts.calls, _count)} calls",
        f"{_span(amounts.tokens, _tokens)} tokens",
        cost,
        "hours unknown" if hours == _UNKNOWN else f"{hours} hours",
    ]
    basis = "expected from the journal" if measured else "the least to the most"
    if any(map(_is_assumed, estimate.stages)):
        speed = _endpoint(plan.run).tokens_per_second
        basis += f", hours at an assumed {speed:g} tokens a second"
    _print_skipped(estimate, plan, console)
    if config.budget:
        console.print(_spent_note(config), markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"To ask: {', '.join(parts)} ({basis}; `heavydistill plan` tells more)",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def print_estimate(estimate: Estimate, plan: Plan, console: Console) -> None:
    """The estimate by stage, and what it rests on."""
    from rich.table import Table

    from heavydistill.report.terminal import plain, print_table, table

    _print_skipped(estimate, plan, console)
    columns = ("calls", "tokens in", "tokens out", "USD", "hours")
    rows = table(console, "Still to ask", *columns)
    for stage in estimate.stages:
        rows.add_row(_name(stage, plan.config), *_cells(stage.expected))
    rows.add_row("all", *_cells(estimate.expected))
    if any(stage.measured for stage in estimate.stages):
        rows.add_row("certain bounds", *_cells(estimate.bounds))
    print_table(rows, console)
    console.print()
    notes = Table.grid(padding=(0, 2))
    for label, text in _notes(estimate, plan):
        notes.add_row(label, plain(text))
    console.print(notes)


def _print_skipped(estimate: Estimate, plan: Plan, console: Console) -> None:
    if estimate.skipped:
        from heavydistill.store.journal import skipped_note

        note = skipped_note(plan.journal, estimate.skipped)
        console.print(note, style="yellow", markup=False, highlight=False, soft_wrap=True)


def _cells(amounts: Amounts) -> list[str]:
    return [
        _span(amounts.calls, _count),
        _span(amounts.prompt_tokens, _tokens),
        _span(amounts.completion_tokens, _tokens),
        _span(amounts.usd, _usd) if amounts.usd else _UNKNOWN,
        _span(amounts.hours, _hours),
    ]


def _notes(estimate: Estimate, plan: Plan) -> Iterator[tuple[str, str]]:
    """(what, the basis of it)."""
    for context in plan.run.contexts:
        yield "Context", str(context)
    yield "Calls", _calls_note(estimate, plan)
    yield "Prompts", _prompts_note(estimate, plan.config)
    responses: dict[str, list[str]] = {}
    for stage in estimate.stages:
        responses.setdefault(_responses_note(stage, plan), []).append(_name(stage, plan.config))
    for note, stages in responses.items():
        yield "Responses", f"{', '.join(stages)}: {note}"
    for note in dict.fromkeys(_price_note(stage) for stage in estimate.stages):
        yield "Price", note
    yield "Hours", _hours_note(estimate, _endpoint(plan.run))
    if plan.config.budget:
        yield "Budget", _budget_note(estimate, plan.config)


def _calls_note(estimate: Estimate, plan: Plan) -> str:
    rounds = [stage for stage in estimate.stages if stage.stage not in (THINK, JUDGE)]
    thinking = estimate.thinking
    if not thinking:
        known = f"nobody thinks, the trajectories are those of {plan.config.pools}"
    elif not thinking.in_journal.low:
        known = f"no trajectory is in the journal {plan.journal}"
    else:
        all_thinking = thinking.in_journal.low + thinking.expected.calls.low
        known = (
            f"the journal {plan.journal} has {thinking.in_journal.low:,} of {all_thinking:,} "
            "trajectories, which are not paid for again"
        )
    may_be = sum(stage.in_journal.high for stage in rounds)
    if may_be:
        known += (
            f"; the journal may have up to {may_be:,} of the deliberations, as their caches will "
            "tell"
        )
    if plan.config.judge:
        known += (
            "; a judge is asked as often as rules leave answers undecided, at the most every vote "
            "on every answer, equal ones once"
        )
    return f"{known}. Requests that fail and are asked again come on top"


def _prompts_note(estimate: Estimate, config: RunConfig) -> str:
    from heavydistill.models.tokenizer import ESTIMATED, SERVER, TEMPLATE_TOKENS
    from heavydistill.verifiers.judge import MOST_BYTES

    caches = "those of deliberators from the frame of the cache to its budget of "
    caches += f"{config.cache.budget_tokens:,}"
    seen = [
        s.measured.responses
        for s in estimate.stages
        if s.stage not in (THINK, JUDGE) and s.measured and s.measured.prompt_tokens
    ]
    if seen:
        caches = f"those of deliberators as for {sum(seen):,} responses in the journal"
    if config.judge:
        caches += (
            f"; those of the judge hold problem, reference and up to {MOST_BYTES:,} bytes of answer"
        )
    if not estimate.thinking:
        return caches
    thinker = estimate.thinking.model
    counter = f"the tokenizer {estimate.thinker_tokenizer}"
    if thinker.kind == "local":
        counter = "their own tokenizer"
    elif thinker.tokenizer == SERVER:
        counter = f"an {ESTIMATED}"
    return (
        f"those of thinkers counted with {counter}, and up to {TEMPLATE_TOKENS} tokens of chat "
        f"template each; {caches}"
    )


def _responses_note(stage: StageEstimate, plan: Plan) -> str:
    measured = stage.measured
    if measured and measured.completion_tokens:
        tokens = measured.completion_tokens
        low, high = max(1, tokens.low), min(stage.max_tokens, tokens.high)
        return (
            f"{tokens.mean:,.0f} tokens each (95%: {low:,.0f} to {high:,.0f}), as "
            f"{measured.responses:,} responses to {measured.prompts:,} prompts in the journal"
        )
    if not stage.expected.calls.high:
        return "all in the journal"
    unknown = f"no length is known, so 1 to {stage.max_tokens:,} tokens each"
    if measured:
        return f"{unknown}: the journal has too few, or the server counts no tokens"
    enough = _SAMPLE_RUN[stage.model.kind]
    if len(plan.problems) > enough:
        return (
            f"{unknown}. Run with --limit {enough} (and another --out) first: its journal narrows "
            "this"
        )
    return unknown


def _price_note(stage: StageEstimate) -> str:
    model, price = stage.model, stage.model.price
    if model.kind == "local":
        return f"{model.name} runs in this process and costs nothing"
    if not price:
        keys = "--price-in and --price-out"
        if stage.stage == JUDGE:
            keys = "price_in and price_out of judge.endpoint"
        return (
            f"that of {model.name} here is not known: give it with {keys}, in USD for a million "
            "tokens"
        )
    return (
        f"{model.name}: {price.usd_per_mtok_in:g} USD a million tokens of prompts, "
        f"{price.usd_per_mtok_out:g} of responses ({price.as_of}); prompts that a provider has "
        "cached may cost less"
    )


def _endpoint(run: ResolvedRun) -> Endpoint:
    """The endpoint that most requests go to, if any go to one."""
    return next((m.endpoint for m in run.models if not m.is_local), run.config.endpoint)


def _hours_note(estimate: Estimate, endpoint: Endpoint) -> str:
    limits = [
        f"at most {limit:,} {what} a minute"
        for limit, what in (
            (endpoint.requests_per_minute, "requests"),
            (endpoint.tokens_per_minute, "tokens"),
        )
        if limit and endpoint.is_served
    ]
    asked = [stage for stage in estimate.stages if stage.expected.calls.high]
    at_once = f"{endpoint.slots} at once in each stage" if endpoint.is_served else ""
    if any(map(_is_assumed, asked)):
        basis = (
            f"{endpoint.tokens_per_second:g} tokens a second for each response, {at_once}: assumed "
            "(--set endpoint.tokens_per_second=N) until the journal has enough responses of each "
            "stage"
        )
    elif not all(stage.is_timed for stage in asked):
        basis = "unknown until the journal has enough responses of each stage"
    elif at_once:
        basis = f"responses as slow as in the journal, {at_once}"
    else:
        basis = "as fast as in the journal"
    return "; ".join([basis, *limits, "stages overlap"] if len(asked) > 1 else [basis, *limits])


def _is_assumed(stage: StageEstimate) -> bool:
    """Whether its hours rest on an assumed speed."""
    return bool(stage.expected.calls.high) and stage.model.kind == "endpoint" and not stage.is_timed


def _budget_note(estimate: Estimate, config: RunConfig) -> str:
    needed = estimate.paid.usd if config.most_usd is not None else estimate.paid.tokens
    if needed is None:
        raise RuntimeError("a budget in money was completed without a price")
    cap, spent = _budget(config)
    if needed.high <= cap - spent:
        verdict = "is enough"
    elif needed.low > cap - spent:
        verdict = "is not enough: the run will stop there, and go on with a higher one"
    else:
        verdict = "may not be enough: the run would stop there, and go on with a higher one"
    return f"{config.budget} {verdict}. {_spent_note(config)}"


def _spent_note(config: RunConfig) -> str:
    """What runs into the folder have spent of the budget, and what is left."""
    cap, spent = _budget(config)
    unit, digits = ("USD", 2) if config.most_usd is not None else ("tokens", 0)
    left = max(0.0, cap - spent)
    return (
        f"Runs into {config.out} have spent {spent:,.{digits}f} of {cap:,.{digits}f} {unit}; "
        f"{left:,.{digits}f} are left"
    )


def _budget(config: RunConfig) -> tuple[float, float]:
    """(the budget, what is spent of it), in US dollars or tokens."""
    from heavydistill.models.ledger import spent_in

    spent = spent_in(config)
    if config.most_usd is not None:
        return config.most_usd, spent.usd
    return float(config.most_tokens or 0), spent.tokens


def _name(stage: StageEstimate, config: RunConfig) -> str:
    if stage.stage in (THINK, JUDGE):
        return "thinking" if stage.stage == THINK else "judging"
    number = stage.stage.rpartition("_")[2]
    return "deliberating" if config.deliberate.rounds == 1 else f"deliberating {number}"


def _span(amount: Range, write: Callable[[float, bool], str]) -> str:
    """From low, rounded down, to high, rounded up."""
    if math.isinf(amount.high):
        return f"from {write(amount.low, False)}" if amount.low else _UNKNOWN
    if amount.low == amount.high:
        return write(amount.high, True)
    low, high = write(amount.low, False), write(amount.high, True)
    return low if low == high else f"{low} to {high}"


def _count(value: float, up: bool) -> str:
    return f"{value:,.0f}"


def _tokens(value: float, up: bool) -> str:
    unit = next((u for u in _UNITS if value < 1000 * u), max(_UNITS))
    return f"{_rounded(value / unit, up, 1 if unit > 1 and value < 10 * unit else 0)}{_UNITS[unit]}"


def _usd(value: float, up: bool) -> str:
    return _rounded(value, up, 2 if value < 100 else 0)


def _hours(value: float, up: bool) -> str:
    return _rounded(value, up, 2 if value < 1 else 1 if value < 10 else 0)


def _rounded(value: float, up: bool, decimals: int) -> str:
    scaled = value * 10**decimals
    whole = math.ceil(scaled - _NOISE) if up else math.floor(scaled + _NOISE)
    return f"{whole / 10**decimals:,.{decimals}f}"
