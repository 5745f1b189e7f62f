"""What a person reads of runs, comparisons, controls and sets, each figure computed once.

``summary``, ``comparison``, ``controls`` and ``sets`` make the figures as grids (``grid``);
``terminal``, ``markdown`` and ``page`` print them. ``trace`` and ``row`` show a trace of a run and
a row of a set, ``curves`` draws a training.
"""
