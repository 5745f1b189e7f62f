"""What a run achieved: values of each problem, intervals over problems, the summary of a run.

``problem_figures`` reads the traces of a run once, with ``estimators`` and ``counts``. From its
rows, one a problem, ``summary`` makes the metrics of a run and its groups, with ``intervals``, and
``curve`` accuracy over tokens.
``comparison`` holds two runs against each other, ``controls`` a run against others that differ in
their coordination, ``crossing`` thinkers against deliberators. Pure functions, without I/O but for
reading the files of the last three.
"""
