"""Comparisons as grids: two runs, thinkers with deliberators, and the models of mixed pools.

The comparison of two runs is printed to the terminal, and as Markdown for papers and reviews. A
crossing has a row for each thinker and a column for each deliberator.

Not covered: computing the numbers (``metrics``); a single run (``summary``) and its controls
(``controls``).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from heavydistill.metrics.comparison import MEANINGS, Change, Changes, Comparison, RunMetrics
from heavydistill.metrics.controls import FALLS, GARBLED, RISES
from heavydistill.metrics.controls import NAMES as CONTROLS
from heavydistill.metrics.counts import unanswered_facts
from heavydistill.metrics.experiments.crossing import Crossing, Samplings
from heavydistill.metrics.intervals import Interval
from heavydistill.metrics.mixing import Alone, Mixing
from heavydistill.metrics.summary import NAMES, STRATA
from heavydistill.report import markdown, steps, summary
from heavydistill.report.grid import (
    Grid,
    IntervalCell,
    Line,
    Value,
    bracketed,
    counted,
    difference,
    few_note,
    few_warning,
    listed,
    marked,
    marked_problems,
    p_value,
    percent,
    points,
    reading,
    sampled,
    share,
    sizes,
    support,
    versions,
)
from heavydistill.report.summary import (
    claims_line,
    leak_line,
    lost_samples,
    matched_lines,
    print_unanswered,
    shares_line,
    strata_note,
)
from heavydistill.report.terminal import print_grid, print_lines, say

_FROZEN_NOTE = "Both deliberators on the same attempts, so that no better thinker counts."
METRICS_TITLE = "Metric, 95% intervals"
_RATES = {
    "rescue": "vote not right, deliberation right",
    "regress": "vote right, deliberation wrong",
    "emergent": "no trajectory right, deliberation right",
}
_TRANSPLANTS = {
    FALLS: ("transplant, out", "right attempts are taken out"),
    RISES: ("transplant, in", "a right attempt is put in"),
}
# P and HP of problem groups do not fit a terminal's width.
_NARROW_METRICS = [name for name in NAMES if "pass" not in name]
_READING_STYLES = {"Better": "green", "Worse": "red"}
_NO_DIFFERENCE = "No difference shown"


def print_comparison(comparison: Comparison, console: Console, *, full: bool = False) -> None:
    """Print the difference between the run before, which must exist, and the run after.

    With ``full``, also print all tables: models, groups of problems, pairs, strata, repetition
    rates and samples.
    """
    title, support = headline(comparison)
    say(title, console, "bold")
    print_lines([support, *_result_lines(comparison)], console)
    for word, readings in _readings(comparison).items():
        each = (f"{name} {bracketed(value, signed=True)}" for name, value in readings.items())
        say(f"{word}: {', '.join(each)}", console, _READING_STYLES.get(word, ""))
    if full:
        print_lines(_sampling(comparison), console, gap=True)
        shown = list(grids(comparison, _NARROW_METRICS))
        for grid in shown:
            print_grid(grid, console)
        lines = [*few_note(shown), *_token_lines(comparison), _made_by(comparison)]
        print_lines(lines, console, gap=True)
    for run in runs_of(comparison):
        is_student = run is comparison.after
        print_unanswered(run.summary, console, of=run.name.capitalize(), is_student=is_student)


def _result_lines(comparison: Comparison) -> Iterator[str]:
    """Yield lines with the sizes, and with the metrics and lost samples of each run."""
    yield _heading(comparison)
    if asked := comparison.asked_differently:
        yield f"Different keys of the configurations: {', '.join(each.key for each in asked)}"
    for run in runs_of(comparison):
        lost = lost_samples(run.summary)
        yield f"{run.name.capitalize()}: {shares_line(run.summary)}{lost and f'; lost: {lost}'}"
    yield from _gains(comparison)
    for run in runs_of(comparison):
        yield from (f"Claims, {run.name}: {line}" for line in claims_line(run.summary))
        yield from (f"Leak, {run.name}: {line}" for line in leak_line(run.summary))
        yield from (f"{run.name.capitalize()}: {line}" for line in steps.lines(run.summary))
    if worth := comparison.minus_controls.get(GARBLED):
        values = [value for value in (worth.before, worth.after, worth.difference) if value]
        old, new, added = (bracketed(value, signed=True) for value in values)
        names = [run.name for run in runs_of(comparison)]
        yield f"The attempts' values add {old} in {names[0]}, {new} in {names[1]}: {added} points"


def _gains(comparison: Comparison) -> Iterator[str]:
    """Yield what each part gained, and the deliberation on the attempts of the run before."""
    heavy = comparison.heavy_mean_at_d
    if heavy and heavy.difference and comparison.mean_at_k.difference:
        parts = {
            "The thinker gained": comparison.mean_at_k,
            "the vote": comparison.vote_at_k,
            "the deliberation": heavy,
        }
        gains = (
            f"{part} {points(change.difference.mean)}"
            for part, change in parts.items()
            if change.difference
        )
        yield f"{', '.join(gains)} points"
    if on_before := comparison.frozen:
        rights, over = on_before.heavy_mean_at_d, on_before.heavy_minus_vote
        if rights and over and rights.before and over.before and rights.difference:
            yield (
                f"On the attempts of the run before: {percent(rights.before.mean)} right before, "
                f"{percent(rights.after.mean)} after; over their vote "
                f"{points(over.before.mean)} before, {bracketed(over.after, signed=True)} after"
            )


def headline(comparison: Comparison) -> tuple[str, str]:
    """Return the change from the run before, which must exist, and the numbers that support it.

    Deliberations are also right more often if only the thinker has become better, so each run's are
    measured against its own vote.
    """
    deliberation, added = comparison.heavy_mean_at_d, comparison.heavy_minus_vote
    change = added or comparison.mean_at_k
    what = "Deliberation against the model's own vote" if added else "The thinker"
    rights = []
    for run in runs_of(comparison):
        side = "before" if run is comparison.before else "after"
        name = run.name if run.name in ("before", "after") else f"in {run.name}"
        shown, vote = (
            getattr(each, side) for each in (deliberation or change, comparison.vote_at_k)
        )
        against = f" against {percent(vote.mean)}" if deliberation else ""
        rights.append(f"{percent(shown.mean)} right{against} {name}")
    if not change.difference:
        return f"{what}: {rights[0]}", ""
    word = reading(change.difference)
    claim = f"{what} is {word}:" if word else f"{_NO_DIFFERENCE}: {what[0].lower()}{what[1:]},"
    return f"{claim} {', '.join(rights)}", support(change.difference, comparison.problems)


def as_markdown(comparison: Comparison) -> str:
    """Return the tables and notes of a comparison as Markdown, without paths of folders."""
    shown = list(grids(comparison, NAMES))
    sentences = [
        *few_note(shown),
        *(f"{line}." for line in _gains(comparison)),
        *(f"{word}: {', '.join(readings)}." for word, readings in _readings(comparison).items()),
        *(f"{line}." for line in _token_lines(comparison)),
        *unanswered_lines(comparison),
    ]
    few = "".join(f" {warning}" for warning in few_warning(comparison.problems))
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


def runs_of(comparison: Comparison) -> list[RunMetrics]:
    """Return the run before, if there is one, and the run after."""
    return [run for run in (comparison.before, comparison.after) if run]


def unanswered_lines(comparison: Comparison) -> Iterator[str]:
    """Yield a line for each stage of a run in which many samples have no final answer."""
    for run in runs_of(comparison):
        for fact in unanswered_facts(run.summary.samples, run.summary.by_verifier):
            yield f"{run.name.capitalize()}: {fact}"


def grids(comparison: Comparison, group_metrics: Collection[str]) -> Iterator[Grid]:
    """Yield the tables of a comparison with a run before, in order, without empty tables.

    Args:
        comparison: The comparison.
        group_metrics: Keys of the metrics that are shown for each group of problems.
    """
    runs = runs_of(comparison)
    titles = [run.name.capitalize() for run in runs]
    asked = [
        Line(each.key, [json.dumps(v, ensure_ascii=False) for v in (each.before, each.after)])
        for each in comparison.asked_differently
    ]
    made = [
        _provenance(runs, titles),
        Grid(["Asked differently", *titles], asked),
        metrics(comparison),
        frozen(comparison),
        _groups("verifier", comparison.by_verifier, comparison, group_metrics),
        _groups("source", comparison.by_family, comparison, group_metrics),
        _pairs(comparison, runs),
        _strata(runs, titles),
        _habits(runs, titles),
        claims(comparison),
        step_changes(comparison),
        _minus_controls(comparison, titles),
        samples(comparison),
    ]
    yield from (grid for grid in made if grid.lines)


def metrics(comparison: Comparison) -> Grid:
    """Return the metrics of each run, and their difference if there are two runs."""
    return _changes(METRICS_TITLE, comparison.metrics, comparison)


def frozen(comparison: Comparison) -> Grid:
    """Return the deliberations of both runs on the attempts of the run before; no rows without."""
    keys = ("heavy_mean_at_d", "heavy_pass_at_d", "heavy_minus_vote")
    rows = [
        (name, MEANINGS[key], change)
        for key, name in zip(NAMES, comparison.names, strict=True)
        if key in keys and comparison.frozen and (change := getattr(comparison.frozen, key))
    ]
    if over := comparison.frozen_steps.get("heavy_minus_step_vote"):
        rows.append((*steps.NAMES["heavy_minus_step_vote"], over))
    return _changes("On the attempts of before", rows, comparison, [_FROZEN_NOTE])


def _minus_controls(comparison: Comparison, titles: list[str]) -> Grid:
    """Return what deliberation adds over each control of both runs, and changes by transplants."""
    lines = []
    for name, change in comparison.minus_controls.items():
        label, note = _TRANSPLANTS.get(name) or (f"HM - {name}", CONTROLS[name])
        values = (change.before, change.after, change.difference)
        lines.append(Line(label, list(map(difference, values)), note))
    return Grid(["Controls, 95% intervals", *titles, "Points"], lines)


def claims(comparison: Comparison) -> Grid:
    """Return the metrics of what deliberations say of attempts; no rows if there are none."""
    rows = [
        (name, meaning, change)
        for key, (name, meaning) in summary.CLAIMS.items()
        if (change := getattr(comparison, key))
    ]
    return _changes("Claims, 95% intervals", rows, comparison, [summary.CLAIMS_NOTE])


def step_changes(comparison: Comparison) -> Grid:
    """Return the shares of the step table and the step vote of each run; no rows without them."""
    rows = [
        (name, meaning, change)
        for key, (name, meaning) in steps.NAMES.items()
        if (change := comparison.steps.get(key))
    ]
    return _changes("Steps, 95% intervals", rows, comparison, [steps.NOTE])


def _changes(
    title: str,
    rows: Iterable[tuple[str, str, Change]],
    comparison: Comparison,
    notes: Sequence[str] = (),
) -> Grid:
    lines = []
    for name, meaning, change in rows:
        cell = difference if " - " in name else share
        before = [cell(change.before)] if comparison.before else []
        added = [difference(change.difference)] if comparison.before else []
        lines.append(Line(name, [*before, cell(change.after), *added], meaning))
    titles = [run.name.capitalize() for run in runs_of(comparison)]
    return Grid([title, *titles, *["Points"] * (len(titles) > 1)], lines, notes)


def samples(comparison: Comparison) -> Grid:
    """Return the numbers of samples by outcome, for each run and stage."""
    counts = {
        f"{stage}, {run.name}": each
        for run in runs_of(comparison)
        for stage, each in run.summary.samples.items()
    }
    return summary.samples(counts)


def _provenance(runs: list[RunMetrics], titles: list[str]) -> Grid:
    """Return the models, versions and settings that made each run."""

    def model(run: RunMetrics, role: str) -> str:
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


def _groups(
    title: str, groups: dict[str, Changes], comparison: Comparison, shown: Collection[str]
) -> Grid:
    """Return the differences by group; no rows for a single group, which equals all problems."""
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


def _pairs(comparison: Comparison, runs: list[RunMetrics]) -> Grid:
    """Return how many problems both runs, only one, or neither solved, with McNemar's p."""
    before, after = runs
    unpaired, sizes = "", (before.summary.k, after.summary.k)
    if sizes[0] != sizes[1]:
        unpaired = f"not paired: K={sizes[0]} and K={sizes[1]}"
    elif comparison.unpaired_votes:
        without = counted(comparison.unpaired_votes, "problem")
        unpaired = f"without {without} of more than {sizes[1]} trajectories"
    lines = []
    for name, pairs, note in (
        ("vote", comparison.vote_pairs, unpaired),
        ("first deliberation", comparison.deliberation_pairs, ""),
    ):
        if pairs:
            counts = (pairs.both, pairs.only_before, pairs.only_after, pairs.neither)
            cells = [*(f"{count:,}" for count in counts), p_value(pairs.p_value)]
            lines.append(Line(name, cells, note))
        elif note:
            lines.append(Line(name, ["-"] * 5, note))
    names = [f"only {before.name}", f"only {after.name}"]
    return Grid(["Problems right", "both", *names, "neither", "McNemar's p"], lines)


def _strata(runs: list[RunMetrics], titles: list[str]) -> Grid:
    """Return the strata of each run; a problem may change its stratum between the runs."""
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


def _habits(runs: list[RunMetrics], titles: list[str]) -> Grid:
    """Return rescue and regress rates, and how often deliberations repeat vote or first attempt."""
    summaries = [run.summary for run in runs]
    lines = []
    for name, meaning in _RATES.items():
        rates = [getattr(each, name) for each in summaries]
        cells = [IntervalCell(r.interval, note=f"{r.count:,} of {r.of:,}") for r in rates]
        lines.append(Line(name, cells, meaning))
    copies = [share(each.vote_copy_rate) for each in summaries]
    lines.append(Line("vote copy", copies, "a deliberation repeats the vote"))
    firsts = []
    for places in (each.places for each in summaries):
        over = places[0].over_expected if places else None
        problems = marked_problems(places[0].problems) if places else ""
        firsts.append(IntervalCell(over, signed=True, note=problems))
    lines.append(Line("first place", firsts, "it repeats the first attempt, points over chance"))
    return Grid(["Rate, 95% intervals", *titles], lines)


def _made_by(comparison: Comparison) -> str:
    ran = ", ".join(f"{name} {version}" for name, version in comparison.versions.items())
    made = f"Compared by heavydistill {comparison.heavydistill}"
    return f"{made}; the models ran with {ran}." if ran else f"{made}."


def _heading(comparison: Comparison) -> str:
    summaries = [run.summary for run in runs_of(comparison)]

    def both(size: str) -> str:
        return "/".join(dict.fromkeys(str(getattr(summary, size)) for summary in summaries))

    return ", ".join(sizes(comparison.problems, both("k"), both("d"), both("rounds")))


def _sampling(comparison: Comparison) -> Iterator[str]:
    """Yield the sampling of both runs, if their configurations are equal."""
    config = comparison.config
    if comparison.asked_differently or not config:
        return
    yield f"Same configuration, with the prompts {config['domain']} ({config['language']}):"
    runs = runs_of(comparison)
    on_pools = [run.name for run in runs if not run.thinker]
    if not on_pools:
        yield f"  thinking: {sampled(config['think']['sampling'])}"
    elif len(on_pools) < len(runs):
        yield f"  thinking: not compared, because the run {on_pools[0]} has pools of another run"
    yield f"  deliberating: {sampled(config['deliberate']['sampling'])}"


def _readings(comparison: Comparison) -> dict[str, dict[str, Interval]]:
    """Return the differences by reading (better, worse or neither), then by metric."""
    readings: dict[str, dict[str, Interval]] = {"Better": {}, "Worse": {}, _NO_DIFFERENCE: {}}
    for name, _, change in comparison.metrics:
        if change.difference:
            word = reading(change.difference).capitalize() or _NO_DIFFERENCE
            readings[word][name] = change.difference
    return {word: sentences for word, sentences in readings.items() if sentences}


def _token_lines(comparison: Comparison) -> Iterator[str]:
    """Yield lines on how many votes equal the token cost of a deliberation, for each run."""
    for run in runs_of(comparison):
        yield from (f"{run.name.capitalize()}: {line}" for line in matched_lines(run.summary))


def print_crossing(crossing: Crossing, console: Console) -> None:
    """Print the metrics of each deliberator on each thinker's attempts."""
    heading = sizes(crossing.problems, crossing.k, crossing.d, crossing.rounds)
    console.print(Text(", ".join(heading), style="bold"))
    print_grid(crossed(crossing), console)
    print_lines(not_alike(crossing.sampling), console)
    print_lines(crossing_lines(crossing), console)
    print_lines([versions(crossing.prompts, crossing.verifiers)], console)
    print_lines(few_warning(crossing.problems), console)


def crossed(crossing: Crossing) -> Grid:
    """Return a grid with a row for each thinker and a column for each deliberator."""
    cells = {(cell.thinker, cell.deliberator): cell for cell in crossing.cells}
    readers = list(dict.fromkeys(cell.deliberator for cell in crossing.cells))
    k, d = crossing.k, crossing.d
    lines = []
    for thinker in crossing.thinkers:
        own = [thinker.mean_at_k, thinker.vote_at_k, thinker.pass_at_k]
        read = [cells[thinker.name, reader] for reader in readers]
        cells_of_row = [share(value).lines("%") for value in own]
        cells_of_row += [
            share(cell.heavy_mean_at_d).lines("%") + difference(cell.heavy_minus_vote).lines()
            for cell in read
        ]
        lines.append(Line(thinker.name, list(map("\n".join, cells_of_row))))
    head = ["Thinker", f"M@{k}", f"V@{k}", f"P@{k}", *(f"HM@{d} {reader}" for reader in readers)]
    note = f"Below HM@{d}: HM@{d} - V@{k} in points. With 95% intervals."
    return Grid(head, lines, [note])


def crossing_lines(crossing: Crossing) -> Iterator[str]:
    """Yield lines on problems without deliberations, and on samples without a final answer."""
    for cell in crossing.cells:
        if cell.unasked:
            yield (
                f"{cell.deliberator} answered nothing on {cell.unasked:,} problem(s) of "
                f"{cell.thinker}, which count as wrong"
            )
    for name, counts in crossing.samples.items():
        if counts.unanswered:
            yield (
                f"Without a final answer, {name}: {counts.unanswered:,} of {counts.finished:,} "
                f"that ended ({percent(counts.unanswered_share)}), which count as wrong"
            )


def not_alike(sampling: Samplings) -> Iterator[str]:
    """Yield the sampling parameters of each model, for stages in which the models differ."""
    for stage, by_model in sampling.items():
        parameters = {name: sampled(chosen) for name, chosen in by_model.items()}
        if len(set(parameters.values())) > 1:
            each = "; ".join(f"{name}: {how}" for name, how in parameters.items())
            yield f"Not sampled alike, {stage}: {each}"


def print_mixing(mixing: Mixing | None, console: Console, *, full: bool = False) -> None:
    """Print what models contribute to pools and what mixing them gains; nothing for one model."""
    print_lines(mixing_lines(mixing), console)
    if full:
        print_grid(grid := mixing_table(mixing), console)
        print_lines(few_note([grid]), console)


def mixing_lines(mixing: Mixing | None) -> Iterator[str]:
    """Yield the accuracy of each model, and what mixing gains; none for pools of one model."""
    if not mixing:
        return
    if mixing.unnamed:
        yield (
            f"Models are not compared, because {mixing.unnamed:,} trajectories have no model's "
            "name: import them again with --columns model=COLUMN, or --model NAME for those of one "
            "model"
        )
        return
    shares = ", ".join(f"{each.name} {percent(each.mean_at_k.mean)}" for each in mixing.models)
    yield f"Models, M: {shares}"
    gains = {"V": mixing.vote_gain, "P": mixing.pass_gain}
    named = [f"{name} {bracketed(gain, signed=True)}" for name, gain in gains.items() if gain]
    if named:
        yield f"Mixed - best model, each at K={mixing.k}: {', '.join(named)} points"
    else:
        yield (
            f"Mixing is not compared: the pools have {mixing.k} of some model, and a comparison "
            "with each alone needs 2 of each, or 3 for the vote"
        )


def mixing_table(mixing: Mixing | None) -> Grid:
    """Return a row for each model, for the mixed pools, and for their gain; else no rows."""
    if not mixing or mixing.unnamed:
        return Grid([], [])
    k = mixing.k
    rows = [
        Line(
            each.name,
            [
                *_shares(each),
                f"{each.only:,}",
                f"{each.usage.requests:,}",
                summary.cost(each.usage),
            ],
        )
        for each in mixing.models
    ]
    rows.append(Line("mixed", [*_shares(mixing), *3 * [""]]))
    gains = (difference(gain, narrow=True) for gain in (mixing.vote_gain, mixing.pass_gain))
    rows.append(Line("mixed - best", ["", *gains, *3 * [""]], marked_problems(mixing.problems)))
    head = ["Model", "M", f"V@{k}", f"P@{k}", "Only it", "Samples", "USD"]
    note = (
        f"V@{k} and P@{k}: of {counted(k, 'attempt')} drawn from one model's, or from the mixed "
        f"pool, on the {counted(mixing.problems, 'problem')} with {k} of each model. Only it: "
        "problems that no other model has right. Best: the model with the highest figure."
    )
    left = f"Left out: {counted(mixing.left_out, 'problem')} with fewer."
    return Grid(head, rows, [note, *([left] if mixing.left_out else [])])


def _shares(of: Alone | Mixing) -> list[IntervalCell]:
    values = of.mean_at_k, of.vote_at_k, of.pass_at_k
    return [IntervalCell(value, narrow=True) for value in values]
