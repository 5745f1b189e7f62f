"""Loads problems from files, the Hub, and procedural families of reasoning-gym.

``load`` reads one source and checks all of it before a model is asked: columns, ids, references,
verifiers. Faults raise a ``ProblemsError`` with their places. Rows that cannot be judged can be
left out instead, and ``load_fit`` returns which they are.

Not covered: near-duplicates and overlap with test sets.
"""

from heavydistill.problems.loading import Loaded, OnChecked, load, load_fit

__all__ = ["Loaded", "OnChecked", "load", "load_fit"]
