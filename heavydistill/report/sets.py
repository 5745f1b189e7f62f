"""The counts of a build as grids: rows of the sets, and strata.

Not covered: computing the numbers, which are in the manifest.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from heavydistill.report.grid import Grid, Line, listed, part
from heavydistill.report.terminal import print_grid, print_lines, say
from heavydistill.store.sets.folder import Manifest

_LABELLED = ("problems", "trajectories", "deliberations")
STRATA_COLUMNS = {  # columns of ``store.sets.folder.Strata``, with their titles
    "sets": "sets",
    "false_claims": "false\nclaims",
    "with_deliberation": "deliberated",
    "not_admitted": "not\nadmitted",
    "over_bound": "over\nbound",
    "sft": "sft",
    "rl": "rl",
}


def print_manifest(manifest: Manifest, console: Console, *, full: bool = False) -> None:
    """Print the rows that a build made, what it left out, and how to get more rows.

    With ``full``, also print a table of the strata, and facts about the rows.
    """
    traces = ", ".join(f"{run.name} ({run.traces:,} traces)" for run in manifest.runs)
    title = f"{manifest.build['preset']} mixture of {traces}, for {manifest.student.name}"
    say(title, console, "bold")
    print_grid(rows(manifest), console)
    print_lines(_selection(manifest), console, gap=True)
    if full:
        print_grid(strata(manifest), console)
        print_lines(_facts(manifest), console, gap=True)
    print_lines(_advice(manifest), console)


def _selection(manifest: Manifest) -> Iterator[str]:
    """Yield the sets used for training, the used rows of each view, and why others are left out."""
    learnt = listed({name: sets.sft for name, sets in manifest.strata.items()})
    yield f"Sets for SFT by stratum: {learnt or 'none'}"
    for view in _LABELLED:
        counts = getattr(manifest, view)
        why = listed({label: count for label, count in counts.items() if label != "used"})
        used = f"{counts.get('used', 0):,} of {sum(counts.values()):,} used"
        yield f"{view.capitalize()}: {used}{why and f'; left out: {why}'}"
    for level, worded in manifest.wordings.items():
        yield f"Rows with the wording {level}: {listed(worded.rows) or 'none'}"
    for role, pairs in manifest.pairs.items():
        if pairs.length_ratio is None:
            continue
        kinds = listed({"wrong": pairs.wrong, "false claim": pairs.false_claim})
        yield (
            f"Pairs of the {role}, by what is rejected: {kinds}; median length of chosen / "
            f"rejected {pairs.length_ratio:.2f}; right responses without a pair {pairs.alone:,}, "
            f"rejected ones that do not fit {pairs.unfit:,}"
        )


def strata(manifest: Manifest) -> Grid:
    """Return the numbers of candidate sets by use, for each stratum and in total.

    Columns are as in ``store.sets.folder.Strata``; a set may count in several columns.
    """
    counts = {
        stratum: [getattr(sets, column) for column in STRATA_COLUMNS]
        for stratum, sets in manifest.strata.items()
    }
    counts["all"] = [
        sum(getattr(sets, column) for sets in manifest.strata.values()) for column in STRATA_COLUMNS
    ]
    lines = [Line(label, [f"{n:,}" for n in numbers]) for label, numbers in counts.items()]
    note = "Numbers of sets; false claims: deliberations left out because of them."
    return Grid(["Stratum", *STRATA_COLUMNS.values()], lines, [note])


def rows(manifest: Manifest) -> Grid:
    """Return the rows of each training set, and their lengths in tokens of the student.

    Lengths are ``-`` for a set without rows, and ``guarded`` is ``-`` for a set that the guard does
    not check.
    """
    lines = []
    for name, splits in manifest.rows.items():
        tokens = manifest.tokens[name]
        lengths = [f"{tokens[key]:,}" if tokens else "-" for key in ("p50", "p95", "max")]
        guarded = f"{manifest.guarded[name]:,}" if name in manifest.guarded else "-"
        counts = [f"{splits[split]:,}" for split in ("train", "validation")]
        lines.append(Line(name, [*counts, *lengths, guarded]))
    return Grid(["Set", "train", "validation", "p50", "p95", "longest", "guarded"], lines)


def _facts(manifest: Manifest) -> Iterator[str]:
    """Yield facts about the rows."""
    attention, student = manifest.attention, manifest.student
    own, plain = manifest.student_written, manifest.retention
    compared = ", ".join(used.name for used in manifest.benchmarks)
    yield f"Lengths are tokens of {student.name}, at most {student.max_tokens:,} a row."
    yield (
        f"Work with the attempts shows in {part(attention.using, attention.deliberations)} of the "
        f"right deliberations, and in {part(attention.blind_using, attention.blind)} of the right "
        "attempts, which saw none."
    )
    false = part(attention.false_claims, attention.deliberations)
    yield f"False claims about attempts are in {false} of the right deliberations."
    if attention.leaks_attempts is not None:
        leaks = part(attention.leaks_attempts, attention.deliberations)
        yield f"The answer speaks of attempts in {leaks} of the right deliberations."
    yield f"Used sets with the student's own attempts alone: {part(own.part, own.whole)}."
    yield (
        f"Plain problems among the deliberator's rows: {part(plain.part, plain.whole)}, "
        f"{manifest.build['retention']:.0%} wanted."
    )
    yield f"Benchmarks compared with: {compared or 'none'}."


def _pairs_advice(manifest: Manifest) -> Iterator[str]:
    """Yield how a set of pairs that is empty may get some."""
    for role, pairs in manifest.pairs.items():
        if pairs.length_ratio is None:
            given, more = ("cache", "--d") if role == "deliberator" else ("problem", "--k")
            yield (
                f"preferences_{role} has no pairs, because no {given} with a right response that "
                f"is used has a wrong one too: `heavydistill generate` with a higher {more}, or "
                "harder problems, may give some."
            )


def _advice(manifest: Manifest) -> Iterator[str]:
    """Yield changes and requests made by the build, and ways to get more rows."""
    yield from (f"Chat template: {sentence}" for sentence in manifest.student.mended)
    if manifest.unfit:
        yield f"{manifest.unfit:,} more sets do not fit the student, and are left out."
    if manifest.recut:
        yield f"{manifest.recut:,} prompts were cut again to fit the student."
    without = manifest.attention.leaks_without_thinking
    if without and manifest.deliberations.get("leaks_attempts"):
        yield (
            f"{without:,} right deliberations without thinking speak of the attempts in their "
            "answer and are left out: generate --prompt deliberator=tagged has the model think "
            "first, and --set filters.leaks_attempts=keep uses them as they are."
        )
    for asked in manifest.asked:
        cost = "unknown" if asked.cost_usd is None else f"${asked.cost_usd:,.2f}"
        yield (
            f"Asked {asked.model} for {asked.deliberations:,} deliberations on {asked.sets:,} "
            f"sets, of which {asked.failed:,} failed; cost {cost}."
        )
    trained = [splits for splits in manifest.rows.values() if splits["train"]]
    if trained and not any(splits["validation"] for splits in trained):
        yield "No rows for validation: a larger share of problems, --set validation=N, gives some."
    yield from _pairs_advice(manifest)
    if manifest.undeliberated:
        how = "--redeliberate requests them"
        if manifest.asked:
            how = "another redeliberate.seed, a higher redeliberate.d or another --teacher may help"
        yield (
            f"The mixture would take {manifest.undeliberated:,} more sets if they had a "
            f"deliberation to learn from: {how}."
        )
    if manifest.unmeasured:
        yield (
            f"{manifest.unmeasured:,} candidate sets are no RL prompts, because fewer than two "
            "deliberations on them were judged: `heavydistill refilter` measures them on a "
            "checkpoint, and `heavydistill grpo --unmeasured ask` uses them as they are."
        )
