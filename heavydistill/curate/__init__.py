"""Builds training sets from traces: candidate sets, filters, mixture, and the rows of both roles.

The unit is a candidate set: a problem with some of the attempts at it. Difficulty is a property of
the set, not of the problem, so one problem gives sets of several strata, and ``mixture`` chooses
among them.
"""
