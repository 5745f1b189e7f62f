"""The tables of a build: what became of the sets of each stratum, what took what, what is there.

Not covered: the numbers themselves, which the manifest holds.
"""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from heavydistill.report.text import plain, print_table, table
from heavydistill.store.sets.folder import TRAINED, Manifest, Share


def print_manifest(manifest: Manifest, console: Console) -> None:
    """Print what a build did."""
    traces = ", ".join(f"{run.name} ({run.traces:,} traces)" for run in manifest.runs)
    console.print(Text(f"{manifest.build['preset']} mixture of {traces}", style="bold"))
    _print_strata(manifest, console)
    for name, counts in (
        ("Problems", manifest.problems),
        ("Trajectories", manifest.trajectories),
        ("Deliberations", manifest.deliberations),
    ):
        _print_labels(name, counts, console)
    _print_rows(manifest, console)
    for line in _lines(manifest):
        console.print(plain(line), soft_wrap=True)


def _print_strata(manifest: Manifest, console: Console) -> None:
    columns = ("sets", "deliberated", "not admitted", "over bound", "sft", "rl")
    rows = table(console, "Stratum", *columns)
    total = [0] * len(columns)
    for stratum, sets in manifest.strata.items():
        counts = [
            sets.sets,
            sets.with_deliberation,
            sets.not_admitted,
            sets.over_bound,
            sets.sft,
            sets.rl,
        ]
        total = [one + more for one, more in zip(total, counts, strict=True)]
        rows.add_row(plain(stratum), *(f"{count:,}" for count in counts))
    rows.add_row("all", *(f"{count:,}" for count in total))
    print_table(rows, console)


def _print_labels(name: str, counts: dict[str, int], console: Console) -> None:
    whole = sum(counts.values())
    rows = table(console, name, "Count", "Share")
    for label, count in counts.items():
        rows.add_row(plain(label), f"{count:,}", f"{count / whole:.1%}")
    if counts:
        print_table(rows, console)


def _print_rows(manifest: Manifest, console: Console) -> None:
    rows = table(console, "Set", "train", "validation", "p50", "p95", "longest", "guarded")
    for name in TRAINED:
        splits, tokens = manifest.rows[name], manifest.tokens[name]
        lengths = [f"{tokens[key]:,}" if tokens else "-" for key in ("p50", "p95", "max")]
        guarded = f"{manifest.guarded[name]:,}" if name in manifest.guarded else "-"
        counts = [f"{splits[split]:,}" for split in ("train", "validation")]
        rows.add_row(name, *counts, *lengths, guarded)
    print_table(rows, console)


def _lines(manifest: Manifest) -> list[str]:
    attention, student = manifest.attention, manifest.student
    lines = [
        f"Lengths are tokens of {student.name}, at most {student.max_tokens:,} a row.",
        "Work with the attempts shows in "
        f"{_share(attention.using, attention.deliberations)} of the right deliberations, and in "
        f"{_share(attention.blind_using, attention.blind)} of the right attempts, which saw none.",
        f"Of the sets that are used, {_of(manifest.student_written)} hold the student's own "
        "attempts alone.",
        f"Of the deliberator's rows, {_of(manifest.retention)} are plain problems "
        f"({manifest.build['retention']:.0%} are wanted).",
    ]
    lines += [f"Chat template: {sentence}" for sentence in student.mended]
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
            "`heavydistill refilter` asks a checkpoint, and scripts/grpo.py --unmeasured ask "
            "takes them as they are."
        )
    if manifest.unfit:
        lines.append(f"{manifest.unfit:,} more sets would not fit the student, and are left out.")
    if manifest.recut:
        lines.append(f"{manifest.recut:,} prompts were cut again to fit the student.")
    hits = {one.name: sum(one.hits.values()) for one in manifest.benchmarks}
    compared = ", ".join(f"{name} ({count:,})" for name, count in hits.items())
    lines.append(f"Problems found in benchmarks: {compared or 'none was compared with'}.")
    for asked in manifest.asked:
        cost = "unknown" if asked.cost_usd is None else f"${asked.cost_usd:,.2f}"
        lines.append(
            f"Asked {asked.model} for {asked.deliberations:,} deliberations on {asked.sets:,} "
            f"sets, of which {asked.failed:,} failed; cost {cost}."
        )
    return lines


def _of(share: Share) -> str:
    return _share(share.part, share.whole)


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({part / whole:.1%})" if whole else "0 of 0"
