"""The texts of the skill ``heavy-thinking``, made from the wordings that runs and trainings use.

``SKILL.md`` is ``template.md`` with both wordings of the first domain and language and, if there
are others, a table of all. ``references/ROLE.DOMAIN.LANGUAGE.md`` holds each wording in the form in
which a model reads it: the prompt of a thinker, and that of a cache. What stands in brackets is for
the reader to fill. The metadata name the version of heavydistill and the hash of each wording.

The same arguments give the same bytes. Not covered: files that depend on a run (``evals``).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Literal

import heavydistill
from heavydistill.config.prompts import NO_PROMPTS, OwnPrompts
from heavydistill.errors import ConfigError
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
    domains: Sequence[str],
    languages: Sequence[str],
    version: str = "",
    own: OwnPrompts = NO_PROMPTS,
    tools: bool = True,
) -> dict[str, str]:
    """Return the files of the skill by path: ``SKILL.md`` and the wordings.

    Args:
        domains, languages: Those of the wordings; the first ones are the defaults of the skill.
        version: Version in the metadata (default: that of heavydistill).
        own: The user's prompts.
        tools: Whether the reader may have the tool ``heavy_think``.

    Raises:
        ConfigError: A role has no wording for one of the domains and languages.
    """
    if wrong := [name for name in (*domains, *languages) if not re.fullmatch(r"[\w-]+", name)]:
        raise ConfigError(
            f"{wrong[0]!r} is no name of a domain or language", "Use letters, digits, - and _."
        )
    rendered = dict[str, str]()
    versions = {VERSION_KEY: version or heavydistill.__version__}
    for domain, language, role in itertools.product(domains, languages, ROLES):
        wording = prompts.load(role, domain, language, own)
        rendered[f"{role}.{domain}.{language}"] = serialize(_QUESTION, _ATTEMPTS, wording)
        digits = wording.version.partition("@")[2]
        versions[f"heavydistill-{role}.{domain}.{language}"] = digits
    several = len(rendered) > len(ROLES)
    suffix = {domain: f" for {domain}" if several else "" for domain in domains}
    slots: dict[str, str] = {
        "metadata": "\n".join(f'  {key}: "{value}"' for key, value in versions.items()),
        "first": f"{suffix[domains[0]]}, {languages[0]}" if several else "",
        "table": _table(domains, languages),
        "formats": "\n".join(f"- Format{suffix[each]}: {_about(each)[1]}." for each in domains),
        **{role: rendered[f"{role}.{domains[0]}.{languages[0]}"] for role in ROLES},
    }
    skill = {SKILL: _filled(slots, {"several": several, "tools": tools})}
    return skill | {_path_of(name): f"{each}\n" for name, each in rendered.items()}


def _filled(slots: Mapping[str, str], parts: Mapping[str, bool]) -> str:
    """Return the filled template, with the conditional parts that are to be in it."""
    template = (resources.files("heavydistill.skill") / "template.md").read_text(encoding="utf-8")
    conditional = r"(?s)\{\{if (\w+)\}\}\n(.*?)\{\{end\}\}\n"
    template = re.sub(conditional, lambda part: part[2] if parts[part[1]] else "", template)
    return re.sub(r"\{\{(\w+)\}\}", lambda slot: slots[slot[1]], template)


def _about(domain: str) -> tuple[str, str]:
    return DOMAINS.get(domain) or (domain, DOMAINS["general"][1])


def _path_of(wording: str) -> str:
    return f"references/{wording}.md"


def wordings_in(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the hashes of the wordings that the metadata of a skill name, by wording."""
    pattern = re.compile(r"heavydistill-((?:thinker|deliberator)\.[\w-]+\.\w+)")
    return {name[1]: metadata[name[0]] for name in map(pattern.fullmatch, metadata) if name}


def _table(domains: Sequence[str], languages: Sequence[str]) -> str:
    rows = ["| domain | questions | thinker's wording | deliberator's wording |", "|---" * 4 + "|"]
    for domain in domains:
        links = (
            ", ".join(f"[{each}]({_path_of(f'{role}.{domain}.{each}')})" for each in languages)
            for role in ROLES
        )
        rows.append(f"| {domain} | {_about(domain)[0]} | {' | '.join(links)} |")
    return "\n".join(rows)
