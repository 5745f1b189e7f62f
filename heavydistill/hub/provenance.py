"""The part of a card that is words: whose the texts are, how they came about, what to beware of."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from heavydistill.config.run import Language
from heavydistill.hub.terms import Author, Licence, has_others_pools, problem_sources
from heavydistill.report.grid import UNKNOWN, count
from heavydistill.report.markdown import at, code, table, text
from heavydistill.store.sets.folder import CHAT_TEMPLATE, Manifest

_LIMITS = (
    "A verdict says whether the final answer is right; the way to it may still be wrong.",
    "What a verifier could not decide is never counted as right, and nowhere learnt from.",
    "The figures above are those of the teachers on the problems of the runs, not those of a "
    "model that was trained on these sets.",
    "The texts were written by models: they can state falsehoods, and nobody has read them all.",
    "Problems keep the licence of the place that they come from.",
)


def languages(*manifests: Manifest) -> list[str]:
    """Codes of the languages of the prompts, sorted."""
    versions = {version for manifest in manifests for version in manifest.prompts}
    found = {version.partition("@")[0].rpartition(".")[2] for version in versions}
    return sorted(found & set(typing.get_args(Language)))


def authorship(authors: Sequence[Author], licence: Licence, of: str) -> Iterator[str]:
    """Who wrote it, and what may be done with it; ``of`` names it."""
    yield "## Models, licence and terms"
    rows = [
        (
            code(author.name),
            " and ".join(author.roles),
            text(author.licence or "unknown"),
            author.terms.distillation,
            text(author.terms.because or UNKNOWN),
            text(author.terms.source or UNKNOWN),
        )
        for author in authors
    ]
    head = ("Model", "Role", "Licence of its weights", "Distillation", "Because", "Source")
    if rows:
        yield table(head, rows)
    told = (
        "Distillation says whether models may be trained on what the model writes; a hosted API "
        "may add terms of its own. "
    )
    of_models = told if rows else ""
    yield f"{of_models}The licence of {of} is {code(licence.name)}: {text(licence.because)}."


def making(manifest: Manifest, folder: Path) -> Iterator[str]:
    """How the sets came about, and what they are not."""
    yield "## Sampling"
    yield _sampling(manifest)
    yield "## Prompts and verifiers"
    yield from wordings(manifest)
    yield "## Student"
    yield _student(manifest, folder)
    yield "## Provenance"
    yield _provenance(manifest)
    yield "## Limits"
    yield "\n".join(f"- {limit}" for limit in _LIMITS)


def wordings(*manifests: Manifest) -> Iterator[str]:
    """The versions of prompts and verifiers."""
    prompts = {version for manifest in manifests for version in manifest.prompts}
    verifiers = {version for manifest in manifests for version in manifest.verifiers}
    yield _items("Wordings of the prompts, with their hashes", sorted(prompts))
    yield _items("Verifiers, with their versions", sorted(verifiers))


def _sampling(manifest: Manifest) -> str:
    keys = ("temperature", "top_p", "top_k", "max_tokens")
    rows = []
    for run in manifest.runs:
        for stage, samples in (("think", "k"), ("deliberate", "d")):
            if asked := at(run.config, stage):
                values = [asked.get(samples), *(at(asked, f"sampling.{key}") for key in keys)]
                is_own = stage == "deliberate" or not has_others_pools(run)
                cells = [
                    _value(value) for value in (*values, run.config.get("seed") if is_own else None)
                ]
                rows.append((f"{code(run.name)} {stage}", *cells))
    again = manifest.build.get("redeliberate") or {}
    for answered in manifest.asked:
        values = [again.get("d"), *map(answered.sampling.get, keys), again.get("seed")]
        rows.append((f"{code(answered.model)} again", *map(_value, values)))
    if not rows:
        return "How the attempts were sampled is not known."
    head = ("Run", "Samples", "Temperature", "top_p", "top_k", "Most tokens", "Seed")
    return table([text(cell) for cell in head], rows)


def _student(manifest: Manifest, folder: Path) -> str:
    student = manifest.student
    where = (
        "in a field of its own, `reasoning_content`"
        if student.form == "field"
        else "in the content, between think tags, before the answer"
    )
    template = (
        f"of which `{CHAT_TEMPLATE}` is a copy"
        if (folder / CHAT_TEMPLATE).is_file()
        else "which is the one that comes with it"
    )
    mended = f" What was mended in it: {text('; '.join(student.mended))}." if student.mended else ""
    return (
        f"The rows are made for {code(student.name)} and its chat template, {template} (SHA-256 "
        f"{code(student.template_sha256)}): the thinking of a completion stands {where}.{mended} "
        f"A row has at most {count(student.max_tokens)} tokens."
        + (
            " Before the sets were called ready, rows were rendered with that template and found "
            f"whole: {', '.join(f'{count(n)} of {code(name)}' for name, n in looked)}."
            if (looked := manifest.guarded.items())
            else ""
        )
    )


def _provenance(manifest: Manifest) -> str:
    build = manifest.build
    lines = [
        f"heavydistill {text(manifest.heavydistill)}, format {code(manifest.format)}",
        f"mixture {code(build.get('preset', UNKNOWN))}, seed {_value(build.get('seed'))}",
        f"problems from {', '.join(map(code, problem_sources(manifest)))}",
    ]
    return (
        "\n".join(f"- {line}" for line in lines)
        + "\n\n`manifest.json` has all of it: the configurations of the build and of each run, "
        "every count, and the SHA-256 of each file. The same runs and seed give the same files."
    )


def _items(title: str, items: Sequence[str]) -> str:
    return f"{title}:\n\n" + ("\n".join(f"- {code(item)}" for item in items) or "- none")


def _value(value: Any) -> str:
    return UNKNOWN if value is None else text(value)
