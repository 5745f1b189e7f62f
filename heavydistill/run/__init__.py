"""Runs: what executes episodes of many problems, and the folder that they write.

``recipe`` has the distilabel steps, tasks and model, and connects them; ``runner`` executes the
steps in this process. ``shards`` runs several pipelines over one journal (``ray``: on a cluster).
``generate`` checks a run and executes it, and ``result`` writes its folder. ``estimate`` predicts
the cost of a run, and ``status`` records its progress.
"""
