"""Remarks on the server behind a run, for whoever will use its traces.

The evidence is what came anyway: nothing is asked for a remark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heavydistill.config.models import Capabilities

if TYPE_CHECKING:
    from heavydistill.metrics.summary import Summary
    from heavydistill.models.resolve import ResolvedModel, ResolvedRun

FIRST_TRAJECTORIES = 8
"""Number of trajectories without thinking after which a run remarks on it while it lasts."""


def remarks(summary: Summary, run: ResolvedRun) -> list[str]:
    """Lines for the end of a run; none if there is nothing to say."""
    if not (thinker := run.thinker):
        return []
    answered = summary.trajectories.total - summary.trajectories.failed
    lines = [_on_thinking(thinker, answered, summary.thoughts), _on_seeds(summary, thinker)]
    return [line for line in lines if line]


def thinking_remark(run: ResolvedRun, answered: int, thoughts: int) -> str:
    """The line while a run lasts, of whose ``answered`` trajectories so many hold thinking.

    Empty while there is none.
    """
    if answered < FIRST_TRAJECTORIES or not run.thinker:
        return ""
    return _on_thinking(run.thinker, answered, thoughts)


def _on_thinking(thinker: ResolvedModel, answered: int, thoughts: int) -> str:
    model = thinker.profile
    if not answered or thoughts or model.is_described:
        return ""
    text = f"No response of {model.name} held thinking, so a model that is trained on these "
    text += "traces learns answers without reasoning. "
    if thinker.is_local:
        return f"{text}If it thinks, name the tags of its thinking in a profile (a YAML file)."
    return (
        f"{text}If it thinks, its server leaves the thinking out: start vLLM with "
        "--reasoning-parser; `heavydistill doctor` with the same flags shows what comes."
    )


def _on_seeds(summary: Summary, thinker: ResolvedModel) -> str:
    name = thinker.profile.name
    if summary.same_texts and thinker.sampling.temperature > 0:
        return (
            f"In {summary.same_texts:,} of {summary.problems:,} problems all trajectories of "
            f"{name} are the same text, though each has a seed of its own: look for a cache of "
            "responses on the way, or a server that forces temperature 0."
        )
    seen = (thinker.endpoint.capabilities or Capabilities()).seed
    if seen in ("ignored", "refused"):
        return (
            f"The server of {name} {'ignores' if seen == 'ignored' else 'refuses'} seeds, as "
            "doctor saw: samples differ, but only the journal can repeat them."
        )
    return ""
