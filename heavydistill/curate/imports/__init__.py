"""Imports pools that were sampled elsewhere as the folder of a run that starts at the cache.

Labels in the files are compared with our verdicts and never used.
"""
