"""What a run achieved: values of each problem, intervals over problems, the summary of a run.

``estimators`` gives the values of one trace, ``row`` all that one problem counts for, and ``tally``
the rows of a run that is read once, with ``counts`` of its samples. From rows, ``summary`` makes
the metrics of a run and its groups, with ``intervals``, and ``curve`` accuracy over tokens.
``comparison`` holds two runs against each other, ``controls`` a run against others that differ in
their coordination, ``crossing`` thinkers against deliberators. One verifier judged all of it, and
what failed counts as wrong. Pure functions, without I/O but for reading the files of the last
three.
"""
