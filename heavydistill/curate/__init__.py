"""From traces to training sets: candidate sets, their mixture, the rows of both roles.

The unit is a candidate set: a problem with some of the attempts at it. Its difficulty is that of
the set and not of the problem, so one problem gives several sets of several strata, and which of
them are learnt from is chosen (``mixture``).
"""
