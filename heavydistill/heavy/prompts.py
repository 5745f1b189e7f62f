"""The wording of both roles, of the judge and of the chooser, versioned by hash.

A prompt is a Markdown file ``prompts/ROLE.DOMAIN.LANGUAGE.md``. A thinker's file is the
instruction that follows the problem. A deliberator's file holds the line ``{{cache}}`` once, and
so does a chooser's; a judge's has the line ``{{answer}}``. What stands before it opens the prompt,
what stands after it closes it. Of judge and chooser each language has one. The only other
placeholder is ``{{fence}}``, and it is filled before any text of a user or a model is joined on, so
no problem and no trajectory can reach a placeholder.

The deliberator's wording carries the four demands of HeavySkill (arXiv 2605.02396, section 2.2
and its Figure 7): consensus is a signal and not a proof; if all attempts are wrong, learn from
the errors and derive again; synthesize the attempts at hand; keep language and format and give
the answer without an analysis of the attempts. ``brief`` says the same in few words, for models
with a short context.

Not covered: the chat template, which belongs to the model.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, cast

from heavydistill.config.run import RunConfig, Task
from heavydistill.errors import ConfigError
from heavydistill.schema import Problem

Role = Literal["thinker", "deliberator", "judge", "chooser"]

CACHE_SLOT = "{{cache}}"
ANSWER_SLOT = "{{answer}}"
FENCE_SLOT = "{{fence}}"
_FOLDER = resources.files("heavydistill.heavy") / "prompts"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One wording."""

    opening: str  # text before the problem (thinker: empty), the cache or the answer to judge
    closing: str  # text after it
    version: str  # ``name@hash``: the first 12 hex digits of the file's SHA-256


def available() -> list[tuple[str, str, str]]:
    """All wordings as sorted (role, domain, language)."""
    names = (entry.name for entry in _FOLDER.iterdir())
    parts = (name.removesuffix(".md").split(".") for name in names if name.endswith(".md"))
    return sorted((role, domain, language) for role, domain, language in parts)


def of_version(version: str) -> Prompt | None:
    """The wording of a version; None if it is not that of this heavydistill."""
    role, domain, language = version.partition("@")[0].split(".")
    try:
        prompt = load(cast(Role, role), domain, language)
    except ConfigError:
        return None
    return prompt if prompt.version == version else None


@cache
def load(role: Role, domain: str, language: str) -> Prompt:
    """The wording for a role.

    ``domain`` is ``general``, ``stem``, ``code`` or ``brief``, and ``general`` for judge and
    chooser; ``language`` is ``en`` or ``zh``. Raises ConfigError, with a list, for any other.
    """
    name = f"{role}.{domain}.{language}"
    entry = _FOLDER / f"{name}.md"
    if not entry.is_file():
        choices = ", ".join(f"{d}/{lang}" for r, d, lang in available() if r == role)
        raise ConfigError(
            f"There is no {role} prompt for domain {domain!r} in language {language!r}",
            f"Choose one of: {choices}.",
        )
    text = entry.read_text(encoding="utf-8").strip()
    version = f"{name}@{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if role == "thinker":
        return Prompt("", text, version)
    slot = ANSWER_SLOT if role == "judge" else CACHE_SLOT
    opening, closing = text.split(f"\n{slot}\n")
    return Prompt(opening, closing, version)


def for_cache(task: Task, domain: str, language: str) -> Prompt:
    """The wording around a cache for what its reader is to do; see ``load`` for the arguments."""
    if task == "choose":
        return load("chooser", "general", language)
    return load("deliberator", domain, language)


def for_thinker(problem: Problem, config: RunConfig) -> Prompt:
    """The wording in which a thinker of a run is asked about a problem."""
    return load("thinker", problem.domain or config.domain or "general", config.language)


def for_reader(problem: Problem, config: RunConfig) -> Prompt:
    """The wording around a cache of a problem for the deliberator of a run."""
    domain = problem.domain or config.domain or "general"
    return for_cache(config.deliberate.task, domain, config.language)


def asked_of_thinker(problem: Problem, config: RunConfig) -> str:
    """What a thinker of a run reads of a problem."""
    return thinker_prompt(problem.text, for_thinker(problem, config))


def thinker_prompt(problem_text: str, prompt: Prompt) -> str:
    """What a thinker reads: the problem as it is, then the instruction."""
    return f"{problem_text.strip()}\n\n{prompt.closing}"
