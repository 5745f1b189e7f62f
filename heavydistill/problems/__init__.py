"""Loads problems from files, the Hub, and procedural families of reasoning-gym.

``load`` reads one source and checks its columns, ids, references and verifiers before any request
is sent to a model. Faults raise a ``ProblemsError`` that says where they are. Rows that cannot be
judged can be left out instead; ``load_fit`` lists them.

Not covered: near-duplicates and overlap with test sets.
"""

from heavydistill.problems.loading import LoadedProblems, OnChecked, load, load_fit

__all__ = ["LoadedProblems", "OnChecked", "load", "load_fit"]
