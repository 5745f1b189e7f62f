"""What a run achieved: values of each problem, intervals over problems, the summary of a run.

``estimators`` gives the value of one trace, ``intervals`` the bootstrap over many, ``usage`` what
samples took, ``judging`` what a judge decided, and ``summary`` puts all together for a whole run;
``comparison`` holds two of them against each other. One verifier judged all of it, and what failed
counts as wrong. Pure functions, without I/O but for the file of a comparison.
"""
