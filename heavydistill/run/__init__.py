"""Runs: the distilabel steps, tasks and LLM, and ``build_heavy_pipeline`` which connects them.

``distilabel`` has those names of distilabel that are used, and no other module imports it. ``llm``
wraps an engine for it, ``steps`` and ``tasks`` process the rows, ``recipe`` connects them, and
``pipeline`` executes the steps in this process. ``shards`` runs several pipelines over one journal
(``ray``: on a cluster). ``generate`` checks a run and executes it, and ``result`` writes its
folder. ``estimate`` predicts the cost of a run, ``status`` records its progress, and
``experiments`` compares several runs.
"""
