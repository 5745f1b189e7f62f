"""Experiments on finished or repeated runs: evaluations, controls, comparisons, crossings."""
