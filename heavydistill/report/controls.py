"""The table of an evaluation's controls: what else the same models and caches do, at which cost.

Not covered: the numbers themselves, which ``metrics.controls`` computes.
"""

from __future__ import annotations

from rich.console import Console

from heavydistill.metrics.controls import NAMES, Answering, Controlled, Orders
from heavydistill.metrics.intervals import Interval
from heavydistill.report.text import percent, plain, points, print_table, versions
from heavydistill.report.text import table as new_table


def print_controlled(controlled: Controlled, console: Console) -> None:
    """Print what each way to answer achieves and costs, and what the order of attempts does."""
    head = ("Way to answer", "Right", "Written", "And read", "Of heavy", "Heavy adds")
    ways = new_table(console, *head)
    rows: list[tuple[str, Answering, Interval | None]] = [
        ("deliberation on the attempts", controlled.heavy, None)
    ]
    for control in controlled.controls:
        rows.append((NAMES[control.name], control.answering, control.heavy_minus))
    for name, answering, heavy_minus in rows:
        accuracy = answering.accuracy
        tokens = (
            "unknown" if count is None else f"{count:,.0f}"
            for count in (answering.tokens, answering.all_tokens)
        )
        added = _of_points(heavy_minus).replace(" (", "\n(") if heavy_minus else ""
        right = f"{percent(accuracy.mean)}\n{_ends(accuracy)}"
        ways.add_row(name, right, *tokens, _share(answering, controlled.heavy), added)
    print_table(ways, console)
    note = (
        "With 95% intervals. Tokens are those of one answer, with the attempts that it reads: "
        "written, and with those read. Of heavy: the share of the written tokens of a deliberation "
        "on the attempts, for controls are not matched in tokens. Heavy adds: points, by problem."
    )
    console.print(plain(note))
    for name, answering, _ in rows:
        _print_flaws(name, answering, console)
    if controlled.orders:
        _print_orders(controlled.orders, console)
    console.print(plain(versions(controlled.prompts, controlled.verifiers)), soft_wrap=True)


def _print_flaws(name: str, answering: Answering, console: Console) -> None:
    flaws = {
        "cut off": answering.cut_off,
        "failed or without an answer": answering.without_answer,
        "with text but no final answer": answering.unanswered,
    }
    told = [f"{count:,} {what}" for what, count in flaws.items() if count]
    if told:
        line = f"Of {answering.samples:,} answers ({name}): {', '.join(told)}; they count as wrong"
        console.print(plain(line), soft_wrap=True)
    if answering.unasked:
        line = f"{answering.unasked:,} problem(s) without an answer ({name}), which count as wrong"
        console.print(plain(line), soft_wrap=True)
    unknown = {
        "written": answering.unknown_tokens,
        "written and read": answering.unknown_all_tokens,
    }
    for what, count in unknown.items():
        if count:
            line = f"{count:,} problem(s) whose tokens {what} are unknown ({name})"
            console.print(plain(line), soft_wrap=True)


def _share(answering: Answering, heavy: Answering) -> str:
    """Its written tokens over those of a heavy answer."""
    if answering.tokens is None or not heavy.tokens:
        return "unknown"
    return f"{100 * answering.tokens / heavy.tokens:.0f}%"


def _print_orders(orders: Orders, console: Console) -> None:
    means = ", ".join(percent(mean.mean) for mean in orders.means)
    lines = [
        f"{len(orders.means)} orders of the same attempts, {orders.problems:,} problems: {means} "
        "right",
        f"Two deliberations of different orders differ in {percent(orders.between.mean)} of pairs",
    ]
    if orders.within and orders.flips:
        lines[1] += f", of one order in {percent(orders.within.mean)}"
        lines.append(f"Due to the order: {_of_points(orders.flips)} points")
    for line in lines:
        console.print(plain(line), soft_wrap=True)


def _of_points(value: Interval) -> str:
    return f"{points(value.mean)} ({points(value.low)} to {points(value.high)})"


def _ends(value: Interval) -> str:
    return f"{percent(value.low).rstrip('%')} to {percent(value.high).rstrip('%')}"
