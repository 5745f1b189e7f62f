"""What a run will do, send and cost, printed before it sends anything.

Ranges are rounded outwards. ``generate --dry-run`` prints what stands behind each number below
them.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from heavydistill.cli.progress import say
from heavydistill.config.models import Capabilities, Endpoint
from heavydistill.config.run import RunConfig
from heavydistill.errors import TeacherError
from heavydistill.models.contact import refuse_missing_key
from heavydistill.models.request import JUDGE, THINK

if TYPE_CHECKING:
    from rich.console import Console

    from heavydistill.run.estimate import Amounts, Estimate, Range, StageEstimate
    from heavydistill.run.generate import Plan
    from heavydistill.run.pools import PoolsOfRun

_SAMPLE_RUN = 40  # problems of a small run whose journal makes the estimate a narrow one
_UNKNOWN = "unknown"
_UNITS = {1: "", 10**3: "k", 10**6: "M", 10**9: "G"}
_NOISE = 1e-9  # of binary fractions


def print_heading(plan: Plan, console: Console) -> None:
    """Print what is to be done, and everything about it that is not as expected."""
    config, pools = plan.config, plan.pools
    thinker = f"{', '.join(sorted(pools.models))}, of {config.pools}" if pools else config.thinker
    say(
        f"{len(plan.problems):,} problems, K={config.think.k} trajectories by {thinker}, "
        f"{_deliberations(config)}{_judge(config)}",
        console,
    )
    for line in _notes_on_problems(plan):
        say(line, console)
    print_warnings(plan, console)
    for line, is_warning in dict.fromkeys(_notes_on_servers(plan)):
        say(line, console, "yellow" if is_warning else None)


def print_warnings(plan: Plan, console: Console) -> None:
    """Print what the user should know before anything is billed: rows that are left out, verdicts
    of pools that do not stand, and responses that this machine cannot judge."""
    from heavydistill.problems.loading import MOST_LISTED
    from heavydistill.verifiers.registry import unavailable

    lines = list(_notes_on_pools(plan.pools)) if plan.pools else []
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
        say(line, console, "yellow")


def print_line(estimate: Estimate, plan: Plan, console: Console) -> None:
    """Print the estimate in one line."""
    amounts, config = estimate.expected, plan.config
    usd, hours = _cells(amounts)[-2:]
    is_free = all(stage.model.is_local for stage in estimate.stages)
    parts = [
        f"{_span(amounts.calls, _count)} calls",
        f"{_span(amounts.tokens, _tokens)} tokens",
        "free" if is_free else f"{usd} USD" if amounts.usd else "price unknown",
        f"hours {_UNKNOWN}" if hours == _UNKNOWN else f"{hours} hours",
    ]
    measured = all(stage.is_measured for stage in estimate.stages)
    basis = "as in the journal" if measured else "least to most"
    if any(map(_is_assumed, estimate.stages)):
        speed = _endpoint(estimate).tokens_per_second
        basis += f", hours at an assumed {speed:g} tokens a second"
    _print_skipped(estimate, plan, console)
    if config.budget:
        say(_spent(config), console)
    say(f"To ask: {', '.join(parts)} ({basis}; generate --dry-run prints more)", console)


def print_estimate(estimate: Estimate, plan: Plan, console: Console) -> None:
    """Print the estimate by stage, and what it rests on."""
    from rich.table import Table

    from heavydistill.report.terminal import plain, print_table, table

    _print_skipped(estimate, plan, console)
    rows = table(console, "Still to ask", "calls", "tokens in", "tokens out", "USD", "hours")
    for stage in estimate.stages:
        rows.add_row(_name(stage, plan.config), *_cells(stage.expected))
    rows.add_row("all", *_cells(estimate.expected))
    if any(stage.means for stage in estimate.stages):
        rows.add_row("certain bounds", *_cells(estimate.bounds))
    print_table(rows, console)
    console.print()
    notes = Table.grid(padding=(0, 2))
    for label, text in _notes(estimate, plan):
        notes.add_row(label, plain(text))
    console.print(notes)


def _deliberations(config: RunConfig) -> str:
    if not config.rounds:
        return "no deliberations"
    what = "deliberations" if config.deliberate.task == "deliberate" else "choices"
    d, rounds = config.deliberate.d, config.deliberate.rounds
    return f"D={d} {what} by {config.deliberator}, {rounds} round(s)"


def _judge(config: RunConfig) -> str:
    if not config.judge:
        return ""
    votes = "1 vote" if config.judge.votes == 1 else f"{config.judge.votes} votes"
    return f"; what rules leave undecided is put to {config.judge.model}, {votes} each"


def _notes_on_problems(plan: Plan) -> Iterator[str]:
    from heavydistill.problems.options import orders_kept

    if plan.outside:
        bounds = (
            f"{column} {first} to {last}"
            for column, (first, last) in plan.config.problems.within.items()
        )
        yield f"Not asked for: {plan.outside:,} row(s) outside {' and '.join(bounds)}"
    if kept := orders_kept(plan.problems):
        yield (
            "Options in the order of the dataset, which they or the text speak of: "
            f"{kept:,} of {len(plan.problems):,} problems"
        )


def _notes_on_servers(plan: Plan) -> Iterator[tuple[str, bool]]:
    """(note, whether it is a warning)."""
    from heavydistill.models.tokenizer import SERVER

    config = plan.config
    if config.endpoint.tokenizer == SERVER and config.rounds:
        yield (
            "Tokens of caches: counted by the server where it answers /tokenize, else estimated "
            "as one for each UTF-8 byte; --tokenizer FOLDER (or a Hub id) counts them exactly.",
            True,
        )
    for context in plan.run.contexts:
        if context.source not in ("set", "profile"):
            later = "" if plan.contact else "; the run asks the server when it starts"
            yield f"{context}{later}", not context.is_known
    for model in plan.run.models:
        try:
            refuse_missing_key(model.endpoint)
        except TeacherError as error:
            yield f"Warning: {error}", True
    seen = config.endpoint.capabilities
    if seen and seen != Capabilities():
        yield f"Obeys what doctor saw: {seen.checked or 'as configured'}", False
    if plan.server:
        yield f"Server: {shlex.join(plan.server)}\nIts log: {plan.server_log}", False


def _notes_on_pools(pools: PoolsOfRun) -> Iterator[str]:
    if pools.rejects:
        yield f"Left out: {pools.rejects:,} row(s) that failed in a step of that run"
    for by, count in pools.outdated.most_common():
        yield f"Judged again: {count:,} trajectories, whose verdicts are of another version, {by}"
    if pools.unjudged:
        without = "without a verdict, or whose judge failed"
        yield f"Judged now: {pools.unjudged:,} trajectories {without}"


def _print_skipped(estimate: Estimate, plan: Plan, console: Console) -> None:
    if estimate.skipped:
        from heavydistill.store.journal import skipped_note

        say(skipped_note(plan.journal, estimate.skipped), console, "yellow")


def _cells(amounts: Amounts) -> list[str]:
    return [
        _span(amounts.calls, _count),
        _span(amounts.prompt_tokens, _tokens),
        _span(amounts.completion_tokens, _tokens),
        _span(amounts.usd, _amount) if amounts.usd else _UNKNOWN,
        _span(amounts.hours, _amount),
    ]


def _notes(estimate: Estimate, plan: Plan) -> Iterator[tuple[str, str]]:
    """(what, the basis of it)."""
    for context in plan.run.contexts:
        yield "Context", str(context)
    yield "Calls", _note_on_calls(estimate, plan)
    if estimate.thinking:
        yield "Prompts", _note_on_prompts(estimate.thinker_tokenizer)
    asked = [stage for stage in estimate.stages if stage.expected.calls.high]
    responses: dict[str, list[str]] = {}
    for stage in asked:
        responses.setdefault(_note_on_responses(stage, plan), []).append(_name(stage, plan.config))
    for note, stages in responses.items():
        yield "Responses", f"{', '.join(stages)}: {note}"
    for note in dict.fromkeys(map(_note_on_price, estimate.stages)):
        yield "Price", note
    yield "Hours", _note_on_hours(estimate, asked)
    if plan.config.budget:
        yield "Budget", _note_on_budget(estimate, plan.config)


def _note_on_calls(estimate: Estimate, plan: Plan) -> str:
    if thinking := estimate.thinking:
        there = thinking.in_journal.low
        known = (
            f"the journal {plan.journal} has {there:,} of {there + thinking.expected.calls.low:,} "
            "trajectories, which are not billed again"
        )
    else:
        known = f"nobody thinks, the trajectories are those of {plan.config.pools}"
    return f"{known}. Requests that fail and are repeated come on top"


def _note_on_prompts(counter: str) -> str:
    from heavydistill.models.tokenizer import ESTIMATED, TEMPLATE_TOKENS

    name = f"an {ESTIMATED}" if counter == ESTIMATED else f"the tokenizer {counter}"
    return f"counted with {name}, and up to {TEMPLATE_TOKENS} of chat template each"


def _note_on_responses(stage: StageEstimate, plan: Plan) -> str:
    means, most = stage.means, stage.model.sampling.max_tokens
    if means and means.completion_tokens:
        return (
            f"{means.completion_tokens:,.0f} tokens each, the mean of {means.responses:,} "
            "responses in the journal"
        )
    narrows = f". A run with --limit {_SAMPLE_RUN} and another --out narrows this"
    more = narrows if len(plan.problems) > _SAMPLE_RUN and not means else ""
    return f"no length is known, so 1 to {most:,} tokens each{more}"


def _note_on_price(stage: StageEstimate) -> str:
    model, price = stage.model.profile, stage.model.profile.price
    if stage.model.is_local:
        return f"{model.name} runs in this process and is free"
    if not price:
        keys = "--price-in and --price-out"
        if stage.stage == JUDGE:
            keys = "price_in and price_out of judge.endpoint"
        return f"unknown for {model.name} here; give {keys}, in USD per million tokens"
    return (
        f"{model.name}: {price.usd_per_mtok_in:g} USD per million prompt tokens, "
        f"{price.usd_per_mtok_out:g} per million completion tokens ({price.as_of}); prompts in a "
        "provider's cache may cost less"
    )


def _endpoint(estimate: Estimate) -> Endpoint:
    """The endpoint that most requests go to, if any go to one."""
    models = [stage.model for stage in estimate.stages]
    return next((m.endpoint for m in models if not m.is_local), Endpoint())


def _note_on_hours(estimate: Estimate, asked: list[StageEstimate]) -> str:
    endpoint = _endpoint(estimate)
    if any(map(_is_assumed, asked)):
        basis = (
            f"{endpoint.tokens_per_second:g} tokens a second for each response, {endpoint.slots} "
            "at once in each stage: assumed (--set endpoint.tokens_per_second=N) until the "
            "journal has responses of each stage"
        )
    elif not all(stage.means for stage in asked):
        basis = "unknown until the journal has responses of each stage"
    else:
        basis = "responses as fast as in the journal"
        basis += f", {endpoint.slots} at once in each stage" if endpoint.is_served else ""
    limits = (endpoint.requests_per_minute, "requests"), (endpoint.tokens_per_minute, "tokens")
    return "; ".join([basis, *(f"at most {n:,} {what} a minute" for n, what in limits if n)])


def _is_assumed(stage: StageEstimate) -> bool:
    """Whether its hours rest on an assumed speed."""
    return bool(stage.expected.calls.high) and not stage.model.is_local and not stage.means


def _note_on_budget(estimate: Estimate, config: RunConfig) -> str:
    needed = estimate.billed.usd if config.most_usd is not None else estimate.billed.tokens
    if needed is None:
        raise RuntimeError("a budget in money was completed without a price")
    cap, spent = _budget(config)
    if needed.high <= cap - spent:
        verdict = "is enough"
    elif needed.low > cap - spent:
        verdict = "is not enough: the run will stop there, and go on with a higher one"
    else:
        verdict = "may not be enough: the run would stop there, and go on with a higher one"
    return f"{config.budget} {verdict}. {_spent(config)}"


def _spent(config: RunConfig) -> str:
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


def _amount(value: float, up: bool) -> str:
    """Dollars or hours."""
    return _rounded(value, up, 2 if value < 100 else 0)


def _rounded(value: float, up: bool, decimals: int) -> str:
    scaled = value * 10**decimals
    whole = math.ceil(scaled - _NOISE) if up else math.floor(scaled + _NOISE)
    return f"{whole / 10**decimals:,.{decimals}f}"
