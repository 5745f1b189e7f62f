"""The skill as the prompt of one model that does the whole protocol by itself, in one context.

The prompt is the text of ``SKILL.md`` without its frontmatter, for one domain and language, then
one sentence that invokes it, then the problem. It is a user's turn, like every prompt of a run: not
all chat templates have a system message. The number of attempts is the skill's own, 3 to 5: a
number from the run would measure another skill.

Not covered: clients that load skills, and subagents.
"""

from __future__ import annotations

import hashlib
from functools import cache

from heavydistill.config.prompts import OwnPrompts
from heavydistill.config.run import RunConfig, Task
from heavydistill.heavy import prompts
from heavydistill.heavy.prompts import Prompt
from heavydistill.schema import Problem
from heavydistill.skill.frontmatter import SKILL
from heavydistill.skill.texts import skill_texts

_INVOKE = "Use this skill to answer the question below. There are no subagents."


def for_reader(problem: Problem, config: RunConfig) -> Prompt:
    """The wording that a run uses around a problem's cache for the deliberator."""
    domain = config.domain_of(problem)
    return for_task(config.deliberate.task, domain, config.language, config.prompts)


def for_task(task: Task, domain: str, language: str, own: OwnPrompts) -> Prompt:
    """Load the wording around a cache for the task of its reader; raises as ``prompts.load``."""
    if task != "skill":
        return prompts.for_cache(task, domain, language, own)
    return _skill(domain, language, own.text("thinker", domain), own.text("deliberator", domain))


@cache
def _skill(domain: str, language: str, thinker: str | None, deliberator: str | None) -> Prompt:
    own = OwnPrompts(thinker=thinker, deliberator=deliberator)
    skill = skill_texts([domain], [language], own=own, tools=False)[SKILL]
    body = skill.partition("\n---\n")[2].strip()
    opening = f"{body}\n\n{_INVOKE}"
    digits = hashlib.sha256(opening.encode()).hexdigest()[:12]
    name = "own" if thinker or deliberator else domain
    parts = (f"{opening}\n\n", "problem", "")
    return Prompt("skill", parts, f"skill.{name}.{language}@{digits}")
