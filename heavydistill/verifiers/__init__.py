"""Verdicts on responses: a folder for each kind of verifier, and the registry of their names.

A verifier reads a problem and the answer text of one response and returns a ``schema.Verdict``:
correct, incorrect or undecided, with a reason. Runs use ``pool.VerdictPool``. ``screening`` handles
responses that need no verifier; decisions that may take long or crash run in worker processes that
can be killed (``workers``), and model-written programs run in a ``sandbox``. A user's own verifier
is a file with a class like ``exact.Exact``; ``verify.own`` of the configuration names it.

``judge`` writes the prompts for a judge: a model that decides undecided verdicts, if the run
configures one.
"""
