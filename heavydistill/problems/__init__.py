"""Where problems come from: files, the Hub, and procedural families of reasoning-gym.

``load`` reads one source and checks all of it before anything is asked of a model: columns, ids,
references, verifiers. The first fault raises a ``ProblemsError`` that says where it is.

Not covered: near-duplicates and overlap with test sets.
"""

from heavydistill.problems.loading import load

__all__ = ["load"]
