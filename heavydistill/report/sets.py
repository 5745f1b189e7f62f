"""The figures of a build, as grids: strata, labels of the views, and the rows of the sets.

Not covered: the numbers themselves, which the manifest holds.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from heavydistill.report.grid import Grid, Line, listed, part
from heavydistill.report.terminal import print_grid, print_lines, say
from heavydistill.store.sets.folder import TRAINED, Manifest

_LABELLED = ("problems", "trajectories", "deliberations")
STRATA_COLUMNS = ("sets", "with_deliberation", "not_admitted", "over_bound", "sft", "rl")


def print_manifest(manifest: Manifest, console: Console, *, full: bool = False) -> None:
    """Print what a build did: the rows of the sets, what was left out, and what can be done.

    With ``full``, the strata and each label of the views as tables too.
    """
    traces = ", ".join(f"{run.name} ({run.traces:,} traces)" for run in manifest.runs)
    title = f"{manifest.build['preset']} mixture of {traces}, for {manifest.student.name}"
    say(title, console, "bold")
    print_grid(rows(manifest), console)
    if full:
        print_grid(strata(manifest), console)
        for view in _LABELLED:
            print_grid(labels(view.capitalize(), getattr(manifest, view)), console)
        print_lines(_facts(manifest), console, gap=True)
    else:
        print_lines(_brief(manifest), console, gap=True)
    print_lines(_advice(manifest), console)


def _brief(manifest: Manifest) -> Iterator[str]:
    """Which sets are learnt from, how many rows of each view are used, and why others are not."""
    learnt = {name: sets.sft for name, sets in manifest.strata.items() if sets.sft}
    yield f"Sets for SFT by stratum: {listed(learnt) or 'none'}"
    for view in _LABELLED:
        counts = getattr(manifest, view)
        why = listed({label: count for label, count in counts.items() if label != "used"})
        used = f"{counts.get('used', 0):,} of {sum(counts.values()):,} used"
        yield f"{view.capitalize()}: {used}{f'; left out: {why}' if why else ''}"


def strata(manifest: Manifest) -> Grid:
    """What became of the candidate sets of each stratum, and of all of them.

    Columns are as in ``store.sets.folder.Strata``; a set may count in more than one of them.
    """
    counts = {
        stratum: [getattr(sets, column) for column in STRATA_COLUMNS]
        for stratum, sets in manifest.strata.items()
    }
    counts["all"] = [
        sum(getattr(sets, column) for sets in manifest.strata.values()) for column in STRATA_COLUMNS
    ]
    lines = [Line(label, [f"{n:,}" for n in numbers]) for label, numbers in counts.items()]
    head = ["Stratum", "sets", "deliberated", "not admitted", "over bound", "sft", "rl"]
    return Grid(head, lines)


def labels(name: str, counts: dict[str, int]) -> Grid:
    """The labels of a view, with the share of each in all of its rows."""
    whole = sum(counts.values())
    lines = [Line(label, [f"{n:,}", f"{n / whole:.1%}"]) for label, n in counts.items()]
    return Grid([name, "Count", "Share"], lines)


def rows(manifest: Manifest) -> Grid:
    """Rows of each set that is trained on, and their lengths in tokens of the student.

    A set without rows has no lengths, and one that the guard does not look at has no count of its
    own: both are ``-``.
    """
    lines = []
    for name in TRAINED:
        splits, tokens = manifest.rows[name], manifest.tokens[name]
        lengths = [f"{tokens[key]:,}" if tokens else "-" for key in ("p50", "p95", "max")]
        guarded = f"{manifest.guarded[name]:,}" if name in manifest.guarded else "-"
        counts = [f"{splits[split]:,}" for split in ("train", "validation")]
        lines.append(Line(name, [*counts, *lengths, guarded]))
    return Grid(["Set", "train", "validation", "p50", "p95", "longest", "guarded"], lines)


def _facts(manifest: Manifest) -> list[str]:
    """What the rows are made of."""
    attention, student = manifest.attention, manifest.student
    own, plain = manifest.student_written, manifest.retention
    compared = ", ".join(used.name for used in manifest.benchmarks)
    return [
        f"Lengths are tokens of {student.name}, at most {student.max_tokens:,} a row.",
        "Work with the attempts shows in "
        f"{part(attention.using, attention.deliberations)} of the right deliberations, and in "
        f"{part(attention.blind_using, attention.blind)} of the right attempts, which saw none.",
        f"Of the sets that are used, {part(own.part, own.whole)} hold the student's own "
        "attempts alone.",
        f"Of the deliberator's rows, {part(plain.part, plain.whole)} are plain problems "
        f"({manifest.build['retention']:.0%} are wanted).",
        f"Benchmarks compared with: {compared or 'none'}.",
    ]


def _advice(manifest: Manifest) -> list[str]:
    """What was changed or asked for, and what would give more rows."""
    lines = [f"Chat template: {sentence}" for sentence in manifest.student.mended]
    if manifest.undeliberated:
        how = "--redeliberate asks for them"
        if manifest.asked:
            how = "another redeliberate.seed, a higher redeliberate.d or another --teacher may help"
        lines.append(
            f"The mixture would take {manifest.undeliberated:,} more sets if they had a "
            f"deliberation to learn from: {how}."
        )
    if manifest.unmeasured:
        lines.append(
            f"{manifest.unmeasured:,} caches are no prompts of RL because fewer than two of their "
            "deliberations were judged: `heavydistill generate --d 2` or more pays for them, "
            "`heavydistill refilter` asks a checkpoint, and `heavydistill grpo --unmeasured ask` "
            "takes them as they are."
        )
    if manifest.unfit:
        lines.append(f"{manifest.unfit:,} more sets would not fit the student, and are left out.")
    if manifest.recut:
        lines.append(f"{manifest.recut:,} prompts were cut again to fit the student.")
    for asked in manifest.asked:
        cost = "unknown" if asked.cost_usd is None else f"${asked.cost_usd:,.2f}"
        lines.append(
            f"Asked {asked.model} for {asked.deliberations:,} deliberations on {asked.sets:,} "
            f"sets, of which {asked.failed:,} failed; cost {cost}."
        )
    return lines
