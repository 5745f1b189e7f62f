"""Prompt templates ("wordings") of all roles, versioned by hash.

A wording is a Markdown file ``prompts/ROLE.DOMAIN.LANGUAGE.md``, or one of the user's, which
``config.prompts`` reads; its fields are described there. Judge, chooser and critic have one file
per language. Fields are found before any text of a user or a model is inserted, so that no problem
and no trajectory can fill one.

The deliberator's wording states the four requirements of HeavySkill (arXiv 2605.02396, section 2.2
and Figure 7): consensus is a signal and not a proof; if all attempts are wrong, learn from the
errors and derive again; synthesize the attempts; keep language and format, and give the answer
without an analysis of the attempts. ``brief`` is a short form for models with a short context.

The instructions of a deliberator can be withdrawn in levels (``at_level``): ``full`` is what a run
asks with, ``short`` is ``brief``, and ``none`` is the header lines alone, whose fence keeps a text
from imitating one. ``foreign`` has other instructions, which no set is built with.

Not covered: the chat template, which depends on the model.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from typing import Literal, get_args

from heavydistill.config.models import Replies
from heavydistill.config.prompts import FIELD, FIELDS, NO_PROMPTS, OwnPrompts, Wording, whole
from heavydistill.config.run import RunConfig, Task
from heavydistill.errors import ConfigError
from heavydistill.heavy.pruning import defuse
from heavydistill.schema import Problem

Role = Literal["thinker", "deliberator", "chooser"]
Kind = Literal["thinker", "deliberator", "chooser", "judge", "critic", "skill"]
Level = Literal[Wording, "foreign"]

_FOLDER = resources.files("heavydistill.heavy") / "prompts"
_LANGUAGES = {"en": "English", "zh": "Chinese"}
_SHORTEST_FENCE = 4
_SHORT = "brief"  # domain with the short wordings
_NO_INSTRUCTIONS = OwnPrompts(
    deliberator=(_FOLDER / "named" / "none.md").read_text(encoding="utf-8")
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt template."""

    kind: Kind  # what is asked; a thinker's and a skill's have no place for attempts
    parts: tuple[str, ...]  # text, split at its fields; parts with an odd index are their names
    version: str  # ``name@hash``: the first 12 hex digits of the text's SHA-256

    def fence(self, texts: Iterable[str]) -> str:
        """A run of at least four ``=`` that is longer than any in the template and the texts."""
        return fence_for([*self.parts[::2], *texts])

    @property
    def text(self) -> str:
        """The template, as a prompt of the user's."""
        names = {part: f"{{{{{part}}}}}" for part in self.parts[1::2]}
        return self.filled(**names)

    def filled(self, **texts: str) -> str:
        """Build the prompt with these texts in the places of the fields."""
        return "".join(
            texts[part] if number % 2 else part for number, part in enumerate(self.parts)
        )


def fence_for(texts: Iterable[str]) -> str:
    """A fence: a run of at least four ``=`` that is longer than any run in the texts."""
    longest = max((len(run) for text in texts for run in re.findall("=+", text)), default=0)
    return "=" * max(_SHORTEST_FENCE, longest + 1)


def available() -> list[tuple[str, str, str]]:
    """List all wordings as (role, domain, language), sorted."""
    names = (entry.name for entry in _FOLDER.iterdir())
    parts = (name.removesuffix(".md").split(".") for name in names if name.endswith(".md"))
    return sorted((role, domain, language) for role, domain, language in parts)


def of_version(version: str, *own: OwnPrompts) -> Prompt | None:
    """The wording with this version: ours, or one of ``own``; None if there is none."""
    role, domain, language = version.partition("@")[0].split(".")
    if role not in get_args(Role):
        return None
    candidates = [_own(role, text, language) for each in own for text in each.texts(role)]
    with contextlib.suppress(ConfigError):
        candidates.append(_ours(role, domain, language))
    return next((prompt for prompt in candidates if prompt.version == version), None)


def load(role: Role, domain: str, language: str, own: OwnPrompts = NO_PROMPTS) -> Prompt:
    """Load the wording of a role for problems of a domain: one of ``own``, or else ours.

    Our domains are ``general``, ``stem``, ``code`` and ``brief``, and always ``general`` for a
    chooser; ``language`` is ``en`` or ``zh``. Raises ConfigError for other values. Not covered: the
    judge's (``judge_prompt``).
    """
    text = own.text(role, domain)
    return _ours(role, domain, language) if text is None else _own(role, text, language)


def at_level(level: Level, domain: str, language: str, own: OwnPrompts = NO_PROMPTS) -> Prompt:
    """Load the deliberator's wording at a level of instructions; ``full`` is that of ``load``.

    Raises ConfigError as ``load``, or if there is no ``short`` wording for the problems.
    """
    if level == "full":
        return load("deliberator", domain, language, own)
    if level == "short":
        _require_short(domain, language, own)
        return _ours("deliberator", _SHORT, language)
    if level == "foreign":
        text = (_FOLDER / "foreign" / f"{language}.md").read_text(encoding="utf-8").strip()
        return _own("deliberator", text, language)
    return load("deliberator", domain, language, _NO_INSTRUCTIONS)


def _require_short(domain: str, language: str, own: OwnPrompts) -> None:
    why = ""
    if ("deliberator", _SHORT, language) not in available():
        why = f"there is none in the language {language!r}"
    elif domain == "code":
        why = "it asks for a final answer in \\boxed{}, which problems of the domain 'code' lack"
    elif domain == _SHORT and own.text("deliberator", domain) is None:
        why = f"the full wording of the domain {_SHORT!r} is the short one"
    if why:
        raise ConfigError(f"There is no short wording: {why}", "Leave out the wording short.")


@lru_cache
def _ours(role: str, domain: str, language: str) -> Prompt:
    name = f"{role}.{domain}.{language}"
    if not (entry := _FOLDER / f"{name}.md").is_file():
        choices = ", ".join(f"{d}/{lang}" for r, d, lang in available() if r == role)
        raise ConfigError(
            f"There is no {role} prompt for domain {domain!r} in language {language!r}",
            f"Choose one of: {choices}; or give a file of yours: --prompt {role}.{domain}=FILE, "
            f"or in YAML prompts: {{{role}: {{{domain}: FILE}}}}. If the problems' column domain "
            "means something else, leave it out.",
        )
    text = entry.read_text(encoding="utf-8").strip()
    return _split(role, text, _version(name, text), language)


def _own(role: str, text: str, language: str, replies: str = "") -> Prompt:
    version = _version(f"{role}.own.{language}", f"{replies}\n{text}" if replies else text)
    return _split(role, text, version, language)


@lru_cache
def _split(kind: Kind, text: str, version: str, language: str) -> Prompt:
    parts = FIELD.split(
        FIELD.sub(
            lambda field: (
                _LANGUAGES.get(language, language) if field[1] == "language" else field[0]
            ),
            whole(kind, text),
        )
    )
    return Prompt(kind, tuple(parts), version)


def on_tools(prompt: Prompt, note: Literal["fence", "executed"]) -> Prompt:
    """The wording with a note on tools at its end: for a thinker, how to write a ``fence`` whose
    code is executed; for a deliberator, that code of the attempts was ``executed``."""
    name = prompt.version.partition("@")[0]
    text = (_FOLDER / "tools" / f"{note}.{name.rpartition('.')[2]}.md").read_text(encoding="utf-8")
    parts = (*prompt.parts[:-1], f"{prompt.parts[-1]}\n\n{text.strip()}")
    changed = replace(prompt, parts=parts)
    fields = {part: f"{{{{{part}}}}}" for part in parts[1::2]}
    return replace(changed, version=_version(name, changed.filled(**fields)))


def _version(name: str, text: str) -> str:
    return f"{name}@{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def judge_prompt(language: str, own: str | None = None, replies: Replies = "verdict") -> Prompt:
    """The prompt of a judge: that of the language, or the user's own text.

    The version of an own prompt depends on the form of ``replies`` too, because verdicts do.
    """
    if own is None:
        return _ours("judge", "general", language)
    return _own("judge", own, language, replies)


def critic_prompt(language: str) -> Prompt:
    """The prompt of a critic, which is shown a problem and one attempt at it."""
    return _ours("critic", "general", language)


def own_versions(config: RunConfig) -> dict[str, list[str]]:
    """The versions of the user's prompts in a configuration, by role; no role without one."""
    own, replies = config.prompts, {"judge": config.judge.replies} if config.judge else {}
    return {
        role: [_own(role, each, config.language, replies.get(role, "")).version for each in texts]
        for role in FIELDS
        if (texts := own.texts(role))
    }


def for_cache(task: Task, domain: str, language: str, own: OwnPrompts = NO_PROMPTS) -> Prompt:
    """Load the wording around a cache for the task of its reader; see ``load``.

    For the task ``think`` it is a thinker's, which has no place for attempts. Not covered: the task
    ``skill`` (``skill.prompt``).
    """
    if task == "choose":
        return load("chooser", "general", language, own)
    return load("thinker" if task == "think" else "deliberator", domain, language, own)


def for_thinker(problem: Problem, config: RunConfig) -> Prompt:
    """The wording that a run uses for a thinker on a problem."""
    tool = config.think.tools.python
    prompt = load("thinker", config.domain_of(problem), config.language, config.prompts)
    return on_tools(prompt, "fence") if tool and tool.calls == "fence" else prompt


def asked_of_thinker(problem: Problem, config: RunConfig) -> str:
    """The prompt that a run sends to a thinker for a problem."""
    return thinker_prompt(problem.text, for_thinker(problem, config))


def thinker_prompt(problem_text: str, prompt: Prompt) -> str:
    """Build the prompt of a thinker, or of a skill.

    The problem is unchanged but for control tokens, which would end the user's turn. All readers
    get the same prompt, so those that only one tokenizer knows are left to ``chat.guard``.
    """
    text = defuse(problem_text, ())[0].strip()
    return prompt.filled(problem=text, fence=prompt.fence([text]))
