"""The part of a card that is numbers: what the runs achieved, and what became of it all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from heavydistill.hub.terms import has_others_pools
from heavydistill.metrics.counts import COLUMNS, GenerationCounts, unanswered_facts
from heavydistill.metrics.intervals import FEW_PROBLEMS, FEW_WARNING
from heavydistill.report.grid import UNKNOWN, count
from heavydistill.report.grid import part as share
from heavydistill.report.markdown import at, code, interval, table, text, usd
from heavydistill.store.sets.folder import Manifest, Strata
from heavydistill.store.sets.rows import LABELS

_USED = "used"
_RATES = {
    "rescue": "Rescue: vote wrong or tied, deliberation right",
    "regress": "Regress: vote right, deliberation wrong",
    "emergent": "Emergent: no attempt right, deliberation right",
}
_KINDS = ("prompt", "completion")
_STAGES = ("trajectories", "deliberations")
_MEANINGS = {_USED: "passes everything", **dict(LABELS)}


def sections(manifest: Manifest) -> Iterator[str]:
    """Headings and what follows them."""
    yield "## What the runs achieved"
    yield _metrics(manifest)
    yield "## Strata"
    yield strata(manifest)
    yield "## Filters"
    yield _filters(manifest)
    if not manifest.refiltered:
        yield "## Use of the attempts"
        yield _attention(manifest)
    yield "## Contamination"
    yield _contamination(manifest)
    yield "## Tokens and cost"
    yield _tokens(manifest)
    yield _cost(manifest)


def _metrics(manifest: Manifest) -> str:
    """Of each run; an imported pool has none."""
    intervals = ("mean_at_k", "vote_at_k", "pass_at_k", "heavy_mean_at_d", "heavy_pass_at_d")
    head = ("Run", "Problems", "K", "D", "M@K", "V@K", "P@K", "HM@D", "HP@D", "HM@D - V@K")
    rows = [
        (
            code(run.name),
            *(count(run.summary.get(key)) for key in ("problems", "k", "d")),
            *(interval(run.summary.get(key)) for key in intervals),
            interval(run.summary.get("heavy_minus_vote"), signed=True),
        )
        for run in manifest.runs
    ]
    changed = [
        (code(run.name), *(_rate(run.summary.get(rate)) for rate in _RATES))
        for run in manifest.runs
    ]
    few = any(0 < (run.summary.get("problems") or 0) < FEW_PROBLEMS for run in manifest.runs)
    return "\n\n".join(
        [
            table(head, rows),
            "In brackets: 95% intervals, bootstrapped over problems. M@K is the share of attempts "
            "that are right, V@K that of problems whose vote is right, P@K with any right attempt; "
            "HM@D is the share of deliberations that are right, HP@D that of problems with any "
            "right one. The difference is in points and paired by problem."
            + (f" {FEW_WARNING}" if few else ""),
            table(("Run", *_RATES.values()), changed),
            *_samples(manifest),
            *_judged(manifest),
        ]
    )


def _samples(manifest: Manifest) -> Iterator[str]:
    """What became of the answers of each run, and which runs have many without a final answer."""
    rows, warnings = [], []
    for run in manifest.runs:
        told = {stage: run.summary[stage] for stage in _STAGES if run.summary.get(stage)}
        for stage, counts in told.items():
            cells = (count(counts.get(column)) for column in ("total", *COLUMNS))
            rows.append((code(run.name), stage, *cells))
        # Runs of earlier versions did not count them.
        counted = {
            stage: GenerationCounts(**counts)
            for stage, counts in told.items()
            if "unanswered" in counts
        }
        facts = unanswered_facts(counted, run.summary.get("by_verifier", {}))
        warnings += [f"{code(run.name)}: {text(fact)}" for fact in facts]
    if rows:
        yield table(("Run", "Answers", "All", *(name.capitalize() for name in COLUMNS)), rows)
        yield (
            "An unanswered one ended by itself and holds no final answer for a verifier to judge; "
            "it counts as not right. One answer can stand in several columns."
        )
    yield from warnings


def _judged(manifest: Manifest) -> Iterator[str]:
    """What of the figures rests on a judge and not on rules."""
    for run in manifest.runs:
        judging = run.summary.get("judging") or {}
        if judging.get("asked"):
            names = ", ".join(map(code, judging["judges"]))
            yield (
                f"In {code(run.name)}, {names} judged what rules left undecided: of "
                f"{count(judging['asked'])} verdicts, {count(judging['correct'])} correct and "
                f"{count(judging['incorrect'])} incorrect."
            )


def _rate(rate: dict[str, Any] | None) -> str:
    return share(rate["count"], rate["of"]) if rate else UNKNOWN


def strata(manifest: Manifest) -> str:
    """What became of the candidate sets of each stratum."""
    columns = {
        "sets": "All sets",
        "with_deliberation": "With deliberation",
        "not_admitted": "Not admitted",
        "over_bound": "Over bound",
        **({} if manifest.refiltered else {"sft": "In `sft_deliberator`"}),
        "rl": "In `rl`",
    }

    def cells(those: list[Strata]) -> list[str]:
        return [count(sum(getattr(one, column) for one in those)) for column in columns]

    rows = [(text(name), *cells([one])) for name, one in manifest.strata.items()]
    rows += [("all", *cells(list(manifest.strata.values())))]
    own, plain = manifest.student_written, manifest.retention
    return (
        "Candidate sets by how many of their attempts are right and what the vote says. Of those "
        "with a deliberation that passed every filter, the mixture "
        f"{code(manifest.build.get('preset', UNKNOWN))} does not admit some and takes others only "
        "up to a bound.\n\n"
        + table(("Stratum", *columns.values()), rows)
        + "\n\nOf the sets that are used, the attempts are all the student's own in "
        f"{share(own.part, own.whole)}. {count(manifest.recut)} prompts were cut again to fit the "
        "student."
        + (
            ""
            if manifest.refiltered
            else " Plain problems, so that thinking is not unlearned, are "
            f"{share(plain.part, plain.whole)} of the rows of `sft_deliberator`."
        )
    )


def _filters(manifest: Manifest) -> str:
    views = ["problems"] if manifest.refiltered else ["problems", "trajectories", "deliberations"]
    rows = [
        (
            view,
            code(label) if label != _USED else "used",
            count(number),
            text(_MEANINGS.get(label, UNKNOWN)),
        )
        for view in views
        for label, number in getattr(manifest, view).items()
    ]
    return (
        "What a filter took stays in the view, with the first reason as its `label`.\n\n"
        + table(("View", "Label", "Rows", "Meaning"), rows)
    )


def _attention(manifest: Manifest) -> str:
    seen = manifest.attention
    return (
        "A deliberation works with the attempts if it names at least two of them, or says that all "
        "are wrong: "
        f"{share(seen.using, seen.deliberations)} of the right and finished deliberations do. As a "
        "control, the same signs were looked for in attempts, which saw nothing of each other: "
        f"{share(seen.blind_using, seen.blind)} show them. A deliberation that uses the attempts "
        "without a word about them is not recognized."
    )


def _contamination(manifest: Manifest) -> str:
    if not manifest.benchmarks:
        return "The problems were not compared with any benchmark."
    rows = [
        (
            code(used.name),
            count(sum(used.hits.values())),
            ", ".join(f"{count(hits)} {code(how)}" for how, hits in used.hits.items()),
            code(used.texts_sha256[:12]),
        )
        for used in manifest.benchmarks
    ]
    return (
        table(("Benchmark", "Problems found", "How", "SHA-256"), rows)
        + "\n\nA problem is found if a run of 13 words of it stands in a text of the benchmark, or "
        "at least half of its runs of 8 words, or, for short texts, all of its words; digits count "
        "as one digit. Problems that were found are in no training set. Paraphrases and "
        "translations are not found, and other benchmarks were not looked at. SHA-256: the first "
        "digits of that of the benchmark's hashes."
    )


def _tokens(manifest: Manifest) -> str:
    quantiles = ("p50", "p90", "p95", "p99", "max")
    rows = [
        (code(name), *(count(known.get(quantile)) for quantile in quantiles))
        for name, known in manifest.tokens.items()
        if known
    ]
    return (
        f"Prompt and completion of a row together, of `rl` the prompt, in the tokens of "
        f"{code(manifest.student.name)}; at most {count(manifest.student.max_tokens)}.\n\n"
        + table(("Config", "Median", "90%", "95%", "99%", "Most"), rows)
    )


def _cost(manifest: Manifest) -> str:
    costs: list[float | None] = []
    rows = []
    for run in manifest.runs:
        for stage, used in (at(run.summary, "usage") or {}).items():
            if stage == "thinking" and has_others_pools(run):
                used = {}  # another run paid for it
            elif not used["requests"]:
                continue
            costs.append(used.get("cost_usd"))
            numbers = [count(used.get("requests")), *(_reported(used, kind) for kind in _KINDS)]
            rows.append((f"{code(run.name)} {text(stage)}", *numbers, usd(costs[-1])))
    for asked in manifest.asked:
        costs.append(asked.cost_usd)
        numbers = [
            count(number)
            for number in (asked.deliberations, asked.prompt_tokens, asked.completion_tokens)
        ]
        rows.append((f"{code(asked.model)} again", *numbers, usd(asked.cost_usd)))
    if manifest.refiltered:
        costs.append(None)
        rows.append(("refilter", count(manifest.refiltered.deliberations), *[UNKNOWN] * 3))
    if not rows:
        return "What the attempts and deliberations cost is not known."
    known = sum(cost for cost in costs if cost is not None)
    at_least = "At least " if None in costs else ""
    return (
        table(("What was asked", "Requests", "Prompt tokens", "Completion tokens", "USD"), rows)
        + f"\n\n{at_least}{usd(known)} US dollars in all, by the prices of the profiles; models "
        "that ran on hardware of one's own count nothing."
    )


def _reported(used: dict[str, Any], kind: str) -> str:
    """Tokens, as far as the requests reported them."""
    missing = used.get(f"unknown_{kind}", 0)
    if not used or missing == used["requests"]:
        return UNKNOWN
    return f"{'at least ' * bool(missing)}{count(used[kind])}"
