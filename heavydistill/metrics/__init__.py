"""What a run achieved: values of each problem, intervals over problems, the summary of a run.

``estimators`` gives the value of one trace and ``subsets`` those of fewer trajectories, ``row`` all
that one problem counts for, and ``tally`` the rows and counts of a run that is read once.
``intervals`` has the bootstrap over problems and Wilson's interval. From rows, ``groups`` makes the
metrics of each kind, ``habits`` the rates of a deliberator, ``curve`` accuracy over tokens, and
``summary`` puts all together with ``counts``, ``usage`` and what a judge decided (``judging``).
``comparison`` holds two runs against each other, with ``mcnemar``; ``comparable`` says which may
be. ``controls`` holds a run against others that differ in their coordination, ``crossing`` thinkers
against deliberators. One verifier judged all of it, and what failed counts as wrong. Pure
functions, without I/O but for reading the files of the last three.
"""
