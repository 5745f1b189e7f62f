"""A comparison of two runs as grids: for the terminal, and as Markdown for papers and reviews.

Not covered: the numbers themselves, which ``metrics.comparison`` computes; a run that is compared
with nothing, whose figures are those of ``summary``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

from rich.console import Console
from rich.text import Text

from heavydistill.metrics.comparison import Changes, Comparison, Measured
from heavydistill.metrics.counts import COLUMNS, unanswered_facts
from heavydistill.metrics.intervals import FEW_PROBLEMS, FEW_WARNING, Pairs
from heavydistill.metrics.summary import NAMES, STRATA, Summary
from heavydistill.report import markdown
from heavydistill.report.grid import (
    FEW_NOTE,
    Grid,
    IntervalCell,
    Line,
    Value,
    counted,
    difference,
    listed,
    marked,
    marked_problems,
    p_value,
    sampled,
    share,
)
from heavydistill.report.summary import matched_lines, print_unanswered, strata_note
from heavydistill.report.terminal import (
    print_few_note,
    print_few_warning,
    print_grid,
    print_lines,
)

METRICS_TITLE = "Metric, 95% intervals"
_RATES = {
    "rescue": "vote not right, deliberation right",
    "regress": "vote right, deliberation wrong",
    "emergent": "no trajectory right, deliberation right",
}
# P and HP of groups have no room beside the others in a terminal.
_NARROW_METRICS = [name for name in NAMES if "pass" not in name]
_READING_STYLES = {"Better": "green", "Worse": "red"}


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print what changed; a ValueError if there is no run before."""
    _require_before(comparison)
    console.print(Text(_heading(comparison), style="bold"))
    print_lines(_sampling(comparison), console)
    shown = list(grids(comparison, _NARROW_METRICS))
    for grid in shown:
        print_grid(grid, console)
    console.print()
    print_few_note(shown, console)
    if any(grid.has_few for grid in shown):
        console.print()
    for word, names in _readings(comparison).items():
        style = _READING_STYLES.get(word, "")
        console.print(Text(f"{word}: {', '.join(names)}", style=style))
    print_few_warning(comparison.problems, console)
    print_lines(_token_lines(comparison), console, fold=True, gap=True)
    print_lines([_made_by(comparison)], console, gap=True)
    for run in runs_of(comparison):
        print_unanswered(run.summary, console, of=run.name.capitalize())


def as_markdown(comparison: Comparison) -> str:
    """The same tables as Markdown, without folders; a ValueError if there is no run before."""
    _require_before(comparison)
    shown = list(grids(comparison, NAMES))
    sentences = [
        *([FEW_NOTE] if any(grid.has_few for grid in shown) else []),
        *(f"{word}: {', '.join(names)}." for word, names in _readings(comparison).items()),
        *(f"{line}." for line in _token_lines(comparison)),
        *unanswered_lines(comparison),
    ]
    few = f" {FEW_WARNING}" if comparison.problems < FEW_PROBLEMS else ""
    parts = [
        f"**{markdown.text(_heading(comparison))}**",
        *map(markdown.text, _sampling(comparison)),
        *map(markdown.from_grid, shown),
        *map(markdown.text, sentences),
        "In brackets: 95% intervals, bootstrapped over problems, Wilson's of rescue, regress and "
        "emergent; differences are in points and paired by problem. McNemar's p is exact and "
        f"two-sided.{few} {markdown.text(_made_by(comparison))}",
    ]
    return "\n\n".join(parts) + "\n"


def runs_of(comparison: Comparison) -> list[Measured]:
    """The run before, if there is one, and the run after."""
    return [run for run in (comparison.before, comparison.after) if run]


def unanswered_lines(comparison: Comparison) -> Iterator[str]:
    """The stages of each run with many samples without a final answer."""
    for run in runs_of(comparison):
        for fact in unanswered_facts(run.summary.samples, run.summary.by_verifier):
            yield f"{run.name.capitalize()}: {fact}"


def grids(comparison: Comparison, group_metrics: Collection[str]) -> Iterator[Grid]:
    """The tables of a comparison with a run before, in order; those without rows left out.

    Args:
        comparison: The comparison.
        group_metrics: Keys of the metrics that are shown for each group of problems.
    """
    runs = runs_of(comparison)
    titles = [run.name.capitalize() for run in runs]
    found = [
        _provenance(runs, titles),
        _config_differences(comparison, titles),
        metrics(comparison),
        _groups("verifier", comparison.by_verifier, comparison, group_metrics),
        _groups("family", comparison.by_family, comparison, group_metrics),
        _pairs(comparison, runs),
        _strata(runs, titles),
        _habits(runs, titles),
        _tokens(runs, titles),
        samples(comparison),
    ]
    yield from (grid for grid in found if grid.lines)


def metrics(comparison: Comparison) -> Grid:
    """The metrics of each run, and their difference if there are two."""
    lines = []
    for name, meaning, change in comparison.metrics:
        cell = difference if change is comparison.heavy_minus_vote else share
        before = [cell(change.before)] if comparison.before else []
        added = [difference(change.difference)] if comparison.before else []
        lines.append(Line(name, [*before, cell(change.after), *added], meaning))
    titles = [run.name.capitalize() for run in runs_of(comparison)]
    return Grid([METRICS_TITLE, *titles, *["Points"] * (len(titles) > 1)], lines)


def samples(comparison: Comparison) -> Grid:
    """What became of the samples of each stage and run."""
    lines = [
        Line(stage, counts.cells, run.name)
        for run in runs_of(comparison)
        for stage, counts in run.summary.samples.items()
    ]
    return Grid(["Samples", "all", *COLUMNS], lines)


def _provenance(runs: list[Measured], titles: list[str]) -> Grid:
    """Who and what made each run."""

    def model(run: Measured, role: str) -> str:
        used = getattr(run, role)
        if used is None:
            return "of another run" if role == "thinker" else "-"
        return f"{used.name} {used.revision}".strip()

    lines = [
        Line("Thinker", [model(run, "thinker") for run in runs]),
        Line("Deliberator", [model(run, "deliberator") for run in runs]),
        Line("Prompts", [",\n".join(run.summary.prompts) for run in runs]),
        Line("Verifiers", [",\n".join(run.summary.verifiers) for run in runs]),
        Line("heavydistill", [run.heavydistill or "unknown" for run in runs]),
        Line("Traces", [listed(run.summary.statuses) for run in runs]),
    ]
    if any(run.left_out for run in runs):
        cells = ["-" if run.left_out is None else f"{run.left_out:,}" for run in runs]
        lines.append(Line("Rows left out", cells))
    return Grid(["Run", *titles], lines)


def _config_differences(comparison: Comparison, titles: list[str]) -> Grid:
    lines = [
        Line(each.key, [json.dumps(v, ensure_ascii=False) for v in (each.before, each.after)])
        for each in comparison.asked_differently
    ]
    return Grid(["Asked differently", *titles], lines)


def _groups(
    title: str, groups: dict[str, Changes], comparison: Comparison, shown: Collection[str]
) -> Grid:
    """The differences in each group; those of one group alone are those of all problems."""
    names = {
        key: name
        for key, name in zip(NAMES, comparison.names, strict=True)
        if key in shown and getattr(comparison, key)
    }
    lines = [
        Line(
            label,
            [difference(getattr(changes, key).difference, narrow=True) for key in names],
            marked_problems(changes.problems),
        )
        for label, changes in groups.items()
        if len(groups) > 1
    ]
    return Grid([f"Points by {title}", *names.values()], lines)


def _pairs(comparison: Comparison, runs: list[Measured]) -> Grid:
    """How many problems one of the runs, or both, has right."""
    found = {
        "vote": (comparison.vote_pairs, _unpaired(comparison, runs)),
        "first deliberation": (comparison.deliberation_pairs, ""),
    }
    before, after = (run.name for run in runs)
    lines = [
        Line(name, _counts(pairs), note) for name, (pairs, note) in found.items() if pairs or note
    ]
    head = ["Problems right", "both", f"only {before}", f"only {after}", "neither", "McNemar's p"]
    return Grid(head, lines)


def _unpaired(comparison: Comparison, runs: list[Measured]) -> str:
    """Whose votes are not paired, and why; empty if all are."""
    before, after = (run.summary.k for run in runs)
    if before != after:
        return f"not paired: K={before} and K={after}"
    unpaired = comparison.unpaired_votes
    if not unpaired:
        return ""
    return f"without {counted(unpaired, 'problem')} of more than {after} trajectories"


def _counts(pairs: Pairs | None) -> list[str]:
    if pairs is None:
        return ["-"] * 5
    counts = (pairs.both, pairs.only_before, pairs.only_after, pairs.neither)
    return [*(f"{count:,}" for count in counts), p_value(pairs.p_value)]


def _strata(runs: list[Measured], titles: list[str]) -> Grid:
    """The strata of each run: a problem may be in another stratum after."""
    lines = []
    for stratum in STRATA:
        groups = [run.summary.by_stratum.get(stratum) for run in runs]
        cells: list[Value] = []
        for group in groups:
            cells.append(marked(f"{group.problems:,}", group.problems) if group else "0")
            cells.append(difference(group.heavy_minus_vote if group else None))
        if any(groups):
            lines.append(Line(stratum, cells))
    head = [text for title in titles for text in (f"{title}: problems", f"{title}: HM - V")]
    note = strata_note(*(run.summary for run in runs))
    return Grid(["Stratum", *head], lines, [note] if note else [])


def _habits(runs: list[Measured], titles: list[str]) -> Grid:
    """Rescue, regress, and how often deliberations repeat the vote or the first attempt."""
    summaries = [run.summary for run in runs]
    lines = []
    for name, meaning in _RATES.items():
        rates = [getattr(summary, name) for summary in summaries]
        cells = [
            IntervalCell(rate.interval, note=f"{rate.count:,} of {rate.of:,}") for rate in rates
        ]
        lines.append(Line(name, cells, meaning))
    copies = [share(summary.vote_copy_rate) for summary in summaries]
    lines.append(Line("vote copy", copies, "a deliberation repeats the vote"))
    firsts = [_first_place(summary) for summary in summaries]
    lines.append(Line("first place", firsts, "it repeats what stands first, points over chance"))
    return Grid(["Rate, 95% intervals", *titles], lines)


def _first_place(summary: Summary) -> IntervalCell:
    if not summary.places:
        return IntervalCell(None)
    first = summary.places[0]
    return IntervalCell(first.over_expected, signed=True, note=marked_problems(first.problems))


def _tokens(runs: list[Measured], titles: list[str]) -> Grid:
    """Tokens read and written by each stage."""
    stages = dict.fromkeys(stage for run in runs for stage in run.summary.usage)
    lines = []
    for stage in stages:
        for what in ("prompt", "completion"):
            cells = []
            for run in runs:
                used = run.summary.usage.get(stage)
                unknown = getattr(used, f"unknown_{what}", 0)
                known = f"{getattr(used, what, 0):,}"
                cells.append(f"{known} and {unknown:,} unknown" if unknown else known)
            lines.append(Line(f"{stage}, {what}", cells))
    return Grid(["Tokens", *titles], lines)


def _made_by(comparison: Comparison) -> str:
    ran = ", ".join(f"{name} {version}" for name, version in comparison.versions.items())
    made = f"Compared by heavydistill {comparison.heavydistill}"
    return f"{made}; the models ran with {ran}." if ran else f"{made}."


def _require_before(comparison: Comparison) -> None:
    if comparison.before is None:
        raise ValueError("There is no run before to compare with")


def _heading(comparison: Comparison) -> str:
    summaries = [run.summary for run in runs_of(comparison)]

    def both(size: str) -> str:
        return "/".join(dict.fromkeys(str(getattr(summary, size)) for summary in summaries))

    return (
        f"{counted(comparison.problems, 'problem')}, K={both('k')} trajectories, "
        f"D={both('d')} deliberations, {both('rounds')} "
        f"round{'' if both('rounds') == '1' else 's'}"
    )


def _sampling(comparison: Comparison) -> Iterator[str]:
    """How both runs were sampled, where their configurations are the same."""
    config = comparison.config
    if comparison.asked_differently or not config:
        return
    yield f"Asked alike, with the prompts {config['domain']} ({config['language']}):"
    runs = runs_of(comparison)
    on_pools = [run.name for run in runs if not run.thinker]  # of another run, so nobody thought
    if not on_pools:
        yield f"  thinking: {sampled(config['think']['sampling'])}"
    elif len(on_pools) < len(runs):
        yield f"  thinking: not compared, the run {on_pools[0]} has the pools of another one"
    yield f"  deliberating: {sampled(config['deliberate']['sampling'])}"


def _readings(comparison: Comparison) -> dict[str, list[str]]:
    """The metrics whose intervals show that they are better, worse, or neither."""
    readings: dict[str, list[str]] = {"Better": [], "Worse": [], "No difference shown": []}
    for name, _, change in comparison.metrics:
        interval = change.difference
        is_better, is_worse = interval and interval.low > 0, interval and interval.high < 0
        word = "Better" if is_better else "Worse" if is_worse else "No difference shown"
        readings[word].append(name)
    return {word: names for word, names in readings.items() if names}


def _token_lines(comparison: Comparison) -> Iterator[str]:
    """What the tokens of a deliberation are worth in votes, in each run."""
    for run in runs_of(comparison):
        yield from (f"{run.name.capitalize()}: {line}" for line in matched_lines(run.summary))
