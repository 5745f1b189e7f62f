"""The card of a folder of sets: its ``README.md``, with the metadata that the Hub reads.

All of it comes from ``manifest.json``, the files that are there and the profiles of the models, so
the same sets have the same card. With it in the folder, ``datasets.load_dataset(FOLDER, "rl")``
works there as it does on the Hub.

What a user writes below the last heading is kept when the card of a folder is written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from heavydistill.hub import figures, provenance
from heavydistill.hub.notes import CARD, joined
from heavydistill.hub.terms import Author, Licence, authors_of, licence_of, problem_sources
from heavydistill.report.grid import count
from heavydistill.report.markdown import code, table, text
from heavydistill.store.sets.folder import (
    SETS,
    TRAINED,
    VIEWS,
    Manifest,
    file_of,
    read_manifest,
    splits_of,
)

_TAGS = ["heavydistill", "synthetic", "reasoning", "deliberation", "distillation"]
_DEFAULT = "sft_deliberator"
# The Hub's size categories: fewer rows than, and its word.
_SIZES = (
    (10**3, "n<1K"),
    (10**4, "1K<n<10K"),
    (10**5, "10K<n<100K"),
    (10**6, "100K<n<1M"),
    (10**7, "1M<n<10M"),
    (10**8, "10M<n<100M"),
)
_ROWS = {
    "problems": "a problem, and in which split it is, or why in none",
    "trajectories": "an attempt at a problem, its verdict, and why it is not learnt from",
    "caches": "a candidate set as a prompt, and why it is not learnt from",
    "deliberations": "an answer to a candidate set, its verdict, and why it is not learnt from",
    "sft_deliberator": "prompt: a candidate set; completion: a deliberation on it",
    "sft_thinker": "prompt: a problem; completion: an attempt at it",
    "rl": "prompt: a candidate set; with what a verifier needs to reward an answer",
}


def card(
    manifest: Manifest,
    folder: Path,
    repo_id: str | None = None,
    *,
    revision: str | None = None,
    licence: str | None = None,
    profiles: Sequence[Path] = (),
) -> str:
    """The card.

    Args:
        manifest: Of the folder.
        folder: Of the sets.
        repo_id: Where they will be on the Hub; None for a card that stays in the folder.
        revision: Branch there; None for the main one.
        licence: Of the sets, as the Hub writes it; None derives it.
        profiles: As of ``authors_of``.

    Raises:
        ConfigError: One of ``profiles`` is no profile, or the card in the folder is no text.
    """
    authors = authors_of(manifest, profiles)
    chosen = (
        Licence(licence, "whoever published the sets chose it")
        if licence
        else licence_of(manifest, authors)
    )
    sections = [
        f"---\n{_metadata(manifest, folder, authors, chosen)}\n---",
        f"# {text(_title(manifest, authors))}",
        _what_it_is(manifest),
        *_refiltered(manifest),
        "## Sets",
        _sets(folder, manifest),
        _loading(folder, repo_id, revision),
        *provenance.authorship(authors, chosen, "these sets"),
        *figures.sections(manifest),
        *provenance.making(manifest, folder),
    ]
    return joined(sections, folder)


def write_card(folder: Path) -> None:
    """Write the card of a folder of sets into it.

    Raises:
        ConfigError: The folder holds no sets.
    """
    (folder / CARD).write_text(card(read_manifest(folder), folder), encoding="utf-8")


def _metadata(manifest: Manifest, folder: Path, authors: Sequence[Author], licence: Licence) -> str:
    from huggingface_hub import DatasetCardData

    rows = sum(sum(splits.values()) for splits in _counts(manifest, folder).values())
    named: dict[str, Any] = {"license_name": "see-card"} if licence.name == "other" else {}
    data = DatasetCardData(
        license=licence.name,
        language=provenance.languages(manifest) or None,
        task_categories=[
            "text-generation",
            *["reinforcement-learning"] * bool(splits_of(folder, "rl")),
        ],
        tags=_TAGS,
        size_categories=next((name for most, name in _SIZES if rows < most), "n>100M"),
        pretty_name=_title(manifest, authors),
        source_datasets=_source_datasets(manifest) or None,
        **named,
        configs=_configs(folder),
    )
    return data.to_yaml()


def _configs(folder: Path) -> list[dict[str, Any]]:
    """The sets that have rows, with the file of each split; one of them is the default."""
    there = [name for name in SETS if splits_of(folder, name)]
    default = next((name for name in (_DEFAULT, *TRAINED) if name in there), None)
    return [
        {
            "config_name": name,
            "data_files": [
                {
                    "split": split,
                    "path": file_of(folder, name, split).relative_to(folder).as_posix(),
                }
                for split in splits_of(folder, name)
            ],
            **({"default": True} if name == default else {}),
        }
        for name in there
    ]


def _source_datasets(manifest: Manifest) -> list[str]:
    sources = problem_sources(manifest)
    return [source.removeprefix("hub:") for source in sources if source.startswith("hub:")]


def _title(manifest: Manifest, authors: Sequence[Author]) -> str:
    def of(role: str) -> str:
        return ", ".join(author.name for author in authors if role in author.roles)

    if manifest.refiltered:
        return f"Prompts for RL of attempts by {of('thinker')}"
    if not of("deliberator"):
        return f"Attempts by {of('thinker')}"
    return f"Deliberations by {of('deliberator')} on attempts by {of('thinker')}"


def _what_it_is(manifest: Manifest) -> str:
    runs = len(manifest.runs)
    return (
        "A thinker attempts a problem several times, each time on its own. A deliberator reads a "
        "set of such attempts, compares and criticises them, derives again and answers. These are "
        "training sets for both roles: supervised ones and prompts for reinforcement learning. "
        f"heavydistill {text(manifest.heavydistill)} built them from {runs} "
        f"{'run' if runs == 1 else 'runs'}: {sum(manifest.problems.values()):,} problems, "
        f"{sum(manifest.trajectories.values()):,} attempts and "
        f"{sum(manifest.deliberations.values()):,} deliberations, judged by verifiers."
    )


def _refiltered(manifest: Manifest) -> Iterator[str]:
    """What a checkpoint chose, and that the rest is of the build before."""
    if done := manifest.refiltered:
        revision = f" ({code(done.revision)})" if done.revision else ""
        yield (
            f"The prompts were chosen anew for {code(done.checkpoint)}{revision}, which "
            f"deliberated {count(done.d)} times on each of {count(done.caches)} candidate sets: "
            f"{count(done.kept)} that it got right sometimes, and not always, are kept; "
            f"{count(done.always_right)} were always right, {count(done.never_right)} never, and "
            f"{count(done.unmeasured)} could not be measured. All else that is told here is of the "
            "build before, whose other sets are not here."
        )


def _sets(folder: Path, manifest: Manifest) -> str:
    counts = _counts(manifest, folder)
    rows = [
        (code(name), count(counts[name].get("train", 0)), _validation(name, counts[name]), what)
        for name, what in _ROWS.items()
        if name in counts
    ]
    return (
        table(("Config", "train", "validation", "A row"), rows)
        + f"\n\n{', '.join(code(name) for name in VIEWS if name in counts)} are views: what is not "
        "used is in them too, with its reason in `label` (of `caches` in `sft_label` and "
        "`rl_label`), which is empty for what is used. Candidate sets that were drawn and that "
        "nothing uses are only counted, under Strata. The other configs are split into train and "
        "validation by problem. `prompt` and `completion` are conversations, and only the "
        "completion is to be learnt; `reasoning` and `answer_text` hold both parts of it apart."
    )


def _validation(name: str, splits: dict[str, int]) -> str:
    return "" if name in VIEWS else count(splits.get("validation", 0))


def _counts(manifest: Manifest, folder: Path) -> dict[str, dict[str, int]]:
    """Rows of each set that is there, by split."""
    import pyarrow.parquet as pq

    return {
        name: {
            split: pq.read_metadata(file_of(folder, name, split)).num_rows
            for split in splits_of(folder, name)
        }
        for name in SETS
        if splits_of(folder, name)
    }


def _loading(folder: Path, repo_id: str | None, revision: str | None) -> str:
    place = repo_id or "path/to/this/folder"
    more = f', revision="{revision}"' if repo_id and revision else ""
    lines = ["from datasets import load_dataset", ""]
    lines += [
        f'{name} = load_dataset("{place}", "{name}"{more})'
        for name in SETS
        if splits_of(folder, name)
    ]
    return "\n".join(("```python", *lines, "```"))
