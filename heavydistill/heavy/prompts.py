"""Prompt templates ("wordings") of thinker, deliberator, chooser and judge, versioned by hash.

A wording is a Markdown file ``prompts/ROLE.DOMAIN.LANGUAGE.md``. A thinker's file is the
instruction that follows the problem. The files of deliberator and chooser hold the line
``{{cache}}`` once: the text before it opens the prompt, the text after it closes it. Judge and
chooser have one file per language; a judge's may also be the user's (``judge_prompt``). The only
other placeholder is ``{{fence}}``. It is filled before any text of a user or a model is inserted,
so that no problem and no trajectory can fill a placeholder.

The deliberator's wording states the four requirements of HeavySkill (arXiv 2605.02396, section 2.2
and Figure 7): consensus is a signal and not a proof; if all attempts are wrong, learn from the
errors and derive again; synthesize the attempts; keep language and format, and give the answer
without an analysis of the attempts. ``brief`` is a short form for models with a short context.

Not covered: the chat template, which depends on the model.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, cast, get_args

from heavydistill.config.models import Replies
from heavydistill.config.run import RunConfig, Task
from heavydistill.errors import ConfigError
from heavydistill.heavy.pruning import defuse
from heavydistill.schema import Problem

Role = Literal["thinker", "deliberator", "chooser"]

CACHE_SLOT = "{{cache}}"
ANSWER_SLOT = "{{answer}}"
FENCE_SLOT = "{{fence}}"
_FOLDER = resources.files("heavydistill.heavy") / "prompts"
_JUDGE_SLOTS = ("problem", "reference", "answer")
_JUDGE_SLOT = re.compile(rf"\{{\{{({'|'.join(_JUDGE_SLOTS)})\}}\}}")
# What a judge's ``{{answer}}`` stands for if the prompt has no place of its own for the others.
_JUDGE_BLOCKS = f"""{FENCE_SLOT} Problem
{{{{problem}}}}
{FENCE_SLOT} Reference answer
{{{{reference}}}}
{FENCE_SLOT} Answer
{ANSWER_SLOT}
{FENCE_SLOT} End of answer"""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt template."""

    opening: str  # Text before the cache; empty for a thinker
    closing: str  # Text after the problem or the cache; empty for a skill
    version: str  # ``name@hash``: the first 12 hex digits of the file's SHA-256


@dataclass(frozen=True, slots=True)
class JudgePrompt:
    """The prompt template of a judge."""

    parts: tuple[str, ...]
    """Text of the prompt, split at the places of the three texts; each part with an odd index is
    the name of the text to insert there: ``problem``, ``reference`` or ``answer``."""
    version: str  # as of a ``Prompt``


def available() -> list[tuple[str, str, str]]:
    """List all wordings as (role, domain, language), sorted."""
    names = (entry.name for entry in _FOLDER.iterdir())
    parts = (name.removesuffix(".md").split(".") for name in names if name.endswith(".md"))
    return sorted((role, domain, language) for role, domain, language in parts)


def of_version(version: str) -> Prompt | None:
    """The wording with this version; None if this release of heavydistill does not contain it."""
    role, domain, language = version.partition("@")[0].split(".")
    if role not in get_args(Role):
        return None
    try:
        prompt = load(cast(Role, role), domain, language)
    except ConfigError:
        return None
    return prompt if prompt.version == version else None


@cache
def load(role: Role, domain: str, language: str) -> Prompt:
    """Load the wording for a role.

    ``domain`` is ``general``, ``stem``, ``code`` or ``brief``, and always ``general`` for a
    chooser; ``language`` is ``en`` or ``zh``. Raises ConfigError for other values. Not covered: the
    judge's (``judge_prompt``).
    """
    text, version = _read(role, domain, language)
    if role == "thinker":
        return Prompt("", text, version)
    opening, closing = text.split(f"\n{CACHE_SLOT}\n")
    return Prompt(opening, closing, version)


def _read(role: str, domain: str, language: str) -> tuple[str, str]:
    """The text of a shipped wording, and its version."""
    name = f"{role}.{domain}.{language}"
    entry = _FOLDER / f"{name}.md"
    if not entry.is_file():
        choices = ", ".join(f"{d}/{lang}" for r, d, lang in available() if r == role)
        raise ConfigError(
            f"There is no {role} prompt for domain {domain!r} in language {language!r}",
            f"Choose one of: {choices}.",
        )
    text = entry.read_text(encoding="utf-8").strip()
    return text, _version(name, text)


def _version(name: str, text: str) -> str:
    return f"{name}@{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def judge_prompt(
    language: str, own: str | None = None, replies: Replies = "verdict"
) -> JudgePrompt:
    """The prompt of a judge: that of the language, or the user's own text.

    A prompt holds ``{{problem}}``, ``{{reference}}`` and ``{{answer}}`` once each, or
    ``{{answer}}`` alone, which then stands for all three as fenced blocks. The version of an own
    prompt depends on the form of ``replies`` too, because verdicts do.

    Raises:
        ConfigError: A placeholder is missing, or occurs several times.
    """
    if own is None:
        text, version = _read("judge", "general", language)
    else:
        text = own.strip()
        version = _version(f"judge.own.{language}", f"{replies}\n{text}")
    slots = sorted(_JUDGE_SLOT.findall(text))
    if slots == ["answer"]:
        text = text.replace(ANSWER_SLOT, _JUDGE_BLOCKS)
    elif slots != sorted(_JUDGE_SLOTS):
        found = ", ".join(f"{{{{{slot}}}}} {slots.count(slot)} times" for slot in _JUDGE_SLOTS)
        raise ConfigError(
            f"judge.prompt: the text has {found}",
            "Write each of the three once where its text belongs, or {{answer}} alone, which then "
            "stands for all three as fenced blocks.",
        )
    return JudgePrompt(tuple(_JUDGE_SLOT.split(text)), version)


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
