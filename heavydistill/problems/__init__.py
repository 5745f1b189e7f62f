"""Where problems come from: files, the Hub, and procedural families of reasoning-gym.

``load`` reads one source and checks all of it before anything is asked of a model: columns, ids,
references, verifiers. Faults raise a ``ProblemsError`` that says where they are; rows that cannot
be judged can be left out instead, and ``load_fit`` tells which.

Not covered: near-duplicates and overlap with test sets.
"""

from heavydistill.problems.loading import Loaded, OnChecked, load, load_fit

__all__ = ["Loaded", "OnChecked", "load", "load_fit"]
