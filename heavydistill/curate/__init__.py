"""Builds training sets from traces: candidate sets, filters, mixture, and the rows of both roles.

The unit is a candidate set: a problem with a selection of its attempts. Difficulty is a property of
the set, not of the problem: one problem gives sets of several strata, and ``mixture`` selects sets
by stratum.
"""
