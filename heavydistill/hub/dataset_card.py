"""The dataset card of a folder of sets: its ``README.md``, with metadata for the Hub.

The card depends only on ``manifest.json``, the files in the folder and the profiles of the models,
so the same sets have the same card. With the card in the folder, ``datasets.load_dataset(FOLDER,
"rl")`` works locally as it does on the Hub.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heavydistill.hub.cards import CARD, languages, render
from heavydistill.hub.options import IN_FOLDER, PublishOptions
from heavydistill.hub.run_traces import RunTraces
from heavydistill.hub.terms import (
    Author,
    Licence,
    authors_of,
    has_others_pools,
    licence_of,
    problem_sources,
)
from heavydistill.metrics.counts import GenerationCounts, answerer_facts, unanswered_facts
from heavydistill.metrics.intervals import FEW_PROBLEMS, Interval
from heavydistill.report.grid import UNKNOWN, count, few_warning
from heavydistill.report.markdown import at, code, interval, text, usd
from heavydistill.report.summary import CLAIMS, CLAIMS_NOTE, NO_DELIBERATION, claim
from heavydistill.store.sets.folder import (
    CHAT_TEMPLATE,
    SETS,
    TRAINED,
    VIEWS,
    Manifest,
    RunUsed,
    file_of,
    read_manifest,
    read_rows,
    splits_of,
)
from heavydistill.store.sets.set_rows import LABELS

_TAGS = ["heavydistill", "synthetic", "reasoning", "deliberation", "distillation"]
_DEFAULT = "sft_deliberator"
# The Hub's size categories; each upper bound is ten times the previous one.
_SIZES = ["n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "n>100M"]
_ROWS = {
    "problems": "a problem, and its split or why it has none",
    "trajectories": "an attempt at a problem, its verdict, and why it is not used",
    "caches": "a candidate set as a prompt, and why it is not used",
    "deliberations": "an answer to a candidate set, its verdict, and why it is not used",
    "sft_deliberator": "prompt: a candidate set; completion: a deliberation on it",
    "sft_thinker": "prompt: a problem; completion: an attempt at it",
    "rl": "prompt: a candidate set; with the verifier's reference and arguments",
    "preferences_deliberator": "a right and a wrong deliberation on one candidate set",
    "preferences_thinker": "a right and a wrong attempt at one problem",
    "unpaired_deliberator": "a deliberation on a candidate set, and whether it is right",
    "unpaired_thinker": "an attempt at a problem, and whether it is right",
    "critiques": "prompt: a problem and an attempt; completion: what is true of the attempt",
}
_STAGES = ("trajectories", "deliberations")
_EXAMPLE = ("text", "reasoning", "answer_text", "reference")  # fields of a row in the example

RowCounts = dict[str, dict[str, int]]  # number of rows of each set that has rows, by split


def dataset_card(manifest: Manifest, folder: Path, options: PublishOptions = IN_FOLDER) -> str:
    """Return the card of the sets, with the Hub address from the options.

    Raises:
        ConfigError: A profile cannot be read, or the card in the folder is not UTF-8 text.
    """
    from pyarrow.parquet import read_metadata

    authors = authors_of(manifest, options.profiles)
    licence = licence_of(manifest, authors, options)
    title = _title(manifest, authors)
    counts = {
        name: {split: read_metadata(file_of(folder, name, split)).num_rows for split in splits}
        for name in SETS
        if (splits := splits_of(folder, name))
    }
    return render(
        "dataset_card.md",
        folder,
        metadata=_metadata(manifest, folder, title, licence, counts),
        title=title,
        manifest=manifest,
        authors=authors,
        licence=licence,
        counts=counts,
        meanings=_ROWS,
        views=VIEWS,
        address=address(options),
        example=_example(folder, counts),
        figures=figures_of(manifest),
        filtered_views=["problems"] if manifest.refiltered else ["problems", *_STAGES],
        labels={"used": "passed all filters", **dict(LABELS)},
        template=CHAT_TEMPLATE if (folder / CHAT_TEMPLATE).is_file() else "",
    )


def address(options: PublishOptions) -> dict[str, str]:
    """Return the place that a card loads the rows from: a repository, or the folder of the card."""
    return {
        "place": options.repo_id or "path/to/this/folder",
        "revision": f', revision="{options.revision}"' if options.revision else "",
    }


def figures_of(manifest: Manifest | RunTraces) -> dict[str, Any]:
    """Return the figures of the runs for the card of sets or traces."""
    sizes = [problems for run in manifest.runs if (problems := run.summary.get("problems"))]
    facts = [
        f"{code(run.name)}: {text(fact)}"
        for run in manifest.runs
        for stage in _STAGES
        if (counted := run.summary.get(stage))
        for samples in ({stage: GenerationCounts(**counted)},)
        for fact in (
            *unanswered_facts(samples, run.summary.get("by_verifier", {})),
            *answerer_facts(samples),
        )
    ]
    asked = ", ".join(each.model for each in manifest.asked)
    return dict(
        claims_head=["Run", *(name.capitalize() for name, _ in CLAIMS.values())],
        claims=[
            [code(run.name), *(interval(run.summary.get(key)) for key in CLAIMS)]
            for run in manifest.runs
            if run.summary.get("claim_coverage")
        ],
        claims_note=CLAIMS_NOTE,
        stages=_STAGES,
        deliberated=[run for run in manifest.runs if run.summary.get("heavy_mean_at_d")],
        headlines=[(run, shown) for run in manifest.runs if (shown := _headline(run, asked))],
        few_warning=[f" {warning}" for warning in few_warning(min(sizes, default=FEW_PROBLEMS))],
        facts=facts,
        costs=_costs(manifest),
    )


def write_card(folder: Path) -> None:
    """Write the card into a folder of sets; raises ConfigError if the folder has no sets."""
    (folder / CARD).write_text(dataset_card(read_manifest(folder), folder), encoding="utf-8")


def _headline(run: RunUsed, asked: str) -> tuple[str, str] | None:
    """Return the result of a run; None if its summary has no metrics.

    ``asked`` has the models that the build asked for deliberations, which are no part of the run.
    """
    keys = ("vote_at_k", "heavy_mean_at_d", "heavy_minus_vote")
    intervals = [Interval(**value) if (value := run.summary.get(key)) else None for key in keys]
    vote, heavy, added = intervals
    if not vote:
        return None
    shown, support = claim(run.summary["problems"], run.summary["k"], vote, heavy, added)
    if asked and not heavy:
        later = f"This is the result of the run, to which the build added deliberations by {asked}."
        support = support.replace(NO_DELIBERATION, later)
    return shown, support


def _example(folder: Path, counts: RowCounts) -> dict[str, object]:
    """Return the name of a set and the texts of its first row."""
    name = next(name for name in (_DEFAULT, *TRAINED, *VIEWS) if name in counts)
    row = next(read_rows(folder, name, next(iter(counts[name]))))
    prompt = row.pop("prompt", "")
    if isinstance(prompt, list):
        prompt = "\n\n".join(message["content"] for message in prompt)
    texts = {"prompt": prompt, **{key: row.get(key) for key in _EXAMPLE}}
    return {"set": name, "texts": {key: value for key, value in texts.items() if value}}


def _metadata(
    manifest: Manifest, folder: Path, title: str, licence: Licence, counts: RowCounts
) -> str:
    rows = sum(sum(splits.values()) for splits in counts.values())
    default = next((name for name in (_DEFAULT, *TRAINED) if name in counts), None)
    configs: list[dict[str, object]] = []  # the sets that have rows, with the file of each split
    for name, splits in counts.items():
        paths = {s: file_of(folder, name, s).relative_to(folder).as_posix() for s in splits}
        files = [{"split": split, "path": path} for split, path in paths.items()]
        usual = {"default": True} if name == default else {}
        configs.append({"config_name": name, "data_files": files, **usual})
    tasks = ["text-generation", *["reinforcement-learning"] * ("rl" in counts)]
    return metadata(manifest, title, licence, rows, configs, tasks)


def metadata(
    manifest: Manifest | RunTraces,
    title: str,
    licence: Licence,
    rows: int,
    configs: list[dict[str, object]],
    tasks: Sequence[str] = ("text-generation",),
) -> str:
    """Return the metadata of a dataset card as YAML."""
    from huggingface_hub import DatasetCardData

    sources = [s.removeprefix("hub:") for s in problem_sources(manifest) if s.startswith("hub:")]
    data = DatasetCardData(
        license=licence.name,
        language=languages([manifest]) or None,
        task_categories=list(tasks),
        tags=_TAGS,
        size_categories=_SIZES[sum(rows >= 10**power for power in range(3, 9))],
        pretty_name=title,
        source_datasets=sources or None,
        license_name=licence.hub_name,
        configs=configs,
    )
    return data.to_yaml()


def _title(manifest: Manifest, authors: Sequence[Author]) -> str:
    thinkers, deliberators = (
        ", ".join(author.name for author in authors if role in author.roles)
        for role in ("thinker", "deliberator")
    )
    if manifest.refiltered:
        return f"Prompts for RL from attempts by {thinkers}"
    return (
        f"Deliberations by {deliberators} on attempts by {thinkers}"
        if deliberators
        else (f"Attempts by {thinkers}")
    )


def _costs(manifest: Manifest | RunTraces) -> dict[str, object]:
    """Return requests, tokens and cost of each stage, and the known part of the total cost."""
    costs: list[float | None] = []
    rows = []
    for run in manifest.runs:
        for stage, used in (at(run.summary, "usage") or {}).items():
            is_paid = stage != "thinking" or not has_others_pools(run)  # else another run paid
            if is_paid and not used["requests"]:
                continue
            known = dict.fromkeys(("requests", "prompt", "completion"), UNKNOWN)
            for kind in known if is_paid else ():
                missing = used.get(f"unknown_{kind}", 0)
                if missing != used["requests"]:
                    known[kind] = f"{'at least ' * bool(missing)}{count(used[kind])}"
            costs.append(used.get("cost_usd") if is_paid else None)
            rows.append((f"{code(run.name)} {text(stage)}", *known.values(), usd(costs[-1])))
    for asked in manifest.asked:
        costs.append(asked.cost_usd)
        spent = (asked.deliberations, asked.prompt_tokens, asked.completion_tokens)
        rows.append((f"{code(asked.model)} again", *map(count, spent), usd(asked.cost_usd)))
    if manifest.refiltered:
        costs.append(None)
        rows.append(("refilter", count(manifest.refiltered.deliberations), *[UNKNOWN] * 3))
    priced = [cost for cost in costs if cost is not None]
    least = "At least " * (None in costs)
    return {"rows": rows, "total": f"{least}{usd(sum(priced))}" if priced else ""}
