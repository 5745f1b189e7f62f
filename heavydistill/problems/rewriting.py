"""Applies a user's plug-in to problems: it changes each, or leaves it out.

The plug-in is a function of (problem, facts). The facts of a procedural problem are the metadata
of reasoning-gym and its ``template``, those of another problem are the columns of its row. It
returns the problem, changed or not, or None to leave it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from heavydistill import plugins
from heavydistill.config.run import Problems
from heavydistill.schema import Problem
from heavydistill.verifiers.procedural.verifier import Procedural

Rewrite = Callable[[Problem, Mapping[str, Any]], Problem | None]


def rewrite_of(config: Problems) -> Rewrite | None:
    """Return the function of ``problems.rewrite``; None without one.

    Raises ConfigError if there is no plug-in of that name. The function raises ConfigError if the
    plug-in fails or does not return what it must.
    """
    if not config.rewrite:
        return None
    own = plugins.get("rewrite", config.rewrite, "problems.rewrite")

    def rewrite(problem: Problem, facts: Mapping[str, Any]) -> Problem | None:
        made = own(problem, facts)
        if made is None or made == problem:
            return made  # type: ignore[no-any-return]
        if not isinstance(made, Problem):
            raise own.fault(f"returned {type(made).__name__}, not a Problem or None")
        if made.id != problem.id:
            raise own.fault(f"changed the id of {problem.id}")
        if made.verifier == Procedural.name:
            raise own.fault(
                f"changed {problem.id}, which the verifier {Procedural.name} makes again to judge; "
                "set another verifier too, e.g. verifier='math', verifier_args='{}'"
            )
        return made

    return rewrite
