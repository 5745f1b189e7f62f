"""Experiments with several runs: evaluations with controls, crossings, comparisons."""
