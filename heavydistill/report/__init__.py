"""Reports of runs, comparisons, controls and sets; each figure is computed once.

``summary``, ``comparison`` and ``sets`` arrange the figures as grids (``grid``); ``terminal``,
``markdown`` and ``page`` print them. ``trace`` and ``row`` print a trace of a run and a row of a
set; ``curves`` draws a training.
"""
