"""Shared parts of the cards of sets and models: templates, tables, and the user's notes.

Cards are rendered from ``templates``, in which an indented line continues the paragraph before it.
Text that a user writes under Notes, the last heading, is kept when the card is written again.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from heavydistill.config.run import Language
from heavydistill.errors import ConfigError
from heavydistill.hub.terms import Author, problem_sources
from heavydistill.report.grid import UNKNOWN, count, counted, part
from heavydistill.report.markdown import at, code, interval, table, text
from heavydistill.report.sets import strata
from heavydistill.store.sets.folder import Manifest

CARD = "README.md"

_TEMPLATES = resources.files("heavydistill.hub") / "templates"
_NOTES = "\n## Notes\n"
_ABOUT_NOTES = (
    "\n<!-- Text below this line is yours: it is kept when the card is written again. The rest is "
    "replaced. -->\n"
)
_STRATA_HEAD = {  # in the order of `report.sets.STRATA_COLUMNS`
    "sets": "All sets",
    "with_deliberation": "With deliberation",
    "not_admitted": "Not admitted",
    "over_bound": "Over bound",
    "sft": "In `sft_deliberator`",
    "rl": "In `rl`",
}


def render(template_name: str, folder: Path, **values: Any) -> str:
    """Render a card, with the notes of the card that is in the folder.

    Raises:
        ConfigError: The card in the folder is not UTF-8 text.
    """
    card = _environment().get_template(template_name).render(**values)
    file, notes = folder / CARD, ""
    try:
        if file.is_file():
            notes = file.read_text(encoding="utf-8").partition(_NOTES)[2]
    except ValueError as error:
        raise ConfigError(
            f"{file} is not a text in UTF-8, so that its Notes cannot be kept",
            "Save it as UTF-8, or remove it.",
        ) from error
    kept = re.sub(r"\A\s*<!--.*?-->\n?", "", notes, flags=re.DOTALL)
    return card.rstrip("\n") + "\n" + _NOTES + _ABOUT_NOTES + kept


def languages(manifests: Iterable[Manifest]) -> list[str]:
    """Codes of the languages of the prompts, sorted."""
    found = {name.partition("@")[0].rpartition(".")[2] for name in versions(manifests, "prompts")}
    return sorted(found & set(typing.get_args(Language)))


def versions(manifests: Iterable[Manifest], kind: str) -> list[str]:
    """Names and versions of ``prompts`` or ``verifiers``, sorted."""
    return sorted({version for manifest in manifests for version in getattr(manifest, kind)})


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # Markdown, where names and texts are escaped by `text` or `code`
    )
    environment.filters |= {"text": text, "code": code, "count": count, "interval": interval}
    environment.filters["known"] = lambda value: UNKNOWN if value is None else value
    environment.globals |= {
        "text": text,
        "code": code,
        "at": at,
        "counted": counted,
        "problem_sources": problem_sources,
        "share": part,
        "table": table,
        "versions": versions,
        "strata_table": _strata_table,
        "authors_table": _authors_table,
    }
    return environment


def _template(name: str) -> str:
    source = (_TEMPLATES / name).read_text(encoding="utf-8")
    return re.sub(r"\n +(?=\S)", " ", source)


def _strata_table(manifest: Manifest) -> str:
    """The strata; without the SFT sets if a checkpoint selected the prompts."""
    shown = [at for at, key in enumerate(_STRATA_HEAD) if key != "sft" or not manifest.refiltered]
    head = ["Stratum", *(list(_STRATA_HEAD.values())[at] for at in shown)]
    lines = strata(manifest).lines
    return table(
        head, [[text(line.label), *(str(line.cells[at]) for at in shown)] for line in lines]
    )


def _authors_table(authors: Sequence[Author]) -> str:
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
    return table(head, rows)
