"""Metrics of runs: values of each problem, intervals over problems, summaries and comparisons.

``problem_figures`` reads the traces of a run once, with ``estimators``, ``counts``, ``claims`` and
``steps``, and computes one row per problem. From the rows, ``summary`` computes the metrics of a
run and of its groups with ``intervals``, and ``curve`` computes the accuracy over tokens.
``comparison`` compares two runs, ``controls`` compares a run with control runs, and
``experiments`` runs that differ in one thing. ``tool_use`` counts what thinkers did with tools.

All functions are pure, except those that read the files of these comparisons.
"""
