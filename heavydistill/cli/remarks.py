"""Remarks on the server behind a run, for whoever will use its traces.

The evidence is what came anyway: nothing is asked for a remark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heavydistill.metrics.summary import Summary
    from heavydistill.models.resolve import ResolvedRun

FIRST_TRAJECTORIES = 8
"""Number of trajectories without thinking after which a run remarks on it while it lasts."""


def remarks(summary: Summary, run: ResolvedRun) -> list[str]:
    """Lines for the end of a run; none if there is nothing to say."""
    if not (thinker := run.thinker):
        return []
    answered = summary.trajectories.total - summary.trajectories.failed
    lines = [remark_without_thinking(run)] if answered and not summary.thoughts else []
    if summary.same_texts and thinker.sampling.temperature > 0:
        lines.append(
            f"In {summary.same_texts:,} of {summary.problems:,} problems all trajectories of "
            f"{thinker.profile.name} are the same text, though each has a seed of its own: look "
            "for a cache of responses on the way, or a server that forces temperature 0."
        )
    return [line for line in lines if line]


def remark_without_thinking(run: ResolvedRun) -> str:
    """The line for trajectories none of which holds thinking; empty where that is as it should."""
    if not run.thinker or run.thinker.profile.is_described:
        return ""
    text = f"No response of {run.thinker.profile.name} held thinking, so a model that is trained "
    text += "on these traces learns answers without reasoning. If it thinks, "
    if run.thinker.is_local:
        return f"{text}name the tags of its thinking in a profile (a YAML file)."
    return (
        f"{text}its server leaves the thinking out: start vLLM with --reasoning-parser; "
        "`heavydistill doctor` with the same flags shows what comes."
    )
