"""Imports pools sampled elsewhere, as a run folder without caches and deliberations.

Labels in the files are compared with our verdicts and never used.
"""
