"""Prints one trace: the problem, its attempts, its caches and its deliberations.

Attempts are numbered from 1 in the order of the pool; positions in a cache are numbered from 1 in
the order shown to the deliberator, and claims name these positions. Texts of users and models are
printed literally.

Not covered: selecting a trace, and the whole prompt of a cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from heavydistill.heavy.judge_votes import ballot_of
from heavydistill.metrics.estimators import deliberations_of
from heavydistill.report.terminal import folded, plain, print_table, table
from heavydistill.schema import Cache, Deliberation, Generation, Trace
from heavydistill.text.checked_claims import CheckedClaim, attempts_by_cache, checked_claims

_FOLDED_LINES = 3
_INDENT = 4
_MARKS = {"correct": ("[+]", "green"), "incorrect": ("[-]", "red"), "undecided": ("[?]", "yellow")}


def print_trace(trace: Trace, console: Console, full: bool = False) -> None:
    """Print one trace, with the first lines of each reasoning; with ``full``, all of it."""
    problem = trace.problem
    _print_heading(f"Problem {problem.id}", console)
    _print_body(problem.transcript, console)
    facts = {
        "reference": problem.reference,
        "verifier": problem.verifier,
        "source": problem.source,
        "stratum": trace.stratum or "none",
        "outcome": trace.outcome or "none",
        "status": trace.status,
    }
    for name, value in facts.items():
        if value:
            console.print(Text(f"{name}: ", style="dim") + plain(value))
    for number, trajectory in enumerate(trace.pool, 1):
        _print_generation(f"Trajectory {number}", trajectory, console, full)
    names = {t.id: f"trajectory {number}" for number, t in enumerate(trace.pool, 1)}
    names |= {d.id: _name(d).lower() for d in trace.deliberations}
    shown = attempts_by_cache(trace)
    rounds = {cache.round for cache in trace.caches} | {d.round for d in trace.deliberations}
    for round in sorted(rounds):
        for cache in trace.caches:
            if cache.round == round:
                _print_cache(cache, names, console)
        for deliberation in deliberations_of(trace, round):
            claims = checked_claims(deliberation, shown.get(deliberation.cache, []))
            _print_generation(_name(deliberation), deliberation, console, full, claims)


def _print_generation(
    title: str,
    generation: Generation,
    console: Console,
    full: bool,
    claims: Sequence[CheckedClaim] = (),
) -> None:
    _print_heading(title, console)
    console.print(_verdict(generation))
    _print_claims(claims, console)
    read, written = (
        "unknown" if tokens < 0 else f"{tokens:,}"
        for tokens in (generation.prompt_tokens, generation.completion_tokens)
    )
    console.print(
        plain(
            f"finish: {generation.finish_reason}   tokens: {read} read, {written} written   "
            f"model: {generation.model}   seed: {generation.seed}",
            style="dim",
        )
    )
    if generation.error is not None:
        console.print(Text("error: ", style="red") + plain(generation.error))
    for label, text in texts_of(generation):
        console.print(plain(f"{label}:", style="dim"))
        is_answer = label == "answer"
        _print_body(text, console, full or is_answer, style="" if is_answer else "dim")


def texts_of(generation: Generation) -> Iterator[tuple[str, str]]:
    """Yield (label, text) for the texts in the turns of a response that are not empty, in order.

    They include the errors of tools, but not the error of the response.
    """
    turns = generation.turns
    called = {call.id: call.name for turn in turns for call in turn.calls}
    for turn in turns:
        label = {"assistant": "text", "tool": f"result of {called.get(turn.result_of, 'a call')}"}
        is_answer = turn is turns[-1] and turn.role == "assistant" and not turn.calls
        texts = [
            ("reasoning", turn.thinking),
            ("answer" if is_answer else label.get(turn.role, turn.role), turn.text),
            *((f"call of {call.name}", call.arguments) for call in turn.calls),
            ("error", turn.error if turn.error and turn.error != generation.error else ""),
        ]
        yield from (each for each in texts if each[1].strip())


def _verdict(generation: Generation) -> Text:
    verdict = generation.verdict
    if verdict is None:
        return Text("[ ] not judged")
    mark, style = _MARKS[verdict.label]
    answer = "no answer found" if verdict.extracted is None else f"answer {verdict.extracted}"
    line = Text(f"{mark} {verdict.label}", style=style)
    line += plain(f"   {answer}   ({verdict.reason}, {verdict.verifier})")
    if ballot := ballot_of(verdict):
        votes = ", ".join(vote.said.replace("_", " ") for vote in ballot.votes)
        line += plain(f"\n    rules left it undecided ({ballot.rule_reason}); votes: {votes}")
        for reply in dict.fromkeys(filter(None, (vote.reply for vote in ballot.votes))):
            line += plain(f"\n    no verdict: {' '.join(reply.split())}")
    return line


def _print_claims(claims: Sequence[CheckedClaim], console: Console) -> None:
    """Print what a deliberation says of attempts, by position in the cache, and if it is true."""
    styles = {True: ("true", "green"), False: ("false", "red"), None: ("unknown", "yellow")}
    lines = []
    for each in claims:
        word, style = styles[each.is_true]
        lines.append(Text(f"#{each.claim.attempt} {each.claim.says} ({word})", style=style))
    if lines:
        console.print(Text("claims: ", style="dim") + Text(", ").join(lines))
    if contradictions := [f"#{each.claim.attempt}" for each in claims if each.is_contradiction]:
        console.print(Text(f"contradicts its own answer: {', '.join(contradictions)}", style="red"))


def _print_cache(cache: Cache, names: dict[str, str], console: Console) -> None:
    _print_heading(f"Cache of round {cache.round}", console)
    console.print(
        plain(
            f"{cache.prompt_tokens:,} of at most {cache.budget_tokens:,} tokens, counted by "
            f"{cache.reader}\nprompt: {cache.prompt_version}   selection: {cache.selection}   "
            f"seed: {cache.seed}\ncontrol tokens defused in the problem: {cache.defused}"
        )
    )
    items = table(console, "Position", "shows", "cut by", "tokens", "defused")
    for position, item in enumerate(cache.items, 1):
        items.add_row(
            str(position),
            plain(names.get(item.generation, item.generation)),
            plain(item.mode),
            f"{item.tokens_before:,} -> {item.tokens_after:,}",
            str(item.defused),
        )
    print_table(items, console)
    if cache.left_out:
        left_out = ", ".join(
            f"{names.get(out.generation, out.generation)} ({out.reason})" for out in cache.left_out
        )
        console.print(Text("\nleft out: ", style="dim") + plain(left_out))


def _name(deliberation: Deliberation) -> str:
    return f"Deliberation {deliberation.index + 1} of round {deliberation.round}"


def _print_heading(title: str, console: Console) -> None:
    console.print()
    console.print(Text("== ", style="bold") + plain(title, style="bold"))


def _print_body(text: str, console: Console, full: bool = True, style: str = "") -> None:
    """Print a text indented; unless ``full``, only the first lines and how many more there are."""
    lines = list(plain(text.strip(), style=style).wrap(console, console.width - _INDENT))
    if not full:
        lines = folded(lines, _FOLDED_LINES)
    console.print(Text("\n").join(Text(" " * _INDENT) + line for line in lines))
