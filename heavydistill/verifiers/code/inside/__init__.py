"""Programs that run in the sandbox; they import little of the standard library to start fast.

The sandbox's ``main.py`` is the source of ``serialize`` followed by that of one other module,
without the lines that import from this package. It reads its job from ``job.txt``.
"""
