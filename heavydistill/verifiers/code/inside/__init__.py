"""Programs that run in the sandbox and import little of the standard library.

The ``main.py`` of a start is ``carry`` followed by one of the others, without the lines that import
from this package. It reads its job from ``job.txt``.
"""
