"""Reports of runs, comparisons, controls and sets; each metric is computed only once.

``summary``, ``comparison``, ``controls`` and ``sets`` arrange the numbers in grids (``grid``);
``terminal``, ``markdown`` and ``page`` print the grids. ``trace`` and ``row`` print a trace of a
run and a row of a set; ``curves`` plots a training.
"""
