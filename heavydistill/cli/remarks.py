"""What the responses of a run show of the server behind them, for whoever will use the traces.

Evidence is what came anyway: nothing is asked for a remark.
"""

from __future__ import annotations

from heavydistill.config.models import Capabilities
from heavydistill.metrics.summary import Summary
from heavydistill.models.resolve import ResolvedModel, ResolvedRun

FIRST_TRAJECTORIES = 8
"""So many without thinking are worth a remark while a run goes on."""


def remarks(summary: Summary, run: ResolvedRun) -> list[str]:
    """Lines for the end of a run; none if there is nothing to say."""
    if not (thinker := run.thinker):
        return []
    answered = summary.trajectories.total - summary.trajectories.failed
    lines = [_on_thinking(thinker)] if lacks_thinking(thinker, answered, summary.thoughts) else []
    return [*lines, *_on_seeds(summary, thinker)]


def thinking_remark(run: ResolvedRun, answered: int, thoughts: int) -> str:
    """The line while a run goes on, after so many trajectories; empty while there is none.

    Args:
        run: The run.
        answered: Trajectories that did not fail.
        thoughts: How many of them have thinking.
    """
    if answered < FIRST_TRAJECTORIES or not run.thinker:
        return ""
    return _on_thinking(run.thinker) if lacks_thinking(run.thinker, answered, thoughts) else ""


def lacks_thinking(thinker: ResolvedModel, answered: int, thoughts: int) -> bool:
    """Whether the thinker has no profile that would say so, and none of its responses thinks."""
    return answered > 0 and thoughts == 0 and not thinker.profile.is_described


def _on_thinking(thinker: ResolvedModel) -> str:
    model = thinker.profile
    text = f"No response of {model.name} held thinking, so a model that is trained on these "
    text += "traces learns answers without reasoning. "
    if model.kind == "local":
        return f"{text}If it thinks, name the tags of its thinking in a profile (a YAML file)."
    return (
        f"{text}If it thinks, its server leaves the thinking out: start vLLM with "
        "--reasoning-parser; `heavydistill doctor` with the same flags shows what comes."
    )


def _on_seeds(summary: Summary, thinker: ResolvedModel) -> list[str]:
    model = thinker.profile
    if summary.same_texts and thinker.sampling.temperature > 0:
        return [
            f"In {summary.same_texts:,} of {summary.problems:,} problems all trajectories of "
            f"{model.name} are the same text, though each has a seed of its own: look for a cache "
            "of responses on the way, or a server that forces temperature 0."
        ]
    seen = (thinker.endpoint.capabilities or Capabilities()).seed
    if seen in ("ignored", "refused"):
        return [
            f"The server of {model.name} {'ignores' if seen == 'ignored' else 'refuses'} seeds, as "
            "doctor saw: samples differ, but only the journal can repeat them."
        ]
    return []
