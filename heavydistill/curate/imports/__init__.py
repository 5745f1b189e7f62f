"""Pools that others sampled: their files become the folder of a run that starts at the cache.

Labels that a file brings are counted against our verdicts and never taken over.
"""
