"""Prompt templates ("wordings") of thinker, deliberator, chooser and judge, versioned by hash.

A wording is a Markdown file ``prompts/ROLE.DOMAIN.LANGUAGE.md``. A thinker's file is the
instruction that follows the problem. The files of deliberator and chooser hold the line
``{{cache}}`` once, and a judge's file the line ``{{answer}}``: the text before it opens the prompt,
the text after it closes it. Judge and chooser have one file per language. The only other
placeholder is ``{{fence}}``. It is filled before any text of a user or a model is inserted, so that
no problem and no trajectory can fill a placeholder.

The deliberator's wording states the four requirements of HeavySkill (arXiv 2605.02396, section 2.2
and Figure 7): consensus is a signal and not a proof; if all attempts are wrong, learn from the
errors and derive again; synthesize the attempts; keep language and format, and give the answer
without an analysis of the attempts. ``brief`` is a short form for models with a short context.

Not covered: the chat template, which depends on the model.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, cast

from heavydistill.config.run import RunConfig, Task
from heavydistill.errors import ConfigError
from heavydistill.heavy.pruning import defuse
from heavydistill.schema import Problem

Role = Literal["thinker", "deliberator", "judge", "chooser"]

CACHE_SLOT = "{{cache}}"
ANSWER_SLOT = "{{answer}}"
FENCE_SLOT = "{{fence}}"
_FOLDER = resources.files("heavydistill.heavy") / "prompts"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt template."""

    opening: str  # Text before the cache or the answer; empty for a thinker
    closing: str  # Text after the problem, the cache or the answer; empty for a skill
    version: str  # ``name@hash``: the first 12 hex digits of the file's SHA-256


def available() -> list[tuple[str, str, str]]:
    """List all wordings as (role, domain, language), sorted."""
    names = (entry.name for entry in _FOLDER.iterdir())
    parts = (name.removesuffix(".md").split(".") for name in names if name.endswith(".md"))
    return sorted((role, domain, language) for role, domain, language in parts)


def of_version(version: str) -> Prompt | None:
    """The wording with this version; None if this release of heavydistill does not contain it."""
    role, domain, language = version.partition("@")[0].split(".")
    try:
        prompt = load(cast(Role, role), domain, language)
    except ConfigError:
        return None
    return prompt if prompt.version == version else None


@cache
def load(role: Role, domain: str, language: str) -> Prompt:
    """Load the wording for a role.

    ``domain`` is ``general``, ``stem``, ``code`` or ``brief``, and always ``general`` for judge and
    chooser; ``language`` is ``en`` or ``zh``. Raises ConfigError for other values.
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
    """Load the wording around a cache for the task of its reader; see ``load``.

    For the task ``think`` it is a thinker's, which has no place for attempts. Not covered: the task
    ``skill`` (``skill.prompt``).
    """
    if task == "choose":
        return load("chooser", "general", language)
    return load("thinker" if task == "think" else "deliberator", domain, language)


def for_thinker(problem: Problem, config: RunConfig) -> Prompt:
    """The wording that a run uses for a thinker on a problem."""
    return load("thinker", problem.domain or config.domain or "general", config.language)


def asked_of_thinker(problem: Problem, config: RunConfig) -> str:
    """The prompt that a run sends to a thinker for a problem."""
    return thinker_prompt(problem.text, for_thinker(problem, config))


def thinker_prompt(problem_text: str, prompt: Prompt) -> str:
    """Build the prompt of a thinker: the problem, then the instruction.

    The problem is unchanged but for control tokens, which would end the user's turn. All readers
    get the same prompt, so those that only one tokenizer knows are left to ``chat.guard``.
    """
    problem_text, _ = defuse(problem_text, ())
    return f"{problem_text.strip()}\n\n{prompt.closing}"
