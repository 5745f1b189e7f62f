"""Is it right: a folder for each kind of verifier, and the registry that names them.

A verifier reads a problem and the answer text of one response and gives a ``schema.Verdict``:
correct, incorrect or undecided, with a reason. ``pool.VerdictPool`` is what a run calls.
``screening`` says what needs no verifier; whatever may take long or break is decided in workers
that can be killed (``workers``). Programs run in ``sandbox``. A verifier of one's own is a file
with a class like ``exact.Exact``; ``verify.own`` of the configuration names it.

``judge`` is what a model is asked about verdicts that stay undecided, where a run declares one.
"""
