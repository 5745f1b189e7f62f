"""The texts of the skill ``heavy-thinking``, made from the wordings that runs and trainings use.

``SKILL.md`` is ``template.md`` with both wordings of the first domain and language, and a table of
the others, if there are any;
``references/ROLE.DOMAIN.LANGUAGE.md`` holds each wording in the form in which a model reads it: the
prompt of a thinker, and that of a cache. What stands in brackets is for the reader to fill. The
metadata name the version of heavydistill and the hash of each wording.

The same arguments give the same bytes. Not covered: files that depend on a run (``evals``).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Literal

import heavydistill
from heavydistill.heavy import prompts
from heavydistill.heavy.cache import serialize
from heavydistill.skill.frontmatter import SKILL

NAME = "heavy-thinking"
VERSION_KEY = "heavydistill-version"
ROLES: tuple[Literal["thinker", "deliberator"], ...] = ("thinker", "deliberator")
DOMAINS = {
    "general": (
        "any other question with a final answer",
        "the form that the question asks for; one final answer stands in `\\boxed{}` at the end",
    ),
    "stem": (
        "mathematics and science",
        "the key steps, and the final answer in `\\boxed{}` exactly once",
    ),
    "code": (
        "programs",
        "a short explanation of the algorithm, and the whole program in one fenced code block",
    ),
    "brief": (
        "any question, for a model with a short context",
        "the solution, with the final answer in `\\boxed{}` at the end",
    ),
}
"""Maps a domain to its questions and to the format of its answers."""
_QUESTION, _ATTEMPTS = "[the question]", ("[the first attempt]", "[the second attempt]")


def skill_texts(
    domains: Sequence[str], languages: Sequence[str], version: str = ""
) -> dict[str, str]:
    """Return the files of the skill by path: ``SKILL.md`` and the wordings.

    Args:
        domains: Domains of the wordings; the first one is the default of the skill.
        languages: Languages of the wordings; the first one is the default of the skill.
        version: Version in the metadata (default: the installed version of heavydistill).

    Raises:
        ConfigError: A role has no wording for one of the domains and languages.
    """
    pairs = list(itertools.product(domains, languages))
    several = len(pairs) > 1
    wordings = {
        f"{role}.{domain}.{language}": prompts.load(role, domain, language)
        for domain, language in pairs
        for role in ROLES
    }
    rendered = {
        name: serialize(_QUESTION, _ATTEMPTS, wording) for name, wording in wordings.items()
    }
    first = f"{domains[0]}.{languages[0]}"
    hashes = {name: wording.version.rpartition("@")[2] for name, wording in wordings.items()}
    versions = {VERSION_KEY: version or heavydistill.__version__}
    versions |= {f"heavydistill-{name}": digits for name, digits in hashes.items()}
    slots = {
        "metadata": "\n".join(f'  {key}: "{value}"' for key, value in versions.items()),
        "first": f" for {domains[0]}, {languages[0]}" if several else "",
        "table": _table(domains, languages),
        "formats": "\n".join(
            f"- Format{f' for {domain}' if several else ''}: {DOMAINS[domain][1]}."
            for domain in domains
        ),
        "thinker": rendered[f"thinker.{first}"],
        "deliberator": rendered[f"deliberator.{first}"],
    }
    template = (resources.files("heavydistill.skill") / "template.md").read_text(encoding="utf-8")
    conditional = r"(?s)\{\{if several\}\}\n(.*?)\{\{end\}\}\n"
    template = re.sub(conditional, r"\1" if several else "", template)
    text = re.sub(r"\{\{(\w+)\}\}", lambda slot: slots[slot[1]], template)
    return {SKILL: text} | {reference_of(name): f"{each}\n" for name, each in rendered.items()}


def reference_of(wording: str) -> str:
    """Return the path of a wording in the skill."""
    return f"references/{wording}.md"


def wordings_in(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the hashes of the wordings that the metadata of a skill name, by wording."""
    found = (
        re.fullmatch(r"heavydistill-((?:thinker|deliberator)\.\w+\.\w+)", key) for key in metadata
    )
    return {match[1]: metadata[match[0]] for match in found if match}


def _table(domains: Sequence[str], languages: Sequence[str]) -> str:
    rows = [
        "| domain | questions | thinker's wording | deliberator's wording |",
        "|---|---|---|---|",
    ]
    for domain in domains:
        links = [
            ", ".join(f"[{each}]({reference_of(f'{role}.{domain}.{each}')})" for each in languages)
            for role in ROLES
        ]
        rows.append(f"| {domain} | {DOMAINS[domain][0]} | {' | '.join(links)} |")
    return "\n".join(rows)
