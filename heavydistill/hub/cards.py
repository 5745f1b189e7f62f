"""Shared parts of the cards of sets and models: templates, tables, and the user's notes.

Cards are rendered from ``templates``; an indented line in a template continues the paragraph before
it. Text that a user writes under Notes, the last heading, is kept when the card is written again.
"""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Iterable
from functools import partial
from importlib import resources
from pathlib import Path

import jinja2

from heavydistill.config.run import Language
from heavydistill.errors import CONTROL, ConfigError
from heavydistill.hub.run_traces import RunTraces
from heavydistill.hub.terms import few, has_others_pools, has_test_templates, problem_sources
from heavydistill.report import comparison, controls
from heavydistill.report.grid import UNKNOWN, count, counted, few_warning, part, percent
from heavydistill.report.markdown import at, code, from_grid, interval, table, text
from heavydistill.report.sets import strata
from heavydistill.store.sets.folder import Manifest

CARD = "README.md"

_TEMPLATES = resources.files("heavydistill.hub") / "templates"
_LONGEST = 1_200  # maximum characters of a text in an example
_NOTES = "\n## Notes\n"
_ABOUT_NOTES = (
    "\n<!-- Text below this line is yours: it is kept when the card is written again. The rest is "
    "replaced. -->\n"
)


def render(template_name: str, folder: Path, **values: object) -> str:
    """Return a rendered card, with the notes of the card that is already in the folder.

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
            f"{file} is not a text in UTF-8, so its Notes cannot be kept",
            "Save it as UTF-8, or remove it.",
        ) from error
    kept = re.sub(r"\A\s*<!--.*?-->\n?", "", notes, flags=re.DOTALL)
    card = re.sub(r"\n{3,}", "\n\n", card.rstrip("\n"))  # left by parts that have nothing to say
    return card + "\n" + _NOTES + _ABOUT_NOTES + kept


def languages(manifests: Iterable[Manifest | RunTraces]) -> list[str]:
    """Return the language codes of the prompts, sorted."""
    codes = {name.partition("@")[0].rpartition(".")[2] for name in versions(manifests, "prompts")}
    return sorted(codes & set(typing.get_args(Language)))


def versions(manifests: Iterable[Manifest | RunTraces], kind: str) -> list[str]:
    """Return names and versions of ``prompts`` or ``verifiers``, sorted."""
    return sorted({version for manifest in manifests for version in getattr(manifest, kind)})


def verbatim(value: str) -> str:
    """Return the beginning of a text of others as an indented code block.

    Every line is indented, so that no text ends the block or is a heading of the card.
    """
    lines = CONTROL.sub(lambda match: ascii(match[0])[1:-1], value[:_LONGEST]).split("\n")
    if (more := len(value) - _LONGEST) > 0:
        lines.append(f"... ({counted(more, 'more character')})")
    return "\n".join(f"    {line}" for line in lines)


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # the output is Markdown; `text` and `code` escape names and texts
    )
    environment.filters |= {"text": text, "code": code, "count": count, "interval": interval}
    environment.filters |= {"few": few, "verbatim": verbatim}
    environment.filters |= {"known": lambda value: UNKNOWN if value is None else value}
    functions = (text, code, count, at, counted, percent, few_warning, table, versions)
    for function in (*functions, problem_sources, has_others_pools, has_test_templates):
        environment.globals[function.__name__] = function
    environment.globals |= {"share": part, "from_grid": from_grid, "strata_grid": strata}
    environment.globals |= {"json": partial(json.dumps, ensure_ascii=False), "compared": comparison}
    environment.globals["controlled"] = controls
    return environment


def _template(name: str) -> str:
    source = (_TEMPLATES / name).read_text(encoding="utf-8")
    return re.sub(r"\n +(?=\S)", " ", source)
